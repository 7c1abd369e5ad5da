//! Readings as JSON, one object per line. The keys are a stable interface for scripts: keys may be added, but are never
//! removed and never change their meaning.

use std::fmt;

use fodo_data::Limits;
use fodo_net::{ChannelFacts, Kind, Meta, Protocol, Reading, Scalar, Structure, Value};
use serde_json::{Map, Value as Json, json};

use crate::client::kind_name;
use crate::exit::Exit;
use crate::local_time::Clock;
use crate::show::DisplayOptions;

/// The section of `--help` on the JSON keys.
pub const KEYS: &str = "\
JSON keys (--json prints one object per line):
  pv        the name as given
  value     number, string or array; the label of an enum; NaN and infinities as the strings
            \"nan\", \"inf\", \"-inf\"
  index     the state number of an enum (enums only)
  kind      string short float enum char long double; pvAccess also has bool int8 uint16 uint32
            int64 uint64 structure
  id        the name of the type (structures only)
  structure the fields as an object, instead of value and the keys below it (structures only); a
            union as an object with the name of its selected member, a variant union as its value,
            each as null if it is empty
  count     number of elements
  units     string, or null
  time      RFC 3339 in UTC with nanoseconds, or null if the record was never processed
  severity  NO_ALARM MINOR MAJOR INVALID
  status    the alarm status, NO_ALARM if there is no alarm
  meta      with --meta: precision, display, warning, alarm, control (each [low, high]), states
  error     after a failure, instead of all other keys except pv: code (the exit code), class,
            message
  event     monitor only: update, connected, disconnected, unresponsive, responsive, closed;
            refused and wrong_reply (an update that was dropped), with a message; rights, with
            the current rights read and write; merged: n updates were merged into the next one;
            stats (at the end, with --stats), with received, merged, delivered, longest_gap_s,
            n_disconnected";

/// An object that may contain the value of a large array.
///
/// The array is written element by element, because its text needs several times the memory of its values.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<(&'static str, Field<'a>)>);

#[derive(Debug)]
enum Field<'a> {
    Json(Json),
    Value(&'a Value, Option<&'a Meta>, DisplayOptions),
    Object(Object<'a>),
    Structure(&'a Structure),
}

impl<'a> Object<'a> {
    /// An object with the name of a PV.
    pub fn of(pv: &str) -> Object<'a> {
        Object(vec![("pv", Field::Json(pv.into()))])
    }

    /// Adds a field.
    pub fn insert(&mut self, key: &'static str, field: impl Into<Json>) {
        self.0.push((key, Field::Json(field.into())));
    }

    /// Adds a field that is itself an object.
    pub fn insert_object(&mut self, key: &'static str, object: Object<'a>) {
        self.0.push((key, Field::Object(object)));
    }

    /// Adds a field that is a structure.
    pub fn insert_structure(&mut self, key: &'static str, structure: &'a Structure) {
        self.0.push((key, Field::Structure(structure)));
    }
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, field)) in self.0.iter().enumerate() {
            let before = if index == 0 { "{" } else { "," };
            write!(f, "{before}\"{key}\":")?;
            match field {
                Field::Json(json) => write!(f, "{json}")?,
                Field::Value(value, meta, look) => write_value(value, *meta, look, f)?,
                Field::Object(object) => write!(f, "{object}")?,
                Field::Structure(structure) => write!(f, "{}", crate::structure::json(structure))?,
            }
        }
        f.write_str("}")
    }
}

fn write_value(of: &Value, meta: Option<&Meta>, look: &DisplayOptions, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let array = match of {
        Value::Array(array) if !look.is_text(of) => array,
        _ => return write!(f, "{}", value(of, meta, look)),
    };
    f.write_str("[")?;
    for (index, scalar) in (0..array.len()).filter_map(|at| array.scalar(at)).enumerate() {
        let separator = if index > 0 { "," } else { "" };
        write!(f, "{separator}{}", element(&scalar, meta, look))?;
    }
    f.write_str("]")
}

