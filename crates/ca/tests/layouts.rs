//! Payloads of types with metadata, byte by byte, as the structures of EPICS Base's `db_access.h` lay them out.
#![expect(clippy::unwrap_used, reason = "a panic reports the failure")]

use fodo_ca::dbr::{AttributeLevel, DbrType, decode, encode};
use fodo_data::{AcknowledgeState, Alarm, Kind, Limits, Meta, Reading, Scalar, Severity, Status, Text, Value};

/// status HIGH (4), severity MINOR (1)
const ALARM: [u8; 4] = [0, 4, 0, 1];

fn reading(value: Value, meta: Meta) -> Reading {
    let alarm = Alarm { status: Status::HIGH, severity: Severity::Minor };
    Reading { alarm, meta: Some(meta.into()), ..Reading::bare(value) }
}

fn limits(low: f64, high: f64) -> Limits {
    Limits { low, high }
}

fn encoded(dbr: DbrType, reading: &Reading) -> Vec<u8> {
    let mut payload = Vec::new();
    encode(dbr, 1, reading, &mut payload).unwrap();
    payload
}

#[test]
fn enum_metadata_always_has_sixteen_label_slots() {
    for n_labels in [0, 1, 2, 15, 16, 17] {
        let labels: Vec<Text> = (0..n_labels).map(|index| format!("state {index}").into()).collect();
        let kept = &labels[..labels.len().min(16)];
        let reading = reading(Value::Scalar(Scalar::Enum(1)), Meta { labels: labels.clone(), ..Meta::default() });

        let mut expected = ALARM.to_vec();
        expected.extend((kept.len() as u16).to_be_bytes());
        for place in 0..16 {
            let start = expected.len();
            expected.extend(kept.get(place).map(Text::as_bytes).unwrap_or_default());
            expected.resize(start + 26, 0);
        }
        expected.extend([0, 1]);

        for level in [AttributeLevel::Graphic, AttributeLevel::Control] {
            let payload = encoded(DbrType::of(Kind::Enum, level), &reading);
            assert_eq!(payload, expected, "{n_labels} labels");
            let decoded = decode(DbrType::of(Kind::Enum, level), 1, &payload).unwrap();
            assert_eq!(decoded.meta.unwrap().labels, kept);
            assert_eq!(decoded.value, reading.value);
        }
    }
}

#[test]
fn a_long_label_is_truncated_and_nul_terminated() {
    let labels = vec!["a label of more than twenty-six characters".into(), "b".into()];
    let reading = reading(Value::Scalar(Scalar::Enum(0)), Meta { labels, ..Meta::default() });

    let payload = encoded(DbrType::of(Kind::Enum, AttributeLevel::Graphic), &reading);

    assert_eq!(&payload[6..33], b"a label of more than twen\0b");
}

/// Units, then the limits in the order upper and lower display, alarm high, warning high, warning low, alarm low,
/// upper and lower control; a precision precedes the units of floating point types.
#[test]
fn limits_are_encoded_in_protocol_order_with_the_type_of_the_value() {
    let meta = Meta {
        units: "mm".into(),
        precision: 3,
        display: limits(-10.0, 10.0),
        alarm: limits(-9.0, 9.0),
        warning: limits(-8.0, 8.0),
        control: limits(-7.0, 7.0),
        ..Meta::default()
    };
    let numbers: [i8; 8] = [10, -10, 9, 8, -8, -9, 7, -7];
    type Bytes = fn(i8) -> Vec<u8>;
    let kinds: [(Scalar, Bytes, usize); 5] = [
        (Scalar::I16(1), |n| i16::from(n).to_be_bytes().to_vec(), 0),
        (Scalar::U8(1), |n| vec![n as u8], 1),
        (Scalar::I32(1), |n| i32::from(n).to_be_bytes().to_vec(), 0),
        (Scalar::F32(1.0), |n| f32::from(n).to_be_bytes().to_vec(), 0),
        (Scalar::F64(1.0), |n| f64::from(n).to_be_bytes().to_vec(), 0),
    ];

    for (value, bytes, n_padding) in kinds {
        let is_real = matches!(value, Scalar::F32(_) | Scalar::F64(_));
        for (level, n_limits) in [(AttributeLevel::Graphic, 6), (AttributeLevel::Control, 8)] {
            let dbr = DbrType::of(value.kind(), level);
            let mut expected = ALARM.to_vec();
            if is_real {
                expected.extend([0, 3, 0, 0]);
            }
            expected.extend(b"mm\0\0\0\0\0\0");
            expected.extend(numbers[..n_limits].iter().flat_map(|&number| bytes(number)));
            expected.resize(expected.len() + n_padding, 0);
            expected.extend(bytes(1));
            expected.resize(expected.len().next_multiple_of(8), 0);

            let payload = encoded(dbr, &reading(Value::Scalar(value.clone()), meta.clone()));

            assert_eq!(payload, expected, "{dbr}");
            let decoded = decode(dbr, 1, &payload).unwrap();
            assert_eq!(decoded.value, Value::Scalar(value.clone()));
            let back = decoded.meta.unwrap();
            assert_eq!((&back.units, back.precision), (&meta.units, if is_real { 3 } else { 0 }), "{dbr}");
            if !matches!(value, Scalar::U8(_)) {
                assert_eq!((back.display, back.alarm, back.warning), (meta.display, meta.alarm, meta.warning), "{dbr}");
                assert_eq!(
                    back.control,
                    if level == AttributeLevel::Control { meta.control } else { Limits::default() },
                    "{dbr}"
                );
            }
        }
    }
}

