//! Macros: `$(NAME)`, `${NAME=default}`, and lists of definitions.

use std::collections::HashMap;

use super::LoadError;
use super::error::Errors;
use crate::limit::{LINE_BYTES_MAX, LOAD_ERRORS_MAX, MACRO_DEPTH_MAX, MACRO_REFERENCES_MAX};

/// Definitions of macros: for a database, a template, or a line of a shell. Names, quotes, escapes and references are
/// parsed like in macLib of EPICS Base.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    /// Values by name, unexpanded: quotes and references are resolved where the macro is used.
    values: HashMap<String, String>,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineSource {
    /// A database file: text after `#` is not expanded.
    Database,
    /// A command.
    Shell,
    /// A template: a reference without closing bracket extends to the end of the line, as in `msi`.
    Template {
        /// Whether an undefined macro becomes `$(NAME,undefined)` instead of `$(NAME)`.
        marks_undefined: bool,
    },
}

/// A line after macro expansion, with the origin of its parts.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    /// The expanded text. Undefined macros remain as `$(NAME)`.
    pub(crate) text: String,
    /// Pairs of positions in `text` and in the line, in order. After each pair, both advance together.
    pub(crate) steps: Vec<(usize, usize)>,
    pub(crate) errors: Vec<MacroError>,
}

/// An error in a macro reference, and its position in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroError {
    /// The byte where the reference starts.
    pub position: usize,
    /// The message, with a suggestion if a similar name exists.
    pub message: String,
}

impl Macros {
    /// The macros of a list for a file; reports invalid definitions.
    pub(super) fn defined(file: &str, list: &str, errors: &mut Errors) -> Macros {
        let mut macros = Macros::default();
        if let Err(message) = macros.add(list) {
            errors.add_omission(LoadError::of_file(file, message));
        }
        macros
    }

    /// Parses `"P=X:,R=1"`. Blanks around names and values are ignored; quotes and `\` protect.
    pub fn parse(list: &str) -> Result<Macros, String> {
        let mut macros = Macros::default();
        macros.add(list)?;
        Ok(macros)
    }

    /// Adds definitions, which replace existing ones. A name without a value makes the macro undefined, as in EPICS
    /// Base; this is returned as an error after the whole list is parsed.
    pub fn add(&mut self, list: &str) -> Result<(), String> {
        let mut result = Ok(());
        for (name, value) in definitions(list) {
            match value {
                Some(value) => self.define(&name, value),
                None => {
                    result = Err(format!("\"{name}\" is not a macro definition: expected NAME=value"));
                    self.remove(&name);
                }
            }
        }
        result
    }

    /// Defines a macro. A reference to the macro itself in the value is replaced by its previous value: `P=$(P)A:`.
    pub fn define(&mut self, name: &str, value: &str) {
        let mentions_itself = ["$(", "${"].iter().any(|open| value.contains(&format!("{open}{name}")));
        let before =
            mentions_itself.then(|| self.expand(value, LineSource::Shell)).filter(|value| value.errors.is_empty());
        self.values.insert(name.to_owned(), before.map_or_else(|| value.to_owned(), |value| value.text));
    }

    /// Defines a macro whose value has literal quotes and backslashes.
    pub(crate) fn define_plain(&mut self, name: &str, value: &str) {
        let mut protected = String::with_capacity(value.len());
        for character in value.chars() {
            if matches!(character, '"' | '\'' | '\\') {
                protected.push('\\');
            }
            protected.push(character);
        }
        self.define(name, &protected);
    }

    /// The value of a macro, unexpanded.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Every name, in alphabetical order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.values.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Removes a definition.
    pub fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// Expands the macros in a line of a shell. Comments are expanded too.
    pub fn expand_line(&self, line: &str) -> Result<String, MacroError> {
        let mut expanded = self.expand(line, LineSource::Shell);
        if expanded.errors.is_empty() { Ok(expanded.text) } else { Err(expanded.errors.swap_remove(0)) }
    }

