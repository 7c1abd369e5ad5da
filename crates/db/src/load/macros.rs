//! Macros: `$(NAME)`, `${NAME=default}`, and lists of definitions.

use std::cell::Cell;
use std::collections::HashMap;

use crate::limit::{LINE_BYTES_MAX, MACRO_DEPTH_MAX, MACRO_REFERENCES_MAX};

/// Definitions of macros: for a database, a template, or a line of a shell.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    values: HashMap<String, String>,
}

/// What is left alone in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// What follows `#`; a macro that is not defined is an error.
    Comments,
    /// Nothing; a macro that is not defined is an error.
    Nothing,
    /// References to macros that are not defined.
    Undefined,
}

/// What a line is after its macros are replaced, and where its pieces came from.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// Pairs of places in `text` and in the line, in order: from there on both run in step.
    pub(crate) steps: Vec<(usize, usize)>,
}

/// What is wrong with a macro, and at which byte of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroError {
    /// Where the reference starts.
    pub position: usize,
    /// In words, with a suggestion where one is close.
    pub message: String,
}

/// How deep a reference is nested, and how many more one line may need: macros that each name two others double
/// with every level, even when nothing comes of them.
#[derive(Clone, Copy)]
struct Nesting<'a> {
    depth: usize,
    n_left: &'a Cell<usize>,
}

impl Nesting<'_> {
    fn deeper(self) -> Self {
        Nesting { depth: self.depth + 1, ..self }
    }

    /// Counts one reference.
    fn count(self) -> Result<(), String> {
        let Some(n_left) = self.n_left.get().checked_sub(1) else {
            return Err(format!("this line needs more than {MACRO_REFERENCES_MAX} macros"));
        };
        self.n_left.set(n_left);
        if self.depth > MACRO_DEPTH_MAX {
            return Err("macros are nested too deep, or contain themselves".into());
        }
        Ok(())
    }
}

impl Macros {
    /// Reads `"P=X:,R=1"`. Blanks around names and values do not count; quotes and `\` protect.
    pub fn parse(list: &str) -> Result<Macros, String> {
        let mut macros = Macros::default();
        macros.add(list)?;
        Ok(macros)
    }

