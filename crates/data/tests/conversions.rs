//! Conversions between numbers and text and between kinds, at the values where the rule changes.

use fodo_data::{
    Array, ConvertError, Kind, Meta, Scalar, Text, Value, format_f32, format_f64, parse_f64, parse_i64, parse_u64,
};

fn number(text: &str) -> Result<f64, ConvertError> {
    parse_f64(&Text::from(text))
}

#[test]
fn a_number_switches_to_scientific_notation_only_beyond_the_limit() {
    assert_eq!(format_f64(1e7, 6), "10000000.000000");
    assert_eq!(format_f64(1.000_000_1e7, 6), "10000001.000");
    assert_eq!(format_f64(1e16, 2), "10000000000000000.00");
    assert_eq!(format_f64(1.5, 8), "1.50000000");
    assert_eq!(format_f64(1.5, 9), " 1.500000000e+00");
}

#[test]
fn a_32_bit_infinity_is_padded_to_one_column_less() {
    assert_eq!(format_f32(1.5, 2), "1.50");
    assert_eq!(format_f64(f64::INFINITY, 2), "      inf");
    assert_eq!(format_f32(f32::INFINITY, 2), "     inf");
}

#[test]
fn infinity_keeps_its_sign() {
    assert_eq!(number("inf"), Ok(f64::INFINITY));
    assert_eq!(number("-inf"), Ok(f64::NEG_INFINITY));
    assert_eq!(number("+inf"), Ok(f64::INFINITY));
}

#[test]
fn a_hexadecimal_number_keeps_its_sign() {
    assert_eq!(number("-0x10"), Ok(-16.0));
    assert_eq!(number("0X1f"), Ok(31.0));
}

#[test]
fn an_exponent_without_digits_is_ignored() {
    assert_eq!(number("2e3"), Ok(2000.0));
    assert_eq!(number("2E-3"), Ok(0.002));
    assert_eq!(number("2e+3mm"), Ok(2000.0));
    assert_eq!(number("2e"), Ok(2.0));
    assert_eq!(number("2e+"), Ok(2.0));
    assert_eq!(number("2 e3"), Ok(2.0));
    assert_eq!(number("1.25e1.5"), Ok(12.5));
}

#[test]
fn a_hexadecimal_number_may_have_one_point_and_a_binary_exponent() {
    assert_eq!(number("0x1.8"), Ok(1.5));
    assert_eq!(number("0x1.8.8"), Ok(1.5));
    assert_eq!(number("0x1.88"), Ok(1.53125));
    assert_eq!(number("0x3p2"), Ok(12.0));
    assert_eq!(number("0x3p-1"), Ok(1.5));
    assert_eq!(number("0x3P+1 mm"), Ok(6.0));
}

#[test]
fn the_largest_integers_are_parsed_and_the_next_is_out_of_range() {
    let out_of_range = |text: &str| ConvertError::OutOfRange(text.into());

    assert_eq!(parse_i64(&"9223372036854775807".into()), Ok(i64::MAX));
    assert_eq!(parse_i64(&"-9223372036854775808".into()), Ok(i64::MIN));
    assert_eq!(parse_i64(&"9223372036854775808".into()), Err(out_of_range("9223372036854775808")));
    assert_eq!(parse_u64(&"18446744073709551615".into()), Ok(u64::MAX));
    assert_eq!(parse_u64(&"18446744073709551616".into()), Err(out_of_range("18446744073709551616")));
    assert_eq!(parse_u64(&"-2".into()), Ok(u64::MAX - 1));
    assert_eq!(parse_u64(&"0".into()), Ok(0));
    assert_eq!(parse_i64(&" 0X7fmm".into()), Ok(127));
}

#[test]
fn a_scalar_prints_with_its_precision_or_its_label() {
    let meta = Meta { precision: 2, labels: vec!["OFF".into(), "ON".into()], ..Meta::default() };
    let other = Meta { label_for_unlabelled: Some("Illegal".into()), ..meta.clone() };

    assert_eq!(Scalar::F64(1.5).to_text(Some(&meta)), "1.50".into());
    assert_eq!(Scalar::F32(1.5).to_text(Some(&meta)), "1.50".into());
    assert_eq!(Scalar::F64(1.5).to_text(None), "2".into());
    assert_eq!(Scalar::Enum(1).to_text(Some(&meta)), "ON".into());
    assert_eq!(Scalar::Enum(2).to_text(Some(&meta)), "2".into());
    assert_eq!(Scalar::Enum(2).to_text(Some(&other)), "Illegal".into());
    assert_eq!(Scalar::I64(-3).to_text(None), "-3".into());
    assert_eq!(Scalar::U64(u64::MAX).to_text(None), "18446744073709551615".into());
    assert_eq!(Scalar::Text("as it is".into()).to_text(None), "as it is".into());
}