#[test]
fn long_units_are_truncated_and_nul_terminated() {
    let meta = Meta { units: "millimetres".into(), ..Meta::default() };

    let payload = encoded(DbrType::of(Kind::I32, AttributeLevel::Graphic), &reading(Value::from(1), meta));

    assert_eq!(&payload[4..12], b"millime\0");
}

#[test]
fn the_acknowledge_state_is_encoded_between_alarm_and_text() {
    let acknowledge = Some(AcknowledgeState { transient: true, severity: Severity::Major });
    let reading = reading(Value::from("on"), Meta { acknowledge, ..Meta::default() });

    let payload = encoded(DbrType::STSACK_STRING, &reading);

    assert_eq!(&payload[..12], [0, 4, 0, 1, 0, 1, 0, 2, b'o', b'n', 0, 0]);
    assert_eq!(payload.len(), 48);
    assert_eq!(decode(DbrType::STSACK_STRING, 1, &payload).unwrap().meta.unwrap().acknowledge, acknowledge);
}

#[test]
fn every_dbr_type_prints_with_its_protocol_name() {
    let names = ["DBR_STRING", "DBR_STS_SHORT", "DBR_TIME_FLOAT", "DBR_GR_ENUM", "DBR_CTRL_CHAR", "DBR_CLASS_NAME"];

    assert_eq!([0, 8, 16, 24, 32, 38].map(|number| DbrType(number).to_string()), names);
    assert_eq!(DbrType(39).to_string(), "39");
}

#[test]
fn every_element_type_is_encoded_in_big_endian_order() {
    let sent = |value: Value| {
        let mut payload = Vec::new();
        let dbr = fodo_ca::dbr::put_type(&value);
        encode(dbr, 0, &Reading::bare(value), &mut payload).unwrap();
        (dbr, payload)
    };
    let padded = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };

    assert_eq!(sent(Value::from(vec![-2_i8, 3])), (DbrType(4), padded(&[254, 3])));
    assert_eq!(sent(Value::from(vec![2_u8, 3])), (DbrType(4), padded(&[2, 3])));
    assert_eq!(sent(Value::from(vec![-2_i16, 3])), (DbrType(1), padded(&[255, 254, 0, 3])));
    assert_eq!(sent(Value::from(vec![-2_i32, 3])), (DbrType(5), padded(&[255, 255, 255, 254, 0, 0, 0, 3])));
    assert_eq!(sent(Value::from(vec![40_000_u16])), (DbrType(5), padded(&40_000_i32.to_be_bytes())));
    assert_eq!(sent(Value::from(vec![1.5_f32])), (DbrType(2), padded(&1.5_f32.to_be_bytes())));
    assert_eq!(sent(Value::from(vec![1.5_f64])), (DbrType(6), padded(&1.5_f64.to_be_bytes())));
    assert_eq!(sent(Value::from(vec![u32::MAX])), (DbrType(6), padded(&4_294_967_295_f64.to_be_bytes())));
    assert_eq!(sent(Value::from(vec![7_i64])), (DbrType(6), padded(&7_f64.to_be_bytes())));
    let mut two_texts = b"on".to_vec();
    two_texts.resize(40, 0);
    two_texts.extend(b"off");
    two_texts.resize(80, 0);
    assert_eq!(sent(Value::from(vec![Text::from("on"), Text::from("off")])), (DbrType(0), two_texts));
}
