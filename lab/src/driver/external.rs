//! Drivers in other languages: finding, preparing at first use, and starting them.
//!
//! Their sources are embedded in this program, which writes them into the peers' environment, so that the laboratory
//! runs from any directory. The Java driver is compiled there once; Maven fetches its library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::DriverFailure;
use crate::load::tally::NumberEncoding;
use crate::peers::Peers;
use crate::process::{Launch, Ports};

/// The peers in Python, with pinned versions.
const LIST_PATH: &str = "conformance/peers/requirements.txt";

/// Imported by every driver in Python.
const PROTOCOL: (&str, &str) = ("protocol.py", include_str!("../../drivers/python/protocol.py"));

/// Imported by every watcher of a load in Python.
const WATCH: (&str, &str) = ("watch.py", include_str!("../../drivers/python/watch.py"));

/// Maven project that fetches PSI's library and its dependencies.
const POM: (&str, &str) = ("pom.xml", include_str!("../../drivers/psi-ca/pom.xml"));

/// The driver in Java.
const PSI_CA: (&str, &str) = ("PsiCa.java", include_str!("../../drivers/psi-ca/PsiCa.java"));

/// The watcher of a load in Java.
const PSI_CA_WATCH: (&str, &str) = ("PsiCaWatch.java", include_str!("../../drivers/psi-ca/PsiCaWatch.java"));

/// A client whose driver is a program in the client's own language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum External {
    /// In Python, for asyncio, over libca.
    Aioca,
    /// In Python, over libca.
    Pyepics,
    /// All Python.
    Caproto,
    /// PSI's, all Java.
    PsiCa,
}

