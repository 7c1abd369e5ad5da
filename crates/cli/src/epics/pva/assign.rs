//! Assigns texts and JSON of a command line to the fields of a structure.

use std::sync::Arc;

use fodo_net::{Array, Kind, NodeKind, NodeValue, Scalar, Structure, StructureType, Text, Value};
use serde_json::Value as Json;

/// The changed fields with their paths, as a put sends them.
pub fn changed_fields(structure: &Structure) -> Vec<(String, NodeValue)> {
    let kind = structure.kind();
    let leaves = kind.leaves(structure.changed());
    leaves.iter().filter_map(|bit| Some((kind.path(bit), structure.node(bit)?.clone()))).collect()
}

/// Why a text is not a number of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotANumber {
    /// It does not start with a number.
    NoDigits,
    /// A number is followed by something else.
    ExtraCharacters,
    /// The kind cannot represent the number.
    TooLarge,
}

impl NotANumber {
    /// The words of EPICS Base.
    pub const fn words(self) -> &'static str {
        match self {
            NotANumber::NoDigits => "No digits to convert",
            NotANumber::ExtraCharacters => "Extraneous characters",
            NotANumber::TooLarge => "Too large to represent",
        }
    }
}

/// Parses one element, like the functions of EPICS Base: integers may be hexadecimal or octal.
pub fn parsed(kind: Kind, text: &str) -> Result<Scalar, NotANumber> {
    let trimmed = text.trim();
    match kind {
        Kind::Text => return Ok(Scalar::Text(text.into())),
        Kind::Bool => {
            return match trimmed {
                "true" | "1" => Ok(Scalar::Bool(true)),
                "false" | "0" => Ok(Scalar::Bool(false)),
                _ => Err(NotANumber::NoDigits),
            };
        }
        Kind::F32 | Kind::F64 => {
            let number: f64 = trimmed.parse().map_err(|_| failure(trimmed))?;
            let is_too_large = kind == Kind::F32 && number.is_finite() && !(number as f32).is_finite();
            let scalar = if kind == Kind::F32 { Scalar::F32(number as f32) } else { Scalar::F64(number) };
            return if is_too_large { Err(NotANumber::TooLarge) } else { Ok(scalar) };
        }
        _ => {}
    }
    let number = integer(trimmed)?;
    let too_large = |_| NotANumber::TooLarge;
    Ok(match kind {
        Kind::I8 => Scalar::I8(number.try_into().map_err(too_large)?),
        Kind::I16 => Scalar::I16(number.try_into().map_err(too_large)?),
        Kind::I32 => Scalar::I32(number.try_into().map_err(too_large)?),
        Kind::I64 => Scalar::I64(number.try_into().map_err(too_large)?),
        Kind::U8 => Scalar::U8(number.try_into().map_err(too_large)?),
        Kind::U16 => Scalar::U16(number.try_into().map_err(too_large)?),
        Kind::Enum => Scalar::Enum(number.try_into().map_err(too_large)?),
        Kind::U32 => Scalar::U32(number.try_into().map_err(too_large)?),
        _ => Scalar::U64(number.try_into().map_err(too_large)?),
    })
}

fn failure(text: &str) -> NotANumber {
    let digits = text.trim_start_matches(['+', '-', '.']);
    if digits.starts_with(|letter: char| letter.is_ascii_digit()) {
        NotANumber::ExtraCharacters
    } else {
        NotANumber::NoDigits
    }
}

fn integer(text: &str) -> Result<i128, NotANumber> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    if !digits.starts_with(|letter: char| letter.is_digit(radix)) {
        return Err(NotANumber::NoDigits);
    }
    if !digits.chars().all(|letter| letter.is_digit(radix)) {
        return Err(NotANumber::ExtraCharacters);
    }
    let number = i128::from_str_radix(digits, radix).map_err(|_| NotANumber::TooLarge)?;
    Ok(if is_negative { -number } else { number })
}

/// An array of elements of one kind; the error contains the index of the first element that is invalid.
pub fn parsed_array(kind: Kind, texts: &[String]) -> Result<Value, (usize, NotANumber)> {
    let elements = texts.iter().enumerate().map(|(index, text)| parsed(kind, text).map_err(|error| (index, error)));
    Ok(array_of(kind, elements.collect::<Result<Vec<_>, _>>()?))
}

/// The array of these elements, which have this kind.
fn array_of(kind: Kind, elements: Vec<Scalar>) -> Value {
    macro_rules! collect {
        ($($variant:ident)*) => {
            match kind {
                $(Kind::$variant => Value::Array(Array::$variant(Arc::new(
                    elements
                        .into_iter()
                        .filter_map(|element| match element { Scalar::$variant(element) => Some(element), _ => None })
                        .collect(),
                ))),)*
            }
        };
    }
    collect!(Bool I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Text Enum)
}