/// The object for a reading.
pub fn reading<'a>(pv: &str, reading: &'a Reading, look: &DisplayOptions) -> Object<'a> {
    let meta = reading.meta.as_deref();
    let kind = reading.value.kind();
    let mut object = Object::of(pv);
    object.0.push(("value", Field::Value(&reading.value, meta, look.of(pv))));
    if kind == Kind::Enum {
        let numbers = DisplayOptions { numeric: true, ..look.clone() };
        object.0.push(("index", Field::Value(&reading.value, meta, numbers)));
    }
    object.insert("kind", kind_name(kind));
    object.insert("count", reading.value.len());
    let units = meta.map(|meta| meta.units.to_str().into_owned()).filter(|units| !units.is_empty());
    object.insert("units", units);
    object.insert("time", Clock::rfc3339(reading.time));
    object.insert("severity", reading.alarm.severity.to_string());
    object.insert("status", reading.alarm.status.to_string());
    if let (true, Some(meta)) = (look.with_meta, meta) {
        object.insert("meta", meta_object(meta));
    }
    object
}

/// The object for a failure.
pub fn failure(pv: &str, exit: Exit, message: &str) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("pv".into(), pv.into());
    object.insert("error".into(), json!({"code": exit.code(), "class": exit.class(), "message": message}));
    object
}

/// The object for a structured value.
pub fn structure<'a>(pv: &str, structure: &'a Structure) -> Object<'a> {
    let mut object = Object::of(pv);
    object.insert("kind", "structure");
    object.insert("id", structure.kind().id().to_str());
    object.insert_structure("structure", structure);
    object
}

/// The object for the properties of a channel. What the protocol does not report is null.
pub fn facts(pv: &str, protocol: Protocol, facts: &ChannelFacts, record_type: Option<&str>) -> Map<String, Json> {
    let has_rights = protocol == Protocol::Ca;
    let mut object = Map::new();
    object.insert("pv".into(), pv.into());
    object.insert("protocol".into(), protocol.to_string().into());
    object.insert("server".into(), facts.server.to_string().into());
    if let Some(peer) = &facts.tls {
        object.insert("tls".into(), peer.name.as_str().into());
    }
    object.insert("kind".into(), kind_name(facts.kind).into());
    object.insert("count_max".into(), Some(facts.count_max).filter(|n| *n > 0).into());
    object.insert("read".into(), has_rights.then_some(facts.may_read).into());
    object.insert("write".into(), has_rights.then_some(facts.may_write).into());
    object.insert("record_type".into(), record_type.into());
    object
}

/// An object as one line.
pub fn line(object: Map<String, Json>) -> String {
    format!("{}\n", Json::Object(object))
}

/// A value without its alarm and time stamp.
pub fn value(value: &Value, meta: Option<&Meta>, look: &DisplayOptions) -> Json {
    if look.is_text(value) {
        return value.long_text().unwrap_or_default().to_str().into();
    }
    match value {
        Value::Scalar(scalar) => element(scalar, meta, look),
        Value::Array(array) => {
            let scalars = (0..array.len()).filter_map(|index| array.scalar(index));
            scalars.map(|scalar| element(&scalar, meta, look)).collect()
        }
    }
}

fn element(of: &Scalar, meta: Option<&Meta>, look: &DisplayOptions) -> Json {
    match of {
        Scalar::Enum(index) if !look.numeric && of.to_text(meta).is_empty() => index.to_string().into(),
        Scalar::Enum(_) if !look.numeric => of.to_text(meta).to_str().into(),
        other => scalar(other),
    }
}

