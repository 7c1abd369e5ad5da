//! `fodo clu keys`: creates, imports and shows files with keys. It never prints a key or a PIN.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fodo_clu::RandomSource;
use fodo_clu::cipher::{BLOCK_BYTES, CipherKey, Pin};
use fodo_clu::keys::KeyFile;
use fodo_clu::limit;
use fodo_clu::omp::OmProject;
use fodo_net::clu::random_source;
use serde_json::{Map, Value as Json};
use zeroize::Zeroizing;

use super::target::DEFAULT_KEYS;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, TableCell};

/// Create, import and show files with keys
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: KeysAction,
    /// Print one JSON object per line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum KeysAction {
    /// Create a file with a new key, and with a new PIN for a virtual CLU
    Create {
        /// The file, which must not exist; default: keys.json
        #[arg(value_name = "FILE", default_value = DEFAULT_KEYS)]
        file: PathBuf,
        /// Only the key of the project, as clients need it
        #[arg(long)]
        no_pin: bool,
    },
    /// Write the key of a project of Object Manager to a file
    Import {
        /// The project (.omp)
        #[arg(value_name = "PROJECT")]
        project: PathBuf,
        /// The file, which must not exist; default: keys.json
        #[arg(value_name = "FILE", default_value = DEFAULT_KEYS)]
        file: PathBuf,
    },
    /// Show what files contain, and who can read them
    Show {
        /// Files with keys, or projects (.omp); default: keys.json
        #[arg(value_name = "FILE", default_value = DEFAULT_KEYS)]
        files: Vec<PathBuf>,
    },
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu keys create                  a new key and a new PIN in keys.json
  fodo clu keys import house.omp        the key of a project in keys.json
  fodo clu keys show keys.json house.omp

A file with keys is readable by its owner only (mode 0600), and is never replaced; commands that read
one with another mode report that. import writes no PIN, because a project has one for each CLU, so
that fodo clu serve --commission needs a file of create. It is JSON with
the members key and iv (the key of the project), and for a virtual CLU defaultIV and pin, all in
Base64; the virtual CLU of OpenGr8ton has the same file. No command prints a key or a PIN. Object
Manager requires the PIN of a CLU; this prints that of a virtual CLU:
  jq -r .pin keys.json | base64 -d

JSON keys: file, holds (key, initial_iv, pin; of a project key, pins), clus (of a project), mode,
is_private (only the owner can read the file), same_key_as (an earlier file, or null); after a
failure: file, error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let (file, keys) = match &arguments.action {
        KeysAction::Show { files } => return show(files, arguments.json, outlet),
        KeysAction::Create { file, no_pin: true } => (file, Ok(new_client_keys(&mut random_source()))),
        KeysAction::Create { file, no_pin: false } => (file, Ok(new_clu_keys(&mut random_source()))),
        KeysAction::Import { project, file } => {
            let keys =
                read_project(project).map(|project| KeyFile { project: project.key, initial_iv: None, pin: None });
            (file, keys)
        }
    };
    let created = keys.and_then(|keys| create_file(file, &keys));
    match created {
        Ok(()) if arguments.json => show(std::slice::from_ref(file), true, outlet),
        Ok(()) => {
            let pin = match &arguments.action {
                KeysAction::Import { .. } => "; without a PIN, which fodo clu serve --commission requires",
                _ => "",
            };
            writeln!(outlet.out, "created {}, readable by its owner only{pin}", file.display())?;
            Ok(Exit::Done)
        }
        Err(message) => fail(file, &message, arguments.json, outlet),
    }
}

/// A key of a project, chosen at random.
fn new_client_keys(random: &mut RandomSource) -> KeyFile {
    let mut block = || {
        let mut bytes = Zeroizing::new([0; BLOCK_BYTES]);
        random(&mut bytes[..]);
        *bytes
    };
    KeyFile { project: CipherKey::new(block(), block()), initial_iv: None, pin: None }
}

/// The same, with a PIN of 8 hexadecimal digits and the initialisation vector for its key.
pub fn new_clu_keys(random: &mut RandomSource) -> KeyFile {
    let (mut iv, mut digits) = ([0; BLOCK_BYTES], Zeroizing::new([0; 4]));
    random(&mut iv);
    random(&mut digits[..]);
    let pin = Zeroizing::new(format!("{:08X}", u32::from_be_bytes(*digits)));
    KeyFile { initial_iv: Some(iv), pin: Pin::new(&pin), ..new_client_keys(random) }
}

/// Writes keys to a new file that only its owner can read. The error names the file.
pub fn create_file(path: &Path, keys: &KeyFile) -> Result<(), String> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} exists: it is not replaced, because its keys would be lost", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    })?;
    let written = file.write_all(keys.to_text().as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // A part of a key is worthless; the first error is the one to report.
        let _ = fs::remove_file(path);
        format!("{}: {error}", path.display())
    })
}

