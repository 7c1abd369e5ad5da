//! A change of the sources, as cargo-mutants lists it.

use std::ops::Range;

use serde_json::Value;

/// A change of the sources, as cargo-mutants lists it.
pub struct Mutant {
    /// The name that cargo-mutants displays: `FILE:LINE:COLUMN: WHAT`.
    pub name: String,
    /// The package whose tests should detect it.
    pub package: String,
    /// The path of the changed file in the workspace.
    pub file: String,
    /// The kind of change, for example `BinaryOperator`.
    pub genre: String,
    /// The text that replaces the span.
    pub replacement: String,
    /// The replaced text: line and column of its start and its end, counted from 1, in characters.
    span: [(usize, usize); 2],
}

impl Mutant {
    /// Parses an element of the list of cargo-mutants.
    pub fn parse(listed: &Value) -> Result<Mutant, String> {
        let text = |key: &str| {
            listed[key].as_str().map(str::to_string).ok_or_else(|| format!("cargo mutants: a mutant has no {key:?}"))
        };
        let position = |end: &str| {
            let number = |key: &str| listed["span"][end][key].as_u64().map(|number| number as usize);
            number("line").zip(number("column")).ok_or_else(|| format!("cargo mutants: a mutant has no {end:?}"))
        };
        Ok(Mutant {
            name: text("name")?,
            package: text("package")?,
            file: text("file")?,
            genre: text("genre")?,
            replacement: text("replacement")?,
            span: [position("start")?, position("end")?],
        })
    }

    /// The bytes of `source` that the change replaces; with a field, also the comma behind it.
    pub fn range(&self, source: &str) -> Result<Range<usize>, String> {
        let [start, end] = self.span.map(|position| byte_index(source, position));
        let (start, mut end) = start.zip(end).ok_or_else(|| format!("{}: outside of its file", self.name))?;
        if let ("StructField", Some(rest)) = (self.genre.as_str(), source[end..].trim_start().strip_prefix(',')) {
            end = source.len() - rest.len();
        }
        Ok(start..end)
    }

    /// `source` with the change.
    pub fn apply(&self, source: &str) -> Result<String, String> {
        let range = self.range(source)?;
        Ok([&source[..range.start], &self.replacement, &source[range.end..]].concat())
    }
}

fn byte_index(source: &str, (line, column): (usize, usize)) -> Option<usize> {
    let lines_before: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (index, _) = source[lines_before..].char_indices().nth(column - 1)?;
    Some(lines_before + index)
}

/// The mutant that replaces the first occurrence of `replaced` in `source`.
#[cfg(test)]
pub fn mutant_for_test(source: &str, genre: &str, replaced: &str, replacement: &str) -> Mutant {
    let position = |index: usize| {
        let before = &source[..index];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    };
    let start = source.find(replaced).unwrap();
    Mutant {
        name: format!("replace {replaced}"),
        package: "fodo-data".into(),
        file: "crates/data/src/lib.rs".into(),
        genre: genre.into(),
        replacement: replacement.into(),
        span: [position(start), position(start + replaced.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_replaces_the_characters_of_its_span() {
        let source = "fn f() {\n    'é' + 1\n}\n";
        let mutant = |replaced: &str, replacement: &str| mutant_for_test(source, "FnValue", replaced, replacement);

        assert_eq!(mutant("+", "-").apply(source).unwrap(), "fn f() {\n    'é' - 1\n}\n");
        assert_eq!(mutant("'é' + 1\n", "").apply(source).unwrap(), "fn f() {\n    }\n");
        assert!(mutant("1", "2").apply("fn f() {}\n").is_err());
    }

    #[test]
    fn a_mutant_that_deletes_a_field_deletes_its_comma_too() {
        let source = "S { a: 1, ..old }";

        for replaced in ["a: 1", "a: 1,"] {
            let mutant = mutant_for_test(source, "StructField", replaced, "");
            assert_eq!(mutant.apply(source).unwrap(), "S {  ..old }", "{replaced}");
        }
    }
}
