//! Phrases and words in names that plain English replaces. How often each occurs is on a list; the numbers may shrink,
//! never grow.

use std::collections::{BTreeMap, BTreeSet};

use super::Offence;
use super::repository::{Repository, TextFile};
use super::source;

/// The list: `number phrase` or `number name WORD`.
pub const PHRASES_PATH: &str = "xtask/tidy-phrases.txt";

const HEADING: &str = "\
# Phrases that STYLE.md replaces, and how often comments and documents contain each. `name WORD` counts the names in
# each Rust file of which WORD is a part.
# The numbers may shrink, never grow; `cargo xtask tidy tighten` lowers them.
";

/// The phrases, and what to write.
const PHRASES: [(&str, &str); 16] = [
    ("nobody", "name it: no client, no caller"),
    ("somebody", "name it: another client, a caller"),
    ("everybody", "name it: all clients"),
    ("tells", "reports, sends, returns"),
    ("told", "reported, sent, known"),
    ("hears", "receives"),
    ("heard", "received"),
    ("asked for", "requested"),
    ("asks for", "requests"),
    ("for so long", "repeat the time"),
    ("as great a", "repeat the number"),
    ("that is none", "that does not exist, that is not valid"),
    ("who gives", "name it: the client, the caller"),
    ("by what", "according to"),
    ("does not fit", "say which limit it exceeds"),
    ("may not hold", "is invalid because"),
];

/// The words that are not part of a name, and what to write.
const NAME_WORDS: [(&str, &str); 12] = [
    ("told", "reported, known, the name of the output"),
    ("tell", "report, send"),
    ("hear", "receive"),
    ("heard", "received"),
    ("ask", "request"),
    ("asked", "requested"),
    ("say", "report, write, send"),
    ("said", "output, reply, lines"),
    ("wanted", "expected, requested, selected"),
    ("nobody", "name it: the client, the caller"),
    ("somebody", "name it: the client, the caller"),
    ("errands", "requests, queue"),
];

/// Every key of the list, and what to write.
fn rules() -> impl Iterator<Item = (String, &'static str)> {
    let phrases = PHRASES.iter().map(|(phrase, instead)| ((*phrase).to_string(), *instead));
    phrases.chain(NAME_WORDS.iter().map(|(word, instead)| (format!("name {word}"), *instead)))
}

/// Compares the numbers with the list.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let listed = listed(repository);
    let counts = counts(repository);
    let mut offences = Vec::new();
    for (phrase, instead) in rules() {
        let (limit, places) = (listed.get(&phrase).copied().unwrap_or(0), &counts[&phrase]);
        match places.len() {
            n if n > limit => {
                let last = places.last().map_or(("", 0), |(path, line)| (path.as_str(), *line));
                let what = format!("\"{phrase}\" occurs {n} times, {limit} are allowed; instead: {instead}");
                offences.push(Offence::new(last.0, last.1, what));
            }
            n if n < limit => {
                let what = format!("\"{phrase}\" occurs only {n} times; run `cargo xtask tidy tighten`");
                offences.push(Offence::new(PHRASES_PATH, 0, what));
            }
            _ => {}
        }
    }
    offences
}

/// The list with every number lowered to the current one.
pub fn tightened(repository: &Repository) -> String {
    let listed = listed(repository);
    let counts = counts(repository);
    let mut text = HEADING.to_string();
    for (phrase, _) in rules() {
        let n = counts[&phrase].len().min(listed.get(&phrase).copied().unwrap_or(0));
        text.push_str(&format!("{n} {phrase}\n"));
    }
    text
}

fn listed(repository: &Repository) -> BTreeMap<String, usize> {
    let lines = repository.text(PHRASES_PATH).unwrap_or_default().lines();
    lines.filter_map(|line| line.split_once(' ')).filter_map(|(n, text)| Some((text.into(), n.parse().ok()?))).collect()
}

