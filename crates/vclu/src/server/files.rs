//! The files of a virtual CLU that clients read and write with TFTP.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{MacAddress, Serial};
use fodo_clu::keys::KeyFile;
use fodo_clu::tftp::{FilePath, FileStore, StoreFault, TransferId};
use fodo_data::TimeStamp;
use fodo_net::clu::CluFiles;

use super::VcluServerConfig;
use super::stored::{OPEN_MODE, replace, store_key};
use crate::clock::ClockFn;
use crate::folder::entry_of;
use crate::object::interface::CluVersion;
use crate::remote::PeerClus;

/// The file with the measurements on the drive `p:`.
const MEASUREMENTS: &str = "meas.bin";

/// The drive `a:` is the folder of the scripts; its subfolders `p` and `m` are the other drives, which clients only read.
///
/// Clients see scripts, `settings.usr` and two files that describe the CLU. Other files of the folder, such as keys, are
/// hidden: TFTP encrypts nothing.
pub(super) struct ServedFiles {
    folder: PathBuf,
    serial: Serial,
    mac: MacAddress,
    clock: ClockFn,
    key_path: Option<PathBuf>,
    /// The content of a new file with keys.
    keys: KeyFile,
    /// Other CLUs of the project have the same key.
    peers: PeerClus,
    /// Files that are being written: where they are stored, and their content. Bounded by the limits of the TFTP server.
    uploads: HashMap<TransferId, (PathBuf, Vec<u8>)>,
}

impl ServedFiles {
    pub(super) fn new(config: &VcluServerConfig) -> ServedFiles {
        config.clu.peers.set_project_key(config.server.project_key.clone());
        ServedFiles {
            folder: config.clu.folder.clone(),
            serial: config.server.serial,
            mac: config.server.mac,
            clock: config.clu.clock.clone(),
            key_path: config.keys.clone(),
            keys: KeyFile {
                project: config.server.project_key.clone(),
                initial_iv: None,
                pin: config.server.pin.clone(),
            },
            peers: config.clu.peers.clone(),
            uploads: HashMap::new(),
        }
    }

    /// Where a file is, or would be. Symbolic links that lead outside its drive are refused.
    fn place(&self, path: &FilePath) -> Result<PathBuf, StoreFault> {
        let drive = match path.drive() {
            'a' => self.folder.clone(),
            letter @ ('m' | 'p') => self.folder.join(String::from(letter)),
            _ => return Err(StoreFault::NotFound),
        };
        let root = drive.canonicalize().map_err(|_| StoreFault::NotFound)?;
        let (mut place, mut names) = (root.clone(), path.names().peekable());
        while let Some(name) = names.next() {
            let found = entry_of(&place, name);
            let is_new_file = found.is_none() && names.peek().is_none();
            place = match found {
                Some(found) => found.canonicalize().map_err(|_| StoreFault::NotFound)?,
                None if is_new_file => place.join(name),
                None => return Err(StoreFault::NotFound),
            };
            if !place.starts_with(&root) {
                return Err(StoreFault::NotPermitted);
            }
        }
        Ok(place)
    }

    /// Seven lines by which Object Manager finds the interface of a CLU.
    fn config_text(&self) -> String {
        let CluVersion { hardware_type, hardware_version, firmware_type, firmware_version } = CluVersion::VIRTUAL;
        let numbers = [firmware_type, firmware_version, hardware_type, hardware_version];
        let mut text = format!("00000000\r\n{}\r\n{}\r\n", self.serial, self.mac);
        for number in numbers {
            text.push_str(&format!("{number:08x}\r\n"));
        }
        text
    }