    /// Reads more definitions; they win over those that are there.
    pub fn add(&mut self, list: &str) -> Result<(), String> {
        for part in split(list, ',') {
            if part.trim().is_empty() {
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("\"{}\" is no macro definition: expected NAME=value", part.trim()));
            };
            self.define(name.trim(), &unquoted(value.trim()));
        }
        Ok(())
    }

    /// Defines one. A value that mentions the name itself means what the name meant before: `P=$(P)A:`.
    pub fn define(&mut self, name: &str, value: &str) {
        let mentions_itself = ["$(", "${"].iter().any(|open| value.contains(&format!("{open}{name}")));
        let n_left = Cell::new(MACRO_REFERENCES_MAX);
        let top = Nesting { depth: 0, n_left: &n_left };
        let expanded = if mentions_itself { self.nested(value, top).ok() } else { None };
        self.values.insert(name.to_owned(), expanded.unwrap_or_else(|| value.to_owned()));
    }

    /// What a name is defined as, its own macros not replaced.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Every name, in alphabetical order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// It is as if the name had never been defined.
    pub fn forget(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// A line of a shell with its macros replaced; nothing in it is a comment.
    pub fn expand_line(&self, line: &str) -> Result<String, MacroError> {
        self.expand(line, Keep::Nothing).map(|expanded| expanded.text)
    }

    /// Replaces the macros of one line.
    pub(crate) fn expand(&self, line: &str, keep: Keep) -> Result<Expanded, MacroError> {
        let mut expanded = Expanded::default();
        if !line.contains('$') {
            expanded.text.push_str(line);
            expanded.steps.push((0, 0));
            return Ok(expanded);
        }
        let n_left = Cell::new(MACRO_REFERENCES_MAX);
        let top = Nesting { depth: 0, n_left: &n_left };
        let mut quote = None;
        let mut position = 0;
        let mut is_in_step = false;
        while let Some(character) = line.get(position..).and_then(|rest| rest.chars().next()) {
            let rest = line.get(position..).unwrap_or_default();
            if !is_in_step {
                expanded.steps.push((expanded.text.len(), position));
                is_in_step = true;
            }
            if character == '#' && quote.is_none() && keep == Keep::Comments {
                expanded.text.push_str(rest);
                break;
            }
            if character == '\\' {
                let n = rest.chars().take(2).map(char::len_utf8).sum();
                expanded.text.push_str(rest.get(..n).unwrap_or_default());
                position += n;
                continue;
            }
            if quote != Some('\'') && (rest.starts_with("$(") || rest.starts_with("${")) {
                let length_before = expanded.text.len();
                position += match self.reference(rest, top, &mut expanded.text) {
                    Ok(n) => n,
                    Err(_) if keep == Keep::Undefined => {
                        expanded.text.truncate(length_before);
                        let n = length(rest).unwrap_or(2);
                        expanded.text.push_str(rest.get(..n).unwrap_or_default());
                        n
                    }
                    Err(message) => return Err(MacroError { position, message }),
                };
                is_in_step = false;
                continue;
            }
            match quote {
                Some(open) if open == character => quote = None,
                None if character == '"' || character == '\'' => quote = Some(character),
                _ => {}
            }
            expanded.text.push(character);
            position += character.len_utf8();
        }
        Ok(expanded)
    }

    /// Replaces one reference at the start of `text`; says how long it is.
    fn reference(&self, text: &str, nesting: Nesting<'_>, out: &mut String) -> Result<usize, String> {
        nesting.count()?;
        let length = length(text).ok_or_else(|| {
            let close = if text.starts_with("$(") { ')' } else { '}' };
            format!("'{close}' is missing at the end of this macro")
        })?;
        let inside = text.get(2..length - 1).unwrap_or_default();
        let mut parts = split(inside, ',').into_iter();
        let first = parts.next().unwrap_or_default();
        let mut scoped = None;
        for part in parts {
            if let Some((name, value)) = part.split_once('=') {
                let name = self.nested(name.trim(), nesting)?;
                let value = self.nested(value.trim(), nesting)?;
                scoped.get_or_insert_with(|| self.clone()).values.insert(name, unquoted(&value));
            }
        }
        let macros = scoped.as_ref().unwrap_or(self);
        let mut halves = split(first, '=').into_iter();
        let name = macros.nested(halves.next().unwrap_or_default().trim(), nesting)?;
        let name_length = first.find('=').map(|_| split(first, '=')[0].len() + 1);
        let default = name_length.and_then(|start| first.get(start..));
        let value = match (macros.values.get(&name), default) {
            (Some(value), _) => macros.nested(value, nesting)?,
            (None, Some(default)) => macros.nested(default, nesting)?,
            (None, None) => return Err(self.undefined(&name)),
        };
        out.push_str(&value);
        if out.len() > LINE_BYTES_MAX {
            return Err("the line becomes too long".into());
        }
        Ok(length)
    }

    /// A text with its macros replaced.
    fn nested(&self, text: &str, nesting: Nesting<'_>) -> Result<String, String> {
        let mut out = String::new();
        let mut position = 0;
        while let Some(rest) = text.get(position..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with("$(") || rest.starts_with("${") {
                position += self.reference(rest, nesting.deeper(), &mut out)?;
            } else if let Some(character) = rest.chars().next() {
                out.push(character);
                position += character.len_utf8();
            }
        }
        Ok(out)
    }

    fn undefined(&self, name: &str) -> String {
        let mut guess = super::error::suggestion(name, self.names().into_iter());
        if guess.is_empty() {
            guess = format!("; give it a value, {name}=..., or a default, $({name}=...)");
        }
        format!("macro \"{name}\" is not defined{guess}")
    }
}

