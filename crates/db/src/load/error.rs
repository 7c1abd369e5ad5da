//! Errors in database files, with their places.

use std::cell::Cell;
use std::fmt;
use std::ops::AddAssign;

use fodo_data::Text;

use crate::limit::{COMPARED_NAMES_MAX, INCLUDES_MAX, LOAD_ERRORS_MAX, SHOWN_LINE_BYTES_MAX, SUGGESTED_NAMES_MAX};

/// An error in a database file. `Display` shows file, line, column and message, then the source line with a caret
/// below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadError {
    /// The file name as it was opened; empty if the error belongs to no file.
    pub file: String,
    /// Counted from 1; 0 if the error belongs to no line.
    pub line: usize,
    /// In characters, counted from 1; in bytes if the line is too long to be shown.
    pub column: usize,
    /// What was found, and what was expected.
    pub message: String,
    /// The source line before macro expansion; empty if it is too long to be shown.
    pub source: String,
    /// The places that load the file with these macros, innermost first: `plant.substitutions:12:3`.
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
        self.from.iter().try_for_each(|place| write!(f, "\n  loaded by {place}"))
    }
}

/// The warning about a file without statements.
pub(crate) const LOADS_NOTHING: &str = "the file is empty, so nothing is loaded";

impl LoadError {
    /// An error that belongs to a file, but not to a line.
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
            // A tab below a tab keeps the caret in the right column.
            f.write_str(if character == '\t' { "\t" } else { " " })?;
        }
        f.write_str("^")
    }
}

impl std::error::Error for LoadError {}

/// What was not loaded because of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Records that were not loaded.
    pub n_records: usize,
    /// Fields that keep their defaults.
    pub n_fields: usize,
    /// Files, aliases and other statements, including the rest of a file after a syntax error.
    pub n_others: usize,
}

impl Omitted {
    /// How many errors there were.
    pub fn total(&self) -> usize {
        self.n_records + self.n_fields + self.n_others
    }
}

impl AddAssign for Omitted {
    fn add_assign(&mut self, more: Omitted) {
        self.n_records += more.n_records;
        self.n_fields += more.n_fields;
        self.n_others += more.n_others;
    }
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.n_records, "record"), (self.n_fields, "field"), (self.n_others, "other statement")];
        let counted = parts.into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> =
            counted.map(|(n, what)| format!("{n} {what}{}", if n == 1 { "" } else { "s" })).collect();
        write!(f, "left out because of errors: {}", parts.join(", "))
    }
}

/// The errors of one load: the first [`LOAD_ERRORS_MAX`] of them, and the counts of everything that was not loaded.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub(crate) list: Vec<LoadError>,
    pub(crate) omitted: Omitted,
}

impl Errors {
    pub(crate) fn add_omission(&mut self, error: LoadError) {
        self.omitted.n_others += 1;
        self.add(error);
    }

    pub(crate) fn add(&mut self, error: LoadError) {
        if self.list.len() < LOAD_ERRORS_MAX {
            self.list.push(error);
        }
    }

    pub(crate) fn extend(&mut self, more: Errors) {
        self.omitted += more.omitted;
        more.list.into_iter().for_each(|error| self.add(error));
    }
}

/// The candidate that is most similar to a word, if it is similar enough to be suggested. Of two equally similar ones,
/// a candidate that is a prefix of the word is preferred.
pub fn closest_match<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // All one-letter words differ by one change, so they are not compared.
    if word.len() < 2 || word.len() > SUGGESTED_BYTES_MAX {
        return None;
    }
    let enough = word.len().div_ceil(3).min(CHANGES_MAX);
    let is_alike = |candidate: &&str| candidate.len().abs_diff(word.len()) <= enough;
    let scored =
        candidates.filter(is_alike).filter_map(|candidate| Some((distance(word, candidate, enough)?, candidate)));
    scored.min_by_key(|(distance, candidate)| (*distance, !word.starts_with(candidate))).map(|(_, word)| word)
}

/// Bytes of the longest word that is compared.
const SUGGESTED_BYTES_MAX: usize = 64;
/// The maximum number of changes, also for long words.
const CHANGES_MAX: usize = 3;