/// Reads a file with keys, and reports on stderr if other users may read it. The error names the file and contains no key.
pub fn read_file(path: &Path) -> Result<KeyFile, String> {
    if fs::metadata(path).is_ok_and(|metadata| !is_private(metadata.permissions().mode())) {
        // There is no other place to report that stderr failed.
        let _ = writeln!(
            io::stderr(),
            "fodo clu: {0}: other users can access this file with keys; `chmod 600 {0}` prevents it",
            path.display()
        );
    }
    parse_file(path)
}

/// Whether only the owner can read a file with this mode.
fn is_private(mode: u32) -> bool {
    mode & 0o077 == 0
}

fn parse_file(path: &Path) -> Result<KeyFile, String> {
    let bytes = read_limited(path, limit::KEY_FILE_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{}: it is not UTF-8", path.display()))?;
    KeyFile::parse(text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a project of Object Manager. The error names the file and contains no key.
pub fn read_project(path: &Path) -> Result<OmProject, String> {
    let bytes = read_limited(path, limit::PROJECT_BYTES_MAX)?;
    OmProject::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file; of a longer one, one byte more than the limit, so that its parser rejects it.
fn read_limited(path: &Path, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let n_bytes = file.metadata().map_err(failed)?.len().min(bytes_max as u64) as usize;
    // Enough memory from the start, so that no part of a key remains where the text was before.
    let mut bytes = Zeroizing::new(Vec::with_capacity(n_bytes + 2));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether a file is a project of Object Manager, by its name.
pub fn is_project(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("omp"))
}

/// What a file contains, without the keys.
struct ShownFile {
    key: CipherKey,
    holds: Vec<&'static str>,
    /// The CLUs of a project, and how many PINs it has.
    clus: Option<(usize, usize)>,
    mode: u32,
}

impl ShownFile {
    fn read(path: &Path) -> Result<ShownFile, String> {
        let mode = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.permissions().mode();
        let mut holds = vec!["key"];
        if is_project(path) {
            let project = read_project(path)?;
            let n_pins = project.clus.iter().filter(|clu| clu.pin.is_some()).count();
            if n_pins > 0 {
                holds.push("pins");
            }
            return Ok(ShownFile { key: project.key, holds, clus: Some((project.clus.len(), n_pins)), mode });
        }
        let keys = parse_file(path)?;
        holds.extend(keys.initial_iv.map(|_| "initial_iv"));
        holds.extend(keys.pin.as_ref().map(|_| "pin"));
        Ok(ShownFile { key: keys.project, holds, clus: None, mode })
    }

    fn is_private(&self) -> bool {
        is_private(self.mode)
    }

    fn text(&self, same_as: Option<&Path>) -> String {
        let mut parts = vec!["key of the project".to_owned()];
        match self.clus {
            Some((n_clus, n_pins)) => parts.push(format!("{n_clus} CLUs, {n_pins} PINs")),
            None if self.holds.contains(&"pin") => parts.push("PIN of a virtual CLU".to_owned()),
            None => {}
        }
        if let Some(same_as) = same_as {
            parts.push(format!("the same key as {}", same_as.display()));
        }
        parts.join(", ")
    }

    fn mode_text(&self) -> String {
        let advice = if self.is_private() { "" } else { " (chmod 600: other users may read it)" };
        format!("mode {:04o}{advice}", self.mode & 0o7777)
    }
}

fn show(files: &[PathBuf], as_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let mut exit = Exit::Done;
    let mut shown: Vec<(&Path, ShownFile)> = Vec::new();
    let mut rows: Vec<Vec<TableCell<'_>>> = Vec::new();
    for path in files {
        let file = match ShownFile::read(path) {
            Ok(file) => file,
            Err(message) => {
                exit = exit.and(fail(path, &message, as_json, outlet)?);
                continue;
            }
        };
        let same_as = shown.iter().find(|(_, other)| other.key == file.key).map(|(path, _)| *path);
        if as_json {
            let mut object = Map::new();
            object.insert("file".into(), path.display().to_string().into());
            object.insert("holds".into(), file.holds.clone().into());
            if let Some((n_clus, _)) = file.clus {
                object.insert("clus".into(), n_clus.into());
            }
            object.insert("mode".into(), format!("{:04o}", file.mode & 0o7777).into());
            object.insert("is_private".into(), file.is_private().into());
            object.insert("same_key_as".into(), same_as.map_or(Json::Null, |path| path.display().to_string().into()));
            outlet.out.write_all(json::line(object).as_bytes())?;
        } else {
            rows.push(vec![Box::new(path.display()), Box::new(file.mode_text()), Box::new(file.text(same_as))]);
        }
        shown.push((path, file));
    }
    let columns = Columns::of(&rows);
    rows.iter().try_for_each(|row| columns.write(row, outlet.out))?;
    Ok(exit)
}

fn fail(path: &Path, message: &str, as_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    if as_json {
        let mut object = Map::new();
        object.insert("file".into(), path.display().to_string().into());
        let error = serde_json::json!({"code": Exit::Other.code(), "class": Exit::Other.class(), "message": message});
        object.insert("error".into(), error);
        outlet.out.write_all(json::line(object).as_bytes())?;
    }
    writeln!(outlet.err, "fodo clu keys: {message}")?;
    Ok(Exit::Other)
}
