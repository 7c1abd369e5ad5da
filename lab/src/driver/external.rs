//! Drivers in other languages: finding, preparing at first use, and starting them.
//!
//! Their sources are embedded in this program, which writes them into the peers' environment, so that the laboratory
//! runs from any directory. Drivers in Java, C++ and Rust are compiled there once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::DriverFailure;
use super::conversation::protocol_of_names;
use super::java::JavaClient;
use super::spvirit;
use crate::load::tally::{NumberEncoding, UpdateRecording};
use crate::peers::{self, Peers};
use crate::process::{Launch, Ports};
use crate::protocol::LabProtocol;
use crate::server::ServerKind;

/// The peers in Python, with pinned versions.
const LIST_PATH: &str = "conformance/peers/requirements.txt";

/// Imported by every driver in Python.
const PROTOCOL: SourceFile = ("protocol.py", include_str!("../../drivers/python/protocol.py"));

/// Imported by every watcher of a load in Python.
const WATCH: SourceFile = ("watch.py", include_str!("../../drivers/python/watch.py"));

/// Written last, so that an interrupted preparation starts again.
pub(super) const READY: &str = "ready";

/// The driver of the package `fodo`.
const FODO_DRIVER: SourceFile = ("fodo_driver.py", include_str!("../../drivers/python/fodo_driver.py"));

/// The watcher of the package `fodo`.
const FODO_WATCH: SourceFile = ("fodo_watch.py", include_str!("../../drivers/python/fodo_watch.py"));

/// Imported by every server of counters in Python.
const COUNTERS: SourceFile = ("counters.py", include_str!("../../drivers/python/counters.py"));

/// The driver and watcher of pvxs in C++.
const PVXS: [SourceFile; 1] = [("pvxs.cpp", include_str!("../../drivers/pvxs/pvxs.cpp"))];

/// A file of a driver: its name and its text.
pub(super) type SourceFile = (&'static str, &'static str);

/// The language of a driver, with its files.
enum Implementation {
    Python {
        driver: SourceFile,
        watcher: SourceFile,
    },
    /// The package `fodo`, with the word that selects how its watcher takes updates.
    Fodo(&'static str),
    Java(&'static JavaClient),
    Cpp,
    Rust,
}

/// A client whose driver is a program in the client's own language.
#[derive(Clone, Copy, Debug)]
pub enum External {
    /// In Python, for asyncio, over libca.
    Aioca,
    /// In Python, over libca.
    Pyepics,
    /// All Python.
    Caproto,
    /// In Java.
    Java(&'static JavaClient),
    /// In Python, over pvxs.
    P4p,
    /// In Python, over Rust, for both protocols.
    Repics,
    /// The C++ library of pvAccess.
    Pvxs,
    /// In Rust.
    Spvirit,
    /// The package `fodo`, with callbacks.
    FodoPython,
    /// The package `fodo`, with batches.
    FodoBatches,
}

/// What a watcher subscribes to, and how it records updates.
#[derive(Clone, Copy, Debug)]
pub struct WatchTask {
    /// The protocol.
    pub protocol: LabProtocol,
    /// How values encode their number.
    pub numbers: NumberEncoding,
    /// What is recorded of an update; only clients in Python can store values.
    pub recording: UpdateRecording,
}

impl WatchTask {
    /// Checked values, each counted at once.
    pub fn every(protocol: LabProtocol) -> WatchTask {
        WatchTask { protocol, numbers: NumberEncoding::Checked, recording: UpdateRecording::Every }
    }
}

impl External {
    /// The name in tables, and the name that the driver reports.
    pub fn text(self) -> &'static str {
        match self {
            External::Aioca => "aioca",
            External::Pyepics => "pyepics",
            External::Caproto => "caproto",
            External::Java(client) => client.name(),
            External::P4p => "p4p",
            External::Repics => "repics",
            External::Pvxs => "pvxs",
            External::Spvirit => "spvirit",
            External::FodoPython => "fodo-python",
            External::FodoBatches => "fodo-batches",
        }
    }

    /// Which prerequisite is missing, and how to install it. Starts programs: do not call it in inner loops.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self.implementation() {
            Implementation::Python { .. } => missing_package(self.text(), peers),
            Implementation::Fodo(_) => peers::fodo_package(peers).map(|_folder| ()),
            Implementation::Java(client) => client.missing(peers),
            Implementation::Cpp => missing_pvxs(peers),
            Implementation::Rust => spvirit::missing(peers),
        }
        .err()
    }

