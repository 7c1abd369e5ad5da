//! The peers, other implementations: found, or downloaded once into a separate environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

/// The packages to download, with versions: the list of the conformance tests, which use the same environment. The file is
/// a link, of which the package contains the target.
const REQUIREMENTS: &str = include_str!("../embedded/requirements.txt");

/// The list from which an environment was created; `cargo xtask peers` reads it, too.
const STAMP: &str = "fodo-requirements.txt";

/// The environment variable that names the Python environment of the peers.
pub const PEERS_VARIABLE: &str = "FODO_PEERS";

/// The available peers; for a missing one, the reason.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Their directory.
    pub directory: PathBuf,
    /// EPICS Base, from the wheel `epicscorelibs`.
    pub epics: Result<Epics, String>,
}

/// EPICS Base: its softIoc and its client library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Epics {
    /// The wheel's version, which starts with that of EPICS Base.
    pub version: String,
    /// The Python that has the wheel.
    pub python: PathBuf,
    /// The client library.
    pub libca: PathBuf,
    /// The library that the client library depends on.
    pub libcom: PathBuf,
}

/// The environment of the peers; creates it if missing, which takes a minute and prints a message.
pub fn environment() -> Peers {
    let directory = directory();
    let mut epics = find_epics(&directory);
    if epics.is_err() || !is_complete(&directory) {
        eprintln!("downloading the peers into {} (once, about a minute) ...", directory.display());
        match create(&directory) {
            Ok(()) => epics = find_epics(&directory),
            // The packages that were installed before still work.
            Err(why) if epics.is_ok() => eprintln!("  some peers are missing: {why}"),
            Err(why) => epics = Err(why),
        }
    }
    if let Err(why) = &epics {
        eprintln!("EPICS Base is missing: libca and softIoc cannot be measured.\n  {why}");
        eprintln!("  Set {PEERS_VARIABLE} to a Python environment with:");
        for line in REQUIREMENTS.lines().filter(|line| !line.starts_with('#')) {
            eprintln!("    {line}");
        }
    }
    Peers { directory, epics }
}

/// The peers that are installed; downloads and prints nothing.
pub fn present() -> Peers {
    let directory = directory();
    let epics = find_epics(&directory);
    Peers { directory, epics }
}

/// The environment variable that names the folder with the package `fodo`.
const FODO_PACKAGE_VARIABLE: &str = "FODO_PYTHON";

/// The folder in which the peers' Python finds the package `fodo`: `FODO_PYTHON`; none, if it is installed among the peers;
/// otherwise `python` of the workspace that contains the current directory, if the package was compiled there.
/// Fails with instructions. Starts a program: do not call it in inner loops.
pub fn fodo_package(peers: &Peers) -> Result<Option<PathBuf>, String> {
    let python = &peers.epics.as_ref().map_err(Clone::clone)?.python;
    let named = std::env::var_os(FODO_PACKAGE_VARIABLE).filter(|text| !text.is_empty()).map(PathBuf::from);
    let here = std::env::current_dir().unwrap_or_default();
    let workspace = here.ancestors().map(|directory| directory.join("python"));
    let compiled = workspace.filter(|folder| folder.join("fodo/_native.abi3.so").is_file());
    let mut why = format!("the package fodo is not installed among the peers, and {FODO_PACKAGE_VARIABLE} is not set");
    let candidates: Vec<Option<PathBuf>> = match named {
        Some(folder) => vec![Some(folder)],
        None => std::iter::once(None).chain(compiled.map(Some)).collect(),
    };
    for folder in candidates {
        let mut import = Command::new(python);
        import.args(["-s", "-c", "import fodo"]).env_remove("PYTHONPATH");
        import.envs(folder.iter().map(|folder| ("PYTHONPATH", folder)));
        match output_of(&mut import) {
            Ok(_) => return Ok(folder),
            Err(error) if folder.is_some() => why = error,
            Err(_) => {}
        }
    }
    Err(format!("{why}; `pip install ./python` into {}", peers.directory.display()))
}

/// The environment variable that names Fodo's jar.
const FODO_JAR_VARIABLE: &str = "FODO_JAVA";

/// Fodo's jar: `FODO_JAVA`, otherwise the one in `java/target` of the workspace that contains the current directory.
/// Fails with instructions.
pub fn fodo_jar() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(FODO_JAR_VARIABLE).filter(|text| !text.is_empty()).map(PathBuf::from) {
        return match named.is_file() {
            true => Ok(named),
            false => Err(format!("{FODO_JAR_VARIABLE} names {}, which is not a file", named.display())),
        };
    }
    let here = std::env::current_dir().unwrap_or_default();
    let built = here.ancestors().find_map(|folder| jar_in(&folder.join("java").join("target")));
    let why = || {
        format!(
            "there is no java/target/fodo-VERSION.jar, and {FODO_JAR_VARIABLE} is not set; `cargo xtask java package` builds it"
        )
    };
    built.ok_or_else(why)
}

