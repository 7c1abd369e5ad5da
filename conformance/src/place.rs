//! Where things are and which ports and names a test has to itself.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers the prefixes of one process.
static N_PREFIXES: AtomicU32 = AtomicU32::new(0);

/// How often a pair of ports is looked for before giving up.
const PORT_ATTEMPTS: usize = 100;

/// Reaches everybody on loopback who listens everywhere.
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

/// The peers' Python: in `.peers/venv` of the workspace, or where `FODO_PEERS` says.
pub fn python() -> PathBuf {
    let python = peers().join("bin").join("python");
    assert!(python.exists(), "the peers are not there: `cargo xtask peers` gets them");
    python
}

/// The jars of PSI's `ca`; `None`, with a line saying so, where there is no Java or nothing fetched them.
pub fn psi_ca() -> Option<PathBuf> {
    let jars = peers().join("psi-ca").join("jars");
    let has_java = std::process::Command::new("java").arg("-version").output().is_ok();
    if !has_java || !jars.is_dir() {
        eprintln!("skipped: PSI's ca is not here: a JDK, Maven and `cargo xtask peers` get it");
        return None;
    }
    Some(jars)
}

/// Whether this network is loopback and nothing else, so that whoever listens everywhere listens to nobody.
pub fn is_alone() -> bool {
    // An address that documents use; connecting chooses a route and sends nothing.
    let has_route =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_ok_and(|socket| socket.connect("192.0.2.1:9").is_ok());
    !has_route
}

/// The program `fodo`: where `FODO_BIN` says, or the release build.
pub fn program() -> PathBuf {
    let program = match std::env::var_os("FODO_BIN") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => workspace().join("target").join("release").join("fodo"),
    };
    assert!(program.exists(), "{}: `cargo build --release -p fodo-cli` makes it", program.display());
    program
}

/// A script of a peer.
pub fn script(name: &str) -> PathBuf {
    own_folder().join("peers").join(name)
}

/// A database of this crate.
pub fn database(name: &str) -> PathBuf {
    own_folder().join("db").join(name)
}

/// A port of loopback that is free for UDP and TCP alike at this moment.
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
    // All of one length, since texts that hold them may be cut.
    format!("T{}x{number:03}:", std::process::id())
}
