//! Paths, and ports and names reserved for one test.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the prefixes of this process.
static N_PREFIXES: AtomicU32 = AtomicU32::new(0);

/// Maximum number of attempts to find a free port.
const PORT_ATTEMPTS: usize = 100;

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

/// The jars of PSI's `ca`; `None`, with a message, if Java or the jars are missing.
pub fn psi_ca() -> Option<PathBuf> {
    let jars = peers().join("psi-ca").join("jars");
    let has_java = std::process::Command::new("java").arg("-version").output().is_ok();
    if !has_java || !jars.is_dir() {
        eprintln!("skipped: PSI's ca is missing: install a JDK and Maven, then run `cargo xtask peers`");
        return None;
    }
    Some(jars)
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

/// A loopback port that is free for both UDP and TCP at this moment.
pub fn free_port() -> u16 {
    let free = || {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let address = udp.local_addr().ok()?;
        TcpListener::bind(address).ok().map(|_| address.port())
    };
    (0..PORT_ATTEMPTS).find_map(|_| free()).expect("loopback has a port that is free for UDP and TCP alike")
}

/// A prefix for names that no other test uses.
pub fn prefix() -> String {
    let number = N_PREFIXES.fetch_add(1, Ordering::Relaxed);
    // All of the same length, because texts that contain them may be truncated.
    format!("T{}x{number:03}:", std::process::id())
}
