//! How a value of a CLU is a value of a PV, and back.

use crate::mqtt::without_password;
use fodo_clu::interface::{FeatureInterface, InterfaceKind, ParameterInterface};
use fodo_clu::om_lua::VariableKind;
use fodo_data::{Alarm, Array, Kind, Limits, Meta, Scalar, Severity, Status, Text, Value};

use super::lights::PART_MAX;
use super::limits::LiveLimits;

/// How close a number that is read back must be to the number that was set: CLUs print two decimals.
const PRINTED_STEP: f64 = 0.01;

/// The units of values that are integers.
const INTEGER_UNITS: [&str; 6] = ["ms", "s", "m", "min", "h", "d"];

/// The alarms of the state of a CLU, by its name: each kind of CLU has other numbers.
const STATE_SEVERITIES: [(&str, Severity); 5] = [
    ("System starting", Severity::Minor),
    ("Monitor mode", Severity::Minor),
    ("Module not responding", Severity::Minor),
    ("Emergency mode", Severity::Major),
    ("Critical error", Severity::Major),
];

/// How the values of a feature, a user variable or an argument are the values of a PV.
#[derive(Clone, Debug)]
pub(super) struct ValueShape {
    kind: ShapeKind,
    unit: String,
    precision: i16,
    range: Option<(f64, f64)>,
    labels: Vec<Text>,
    /// Whether the alarm depends on the choice, as for the state of a CLU.
    is_state: bool,
}

#[derive(Clone, Debug)]
enum ShapeKind {
    Number,
    Text,
    /// The numbers of the states, in the order of their labels.
    Choice(Vec<f64>),
    /// A count, which only this program changes.
    Count,
    /// The parts of a colour: an array of so many numbers.
    Colour(usize),
}

impl ValueShape {
    fn new(kind: ShapeKind) -> ValueShape {
        ValueShape { kind, unit: String::new(), precision: 0, range: None, labels: Vec::new(), is_state: false }
    }

    /// `is_state`: whether it is the state of the CLU.
    pub fn of_feature(feature: &FeatureInterface, is_state: bool) -> ValueShape {
        if !feature.choices.is_empty() {
            let (values, labels) =
                feature.choices.iter().map(|(value, name)| (*value, Text::from(name.as_str()))).unzip();
            return ValueShape { labels, is_state, ..ValueShape::new(ShapeKind::Choice(values)) };
        }
        let range = feature.range;
        ValueShape { range, ..ValueShape::of_kind(feature.kind, &feature.unit) }
    }

    pub fn of_parameter(parameter: &ParameterInterface) -> ValueShape {
        ValueShape::of_kind(parameter.kind, &parameter.unit)
    }

    pub fn of_variable(kind: VariableKind) -> ValueShape {
        match kind {
            VariableKind::Number => ValueShape::of_kind(InterfaceKind::Number, ""),
            VariableKind::Text => ValueShape::of_kind(InterfaceKind::Text, ""),
            VariableKind::Boolean => ValueShape::of_kind(InterfaceKind::Switch, ""),
        }
    }

    /// Of events and calls.
    pub fn count() -> ValueShape {
        ValueShape::new(ShapeKind::Count)
    }

    /// The parts of a colour in one array.
    pub fn colour(n_parts: usize) -> ValueShape {
        ValueShape { range: Some((0.0, PART_MAX)), ..ValueShape::new(ShapeKind::Colour(n_parts)) }
    }

    fn of_kind(kind: InterfaceKind, unit: &str) -> ValueShape {
        match kind {
            InterfaceKind::Number | InterfaceKind::TimeStamp => {
                let is_integer = kind == InterfaceKind::TimeStamp || INTEGER_UNITS.contains(&unit);
                let precision = if is_integer { 0 } else { 2 };
                ValueShape { unit: unit.to_string(), precision, ..ValueShape::new(ShapeKind::Number) }
            }
            InterfaceKind::Switch => {
                let labels = ["Off", "On"].map(Text::from).to_vec();
                ValueShape { labels, ..ValueShape::new(ShapeKind::Choice(vec![0.0, 1.0])) }
            }
            InterfaceKind::Text | InterfaceKind::Table => ValueShape::new(ShapeKind::Text),
        }
    }

    /// The kind of the PV.
    pub fn kind(&self) -> Kind {
        match self.kind {
            ShapeKind::Number => Kind::F64,
            ShapeKind::Text => Kind::Text,
            ShapeKind::Choice(_) => Kind::Enum,
            ShapeKind::Count | ShapeKind::Colour(_) => Kind::I32,
        }
    }

    /// The value before the first one is read.
    pub fn initial(&self) -> Value {
        match self.kind {
            ShapeKind::Colour(n_parts) => vec![0_i32; n_parts].into(),
            _ => Value::Scalar(Scalar::initial(self.kind())),
        }
    }

