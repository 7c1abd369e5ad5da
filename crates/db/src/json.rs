//! A parser for the JSON of filters, links and groups. As in Base it is JSON5: names without quotes, comments, more
//! notations of numbers.

use crate::limit::JSON_DEPTH_MAX;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    /// In the order of the text; names may be repeated.
    Map(Vec<JsonMember>),
}

/// One member of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonMember {
    pub(crate) name: String,
    /// Where the name starts, in bytes.
    pub(crate) at: usize,
    pub(crate) value: Json,
}

/// Follows the texts in quotes and the brackets of JSON, valid or not, character by character.
#[derive(Debug, Default)]
pub(crate) struct JsonScanner {
    quote: Option<char>,
    is_escaped: bool,
    /// The opening brackets that are not closed.
    open: Vec<char>,
}

impl JsonScanner {
    /// Whether the next character is part of a text in quotes.
    pub(crate) fn is_in_text(&self) -> bool {
        self.quote.is_some()
    }

    /// The number of brackets that are not closed.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Takes the next character. A closing bracket of the other kind also closes the last one; the error is the bracket that
    /// is missing.
    pub(crate) fn take(&mut self, character: char) -> Result<(), char> {
        match (character, self.quote) {
            _ if self.is_escaped => self.is_escaped = false,
            ('\\', Some(_)) => self.is_escaped = true,
            (character, Some(quote)) if character == quote => self.quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => self.quote = Some(character),
            ('{' | '[', None) => self.open.push(character),
            ('}' | ']', None) => {
                let (opening, missing) = if character == '}' { ('{', ']') } else { ('[', '}') };
                if self.open.pop() != Some(opening) {
                    return Err(missing);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A syntax error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// In bytes from the start of the text.
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

/// Parses a text that is exactly one value.
pub(crate) fn read(text: &str) -> Result<Json, JsonError> {
    read_with(text, NameSyntax::Json5)
}

/// Parses the JSON of a database file, whose names without quotes may contain `+`, `-` and `.`: `{+id:"x"}`.
pub(crate) fn read_database(text: &str) -> Result<Json, JsonError> {
    read_with(text, NameSyntax::Database)
}

fn read_with(text: &str, names: NameSyntax) -> Result<Json, JsonError> {
    let mut reader = JsonParser { text, at: 0, names };
    let value = reader.value(0)?;
    reader.blanks()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.error("unexpected text after the end of the value")),
    }
}

/// The characters of names without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameSyntax {
    Json5,
    /// A word of a database file.
    Database,
}

struct JsonParser<'a> {
    text: &'a str,
    at: usize,
    names: NameSyntax,
}

impl<'a> JsonParser<'a> {
    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn takes(&mut self, expected: char) -> bool {
        let is_there = self.peek() == Some(expected);
        if is_there {
            self.at += expected.len_utf8();
        }
        is_there
    }

