//! Checks that the links in documents have valid targets.

use super::Offence;
use super::repository::{Repository, TextFile};

/// Checks every link within the repository in every Markdown page.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let pages = repository.files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| check_page(repository, page)).collect()
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
