//! Values of PVs as values of scripts, and the reverse.

use fodo_net::{Array, Channel, Detail, Kind, Meta, Reading, Request, Scalar, Severity, TimeStamp, Value};

use crate::limit::{PV_ELEMENTS_MAX, PV_TEXT_BYTES_MAX};
use crate::object::ObjectError;
use crate::value::LuaValue;

/// What a Pv object keeps of the last value.
pub(super) struct PvReading {
    pub value: LuaValue,
    pub severity: Severity,
    /// Seconds since 1970 in UTC; `None` for a value that was never written.
    pub unix_s: Option<f64>,
    /// The name of the state of an enum.
    pub label: String,
    pub units: String,
    pub alarm_message: String,
}

/// Values with alarm, time stamp, units and labels.
pub(super) fn pv_request() -> Request {
    Request { detail: Detail::Full, ..Request::default() }
}

impl PvReading {
    /// Fails with a text for the user if the value is too large for a script.
    pub fn new(name: &str, reading: &Reading) -> Result<PvReading, String> {
        let meta = reading.meta.as_deref();
        let label = match &reading.value {
            Value::Scalar(state @ Scalar::Enum(_)) => state.to_text(meta).to_str().into_owned(),
            _ => String::new(),
        };
        let alarm_message = match &reading.message {
            Some(message) => message.to_str().into_owned(),
            None => reading.alarm.status.to_string(),
        };
        let time = reading.time;
        Ok(PvReading {
            value: lua_value(&reading.value, name.ends_with('$') || has_text_form(meta))?,
            severity: reading.alarm.severity,
            unix_s: (time != TimeStamp::NEVER).then(|| time.unix_s as f64 + f64::from(time.nanos) * 1e-9),
            label,
            units: meta.map(|meta| meta.units.to_str().into_owned()).unwrap_or_default(),
            alarm_message,
        })
    }
}

/// Whether the server shows an array of characters as a text.
fn has_text_form(meta: Option<&Meta>) -> bool {
    meta.is_some_and(|meta| meta.form == fodo_data::DisplayForm::String)
}

/// Whether a PV has texts as arrays of characters: a field name that ends with `$`, or a channel of characters.
pub(super) fn is_text(name: &str, channel: &Channel) -> bool {
    let facts = channel.facts();
    name.ends_with('$') || facts.is_some_and(|facts| matches!(facts.kind, Kind::U8 | Kind::I8) && facts.count_max != 1)
}

/// A number, a boolean, a text, or a list of these; an enum is its number. `is_text`: an array of characters is a text.
fn lua_value(value: &Value, is_text: bool) -> Result<LuaValue, String> {
    let text = if is_text { value.long_text() } else { None };
    let n_bytes = text.as_ref().map_or(0, |text| text.len());
    let value = match (text, value) {
        (Some(text), _) => LuaValue::from(&*text.to_str()),
        (None, Value::Scalar(scalar)) => element(scalar),
        (None, Value::Array(array)) if array.len() > PV_ELEMENTS_MAX => {
            return Err(format!("the value has {} elements; a script receives at most {PV_ELEMENTS_MAX}", array.len()));
        }
        (None, Value::Array(array)) => {
            LuaValue::list((0..array.len()).filter_map(|index| array.scalar(index)).map(|scalar| element(&scalar)))
        }
    };
    let n_bytes = n_bytes.max(value.n_bytes());
    if n_bytes > PV_TEXT_BYTES_MAX {
        return Err(format!("the value has {n_bytes} bytes; a script receives at most {PV_TEXT_BYTES_MAX}"));
    }
    Ok(value)
}

fn element(scalar: &Scalar) -> LuaValue {
    match scalar {
        Scalar::Bool(is_on) => LuaValue::Boolean(*is_on),
        Scalar::Text(text) => LuaValue::from(&*text.to_str()),
        number => number.to_f64().map_or(LuaValue::Nil, LuaValue::Number),
    }
}

