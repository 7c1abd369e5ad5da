//! Tokens of a database file, with their places.

use std::collections::HashSet;

use crate::json::JsonScanner;
use crate::limit::{JSON_DEPTH_MAX, LOAD_ERRORS_MAX};
use crate::load::error::{LoadError, column, shown_line};
use crate::load::macros::{LineSource, Macros};

/// A token of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DbToken {
    /// A word without quotes.
    Bare(String),
    /// A text in quotes, with unresolved escapes.
    Quoted(String),
    /// `{...}` or `[...]` where a value is expected.
    Json(String),
    /// `(`, `)`, `{`, `}` or `,`
    Mark(char),
    End,
}

impl DbToken {
    /// The token as error messages show it.
    pub(crate) fn shown(&self) -> String {
        match self {
            DbToken::Bare(text) | DbToken::Quoted(text) | DbToken::Json(text) => format!("\"{text}\""),
            DbToken::Mark(mark) => format!("'{mark}'"),
            DbToken::End => "the end of the file".into(),
        }
    }
}

/// A place in the expanded text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePlace {
    line: usize,
    /// Bytes from the start of the expanded line.
    offset: usize,
}

impl SourcePlace {
    /// A place some bytes further on the same line.
    pub(crate) fn offset_by(self, n_bytes: usize) -> SourcePlace {
        SourcePlace { offset: self.offset + n_bytes, ..self }
    }
}

