//! `fodo expand`: expands templates and `.substitutions` files to databases, like `msi`.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;

use fodo_db::{ExpandedTemplate, LoadError, Macros, TemplateStatement, UndefinedMacros};
use fodo_ioc::{file, printable};

use crate::epics::OutputStreams;
use crate::exit::Exit;

/// Expand the macros of templates and .substitutions files
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Templates, or substitutions files (.substitutions or .subs); without files, stdin is a template
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Macros: "P=x:,R=1"; may be repeated
    #[arg(short = 'M', long = "macros", value_name = "MACROS")]
    macros: Vec<String>,
    /// Folders with templates and included files, separated by ':'; may be repeated
    #[arg(short = 'I', long = "path", value_name = "FOLDERS")]
    paths: Vec<String>,
    /// A substitutions file with any extension. A template given as FILE replaces those it names
    #[arg(short = 'S', long, value_name = "FILE")]
    substitutions: Vec<String>,
    /// Write to this file instead of stdout; it is written only if every input file could be read
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Treat undefined macros as errors: report them, print them as $(NAME,undefined), and end with code 1
    #[arg(short = 'V', long)]
    verify: bool,
    /// Macros of a row of a substitutions file also apply to the following rows
    #[arg(short = 'g', long)]
    global: bool,
    /// Print a make rule instead, with the name of -o as target and the input files as prerequisites
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

Flags and output are those of msi. An undefined macro is printed as $(NAME). With -I, files whose
name has no '/' are searched for in these folders. Macros in the name of a template are environment
variables.

Differences to msi: messages contain file, line and column; with -V the exit code is 1 instead of
2; if a file cannot be read or parsed, nothing is printed and the exit code is 1; several files may
be given; .substitutions and .subs files need no -S; a template given as FILE that is not in the
folders of -I is searched for as it is named, and a name with '/' that does not exist in these
folders; P=$(P)x uses the previous value of P and is not a recursion; comments may appear anywhere
in a substitutions file; long lines and values are not truncated.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let mut work = Expansion { arguments, read: Vec::new(), out: ExpandedTemplate::default() };
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

struct Expansion<'a> {
    arguments: &'a Arguments,
    /// The files that were read, without duplicates.
    read: Vec<String>,
    out: ExpandedTemplate,
}

impl Expansion<'_> {
    /// Expands all files; returns warnings.
    fn all(&mut self) -> Result<Vec<LoadError>, LoadError> {
        let arguments = self.arguments;
        let mut macros = Macros::default();
        for list in &arguments.macros {
            // As in msi, a name without a value is an undefined macro.
            let _ = macros.add(list);
        }
        let is_substitutions = |file: &&String| file.ends_with(".substitutions") || file.ends_with(".subs");
        let (tables, templates): (Vec<&String>, Vec<&String>) = arguments.files.iter().partition(is_substitutions);
        let tables: Vec<&String> = tables.into_iter().chain(&arguments.substitutions).collect();
        if tables.is_empty() {
            if templates.is_empty() {
                self.template("stdin", TemplateOrigin::Stdin, &mut macros)?;
            }
            for file in templates {
                self.template(file, TemplateOrigin::CommandLine, &mut macros)?;
            }
            return Ok(Vec::new());
        }
        let mut warnings = Vec::new();
        for file in tables {
            warnings.extend(self.table(file, &templates, &mut macros)?);
        }
        Ok(warnings)
    }

    /// Expands the templates of a substitutions file, or the template given on the command line instead.
    fn table(&mut self, file: &str, templates: &[&String], macros: &mut Macros) -> Result<Vec<LoadError>, LoadError> {
        let fail = |message: String| LoadError::of_file(file, message);
        if let [_, second, ..] = templates {
            return Err(fail(format!("only one template can be given with it; \"{second}\" is a second one")));
        }
        let mut environment = Macros::default();
        std::env::vars().for_each(|(name, value)| environment.define(&name, &value));
        let bytes = fodo_ioc::file::read(file).map_err(|error| fail(format!("cannot be read: {error}")))?;
        let (sets, warnings) = fodo_db::template_sets(file, &bytes, &environment)?;
        for set in sets {
            let (template, list, place) = match set {
                TemplateStatement::Global(list) => {
                    let _ = macros.add(&list);
                    continue;
                }
                TemplateStatement::Instance { template, macros, place } => (template, macros, place),
            };
            let (named, origin) = match templates.first() {
                Some(name) => (Some((*name).clone()), TemplateOrigin::CommandLine),
                None => (template, TemplateOrigin::File),
            };
            let name = named.ok_or_else(|| LoadError::of_file(&place, "this row names no template".into()))?;
            let mut own = macros.clone();
            let scope = if self.arguments.global { &mut *macros } else { &mut own };
            let _ = scope.add(&list);
            let n_before = self.out.undefined.len();
            let expanded = self.template(&name, origin, scope);
            self.out.undefined.iter_mut().skip(n_before).for_each(|error| error.from.push(place.clone()));
            expanded.map_err(|mut error| {
                error.from.push(place);
                error
            })?;
        }
        Ok(warnings)
    }

    fn template(&mut self, file: &str, origin: TemplateOrigin, macros: &mut Macros) -> Result<(), LoadError> {
        let undefined = if self.arguments.verify { UndefinedMacros::Mark } else { UndefinedMacros::Keep };
        let (mut origin, paths, read) = (origin, &self.arguments.paths, &mut self.read);
        let mut open = |name: &str| {
            let (found, bytes) = std::mem::replace(&mut origin, TemplateOrigin::File).open(paths, name)?;
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

/// What names a template, which decides where it is searched for.
#[derive(Clone, Copy, PartialEq)]
enum TemplateOrigin {
    /// Nothing: it is read from stdin.
    Stdin,
    CommandLine,
    /// A substitutions file, or another template.
    File,
}

impl TemplateOrigin {
    /// The path of the file that was found, and its bytes. As in msi, the folders of -I are for names without a slash.
    fn open(self, paths: &[String], name: &str) -> io::Result<(String, Vec<u8>)> {
        if self == TemplateOrigin::Stdin {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            return Ok((name.to_owned(), bytes));
        }
        let as_named = || file::read(name).map(|bytes| (name.to_owned(), bytes));
        let folders: Vec<&str> = paths.iter().flat_map(|path| path.split(':')).collect();
        if folders.is_empty() || name.starts_with('/') {
            return as_named();
        }
        if name.contains('/')
            && let Ok(found) = as_named()
        {
            return Ok(found);
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
        if self == TemplateOrigin::CommandLine { as_named() } else { Err(missing) }
    }
}
