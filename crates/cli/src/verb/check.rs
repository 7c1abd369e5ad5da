//! `fodo check`: checks files without starting anything.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use fodo_db::{AccessFile, LoadError, Loader};
use fodo_ioc::printable;
use fodo_ioc::shell::{CheckFinding, FindingLevel, Purpose, Shell, check_groups, check_request_file};
use serde_json::Map;

use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::sort::FileType;

/// Check databases, substitutions, groups, scripts, access security files and autosave request files
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Databases, .substitutions, groups (.json), scripts (.cmd or .iocsh), access security (.acf), autosave requests (.req)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Macros for all files, and environment variables for scripts: "P=x:,R=1"; may be repeated
    #[arg(short = 'm', long, value_name = "MACROS")]
    macros: Vec<String>,
    /// Print one JSON object per finding
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Accept unknown record types and devices (DTYP), as fodo ioc --simulate does
    #[arg(long)]
    simulate: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo check st.cmd
  fodo check -m P=x:,R=1 motor.db
  fodo check --json plant.db motors.substitutions | jq .message

Databases and .substitutions files are checked together, as an IOC would load them: a link to a
record in none of them is a warning, and so is every error in a .req file. A mistake in a group of
PVs is an error; the channels of a .json file are looked up if there is a database. Included files are also
searched for in EPICS_DB_INCLUDE_PATH. A script (st.cmd, st.cmd.linux, or any file that begins with
a command) is followed, with everything it loads, from the current folder; nothing is served,
written or run. Every finding has its file, line and column, and the last line counts errors,
warnings and notes. Consequences of a reported error are not reported: a link to a record of an
unknown type, the address of an unknown device. The exit code is 1 if there are errors, with
--strict also if there are warnings; notes do not change it. With --simulate, a note for each
unknown type and DTYP reports how many records do nothing because of it.

JSON keys: level (error, warning or note), file, line, column (null for a whole file), message,
source (the line), wanted_by (the lines that load or include the file, innermost first).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let macros = arguments.macros.join(",");
    let findings = match findings(&arguments.files, &macros, arguments.simulate) {
        Ok(findings) => findings,
        Err(message) => {
            writeln!(outlet.err, "fodo check: -m: {message}")?;
            return Ok(Exit::Other);
        }
    };
    let [n_errors, n_warnings, n_notes] = [FindingLevel::Error, FindingLevel::Warning, FindingLevel::Note]
        .map(|weight| findings.iter().filter(|finding| finding.weight == weight).count());
    for finding in &findings {
        if arguments.quiet && finding.weight != FindingLevel::Error {
            continue;
        }
        let text = if arguments.json { json::line(object(finding)) } else { shown(finding) };
        outlet.out.write_all(text.as_bytes())?;
    }
    if !arguments.json {
        let notes = if n_notes > 0 { format!(", {}", counted(n_notes, "note")) } else { String::new() };
        writeln!(outlet.out, "{}, {}{notes}", counted(n_errors, "error"), counted(n_warnings, "warning"))?;
    }
    let is_wrong = n_errors > 0 || (arguments.strict && n_warnings > 0);
    Ok(if is_wrong { Exit::Other } else { Exit::Done })
}