    /// Expands the macros in one line.
    pub(crate) fn expand(&self, line: &str, source: LineSource) -> Expanded {
        let mut expanded = Expanded { steps: vec![(0, 0)], ..Expanded::default() };
        if !line.contains('$') {
            expanded.text.push_str(line);
            return expanded;
        }
        let mut work = MacroExpansion::new(self, source);
        let (mut quote, mut position) = (None, 0);
        while let Some(character) = line.get(position..).and_then(|rest| rest.chars().next()) {
            if character == '#' && quote.is_none() && source == LineSource::Database {
                expanded.text.push_str(line.get(position..).unwrap_or_default());
                break;
            }
            match quote {
                Some(open) if open == character => quote = None,
                None if character == '"' || character == '\'' => quote = Some(character),
                _ => {}
            }
            if quote != Some('\'') && is_reference(line, position) {
                if source.needs_brackets() && !is_closed(line, position, quote) {
                    let close = closing(line, position);
                    let message = format!("'{close}' is missing at the end of this macro");
                    if expanded.errors.len() < LOAD_ERRORS_MAX {
                        expanded.errors.push(MacroError { position, message });
                    }
                } else {
                    let start = position;
                    position = work.reference(line, position, 0, &mut expanded.text);
                    let messages = std::mem::take(&mut work.errors).into_iter();
                    expanded.errors.extend(messages.map(|message| MacroError { position: start, message }));
                    expanded.steps.push((expanded.text.len(), position));
                    if work.is_over {
                        return Expanded { text: line.to_owned(), steps: vec![(0, 0)], ..expanded };
                    }
                    continue;
                }
            }
            expanded.text.push(character);
            position += character.len_utf8();
            if character == '\\'
                && let Some(protected) = line.get(position..).and_then(|rest| rest.chars().next())
            {
                expanded.text.push(protected);
                position += protected.len_utf8();
            }
        }
        expanded
    }

    fn undefined(&self, name: &str) -> String {
        let mut guess = super::error::suggestion(name, self.names().into_iter());
        if guess.is_empty() {
            guess = format!("; give it a value, {name}=..., or a default, $({name}=...)");
        }
        format!("macro \"{name}\" is not defined{guess}")
    }
}

impl LineSource {
    /// Whether a reference without closing bracket is an error.
    fn needs_brackets(self) -> bool {
        !matches!(self, LineSource::Template { .. })
    }
}

/// A macro whose value is being expanded: a scoped macro by its index, any other by its name.
type InUse = Result<usize, String>;

/// The expansion of one line.
struct MacroExpansion<'a> {
    macros: &'a Macros,
    source: LineSource,
    /// The macros that references define for their own scope, `$(NAME,A=1)`; later ones take precedence.
    scoped: Vec<(String, String)>,
    in_use: Vec<InUse>,
    /// Whether a value is being expanded inside a value, or a scope was used: from then on macLib detects recursion.
    is_watching: bool,
    /// How many more references the line may use. Needed because macros that each refer to two others double with every
    /// level.
    n_left: usize,
    /// Whether a limit was reached.
    is_over: bool,
    errors: Vec<String>,
}

impl<'a> MacroExpansion<'a> {
    fn new(macros: &'a Macros, source: LineSource) -> Self {
        let (scoped, in_use, errors) = (Vec::new(), Vec::new(), Vec::new());
        let n_left = MACRO_REFERENCES_MAX;
        MacroExpansion { macros, source, scoped, in_use, is_watching: false, n_left, is_over: false, errors }
    }

