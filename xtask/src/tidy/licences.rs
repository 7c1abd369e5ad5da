//! External packages must have licences that deny.toml allows.

use super::Offence;
use super::metadata::Metadata;
use super::repository::Repository;

const LIST_PATH: &str = "deny.toml";

/// Checks every package in cargo's metadata.
pub fn check(repository: &Repository, metadata: &Metadata) -> Vec<Offence> {
    let allowed = allowed(repository.text(LIST_PATH).unwrap_or_default());
    let refused = metadata.licences.iter().filter(|(_, licence)| !is_allowed(licence, &allowed));
    refused
        .map(|(package, licence)| {
            let licence = if licence.is_empty() { "no licence" } else { licence };
            Offence::new(LIST_PATH, 0, format!("{package} has {licence}, which is not allowed"))
        })
        .collect()
}

/// The names in `allow = [..]` of the section `[licenses]`.
fn allowed(list: &str) -> Vec<&str> {
    let section = list.split("[licenses]").nth(1).unwrap_or_default();
    let names =
        section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(names, _)| names);
    names.split('"').skip(1).step_by(2).collect()
}

/// Whether an SPDX expression is satisfied: one side of each OR, both of each AND. `/` is the old form of OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let holds = any_of(&words, &mut at, allowed);
    holds && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut holds = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= all_of(words, at, allowed);
    }
    holds
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut holds = one_of(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one_of(words, at, allowed);
    }
    holds
}

fn one_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let holds = any_of(words, at, allowed);
        *at += 1;
        return holds;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}").as_str()) || allowed.contains(word);
    }
    allowed.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[bans]\nallow = []\n[licenses]\n# why\nallow = [\n  \"MIT\",\n  \"Apache-2.0\",\n]\n";

    fn n_offences(licence: &str) -> usize {
        let licences = vec![("it 1.0.0".to_string(), licence.to_string())];
        check(&Repository::of(&[(LIST_PATH, LIST)]), &Metadata { licences, ..Metadata::default() }).len()
    }

    #[test]
    fn an_unlisted_licence_is_rejected() {
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "", "MIT MIT"] {
            assert_eq!(n_offences(refused), 1, "{refused}");
        }
    }

    #[test]
    fn a_licence_choice_with_one_allowed_licence_is_accepted() {
        for allowed in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "GPL-3.0 OR (MIT AND Apache-2.0)"] {
            assert_eq!(n_offences(allowed), 0, "{allowed}");
        }
    }
}