    /// Whether it is a text, of which Channel Access needs a long form.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, ShapeKind::Text)
    }

    /// Minimum and maximum: those of the object, or else those of its class.
    fn range(&self, live: &LiveLimits) -> Option<(f64, f64)> {
        live.range().or(self.range)
    }

    /// Units, limits and labels.
    pub fn meta(&self, description: &str, is_settable: bool, live: &LiveLimits) -> Meta {
        let pair = |pair: Option<(f64, f64)>| pair.map(|(low, high)| Limits { low, high }).unwrap_or_default();
        let limits = pair(self.range(live));
        Meta {
            description: description.into(),
            units: self.unit.as_str().into(),
            precision: self.precision,
            display: limits,
            alarm: pair(live.alarm()),
            warning: limits,
            control: if is_settable { limits } else { Limits::default() },
            labels: self.labels.clone(),
            ..Meta::default()
        }
    }

    /// The value and the alarm of a PV after the CLU has this value; `None` is `nil`. `last`: the value before, which stays
    /// if the new one has no meaning.
    pub fn reading(&self, value: Option<&Scalar>, last: Value, live: &LiveLimits) -> (Value, Alarm) {
        let Some(scalar) = value else { return (last, invalid(Status::UDF)) };
        match &self.kind {
            ShapeKind::Number => match number(scalar) {
                Some(number) if number.is_nan() => (last, invalid(Status::UDF)),
                Some(number) => (number.into(), self.limit_alarm(number, live)),
                None => (last, invalid(Status::READ)),
            },
            ShapeKind::Text => (Value::Scalar(Scalar::Text(shown(scalar.to_text(None)))), Alarm::default()),
            ShapeKind::Choice(values) => {
                let index = number(scalar).and_then(|number| values.iter().position(|value| *value == number));
                match index {
                    Some(index) => (Value::Scalar(Scalar::Enum(index as u16)), self.state_alarm(index)),
                    None => (last, invalid(Status::STATE)),
                }
            }
            ShapeKind::Count => {
                let count = number(scalar).unwrap_or_default();
                (Value::from((count as i64 & i64::from(i32::MAX)) as i32), Alarm::default())
            }
            // It is composed of the values of other features.
            ShapeKind::Colour(_) => (last, Alarm::default()),
        }
    }

    /// The alarm of a number beyond its limits.
    pub fn limit_alarm(&self, number: f64, live: &LiveLimits) -> Alarm {
        let alarm = |severity, status| Alarm { severity, status };
        match (live.alarm(), self.range(live)) {
            (Some((low, _)), _) if number < low => alarm(Severity::Major, Status::LOLO),
            (Some((_, high)), _) if number > high => alarm(Severity::Major, Status::HIHI),
            (_, Some((low, _))) if number < low => alarm(Severity::Minor, Status::LOW),
            (_, Some((_, high))) if number > high => alarm(Severity::Minor, Status::HIGH),
            _ => Alarm::default(),
        }
    }

    fn state_alarm(&self, index: usize) -> Alarm {
        let label = self.labels.get(index).filter(|_| self.is_state);
        let severity =
            STATE_SEVERITIES.iter().find(|(name, _)| label.is_some_and(|label| label.as_bytes() == name.as_bytes()));
        severity.map_or(Alarm::default(), |(_, severity)| Alarm { severity: *severity, status: Status::STATE })
    }

    /// The value for the CLU, or why it cannot be set.
    pub fn to_clu(&self, value: &Value, live: &LiveLimits) -> Result<Scalar, String> {
        let scalar = value.first().ok_or("a value is missing")?;
        match &self.kind {
            ShapeKind::Number => {
                let number = scalar.to_f64().map_err(|error| error.to_string())?;
                match self.range(live) {
                    _ if !number.is_finite() => Err(format!("{number} is not a finite number")),
                    Some((low, high)) if !(low..=high).contains(&number) => {
                        Err(format!("the value must be between {low} and {high}"))
                    }
                    _ => Ok(Scalar::F64(number)),
                }
            }
            ShapeKind::Text => Ok(Scalar::Text(scalar.to_text(None))),
            ShapeKind::Choice(values) => {
                let index = scalar.as_integer().and_then(|index| usize::try_from(index).ok());
                let value = index.and_then(|index| values.get(index));
                value.map(|value| Scalar::F64(*value)).ok_or(format!("the PV has {} states", values.len()))
            }
            ShapeKind::Count => scalar.to_f64().map(Scalar::F64).map_err(|error| error.to_string()),
            ShapeKind::Colour(_) => Err("a colour is set by its parts".into()),
        }
    }

    /// The parts of a colour that a client sets: red, green and blue, and white unless it stays.
    pub fn colour_to_clu(&self, value: Value) -> Result<Vec<u8>, String> {
        let ShapeKind::Colour(n_parts) = self.kind else { return Err("the PV has no colour".into()) };
        let Array::F64(parts) = value.to_kind(Kind::F64, None).map_err(|error| error.to_string())?.into_array() else {
            return Err("a colour has numbers".into());
        };
        if !(3..=n_parts).contains(&parts.len()) {
            return Err(format!("a colour of this LED has 3 to {n_parts} parts"));
        }
        if !parts.iter().all(|part| (0.0..=PART_MAX).contains(part)) {
            return Err(format!("the parts of a colour must be between 0 and {PART_MAX}"));
        }
        Ok(parts.iter().map(|part| part.round() as u8).collect())
    }
}