    /// The same for newer versions of Object Manager.
    fn config_json(&self) -> String {
        let CluVersion { hardware_type, hardware_version, firmware_type, firmware_version } = CluVersion::VIRTUAL;
        format!(
            "{{\"sn\":{},\"mac\":\"{}\",\"hwType\":{hardware_type},\"hwVer\":{hardware_version},\"fwType\":{firmware_type},\
             \"fwApiVer\":{firmware_version},\"fwVer\":\"{}\",\"status\":\"OK\",\"tfbusDevices\":[],\"zwaveDevices\":[]}}\n",
            self.serial.0,
            self.mac,
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// What clients may do with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedKind {
    /// Read and replace it.
    Script,
    /// Read it.
    ReadOnly,
    /// Read what describes the CLU.
    ConfigText,
    ConfigJson,
}

fn kind_of(path: &FilePath) -> Result<ServedKind, StoreFault> {
    if path.drive() != 'a' {
        return Ok(ServedKind::ReadOnly);
    }
    let is = |text: &[u8]| FilePath::parse(text).as_ref() == Some(path);
    let name = path.names().last().unwrap_or_default();
    let is_script = Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("lua"));
    match () {
        () if is(b"config.txt") => Ok(ServedKind::ConfigText),
        () if is(b"CONFIG.JSON") => Ok(ServedKind::ConfigJson),
        () if is_script || is(b"settings.usr") => Ok(ServedKind::Script),
        () => Err(StoreFault::NotPermitted),
    }
}

impl FileStore for ServedFiles {
    fn read(&mut self, path: &FilePath, n_bytes_max: usize) -> Result<Vec<u8>, StoreFault> {
        match kind_of(path)? {
            ServedKind::ConfigText => return Ok(self.config_text().into()),
            ServedKind::ConfigJson => return Ok(self.config_json().into()),
            ServedKind::Script | ServedKind::ReadOnly => {}
        }
        let place = self.place(path)?;
        // Not a pipe, whose reader waits.
        if !place.is_file() {
            return Err(StoreFault::NotFound);
        }
        let file = File::open(place).map_err(|error| fault(&error))?;
        let mut content = Vec::new();
        file.take(n_bytes_max as u64 + 1).read_to_end(&mut content).map_err(|error| fault(&error))?;
        if content.len() > n_bytes_max { Err(StoreFault::TooLarge) } else { Ok(content) }
    }

    fn begin(&mut self, transfer: TransferId, path: &FilePath) -> Result<(), StoreFault> {
        if kind_of(path)? != ServedKind::Script {
            return Err(StoreFault::NotPermitted);
        }
        fs::create_dir_all(&self.folder).map_err(|error| fault(&error))?;
        let place = self.place(path)?;
        if place.exists() && !place.is_file() {
            return Err(StoreFault::NotPermitted);
        }
        self.uploads.insert(transfer, (place, Vec::new()));
        Ok(())
    }

    fn write(&mut self, transfer: TransferId, content: &[u8]) -> Result<(), StoreFault> {
        let (_, upload) = self.uploads.get_mut(&transfer).ok_or(StoreFault::Failed)?;
        upload.extend_from_slice(content);
        Ok(())
    }

    fn commit(&mut self, transfer: TransferId) -> Result<(), StoreFault> {
        let (place, content) = self.uploads.remove(&transfer).ok_or(StoreFault::Failed)?;
        replace(&place, &content, OPEN_MODE).map_err(|error| fault(&error))
    }

    fn abort(&mut self, transfer: TransferId) {
        self.uploads.remove(&transfer);
    }
}

impl CluFiles for ServedFiles {
    fn store_key(&mut self, key: &CipherKey) -> io::Result<()> {
        let path = self.key_path.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        store_key(path, &self.keys, key)?;
        self.peers.set_project_key(key.clone());
        Ok(())
    }

    /// A virtual CLU measures nothing: the file has a header and no values.
    fn measure(&mut self, _parameter: &str) -> io::Result<()> {
        let folder = self.folder.join("p");
        fs::create_dir_all(&folder)?;
        replace(&folder.join(MEASUREMENTS), &measurements((self.clock)().wall), OPEN_MODE)
    }
}

/// A file of measurements without values: its version, their number, and when it was written.
fn measurements(written: TimeStamp) -> Vec<u8> {
    let written = u32::try_from(written.unix_s).unwrap_or(u32::MAX);
    [b"MEAS05".as_slice(), &[0; 2], &written.to_le_bytes()].concat()
}

fn fault(error: &io::Error) -> StoreFault {
    match error.kind() {
        io::ErrorKind::NotFound => StoreFault::NotFound,
        io::ErrorKind::PermissionDenied => StoreFault::NotPermitted,
        _ => StoreFault::Failed,
    }
}