/// Assigns JSON to a node. An object assigns the members that it names.
pub fn assign_json(structure: &mut Structure, bit: usize, json: &Json) -> Result<(), String> {
    let kind = structure.kind().clone();
    let wrong = |what: &str| {
        let path = kind.path(bit);
        format!("cannot assign {what} to {}", if path.is_empty() { "the structure" } else { &path })
    };
    match (&kind.nodes()[bit].kind, json) {
        (NodeKind::Structure { .. }, Json::Object(members)) => members.iter().try_for_each(|(name, json)| {
            let member = kind.member(bit, name.as_bytes()).ok_or_else(|| format!("there is no field {name}"))?;
            assign_json(structure, member, json)
        }),
        (NodeKind::Scalar(scalar), json) => {
            let text = json_text(json).ok_or_else(|| wrong(json_word(json)))?;
            let element = parsed(*scalar, &text).map_err(|error| error.words().to_owned())?;
            structure.set_value(bit, Value::Scalar(element)).map_err(|error| error.to_string())
        }
        (NodeKind::BoundedText(_), json) => {
            let text = json_text(json).ok_or_else(|| wrong(json_word(json)))?;
            let text = Scalar::Text(Text::from_bytes(text.as_bytes()));
            structure.set_value(bit, Value::Scalar(text)).map_err(|error| error.to_string())
        }
        (NodeKind::Array { kind: element, .. }, Json::Array(elements)) => {
            let texts: Option<Vec<String>> = elements.iter().map(json_text).collect();
            let texts = texts.ok_or_else(|| wrong("nested JSON"))?;
            let value = parsed_array(*element, &texts).map_err(|(index, error)| at_index(index, error))?;
            structure.set_value(bit, value).map_err(|error| error.to_string())
        }
        (NodeKind::StructureArray(element), Json::Array(elements)) => {
            let elements = elements.iter().map(|json| structure_of(element, json)).collect::<Result<Vec<_>, _>>()?;
            structure.set_node(bit, NodeValue::Structures(Arc::new(elements))).map_err(|error| error.to_string())
        }
        (NodeKind::Any, json) => {
            let contents = match json {
                Json::Null => None,
                json => Some(Box::new(structure_of_json(json).ok_or_else(|| wrong(json_word(json)))?)),
            };
            structure.set_node(bit, NodeValue::Any(contents)).map_err(|error| error.to_string())
        }
        (_, json) => Err(wrong(json_word(json))),
    }
}

/// The message for an invalid element of an array.
pub fn at_index(index: usize, error: NotANumber) -> String {
    format!("failed to parse element at index {index}: parseToPOD: {}", error.words())
}

fn structure_of(kind: &Arc<StructureType>, json: &Json) -> Result<Option<Structure>, String> {
    if json.is_null() {
        return Ok(None);
    }
    let mut structure = Structure::new(kind.clone());
    assign_json(&mut structure, 0, json)?;
    Ok(Some(structure))
}

fn json_text(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(is_true) => Some(is_true.to_string()),
        _ => None,
    }
}