    /// Skips blanks and comments.
    fn blanks(&mut self) -> Result<(), JsonError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let n_bytes = match (trimmed.strip_prefix("//"), trimmed.strip_prefix("/*")) {
                (Some(line), _) => line.find('\n').unwrap_or(line.len()) + 2,
                (_, Some(block)) => block.find("*/").ok_or_else(|| self.error("this comment is not closed"))? + 4,
                _ => return Ok(()),
            };
            self.at += n_bytes;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        if depth > JSON_DEPTH_MAX {
            return Err(self.error("brackets are nested too deeply"));
        }
        self.blanks()?;
        match self.peek() {
            Some('{') => self.map(depth),
            Some('[') => self.list(depth),
            Some('"' | '\'') => self.text().map(Json::Text),
            Some(_) => self.word(),
            None => Err(self.error("a value is missing")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.next();
        let mut entries = Vec::new();
        loop {
            self.blanks()?;
            if self.takes('}') {
                return Ok(Json::Map(entries));
            }
            let at = self.at;
            let name = match self.peek() {
                Some('"' | '\'') => self.text()?,
                _ => self.name()?,
            };
            self.blanks()?;
            if !self.takes(':') {
                return Err(self.error("expected ':'"));
            }
            let value = self.value(depth + 1)?;
            entries.push(JsonMember { name, at, value });
            self.blanks()?;
            if !self.takes(',') && self.peek() != Some('}') {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.next();
        let mut elements = Vec::new();
        loop {
            self.blanks()?;
            if self.takes(']') {
                return Ok(Json::List(elements));
            }
            elements.push(self.value(depth + 1)?);
            self.blanks()?;
            if !self.takes(',') && self.peek() != Some(']') {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    /// A name without quotes.
    fn name(&mut self) -> Result<String, JsonError> {
        let is_word = self.names == NameSyntax::Database;
        let is_part = |character: char| {
            let is_sign = matches!(character, '+' | '-' | '.');
            character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || is_word && is_sign
        };
        let rest = self.rest();
        let n_bytes = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        let name = rest.get(..n_bytes).unwrap_or_default().to_owned();
        if name.is_empty() || !is_word && name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(self.error("expected a name"));
        }
        self.at += n_bytes;
        Ok(name)
    }

    fn text(&mut self) -> Result<String, JsonError> {
        let unclosed = JsonError { at: self.at, what: "this text is not closed" };
        let quote = self.next().ok_or(unclosed)?;
        let mut text = String::new();
        loop {
            match self.next().ok_or(unclosed)? {
                '\\' => text.extend(self.escaped()?),
                character if character == quote => return Ok(text),
                character => text.push(character),
            }
        }
    }

    /// Parses the rest of an escape sequence; `None` for a line continuation.
    fn escaped(&mut self) -> Result<Option<char>, JsonError> {
        Ok(Some(match self.next().ok_or_else(|| self.error("this text is not closed"))? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' => '\0',
            'x' => self.coded(2)?,
            'u' => self.coded(4)?,
            '\n' => return Ok(None),
            character => character,
        }))
    }

    fn coded(&mut self, n_digits: usize) -> Result<char, JsonError> {
        let digits = self.rest().get(..n_digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let character = code.and_then(char::from_u32).ok_or_else(|| self.error("invalid character code"))?;
        self.at += n_digits;
        Ok(character)
    }

    /// Parses a number, `null`, `true` or `false`.
    fn word(&mut self) -> Result<Json, JsonError> {
        let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.' | '_');
        let rest = self.rest();
        let word = rest.get(..rest.find(|character| !is_part(character)).unwrap_or(rest.len())).unwrap_or_default();
        let value = match word {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => number(word).ok_or_else(|| self.error("expected a value"))?,
        };
        self.at += word.len();
        Ok(value)
    }
}

/// Parses a JSON5 number: also hexadecimal, with a sign or a leading or trailing point, `Infinity` and `NaN`.
fn number(word: &str) -> Option<Json> {
    let (is_negative, unsigned) = match word.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let has_leading_zero =
        unsigned.strip_prefix('0').is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    if unsigned.starts_with(['+', '-']) || has_leading_zero {
        return None;
    }
    let hexadecimal = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    if let Some(digits) = hexadecimal {
        // `from_str_radix` would also accept a sign here.
        digits.starts_with(|first: char| first.is_ascii_hexdigit()).then_some(())?;
        let whole = i64::from_str_radix(digits, 16).ok()?;
        return Some(Json::Whole(if is_negative { -whole } else { whole }));
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{}{unsigned}", if is_negative { "-" } else { "" }).parse().ok().map(Json::Whole);
    }
    let real = match unsigned {
        "Infinity" => f64::INFINITY,
        "NaN" => f64::NAN,
        // Rust's `parse` accepts more words than JSON5, such as `inf`.
        digits if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {
            digits.parse().ok().filter(|real: &f64| real.is_finite())?
        }
        _ => return None,
    };
    Some(Json::Real(if is_negative { -real } else { real }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relaxed_json_syntax_is_accepted() {
        let plain = read(r#"{"a":[1,-2.5,true,null],"b":"x\u0041"}"#).unwrap();
        let loose = read("{ a : [+1, -2.5, true, null,], /* both */ 'b': 'x\\x41', } // end").unwrap();

        let (Json::Map(plain), Json::Map(loose)) = (plain, loose) else { panic!("no maps") };
        let values =
            |entries: Vec<JsonMember>| entries.into_iter().map(|entry| (entry.name, entry.value)).collect::<Vec<_>>();
        assert_eq!(values(plain), values(loose));
        assert_eq!(read("-0x10"), Ok(Json::Whole(-16)));
        assert!(read("-0x-8000000000000000").is_err());
        assert!(["010", "-007.5", "1e400", "99999999999999999999", "nan"].iter().all(|text| read(text).is_err()));
        assert_eq!(read(".5"), Ok(Json::Real(0.5)));
        assert_eq!(read("-Infinity"), Ok(Json::Real(f64::NEG_INFINITY)));
        assert!(matches!(read("NaN"), Ok(Json::Real(number)) if number.is_nan()));
    }

    #[test]
    fn a_name_of_a_database_file_may_contain_signs() {
        let Ok(Json::Map(members)) = read_database("{+id:1,a.b:2,-c:3}") else { panic!("no map") };

        assert_eq!(
            members.iter().map(|member| (member.name.as_str(), member.at)).collect::<Vec<_>>(),
            [("+id", 1), ("a.b", 7), ("-c", 13)]
        );
        assert_eq!(read("{+id:1}").map_err(|error| error.what), Err("expected a name"));
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        let error = |text| read(text).unwrap_err();

        assert_eq!(error(r#"{"a" 1}"#), JsonError { at: 5, what: "expected ':'" });
        assert_eq!(error("[1 2]"), JsonError { at: 3, what: "expected ',' or ']'" });
        assert_eq!(error("{a:1}x").at, 5);
        assert_eq!(error("{a:").what, "a value is missing");
        assert_eq!(error("'abc").at, 0);
        assert_eq!(error("inf").what, "expected a value");
        assert_eq!(error("/* x").what, "this comment is not closed");
    }

    #[test]
    fn deeply_nested_json_is_rejected_at_the_depth_limit() {
        let error = read(&"[".repeat(100_000)).unwrap_err();

        assert_eq!(error, JsonError { at: JSON_DEPTH_MAX + 1, what: "brackets are nested too deeply" });
    }
}