/// Where each phrase occurs, and each word in a name.
fn counts(repository: &Repository) -> BTreeMap<String, Vec<(String, usize)>> {
    let mut counts: BTreeMap<String, Vec<_>> = rules().map(|(phrase, _)| (phrase, Vec::new())).collect();
    let mut add = |key: &str, path: &str, line: usize| {
        counts.entry(key.to_string()).or_default().push((path.to_string(), line));
    };
    for file in &repository.files {
        for (line, prose) in prose(file) {
            let prose = prose.to_lowercase();
            for (phrase, _) in PHRASES {
                (0..occurrences(&prose, phrase)).for_each(|_| add(phrase, &file.path, line));
            }
        }
        if file.path.ends_with(".rs") {
            names(&file.text).iter().for_each(|(word, line)| add(&format!("name {word}"), &file.path, *line));
        }
    }
    counts
}

/// The listed words in the names of a Rust file and the line of each; a name counts once for each file.
fn names(text: &str) -> Vec<(&'static str, usize)> {
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    for token in source::all_tokens(text).unwrap_or_default() {
        if !token.text.starts_with(|first: char| first.is_alphabetic() || first == '_') || known.contains(&token.text) {
            continue;
        }
        let words = NAME_WORDS.iter().map(|(word, _)| *word);
        let parts: Vec<String> = token.text.split('_').map(str::to_lowercase).collect();
        found.extend(words.filter(|word| parts.iter().any(|part| part == word)).map(|word| (word, token.line)));
        known.insert(token.text);
    }
    found
}

/// How often a phrase occurs as whole words.
fn occurrences(prose: &str, phrase: &str) -> usize {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let matches = prose.match_indices(phrase);
    let whole = matches.filter(|(at, _)| {
        let (before, after) = (&prose[..*at], &prose[at + phrase.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    });
    whole.count()
}

/// The lines of prose: comments of Rust, and Markdown outside its code blocks.
fn prose(file: &TextFile) -> Vec<(usize, &str)> {
    let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    if file.path.ends_with(".rs") {
        // The phrases themselves stand in this file.
        let lines = lines.filter(|_| !file.path.ends_with("tidy/language.rs"));
        return lines.filter_map(|(number, line)| Some((number, line.split_once("//")?.1))).collect();
    }
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut is_code = false;
    lines
        .filter(|(_, line)| {
            is_code ^= line.trim_start().starts_with("```");
            !is_code
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(source: &str, list: &str) -> Vec<String> {
        let repository = Repository::of(&[("crates/a/src/lib.rs", source), (PHRASES_PATH, list)]);
        check(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dialect_phrase_above_its_limit_is_rejected() {
        let found = offences("fn untold() {}\n/// Is told, and told again.\n", "1 told\n");

        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/lib.rs:2: \"told\" occurs 2 times, 1 are allowed"), "{found:?}");
        assert_eq!(offences("/// Is told, and told again.\n", "2 told\n"), [""; 0]);
        assert!(offences("", "1 told\n")[0].contains("tighten"));
    }

    #[test]
    fn code_blocks_and_parts_of_words_are_not_checked_as_prose() {
        let page = "untold\n```sh\ntold\n```\n";
        let repository = Repository::of(&[("docs/a.md", page)]);

        assert_eq!(check(&repository).len(), 0);
    }

    #[test]
    fn a_dialect_word_in_a_name_counts_once_for_each_file() {
        let source = "fn n_told() { n_told(); \"told\"; }\nstruct Told;\nfn untold() {}\n";

        let found = offences(source, "1 name told\n");

        assert!(
            found[0].starts_with("crates/a/src/lib.rs:2: \"name told\" occurs 2 times, 1 are allowed"),
            "{found:?}"
        );
        assert_eq!(offences(source, "2 name told\n"), [""; 0]);
    }

    #[test]
    fn tightening_never_raises_a_phrase_limit() {
        let repository = |list: &str| Repository::of(&[("a.md", "told told"), (PHRASES_PATH, list)]);

        assert!(tightened(&repository("3 told\n")).contains("\n2 told\n"));
        assert!(tightened(&repository("1 told\n")).contains("\n1 told\n"));
    }
}
