//! Unsafe code is allowed only in listed files, and no lint is disabled for a whole crate.

use super::Offence;
use super::metadata::Metadata;
use super::repository::Repository;
use super::source::{self, Token};

/// The list of files that may contain unsafe code.
const LIST_PATH: &str = "xtask/tidy-unsafe.txt";

/// Checks every source.
pub fn check(repository: &Repository, metadata: &Metadata) -> Vec<Offence> {
    let named = named_files(repository.text(LIST_PATH).unwrap_or_default());
    let mut offences = Vec::new();
    for path in &named {
        if repository.text(path).is_none() {
            offences.push(Offence::new(LIST_PATH, 0, format!("{path} does not exist")));
        }
    }
    for file in repository.rust_files() {
        let tokens = source::all_tokens(&file.text).unwrap_or_default();
        if !named.contains(&file.path.as_str())
            && let Some(token) = tokens.iter().find(|token| token.text == "unsafe")
        {
            let what = format!("unsafe code in a file that is not listed in {LIST_PATH}");
            offences.push(Offence::new(&file.path, token.line, what));
        }
        for line in crate_wide(&tokens, "allow") {
            offences.push(Offence::new(&file.path, line, "crate-wide allow; use `expect` at the code that needs it"));
        }
        let is_root = metadata.roots.contains(&file.path);
        let folder = file.path.rsplit_once("/src/").map_or("", |(folder, _)| folder);
        let crate_has_unsafe = named.iter().any(|path| path.starts_with(&format!("{folder}/src/")));
        if is_root && !crate_has_unsafe && !forbids_unsafe(&tokens) {
            offences.push(Offence::new(&file.path, 1, "missing #![forbid(unsafe_code)]"));
        }
    }
    offences
}

fn named_files(list: &str) -> Vec<&str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The lines of `#![lint(..)]`.
fn crate_wide(tokens: &[Token], lint: &str) -> Vec<usize> {
    let starts = tokens.windows(4).filter(|four| {
        let texts: Vec<&str> = four.iter().map(|token| token.text.as_str()).collect();
        texts == ["#", "!", "[", lint]
    });
    starts.map(|four| four[0].line).collect()
}

fn forbids_unsafe(tokens: &[Token]) -> bool {
    let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    texts.windows(6).any(|six| six == ["#", "!", "[", "forbid", "(", "unsafe_code"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_in(files: &[(&str, &str)]) -> Vec<String> {
        let roots = files.iter().map(|(path, _)| path.to_string()).filter(|path| path.ends_with("lib.rs")).collect();
        let metadata = Metadata { roots, ..Metadata::default() };
        check(&Repository::of(files), &metadata).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_in_an_unlisted_file_is_rejected() {
        let file = ("crates/net/src/socket.rs", "fn a() { unsafe { b() } }");

        assert_eq!(offences_in(&[file]).len(), 1);
        assert_eq!(offences_in(&[file, (LIST_PATH, "# why\ncrates/net/src/socket.rs\n")]), [""; 0]);
    }

    #[test]
    fn a_listed_unsafe_file_that_does_not_exist_is_rejected() {
        assert_eq!(offences_in(&[(LIST_PATH, "crates/net/src/gone.rs\n")]).len(), 1);
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_rejected() {
        assert_eq!(offences_in(&[("crates/data/src/lib.rs", "//! Doc.\n")]).len(), 1);
        assert_eq!(offences_in(&[("crates/data/src/lib.rs", "#![forbid(unsafe_code)]\n")]), [""; 0]);
    }

    #[test]
    fn a_crate_wide_allow_is_rejected() {
        assert_eq!(offences_in(&[("crates/ca/src/a.rs", "#![allow(dead_code)]\n")]).len(), 1);
        assert_eq!(
            offences_in(&[("crates/ca/src/a.rs", "#[expect(dead_code, reason = \"r\")]\nfn a() {}\n")]),
            [""; 0]
        );
    }
}
