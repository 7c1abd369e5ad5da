//! Checks that the links in documents have valid targets, and that the types they name exist.

use std::collections::HashSet;

use super::Offence;
use super::repository::{Repository, TextFile};

/// Pages that also name types that no longer exist, or of other languages.
const WITH_OTHER_TYPES: [&str; 6] = [
    "CHANGELOG.md",
    "STYLE.md",
    "docs/how-to/use-python.md",
    "docs/how-to/move-from-aioca.md",
    "docs/how-to/move-from-softioc.md",
    "docs/reference/compatibility.md",
];

/// Checks every link within the repository and every type name in every Markdown page.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let is_source = |file: &&TextFile| file.path.ends_with(".rs") || file.path.ends_with(".java");
    let sources = repository.files.iter().filter(is_source);
    let words = sources.flat_map(|file| file.text.split(|c: char| !is_of_name(c))).collect();
    let pages = repository.files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| [check_page(repository, page), check_types(&words, page)].concat()).collect()
}

/// Checks that every type in a code span, alone or as a path such as `Context::close`, occurs in a source in Rust or Java.
fn check_types(words: &HashSet<&str>, page: &TextFile) -> Vec<Offence> {
    let mut offences = Vec::new();
    if WITH_OTHER_TYPES.contains(&page.path.as_str()) {
        return offences;
    }
    let mut is_code = false;
    for (index, line) in page.text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let spans = line.split('`').skip(1).step_by(2).filter(|_| !is_code);
        for name in spans.filter(|span| is_type(span)) {
            if !name.split("::").all(|part| words.contains(part)) {
                offences.push(Offence::new(&page.path, index + 1, format!("{name}: no such type in the sources")));
            }
        }
    }
    offences
}

/// Whether a code span is the name of a type, `Context`, or a path that begins with one, `Context::close`.
fn is_type(span: &str) -> bool {
    let mut first = span.chars();
    let begins_as_type = first.next().is_some_and(char::is_uppercase) && first.next().is_some_and(char::is_lowercase);
    begins_as_type && span.split("::").all(|part| !part.is_empty() && part.chars().all(is_of_name))
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn check_page(repository: &Repository, page: &TextFile) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (line, target) in links(&page.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let Some(path) = resolved(&page.path, path) else {
            offences.push(Offence::new(&page.path, line, format!("{target}: points outside the repository")));
            continue;
        };
        let is_folder = repository.paths.iter().any(|known| known.starts_with(&format!("{path}/")));
        if !is_folder && !repository.paths.contains(&path) {
            offences.push(Offence::new(&page.path, line, format!("{target}: target does not exist")));
        } else if path.ends_with(".rs") && !anchor.is_empty() {
            // In a source file, the anchor is the name of a function.
            let text = repository.text(&path).unwrap_or_default();
            if !["(", "<"].iter().any(|next| text.contains(&format!("fn {anchor}{next}"))) {
                offences.push(Offence::new(&page.path, line, format!("{target}: no such function")));
            }
        } else if !anchor.is_empty() && !anchors(repository.text(&path).unwrap_or_default()).contains(&anchor.into()) {
            offences.push(Offence::new(&page.path, line, format!("{target}: no such heading")));
        }
    }
    offences
}

/// The line number and target of every `[text](target)` outside code.
fn links(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") {
            continue;
        }
        // Text in backquotes is also code; links in it are ignored.
        for (part_index, part) in line.split('`').enumerate() {
            let continues_link = part_index % 2 == 1;
            if continues_link {
                continue;
            }
            let starts = part.match_indices("](").map(|(at, _)| at + 2);
            found.extend(starts.filter_map(|at| Some((index + 1, part[at..].split_once(')')?.0))));
        }
    }
    found
}

/// The target's path relative to the workspace root; `None` if it is outside.
fn resolved(page: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(page.to_string());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let simplified = headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    });
    simplified.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_in(page: &str) -> Vec<String> {
        let other = ("docs/reference/json.md", "# JSON\n\n## One update, one line\n");
        let source = ("crates/x.rs", "pub fn known(&self) {}\n");
        let repository = Repository::of(&[("docs/tutorials/a.md", page), other, source, ("README.md", "")]);
        check(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_broken_document_link_is_rejected() {
        assert_eq!(offences_in("see [it](../reference/jason.md)").len(), 1);
        assert_eq!(offences_in("see [it](../reference/json.md#no-such-heading)").len(), 1);
        assert_eq!(offences_in("see [it](../../../else/README.md)").len(), 1);
        assert_eq!(offences_in("see [`X::gone`](../../crates/x.rs#gone)").len(), 1);
    }

    #[test]
    fn a_type_that_no_source_contains_is_rejected() {
        let offences = |page: &str| {
            let source = ("crates/x.rs", "pub struct Context;\nimpl Context { pub fn close(&self) {} }\n");
            check(&Repository::of(&[("docs/a.md", page), source])).len()
        };

        assert_eq!(offences("`Context`, `Context::close`, `SCAN`, `Make it so`, `I`\n```rust\n`Gone`\n```\n"), 0);
        assert_eq!(offences("`Gone` and\n`Context::gone`\n"), 2);
    }

    #[test]
    fn valid_document_links_are_accepted() {
        for page in [
            "[a](../reference/json.md) and [b](../reference/json.md#one-update-one-line)",
            "[`X::known`](../../crates/x.rs#known) [`code`](../../README.md) [folder](../reference/) [web](https://example.org/x.md)",
            "`[a](b)` is a link\n```text\n[a](nowhere)\n```\n",
        ] {
            assert_eq!(offences_in(page), [""; 0], "{page}");
        }
    }
}
