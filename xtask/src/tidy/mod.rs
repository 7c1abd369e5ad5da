//! The rules of the house, as code. Each check has a test that plants a violation and sees it caught.

mod freedom;
mod layers;
mod licences;
mod links;
mod metadata;
mod pins;
pub mod repository;
mod safety;
mod size;
mod source;
mod words;

use std::path::Path;

use metadata::Metadata;
use repository::Repository;

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The file, from the workspace's root.
    pub path: String,
    /// The line, counted from 1; 0 for the file as a whole.
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

/// Checks everything and tells every offence.
pub fn report(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let metadata = Metadata::read(root)?;

    let mut offences = Vec::new();
    offences.extend(words::check(&repository));
    offences.extend(links::check(&repository));
    offences.extend(pins::check(&repository));
    offences.extend(freedom::check(&repository));
    offences.extend(safety::check(&repository, &metadata));
    offences.extend(size::check(&repository));
    offences.extend(layers::check(&repository, &metadata));
    offences.extend(licences::check(&repository, &metadata));
    if offences.is_empty() {
        return Ok(());
    }
    offences.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let lines: Vec<String> = offences.iter().map(ToString::to_string).collect();
    Err(format!("{}\n{} offences against the rules of the house", lines.join("\n"), lines.len()))
}

/// Lowers the lengths in the list of giants to what they are now, and takes off it what is no giant any more.
pub fn tighten(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let path = root.join(size::GIANTS_PATH);
    std::fs::write(&path, size::tightened(&repository)).map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes the table of dependencies in ARCHITECTURE.md anew; whether it is as it should be, its reader decides.
pub fn write_table(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let metadata = Metadata::read(root)?;
    let page = layers::with_table(repository.text(layers::PAGE).unwrap_or_default(), &metadata);
    let path = root.join(layers::PAGE);
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}
