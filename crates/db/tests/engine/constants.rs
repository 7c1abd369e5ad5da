//! Constants of links. Source of the expected values: softIoc 7.0.10.

use fodo_data::{Text, Value};

use super::TestIoc;

#[test]
fn a_constant_is_parsed_like_a_put_to_the_field() {
    for (constant, integer, real, text) in [
        ("010", "8", 10.0, "010"),
        ("08", "0", 8.0, "08"),
        ("1e3", "1", 1000.0, "1e3"),
        ("-0x10", "-16", -16.0, "-0x10"),
        ("2.7", "2", 2.7, "2.7"),
        ("007.5", "7", 7.5, "007.5"),
        ("3000000000", "0", 3e9, "3000000000"),
        (".5", "0", 0.5, ".5"),
        ("[2.7]", "2", 2.7, "2.700000"),
        ("[3000000000]", "-1294967296", 3e9, "3000000000"),
        ("[0x10, 2]", "16", 16.0, "16"),
        ("['5']", "0", 0.0, "5"),
    ] {
        let ioc = TestIoc::new(&format!(
            r#"record(longin, in) {{ field(INP, "{constant}") }} record(longout, out) {{ field(DOL, "{constant}") }}
            record(ai, real) {{ field(INP, "{constant}") }} record(calc, calc) {{ field(INPA, "{constant}") }}
            record(stringin, text) {{ field(INP, "{constant}") }}"#
        ));

        assert_eq!((&*ioc.text("in"), &*ioc.text("out")), (integer, integer), "{constant}");
        assert_eq!((ioc.number("real"), ioc.number("calc.A"), &*ioc.text("text")), (real, real, text), "{constant}");
    }
}

#[test]
fn states_and_selections_parse_constants_as_unsigned_integers() {
    for (constant, state, bits) in
        [("010", 8.0, 8.0), ("1e3", 1.0, 1000.0), ("-1", 65535.0, -1.0), ("70000", 0.0, 70000.0)]
    {
        let ioc = TestIoc::new(&format!(
            "record(mbbi, in) {{ field(INP, {constant}) }} record(mbbo, out) {{ field(DOL, {constant}) }}
             record(sel, sel) {{ field(NVL, {constant}) }} record(mbbiDirect, bits) {{ field(INP, {constant}) }}"
        ));

        assert_eq!((ioc.number("in"), ioc.number("out"), ioc.number("sel.SELN")), (state, state, state), "{constant}");
        assert_eq!(ioc.number("bits"), bits, "{constant}");
    }
}

#[test]
fn arrays_keep_all_digits_of_integers_and_read_a_plain_number_as_json() {
    let array = |kind: &str, constant: &str| {
        let ioc = TestIoc::new(&format!(
            r#"record(waveform, w) {{ field(FTVL, {kind}) field(NELM, 4) field(INP, "{constant}") }}
            record(aao, o) {{ field(FTVL, {kind}) field(NELM, 4) field(DOL, "{constant}") field(OMSL, closed_loop) }}
            record(aao, s) {{ field(FTVL, {kind}) field(NELM, 4) field(DOL, "{constant}") }}"#
        ));
        let value = |name: &str| ioc.database.read(ioc.field(name)).value;
        assert_eq!((value("w"), value("s").len()), (value("o"), 0), "{kind} {constant}");
        value("w")
    };
    let texts = |texts: &[&str]| Value::from(texts.iter().map(|text| (*text).into()).collect::<Vec<Text>>());

    assert_eq!(array("INT64", "[9007199254740993]"), vec![9_007_199_254_740_993_i64].into());
    assert_eq!(array("LONG", "[3000000000, 2.7]"), vec![-1_294_967_296, 2].into());
    assert_eq!(array("LONG", "[3000000000]"), vec![-1_294_967_296].into());
    assert_eq!(array("LONG", "1e3"), vec![1000].into());
    assert_eq!(array("STRING", "[1, 2.5, 'x']"), texts(&["1", "2.500000", "x"]));
    assert!(array("LONG", "010").is_empty());
    assert!(array("LONG", "['5']").is_empty());
}