/// Converts a number of every kind to every kind: values in range are kept, integers wrap, fractions are truncated.
#[test]
fn every_numeric_type_converts_to_every_other() {
    let kinds =
        [Kind::I8, Kind::U8, Kind::I16, Kind::U16, Kind::I32, Kind::U32, Kind::I64, Kind::U64, Kind::F32, Kind::F64];
    let numbers = |of: f64| {
        [
            Scalar::I8(of as i8),
            Scalar::U8(of as u8),
            Scalar::I16(of as i16),
            Scalar::U16(of as u16),
            Scalar::I32(of as i32),
            Scalar::U32(of as u32),
            Scalar::I64(of as i64),
            Scalar::U64(of as u64),
            Scalar::F32(of as f32),
            Scalar::F64(of),
        ]
    };

    for number in numbers(100.0) {
        let converted = kinds.map(|kind| number.to_kind(kind, None).unwrap());
        assert_eq!(converted, numbers(100.0), "{number:?}");
        assert_eq!(number.to_kind(Kind::Enum, None), Ok(Scalar::Enum(100)));
        assert_eq!(number.to_f64(), Ok(100.0));
    }
    assert_eq!(Scalar::I32(-1).to_kind(Kind::U8, None), Ok(Scalar::U8(255)));
    assert_eq!(Scalar::U32(u32::MAX).to_kind(Kind::I32, None), Ok(Scalar::I32(-1)));
    assert_eq!(Scalar::I64(-1).to_kind(Kind::U64, None), Ok(Scalar::U64(u64::MAX)));
}

#[test]
fn conversion_to_an_integer_truncates_towards_zero() {
    let cut = |number: f64, kind| Scalar::F64(number).to_kind(kind, None).unwrap();

    assert_eq!(cut(2.9, Kind::U32), Scalar::U32(2));
    assert_eq!(cut(-2.9, Kind::U32), Scalar::U32(u32::MAX - 1));
    assert_eq!(cut(2.9, Kind::U64), Scalar::U64(2));
    assert_eq!(cut(-2.9, Kind::U64), Scalar::U64(u64::MAX - 1));
    assert_eq!(cut(1.6e19, Kind::U64), Scalar::U64(16_000_000_000_000_000_000));
    assert_eq!(cut(0.1, Kind::F32), Scalar::F32(0.1));
    assert_eq!(Scalar::F32(2.9).to_kind(Kind::I16, None), Ok(Scalar::I16(2)));
    assert_eq!(Scalar::F32(2.9).to_kind(Kind::F64, None), Ok(Scalar::F64(f64::from(2.9_f32))));
    assert_eq!(Scalar::F32(-1.0).to_kind(Kind::U8, None), Ok(Scalar::U8(255)));
}

#[test]
fn a_text_converts_to_every_type_that_can_hold_its_number() {
    let converted = |kind| Scalar::Text("100".into()).to_kind(kind, None).unwrap();

    assert_eq!(converted(Kind::I8), Scalar::I8(100));
    assert_eq!(converted(Kind::U64), Scalar::U64(100));
    assert_eq!(converted(Kind::I64), Scalar::I64(100));
    assert_eq!(converted(Kind::F32), Scalar::F32(100.0));
    assert_eq!(converted(Kind::Enum), Scalar::Enum(100));
    assert_eq!(Scalar::Text("128".into()).to_kind(Kind::I8, None), Err(ConvertError::OutOfRange("128".into())));
}

#[test]
fn an_array_converts_element_by_element() {
    let array = Value::from(vec![1.9, -1.9]);

    assert_eq!(array.to_kind(Kind::I32, None), Ok(Value::from(vec![1, -1])));
    assert_eq!(array.to_kind(Kind::F64, None), Ok(array.clone()));
    assert_eq!(array.to_f64(), Ok(1.9));
    assert_eq!(Value::Array(Array::empty(Kind::F64)).to_f64(), Err(ConvertError::Empty));
    let texts = Value::from(vec![Text::from("1"), Text::from("x")]);
    assert_eq!(texts.to_kind(Kind::I16, None), Err(ConvertError::NotANumber("x".into())));
}

#[test]
fn an_error_names_the_text_that_caused_it() {
    let errors = [
        ConvertError::NotANumber("abc".into()),
        ConvertError::OutOfRange("999".into()),
        ConvertError::NoSuchState("MAYBE".into()),
    ];

    for (error, text) in errors.iter().zip(["abc", "999", "MAYBE"]) {
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(!ConvertError::Empty.to_string().is_empty());
}