/// An element as a number, a string or a bool; a state as its number.
pub fn scalar(scalar: &Scalar) -> Json {
    match scalar {
        Scalar::Bool(is_true) => (*is_true).into(),
        Scalar::I8(number) => (*number).into(),
        Scalar::U8(number) => (*number).into(),
        Scalar::I16(number) => (*number).into(),
        Scalar::U16(number) | Scalar::Enum(number) => (*number).into(),
        Scalar::I32(number) => (*number).into(),
        Scalar::U32(number) => (*number).into(),
        Scalar::I64(number) => (*number).into(),
        Scalar::U64(number) => (*number).into(),
        // Converted through its text, so that 0.1 stays 0.1.
        Scalar::F32(number) if number.is_finite() => {
            format!("{number:?}").parse().map_or_else(|_| float(f64::from(*number)), float)
        }
        Scalar::F32(number) => float(f64::from(*number)),
        Scalar::F64(number) => float(*number),
        Scalar::Text(text) => text.to_str().into(),
    }
}

/// JSON has no numbers for NaN and infinities; strings distinguish the three, null would not.
fn float(number: f64) -> Json {
    match number {
        number if number.is_nan() => "nan".into(),
        number if number.is_infinite() => if number > 0.0 { "inf" } else { "-inf" }.into(),
        number => number.into(),
    }
}

