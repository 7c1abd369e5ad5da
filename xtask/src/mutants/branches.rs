//! The mutants of a run in the copy of the sources, as branches where that compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::mutant::Mutant;
use super::rewrite::{self, Culprit};

/// How a mutant is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltAs {
    /// Into the programs that contain all branches.
    Branch,
    /// By itself, in place of the text that it changes.
    Alone,
    /// Its branch does not compile.
    Unviable,
}

/// A file with branches, or the root of a crate with such files.
struct RewrittenFile {
    /// The text of the commit.
    original: String,
    text: String,
}

/// The mutants of a run, with the files that contain them. The number of a mutant is its index.
pub struct Branches<'a> {
    folder: PathBuf,
    mutants: &'a [Mutant],
    built_as: Vec<BuiltAs>,
    files: BTreeMap<String, RewrittenFile>,
}

/// The folder of a package in the workspace.
pub fn package_folder(package: &str) -> String {
    format!("crates/{}", package.trim_start_matches("fodo-"))
}

impl<'a> Branches<'a> {
    /// Rewrites the sources in `folder` so that they contain the mutants as branches.
    pub fn write(folder: &Path, mutants: &'a [Mutant]) -> Result<Branches<'a>, String> {
        let mut paths: BTreeSet<String> = mutants.iter().map(|mutant| mutant.file.clone()).collect();
        for mutant in mutants {
            let roots = ROOTS.map(|root| format!("{}/{root}", package_folder(&mutant.package)));
            paths.extend(roots.into_iter().filter(|path| folder.join(path).exists()));
        }
        let mut branches = Branches {
            folder: folder.to_path_buf(),
            mutants,
            built_as: vec![BuiltAs::Branch; mutants.len()],
            files: BTreeMap::new(),
        };
        for path in paths {
            let original = std::fs::read_to_string(folder.join(&path)).map_err(|error| format!("{path}: {error}"))?;
            branches.files.insert(path.clone(), RewrittenFile { original, text: String::new() });
            branches.rewrite(&path)?;
        }
        Ok(branches)
    }

    /// The mutants that are built in this way, with their numbers.
    pub fn built_as(&self, how: BuiltAs) -> Vec<(usize, &'a Mutant)> {
        let all = self.mutants.iter().enumerate();
        all.filter(|(number, _)| self.built_as[*number] == how).collect()
    }

    /// Removes the mutants that are to blame for errors, as the compiler reports them, and returns their names.
    ///
    /// Fails if none is.
    pub fn remove_culprits(&mut self, errors: &[Value]) -> Result<Vec<String>, String> {
        let culprits: Vec<Culprit> = errors.iter().filter_map(|error| self.culprit(error)).collect();
        let in_branches: BTreeSet<usize> = culprits
            .iter()
            .filter_map(|culprit| match culprit {
                Culprit::Branch(number) => Some(*number),
                Culprit::Nearest(_) => None,
            })
            .collect();
        // Errors outside of the branches may be consequences of those in them.
        let (removed, how) = if in_branches.is_empty() {
            (culprits.into_iter().map(number_of).collect(), BuiltAs::Alone)
        } else {
            (in_branches, BuiltAs::Unviable)
        };
        if removed.is_empty() {
            let rendered = errors.iter().filter_map(|error| error["rendered"].as_str());
            return Err(format!("errors without a mutant:\n{}", rendered.collect::<String>()));
        }
        for &number in &removed {
            self.built_as[number] = how;
        }
        let paths: BTreeSet<&str> = removed.iter().map(|number| self.mutants[*number].file.as_str()).collect();
        paths.into_iter().try_for_each(|path| self.rewrite(path))?;
        Ok(removed.iter().map(|number| self.mutants[*number].name.clone()).collect())
    }

    /// Writes the file of a mutant with this one change, runs `work`, and restores the file.
    pub fn with_single<R>(&self, mutant: &Mutant, work: impl FnOnce() -> R) -> Result<R, String> {
        let file = self.files.get(&mutant.file).ok_or_else(|| format!("{}: not read", mutant.file))?;
        self.write_file(&mutant.file, &with_module(&mutant.file, mutant.apply(&file.original)?))?;
        let result = work();
        self.write_file(&mutant.file, &file.text)?;
        Ok(result)
    }

    /// Writes a file with the mutants that are branches; those that cannot be are built alone.
    fn rewrite(&mut self, path: &str) -> Result<(), String> {
        let Some(file) = self.files.get_mut(path) else { return Ok(()) };
        let branches = self
            .mutants
            .iter()
            .enumerate()
            .filter(|(number, mutant)| mutant.file == path && self.built_as[*number] == BuiltAs::Branch);
        let branches: BTreeMap<usize, &Mutant> = branches.collect();
        let (text, numbers) =
            rewrite::with_branches(&file.original, &branches).map_err(|error| format!("{path}: {error}"))?;
        for number in branches.into_keys().filter(|number| !numbers.contains(number)) {
            self.built_as[number] = BuiltAs::Alone;
        }
        file.text = with_module(path, text);
        let text = file.text.clone();
        self.write_file(path, &text)
    }

    fn write_file(&self, path: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.folder.join(path), text).map_err(|error| format!("{path}: {error}"))
    }