/// The number of a value; `true` is 1.
pub(super) fn number(scalar: &Scalar) -> Option<f64> {
    match scalar {
        Scalar::Bool(is_on) => Some(f64::from(u8::from(*is_on))),
        Scalar::Text(text) => text.to_str().trim().parse().ok(),
        scalar => scalar.to_f64().ok(),
    }
}

/// A text as clients see it: a URL, as that of an MQTT broker, has no password.
fn shown(text: Text) -> Text {
    let url = text.to_str();
    if url.contains(char::is_whitespace) {
        return text;
    }
    let without = without_password(&url);
    if without == *url { text } else { without.as_str().into() }
}

/// Whether a CLU that has confirmed nothing has taken a value.
pub(super) fn is_taken(sent: &Scalar, read: Option<&Scalar>) -> bool {
    match (sent, read) {
        (_, None) => false,
        (Scalar::Text(sent), Some(read)) => *sent == read.to_text(None),
        (sent, Some(read)) => match (number(sent), number(read)) {
            (Some(sent), Some(read)) => (sent - read).abs() <= PRINTED_STEP,
            _ => false,
        },
    }
}

pub(super) fn invalid(status: Status) -> Alarm {
    Alarm { severity: Severity::Invalid, status }
}

#[cfg(test)]
mod tests {
    use super::super::limits::LimitKind;
    use super::*;

    /// The object has none.
    const NO_LIMITS: LiveLimits = LiveLimits::NONE;

    fn feature(kind: InterfaceKind) -> FeatureInterface {
        FeatureInterface {
            index: 0,
            name: "Value".into(),
            kind,
            unit: "C".into(),
            can_get: true,
            can_set: true,
            range: Some((5.0, 30.0)),
            choices: Vec::new(),
        }
    }

    fn alarm_of(shape: &ValueShape, value: Option<Scalar>) -> (Severity, Status) {
        let (_, alarm) = shape.reading(value.as_ref(), shape.initial(), &NO_LIMITS);
        (alarm.severity, alarm.status)
    }

    #[test]
    fn a_number_has_unit_limits_and_the_alarm_of_its_range() {
        let shape = ValueShape::of_feature(&feature(InterfaceKind::Number), false);

        let meta = shape.meta("bath", true, &NO_LIMITS);
        assert_eq!((meta.units.to_str().as_ref(), meta.precision), ("C", 2));
        assert_eq!((meta.display, meta.control), (Limits { low: 5.0, high: 30.0 }, Limits { low: 5.0, high: 30.0 }));
        assert_eq!(shape.reading(Some(&Scalar::F64(21.5)), 0.0.into(), &NO_LIMITS), (21.5.into(), Alarm::default()));
        assert_eq!(alarm_of(&shape, Some(Scalar::F64(4.0))), (Severity::Minor, Status::LOW));
        assert_eq!(alarm_of(&shape, Some(Scalar::F64(31.0))), (Severity::Minor, Status::HIGH));
        assert_eq!(alarm_of(&shape, Some(Scalar::Text("warm".into()))), (Severity::Invalid, Status::READ));
        assert_eq!(alarm_of(&shape, None), (Severity::Invalid, Status::UDF));
        assert_eq!(shape.to_clu(&21.into(), &NO_LIMITS), Ok(Scalar::F64(21.0)));
        assert!(shape.to_clu(&31.into(), &NO_LIMITS).unwrap_err().contains("between 5 and 30"));
    }