    /// Expands the reference at `start` of `text`. Returns the position after it.
    ///
    /// Source: EPICS Base 7.0, macLib. Only brackets of references nest, and quotes do not protect brackets.
    fn reference(&mut self, text: &str, start: usize, depth: usize, out: &mut String) -> usize {
        let close = closing(text, start);
        if let Some(message) = self.exceeded(depth, out.len()) {
            self.errors.push(message);
            self.is_over = true;
            return text.len();
        }
        let mut name = String::new();
        let mut at = self.part(text, start + 2, &['=', ',', close], depth + 1, &mut name);
        let default = text[at..].starts_with('=').then_some(at + 1);
        if let Some(start) = default {
            at = skip(text, start, &[',', close], depth);
        }
        let (n_scoped, n_errors) = (self.scoped.len(), self.errors.len());
        while text[at..].starts_with(',') {
            let (mut inner, mut value) = (String::new(), String::new());
            at = self.part(text, at + 1, &['=', ',', close], depth + 1, &mut inner);
            if text[at..].starts_with('=') {
                at = self.part(text, at + 1, &[',', close], depth + 1, &mut value);
                self.scoped.push((inner, value));
            }
            self.is_watching = true;
        }
        // Errors in a scoped definition are reported only where the macro is used.
        self.errors.truncate(n_errors);
        self.value(&name, (text, default), close, depth, out);
        self.scoped.truncate(n_scoped);
        (at + 1).min(text.len())
    }

    /// Appends the value of a macro, else its default, else the reference itself.
    fn value(
        &mut self,
        name: &str,
        (text, default): (&str, Option<usize>),
        close: char,
        depth: usize,
        out: &mut String,
    ) {
        let scoped = self.scoped.iter().rposition(|(other, _)| other == name);
        let raw = match scoped {
            Some(index) => self.scoped.get(index).map(|(_, value)| value.clone()),
            None => self.macros.values.get(name).cloned(),
        };
        let what = match (raw, default) {
            (Some(raw), _) => {
                let own = scoped.ok_or_else(|| name.to_owned());
                if !self.in_use.contains(&own) {
                    self.resolve(&raw, own, depth, out);
                    return;
                }
                self.errors.push(format!("macro \"{name}\" contains itself"));
                "recursive"
            }
            (None, Some(default)) => {
                self.part(text, default, &[',', close], depth + 1, out);
                return;
            }
            (None, None) => {
                self.errors.push(self.macros.undefined(name));
                "undefined"
            }
        };
        let is_marked = self.source == LineSource::Template { marks_undefined: true };
        out.push_str(&if is_marked { format!("$({name},{what})") } else { format!("$({name})") });
    }

    /// Appends a value with its references expanded.
    fn resolve(&mut self, raw: &str, own: InUse, depth: usize, out: &mut String) {
        if !raw.contains(['$', '"', '\'', '\\']) {
            out.push_str(raw);
            return;
        }
        let was_watching = std::mem::replace(&mut self.is_watching, true);
        if was_watching {
            self.in_use.push(own);
        }
        self.part(raw, 0, &[], depth + 1, out);
        if was_watching {
            self.in_use.pop();
        }
        self.is_watching = was_watching;
    }

    /// Appends a text up to one of the `ends`, with quotes removed and references expanded. Returns the end position.
    fn part(&mut self, text: &str, start: usize, ends: &[char], depth: usize, out: &mut String) -> usize {
        let mut pieces = Pieces { text, at: start, quote: None };
        while let Some(piece) = pieces.next_before(ends).filter(|_| !self.is_over) {
            match piece {
                Piece::Quote => {}
                Piece::Character(character) => out.push(character),
                Piece::Reference => pieces.at = self.reference(text, pieces.at, depth, out),
            }
        }
        pieces.at
    }

    fn exceeded(&mut self, depth: usize, n_bytes: usize) -> Option<String> {
        let Some(n_left) = self.n_left.checked_sub(1) else {
            return Some(format!("this line uses more than {MACRO_REFERENCES_MAX} macros"));
        };
        self.n_left = n_left;
        if depth > MACRO_DEPTH_MAX {
            return Some("macros are nested too deeply, or contain themselves".into());
        }
        (n_bytes > LINE_BYTES_MAX).then(|| "the line is too long after macro expansion".into())
    }
}

/// A piece of a value or of the inside of a reference.
enum Piece {
    /// A quote that is not part of the text.
    Quote,
    Character(char),
    /// A reference begins here.
    Reference,
}

struct Pieces<'a> {
    text: &'a str,
    at: usize,
    quote: Option<char>,
}

