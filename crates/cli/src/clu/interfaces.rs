//! `fodo clu interfaces`: writes the interface files of the virtual CLU.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fodo_vclu::{CLASSES, CluVersion, ObjectClass, clu_interface, object_interface};
use serde_json::Map;

use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Write the interface files with which Object Manager knows the virtual CLU
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder for the files; created if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu interfaces interfaces
  fodo clu interfaces ~/grenton/interfaces/fodo

Writes an XML file for the virtual CLU and one for each class of its objects. Object Manager reads
interface files at its start, from the folder of its device interfaces and the folders in it; then it
can add the virtual CLU to a project, with features, methods and events. Files that exist are
reported and not replaced; the others are written.

JSON keys: file; after a failure also error (code, class, message).";

/// The name of the virtual CLU in Object Manager.
const TYPE_NAME: &str = "CLU_VIRTUAL_FODO";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    if let Err(error) = fs::create_dir_all(&arguments.folder) {
        return fail(&arguments.folder, &error, arguments.json, outlet);
    }
    let mut exit = Exit::Done;
    for (name, xml) in interface_files() {
        let path = arguments.folder.join(name);
        if let Err(error) = write_new(&path, &xml) {
            exit = exit.and(fail(&path, &error, arguments.json, outlet)?);
            continue;
        }
        if arguments.json {
            let object = Map::from_iter([("file".to_owned(), path.display().to_string().into())]);
            outlet.out.write_all(json::line(object).as_bytes())?;
        } else {
            writeln!(outlet.out, "{}", path.display())?;
        }
    }
    Ok(exit)
}

/// Writes a file that does not exist yet, or leaves none behind.
fn write_new(path: &Path, xml: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(xml.as_bytes()).inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
    })
}

/// The names of the files, by which Object Manager recognises them, and their contents.
fn interface_files() -> Vec<(String, String)> {
    let clu = ("clu_virtual_fodo.xml".to_owned(), clu_interface(TYPE_NAME, CluVersion::VIRTUAL));
    // The class of the CLU itself is in its own file.
    let objects = CLASSES.into_iter().filter(|class| class.number != 0);
    let object = |class: &ObjectClass| (format!("object_{}.xml", class.name.to_lowercase()), object_interface(class));
    std::iter::once(clu).chain(objects.map(object)).collect()
}

fn fail(path: &Path, error: &io::Error, as_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let message = match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{} exists: it is not replaced", path.display()),
        _ => format!("{}: {error}", path.display()),
    };
    if as_json {
        let mut object = Map::new();
        object.insert("file".into(), path.display().to_string().into());
        let error = serde_json::json!({"code": Exit::Other.code(), "class": Exit::Other.class(), "message": message});
        object.insert("error".into(), error);
        outlet.out.write_all(json::line(object).as_bytes())?;
    }
    writeln!(outlet.err, "fodo clu interfaces: {message}")?;
    Ok(Exit::Other)
}