    #[test]
    fn limits_of_the_object_replace_those_of_the_class_and_alarm_limits_are_major() {
        let shape = ValueShape::of_feature(&feature(InterfaceKind::Number), false);
        let mut live = LiveLimits::NONE;
        for (kind, limit) in
            [(LimitKind::Low, 10.0), (LimitKind::High, 20.0), (LimitKind::AlarmLow, 5.0), (LimitKind::AlarmHigh, 25.0)]
        {
            live.set(kind, Some(limit));
        }

        let meta = shape.meta("bath", true, &live);
        assert_eq!((meta.control, meta.alarm), (Limits { low: 10.0, high: 20.0 }, Limits { low: 5.0, high: 25.0 }));
        let alarms = [4.0, 9.0, 15.0, 21.0, 26.0].map(|number| shape.limit_alarm(number, &live));
        let expected = [Status::LOLO, Status::LOW, Status::NO_ALARM, Status::HIGH, Status::HIHI];
        assert_eq!(alarms.map(|alarm| alarm.status), expected);
        assert_eq!((alarms[0].severity, alarms[1].severity), (Severity::Major, Severity::Minor));
        assert!(shape.to_clu(&21.into(), &live).unwrap_err().contains("between 10 and 20"));
    }

    #[test]
    fn a_colour_has_three_or_four_parts() {
        let shape = ValueShape::colour(4);

        assert_eq!(shape.colour_to_clu(vec![255, 128, 0].into()), Ok(vec![255, 128, 0]));
        assert_eq!(shape.colour_to_clu(vec![1.4, 0.0, 0.0, 9.6].into()), Ok(vec![1, 0, 0, 10]));
        for wrong in [vec![1, 2], vec![0; 5], vec![0, 0, 256], vec![-1, 0, 0]] {
            assert!(shape.colour_to_clu(wrong.clone().into()).is_err(), "{wrong:?}");
        }
        assert!(ValueShape::colour(3).colour_to_clu(vec![0; 4].into()).is_err());
    }

    #[test]
    fn states_are_mapped_to_their_sparse_values() {
        let choices =
            vec![(0.0, "System starting".to_string()), (1.0, "System ok".into()), (4.0, "Emergency mode".into())];
        let shape = ValueShape::of_feature(&FeatureInterface { choices, ..feature(InterfaceKind::Number) }, true);

        let (value, alarm) = shape.reading(Some(&Scalar::F64(4.0)), shape.initial(), &NO_LIMITS);
        assert_eq!((value, alarm.severity), (Value::Scalar(Scalar::Enum(2)), Severity::Major));
        assert_eq!(alarm_of(&shape, Some(Scalar::F64(1.0))), (Severity::None, Status::NO_ALARM));
        assert_eq!(alarm_of(&shape, Some(Scalar::F64(3.0))), (Severity::Invalid, Status::STATE));
        assert_eq!(shape.to_clu(&Value::Scalar(Scalar::Enum(2)), &NO_LIMITS), Ok(Scalar::F64(4.0)));
        assert!(shape.to_clu(&Value::Scalar(Scalar::Enum(3)), &NO_LIMITS).is_err());
    }

    /// 3 is the emergency mode of a CLU with Z-Wave, and 2 no error.
    #[test]
    fn the_alarm_of_a_state_depends_on_its_name() {
        let choices = vec![(2.0, "Telnet logging mode".to_string()), (3.0, "Emergency mode".into())];
        let shape = ValueShape::of_feature(&FeatureInterface { choices, ..feature(InterfaceKind::Number) }, true);

        assert_eq!(alarm_of(&shape, Some(Scalar::F64(2.0))), (Severity::None, Status::NO_ALARM));
        assert_eq!(alarm_of(&shape, Some(Scalar::F64(3.0))), (Severity::Major, Status::STATE));
    }

    /// A CLU on the network replies with its URL as it was set.
    #[test]
    fn a_url_is_shown_without_its_password() {
        let shape = ValueShape::of_feature(&feature(InterfaceKind::Text), false);

        for (text, expected) in
            [("ssl://me:secret@host:8883", "ssl://me:*@host:8883"), ("see http://a:b or c@d", "see http://a:b or c@d")]
        {
            let (value, _) = shape.reading(Some(&Scalar::Text(text.into())), shape.initial(), &NO_LIMITS);
            assert_eq!(value, expected.into());
        }
    }

    #[test]
    fn a_switch_accepts_numbers_and_booleans() {
        let shape = ValueShape::of_feature(&feature(InterfaceKind::Switch), false);

        for on in [Scalar::Bool(true), Scalar::F64(1.0), Scalar::Text("1".into())] {
            assert_eq!(
                shape.reading(Some(&on), shape.initial(), &NO_LIMITS).0,
                Value::Scalar(Scalar::Enum(1)),
                "{on:?}"
            );
        }
    }

    #[test]
    fn a_value_is_taken_if_it_is_read_back_as_it_is_printed() {
        assert!(is_taken(&Scalar::F64(21.456), Some(&Scalar::F64(21.46))));
        assert!(!is_taken(&Scalar::F64(21.0), Some(&Scalar::F64(20.0))));
        assert!(is_taken(&Scalar::Text("a".into()), Some(&Scalar::Text("a".into()))));
        assert!(!is_taken(&Scalar::F64(1.0), None));
    }
}
