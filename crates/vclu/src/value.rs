//! Values that leave Lua, and how they are printed.

use std::cmp::Ordering;
use std::fmt::Write;

mod parse;

pub(crate) use parse::{TextForm, parse_reply, parse_table};

/// A value of a script, a feature or a user variable, outside Lua.
///
/// ```
/// use fodo_vclu::{LuaValue, NumberFormat};
///
/// let values = [LuaValue::from(27.0), LuaValue::Nil, LuaValue::from("2023-12-05"), LuaValue::from(0.5)];
/// assert_eq!(LuaValue::list(values.clone()).to_text(NumberFormat::Full), r#"{27,nil,"2023-12-05",0.5}"#);
/// assert_eq!(LuaValue::list(values).to_text(NumberFormat::TwoDecimals), r#"{27,nil,"2023-12-05",0.50}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LuaValue {
    /// No value: also what a CLU answers for every error.
    #[default]
    Nil,
    /// `true` or `false`.
    Boolean(bool),
    /// A number; Lua 5.2 has no other kind.
    Number(f64),
    /// A text. Invalid UTF-8 has been replaced.
    Text(String),
    /// An object of the CLU, by name.
    Object(String),
    /// Keys and values, in the order of [`LuaValue::to_text`].
    Table(Vec<(LuaValue, LuaValue)>),
    /// A value that exists only inside Lua, such as a function; the name of its type.
    Opaque(&'static str),
}

/// How numbers that are not integers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberFormat {
    /// With all digits that distinguish the number.
    #[default]
    Full,
    /// With two decimals, as devices print them.
    TwoDecimals,
}

impl LuaValue {
    /// A table with the keys 1, 2, 3 and so on.
    pub fn list(values: impl IntoIterator<Item = LuaValue>) -> LuaValue {
        let numbered = values.into_iter().enumerate();
        LuaValue::Table(numbered.map(|(index, value)| (LuaValue::Number(index as f64 + 1.0), value)).collect())
    }

    /// The number; booleans are 0 and 1, texts are parsed.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            LuaValue::Number(number) => Some(*number),
            LuaValue::Boolean(is_on) => Some(f64::from(u8::from(*is_on))),
            LuaValue::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// The text of a CLU's reply: texts and numbers without quotes, tables as valid Lua in a fixed order.
    pub fn to_text(&self, format: NumberFormat) -> String {
        match self {
            LuaValue::Text(text) | LuaValue::Object(text) => text.clone(),
            LuaValue::Number(number) if !number.is_finite() => non_finite(*number).to_string(),
            LuaValue::Opaque(name) => (*name).to_string(),
            value => {
                let mut text = String::new();
                write_value(value, format, &mut text);
                text
            }
        }
    }

    /// About how many bytes the value takes.
    pub(crate) fn n_bytes(&self) -> usize {
        match self {
            LuaValue::Text(text) | LuaValue::Object(text) => text.len(),
            LuaValue::Table(entries) => entries.iter().map(|(key, value)| 1 + key.n_bytes() + value.n_bytes()).sum(),
            _ => 8,
        }
    }

    /// Sorts the entries of a table: positive integers in ascending order, other numbers, texts, then the rest.
    pub(crate) fn sort_entries(entries: &mut [(LuaValue, LuaValue)]) {
        entries.sort_by(|(left, _), (right, _)| compare_keys(left, right));
    }
}

impl From<f64> for LuaValue {
    fn from(number: f64) -> LuaValue {
        LuaValue::Number(number)
    }
}

impl From<bool> for LuaValue {
    fn from(is_on: bool) -> LuaValue {
        LuaValue::Boolean(is_on)
    }
}

impl From<&str> for LuaValue {
    fn from(text: &str) -> LuaValue {
        LuaValue::Text(text.to_string())
    }
}

impl From<String> for LuaValue {
    fn from(text: String) -> LuaValue {
        LuaValue::Text(text)
    }
}

fn non_finite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "nan",
    }
}

