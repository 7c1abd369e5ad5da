//! Values of a CLU as text, in replies and in Lua.
//!
//! A reply contains the text of a value, and a text without quotes. Reports of subscriptions contain lists, in which
//! CLUs write texts with quotes and no blanks, `{27,nil,"2023-12-05",0.50}`, and OpenGr8ton's virtual CLU writes texts
//! without quotes and a blank after each comma, `{22, kitchen}`. Both are read; the first is written.

use fodo_data::{Scalar, Text};

/// The value `nil`, which a CLU also returns when an expression has failed.
pub const NIL: &[u8] = b"nil";

/// The value with which the virtual CLU refuses an expression. Unlike `resp:ERROR`, a value contains the session, so that the
/// client knows which of its requests was refused.
pub const REFUSED: &[u8] = b"error: the CLU refused the request";

/// A report of a subscription, `clientReport:<client id>:{...}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReport<'a> {
    /// The number that the client chose for its registration.
    pub client_id: u32,
    /// The list of values.
    pub list: &'a [u8],
}

const REPORT: &[u8] = b"clientReport:";
const VALUES: &[u8] = b"values:";

impl<'a> ClientReport<'a> {
    /// Parses the value of a reply; `None` if it is not a report.
    pub fn parse(value: &'a [u8]) -> Option<ClientReport<'a>> {
        let rest = value.strip_prefix(REPORT)?;
        let end = rest.iter().position(|byte| *byte == b':')?;
        let client_id = std::str::from_utf8(&rest[..end]).ok()?.trim().parse().ok()?;
        Some(ClientReport { client_id, list: &rest[end + 1..] })
    }

    /// Appends the report to `out`.
    pub fn write(client_id: u32, values: &[Option<Scalar>], out: &mut Vec<u8>) {
        out.extend_from_slice(REPORT);
        out.extend_from_slice(client_id.to_string().as_bytes());
        out.push(b':');
        write_list(values, out);
    }
}

/// The list in the reply to `SYSTEM:fetchValues`, `values:{...}`; `None` if it is another value.
pub fn fetched_list(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(VALUES)
}

/// Appends the reply to `SYSTEM:fetchValues` to `out`.
pub fn write_fetched(values: &[Option<Scalar>], out: &mut Vec<u8>) {
    out.extend_from_slice(VALUES);
    write_list(values, out);
}

/// Parses the text of one value: a number, a boolean or a text; `None` for `nil`.
///
/// Numbers are always [`Scalar::F64`], as in Lua 5.2. A text like `007` is no number, because Lua does not print
/// numbers with leading zeros.
///
/// ```
/// use fodo_clu::value::parse_value;
/// use fodo_data::Scalar;
///
/// assert_eq!(parse_value(b"24.09"), Some(Scalar::F64(24.09)));
/// assert_eq!(parse_value(b"nil"), None);
/// assert_eq!(parse_value(b"007"), Some(Scalar::Text("007".into())));
/// ```
pub fn parse_value(text: &[u8]) -> Option<Scalar> {
    Some(match text {
        NIL => return None,
        b"true" => Scalar::Bool(true),
        b"false" => Scalar::Bool(false),
        b"nan" | b"-nan" | b"NaN" => Scalar::F64(f64::NAN),
        b"inf" | b"Infinity" => Scalar::F64(f64::INFINITY),
        b"-inf" | b"-Infinity" => Scalar::F64(f64::NEG_INFINITY),
        text => number(text).map_or_else(|| Scalar::Text(Text::from_bytes(text)), Scalar::F64),
    })
}

/// A number as Lua prints it.
fn number(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let starts_as_number = match digits {
        [b'0', b'0'..=b'9', ..] => false,
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    };
    let is_number_byte = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if !starts_as_number || !digits.iter().all(is_number_byte) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a list of values with either rule for quotes; `None` if it is no list. A list in the list becomes a text.
///
/// ```
/// use fodo_clu::value::parse_list;
/// use fodo_data::Scalar;
///
/// let real = parse_list(b"{27,nil,\"a, b\"}").unwrap_or_default();
/// assert_eq!(real, [Some(Scalar::F64(27.0)), None, Some(Scalar::Text("a, b".into()))]);
/// assert_eq!(parse_list(b"{27, nil, kitchen}").map(|values| values.len()), Some(3));
/// assert_eq!(parse_list(b"27"), None);
/// ```
pub fn parse_list(text: &[u8]) -> Option<Vec<Option<Scalar>>> {
    let mut rest = text.trim_ascii().strip_prefix(b"{")?.strip_suffix(b"}")?.trim_ascii();
    let mut values = Vec::new();
    if rest.is_empty() {
        return Some(values);
    }
    loop {
        let (value, after) = element(rest.trim_ascii_start())?;
        values.push(value);
        match after {
            [] => return Some(values),
            [_, after @ ..] => rest = after,
        }
    }
}

/// The first element of a list, and what follows it: nothing, or a comma and the other elements.
fn element(list: &[u8]) -> Option<(Option<Scalar>, &[u8])> {
    if let Some((text, after)) = quoted(list).filter(|(_, after)| is_end(after)) {
        return Some((Some(Scalar::Text(Text::from_bytes(&text))), after));
    }
    let end = match list.first() {
        Some(b'{') => inner_list_end(list)?,
        _ => list.iter().position(|byte| *byte == b',').unwrap_or(list.len()),
    };
    let (text, after) = list.split_at(end);
    let after = after.trim_ascii_start();
    is_end(after).then(|| (parse_value(text.trim_ascii_end()), after))
}

fn is_end(after: &[u8]) -> bool {
    matches!(after, [] | [b',', ..])
}

/// A text with quotes at the start of a list, and what follows it without blanks; `None` if there is none.
///
/// `\"` and `\\` are escapes; a `\` before another character is a `\`.
fn quoted(list: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = list.strip_prefix(b"\"")?;
    let mut text = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => return Some((text, after.trim_ascii_start())),
            [b'\\', byte @ (b'"' | b'\\'), after @ ..] | [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// The end of a list that is an element of a list; `None` if it is not closed.
fn inner_list_end(list: &[u8]) -> Option<usize> {
    let (mut depth, mut is_quoted, mut at) = (0_usize, false, 0);
    while let Some(byte) = list.get(at) {
        match byte {
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b'{' if !is_quoted => depth += 1,
            b'}' if !is_quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Appends a list to `out` as CLUs write it, but with all digits.
pub fn write_list(values: &[Option<Scalar>], out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match value {
            Some(Scalar::Text(text)) => write_quoted(text.as_bytes(), out),
            value => write_value(value.as_ref(), out),
        }
    }
    out.push(b'}');
}

fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// Appends the text of a value to `out` as in a reply: texts without quotes, whole numbers without a point.
pub fn write_value(value: Option<&Scalar>, out: &mut Vec<u8>) {
    match value {
        None => out.extend_from_slice(NIL),
        Some(Scalar::F64(number)) => out.extend_from_slice(number_text(*number).as_bytes()),
        Some(Scalar::F32(number)) => out.extend_from_slice(number.to_string().to_lowercase().as_bytes()),
        Some(scalar) => out.extend_from_slice(scalar.to_text(None).as_bytes()),
    }
}

/// From this number on Rust would print more digits than a number has.
const EXPONENT_FROM: f64 = 1e15;

fn number_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_string()
    } else if number.is_finite() && (number.abs() >= EXPONENT_FROM || (number != 0.0 && number.abs() < 1e-5)) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// Appends a value to `out` as an expression of Lua.
///
/// ```
/// use fodo_clu::value::write_expression;
/// use fodo_data::Scalar;
///
/// let mut script = Vec::new();
/// write_expression(&Scalar::Text("say \"on\"".into()), &mut script);
/// assert_eq!(script, br#""say \"on\"""#);
/// ```
pub fn write_expression(value: &Scalar, out: &mut Vec<u8>) {
    match value {
        Scalar::Text(text) => write_lua_text(text.as_bytes(), out),
        Scalar::F64(number) if number.is_nan() => out.extend_from_slice(b"(0/0)"),
        Scalar::F64(number) if number.is_infinite() => {
            out.extend_from_slice(if *number > 0.0 { b"(1/0)" } else { b"(-1/0)" });
        }
        Scalar::F32(number) => write_expression(&Scalar::F64(f64::from(*number)), out),
        value => write_value(Some(value), out),
    }
}

/// Appends a text with quotes to `out`, so that a Lua compiler reads the same bytes and the command has no line ends.
pub fn write_lua_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..=31 | 127 => out.extend_from_slice(format!("\\{byte:03}").as_bytes()),
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64(number: f64) -> Option<Scalar> {
        Some(Scalar::F64(number))
    }

    fn text(text: &str) -> Option<Scalar> {
        Some(Scalar::Text(text.into()))
    }

    #[test]
    fn the_report_of_a_real_clu_has_its_values() {
        let value = b"clientReport:49064:{27,nil,1,true,\"2023-12-05\",\"00:20:47\",24.09,0.50}";

        let report = ClientReport::parse(value).expect("a report");

        assert_eq!(report.client_id, 49064);
        let expected =
            vec![f64(27.0), None, f64(1.0), Some(Scalar::Bool(true)), text("2023-12-05"), text("00:20:47"), f64(24.09)];
        assert_eq!(parse_list(report.list).expect("a list")[..7], expected);
    }

    #[test]
    fn the_list_of_the_virtual_clu_has_texts_without_quotes() {
        assert_eq!(parse_list(b"{22, homeassistant}"), Some(vec![f64(22.0), text("homeassistant")]));
        assert_eq!(parse_list(b"{, x}"), Some(vec![text(""), text("x")]));
        assert_eq!(parse_list(b"{1.0E20, inf, nil}"), Some(vec![f64(1e20), f64(f64::INFINITY), None]));
    }

    #[test]
    fn commas_and_braces_in_quotes_and_inner_lists_belong_to_their_element() {
        assert_eq!(parse_list(br#"{"a,}{",2}"#), Some(vec![text("a,}{"), f64(2.0)]));
        assert_eq!(parse_list(br#"{{a=1,b="}"},2}"#), Some(vec![text(r#"{a=1,b="}"}"#), f64(2.0)]));
        assert_eq!(parse_list(br#"{"a:\OM.LUA","\"\\"}"#), Some(vec![text(r"a:\OM.LUA"), text(r#""\"#)]));
    }

    #[test]
    fn what_is_no_list_is_rejected() {
        for invalid in ["", "{", "}", "27", "{1", "nil", "{{1}", "{{1}x}"] {
            assert_eq!(parse_list(invalid.as_bytes()), None, "{invalid}");
        }
        assert_eq!(parse_list(b"{ }"), Some(vec![]));
    }

    #[test]
    fn only_what_lua_prints_as_a_number_is_one() {
        for (printed, number) in [("0", 0.0), ("-3", -3.0), ("0.5", 0.5), ("1e+20", 1e20), ("-1.5E-7", -1.5e-7)] {
            assert_eq!(parse_value(printed.as_bytes()), f64(number), "{printed}");
        }
        for other in ["", "-", "007", "+1", ".5", "0x10", "1e", "0d0a1b2c", "1 2", "infinity", "1_000"] {
            assert_eq!(parse_value(other.as_bytes()), text(other), "{other}");
        }
        assert!(matches!(parse_value(b"nan"), Some(Scalar::F64(number)) if number.is_nan()));
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let mut random = fastrand::Rng::with_seed(19);
        for _ in 0..2000 {
            let values: Vec<Option<Scalar>> = (0..random.usize(0..6))
                .map(|_| match random.u8(0..5) {
                    0 => None,
                    1 => Some(Scalar::Bool(random.bool())),
                    2 => f64(f64::from(random.i32(..))),
                    3 => f64(f64::from_bits(random.u64(..))).filter(|value| value.to_f64().is_ok_and(f64::is_finite)),
                    _ => {
                        let characters = ['a', '"', '\\', ',', '{', '}', ' ', 'é', '\n'];
                        text(&(0..random.usize(0..8)).map(|_| *random.choice(&characters).unwrap()).collect::<String>())
                    }
                })
                .collect();
            let mut written = Vec::new();
            write_list(&values, &mut written);

            assert_eq!(parse_list(&written), Some(values), "{}", String::from_utf8_lossy(&written));
        }
    }

    #[test]
    fn parsers_accept_any_bytes() {
        let mut random = fastrand::Rng::with_seed(20);
        let bytes = b"{},\"\\ nil0123.eE-b=\n\xff";
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..random.usize(0..24)).map(|_| bytes[random.usize(..bytes.len())]).collect();
            if let Some(values) = parse_list(&[b"{", &text[..], b"}"].concat()) {
                let mut written = Vec::new();
                write_list(&values, &mut written);
                assert_eq!(parse_list(&written), Some(values));
            }
            let _ = ClientReport::parse(&text);
        }
    }

    #[test]
    fn numbers_are_written_as_expressions_and_values() {
        let written = |number: f64| {
            let (mut value, mut expression) = (Vec::new(), Vec::new());
            write_value(Some(&Scalar::F64(number)), &mut value);
            write_expression(&Scalar::F64(number), &mut expression);
            (String::from_utf8(value).unwrap(), String::from_utf8(expression).unwrap())
        };
        assert_eq!(written(5.0), ("5".into(), "5".into()));
        assert_eq!(written(-0.25), ("-0.25".into(), "-0.25".into()));
        assert_eq!(written(1e300), ("1e300".into(), "1e300".into()));
        assert_eq!(written(f64::NEG_INFINITY), ("-inf".into(), "(-1/0)".into()));
        assert_eq!(written(f64::NAN), ("nan".into(), "(0/0)".into()));
    }
}