/// Splits one file into tokens.
pub(crate) struct Lexer<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    macros: &'a Macros,
    line: usize,
    text: String,
    steps: Vec<(usize, usize)>,
    offset: usize,
    pub(crate) errors: Vec<LoadError>,
    /// Lines with errors in macros.
    flawed: HashSet<usize>,
    /// Where the parts of the last JSON value are: offsets in its text, each with the place from which the text is
    /// contiguous.
    json_parts: Vec<(usize, SourcePlace)>,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(file: &'a str, source: &'a str, macros: &'a Macros) -> Lexer<'a> {
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        let lines = source.lines().collect();
        let mut lexer = Lexer {
            file,
            lines,
            macros,
            line: 0,
            text: String::new(),
            steps: Vec::new(),
            offset: 0,
            errors: Vec::new(),
            flawed: HashSet::new(),
            json_parts: Vec::new(),
        };
        lexer.read_line();
        lexer
    }

    /// Makes an error at a place.
    pub(crate) fn error(&self, place: SourcePlace, message: impl Into<String>) -> LoadError {
        let source = self.lines.get(place.line).copied().unwrap_or_default();
        let steps = if place.line == self.line { self.steps.clone() } else { self.steps_of(place.line) };
        let step = steps.iter().rev().find(|(expanded, _)| *expanded <= place.offset);
        let byte = step.map_or(0, |(expanded, original)| original + (place.offset - expanded)).min(source.len());
        self.error_at(place.line, byte, message.into())
    }

    /// The place of a byte of the last value, which begins at `start`; the first byte is the opening quote. A JSON value
    /// without quotes may span lines.
    pub(crate) fn place_in_value(&self, start: SourcePlace, byte: usize) -> SourcePlace {
        let is_json = self.json_parts.first().is_some_and(|(_, first)| *first == start);
        if is_json { self.place_in_json(byte.saturating_sub(1)) } else { start.offset_by(byte) }
    }

    /// Makes an error at a byte of the line before macro expansion.
    fn error_at(&self, line: usize, byte: usize, message: String) -> LoadError {
        let source = self.lines.get(line).copied().unwrap_or_default();
        LoadError {
            file: self.file.to_owned(),
            line: line + 1,
            column: column(source, byte),
            message,
            source: shown_line(source),
            from: Vec::new(),
        }
    }

    /// The place of a byte of the last JSON value.
    pub(crate) fn place_in_json(&self, offset: usize) -> SourcePlace {
        let index = self.json_parts.partition_point(|(start, _)| *start <= offset);
        let part = index.checked_sub(1).and_then(|index| self.json_parts.get(index));
        part.map_or_else(SourcePlace::default, |(start, place)| place.offset_by(offset - start))
    }

    /// Whether a line, counted from 1, has errors in macros.
    pub(crate) fn is_flawed(&self, line: usize) -> bool {
        line > 0 && self.flawed.contains(&(line - 1))
    }

    /// Whether the line of a place has errors in macros.
    pub(crate) fn is_flawed_at(&self, place: SourcePlace) -> bool {
        self.flawed.contains(&place.line)
    }

    fn steps_of(&self, line: usize) -> Vec<(usize, usize)> {
        let line = self.lines.get(line).copied().unwrap_or_default();
        self.macros.expand(line, LineSource::Database).steps
    }

    /// The next token and its place. `is_value`: brackets start a JSON value.
    pub(crate) fn next(&mut self, is_value: bool) -> Result<(DbToken, SourcePlace), LoadError> {
        self.skip_blanks();
        let place = self.place();
        let Some(character) = self.rest().chars().next() else { return Ok((DbToken::End, place)) };
        if is_value && matches!(character, '{' | '[') {
            return Ok((DbToken::Json(self.json(place)?), place));
        }
        if matches!(character, '(' | ')' | '{' | '}' | ',') {
            self.offset += 1;
            return Ok((DbToken::Mark(character), place));
        }
        if character == '"' {
            return Ok((DbToken::Quoted(self.quoted(place)?), place));
        }
        let n = self.rest().bytes().take_while(|byte| is_bare(*byte)).count();
        if n == 0 {
            self.offset += character.len_utf8();
            let message = match character {
                '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => {
                    format!("{character} is a typographic quote; use plain double quotes (\")")
                }
                character if character.is_control() => format!("unexpected character '{}'", character.escape_default()),
                character => format!("unexpected character '{character}'; a text with it needs double quotes"),
            };
            return Err(self.error(place, message));
        }
        let word = self.rest().get(..n).unwrap_or_default().to_owned();
        self.offset += n;
        Ok((DbToken::Bare(word), place))
    }

    /// Whether only blanks precede the next token on its line.
    pub(crate) fn is_at_line_start(&mut self) -> bool {
        self.skip_blanks();
        self.text.get(..self.offset).is_some_and(|before| before.trim().is_empty())
    }

    /// Whether the next token starts at the first character of its line.
    pub(crate) fn is_at_column_one(&self) -> bool {
        self.offset == 0
    }

    /// The next word or mark, without consuming it; `None` at the end.
    pub(crate) fn peek_word(&mut self) -> Option<String> {
        self.skip_blanks();
        let first = self.rest().chars().next()?;
        let n = self.rest().bytes().take_while(|byte| is_bare(*byte)).count();
        Some(if n == 0 { first.to_string() } else { self.rest().get(..n).unwrap_or_default().to_owned() })
    }

    /// The next character that is not blank, without consuming it.
    pub(crate) fn peek_mark(&mut self) -> Option<char> {
        self.skip_blanks();
        self.rest().chars().next()
    }

    pub(crate) fn place(&self) -> SourcePlace {
        SourcePlace { line: self.line, offset: self.offset }
    }

    /// Reads a quoted text, which must end on its line. Escapes are not resolved.
    fn quoted(&mut self, place: SourcePlace) -> Result<String, LoadError> {
        let rest = self.rest();
        let mut is_escaped = false;
        for (position, character) in rest.char_indices().skip(1) {
            match character {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => {
                    let text = rest.get(1..position).unwrap_or_default().to_owned();
                    self.offset += position + 1;
                    return Ok(text);
                }
                _ => {}
            }
        }
        self.offset = self.text.len();
        Err(self.error(place, "the closing '\"' is missing on this line"))
    }

    /// Reads a JSON value up to its closing bracket. As in Base, blanks and comments outside its texts are removed.
    fn json(&mut self, place: SourcePlace) -> Result<String, LoadError> {
        let mut out = String::new();
        let mut scanner = JsonScanner::default();
        let mut is_contiguous = false;
        self.json_parts.clear();
        loop {
            let Some(character) = self.rest().chars().next() else {
                if !self.read_line_after() {
                    return Err(self.error(place, "this value is not closed"));
                }
                is_contiguous = false;
                continue;
            };
            if !scanner.is_in_text() && character == '#' {
                self.offset = self.text.len();
                continue;
            }
            if !scanner.is_in_text() && character.is_whitespace() {
                self.offset += character.len_utf8();
                is_contiguous = false;
                continue;
            }
            if !std::mem::replace(&mut is_contiguous, true) {
                self.json_parts.push((out.len(), self.place()));
            }
            self.offset += character.len_utf8();
            out.push(character);
            if let Err(missing) = scanner.take(character) {
                let message = format!("'{character}' does not close this value; '{missing}' is missing before it");
                return Err(self.error(place, message));
            }
            match scanner.depth() {
                0 => return Ok(out),
                depth if depth > JSON_DEPTH_MAX => return Err(self.error(place, "brackets are nested too deeply")),
                _ => {}
            }
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let n_blanks = rest.len() - trimmed.len();
            // In a .dbd file, a line that starts with % contains C code.
            let is_code = self.offset == 0 && trimmed.starts_with('%');
            let is_over = trimmed.is_empty() || trimmed.starts_with('#') || is_code;
            self.offset += n_blanks;
            if !is_over || !self.read_line_after() {
                if is_over {
                    self.offset = self.text.len();
                }
                return;
            }
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn read_line_after(&mut self) -> bool {
        if self.line + 1 >= self.lines.len() {
            return false;
        }
        self.line += 1;
        self.read_line();
        true
    }

    /// Expands the macros of the current line. Invalid references stay unchanged, and their errors are kept.
    fn read_line(&mut self) {
        self.offset = 0;
        let line = self.lines.get(self.line).copied().unwrap_or_default();
        let expanded = self.macros.expand(line, LineSource::Database);
        self.text = expanded.text;
        self.steps = expanded.steps;
        for error in expanded.errors {
            self.flawed.insert(self.line);
            if self.errors.len() < LOAD_ERRORS_MAX {
                self.errors.push(self.error_at(self.line, error.position, error.message));
            }
        }
    }
}

/// Whether a byte may be part of a word without quotes.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+:.[]<>;".contains(&byte)
}

/// Replaces C escapes (`\n`, `\x41`, `\101`, ...) by the bytes that they represent.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'a') => out.push(7),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(b'x') => {
                let mut number = 0_u32;
                while let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16)) {
                    number = (number << 4 | digit) & 0xff;
                    bytes.next();
                }
                out.push(number as u8);
            }
            Some(digit @ b'0'..=b'7') => {
                let mut number = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(8)) else { break };
                    number = number << 3 | digit;
                    bytes.next();
                }
                out.push(number as u8);
            }
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_c_are_replaced_by_their_bytes() {
        for (text, bytes) in [
            ("a\\nb", &b"a\nb"[..]),
            ("\\a\\b\\f\\r\\t\\v", b"\x07\x08\x0c\r\t\x0b"),
            ("\\\\\\\"\\q\\", b"\\\"q\\"),
            ("\\x41\\x4aG\\xfFg", b"A\x4aG\xffg"),
            ("\\x12345\\xg", b"\x45\0g"),
            ("\\101\\7\\778\\1234\\0", b"A\x07\x3f8S4\0"),
            ("\u{e9}", "\u{e9}".as_bytes()),
        ] {
            assert_eq!(unescaped(text), bytes, "{text}");
        }
    }
}
