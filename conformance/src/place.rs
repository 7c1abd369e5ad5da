//! Paths, and ports and names reserved for one test.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use fodo_testing::free_port;

use crate::process::printed_by;

/// Counts the prefixes of this process.
static N_PREFIXES: AtomicU32 = AtomicU32::new(0);

/// The folders of the libraries in Java, below the one of the peers.
const JAVA_LIBRARIES: [&str; 2] = ["psi-ca", "core-pva"];

/// Broadcast address of loopback; reaches every server that listens on all interfaces.
pub const LOOPBACK_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

/// The folder of this crate.
pub fn own_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn workspace() -> PathBuf {
    own_folder().parent().unwrap_or(own_folder()).to_path_buf()
}

fn peers() -> PathBuf {
    match std::env::var_os("FODO_PEERS") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => workspace().join(".peers").join("venv"),
    }
}

/// The peers' Python: from `.peers/venv` of the workspace, or from `FODO_PEERS`.
pub fn python() -> PathBuf {
    let python = peers().join("bin").join("python");
    assert!(python.exists(), "the peers are missing: install them with `cargo xtask peers`");
    python
}

/// The class path of the peers in Java, which are compiled once for each version of their sources; `None`, with a
/// message, if Java or a library is missing.
pub fn java_class_path() -> Option<&'static OsStr> {
    static CLASS_PATH: OnceLock<Option<OsString>> = OnceLock::new();
    CLASS_PATH.get_or_init(compiled_java).as_deref()
}

/// Java with this class of the peers. Without a JDK the class is not found.
pub fn java(class: &str) -> Command {
    let mut command = Command::new("java");
    // The quick compiler suits processes that live for seconds. PSI's repeater would be a second Java process.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-DCA_REPEATER_DISABLE=true", "-cp"]);
    command.arg(java_class_path().unwrap_or_default()).arg(class);
    command
}

fn compiled_java() -> Option<OsString> {
    let jars = JAVA_LIBRARIES.map(|name| peers().join(name).join("jars"));
    if !jars.iter().all(|folder| folder.is_dir()) || Command::new("javac").arg("-version").output().is_err() {
        eprintln!("skipped: the peers in Java are missing: install a JDK and Maven, then run `cargo xtask peers`");
        return None;
    }
    let listed = std::fs::read_dir(own_folder().join("peers")).expect("the folder of the peers can be read");
    let mut sources: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "java"));
    sources.sort();
    let mut hasher = DefaultHasher::new();
    for source in &sources {
        std::fs::read(source).expect("a source can be read").hash(&mut hasher);
    }

    let classes = peers().join(format!("java-{:016x}", hasher.finish()));
    let [psi_ca, core_pva] = jars.map(|folder| folder.join("*"));
    let class_path = std::env::join_paths([&classes, &psi_ca, &core_pva]).expect("paths without a colon");
    if !classes.is_dir() {
        // Another process may do the same at this moment.
        let unfinished = peers().join(format!("java-{}", std::process::id()));
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(&class_path).arg("-d").arg(&unfinished).args(sources);
        printed_by("javac", &mut javac, Duration::from_secs(60)).expect("the peers in Java compile");
        if std::fs::rename(&unfinished, &classes).is_err() {
            // The other process was first.
            let _ = std::fs::remove_dir_all(&unfinished);
        }
    }
    Some(class_path)
}

/// Whether this network is loopback only, so that listening on all interfaces reaches no other host.
pub fn is_alone() -> bool {
    // An address reserved for documentation; connecting selects a route and sends nothing.
    let has_route =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_ok_and(|socket| socket.connect("192.0.2.1:9").is_ok());
    !has_route
}

/// The program `fodo`: from `FODO_BIN`, or the release build.
pub fn program() -> PathBuf {
    let program = match std::env::var_os("FODO_BIN") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => workspace().join("target").join("release").join("fodo"),
    };
    assert!(program.exists(), "{} is missing: build it with `cargo build --release -p fodo-cli`", program.display());
    program
}

/// The path of a peer's script.
pub fn script(name: &str) -> PathBuf {
    own_folder().join("peers").join(name)
}

/// The path of a database of this crate.
pub fn database(name: &str) -> PathBuf {
    own_folder().join("db").join(name)
}

/// A prefix for names that no other test uses.
pub fn prefix() -> String {
    let number = N_PREFIXES.fetch_add(1, Ordering::Relaxed);
    // All of the same length, because texts that contain them may be truncated.
    format!("T{}x{number:03}:", std::process::id())
}
