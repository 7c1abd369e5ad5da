//! `fodo clu upload`: writes the scripts of a project to a CLU.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fodo_clu::limit::TFTP_FILE_BYTES_MAX;

use super::files::{SCRIPTS, TransferFlags, fail};
use super::outcome::CluFailure;
use super::reset::reset;
use super::target::CluFlags;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Write scripts to a CLU and start them
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// A folder with MAIN.LUA, OM.LUA and USER.LUA, or files
    #[arg(required = true, value_name = "FOLDER|FILE")]
    paths: Vec<PathBuf>,
    /// Do not reset the CLU after the transfer
    #[arg(long)]
    no_reset: bool,
    #[command(flatten)]
    transfer: TransferFlags,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu upload 10.0.0.2 house
  fodo clu upload --no-reset 10.0.0.2 house/USER.LUA
  fodo clu upload --clu house.toml house house -w 30

Of a folder, MAIN.LUA, OM.LUA and USER.LUA are written, in this order, as far as they exist; MAIN.LUA
must exist. Then the CLU is reset, so that it runs the new scripts, and is checked: if they fail
(emergency mode), the code is 5. A file replaces the one in the CLU, of which no copy is kept:
fodo clu download reads it before.

Files are transferred by TFTP, without encryption. A virtual CLU accepts them only with --tftp. A
transfer that takes more than two seconds shows its progress, at a terminal.

JSON keys: clu, file (in the CLU), bytes; at the end, after a reset, clu, outcome (reset), answer;
after a failure clu, file (of a transfer), outcome, error (code, class, message).";

/// A file to be written.
struct ScriptFile {
    name: String,
    content: Vec<u8>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let form = ("upload", arguments.flags.json);
    let files = match read_files(&arguments.paths) {
        Ok(files) => files,
        Err(message) => return fail(&CluFailure::of_host(message), &arguments.clu, None, form, outlet),
    };
    let (clu, tftp) = match arguments.transfer.start(&arguments.flags, &arguments.clu) {
        Ok(started) => started,
        Err(failure) => return fail(&failure, &arguments.clu, None, form, outlet),
    };
    for file in &files {
        let name = arguments.transfer.name_in_clu(&file.name);
        if let Err(failure) = tftp.upload(&clu, &name, &file.content) {
            return fail(&failure, &arguments.clu, Some(&name), form, outlet);
        }
        if arguments.flags.json {
            let mut object = clu.target.json();
            object.insert("file".into(), name.into());
            object.insert("bytes".into(), file.content.len().into());
            outlet.out.write_all(json::line(object).as_bytes())?;
        } else {
            writeln!(outlet.out, "{}: {}  {} bytes", clu.target, escape_control(&name), file.content.len())?;
        }
        outlet.out.flush()?;
    }
    if arguments.no_reset {
        return Ok(Exit::Done);
    }
    match reset(&clu) {
        Ok(answer) if arguments.flags.json => {
            let mut object = clu.target.json();
            object.insert("outcome".into(), "reset".into());
            object.insert("answer".into(), answer.into());
            outlet.out.write_all(json::line(object).as_bytes())?;
            Ok(Exit::Done)
        }
        Ok(answer) => {
            writeln!(outlet.out, "{}: reset, alive: {}", clu.target, escape_control(&answer))?;
            Ok(Exit::Done)
        }
        Err(failure) => fail(&failure, &arguments.clu, None, form, outlet),
    }
}

/// Reads all files before the first one is written, so that a missing one changes nothing in the CLU.
fn read_files(paths: &[PathBuf]) -> Result<Vec<ScriptFile>, String> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(scripts_of(path)?);
        } else {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| format!("{}: the name must be UTF-8", path.display()))?;
            files.push(ScriptFile { name: name.to_uppercase(), content: content_of(path)? });
        }
    }
    Ok(files)
}

/// The scripts of a folder, whose names may be in lower case.
fn scripts_of(folder: &Path) -> Result<Vec<ScriptFile>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let mut files = Vec::new();
    for script in SCRIPTS {
        match names.iter().find(|name| name.eq_ignore_ascii_case(script)) {
            Some(name) => files.push(ScriptFile { name: script.to_owned(), content: content_of(&folder.join(name))? }),
            None if script == SCRIPTS[0] => return Err(format!("{} has no {script}", folder.display())),
            None => {}
        }
    }
    Ok(files)
}

fn content_of(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(TFTP_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    match content.len() > TFTP_FILE_BYTES_MAX {
        true => Err(format!("{}: the file has more than {TFTP_FILE_BYTES_MAX} bytes", path.display())),
        false => Ok(content),
    }
}
