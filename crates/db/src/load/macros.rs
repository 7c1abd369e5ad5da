//! Macros: `$(NAME)`, `${NAME=default}`, and lists of definitions.

use std::collections::HashMap;

use crate::limit::{LINE_BYTES_MAX, MACRO_DEPTH_MAX};

/// The macros of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Macros {
    values: HashMap<String, String>,
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
pub(crate) struct MacroError {
    pub(crate) position: usize,
    pub(crate) message: String,
}

impl Macros {
    /// Reads `"P=X:,R=1"`. Blanks around names and values do not count; quotes and `\` protect.
    pub(crate) fn parse(list: &str) -> Result<Macros, String> {
        let mut macros = Macros::default();
        for part in split(list, ',') {
            if part.trim().is_empty() {
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("\"{}\" is no macro definition: expected NAME=value", part.trim()));
            };
            macros.values.insert(name.trim().to_owned(), unquoted(value.trim()));
        }
        Ok(macros)
    }

    /// Replaces the macros of one line. A comment is left alone, whatever stands in it.
    pub(crate) fn expand(&self, line: &str) -> Result<Expanded, MacroError> {
        let mut expanded = Expanded::default();
        if !line.contains('$') {
            expanded.text.push_str(line);
            expanded.steps.push((0, 0));
            return Ok(expanded);
        }
        let mut quote = None;
        let mut position = 0;
        let mut is_in_step = false;
        while let Some(character) = line.get(position..).and_then(|rest| rest.chars().next()) {
            let rest = line.get(position..).unwrap_or_default();
            if !is_in_step {
                expanded.steps.push((expanded.text.len(), position));
                is_in_step = true;
            }
            if character == '#' && quote.is_none() {
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
                let n =
                    self.reference(rest, 0, &mut expanded.text).map_err(|message| MacroError { position, message })?;
                position += n;
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
    fn reference(&self, text: &str, depth: usize, out: &mut String) -> Result<usize, String> {
        if depth > MACRO_DEPTH_MAX {
            return Err("macros are nested too deep, or contain themselves".into());
        }
        let close = if text.starts_with("$(") { ')' } else { '}' };
        let length = length(text, close).ok_or_else(|| format!("'{close}' is missing at the end of this macro"))?;
        let inside = text.get(2..length - 1).unwrap_or_default();
        let mut parts = split(inside, ',').into_iter();
        let first = parts.next().unwrap_or_default();
        let mut scoped = None;
        for part in parts {
            if let Some((name, value)) = part.split_once('=') {
                let name = self.nested(name.trim(), depth)?;
                let value = self.nested(value, depth)?;
                scoped.get_or_insert_with(|| self.clone()).values.insert(name, value);
            }
        }
        let macros = scoped.as_ref().unwrap_or(self);
        let mut halves = split(first, '=').into_iter();
        let name = macros.nested(halves.next().unwrap_or_default().trim(), depth)?;
        let name_length = first.find('=').map(|_| split(first, '=')[0].len() + 1);
        let default = name_length.and_then(|start| first.get(start..));
        let value = match (macros.values.get(&name), default) {
            (Some(value), _) => macros.nested(value, depth)?,
            (None, Some(default)) => macros.nested(default, depth)?,
            (None, None) => return Err(self.undefined(&name)),
        };
        out.push_str(&value);
        if out.len() > LINE_BYTES_MAX {
            return Err("the line becomes too long".into());
        }
        Ok(length)
    }

    /// A text with its macros replaced.
    fn nested(&self, text: &str, depth: usize) -> Result<String, String> {
        let mut out = String::new();
        let mut position = 0;
        while let Some(rest) = text.get(position..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with("$(") || rest.starts_with("${") {
                position += self.reference(rest, depth + 1, &mut out)?;
            } else if let Some(character) = rest.chars().next() {
                out.push(character);
                position += character.len_utf8();
            }
        }
        Ok(out)
    }

    fn undefined(&self, name: &str) -> String {
        if self.values.is_empty() {
            return format!("macro \"{name}\" is not defined; no macros were given");
        }
        let mut names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        names.sort_unstable();
        let guess = super::error::suggestion(name, names.iter().copied());
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
fn length(text: &str, close: char) -> Option<usize> {
    let open = if close == ')' { '(' } else { '{' };
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
        macros.expand(line).map(|expanded| expanded.text).map_err(|error| error.message)
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
    fn an_undefined_macro_is_an_error_that_suggests_another() {
        assert_eq!(
            expand("PREFIX=1", "$(PERFIX)"),
            Err("macro \"PERFIX\" is not defined; did you mean \"PREFIX\"?".into())
        );
        assert!(expand("A=$(A)", "$(A)").is_err());
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