impl Pieces<'_> {
    /// The next piece, unless it is one of the `ends`. Does not consume a reference.
    fn next_before(&mut self, ends: &[char]) -> Option<Piece> {
        let character = self.text.get(self.at..)?.chars().next().filter(|next| !ends.contains(next))?;
        let closes = self.quote == Some(character);
        if closes || self.quote.is_none() && matches!(character, '"' | '\'') {
            self.quote = (!closes).then_some(character);
            self.at += 1;
            return Some(Piece::Quote);
        }
        if self.quote != Some('\'') && is_reference(self.text, self.at) {
            return Some(Piece::Reference);
        }
        self.at += character.len_utf8();
        let protected = self.text.get(self.at..).filter(|_| character == '\\').and_then(|rest| rest.chars().next());
        self.at += protected.map_or(0, char::len_utf8);
        Some(Piece::Character(protected.unwrap_or(character)))
    }
}

/// The end position of a part of a reference.
fn skip(text: &str, start: usize, ends: &[char], depth: usize) -> usize {
    let mut pieces = Pieces { text, at: start, quote: None };
    while let Some(piece) = pieces.next_before(ends) {
        if matches!(piece, Piece::Reference) {
            pieces.at = end_of_reference(text, pieces.at, depth + 1).unwrap_or(text.len());
        }
    }
    pieces.at
}

/// The position after a reference; `None` if its bracket is missing or references are nested too deeply.
fn end_of_reference(text: &str, start: usize, depth: usize) -> Option<usize> {
    if depth > MACRO_DEPTH_MAX {
        return None;
    }
    let close = closing(text, start);
    let mut at = start + 1;
    loop {
        at = skip(text, at + 1, &['=', ',', close], depth);
        if text[at..].starts_with('=') {
            at = skip(text, at + 1, &[',', close], depth);
        }
        match text[at..].chars().next() {
            Some(',') => {}
            end => return end.map(|_| at + 1),
        }
    }
}

/// Whether a reference has a closing bracket. Inside quotes, a reference whose name contains the quote counts as not
/// closed, since the quote ends the text.
fn is_closed(line: &str, start: usize, quote: Option<char>) -> bool {
    let end = skip(line, start + 2, &['=', ',', closing(line, start)], 0);
    let name = line.get(start + 2..end).unwrap_or_default();
    end_of_reference(line, start, 0).is_some() && !quote.is_some_and(|quote| name.contains(quote))
}

fn is_reference(text: &str, at: usize) -> bool {
    matches!(text.as_bytes().get(at..at + 2), Some(b"$(" | b"${"))
}

/// The closing bracket of the reference at `start`.
fn closing(text: &str, start: usize) -> char {
    if text.as_bytes().get(start + 1) == Some(&b'{') { '}' } else { ')' }
}

/// The names of a list `A=1,B="2"` with their unexpanded values; `None` for a name without `=`.
///
/// Source: EPICS Base 7.0, macParseDefns.
fn definitions(list: &str) -> Vec<(String, Option<&str>)> {
    let parts = split(list, ',').into_iter().filter(|part| !part.trim().is_empty());
    parts
        .map(|part| {
            let name = split(part, '=').first().copied().unwrap_or(part);
            (unquoted(name.trim()), part.get(name.len() + 1..).map(str::trim))
        })
        .collect()
}