/// The value of a put. The server converts it to the type of the PV, a text also to the state of an enum with this label.
/// `is_text`: a text is sent as an array of characters.
pub(super) fn put_value(value: &LuaValue, is_text: bool) -> Result<Value, ObjectError> {
    let unsuitable = || ObjectError::Failed {
        reason: "the value must be a number, a boolean, a text, a list of numbers or a list of texts".into(),
    };
    match value {
        LuaValue::Number(number) => Ok((*number).into()),
        LuaValue::Boolean(is_on) => Ok((*is_on).into()),
        LuaValue::Text(text) if is_text => Ok(Value::characters(text)),
        LuaValue::Text(text) => Ok(text.as_str().into()),
        LuaValue::Table(entries) => {
            let is_list = entries.iter().zip(1..).all(|((key, _), index)| *key == LuaValue::Number(f64::from(index)));
            let elements = entries.iter().map(|(_, element)| element);
            let numbers: Option<Vec<f64>> = elements
                .clone()
                .map(|element| match element {
                    LuaValue::Number(number) => Some(*number),
                    _ => None,
                })
                .collect();
            let texts: Option<Vec<fodo_net::Text>> = elements
                .map(|element| match element {
                    LuaValue::Text(text) => Some(text.as_str().into()),
                    _ => None,
                })
                .collect();
            match (numbers, texts) {
                (Some(numbers), _) if is_list => Ok(Value::from(numbers)),
                (_, Some(texts)) if is_list => Ok(Value::Array(Array::Text(texts.into()))),
                _ => Err(unsuitable()),
            }
        }
        _ => Err(unsuitable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_numbers_booleans_texts_and_lists() {
        for (value, is_text, expected) in [
            (Value::from(1.5), false, LuaValue::Number(1.5)),
            (Value::from(true), false, LuaValue::Boolean(true)),
            (Value::Scalar(Scalar::Enum(2)), false, LuaValue::Number(2.0)),
            (Value::from("żar"), false, "żar".into()),
            (Value::from(vec![1_u8, 2]), false, LuaValue::list([1.0.into(), 2.0.into()])),
            (Value::characters("text"), true, "text".into()),
            (Value::from(vec![fodo_net::Text::from("a")]), false, LuaValue::list(["a".into()])),
        ] {
            assert_eq!(lua_value(&value, is_text), Ok(expected), "{value:?}");
        }
    }

    #[test]
    fn a_value_that_is_too_large_for_a_script_is_refused() {
        assert!(lua_value(&Value::from(vec![0.0; PV_ELEMENTS_MAX]), false).is_ok());
        let error = lua_value(&Value::from(vec![0.0; PV_ELEMENTS_MAX + 1]), false).unwrap_err();
        assert!(error.contains("elements; a script receives at most"), "{error}");

        let long = "x".repeat(PV_TEXT_BYTES_MAX + 1);
        for (value, is_text) in [(Value::from(long.as_str()), false), (Value::characters(&long), true)] {
            let error = lua_value(&value, is_text).unwrap_err();
            assert!(error.contains("bytes; a script receives at most"), "{error}");
        }
    }

    #[test]
    fn only_values_of_one_kind_are_put() {
        let list = |values: &[LuaValue]| LuaValue::list(values.to_vec());
        assert_eq!(put_value(&5.0.into(), false), Ok(Value::from(5.0)));
        assert_eq!(put_value(&"on".into(), false), Ok(Value::from("on")));
        assert_eq!(put_value(&"on".into(), true), Ok(Value::characters("on")));
        assert_eq!(put_value(&list(&[1.0.into(), 2.0.into()]), false), Ok(Value::from(vec![1.0, 2.0])));
        let texts = Value::from(vec![fodo_net::Text::from("a"), "b".into()]);
        assert_eq!(put_value(&list(&["a".into(), "b".into()]), false), Ok(texts));
        for unsuitable in [
            LuaValue::Nil,
            LuaValue::Object("T".into()),
            list(&[1.0.into(), "b".into()]),
            LuaValue::Table(vec![("a".into(), 1.0.into())]),
            LuaValue::Table(vec![(2.0.into(), 1.0.into())]),
        ] {
            assert!(put_value(&unsuitable, false).is_err(), "{unsuitable:?}");
        }
    }
}