    /// Command that starts the driver on `cpu` for the server at `ports`. Prepares the driver first; the first use of a
    /// library in Java takes a quarter of a minute, that of spvirit a minute or two, and prints a message.
    pub fn launch(
        self,
        protocol: LabProtocol,
        ports: Ports,
        cpu: Option<usize>,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let who = format!("the driver of {}", self.text());
        let mut launch = self.launched(who, self.words(protocol, peers), ports, cpu, peers)?;
        launch.variables.push(protocol_of_names(protocol));
        Ok(launch)
    }

    /// Command that starts it as the watcher of a load, see `load::worker`; otherwise the same as [`External::launch`].
    pub fn launch_watch(
        self,
        task: WatchTask,
        ports: Ports,
        cpu: Option<usize>,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let who = format!("the watcher of {}", self.text());
        let mut launch = self.launched(who, self.watch_words(task, peers), ports, cpu, peers)?;
        launch.variables.push(protocol_of_names(task.protocol));
        Ok(launch)
    }

    /// The command with its variables.
    fn launched(
        self,
        who: String,
        words: Result<(PathBuf, Vec<OsString>), String>,
        ports: Ports,
        cpu: Option<usize>,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let unavailable = |why| DriverFailure::Unavailable { who: self.text().into(), why };
        let mut launch = launched(who, words.map_err(unavailable)?, ports, cpu);
        if let Implementation::Fodo(_) = self.implementation() {
            launch.variables.extend(python_path(peers).map_err(unavailable)?);
        }
        Ok(launch)
    }

    fn words(self, protocol: LabProtocol, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        match self.implementation() {
            Implementation::Python { driver, .. } => {
                missing_package(self.text(), peers)?;
                let (python, mut words) = python_words(&[PROTOCOL], driver, peers)?;
                words.push(protocol.text().into());
                Ok((python, words))
            }
            Implementation::Fodo(_) => {
                let (python, mut words) = python_words(&[PROTOCOL], FODO_DRIVER, peers)?;
                words.push(protocol.text().into());
                Ok((python, words))
            }
            Implementation::Java(client) => client.driver_words(peers),
            Implementation::Cpp => Ok((pvxs_program(peers)?, vec!["drive".into()])),
            Implementation::Rust => Ok((spvirit::program(peers)?, vec!["drive".into()])),
        }
    }

    fn watch_words(self, task: WatchTask, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        let numbers = task.numbers.text();
        match self.implementation() {
            Implementation::Python { watcher, .. } => {
                missing_package(self.text(), peers)?;
                let (python, mut words) = python_words(&[WATCH], watcher, peers)?;
                words.extend([numbers, task.recording.text(), task.protocol.text()].map(OsString::from));
                Ok((python, words))
            }
            Implementation::Fodo(way) => {
                let (python, mut words) = python_words(&[WATCH], FODO_WATCH, peers)?;
                words.extend([numbers, task.recording.text(), way, task.protocol.text()].map(OsString::from));
                Ok((python, words))
            }
            Implementation::Java(client) => client.watcher_words(numbers, peers),
            Implementation::Cpp => Ok((pvxs_program(peers)?, vec!["watch".into(), numbers.into()])),
            Implementation::Rust => Ok((spvirit::program(peers)?, vec!["watch".into(), numbers.into()])),
        }
    }

    fn implementation(self) -> Implementation {
        match self {
            External::Aioca => Implementation::Python {
                driver: ("aioca_driver.py", include_str!("../../drivers/python/aioca_driver.py")),
                watcher: ("aioca_watch.py", include_str!("../../drivers/python/aioca_watch.py")),
            },
            External::Pyepics => Implementation::Python {
                driver: ("pyepics_driver.py", include_str!("../../drivers/python/pyepics_driver.py")),
                watcher: ("pyepics_watch.py", include_str!("../../drivers/python/pyepics_watch.py")),
            },
            External::Caproto => Implementation::Python {
                driver: ("caproto_driver.py", include_str!("../../drivers/python/caproto_driver.py")),
                watcher: ("caproto_watch.py", include_str!("../../drivers/python/caproto_watch.py")),
            },
            External::P4p => Implementation::Python {
                driver: ("p4p_driver.py", include_str!("../../drivers/python/p4p_driver.py")),
                watcher: ("p4p_watch.py", include_str!("../../drivers/python/p4p_watch.py")),
            },
            External::Repics => Implementation::Python {
                driver: ("repics_driver.py", include_str!("../../drivers/python/repics_driver.py")),
                watcher: ("repics_watch.py", include_str!("../../drivers/python/repics_watch.py")),
            },
            External::FodoPython => Implementation::Fodo("callbacks"),
            External::FodoBatches => Implementation::Fodo("batches"),
            External::Java(client) => Implementation::Java(client),
            External::Pvxs => Implementation::Cpp,
            External::Spvirit => Implementation::Rust,
        }
    }