const fn json_word(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// A structure, or a single value, with the types that JSON has; `None` for null and for arrays of different types.
pub fn structure_of_json(json: &Json) -> Option<Structure> {
    match json {
        Json::Null => None,
        Json::Bool(is_true) => Some(Structure::single(Value::Scalar(Scalar::Bool(*is_true)))),
        Json::String(text) => Some(Structure::single(text.as_str().into())),
        Json::Number(number) => Some(Structure::single(Value::Scalar(match number.as_i64() {
            Some(number) => Scalar::I64(number),
            None => Scalar::F64(number.as_f64()?),
        }))),
        Json::Array(elements) => {
            let kind = match elements.first() {
                Some(Json::String(_)) => Kind::Text,
                Some(Json::Bool(_)) => Kind::Bool,
                _ if elements.iter().all(Json::is_i64) => Kind::I64,
                _ => Kind::F64,
            };
            let texts: Option<Vec<String>> = elements.iter().map(json_text).collect();
            Some(Structure::single(parsed_array(kind, &texts?).ok()?))
        }
        Json::Object(members) => {
            let mut build = fodo_net::StructureBuilder::new("");
            let contents: Option<Vec<Structure>> = members
                .iter()
                .map(|(name, json)| {
                    let contents = structure_of_json(json)?;
                    build.member(name.as_str(), contents.kind());
                    Some(contents)
                })
                .collect();
            let mut structure = Structure::new(Arc::new(build.finish()));
            let kind = structure.kind().clone();
            for (member, contents) in kind.members(0).zip(contents?) {
                copy(&mut structure, member, &contents);
            }
            Some(structure)
        }
    }
}

/// Copies a whole structure into the node `bit`, which has its type.
pub fn copy(into: &mut Structure, bit: usize, from: &Structure) {
    for inner in 0..from.kind().nodes().len() {
        match from.node(inner) {
            Some(NodeValue::Structure) | None => {}
            // The types are equal.
            Some(value) => drop(into.set_node(bit + inner, value.clone())),
        }
    }
}

/// The elements of a text like `[1, "two", 3]`, as the EPICS tools split it; `None` if it is not such a list.
pub fn list_elements(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('[')?.trim_start();
    let mut elements = Vec::new();
    if rest == "]" {
        return Some(elements);
    }
    loop {
        let (element, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find([',', ']', ' '])?),
        };
        elements.push(element.to_owned());
        match after.trim_start().split_at_checked(1)? {
            (",", after) => rest = after.trim_start(),
            ("]", "") => return Some(elements),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_may_be_hexadecimal_or_octal_and_must_be_in_range() {
        assert_eq!(parsed(Kind::I32, "0x10"), Ok(Scalar::I32(16)));
        assert_eq!(parsed(Kind::I32, " -010 "), Ok(Scalar::I32(-8)));
        assert_eq!(parsed(Kind::U8, "256"), Err(NotANumber::TooLarge));
        assert_eq!(parsed(Kind::U64, "-1"), Err(NotANumber::TooLarge));
        assert_eq!(parsed(Kind::I32, "12.7"), Err(NotANumber::ExtraCharacters));
        assert_eq!(parsed(Kind::I64, ""), Err(NotANumber::NoDigits));
        assert_eq!(parsed(Kind::I64, &"9".repeat(60)), Err(NotANumber::TooLarge));
    }

    #[test]
    fn floating_point_numbers_report_what_is_wrong() {
        assert_eq!(parsed(Kind::F64, "-1e3"), Ok(Scalar::F64(-1000.0)));
        assert_eq!(parsed(Kind::F32, "1e300"), Err(NotANumber::TooLarge));
        assert_eq!(parsed(Kind::F64, "abc"), Err(NotANumber::NoDigits));
        assert_eq!(parsed(Kind::F64, "1.5x"), Err(NotANumber::ExtraCharacters));
    }

    #[test]
    fn a_list_is_split_into_its_elements() {
        assert_eq!(list_elements("[1, \"two words\" ,-3]").unwrap(), ["1", "two words", "-3"]);
        assert_eq!(list_elements("[]"), Some(vec![]));
        for text in ["", "[", "[1", "[1,", "[\"a", "[1]x", "1]"] {
            assert_eq!(list_elements(text), None, "{text}");
        }
    }

    #[test]
    fn json_is_assigned_to_the_members_that_it_names() {
        let mut build = fodo_net::StructureBuilder::new("");
        build.scalar("a", Kind::I32).open("b", "").array("c", Kind::F64).scalar("d", Kind::Text).close();
        let mut structure = Structure::new(Arc::new(build.finish()));
        let json = serde_json::from_str(r#"{"b": {"c": [1, 2.5]}}"#).unwrap();

        assign_json(&mut structure, 0, &json).unwrap();

        let fields = changed_fields(&structure);
        assert_eq!(fields, [("b.c".to_owned(), NodeValue::Value(vec![1.0, 2.5].into()))]);
        let wrong = serde_json::from_str(r#"{"a": {}}"#).unwrap();
        assert_eq!(assign_json(&mut structure, 0, &wrong).unwrap_err(), "cannot assign an object to a");
        let unknown = serde_json::from_str(r#"{"e": 1}"#).unwrap();
        assert_eq!(assign_json(&mut structure, 0, &unknown).unwrap_err(), "there is no field e");
    }

    #[test]
    fn a_text_is_parsed_as_each_kind_up_to_its_limits() {
        let largest = [
            (Kind::I8, "127", "128"),
            (Kind::I16, "32767", "32768"),
            (Kind::I32, "2147483647", "2147483648"),
            (Kind::I64, "9223372036854775807", "9223372036854775808"),
            (Kind::U8, "255", "256"),
            (Kind::U16, "65535", "65536"),
            (Kind::Enum, "65535", "65536"),
            (Kind::U32, "4294967295", "4294967296"),
            (Kind::U64, "18446744073709551615", "18446744073709551616"),
        ];
        for (kind, most, more) in largest {
            let element = parsed(kind, most).unwrap();
            assert_eq!((element.to_text(None).to_string().as_str(), Value::Scalar(element).kind()), (most, kind));
            assert_eq!(parsed(kind, more), Err(NotANumber::TooLarge), "{kind:?}");
            let array = parsed_array(kind, &["1".to_owned(), most.to_owned()]).unwrap();
            assert_eq!((array.kind(), array.clone().into_array().len()), (kind, 2));
        }
        assert_eq!(parsed_array(Kind::I8, &["1".to_owned(), "x".to_owned()]), Err((1, NotANumber::NoDigits)));
        assert_eq!(["true", " 1 ", "false", "0"].map(|text| parsed(Kind::Bool, text).unwrap()), {
            [true, true, false, false].map(Scalar::Bool)
        });
        assert_eq!(parsed(Kind::Bool, "yes"), Err(NotANumber::NoDigits));
        assert_eq!(parsed(Kind::Text, " x "), Ok(Scalar::Text(" x ".into())));
        assert_eq!(
            [parsed(Kind::F32, "1.5"), parsed(Kind::F32, "-inf")],
            [Ok(Scalar::F32(1.5)), Ok(Scalar::F32(f32::NEG_INFINITY))]
        );
        assert_eq!([parsed(Kind::I32, "0"), parsed(Kind::I32, "+7")], [Ok(Scalar::I32(0)), Ok(Scalar::I32(7))]);
        assert_eq!(
            [parsed(Kind::I32, "0X1f"), parsed(Kind::I32, "08")],
            [Ok(Scalar::I32(31)), Err(NotANumber::NoDigits)]
        );
    }

    #[test]
    fn json_is_assigned_to_fields_of_every_type() {
        let mut point = fodo_net::StructureBuilder::new("");
        let point = Arc::new(point.scalar("x", Kind::I32).finish());
        let mut build = fodo_net::StructureBuilder::new("");
        build.scalar("flag", Kind::Bool).scalar("word", Kind::Text).leaf("bounded", NodeKind::BoundedText(4));
        build.leaf("points", NodeKind::StructureArray(point)).leaf("any", NodeKind::Any).array("numbers", Kind::I32);
        let new = Structure::new(Arc::new(build.finish()));
        let assigned = |text: &str| {
            let mut structure = new.clone();
            let json = serde_json::from_str(text).unwrap();
            assign_json(&mut structure, 0, &json).map(|()| crate::structure::json(&structure).to_string())
        };
        let all =
            r#"{"flag":true,"word":"a","bounded":"abcd","points":[{"x":3},null],"any":{"b":[1,2]},"numbers":[4]}"#;

        assert_eq!(assigned(all).unwrap(), all);
        assert!(assigned(r#"{"any":null}"#).unwrap().contains("\"any\":null"));
        for (text, path) in [
            (r#"{"flag":null}"#, "null to flag"),
            (r#"{"word":[]}"#, "an array to word"),
            (r#"{"bounded":{}}"#, "an object to bounded"),
            (r#"{"points":true}"#, "a boolean to points"),
            (r#"{"numbers":1}"#, "a number to numbers"),
            (r#"{"numbers":"1"}"#, "a text to numbers"),
            (r#"{"numbers":[[1]]}"#, "nested JSON to numbers"),
            (r#"{"any":[1,"a"]}"#, "an array to any"),
            ("3", "a number to the structure"),
        ] {
            assert_eq!(assigned(text), Err(format!("cannot assign {path}")), "{text}");
        }
        assert_eq!(
            assigned(r#"{"numbers":[1,"x"]}"#).unwrap_err(),
            "failed to parse element at index 1: parseToPOD: No digits to convert"
        );
        assert!(assigned(r#"{"bounded":"abcde"}"#).is_err() && assigned(r#"{"points":[{"y":1}]}"#).is_err());
    }

    #[test]
    fn json_without_a_type_becomes_a_structure_of_the_types_of_json() {
        let kind = |text: &str| structure_of_json(&serde_json::from_str(text).unwrap()).map(|it| it.kind().to_string());

        for (text, expected) in [
            ("true", "Bool"),
            ("\"a\"", "Text"),
            ("-3", "I64"),
            ("1.5", "F64"),
            ("18446744073709551615", "F64"),
            ("[1,2]", "I64[]"),
            ("[1,2.5]", "F64[]"),
            ("[\"a\"]", "Text[]"),
            ("[true,false]", "Bool[]"),
        ] {
            assert_eq!(kind(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!([kind("null"), kind("[1,\"a\"]"), kind("{\"a\":null}")], [None, None, None]);
    }
}