impl External {
    /// The name in tables, and the name that the driver reports.
    pub fn text(self) -> &'static str {
        match self {
            External::Aioca => "aioca",
            External::Pyepics => "pyepics",
            External::Caproto => "caproto",
            External::PsiCa => "psi-ca",
        }
    }

    /// Which prerequisite is missing, and how to install it. Starts programs: do not call it in inner loops.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self.python_file() {
            Some(_) => self.missing_package(peers).err(),
            None => missing_java(&psi_ca_directory(peers)).err(),
        }
    }

    /// Command that starts the driver on `cpu` for the server at `ports`. Prepares the driver first; the first use of
    /// PSI's library takes a quarter of a minute and prints a message.
    pub fn launch(self, ports: Ports, cpu: Option<usize>, peers: &Peers) -> Result<Launch, DriverFailure> {
        let (program, args) =
            self.words(peers).map_err(|why| DriverFailure::Unavailable { who: self.text().into(), why })?;
        Ok(self.launched(program, args, ports, cpu))
    }

    /// Command that starts it as the watcher of a load, see `load::worker`; otherwise the same as [`External::launch`].
    pub fn launch_watch(
        self,
        numbers: NumberEncoding,
        ports: Ports,
        cpu: Option<usize>,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let words = self.watch_words(numbers, peers);
        let (program, args) = words.map_err(|why| DriverFailure::Unavailable { who: self.text().into(), why })?;
        Ok(self.launched(program, args, ports, cpu))
    }

    fn launched(self, program: PathBuf, args: Vec<OsString>, ports: Ports, cpu: Option<usize>) -> Launch {
        // An empty PATH prevents the driver from starting further programs, such as a repeater.
        let variables = vec![("PATH", OsString::new()), ("PYTHONDONTWRITEBYTECODE", "1".into())];
        Launch { who: format!("the driver of {}", self.text()), program, args, cpu, ports, variables }
    }

    fn words(self, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        let Some((name, text)) = self.python_file() else {
            let (java, mut words) = java_words(&psi_ca_directory(peers))?;
            words.extend(["PsiCa".into(), psi_ca_version().into()]);
            return Ok((java, words));
        };
        self.missing_package(peers)?;
        let directory = peers.directory.join("fodo-lab").join("python");
        write_when_different(&directory, PROTOCOL)?;
        let driver = write_when_different(&directory, (name, text))?;
        // No packages of the user's home directory, and unbuffered answers.
        Ok((python_of(peers)?, vec!["-s".into(), "-u".into(), driver.into()]))
    }

    fn watch_words(self, numbers: NumberEncoding, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        let Some((name, text)) = self.python_watcher() else {
            let (java, mut words) = java_words(&psi_ca_directory(peers))?;
            words.extend(["PsiCaWatch".into(), numbers.text().into()]);
            return Ok((java, words));
        };
        self.missing_package(peers)?;
        let directory = peers.directory.join("fodo-lab").join("python");
        write_when_different(&directory, WATCH)?;
        let watcher = write_when_different(&directory, (name, text))?;
        Ok((python_of(peers)?, vec!["-s".into(), "-u".into(), watcher.into(), numbers.text().into()]))
    }

    fn python_watcher(self) -> Option<(&'static str, &'static str)> {
        match self {
            External::Aioca => Some(("aioca_watch.py", include_str!("../../drivers/python/aioca_watch.py"))),
            External::Pyepics => Some(("pyepics_watch.py", include_str!("../../drivers/python/pyepics_watch.py"))),
            External::Caproto => Some(("caproto_watch.py", include_str!("../../drivers/python/caproto_watch.py"))),
            External::PsiCa => None,
        }
    }

    fn python_file(self) -> Option<(&'static str, &'static str)> {
        match self {
            External::Aioca => Some(("aioca_driver.py", include_str!("../../drivers/python/aioca_driver.py"))),
            External::Pyepics => Some(("pyepics_driver.py", include_str!("../../drivers/python/pyepics_driver.py"))),
            External::Caproto => Some(("caproto_driver.py", include_str!("../../drivers/python/caproto_driver.py"))),
            External::PsiCa => None,
        }
    }

    /// The version of its package in Python. Starts a program: do not call it in inner loops.
    pub fn version(self, peers: &Peers) -> Option<String> {
        self.package_version(peers).ok().map(|version| version.trim().to_owned())
    }

    fn missing_package(self, peers: &Peers) -> Result<(), String> {
        let name = self.text();
        python_of(peers)?;
        self.package_version(peers).map(|_version| ()).map_err(|_why| {
            format!(
                "{name} is not installed in {}; install it with `pip install --requirement {LIST_PATH}`",
                peers.directory.display()
            )
        })
    }

    fn package_version(self, peers: &Peers) -> Result<String, String> {
        let script = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
        output_of(Command::new(python_of(peers)?).args(["-c", script, self.text()]))
    }
}

/// Command that starts caproto's server with the PVs of the database at this path.
pub fn caproto_server(database: &Path, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
    External::Caproto.missing_package(peers)?;
    let directory = peers.directory.join("fodo-lab").join("python");
    let file = ("caproto_server.py", include_str!("../../drivers/python/caproto_server.py"));
    let server = write_when_different(&directory, file)?;
    Ok((python_of(peers)?, vec!["-s".into(), "-u".into(), server.into(), database.into()]))
}

fn python_of(peers: &Peers) -> Result<PathBuf, String> {
    peers.epics.as_ref().map(|epics| epics.python.clone()).map_err(Clone::clone)
}

fn psi_ca_directory(peers: &Peers) -> PathBuf {
    peers.directory.join("fodo-lab").join("psi-ca")
}

/// Whether PSI's library is present and the driver is compiled from these sources.
fn is_ready(directory: &Path) -> bool {
    [POM, PSI_CA, PSI_CA_WATCH].iter().all(|file| is_same(directory, *file)) && directory.join(READY).is_file()
}

/// Written last, so that an interrupted preparation starts again.
const READY: &str = "ready";