    /// The version of its package in Python. Starts a program: do not call it in inner loops.
    pub fn version(self, peers: &Peers) -> Option<String> {
        package_version(self.text(), peers).ok()
    }
}

fn launched(who: String, (program, args): (PathBuf, Vec<OsString>), ports: Ports, cpu: Option<usize>) -> Launch {
    // An empty PATH prevents the program from starting further programs, such as a repeater.
    let variables = vec![("PATH", OsString::new()), ("PYTHONDONTWRITEBYTECODE", "1".into())];
    Launch { who, program, args, cpu, ports, variables }
}

/// Python with this program, which imports `shared`.
fn python_words(shared: &[SourceFile], program: SourceFile, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
    let directory = peers.directory.join("fodo-lab").join("python");
    for file in shared {
        write_when_different(&directory, *file)?;
    }
    let program = write_when_different(&directory, program)?;
    // No packages of the user's home directory, and unbuffered answers.
    Ok((python_of(peers)?, vec!["-s".into(), "-u".into(), program.into()]))
}

/// The variable with which Python finds the package `fodo`; `None` if it finds it without.
fn python_path(peers: &Peers) -> Result<Option<(&'static str, OsString)>, String> {
    Ok(peers::fodo_package(peers)?.map(|folder| ("PYTHONPATH", folder.into())))
}

/// Command that starts a server of `n_pvs` counters, see `drivers/python/counters.py`.
pub fn launch_counters(
    server: ServerKind,
    n_pvs: u32,
    ports: Ports,
    cpu: Option<usize>,
    peers: &Peers,
) -> Result<Launch, DriverFailure> {
    let unavailable = |why: String| DriverFailure::Unavailable { who: server.text().into(), why };
    if let Some(why) = server.missing(peers) {
        return Err(unavailable(why));
    }
    let file = match server {
        ServerKind::FodoPython => ("fodo_counters.py", include_str!("../../drivers/python/fodo_counters.py")),
        ServerKind::FodoShared => {
            ("fodo_shared_counters.py", include_str!("../../drivers/python/fodo_shared_counters.py"))
        }
        ServerKind::Softioc => ("softioc_counters.py", include_str!("../../drivers/python/softioc_counters.py")),
        ServerKind::P4p => ("p4p_counters.py", include_str!("../../drivers/python/p4p_counters.py")),
        other => return Err(unavailable(format!("{} is not set by Python", other.text()))),
    };
    let (python, mut words) = python_words(&[COUNTERS], file, peers).map_err(unavailable)?;
    words.push(n_pvs.to_string().into());
    let mut launch = launched(format!("the server {}", server.text()), (python, words), ports, cpu);
    if matches!(server, ServerKind::FodoPython | ServerKind::FodoShared) {
        launch.variables.extend(python_path(peers).map_err(unavailable)?);
    }
    Ok(launch)
}

/// Fails, with instructions, unless the package `name` is installed. Starts a program: do not call it in inner loops.
pub fn missing_package(name: &str, peers: &Peers) -> Result<(), String> {
    python_of(peers)?;
    package_version(name, peers).map(|_version| ()).map_err(|_why| {
        format!(
            "{name} is not installed in {}; install it with `pip install --requirement {LIST_PATH}`",
            peers.directory.display()
        )
    })
}

/// The version of a package in Python. Starts a program: do not call it in inner loops.
pub fn package_version(name: &str, peers: &Peers) -> Result<String, String> {
    let script = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
    let version = output_of(Command::new(python_of(peers)?).args(["-c", script, name]))?;
    Ok(version.trim().to_owned())
}

/// Command that starts caproto's server with the PVs of the database at this path.
pub fn caproto_server(database: &Path, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
    missing_package(External::Caproto.text(), peers)?;
    let directory = peers.directory.join("fodo-lab").join("python");
    let file = ("caproto_server.py", include_str!("../../drivers/python/caproto_server.py"));
    let server = write_when_different(&directory, file)?;
    Ok((python_of(peers)?, vec!["-s".into(), "-u".into(), server.into(), database.into()]))
}

fn python_of(peers: &Peers) -> Result<PathBuf, String> {
    peers.epics.as_ref().map(|epics| epics.python.clone()).map_err(Clone::clone)
}

