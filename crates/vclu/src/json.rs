//! Conversion between JSON and the values of scripts.

use serde_json::{Map, Number, Value};

use crate::limit::{TABLE_DEPTH_MAX, TABLE_VALUES_MAX};
use crate::value::{LuaValue, NumberFormat};

/// A text that is JSON becomes a table, number, text or boolean: an object becomes a table, an array a list from 1. Other
/// texts stay as they are, as do those with too many values for a table.
pub(crate) fn from_json_text(text: &str) -> LuaValue {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if is_affordable(&value, 0, &mut TABLE_VALUES_MAX.clone()) => from_json(value),
        _ => text.into(),
    }
}

fn is_affordable(value: &Value, depth: usize, left: &mut usize) -> bool {
    if depth > TABLE_DEPTH_MAX || *left == 0 {
        return false;
    }
    *left -= 1;
    match value {
        Value::Array(values) => values.iter().all(|value| is_affordable(value, depth + 1, left)),
        Value::Object(entries) => entries.values().all(|value| is_affordable(value, depth + 1, left)),
        _ => true,
    }
}

fn from_json(value: Value) -> LuaValue {
    match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(is_on) => LuaValue::Boolean(is_on),
        Value::Number(number) => number.as_f64().map_or(LuaValue::Nil, LuaValue::Number),
        Value::String(text) => LuaValue::Text(text),
        Value::Array(values) => LuaValue::list(values.into_iter().map(from_json)),
        Value::Object(entries) => {
            let mut entries: Vec<(LuaValue, LuaValue)> =
                entries.into_iter().map(|(key, value)| (key.into(), from_json(value))).collect();
            LuaValue::sort_entries(&mut entries);
            LuaValue::Table(entries)
        }
    }
}

/// A table whose keys are 1 to n becomes an array, another table an object; an empty table is an empty object.
pub(crate) fn to_json(value: &LuaValue) -> Value {
    match value {
        LuaValue::Nil | LuaValue::Opaque(_) => Value::Null,
        LuaValue::Boolean(is_on) => Value::Bool(*is_on),
        LuaValue::Number(number) if *number == number.trunc() && number.abs() < 9e15 => {
            Value::Number((*number as i64).into())
        }
        // JSON has no number for infinity and for what is not a number.
        LuaValue::Number(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        LuaValue::Text(text) | LuaValue::Object(text) => Value::String(text.clone()),
        LuaValue::Table(entries) if is_list(entries) => entries.iter().map(|(_, value)| to_json(value)).collect(),
        LuaValue::Table(entries) => {
            let named = entries.iter().map(|(key, value)| (key.to_text(NumberFormat::Full), to_json(value)));
            Value::Object(named.collect::<Map<String, Value>>())
        }
    }
}

/// What is published or sent for a value: JSON for a table, otherwise the printed value.
pub(crate) fn payload_of(value: &LuaValue) -> String {
    match value {
        LuaValue::Table(_) => to_json(value).to_string(),
        LuaValue::Nil => String::new(),
        value => value.to_text(NumberFormat::Full),
    }
}

fn is_list(entries: &[(LuaValue, LuaValue)]) -> bool {
    let mut numbered = entries.iter().enumerate();
    !entries.is_empty() && numbered.all(|(index, (key, _))| *key == LuaValue::Number(index as f64 + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_tables_and_arrays_lists_from_one() {
        let value = from_json_text(r#"{"b":[1,"x",null,true],"a":{"c":-0.5}}"#);

        assert_eq!(value.to_text(NumberFormat::Full), r#"{a={c=-0.5},b={1,"x",nil,true}}"#);
        assert_eq!(to_json(&value).to_string(), r#"{"a":{"c":-0.5},"b":[1,"x",null,true]}"#);
    }

    #[test]
    fn a_text_that_is_not_json_stays_a_text() {
        for text in ["", "on", "{a=1}", "[1,", "1 2"] {
            assert_eq!(from_json_text(text), text.into());
        }
        assert_eq!(from_json_text(" 21.5"), 21.5.into());
        assert_eq!(from_json_text("\"on\""), "on".into());
    }

    #[test]
    fn a_value_that_is_too_deep_or_too_large_for_a_table_stays_a_text() {
        let deep = format!("{}{}", "[".repeat(TABLE_DEPTH_MAX + 2), "]".repeat(TABLE_DEPTH_MAX + 2));
        let large = format!("[{}0]", "0,".repeat(TABLE_VALUES_MAX));

        assert_eq!(from_json_text(&deep), deep.as_str().into());
        assert_eq!(from_json_text(&large), large.as_str().into());
    }

    #[test]
    fn numbers_that_json_does_not_have_become_null() {
        let values = LuaValue::list([f64::INFINITY.into(), f64::NAN.into(), 1e300.into()]);

        assert_eq!(to_json(&values).to_string(), "[null,null,1e+300]");
        assert_eq!(payload_of(&LuaValue::Table(Vec::new())), "{}");
    }
}
