//! The project's rules as code. Each check has a test that plants a violation and expects it to be found.

mod examples;
mod freedom;
mod language;
mod layers;
mod licences;
mod links;
mod metadata;
mod modules;
mod names;
mod pins;
pub mod repository;
mod safety;
mod size;
mod source;
mod words;

use std::path::Path;

use metadata::Metadata;
use repository::Repository;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The file, relative to the workspace root.
    pub path: String,
    /// The line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Offence {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Offence {
        Offence { path: path.to_string(), line, what: what.into() }
    }
}

impl std::fmt::Display for Offence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Runs all checks and reports every violation.
pub fn report(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let metadata = Metadata::read(root)?;

    let mut offences = Vec::new();
    offences.extend(words::check(&repository));
    offences.extend(language::check(&repository));
    offences.extend(names::check(&repository));
    offences.extend(links::check(&repository));
    offences.extend(pins::check(&repository));
    offences.extend(freedom::check(&repository));
    offences.extend(safety::check(&repository, &metadata));
    offences.extend(size::check(&repository));
    offences.extend(layers::check(&repository, &metadata));
    offences.extend(modules::check(&repository));
    offences.extend(examples::check(&repository));
    offences.extend(licences::check(&repository, &metadata));
    if offences.is_empty() {
        return Ok(());
    }
    offences.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let lines: Vec<String> = offences.iter().map(ToString::to_string).collect();
    Err(format!("{}\n{} violations of the project's rules", lines.join("\n"), lines.len()))
}

/// Lowers the lengths in the list of giants to the current ones, and removes entries that are within the limits.
pub fn tighten(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let write = |path: &str, text: String| {
        let path = root.join(path);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    write(size::GIANTS_PATH, size::tightened(&repository))?;
    write(language::PHRASES_PATH, language::tightened(&repository))
}

/// Regenerates the table of dependencies in ARCHITECTURE.md. Its author must review whether the dependencies are
/// intended.
pub fn write_table(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let metadata = Metadata::read(root)?;
    let page = layers::with_table(repository.text(layers::PAGE).unwrap_or_default(), &metadata);
    let path = root.join(layers::PAGE);
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}