fn compare_keys(left: &LuaValue, right: &LuaValue) -> Ordering {
    let rank = |key: &LuaValue| match key {
        LuaValue::Number(_) => 0,
        LuaValue::Text(_) => 1,
        LuaValue::Boolean(_) => 2,
        LuaValue::Object(_) => 3,
        _ => 4,
    };
    match (left, right) {
        (LuaValue::Number(left), LuaValue::Number(right)) => left.total_cmp(right),
        (LuaValue::Text(left), LuaValue::Text(right)) | (LuaValue::Object(left), LuaValue::Object(right)) => {
            left.cmp(right)
        }
        (LuaValue::Boolean(left), LuaValue::Boolean(right)) => left.cmp(right),
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Writes a value as an expression of Lua.
fn write_value(value: &LuaValue, format: NumberFormat, text: &mut String) {
    match value {
        LuaValue::Nil => text.push_str("nil"),
        LuaValue::Boolean(is_on) => text.push_str(if *is_on { "true" } else { "false" }),
        LuaValue::Number(number) => write_number(*number, format, text),
        LuaValue::Text(inner) => write_quoted(inner, text),
        LuaValue::Object(name) => text.push_str(name),
        LuaValue::Opaque(name) => write_quoted(name, text),
        LuaValue::Table(entries) => write_table(entries, format, text),
    }
}

fn write_number(number: f64, format: NumberFormat, text: &mut String) {
    let written = match number {
        f64::INFINITY => write!(text, "1/0"),
        f64::NEG_INFINITY => write!(text, "-1/0"),
        number if number.is_nan() => write!(text, "0/0"),
        // Adding zero removes the sign of a negative zero.
        number if number == number.trunc() && number.abs() < 1e15 => write!(text, "{:.0}", number + 0.0),
        number if format == NumberFormat::TwoDecimals && number.abs() < 1e15 => write!(text, "{number:.2}"),
        number if number.abs() < 1e-5 || number.abs() >= 1e15 => write!(text, "{number:e}"),
        number => write!(text, "{number}"),
    };
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

fn write_quoted(inner: &str, text: &mut String) {
    text.push('"');
    for character in inner.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                text.push_str(&format!("\\{:03}", control as u32));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

/// Writes the entries with keys 1 to n as a list, with `nil` for the missing ones if they are few; all others with keys.
fn write_table(entries: &[(LuaValue, LuaValue)], format: NumberFormat, text: &mut String) {
    let index_of = |key: &LuaValue| match key {
        LuaValue::Number(number) if *number >= 1.0 && *number == number.trunc() => Some(*number as usize),
        _ => None,
    };
    let n_indexed = entries.iter().filter(|(key, _)| index_of(key).is_some()).count();
    let mut next = 1;
    let mut separator = "";
    text.push('{');
    for (key, value) in entries {
        let index = index_of(key).filter(|index| *index <= 2 * n_indexed);
        if let Some(index) = index {
            while next < index {
                text.push_str(separator);
                text.push_str("nil");
                separator = ",";
                next += 1;
            }
            next += 1;
        }
        text.push_str(separator);
        separator = ",";
        match key {
            _ if index.is_some() => {}
            LuaValue::Text(name) if is_identifier(name) => {
                text.push_str(name);
                text.push('=');
            }
            key => {
                text.push('[');
                write_value(key, NumberFormat::Full, text);
                text.push_str("]=");
            }
        }
        write_value(value, format, text);
    }
    text.push('}');
}

/// Whether a text is a name in Lua, so that it needs no brackets as a key.
pub(crate) fn is_identifier(text: &str) -> bool {
    const KEYWORDS: [&str; 22] = [
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil",
        "not", "or", "repeat", "return", "then", "true", "until", "while",
    ];
    let starts = text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    starts && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !KEYWORDS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(value: impl Into<LuaValue>) -> String {
        value.into().to_text(NumberFormat::Full)
    }

    #[test]
    fn numbers_are_printed_with_all_their_digits_and_integers_without_decimals() {
        assert_eq!(full(27.0), "27");
        assert_eq!(full(-0.0), "0");
        assert_eq!(full(1234567.891), "1234567.891");
        assert_eq!(full(0.1 + 0.2), "0.30000000000000004");
        assert_eq!(full(1e100), "1e100");
        assert_eq!(full(1.5e-7), "1.5e-7");
        assert_eq!(full(f64::INFINITY), "inf");
        assert_eq!(full(f64::NAN), "nan");
        assert_eq!(LuaValue::Number(24.094).to_text(NumberFormat::TwoDecimals), "24.09");
        assert_eq!(LuaValue::Number(27.0).to_text(NumberFormat::TwoDecimals), "27");
    }

    #[test]
    fn a_text_is_quoted_only_inside_a_table() {
        let text = LuaValue::from("call \"a\\b\"\n\u{1}");

        assert_eq!(text.to_text(NumberFormat::Full), "call \"a\\b\"\n\u{1}");
        assert_eq!(LuaValue::list([text]).to_text(NumberFormat::Full), r#"{"call \"a\\b\"\n\001"}"#);
    }

    #[test]
    fn a_list_has_the_form_of_devices() {
        let values =
            [27.0.into(), LuaValue::Nil, 1.0.into(), true.into(), "2023-12-05".into(), 24.09.into(), 0.5.into()];

        let text = LuaValue::list(values).to_text(NumberFormat::TwoDecimals);

        assert_eq!(text, r#"{27,nil,1,true,"2023-12-05",24.09,0.50}"#);
    }

    #[test]
    fn a_table_with_keys_is_printed_in_order_and_with_brackets_where_lua_needs_them() {
        let mut entries = vec![
            ("end".into(), 1.0.into()),
            (100.0.into(), 2.0.into()),
            ("a".into(), f64::INFINITY.into()),
            (2.0.into(), "second".into()),
            (true.into(), LuaValue::Opaque("function")),
        ];
        LuaValue::sort_entries(&mut entries);

        let text = LuaValue::Table(entries).to_text(NumberFormat::Full);

        assert_eq!(text, r#"{nil,"second",[100]=2,a=1/0,["end"]=1,[true]="function"}"#);
    }
}