fn missing_pvxs(peers: &Peers) -> Result<(), String> {
    missing_package("pvxslibs", peers)?;
    match is_pvxs_ready(peers) || which("g++").is_some() {
        true => Ok(()),
        false => Err("no `g++` in PATH, which compiles the driver of pvxs at first use".into()),
    }
}

fn pvxs_directory(peers: &Peers) -> PathBuf {
    peers.directory.join("fodo-lab").join("pvxs")
}

fn is_pvxs_ready(peers: &Peers) -> bool {
    let directory = pvxs_directory(peers);
    PVXS.iter().all(|file| is_same(&directory, *file)) && directory.join(READY).is_file()
}

/// The driver of pvxs, which is compiled at first use.
fn pvxs_program(peers: &Peers) -> Result<PathBuf, String> {
    missing_pvxs(peers)?;
    let directory = pvxs_directory(peers);
    let program = directory.join("driver");
    if is_pvxs_ready(peers) {
        return Ok(program);
    }
    eprintln!("compiling the driver of pvxs in {} (once, some seconds) ...", directory.display());
    let script = "import os, epicscorelibs, pvxslibs; print(os.path.dirname(pvxslibs.__file__)); \
                  print(os.path.dirname(epicscorelibs.__file__))";
    let folders = output_of(Command::new(python_of(peers)?).args(["-c", script]))?;
    let sources: Vec<PathBuf> =
        PVXS.into_iter().map(|file| write_when_different(&directory, file)).collect::<Result<_, _>>()?;
    let mut compiler = Command::new(which("g++").ok_or("no `g++` in PATH")?);
    // Wheels for Linux are compiled for the old interface of the standard library.
    compiler.args(["-std=c++17", "-O2", "-pthread", "-D_GLIBCXX_USE_CXX11_ABI=0", "-o"]).arg(&program);
    compiler.args(sources.iter().filter(|source| source.extension().is_some_and(|extension| extension == "cpp")));
    for folder in folders.lines().map(Path::new) {
        let include = folder.join("include");
        compiler.arg("-I").arg(&include).arg("-I").arg(include.join("os").join("Linux"));
        compiler.arg("-I").arg(include.join("compiler").join("gcc"));
        let libraries = folder.join("lib");
        compiler.arg("-L").arg(&libraries).arg(format!("-Wl,-rpath,{}", libraries.display()));
    }
    output_of(compiler.args(["-lpvxs", "-lCom", "-levent_core", "-levent_pthread"]))?;
    let ready = directory.join(READY);
    std::fs::write(&ready, "").map_err(|why| format!("{}: {why}", ready.display()))?;
    Ok(program)
}

/// Finds a program in PATH.
pub fn which(name: &str) -> Option<PathBuf> {
    let name = if cfg!(windows) { format!("{name}.exe") } else { name.to_owned() };
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(&name)).find(|path| path.is_file())
}

pub(super) fn is_same(directory: &Path, (name, text): SourceFile) -> bool {
    std::fs::read_to_string(directory.join(name)).is_ok_and(|held| held == text)
}

/// Replaces the file atomically, because other drivers may be reading it, and only if its content differs.
pub(super) fn write_when_different(directory: &Path, (name, text): SourceFile) -> Result<PathBuf, String> {
    let path = directory.join(name);
    if !is_same(directory, (name, text)) {
        let whole = directory.join(format!("{name}.{}", std::process::id()));
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&whole, text))
            .and_then(|()| std::fs::rename(&whole, &path))
            .map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(path)
}

/// Standard output of a command, or the first line of its messages when it fails: Maven and javac report the cause
/// there.
pub(super) fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let output = [output.stderr, output.stdout].concat();
    let output = String::from_utf8_lossy(&output);
    Err(format!("{program}: {}", output.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_python_environment_each_client_returns_a_reason() {
        let directory = PathBuf::from("/nonexistent");
        let peers = Peers { directory, epics: Err("no python".into()) };

        for client in
            [External::Aioca, External::Pyepics, External::Caproto, External::P4p, External::Repics, External::Pvxs]
        {
            assert_eq!(client.missing(&peers).as_deref(), Some("no python"), "{client:?}");
        }
    }

    #[test]
    fn an_existing_driver_file_is_not_rewritten() {
        let directory = std::env::temp_dir().join(format!("fodo-lab-external-{}", std::process::id()));
        let path = write_when_different(&directory, PROTOCOL).unwrap();
        let written = std::fs::metadata(&path).and_then(|about| about.modified()).unwrap();

        let again = write_when_different(&directory, PROTOCOL).unwrap();

        assert_eq!(std::fs::metadata(&again).and_then(|about| about.modified()).unwrap(), written);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