fn meta_object(meta: &Meta) -> Json {
    let span = |limits: Limits| Json::Array(vec![float(limits.low), float(limits.high)]);
    let states: Vec<String> = meta.labels.iter().map(|label| label.to_str().into_owned()).collect();
    json!({
        "precision": meta.precision,
        "display": span(meta.display),
        "warning": span(meta.warning),
        "alarm": span(meta.alarm),
        "control": span(meta.control),
        "states": states,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::{Alarm, Severity, Status, TimeStamp};
    use std::sync::Arc;

    fn look() -> DisplayOptions {
        DisplayOptions::plain(Clock::utc())
    }

    fn reading_of(value: impl Into<Value>, meta: Meta) -> Reading {
        let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 5 };
        Reading { alarm, time, meta: Some(Arc::new(meta)), ..Reading::bare(value.into()) }
    }

    fn parsed(object: Object<'_>) -> Json {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn a_json_reading_has_the_documented_keys_in_order() {
        let meta = Meta { units: "mm".into(), ..Meta::default() };

        assert_eq!(
            format!("{}\n", reading("x:y", &reading_of(1.5, meta), &look())),
            "{\"pv\":\"x:y\",\"value\":1.5,\"kind\":\"double\",\"count\":1,\"units\":\"mm\",\
             \"time\":\"2027-01-15T08:00:00.000000005Z\",\"severity\":\"MAJOR\",\"status\":\"HIHI\"}\n"
        );
    }

    #[test]
    fn a_json_enum_has_its_label_and_index() {
        let meta = Meta { labels: vec!["Off".into(), "On".into()], ..Meta::default() };
        let object = parsed(reading("x", &reading_of(Value::Scalar(Scalar::Enum(1)), meta), &look()));

        assert_eq!((&object["value"], &object["index"]), (&json!("On"), &json!(1)));
    }

    #[test]
    fn nan_and_infinity_are_json_strings() {
        let values = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300];

        let object = parsed(reading("x", &reading_of(values, Meta::default()), &look()));

        assert_eq!(object["value"], json!(["nan", "inf", "-inf", 1e300]));
        assert_eq!(object["units"], Json::Null);
    }

    #[test]
    fn json_floats_keep_their_short_digits_and_char_arrays_can_be_text() {
        let text = DisplayOptions { text: true, ..look() };

        assert_eq!(parsed(reading("x", &reading_of(0.1_f32, Meta::default()), &look()))["value"], json!(0.1));
        assert_eq!(parsed(reading("x", &reading_of(b"ab\0c".to_vec(), Meta::default()), &text))["value"], json!("ab"));
        assert_eq!(
            parsed(reading("x.DESC$", &reading_of(b"ab\0".to_vec(), Meta::default()), &look()))["value"],
            json!("ab")
        );
        assert_eq!(parsed(reading("x", &reading_of(b"a".to_vec(), Meta::default()), &look()))["value"], json!([97]));
    }

    #[test]
    fn json_contains_metadata_if_requested() {
        let with_meta = DisplayOptions { with_meta: true, ..look() };
        let meta = Meta { display: Limits { low: -1.0, high: f64::NAN }, ..Meta::default() };

        let object = parsed(reading("x", &reading_of(1, meta), &with_meta));

        assert_eq!(
            object["meta"].to_string(),
            "{\"precision\":0,\"display\":[-1.0,\"nan\"],\"warning\":[0.0,0.0],\"alarm\":[0.0,0.0],\
             \"control\":[0.0,0.0],\"states\":[]}"
        );
    }

    #[test]
    fn a_json_failure_contains_its_exit_code_and_class() {
        let object = failure("x", Exit::NotFound, "no server claimed the name");

        assert_eq!((&object["error"]["code"], &object["error"]["class"]), (&json!(3), &json!("not_found")));
        assert_eq!(object["error"]["message"], json!("no server claimed the name"));
    }

    #[test]
    fn every_json_key_is_documented() {
        let meta = Meta { labels: vec!["Off".into()], ..Meta::default() };
        let with_meta = DisplayOptions { with_meta: true, ..look() };

        for (key, _) in reading("x", &reading_of(Value::Scalar(Scalar::Enum(0)), meta), &with_meta).0 {
            assert!(KEYS.contains(&format!("\n  {key} ")), "{key} is in the help");
        }
    }

    #[test]
    fn every_numeric_type_is_a_json_number_and_an_unlabelled_enum_its_index() {
        let shown = |value: Value, look: &DisplayOptions| {
            parsed(reading("x", &reading_of(value, Meta::default()), look))["value"].clone()
        };
        let scalars = [
            Scalar::I8(-1),
            Scalar::U8(2),
            Scalar::I16(-3),
            Scalar::U16(4),
            Scalar::I32(-5),
            Scalar::U32(6),
            Scalar::I64(-7),
            Scalar::U64(8),
            Scalar::F32(0.5),
            Scalar::F64(-1.5),
        ];

        let numbers = scalars.map(|scalar| shown(Value::Scalar(scalar), &look()).as_f64().unwrap());

        assert_eq!(numbers, [-1.0, 2.0, -3.0, 4.0, -5.0, 6.0, -7.0, 8.0, 0.5, -1.5]);
        assert_eq!(shown(Value::from(f32::INFINITY), &look()), json!("inf"));
        assert_eq!(shown(Value::Scalar(Scalar::Enum(3)), &look()), json!("3"));
        assert_eq!(shown(Value::Scalar(Scalar::Enum(3)), &DisplayOptions { numeric: true, ..look() }), json!(3));
        assert_eq!(shown(Value::from(vec![1_i16, 2]), &look()), json!([1, 2]));
    }

    #[test]
    fn json_channel_information_has_the_documented_keys() {
        let server = "10.0.0.1:5064".parse().unwrap();
        let channel =
            ChannelFacts { server, kind: Kind::F32, count_max: 7, may_read: true, may_write: false, tls: None };

        assert_eq!(
            line(facts("x", Protocol::Ca, &channel, Some("ai"))),
            "{\"pv\":\"x\",\"protocol\":\"ca\",\"server\":\"10.0.0.1:5064\",\"kind\":\"float\",\"count_max\":7,\"read\":true,\
             \"write\":false,\"record_type\":\"ai\"}\n"
        );
        assert_eq!(facts("x", Protocol::Ca, &channel, None)["record_type"], Json::Null);
    }

    #[test]
    fn what_pvaccess_does_not_report_is_null() {
        let server = "10.0.0.1:5075".parse().unwrap();
        let channel =
            ChannelFacts { server, kind: Kind::I64, count_max: 0, may_read: true, may_write: true, tls: None };

        assert_eq!(
            line(facts("pva://x", Protocol::Pva, &channel, None)),
            "{\"pv\":\"pva://x\",\"protocol\":\"pva\",\"server\":\"10.0.0.1:5075\",\"kind\":\"int64\",\"count_max\":null,\
             \"read\":null,\"write\":null,\"record_type\":null}\n"
        );
    }
}
