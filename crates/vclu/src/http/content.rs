//! Bodies, queries and headers as values of scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Headers;
use crate::json::{from_json_text, payload_of, to_json};
use crate::limit::TABLE_VALUES_MAX;
use crate::value::{LuaValue, NumberFormat};

/// The kind of a body: the value of the features for types of requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// The header `Content-Type` of a received message decides; a sent body is a text.
    #[default]
    None,
    Text,
    Json,
    Xml,
    Form,
    Other,
}

impl BodyKind {
    /// The choices of the features.
    pub const CHOICES: &[(f64, &str)] =
        &[(0.0, "None"), (1.0, "Text"), (2.0, "JSON"), (3.0, "XML"), (4.0, "FormData"), (5.0, "Other")];

    pub fn from_number(number: f64) -> BodyKind {
        match number as u8 {
            1 => BodyKind::Text,
            2 => BodyKind::Json,
            3 => BodyKind::Xml,
            4 => BodyKind::Form,
            5 => BodyKind::Other,
            _ => BodyKind::None,
        }
    }

    pub fn number(self) -> f64 {
        f64::from(self as u8)
    }

    /// The kind that `Content-Type` names.
    pub fn from_headers(headers: &Headers) -> BodyKind {
        let named = headers.iter().find(|(name, _)| name == "content-type");
        let Some((_, value)) = named else { return BodyKind::None };
        let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "application/json" => BodyKind::Json,
            "application/xml" | "text/xml" => BodyKind::Xml,
            "application/x-www-form-urlencoded" => BodyKind::Form,
            other if other.ends_with("+json") => BodyKind::Json,
            other if other.ends_with("+xml") => BodyKind::Xml,
            other if other.starts_with("text/") => BodyKind::Text,
            _ => BodyKind::Other,
        }
    }

    /// `Content-Type` of a sent body; `None` if the headers of the script decide.
    fn media_type(self) -> Option<&'static str> {
        match self {
            BodyKind::Text => Some("text/plain; charset=utf-8"),
            BodyKind::Json => Some("application/json"),
            BodyKind::Xml => Some("application/xml"),
            BodyKind::Form => Some("application/x-www-form-urlencoded"),
            BodyKind::None | BodyKind::Other => None,
        }
    }

    /// A received body: a table for JSON and forms, otherwise a text.
    pub fn parse(self, body: &[u8]) -> LuaValue {
        let text = String::from_utf8_lossy(body);
        match self {
            _ if text.is_empty() => LuaValue::Nil,
            BodyKind::Json => from_json_text(&text),
            BodyKind::Form => decode_query(&text),
            _ => text.as_ref().into(),
        }
    }

    /// The bytes of a body. Adds `Content-Type` to headers that have none.
    pub fn encode(self, body: &LuaValue, headers: &mut Headers) -> Vec<u8> {
        let has_type = headers.iter().any(|(name, _)| name == "content-type");
        if let Some(media_type) = self.media_type().filter(|_| !has_type && *body != LuaValue::Nil) {
            headers.push(("content-type".into(), media_type.into()));
        }
        match (self, body) {
            (BodyKind::Json, LuaValue::Table(_)) => to_json(body).to_string(),
            (BodyKind::Form, LuaValue::Table(_)) => encode_query(body),
            _ => payload_of(body),
        }
        .into_bytes()
    }
}

/// Headers that this program writes itself, because they must agree with the body and the connection. A script may pass on
/// those of another message.
const OWN_HEADERS: [&str; 5] = ["connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"];

/// The headers of a table, or of a text with one header in each line, without [`OWN_HEADERS`]. Fails with a text that names
/// the wrong one.
pub(crate) fn headers_of(value: &LuaValue) -> Result<Headers, String> {
    let pairs: Headers = match value {
        LuaValue::Table(entries) => entries
            .iter()
            .map(|(name, value)| (name.to_text(NumberFormat::Full), value.to_text(NumberFormat::Full)))
            .collect(),
        LuaValue::Text(text) => text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| line.split_once(':').map_or((line, ""), |(name, value)| (name.trim(), value.trim())))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        _ => Headers::new(),
    };
    pairs
        .into_iter()
        .map(|(name, value)| {
            let is_valid = hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
                && hyper::header::HeaderValue::from_str(&value).is_ok();
            if is_valid { Ok((name.to_ascii_lowercase(), value)) } else { Err(format!("invalid header \"{name}\"")) }
        })
        .filter(|header| !header.as_ref().is_ok_and(|(name, _)| OWN_HEADERS.contains(&name.as_str())))
        .collect()
}

