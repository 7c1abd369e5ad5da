//! What is wrong in a database file, and where.

use std::fmt;

use crate::limit::{INCLUDES_MAX, SHOWN_LINE_BYTES_MAX};

/// What is wrong in a database file, and where. `Display` names file, line, column and what was
/// expected, then shows the line with a caret below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadError {
    /// The file, as it was named when it was opened; empty for what stands in none.
    pub file: String,
    /// Counted from 1; 0 when the error belongs to no line.
    pub line: usize,
    /// In characters, counted from 1; in bytes on a line that is too long to be shown.
    pub column: usize,
    /// What was found and what was expected.
    pub message: String,
    /// The line itself, before its macros were replaced; empty for one that is too long to be shown.
    pub source: String,
    /// Who wanted the file with these macros, innermost first: `plant.substitutions:12:3`.
    pub from: Vec<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.place())?;
        }
        f.write_str(&self.message)?;
        if !self.source.is_empty() {
            self.show_source(f)?;
        }
        self.from.iter().try_for_each(|place| write!(f, "\n  wanted by {place}"))
    }
}

impl LoadError {
    /// What concerns a file and none of its lines.
    pub fn of_file(file: &str, message: String) -> LoadError {
        LoadError { file: file.to_owned(), message, ..LoadError::default() }
    }

    /// `file:line:column`, as much of it as is known.
    pub fn place(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}:{}", self.file, self.column),
        }
    }

    fn show_source(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {}\n  ", self.source)?;
        for character in self.source.chars().take(self.column.saturating_sub(1)) {
            // A tab below a tab keeps the caret in its column.
            f.write_str(if character == '\t' { "\t" } else { " " })?;
        }
        f.write_str("^")
    }
}

impl std::error::Error for LoadError {}

/// The candidate that is closest to a word, when one is close enough to be meant.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const WORD_BYTES_MAX: usize = 64;
    // Every letter is one change away from every other.
    if word.len() < 2 || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let enough = word.len().div_ceil(3).min(3);
    let scored = candidates.map(|candidate| (distance(word, candidate), candidate));
    scored.filter(|(distance, _)| *distance <= enough).min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// How many letters must be added, dropped, changed or swapped with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<u8> = left.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    let right: Vec<u8> = right.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let mut best = (above[j] + usize::from(l != r)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left[i - 1] == *r && right[j - 1] == *l {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

/// The column of a byte of a line. Those of long lines are not counted by characters: thousands of remarks on one
/// would count it thousands of times.
pub(crate) fn column(line: &str, byte: usize) -> usize {
    match line.get(..byte) {
        Some(before) if line.len() <= SHOWN_LINE_BYTES_MAX => before.chars().count() + 1,
        _ => byte + 1,
    }
}

/// What is said of a file that includes more than it may.
pub(crate) fn too_many_includes() -> String {
    format!("more than {INCLUDES_MAX} files are included")
}

/// A line as an error keeps it: those that are too long to be shown are left out.
pub(crate) fn shown_line(line: &str) -> String {
    if line.len() <= SHOWN_LINE_BYTES_MAX { line.to_owned() } else { String::new() }
}

/// `; did you mean "X"?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    closest(word, candidates).map_or(String::new(), |candidate| format!("; did you mean \"{candidate}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_line_with_a_caret_below() {
        let error = LoadError {
            file: "file.db".into(),
            line: 12,
            column: 9,
            message: "no field \"VLA\" in record type ai; did you mean \"VAL\"?".into(),
            source: "  field(VLA, 1)".into(),
            from: vec!["plant.substitutions:3:2".into()],
        };

        assert_eq!(
            error.to_string(),
            "file.db:12:9: no field \"VLA\" in record type ai; did you mean \"VAL\"?\n    field(VLA, 1)\n          ^\n  \
             wanted by plant.substitutions:3:2"
        );
    }

    #[test]
    fn a_swapped_letter_is_close_and_another_word_is_not() {
        assert_eq!(closest("VLA", ["VAL", "EGU"].into_iter()), Some("VAL"));
        assert_eq!(closest("XYZZY", ["VAL", "EGU"].into_iter()), None);
    }
}