/// The parts between separators that stand in no bracket and no quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut quote, mut is_escaped) = (0, 0_usize, None, false);
    for (position, character) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match (character, quote) {
            ('\\', _) => is_escaped = true,
            (character, Some(open)) if character == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(character),
            ('(' | '{', None) => depth += 1,
            (')' | '}', None) => depth = depth.saturating_sub(1),
            (character, None) if character == separator && depth == 0 => {
                parts.push(text.get(start..position).unwrap_or_default());
                start = position + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// How long the reference is, brackets included.
fn length(text: &str) -> Option<usize> {
    let (open, close) = if text.starts_with("$(") { ('(', ')') } else { ('{', '}') };
    let mut depth = 0_usize;
    for (position, character) in text.char_indices().skip(1) {
        if character == open {
            depth += 1;
        } else if character == close {
            depth -= 1;
            if depth == 0 {
                return Some(position + 1);
            }
        }
    }
    None
}

fn unquoted(value: &str) -> String {
    let mut out = String::new();
    let mut characters = value.chars();
    let mut quote = None;
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', _) => out.extend(characters.next()),
            (character, Some(open)) if character == open => quote = None,
            ('"' | '\'', None) => quote = Some(character),
            (character, _) => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(macros: &str, line: &str) -> Result<String, String> {
        let macros = Macros::parse(macros)?;
        macros.expand(line, Keep::Comments).map(|expanded| expanded.text).map_err(|error| error.message)
    }

    #[test]
    fn references_defaults_and_nesting_are_replaced() {
        assert_eq!(expand("P=X:,R=1", "$(P)a${R}"), Ok("X:a1".into()));
        assert_eq!(expand("P=X:", "$(Q=$(P)y)"), Ok("X:y".into()));
        assert_eq!(expand("N=2,P2=two", "$(P$(N))"), Ok("two".into()));
        assert_eq!(expand("", "$(A=)b"), Ok("b".into()));
        assert_eq!(expand("F=<$(X)>", "$(F,X=1)"), Ok("<1>".into()));
        assert_eq!(expand("A=\"x,y\"", "$(A)"), Ok("x,y".into()));
    }

    #[test]
    fn a_value_that_mentions_its_own_name_means_what_the_name_meant_before() {
        let mut macros = Macros::parse("P=X:").unwrap();

        macros.add("P=$(P)A:, R=\"$(P)\"").unwrap();

        assert_eq!(macros.expand_line("$(P) $(R)"), Ok("X:A: X:A:".into()));
    }

    #[test]
    fn a_template_keeps_what_is_not_defined_and_a_comment_is_text_in_it() {
        let macros = Macros::parse("P=X:").unwrap();

        let expanded = macros.expand("# $(P)$(Q) ${R}", Keep::Undefined).unwrap();

        assert_eq!(expanded.text, "# X:$(Q) ${R}");
    }

    #[test]
    fn an_undefined_macro_is_an_error_that_suggests_another() {
        assert_eq!(
            expand("PREFIX=1", "$(PERFIX)"),
            Err("macro \"PERFIX\" is not defined; did you mean \"PREFIX\"?".into())
        );
        assert!(expand("A=$(A)", "$(A)").is_err());
        let doubling: Vec<String> = (0..40).map(|n| format!("A{n}=$(A{0}=)$(A{0}=)", n + 1)).collect();
        assert!(expand(&doubling.join(","), "$(A10)").unwrap_err().contains("more than"));
        assert!(expand("", "$(A").is_err());
    }

    #[test]
    fn single_quotes_escapes_and_comments_protect() {
        assert_eq!(expand("", "'$(A)'"), Ok("'$(A)'".into()));
        assert_eq!(expand("", "\\$(A)"), Ok("\\$(A)".into()));
        assert_eq!(expand("", "x # $(A)"), Ok("x # $(A)".into()));
        assert_eq!(expand("A=1", "\"it's $(A)\""), Ok("\"it's 1\"".into()));
    }
}
