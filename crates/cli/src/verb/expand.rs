//! `fodo expand`: templates and `.substitutions` files as the databases they mean, as `msi` does it.

use std::fs;
use std::io;
use std::path::PathBuf;

use fodo_db::{LoadError, Macros, Undefined};
use fodo_ioc::{file, printable};

use crate::epics::Outlet;
use crate::exit::Exit;

/// Replace the macros of templates and .substitutions files
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Templates, or files that end in .substitutions or .subs
    #[arg(value_name = "FILE", required_unless_present = "substitutions")]
    files: Vec<String>,
    /// Macros: "P=x:,R=1"; may be given several times
    #[arg(short = 'M', long = "macros", value_name = "MACROS")]
    macros: Vec<String>,
    /// Folders to look for files in, separated by ':'; may be given several times
    #[arg(short = 'I', long = "path", value_name = "FOLDERS")]
    paths: Vec<String>,
    /// A substitutions file, whatever its name ends in
    #[arg(short = 'S', long, value_name = "FILE")]
    substitutions: Vec<String>,
    /// Write here instead of stdout; the file appears when all is well
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A macro that is not defined is an error
    #[arg(short = 'V', long)]
    verify: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo expand motors.substitutions
  fodo expand -M P=x:,R=1 motor.template
  fodo expand -V -I db:lib/db -M P=x: plant.substitutions -o plant.db

It takes msi's flags and prints msi's text. A macro that is not defined stays as it is, $(NAME);
with -V it is an error. Mistakes are told with file, line and column, and then nothing is printed.";

/// Does it.
pub fn run(arguments: &Arguments, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    match expanded(arguments) {
        Ok(text) => match &arguments.output {
            Some(path) => {
                if let Err(error) = fs::write(path, text) {
                    writeln!(outlet.err, "fodo expand: {}: {error}", path.display())?;
                    return Ok(Exit::Other);
                }
                Ok(Exit::Done)
            }
            None => outlet.out.write_all(text.as_bytes()).map(|()| Exit::Done),
        },
        Err(errors) => {
            for error in errors {
                writeln!(outlet.err, "fodo expand: {}", printable(&error.to_string()))?;
            }
            Ok(Exit::Other)
        }
    }
}

fn expanded(arguments: &Arguments) -> Result<String, Vec<LoadError>> {
    let mut macros = Macros::default();
    for list in &arguments.macros {
        macros.add(list).map_err(|message| vec![LoadError::of_file("-M", message)])?;
    }
    let undefined = if arguments.verify { Undefined::Refused } else { Undefined::Kept };
    let mut open = |name: &str| found(&arguments.paths, name);
    let is_substitutions = |file: &&String| file.ends_with(".substitutions") || file.ends_with(".subs");
    let (tables, templates): (Vec<&String>, Vec<&String>) = arguments.files.iter().partition(is_substitutions);

    let mut out = String::new();
    for file in templates {
        out.push_str(&fodo_db::expand(file, &macros, undefined, &mut open)?);
    }
    for file in tables.into_iter().chain(&arguments.substitutions) {
        for instance in fodo_db::instances(file, &macros, &mut open)? {
            let wanted_by = |mut errors: Vec<LoadError>| {
                errors.iter_mut().for_each(|error| error.from.push(instance.place.clone()));
                errors
            };
            let text = fodo_db::expand(&instance.file, &instance.macros, undefined, &mut open).map_err(wanted_by)?;
            out.push_str(&text);
        }
    }
    Ok(out)
}

/// The file itself, or in the first folder that has it.
fn found(paths: &[String], name: &str) -> io::Result<Vec<u8>> {
    let folders = paths.iter().flat_map(|path| path.split(':')).filter(|folder| !folder.is_empty());
    let mut result = file::read(name);
    for folder in folders {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => result = file::read(format!("{folder}/{name}")),
            _ => break,
        }
    }
    result
}