fn missing_java(directory: &Path) -> Result<(), String> {
    let needed: &[&str] = if is_ready(directory) { &["java"] } else { &["java", "javac", "mvn"] };
    match needed.iter().find(|name| which(name).is_none()) {
        Some(name) => Err(format!(
            "no `{name}` in PATH; PSI's ca needs a JDK (17 or newer) and, at first use, Maven: on Debian and Ubuntu \
             the packages openjdk-17-jdk-headless and maven"
        )),
        None => Ok(()),
    }
}

/// Java with the class path of PSI's library and of our drivers, which are prepared at first use.
fn java_words(directory: &Path) -> Result<(PathBuf, Vec<OsString>), String> {
    missing_java(directory)?;
    if !is_ready(directory) {
        eprintln!("fetching PSI's ca into {} (once, some seconds) ...", directory.display());
        make_psi_ca(directory)?;
    }
    let java = which("java").ok_or("no `java` in PATH")?;
    let class_path = std::env::join_paths([directory.join("classes"), directory.join("jars").join("*")])
        .map_err(|why| why.to_string())?;
    // Its repeater would be a second Java process that listens on all interfaces.
    let words: Vec<OsString> = vec!["-DCA_REPEATER_DISABLE=true".into(), "-cp".into(), class_path];
    Ok((java, words))
}

/// The version of the library in the pom.
fn psi_ca_version() -> &'static str {
    let after = POM.1.split_once("<artifactId>ca</artifactId>").map_or("", |(_, after)| after);
    let version = after.split_once("<version>").and_then(|(_, rest)| rest.split_once("</version>"));
    version.map_or("", |(version, _)| version)
}

fn make_psi_ca(directory: &Path) -> Result<(), String> {
    // Jars of another version in the same directory would be on the class path too.
    for stale in ["jars", "classes"] {
        match std::fs::remove_dir_all(directory.join(stale)) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {why}", directory.join(stale).display()));
            }
            _ => {}
        }
    }
    let pom = write_when_different(directory, POM)?;
    let sources = [write_when_different(directory, PSI_CA)?, write_when_different(directory, PSI_CA_WATCH)?];
    let mut mvn = Command::new(which("mvn").ok_or("no `mvn` in PATH")?);
    mvn.args(["--batch-mode", "--quiet", "--file"]).arg(pom).arg("dependency:copy-dependencies");
    mvn.args(["-DincludeScope=runtime", "-DexcludeClassifiers=javadoc"]);
    mvn.arg(format!("-DoutputDirectory={}", directory.join("jars").display()));
    output_of(&mut mvn).map_err(|why| format!("Maven could not fetch org.epics:ca: {why}"))?;
    let mut javac = Command::new(which("javac").ok_or("no `javac` in PATH")?);
    javac.arg("-cp").arg(directory.join("jars").join("*"));
    output_of(javac.arg("-d").arg(directory.join("classes")).args(sources))?;
    let ready = directory.join(READY);
    std::fs::write(&ready, "").map_err(|why| format!("{}: {why}", ready.display()))
}

/// Finds a program in PATH.
pub fn which(name: &str) -> Option<PathBuf> {
    let name = if cfg!(windows) { format!("{name}.exe") } else { name.to_owned() };
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(&name)).find(|path| path.is_file())
}

fn is_same(directory: &Path, (name, text): (&str, &str)) -> bool {
    std::fs::read_to_string(directory.join(name)).is_ok_and(|held| held == text)
}

/// Replaces the file atomically, because other drivers may be reading it, and only if its content differs.
fn write_when_different(directory: &Path, (name, text): (&str, &str)) -> Result<PathBuf, String> {
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
fn output_of(command: &mut Command) -> Result<String, String> {
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
    fn the_psi_library_version_is_the_one_in_the_pom() {
        assert_eq!(psi_ca_version(), "1.3.2");
    }

    #[test]
    fn without_the_python_environment_each_client_returns_a_reason() {
        let directory = PathBuf::from("/nonexistent");
        let peers = Peers { directory, epics: Err("no python".into()) };

        for client in [External::Aioca, External::Pyepics, External::Caproto] {
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
