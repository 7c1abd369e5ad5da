//! `fodo expand`: templates and `.substitutions` files as the databases they mean, as `msi` does it.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;

use fodo_db::{ExpandedTemplate, LoadError, Macros, TemplateSet, Undefined};
use fodo_ioc::{file, printable};

use crate::epics::Outlet;
use crate::exit::Exit;

/// Replace the macros of templates and .substitutions files
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Templates, or files that end in .substitutions or .subs; without any, stdin is a template
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Macros: "P=x:,R=1"; may be given several times
    #[arg(short = 'M', long = "macros", value_name = "MACROS")]
    macros: Vec<String>,
    /// Folders to look for templates of substitutions and included files in, separated by ':'; may be given several times
    #[arg(short = 'I', long = "path", value_name = "FOLDERS")]
    paths: Vec<String>,
    /// A substitutions file, whatever its name ends in. A template given beside it takes the place of those it names
    #[arg(short = 'S', long, value_name = "FILE")]
    substitutions: Vec<String>,
    /// Write here instead of stdout; the file appears when every file could be read
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A macro that is not defined is an error: it is reported, printed as $(NAME,undefined), and the exit code is 1
    #[arg(short = 'V', long)]
    verify: bool,
    /// Macros of one row of a substitutions file hold for the rows after it
    #[arg(short = 'g', long)]
    global: bool,
    /// Print the files that are read as a rule for make, with the name of -o as its target, and not their text
    #[arg(short = 'D', long)]
    dependencies: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo expand motors.substitutions
  fodo expand -M P=x:,R=1 motor.template
  fodo expand -S motors.txt motor.template
  fodo expand -V -I db:lib/db -M P=x: plant.substitutions -o plant.db
  fodo expand -D -o plant.db plant.substitutions

It takes msi's flags and prints msi's text. A macro that is not defined is printed as $(NAME). With -I files
are looked for in these folders alone, but for those that the command line names. Macros in the name of a
template stand for variables of the environment.

It differs from msi in this: messages have file, line and column; with -V the exit code is 1 and not 2; when a file cannot be read or understood
nothing is printed, and the exit code is 1; several files may be given; P=$(P)x means what P was before and is not
a recursion; comments may stand anywhere in a substitutions file; and long lines and values are not cut.";

/// Does it.
pub fn run(arguments: &Arguments, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let mut work = Work { arguments, read: Vec::new(), out: ExpandedTemplate::default() };
    let target = arguments.output.as_ref().map(|path| path.to_string_lossy().into_owned());
    if arguments.dependencies && target.is_none() {
        writeln!(outlet.err, "fodo expand: -D needs -o, which names the target of the rule")?;
        return Ok(Exit::Other);
    }
    let warnings = match work.all() {
        Ok(warnings) => warnings,
        Err(error) => {
            writeln!(outlet.err, "fodo expand: {}", printable(&error.to_string()))?;
            return Ok(Exit::Other);
        }
    };
    let undefined = work.out.undefined.iter().filter(|_| arguments.verify);
    for error in warnings.iter().chain(undefined) {
        writeln!(outlet.err, "fodo expand: {}", printable(&error.to_string()))?;
    }
    match &arguments.output {
        Some(target) if arguments.dependencies => {
            writeln!(outlet.out, "{}: {}", target.display(), work.read.join(" \\\n "))?;
        }
        Some(path) => {
            if let Err(error) = fs::write(path, &work.out.text) {
                writeln!(outlet.err, "fodo expand: {}: {error}", path.display())?;
                return Ok(Exit::Other);
            }
        }
        None => outlet.out.write_all(&work.out.text)?,
    }
    let is_wrong = arguments.verify && !work.out.undefined.is_empty();
    Ok(if is_wrong { Exit::Other } else { Exit::Done })
}

struct Work<'a> {
    arguments: &'a Arguments,
    /// The files that were read, each once.
    read: Vec<String>,
    out: ExpandedTemplate,
}

