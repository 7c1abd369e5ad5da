//! The servers of study 004.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fodo_clu::cipher::Pin;
use fodo_clu::keys::KeyFile;

use super::echo::ECHO_READY;
use super::wire::{self, ServedReply};
use super::{opengr8ton, script};
use crate::driver::DriverFailure;
use crate::hosts::TwoHosts;
use crate::limit::SERVER_START_MAX;
use crate::process::{ChildProcess, Launch, Ports};

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CluServerKind {
    /// Returns each datagram.
    Raw,
    /// Decrypts each datagram, and encrypts it again.
    Aes,
    /// `fodo clu serve`.
    Fodo,
    /// The virtual CLU of OpenGr8ton.
    OpenGr8ton,
}

impl CluServerKind {
    /// The name in tables and files.
    pub fn text(self) -> &'static str {
        match self {
            CluServerKind::Raw => "raw",
            CluServerKind::Aes => "aes",
            CluServerKind::Fodo => "fodo",
            CluServerKind::OpenGr8ton => "opengr8ton",
        }
    }

    /// What it returns.
    pub fn reply(self) -> ServedReply {
        match self {
            CluServerKind::Raw | CluServerKind::Aes => ServedReply::Same,
            CluServerKind::Fodo | CluServerKind::OpenGr8ton => ServedReply::Clu,
        }
    }
}

/// The folder `a:` of OpenGr8ton below its current directory.
const OF_OPENGR8TON: [&str; 3] = ["runtime", "root", "a"];

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct CluServerProcess {
    /// Where it serves.
    pub address: SocketAddrV4,
    /// The ports and the network of its clients.
    pub ports: Ports,
    process: ChildProcess,
    /// Its scripts and keys.
    _folder: Option<CluFolder>,
    /// The network of OpenGr8ton.
    _hosts: Option<TwoHosts>,
}

impl CluServerProcess {
    /// Starts a server on `cpu`. OpenGr8ton does not report when it is ready: it is when it answers a request.
    ///
    /// `jars`: the folder with the jars of OpenGr8ton.
    pub fn start(
        kind: CluServerKind,
        cpu: Option<usize>,
        jars: Option<&Path>,
    ) -> Result<CluServerProcess, DriverFailure> {
        let who = kind.text();
        let unavailable = |why: String| DriverFailure::Unavailable { who: who.into(), why };
        let failed = |why: std::io::Error| unavailable(why.to_string());
        let ports = Ports::free().map_err(failed)?;
        let launch = |program, args, ports| {
            ChildProcess::start(&Launch { who: who.into(), program, args, cpu, ports, variables: Vec::new() })
        };
        let this = crate::program::path().map_err(failed)?;
        match kind {
            CluServerKind::Raw | CluServerKind::Aes => {
                let mut args: Vec<OsString> = ["lab", "worker", "serve-clu-echo"].map(OsString::from).to_vec();
                args.extend((kind == CluServerKind::Aes).then(|| "--encrypts".into()));
                let mut process = launch(this, args, ports)?;
                let port = process
                    .wait_for(SERVER_START_MAX, |line| line.strip_prefix(ECHO_READY)?.trim().parse::<u16>().ok())?;
                let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
                Ok(CluServerProcess { address, ports, process, _folder: None, _hosts: None })
            }
            CluServerKind::Fodo => {
                let folder = CluFolder::write("", &[]).map_err(failed)?;
                let mut process = launch(this, serve_words(&folder), ports)?;
                let address = process.wait_for(SERVER_START_MAX, address_of)?;
                Ok(CluServerProcess { address, ports, process, _folder: Some(folder), _hosts: None })
            }
            CluServerKind::OpenGr8ton => {
                let java = opengr8ton::java(jars).map_err(&unavailable)?;
                let folder = CluFolder::write("runtime", &OF_OPENGR8TON).map_err(failed)?;
                let hosts = opengr8ton::host().map_err(&unavailable)?;
                let ports = Ports { network_of: Some(hosts.server_number()), ..ports };
                let process = launch("/bin/sh".into(), java.words_in(&folder.path), ports)?;
                let address = opengr8ton::ADDRESS;
                Ok(CluServerProcess { address, ports, process, _folder: Some(folder), _hosts: Some(hosts) })
            }
        }
    }

    /// See [`ChildProcess::number`].
    pub fn process_number(&self) -> String {
        self.process.number()
    }
}

/// The arguments of `fodo` for the CLU.
fn serve_words(folder: &CluFolder) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["clu", "serve", "--address", "127.0.0.1", "--port", "0"].map(OsString::from).to_vec();
    words.extend(["--keys".into(), folder.keys.clone().into(), folder.path.clone().into()]);
    words
}

/// The address in the line with which `fodo clu serve` starts to serve.
fn address_of(line: &str) -> Option<SocketAddrV4> {
    let words = line.strip_prefix("fodo clu serve: CLU ")?;
    words.split_once(" on ")?.1.split(',').next()?.parse().ok()
}

/// The scripts and the keys of a CLU in a temporary folder, which is removed when it is dropped.
#[derive(Debug)]
struct CluFolder {
    path: PathBuf,
    keys: PathBuf,
}

impl CluFolder {
    /// Writes `keys.json` and the scripts, each to a folder below the temporary one.
    fn write(keys: &str, scripts: &[&str]) -> std::io::Result<CluFolder> {
        static N_FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fodo-lab-clu-{}-{number}", std::process::id()));
        let (keys, scripts) = (path.join(keys).join("keys.json"), path.join(scripts.iter().collect::<PathBuf>()));
        std::fs::create_dir_all(&scripts)?;
        let folder = CluFolder { path, keys };
        std::fs::write(scripts.join("MAIN.LUA"), script::main())?;
        std::fs::write(scripts.join("OM.LUA"), script::om())?;
        let text = KeyFile { project: wire::key(), initial_iv: Some([0; 16]), pin: Pin::new("00000000") }.to_text();
        write_private(&folder.keys, text.as_bytes())?;
        Ok(folder)
    }
}

impl Drop for CluFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed is a few kilobytes in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A CLU refuses keys that others can read.
#[cfg(unix)]
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text)
}

#[cfg(not(unix))]
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_started_clu_contains_its_address() {
        let line = "fodo clu serve: CLU 0d0a1b2c on 127.0.0.1:40321, 17 objects, key in keys.json";

        assert_eq!(address_of(line), Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 40321)));
        assert_eq!(address_of("fodo clu serve: created keys.json with a new key"), None);
    }

    #[test]
    #[cfg(unix)]
    fn only_the_owner_can_read_the_keys_and_the_folder_is_removed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = CluFolder::write("runtime", &OF_OPENGR8TON).unwrap();
        let path = folder.path.clone();

        let mode = std::fs::metadata(&folder.keys).unwrap().permissions().mode();
        let text = std::fs::read_to_string(path.join("runtime/keys.json")).unwrap();
        let has_scripts = path.join(OF_OPENGR8TON.iter().collect::<PathBuf>()).join("MAIN.LUA").is_file();
        drop(folder);

        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(KeyFile::parse(&text).unwrap().project, wire::key());
        assert!(has_scripts && !path.exists());
    }
}