/// The number of letters that must be added, dropped, changed or swapped with their neighbour; `None` if more than
/// `most`.
fn distance(left: &str, right: &str, most: usize) -> Option<usize> {
    const WIDTH: usize = SUGGESTED_BYTES_MAX + CHANGES_MAX + 2;
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let is_same = |i: usize, j: usize| left[i].eq_ignore_ascii_case(&right[j]);
    // Distances are capped just above `most`, so a byte is enough.
    let far = most as u8 + 1;
    let (mut before, mut above, mut row) = ([far; WIDTH], [far; WIDTH], [far; WIDTH]);
    (0..=right.len().min(most)).for_each(|j| above[j] = j as u8);
    for i in 0..left.len() {
        // Farther from the diagonal, the distance exceeds `most`.
        let (first, last) = (i.saturating_sub(most), (i + most + 1).min(right.len()));
        row[first] = if first == 0 { far.min(i as u8 + 1) } else { far };
        let mut least = row[first];
        for j in first..last {
            let mut best = (above[j] + u8::from(!is_same(i, j))).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && is_same(i - 1, j) && is_same(i, j - 1) {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best.min(far);
            least = least.min(best);
        }
        if last < right.len() {
            row[last + 1] = far;
        }
        if least >= far {
            return None;
        }
        (before, above, row) = (above, row, before);
    }
    Some(usize::from(above[right.len()])).filter(|distance| *distance <= most)
}

/// Suggests record names for unknown names, up to a limit of comparisons: a database with links to thousands of records
/// of another IOC would compare each name with all of its own.
#[derive(Debug)]
pub(crate) struct Suggestions {
    n_left: Cell<usize>,
}

impl Default for Suggestions {
    fn default() -> Suggestions {
        Suggestions { n_left: Cell::new(COMPARED_NAMES_MAX) }
    }
}

impl Suggestions {
    /// `; did you mean "X"?`, or nothing.
    pub(crate) fn suggestion<'a>(&self, word: &str, names: impl Iterator<Item = &'a Text>) -> String {
        let count = |name: &'a Text| {
            self.n_left.set(self.n_left.get().checked_sub(1)?);
            Some(name)
        };
        let names = names.take(SUGGESTED_NAMES_MAX).map_while(count);
        suggestion(word, names.filter_map(|name| std::str::from_utf8(name.as_bytes()).ok()))
    }
}

/// The column of a byte in a line. Columns of long lines are in bytes, since counting characters again for each of
/// thousands of errors takes too long.
pub(crate) fn column(line: &str, byte: usize) -> usize {
    match line.get(..byte) {
        Some(before) if line.len() <= SHOWN_LINE_BYTES_MAX => before.chars().count() + 1,
        _ => byte + 1,
    }
}

/// The message for a file that includes too many files.
pub(crate) fn too_many_includes() -> String {
    format!("more than {INCLUDES_MAX} files are included")
}

/// The source line that an error keeps; empty if it is too long to be shown.
pub(crate) fn shown_line(line: &str) -> String {
    if line.len() <= SHOWN_LINE_BYTES_MAX { line.to_owned() } else { String::new() }
}

/// `; did you mean "X"?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    closest_match(word, candidates).map_or(String::new(), |candidate| format!("; did you mean \"{candidate}\"?"))
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
             loaded by plant.substitutions:3:2"
        );
    }

    #[test]
    fn the_first_hundred_errors_are_kept_and_all_omissions_are_counted() {
        let error = |line| LoadError { line, ..LoadError::default() };
        let (mut errors, mut more) = (Errors::default(), Errors::default());
        (0..LOAD_ERRORS_MAX - 1).for_each(|line| errors.add(error(line)));
        (500..503).for_each(|line| more.add_omission(error(line)));

        errors.extend(more);
        errors.add(error(504));

        let last: Vec<usize> = errors.list.iter().map(|error| error.line).skip(LOAD_ERRORS_MAX - 2).collect();
        assert_eq!((last, errors.omitted.n_others), (vec![LOAD_ERRORS_MAX - 2, 500], 3));
    }

    #[test]
    fn suggestions_tolerate_small_typos_but_not_different_words() {
        assert_eq!(closest_match("VLA", ["VAL", "EGU"].into_iter()), Some("VAL"));
        assert_eq!(closest_match("XYZZY", ["VAL", "EGU"].into_iter()), None);
        assert_eq!(closest_match("1 secnd", ["10 second", "1 second"].into_iter()), Some("1 second"));
        assert_eq!(closest_match("EGUU", ["EGUF", "EGUL", "EGU"].into_iter()), Some("EGU"));
    }

    #[test]
    fn the_bounded_edit_distance_equals_the_unbounded_one() {
        let words = ["", "a", "ab", "ba", "abc", "acb", "bac", "abcd", "abdc", "badc", "xabcd", "abcdxyz", "ABc"];
        for (left, right) in words.iter().flat_map(|left| words.iter().map(move |right| (*left, *right))) {
            let full = distance(left, right, 7);
            for most in 1..=CHANGES_MAX {
                let bounded = distance(left, right, most);
                assert_eq!(bounded, full.filter(|full| *full <= most), "{left} {right} {most}");
            }
        }
        assert_eq!((distance("abcd", "abdc", 3), distance("abcd", "xabc", 3)), (Some(1), Some(2)));
    }

    #[test]
    fn the_total_work_for_suggestions_is_limited() {
        let names: Vec<Text> = (0..30_000).map(|n| Text::from(format!("plant:record:{n}").as_str())).collect();
        let suggestions = Suggestions::default();

        let first = suggestions.suggestion("plant:recrod:7", names.iter());
        for _ in 0..10_000 {
            suggestions.suggestion("elsewhere:record:7", names.iter());
        }
        let last = suggestions.suggestion("plant:recrod:7", names.iter());

        assert_eq!(first, "; did you mean \"plant:record:7\"?");
        assert_eq!((last.as_str(), suggestions.n_left.get()), ("", 0));
    }

    #[test]
    fn an_error_of_a_file_shows_its_name_and_the_message() {
        assert_eq!(LoadError::of_file("a.db", "it cannot be read".into()).to_string(), "a.db: it cannot be read");
    }
}