/// Splits at separators that are not in quotes and not after a backslash.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote, mut is_escaped) = (0, None, false);
    for (position, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            character if quote == Some(character) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(character),
            '\\' => is_escaped = true,
            _ if character == separator && quote.is_none() => {
                parts.push(text.get(start..position).unwrap_or_default());
                start = position + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Removes quotes and escapes from a text.
fn unquoted(text: &str) -> String {
    let mut out = String::new();
    let mut pieces = Pieces { text, at: 0, quote: None };
    while let Some(piece) = pieces.next_before(&[]) {
        match piece {
            Piece::Quote => {}
            Piece::Character(character) => out.push(character),
            Piece::Reference => {
                out.push('$');
                pieces.at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(macros: &str, line: &str) -> Result<String, String> {
        let macros = Macros::parse(macros)?;
        let mut expanded = macros.expand(line, LineSource::Database);
        if expanded.errors.is_empty() { Ok(expanded.text) } else { Err(expanded.errors.swap_remove(0).message) }
    }

    #[test]
    fn macro_references_defaults_and_nested_references_are_expanded() {
        assert_eq!(expand("P=X:,R=1", "$(P)a${R}"), Ok("X:a1".into()));
        assert_eq!(expand("P=X:", "$(Q=$(P)y)"), Ok("X:y".into()));
        assert_eq!(expand("N=2,P2=two", "$(P$(N))"), Ok("two".into()));
        assert_eq!(expand("", "$(A=)b"), Ok("b".into()));
        assert_eq!(expand("F=<$(X)>", "$(F,X=1)"), Ok("<1>".into()));
        assert_eq!(expand("A=\"x,y\"", "$(A)"), Ok("x,y".into()));
    }

    #[test]
    fn a_macro_that_references_its_own_name_uses_the_previous_value() {
        let mut macros = Macros::parse("P=X:").unwrap();

        macros.add("P=$(P)A:, R=\"$(P)\"").unwrap();

        assert_eq!(macros.expand_line("$(P) $(R)"), Ok("X:A: X:A:".into()));
    }

    #[test]
    fn template_expansion_keeps_undefined_macros_and_expands_comments() {
        let macros = Macros::parse("P=X:").unwrap();

        let text = |marks_undefined| macros.expand("# $(P)$(Q) ${R}", LineSource::Template { marks_undefined }).text;

        assert_eq!(text(false), "# X:$(Q) $(R)");
        assert_eq!(text(true), "# X:$(Q,undefined) $(R,undefined)");
    }

    #[test]
    fn an_undefined_macro_is_an_error_with_a_suggestion() {
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
    fn single_quotes_escapes_and_comments_prevent_macro_expansion() {
        assert_eq!(expand("", "'$(A)'"), Ok("'$(A)'".into()));
        assert_eq!(expand("", "\\$(A)"), Ok("\\$(A)".into()));
        assert_eq!(expand("", "x # $(A)"), Ok("x # $(A)".into()));
        assert_eq!(expand("A=1", "\"it's $(A)\""), Ok("\"it's 1\"".into()));
    }

    #[test]
    fn quotes_and_backslashes_protect_separators_in_macro_definitions() {
        let macros = Macros::parse(r#"A=a\,b, B='x,y', C=\"q, D="p=q""#).unwrap();

        let values = ["A", "B", "C", "D"].map(|name| macros.value(name).unwrap_or("none"));
        assert_eq!(values, [r"a\,b", "'x,y'", r#"\"q"#, r#""p=q""#]);
        assert_eq!((macros.value("E"), macros.names()), (None, vec!["A", "B", "C", "D"]));
    }

    #[test]
    fn references_may_be_nested_up_to_the_limit_and_deeper_ones_are_errors() {
        let nested = |n: usize| format!("{}x{}", "$(A=".repeat(n), ")".repeat(n));
        let n_max = (1..100).take_while(|n| expand("", &nested(*n)).is_ok()).last();

        // The outermost reference is at depth 0.
        assert_eq!(n_max, Some(MACRO_DEPTH_MAX + 1));
    }

    #[test]
    fn references_nested_thousands_of_times_in_any_part_end_in_an_error_or_a_text() {
        for macros in ["", "A=1"] {
            for part in ["$(A=", "$(A,", "$(A,B=", "\"$(A=", "$($("] {
                for end in ["", ")"] {
                    let line = part.repeat(5_000) + &end.repeat(5_000);
                    // Either is right; the stack must not overflow.
                    let is_bounded = match expand(macros, &line) {
                        Ok(text) => text.len() <= line.len(),
                        Err(message) => message.len() <= line.len() + 100,
                    };
                    assert!(is_bounded, "{part} {end}");
                }
            }
        }
    }

    #[test]
    fn the_errors_of_a_line_are_limited() {
        let line = "$(A ".repeat(2 * LOAD_ERRORS_MAX);

        let expanded = Macros::default().expand(&line, LineSource::Database);

        assert_eq!(expanded.errors.len(), LOAD_ERRORS_MAX);
    }
}