/// The findings in files, in order: databases and substitutions are checked together, each script separately.
fn findings(files: &[PathBuf], macros: &str, simulates: bool) -> Result<Vec<CheckFinding>, String> {
    let variables = fodo_db::Macros::parse(macros)?;
    let mut found = Vec::new();
    let mut loader = Loader::with_places();
    if simulates {
        loader.enable_simulation();
    }
    let (mut requests, mut n_databases) = (Vec::new(), 0);
    let path = std::env::var("EPICS_DB_INCLUDE_PATH").unwrap_or_default();
    for file in files {
        let name = file.to_string_lossy();
        let mut open = |name: &str| along_the_path(&path, name);
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("acf") => {
                found.extend(check_access_file(&name, macros));
                continue;
            }
            Some("req") => {
                requests.push(name.into_owned());
                continue;
            }
            _ => {}
        }
        n_databases += usize::from(matches!(FileType::of(file), FileType::Database | FileType::Substitutions));
        let loaded = match FileType::of(file) {
            FileType::Database => loader.load(&name, macros, &mut open),
            FileType::Description => loader.load_description(&name, macros, &mut open),
            FileType::Substitutions => loader.load_template(&name, macros, &mut open),
            FileType::Groups => loader.load_groups(&name, macros, &mut open),
            FileType::Script => {
                found.extend(check_script(file, &variables, simulates));
                Ok(())
            }
        };
        found.extend(
            loaded.err().into_iter().flatten().map(|error| CheckFinding { weight: FindingLevel::Error, error }),
        );
    }
    let invalid_links = loader.disable_invalid_links().into_iter();
    found.extend(invalid_links.map(|error| CheckFinding { weight: FindingLevel::Error, error }));
    let inert = loader
        .inert_records()
        .into_iter()
        .map(|inert| LoadError { message: inert.to_string(), ..LoadError::default() });
    found.extend(inert.map(|error| CheckFinding { weight: FindingLevel::Note, error }));
    found.extend(loader.warnings().into_iter().map(|error| CheckFinding { weight: FindingLevel::Warning, error }));
    let (definitions, missing) = (loader.take_groups(), loader.omitted_records().clone());
    let has_groups = !definitions.groups.is_empty() || !definitions.errors.is_empty();
    if !requests.is_empty() || has_groups {
        // Without a database it is unknown which PVs exist.
        let database = loader.finish().ok().filter(|_| n_databases > 0);
        let wrong_groups = match &database {
            Some(database) => check_groups(database, definitions, &missing),
            None => definitions.errors,
        };
        found.extend(wrong_groups.into_iter().map(|error| CheckFinding { weight: FindingLevel::Error, error }));
        let wrong = requests.iter().flat_map(|name| check_request_file(name, &variables, database.as_ref(), &missing));
        found.extend(wrong.map(|error| CheckFinding { weight: FindingLevel::Warning, error }));
    }
    // Hundreds of instances of a template have the same error.
    let mut reported = HashSet::new();
    found.retain(|CheckFinding { error, .. }| reported.insert((error.place(), error.message.clone())));
    Ok(found)
}

/// Reads a file by its name, or from the folders of a path, which are separated by ':'.
fn along_the_path(path: &str, name: &str) -> io::Result<Vec<u8>> {
    let folders = path.split(':').filter(|folder| !folder.is_empty());
    let mut result = fodo_ioc::file::read(name);
    for folder in folders {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                result = fodo_ioc::file::read(Path::new(folder).join(name))
            }
            _ => break,
        }
    }
    result
}

/// The findings in an access security file.
fn check_access_file(name: &str, macros: &str) -> Vec<CheckFinding> {
    match AccessFile::load(name, macros, &mut |name| fodo_ioc::file::read(name)) {
        Ok(file) => {
            let warning = |message: &String| LoadError { message: message.clone(), ..LoadError::default() };
            file.warnings()
                .iter()
                .map(|text| CheckFinding { weight: FindingLevel::Warning, error: warning(text) })
                .collect()
        }
        Err(errors) => errors.into_iter().map(|error| CheckFinding { weight: FindingLevel::Error, error }).collect(),
    }
}

/// The findings in a script and everything it loads.
fn check_script(script: &Path, variables: &fodo_db::Macros, simulates: bool) -> Vec<CheckFinding> {
    let own = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let given = variables
        .names()
        .into_iter()
        .map(|name| (name.to_owned(), variables.expand_line(&format!("$({name})")).unwrap_or_default()));
    let folder = std::env::current_dir().unwrap_or_default();
    let nowhere = || Box::new(io::sink());
    let mut shell = Shell::new(Purpose::Check, &folder, own.chain(given), nowhere(), nowhere());
    if simulates {
        shell.simulate();
    }
    // Errors that end the script are among the findings.
    let _ = shell.run_script(&script.to_string_lossy());
    shell.into_findings()
}

fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

const fn level(weight: FindingLevel) -> &'static str {
    match weight {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
        FindingLevel::Note => "note",
    }
}

fn shown(finding: &CheckFinding) -> String {
    let error = &finding.error;
    let place = if error.file.is_empty() { String::new() } else { format!("{}: ", error.place()) };
    let text = LoadError { file: String::new(), ..error.clone() }.to_string();
    printable(&format!("{place}{}: {text}\n", level(finding.weight))).into_owned()
}

fn object(CheckFinding { weight, error }: &CheckFinding) -> Map<String, serde_json::Value> {
    let number = |number: usize| if number > 0 { number.into() } else { serde_json::Value::Null };
    Map::from_iter([
        ("level".to_owned(), level(*weight).into()),
        ("file".to_owned(), error.file.clone().into()),
        ("line".to_owned(), number(error.line)),
        ("column".to_owned(), number(error.column)),
        ("message".to_owned(), error.message.clone().into()),
        ("source".to_owned(), error.source.clone().into()),
        ("wanted_by".to_owned(), error.from.clone().into()),
    ])
}