/// The jar `fodo-VERSION.jar` of a folder; jars of sources and documents have longer names.
fn jar_in(folder: &Path) -> Option<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("fodo-").and_then(|rest| rest.strip_suffix(".jar"));
        version.is_some_and(|version| {
            version.starts_with(|letter: char| letter.is_ascii_digit()) && !version.contains('-')
        })
    };
    let mut jars: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_library).collect();
    jars.sort();
    jars.pop()
}

/// Whether all packages of the list are installed. An environment chosen by the user is taken as it is; our own
/// contains the list from which it was created.
fn is_complete(directory: &Path) -> bool {
    let is_named = std::env::var_os(PEERS_VARIABLE).is_some_and(|text| !text.is_empty());
    is_named || std::fs::read_to_string(directory.join(STAMP)).is_ok_and(|installed| installed == REQUIREMENTS)
}

/// `FODO_PEERS`, otherwise `.peers/venv` of the workspace that contains the current directory, otherwise the user's
/// cache.
fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(PEERS_VARIABLE).filter(|text| !text.is_empty()) {
        return PathBuf::from(directory);
    }
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(root) =
        here.ancestors().find(|directory| directory.join("conformance/peers/requirements.txt").is_file())
    {
        return root.join(".peers/venv");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("fodo/peers/venv")
}

fn python_of(directory: &Path) -> PathBuf {
    directory.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

fn find_epics(directory: &Path) -> Result<Epics, String> {
    let python = python_of(directory);
    let script = "from epicscorelibs.path import get_lib; from epicscorelibs.version import version; \
                  print(version); print(get_lib('ca')); print(get_lib('Com'))";
    let text = output_of(Command::new(&python).args(["-c", script]))?;
    let mut lines = text.lines();
    match (lines.next(), lines.next(), lines.next()) {
        (Some(version), Some(libca), Some(libcom)) => {
            Ok(Epics { version: version.into(), python, libca: libca.into(), libcom: libcom.into() })
        }
        _ => Err(format!("{} has no usable epicscorelibs", python.display())),
    }
}

fn create(directory: &Path) -> Result<(), String> {
    let parent = directory.parent().unwrap_or(directory);
    std::fs::create_dir_all(parent).map_err(|why| format!("cannot create {}: {why}", parent.display()))?;
    let list = parent.join("requirements.txt");
    std::fs::write(&list, REQUIREMENTS).map_err(|why| format!("cannot write {}: {why}", list.display()))?;
    let system = if cfg!(windows) { "python" } else { "python3" };
    if !python_of(directory).is_file() {
        output_of(Command::new(system).args(["-m", "venv"]).arg(directory))?;
    }
    let mut pip = Command::new(python_of(directory));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    // The list is complete: pip must not add packages. Nothing is compiled, not even to bytecode, most of which would
    // never run.
    pip.args(["--no-deps", "--no-compile", "--only-binary", ":all:", "--requirement"]).arg(&list);
    output_of(&mut pip)?;
    let stamp = directory.join(STAMP);
    std::fs::write(&stamp, REQUIREMENTS).map_err(|why| format!("cannot write {}: {why}", stamp.display()))
}

/// Standard output of a command, or the last line of its messages when it fails.
fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", complaint.lines().next_back().unwrap_or("failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_pinned_to_one_version() {
        for line in REQUIREMENTS.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.contains("=="), "{line}");
        }
    }

    #[test]
    fn jars_of_sources_and_documents_are_not_the_library() {
        let folder = std::env::temp_dir().join(format!("fodo-lab-jars-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["fodo-0.1.0-sources.jar", "fodo-0.1.0-javadoc.jar", "fodo-0.1.0.pom", "other-0.1.0.jar"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let none = jar_in(&folder);
        std::fs::write(folder.join("fodo-0.1.0.jar"), "").unwrap();

        assert_eq!((none, jar_in(&folder)), (None, Some(folder.join("fodo-0.1.0.jar"))));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_missing_peer_environment_is_an_error_that_names_the_program() {
        let missing = find_epics(Path::new("/nonexistent")).unwrap_err();

        assert!(missing.contains("/nonexistent"), "{missing}");
    }
}
