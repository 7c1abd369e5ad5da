//! `fodo clu download`: reads files of a CLU.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::{SCRIPTS, TransferFlags, fail};
use super::outcome::CluFailure;
use super::target::CluFlags;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Read files of a CLU
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// Files of the CLU, such as CONFIG.JSON or p:\meas.bin; default: MAIN.LUA, OM.LUA and USER.LUA
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Folder for the files; it is created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    transfer: TransferFlags,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu download 10.0.0.2 --to copy
  fodo clu download 10.0.0.2 CONFIG.JSON config.txt
  fodo clu download --force --clu house.toml house OM.LUA

A file without a drive is on the drive a:, the one with the scripts. A file of this host is replaced
only with --force. Files are transferred by TFTP, without encryption; a virtual CLU permits it only
with --tftp. A transfer that takes more than two seconds shows its progress, at a terminal.

JSON keys: clu, file (in the CLU), bytes, path (of this host); after a failure clu, file, outcome,
error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let form = ("download", arguments.flags.json);
    let files = match arguments.files.is_empty() {
        true => SCRIPTS.map(str::to_owned).to_vec(),
        false => arguments.files.clone(),
    };
    if let Err(message) = prepare(arguments, &files) {
        return fail(&CluFailure::of_host(message), &arguments.clu, None, form, outlet);
    }
    let (clu, tftp) = match arguments.transfer.start(&arguments.flags, &arguments.clu) {
        Ok(started) => started,
        Err(failure) => return fail(&failure, &arguments.clu, None, form, outlet),
    };
    let mut exit = Exit::Done;
    for file in &files {
        let name = arguments.transfer.name_in_clu(file);
        let path = arguments.to.join(local_name(file));
        let read = tftp.download(&clu, &name).and_then(|content| {
            store(&path, &content, arguments.force)
                .map_err(|error| CluFailure::of_host(format!("{}: {error}", path.display())))?;
            Ok(content.len())
        });
        match read {
            Ok(n_bytes) if arguments.flags.json => {
                let mut object = clu.target.json();
                object.insert("file".into(), name.into());
                object.insert("bytes".into(), n_bytes.into());
                object.insert("path".into(), path.display().to_string().into());
                outlet.out.write_all(json::line(object).as_bytes())?;
            }
            Ok(n_bytes) => {
                let name = escape_control(&name);
                writeln!(outlet.out, "{}: {name}  {n_bytes} bytes, to {}", clu.target, path.display())?;
            }
            Err(failure) => exit = exit.and(fail(&failure, &arguments.clu, Some(&name), form, outlet)?),
        }
        outlet.out.flush()?;
    }
    Ok(exit)
}

/// The name on this host: that of the file without drive and folders.
fn local_name(file: &str) -> &str {
    file.rsplit([':', '\\', '/']).next().unwrap_or(file)
}

/// Creates the folder, and rejects files that exist before any is transferred.
fn prepare(arguments: &Arguments, files: &[String]) -> Result<(), String> {
    fs::create_dir_all(&arguments.to).map_err(|error| format!("{}: {error}", arguments.to.display()))?;
    for file in files {
        let name = local_name(file);
        if name.is_empty() || name == "." || name == ".." {
            return Err(format!("\"{file}\" is not the name of a file"));
        }
        let path = arguments.to.join(name);
        if path.exists() && !arguments.force {
            return Err(format!("{} exists; --force replaces it", path.display()));
        }
    }
    Ok(())
}

/// Writes a file so that it is either old or complete.
fn store(path: &Path, content: &[u8], is_replaced: bool) -> io::Result<()> {
    if !is_replaced {
        return OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::remove_file(&new);
    })
}