impl Work<'_> {
    /// Returns what is no error.
    fn all(&mut self) -> Result<Vec<LoadError>, LoadError> {
        let arguments = self.arguments;
        let mut macros = Macros::default();
        for list in &arguments.macros {
            // As for msi, a name without a value is a macro that is not defined.
            let _ = macros.add(list);
        }
        let is_substitutions = |file: &&String| file.ends_with(".substitutions") || file.ends_with(".subs");
        let (tables, templates): (Vec<&String>, Vec<&String>) = arguments.files.iter().partition(is_substitutions);
        let tables: Vec<&String> = tables.into_iter().chain(&arguments.substitutions).collect();
        if tables.is_empty() {
            if templates.is_empty() {
                self.template("stdin", Folders::Stdin, &mut macros)?;
            }
            for file in templates {
                self.template(file, Folders::None, &mut macros)?;
            }
            return Ok(Vec::new());
        }
        let mut warnings = Vec::new();
        for file in tables {
            warnings.extend(self.table(file, &templates, &mut macros)?);
        }
        Ok(warnings)
    }

    /// The templates that a substitutions file names, or that the command line names in their place.
    fn table(&mut self, file: &str, templates: &[&String], macros: &mut Macros) -> Result<Vec<LoadError>, LoadError> {
        let fail = |message: String| LoadError::of_file(file, message);
        if let [_, second, ..] = templates {
            return Err(fail(format!("it is for one template, and \"{second}\" is another one")));
        }
        let mut environment = Macros::default();
        std::env::vars().for_each(|(name, value)| environment.define(&name, &value));
        let bytes = fodo_ioc::file::read(file).map_err(|error| fail(format!("cannot be read: {error}")))?;
        let (sets, warnings) = fodo_db::template_sets(file, &bytes, &environment)?;
        for set in sets {
            let (template, list, place) = match set {
                TemplateSet::Global(list) => {
                    let _ = macros.add(&list);
                    continue;
                }
                TemplateSet::Instance { template, macros, place } => (template, macros, place),
            };
            let named = templates.first().map(|name| (*name).clone()).or(template);
            let name = named.ok_or_else(|| LoadError::of_file(&place, "no template is named for this row".into()))?;
            let mut own = macros.clone();
            let scope = if self.arguments.global { &mut *macros } else { &mut own };
            let _ = scope.add(&list);
            let n_before = self.out.undefined.len();
            let expanded = self.template(&name, Folders::All, scope);
            self.out.undefined.iter_mut().skip(n_before).for_each(|error| error.from.push(place.clone()));
            expanded.map_err(|mut error| {
                error.from.push(place);
                error
            })?;
        }
        Ok(warnings)
    }

    fn template(&mut self, file: &str, folders: Folders, macros: &mut Macros) -> Result<(), LoadError> {
        let undefined = if self.arguments.verify { Undefined::Marked } else { Undefined::Kept };
        let (mut folders, paths, read) = (folders, &self.arguments.paths, &mut self.read);
        let mut open = |name: &str| {
            let (found, bytes) = std::mem::replace(&mut folders, Folders::All).open(paths, name)?;
            if !read.contains(&found) {
                read.push(found);
            }
            Ok(bytes)
        };
        let expanded = fodo_db::expand(file, macros, undefined, &mut open)?;
        self.out.text.extend(expanded.text);
        self.out.undefined.extend(expanded.undefined);
        Ok(())
    }
}

/// Where a file is looked for.
#[derive(Clone, Copy)]
enum Folders {
    /// It is what stdin gives.
    Stdin,
    /// In the folder in hand.
    None,
    /// In those of -I, if there are any.
    All,
}

impl Folders {
    /// The name that the file was found under, and its bytes.
    fn open(self, paths: &[String], name: &str) -> io::Result<(String, Vec<u8>)> {
        let folders: Vec<&str> = paths.iter().flat_map(|path| path.split(':')).collect();
        match self {
            Folders::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes)?;
                return Ok((name.to_owned(), bytes));
            }
            Folders::All if !folders.is_empty() && !name.starts_with('/') => {}
            Folders::All | Folders::None => return Ok((name.to_owned(), file::read(name)?)),
        }
        let mut missing = io::Error::from(io::ErrorKind::NotFound);
        for folder in folders {
            let folder = if folder.is_empty() { "." } else { folder };
            let path = format!("{folder}/{name}");
            match file::read(&path) {
                Ok(bytes) => return Ok((path, bytes)),
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }
}
