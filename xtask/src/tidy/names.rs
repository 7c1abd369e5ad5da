//! Each type name has one meaning: it is defined once in the workspace, or it is on a list with the reason.
//!
//! Types that macros define are not seen.

use std::collections::BTreeMap;

use super::Offence;
use super::repository::Repository;
use super::source;

/// The list of names that are defined more than once: `NAME N: why the N definitions are the same idea`.
pub const NAMES_PATH: &str = "xtask/tidy-names.txt";

/// The words that begin the definition of a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Where a type is defined: the path and the line.
type Definition = (String, usize);

/// Compares the definitions outside tests with the list.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let list = repository.text(NAMES_PATH).unwrap_or_default();
    let mut offences = Vec::new();
    let mut listed = BTreeMap::new();
    for (index, line) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match parsed(line) {
            Some((name, n_allowed)) => {
                listed.insert(name, (n_allowed, index + 1));
            }
            None => offences.push(Offence::new(NAMES_PATH, index + 1, "expected `NAME N: reason`")),
        }
    }
    let repeated = repeated(repository);
    for (name, places) in repeated.iter().filter(|(name, _)| !listed.contains_key(name.as_str())) {
        let Some(((first, _), others)) = places.split_first() else { continue };
        for (path, line) in others {
            let what = format!(
                "the type name {name} is also defined in {first}; choose another, or, if it is the same idea, list it \
                 in {NAMES_PATH}"
            );
            offences.push(Offence::new(path, *line, what));
        }
    }
    for (name, (n_allowed, line)) in listed {
        let n_found = repeated.get(name).map_or(1, Vec::len);
        if n_found != n_allowed {
            let what = format!("{name} is listed with {n_allowed} definitions, but has {n_found}");
            offences.push(Offence::new(NAMES_PATH, line, what));
        }
    }
    offences
}

/// The name of a line of the list, and how many definitions it may have.
fn parsed(line: &str) -> Option<(&str, usize)> {
    let (name, reason) = line.split_once(": ")?;
    let (name, n_allowed) = name.split_once(' ')?;
    (!reason.trim().is_empty()).then_some((name, n_allowed.parse().ok()?))
}

/// The names with more than one definition.
fn repeated(repository: &Repository) -> BTreeMap<String, Vec<Definition>> {
    let mut definitions: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
    for file in repository.rust_files().filter(|file| is_product(&file.path)) {
        for (name, line) in defined(&file.text) {
            definitions.entry(name).or_default().push((file.path.clone(), line));
        }
    }
    definitions.retain(|_, places| places.len() > 1);
    definitions
}

fn is_product(path: &str) -> bool {
    path.contains("src/") && !path.starts_with("fuzz/")
}

/// The types that a file defines outside tests, functions and implementations.
fn defined(text: &str) -> Vec<(String, usize)> {
    let tokens = source::product_tokens(text).unwrap_or_default();
    let (mut depth, mut found) = (0_usize, Vec::new());
    for pair in tokens.windows(2) {
        match pair[0].text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            word if depth == 0 && KEYWORDS.contains(&word) && pair[1].text.starts_with(char::is_uppercase) => {
                found.push((pair[1].text.clone(), pair[1].line));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(second: &str, list: &str) -> Vec<String> {
        let files =
            [("crates/a/src/lib.rs", "pub struct Turn;\n"), ("crates/b/src/lib.rs", second), (NAMES_PATH, list)];
        check(&Repository::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_duplicate_type_name_is_rejected_unless_listed() {
        let found = offences("\nenum Turn { On }\n", "");

        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/b/src/lib.rs:2: the type name Turn is also defined in crates/a"),
            "{found:?}"
        );
        assert_eq!(offences("enum Turn { On }\n", "# why\nTurn 2: one for each end\n"), [""; 0]);
    }

    #[test]
    fn a_listed_type_name_has_a_reason_and_as_many_definitions_as_listed() {
        assert!(offences("", "Turn 2: one for each end\n")[0].contains("listed with 2 definitions, but has 1"));
        assert!(offences("enum Turn { On }\n", "Turn 3: one for each end\n")[0].contains("but has 2"));
        assert!(offences("enum Turn { On }\n", "Turn: one for each end\n")[0].contains("expected"));
        assert!(offences("enum Turn { On }\n", "Turn 2\n")[0].contains("expected"));
    }

    #[test]
    fn every_further_definition_of_a_name_is_reported() {
        let files = ["a", "b", "c"].map(|folder| (format!("crates/{folder}/src/lib.rs"), "pub struct Turn;\n"));
        let files = files.each_ref().map(|(path, text)| (path.as_str(), *text));

        assert_eq!(check(&Repository::of(&files)).len(), 2);
    }

    #[test]
    fn type_names_in_tests_and_inside_items_are_ignored() {
        assert_eq!(offences("#[cfg(test)]\nmod tests { struct Turn; }\n", ""), [""; 0]);
        assert_eq!(offences("impl A for B { type Turn = u8; }\n", ""), [""; 0]);
    }
}