/// Received headers as a table; the values of a repeated header are joined by commas.
pub(crate) fn header_table(headers: &Headers) -> LuaValue {
    let mut entries: Vec<(LuaValue, LuaValue)> = Vec::new();
    for (name, value) in headers {
        let name = LuaValue::from(name.as_str());
        match entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, LuaValue::Text(known))) => {
                known.push_str(", ");
                known.push_str(value);
            }
            _ => entries.push((name, value.as_str().into())),
        }
    }
    LuaValue::sort_entries(&mut entries);
    LuaValue::Table(entries)
}

/// A query or a form as a table. The last of repeated names counts. With too many values for a table, it stays a text.
pub(crate) fn decode_query(text: &str) -> LuaValue {
    let mut values = BTreeMap::new();
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        values.insert(decode_percent(name), decode_percent(value));
    }
    if values.len() > TABLE_VALUES_MAX {
        return text.into();
    }
    let entries = values.into_iter().map(|(name, value)| (name.into(), value.into()));
    let mut entries: Vec<(LuaValue, LuaValue)> = entries.collect();
    LuaValue::sort_entries(&mut entries);
    LuaValue::Table(entries)
}

/// A table as a query or a form; a text stays as it is.
pub(crate) fn encode_query(value: &LuaValue) -> String {
    match value {
        LuaValue::Table(entries) => {
            let pairs = entries.iter().map(|(name, value)| {
                format!("{}={}", encode_percent(&payload_of(name)), encode_percent(&payload_of(value)))
            });
            pairs.collect::<Vec<String>>().join("&")
        }
        value => payload_of(value).trim_start_matches('?').to_string(),
    }
}

fn decode_percent(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::new();
    while let [first, after @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                decoded.push((16 * high + low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn encode_percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let written = write!(encoded, "%{byte:02X}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_encoded() {
        let table = decode_query("room=ma%C5%82y+pok%C3%B3j&on=1&on=2&empty=&flag&bad=%zz%");

        let text = table.to_text(NumberFormat::Full);
        assert_eq!(text, r#"{bad="%zz%",empty="",flag="",on="2",room="mały pokój"}"#);
        assert_eq!(encode_query(&decode_query("a=1%262&b=x+y")), "a=1%262&b=x%20y");
        assert_eq!(encode_query(&"?raw=1".into()), "raw=1");
    }

    /// A client may send a form of 64 kB.
    #[test]
    fn a_form_with_too_many_values_for_a_table_stays_a_text() {
        let names = |n_names: usize| (0..n_names).map(|number| format!("{number:x}")).collect::<Vec<_>>().join("&");
        let (most, too_many) = (names(TABLE_VALUES_MAX), names(TABLE_VALUES_MAX + 1));

        assert!(matches!(decode_query(&most), LuaValue::Table(entries) if entries.len() == TABLE_VALUES_MAX));
        assert_eq!(BodyKind::Form.parse(too_many.as_bytes()), too_many.as_str().into());
    }

    /// A script that passes a response on has its headers, but may have changed its body.
    #[test]
    fn the_length_and_the_encoding_of_a_message_are_not_those_of_a_script() {
        let passed_on = "Content-Length: 5\nTransfer-Encoding: chunked\nConnection: close\nETag: 7".into();

        assert_eq!(headers_of(&passed_on).unwrap(), [("etag".into(), "7".into())]);
    }

    #[test]
    fn the_header_content_type_decides_how_a_body_is_parsed() {
        let kind = |value: &str| BodyKind::from_headers(&vec![("content-type".into(), value.into())]);

        assert_eq!(kind("application/json; charset=utf-8"), BodyKind::Json);
        assert_eq!(kind("application/problem+json"), BodyKind::Json);
        assert_eq!(kind("Text/HTML"), BodyKind::Text);
        assert_eq!(kind("application/x-www-form-urlencoded"), BodyKind::Form);
        assert_eq!(kind("image/png"), BodyKind::Other);
        assert_eq!(BodyKind::Json.parse(b"{\"a\":[1]}").to_text(NumberFormat::Full), "{a={1}}");
        assert_eq!(BodyKind::Form.parse(b"a=1").to_text(NumberFormat::Full), "{a=\"1\"}");
        assert_eq!(BodyKind::Text.parse(b""), LuaValue::Nil);
    }

    #[test]
    fn headers_are_a_table_or_lines_and_are_checked() {
        let lines = headers_of(&"Accept: text/plain\nX-Room: 1\n".into()).unwrap();
        assert_eq!(lines, [("accept".into(), "text/plain".into()), ("x-room".into(), "1".into())]);
        assert!(headers_of(&"bad name: 1".into()).unwrap_err().contains("bad name"));

        let injected = LuaValue::Table(vec![("x".into(), "1\r\ny: 2".into())]);
        assert!(headers_of(&injected).is_err());
        let repeated = vec![("a".into(), "1".into()), ("a".into(), "2".into())];
        assert_eq!(header_table(&repeated).to_text(NumberFormat::Full), r#"{a="1, 2"}"#);
    }
}