    /// The mutant that is to blame for an error: one whose branch contains it, otherwise one near it.
    fn culprit(&self, error: &Value) -> Option<Culprit> {
        let (primary, secondary): (Vec<&Value>, Vec<&Value>) =
            list(&error["spans"]).iter().partition(|span| span["is_primary"] == true);
        let is_in_branch = |culprit: &Culprit| matches!(culprit, Culprit::Branch(_));
        let of_primary: Vec<Culprit> = primary.into_iter().filter_map(|span| self.culprit_at(span)).collect();
        if let Some(culprit) = of_primary.iter().copied().find(is_in_branch) {
            return Some(culprit);
        }
        let in_notes = list(&error["children"]).iter().flat_map(|note| list(&note["spans"]));
        let others = secondary.into_iter().chain(in_notes).filter_map(|span| self.culprit_at(span));
        let all: Vec<Culprit> = of_primary.into_iter().chain(others).collect();
        all.iter()
            .copied()
            .find(is_in_branch)
            .or(all.first().copied())
            .map(|culprit| Culprit::Nearest(number_of(culprit)))
    }

    /// The mutant at a span, or where the macro that contains the span is used.
    fn culprit_at(&self, span: &Value) -> Option<Culprit> {
        let Some(file) = span["file_name"].as_str().and_then(|path| self.files.get(path)) else {
            let use_of_macro = &span["expansion"]["span"];
            return if use_of_macro.is_null() { None } else { self.culprit_at(use_of_macro) };
        };
        rewrite::culprit(&file.text, &byte_range(span)?)
    }
}

/// The roots of a package's library and program.
const ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];

/// The text of a file, with the module that selects a mutant if it is the root of a crate.
fn with_module(path: &str, text: String) -> String {
    if ROOTS.iter().any(|root| path.ends_with(&format!("/{root}"))) { text + rewrite::MODULE } else { text }
}

fn number_of(culprit: Culprit) -> usize {
    match culprit {
        Culprit::Branch(number) | Culprit::Nearest(number) => number,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn byte_range(span: &Value) -> Option<Range<usize>> {
    let byte = |key: &str| span[key].as_u64().map(|byte| byte as usize);
    Some(byte("byte_start")?..byte("byte_end")?)
}

#[cfg(test)]
mod tests {
    use super::super::mutant::mutant_for_test;
    use super::*;

    const SOURCE: &str = "fn f() { g(a - b) }\n";

    /// A new folder with `crates/data/src/lib.rs`.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fodo-branches-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("crates/data/src")).unwrap();
        std::fs::write(folder.join("crates/data/src/lib.rs"), SOURCE).unwrap();
        folder
    }

    fn mutants() -> Vec<Mutant> {
        let changes =
            [("FnValue", "g(a - b)", "Default::default()"), ("BinaryOperator", "-", "+"), ("BinaryOperator", "-", "/")];
        changes.map(|(genre, replaced, new)| mutant_for_test(SOURCE, genre, replaced, new)).into()
    }

    /// An error at the first occurrence of `part`.
    fn error(branches: &Branches, part: &str) -> Value {
        let start = branches.files["crates/data/src/lib.rs"].text.find(part).unwrap();
        serde_json::json!({"spans": [{
            "file_name": "crates/data/src/lib.rs", "is_primary": true,
            "byte_start": start, "byte_end": start + part.len(), "expansion": null,
        }], "children": [], "rendered": "error: why\n"})
    }

    #[test]
    fn a_mutant_whose_branch_does_not_compile_is_unviable() {
        let (folder, mutants) = (folder("unviable"), mutants());
        let mut branches = Branches::write(&folder, &mutants).unwrap();

        let errors = [error(&branches, "fn f()"), error(&branches, "Default")];
        let removed = branches.remove_culprits(&errors).unwrap();

        assert_eq!(removed, ["replace g(a - b)"]);
        assert_eq!(branches.built_as, [BuiltAs::Unviable, BuiltAs::Branch, BuiltAs::Branch]);
        let text = std::fs::read_to_string(folder.join("crates/data/src/lib.rs")).unwrap();
        assert!(!text.contains("Default") && text.contains("(a) / (b)") && text.ends_with(rewrite::MODULE), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_mutant_near_an_error_outside_of_all_branches_is_built_alone() {
        let (folder, mutants) = (folder("alone"), mutants());
        let mut branches = Branches::write(&folder, &mutants).unwrap();

        let errors = [error(&branches, "is(1)")];
        branches.remove_culprits(&errors).unwrap();

        assert_eq!(branches.built_as, [BuiltAs::Branch, BuiltAs::Alone, BuiltAs::Branch]);
        let (number, alone) = branches.built_as(BuiltAs::Alone)[0];
        let path = folder.join("crates/data/src/lib.rs");
        let text = branches.with_single(alone, || std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!((number, text), (1, SOURCE.replace('-', "+") + rewrite::MODULE));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), branches.files["crates/data/src/lib.rs"].text);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_error_in_a_file_without_mutants_fails_the_run() {
        let (folder, mutants) = (folder("failed"), mutants());
        let mut branches = Branches::write(&folder, &mutants).unwrap();

        let mut error = error(&branches, "fn f()");
        error["spans"][0]["file_name"] = "crates/db/src/lib.rs".into();

        assert!(branches.remove_culprits(&[error]).unwrap_err().contains("error: why"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
