//! Alarms, time stamps, texts and values.

use std::time::{Duration, UNIX_EPOCH};

use fodo_data::{Array, EventMask, Kind, Reading, Scalar, Severity, Text, TimeStamp, Value};

#[test]
fn severities_have_their_epics_numbers_and_names() {
    let severities = [Severity::None, Severity::Minor, Severity::Major, Severity::Invalid];

    for (code, severity) in (0..).zip(severities) {
        assert_eq!(Severity::from_code(code), severity);
        assert_eq!(severity.code(), code);
    }
    assert_eq!(Severity::from_code(4), Severity::Invalid);
    assert_eq!(severities.map(|severity| severity.to_string()), ["NO_ALARM", "MINOR", "MAJOR", "INVALID"]);
}

#[test]
fn a_duration_carries_nanoseconds_into_seconds() {
    let stamp = TimeStamp { unix_s: 10, nanos: 600_000_000 };

    assert_eq!(stamp + Duration::from_millis(399), TimeStamp { unix_s: 10, nanos: 999_000_000 });
    assert_eq!(stamp + Duration::from_millis(400), TimeStamp { unix_s: 11, nanos: 0 });
    assert_eq!(stamp + Duration::from_millis(2500), TimeStamp { unix_s: 13, nanos: 100_000_000 });
}

#[test]
fn system_time_converts_before_and_after_1970() {
    assert_eq!(TimeStamp::from(UNIX_EPOCH + Duration::new(3, 7)), TimeStamp { unix_s: 3, nanos: 7 });
    assert_eq!(TimeStamp::from(UNIX_EPOCH - Duration::from_secs(3)), TimeStamp { unix_s: -3, nanos: 0 });
}

#[test]
fn an_array_slice_has_the_expected_length_and_elements() {
    let array = Array::from(Scalar::I32(5));
    let three = Value::from(vec![1, 2, 3]).into_array();

    assert_eq!((array.len(), array.is_empty(), array.kind()), (1, false, Kind::I32));
    assert!(Array::empty(Kind::Text).is_empty());
    assert_eq!(three.scalar(2), Some(Scalar::I32(3)));
    assert_eq!(three.scalar(3), None);
    assert_eq!(three.truncated(3), three);
    assert_eq!(three.part(1, 2), Value::from(vec![2, 3]).into_array());
    assert_eq!(three.strided(1, 0, 2), Value::from(vec![2, 3]).into_array());
}

#[test]
fn the_first_element_of_a_value_is_its_scalar_or_first_array_element() {
    assert_eq!(Value::from(1.5).first(), Some(Scalar::F64(1.5)));
    assert_eq!(Value::from(vec![2.5, 3.5]).first(), Some(Scalar::F64(2.5)));
    assert_eq!(Value::Array(Array::empty(Kind::F64)).first(), None);
    assert_eq!(Value::from(1.5).len(), 1);
    assert!(!Value::from(1.5).is_empty());
}

#[test]
fn the_size_of_a_value_is_the_size_of_its_elements() {
    assert_eq!(Value::from(vec![1_i8, 2]).n_bytes(), 2);
    assert_eq!(Value::from(vec![1_i16, 2, 3]).n_bytes(), 6);
    assert_eq!(Value::from(vec![1_f32, 2.0]).n_bytes(), 8);
    assert_eq!(Value::from(1.0).n_bytes(), 8);
    assert_eq!(Value::from("four").n_bytes(), 4);
    assert_eq!(Value::from(vec![Text::from("a"), Text::from("bcd")]).n_bytes(), 2 * size_of::<Text>() + 4);
}

#[test]
fn a_character_array_converts_to_and_from_a_long_string() {
    let characters = Value::characters("mm");

    assert_eq!(characters, Value::from(vec![b'm', b'm', 0]));
    assert_eq!(characters.long_text(), Some("mm".into()));
    assert_eq!(Value::from(vec![109_i8, 0]).long_text(), Some("m".into()));
    assert_eq!(Value::from(109_u8).long_text(), Some("m".into()));
    assert_eq!(Value::from(109_i8).long_text(), Some("m".into()));
    assert_eq!(Value::from(109_i32).long_text(), None);
}

#[test]
fn a_text_supports_padding_and_reports_its_length() {
    let text = Text::from("mm");

    assert_eq!(format!("{text:>4}|{text:?}"), "  mm|\"mm\"");
    assert_eq!((text.len(), text.is_empty()), (2, false));
    assert!(Text::from(String::new()).is_empty());
}

#[test]
fn event_masks_intersect_when_they_share_a_kind() {
    let mask = EventMask::VALUE | EventMask::ALARM;
    let mut with_log = EventMask::NONE;
    with_log |= EventMask::LOG;

    assert!(mask.meets(EventMask::ALARM | EventMask::PROPERTY));
    assert!(!mask.meets(with_log));
    assert!(with_log.meets(EventMask::LOG));
    assert_eq!(mask | EventMask::ALARM, mask);
    with_log |= EventMask::LOG;
    assert_eq!(with_log, EventMask::LOG);
    assert!(EventMask::NONE.is_empty() && !mask.is_empty());
}

#[test]
fn a_reading_fits_a_cache_line() {
    assert!(size_of::<Reading>() <= 64, "{}", size_of::<Reading>());
}

#[test]
fn a_boolean_is_0_or_1_as_a_number_and_a_word_as_text() {
    let to = |scalar: Scalar, kind| scalar.to_kind(kind, None).ok();

    assert_eq!(to(Scalar::Bool(true), Kind::F64), Some(Scalar::F64(1.0)));
    assert_eq!(to(Scalar::Bool(false), Kind::U8), Some(Scalar::U8(0)));
    assert_eq!(to(Scalar::Bool(true), Kind::Text), Some(Scalar::Text("true".into())));
    assert_eq!(to(Scalar::I32(256), Kind::Bool), Some(Scalar::Bool(true)), "not only the lowest bits");
    assert_eq!(to(Scalar::F64(0.5), Kind::Bool), Some(Scalar::Bool(true)));
    assert_eq!(to(Scalar::Text("false".into()), Kind::Bool), Some(Scalar::Bool(false)));
    assert_eq!(to(Scalar::Text("2".into()), Kind::Bool), Some(Scalar::Bool(true)));
    assert_eq!(to(Scalar::Text("yes".into()), Kind::Bool), None);
    assert_eq!(Value::from(vec![true, false]).to_kind(Kind::I16, None), Ok(Value::from(vec![1_i16, 0])));
}
