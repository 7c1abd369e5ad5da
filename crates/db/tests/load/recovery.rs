//! Errors in a file: why a value is rejected, and what is loaded, reported and counted after an error.

use super::*;

#[test]
fn statements_about_an_omitted_record_are_counted_but_not_reported_again() {
    let mut loader = Loader::default();
    let text = "record(nope, a) {}\nrecord(\"*\", a) { field(EGU, mm) }\nalias(a, b)\nrecord(\"*\", c) {}\n";

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [1, 4]);
    let omitted = loader.omitted();
    assert_eq!((omitted.n_records, omitted.n_fields, omitted.n_others), (2, 0, 2));
}

#[test]
fn an_alias_may_be_repeated_for_its_record_but_not_given_to_another() {
    let errors =
        load_errors("record(ai, a) { alias(b) alias(b) }\nalias(a, b)\nalias(a, a)\nrecord(ai, c) { alias(b) }\n", "");

    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("file.db:4:23: \"b\" is already the name of a record"), "{errors:?}");
}

#[test]
fn an_unexpected_word_in_a_record_is_explained_by_a_missing_bracket_or_a_similar_word() {
    let message = |text: &str| load_errors(text, "").remove(0).lines().next().unwrap().to_owned();

    for (text, hint) in [
        ("record(ai, a) { field(PREC, 1)\nrecord(ai, b) {}\n", "; the '}' of \"a\" is missing"),
        ("record(ai, a) { field(PREC, 1)\n", "; the '}' of \"a\" is missing"),
        ("record(ai, a) { fild(PREC, 1) }\n", "; did you mean \"field\"?"),
        ("record(ai, a) { (PREC, 1) }\n", "expected field, info, alias or '}'"),
    ] {
        assert!(message(text).ends_with(hint), "{}", message(text));
    }
}

#[test]
fn after_an_error_loading_continues_at_the_next_statement() {
    for text in [
        "record(ai a) {}\nrecord(ai, b) {}\n",
        "record(ai a) {}\n  record(ai, b) {}\n",
        "record(ai a) {}\nalais(b, c)\nrecord(ai, b) {}\n",
        "record(ai, a) { field(PREC 1) field(EGU, mm) }\nrecord(ai, b) {}\n",
    ] {
        let mut loader = Loader::with_places();
        let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

        let n_misspelt = text.matches("alais").count();
        assert_eq!(errors.len(), 1 + n_misspelt, "{errors:?}");
        assert!(loader.finish().unwrap().field("b").is_some(), "{text}");
    }
}

#[test]
fn an_error_within_a_value_points_at_its_character() {
    let places = |text: &str| {
        load_errors(text, "").iter().map(|error| error.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };

    assert_eq!(places("record(calc, c) { field(CALC, \"A+*B\") }\n"), ["file.db:1:34"]);
    assert_eq!(places("record(calc, c) { field(CALC, \"A+B\") field(PREC, x) }\n"), ["file.db:1:50"]);
}

#[test]
fn typographic_quotes_are_reported_as_such_at_their_place() {
    for quote in ['\u{2018}', '\u{201c}', '\u{201f}', '\u{ab}', '\u{bb}'] {
        let errors = load_errors(&format!("record(ai, a) {{ field(EGU, {quote}mm{quote}) }}\n"), "");
        let expected = format!("file.db:1:28: {quote} is a typographic quote; use plain double quotes (\")");
        assert_eq!(errors[0].lines().next(), Some(expected.as_str()));
    }
}

#[test]
fn a_json_value_may_be_nested_sixty_four_times() {
    let nested = |n: usize| format!("record(ai, a) {{ info(x, {}1{}) }}\n", "[".repeat(n), "]".repeat(n));

    assert_eq!(load_errors(&nested(64), ""), Vec::<String>::new());
    assert!(load_errors(&nested(65), "")[0].contains("brackets are nested too deeply"));
    assert!(load_errors(&nested(66), "")[0].contains("brackets are nested too deeply"));
}

#[test]
fn at_most_a_hundred_errors_of_a_file_are_reported_and_all_are_counted() {
    let mut loader = Loader::default();
    let text = "record(nope, x) {}\n".repeat(150);

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    assert_eq!((errors.len(), loader.omitted().n_records), (100, 150));
}

#[test]
fn a_value_that_its_field_cannot_have_is_rejected_with_the_reason() {
    for (field, value, reason) in [
        ("lsi, r) { field(VAL", "x", "VAL cannot be set in a file"),
        ("waveform, r) { field(VAL", "1", "VAL cannot be set in a file"),
        ("ai, r) { field(EGU", "0123456789abcdef", "EGU can hold 15 bytes, the value has 16"),
        ("longin, r) { field(VAL", "1.5", "VAL cannot be \"1.5\": expected a whole number"),
        ("ai, r) { field(PREC", "65536", "PREC cannot be \"65536\": it must be between -32768 and 32767"),
        ("ai, r) { field(HIGH", "1,5", "HIGH cannot be \"1,5\": expected a number; did you mean \"1.5\"?"),
        ("ai, r) { field(HIGH", "x", "HIGH cannot be \"x\": expected a number"),
        ("bo, r) { field(OMSL", "2", "OMSL has no choice \"2\"; there are \"supervisory\", \"closed_loop\""),
    ] {
        let errors = load_errors(&format!("record({field}, \"{value}\") }}"), "");

        let first = errors[0].lines().next().unwrap();
        assert!(first.ends_with(&format!(": {reason}")), "{first}");
    }
    assert_eq!(load_errors("record(ai, r) { field(EGU, \"0123456789abcde\") }", ""), [""; 0]);
}

#[test]
fn an_invalid_option_of_a_pva_link_is_reported_at_its_place() {
    let errors = load_errors(
        "record(ai, a) {\n  field(INP, {pva:{\n    pv: \"$(P)x\",  Q : 0\n  }})\n}\n\
         record(ai, b) { field(INP, \"{pva:{pv:'x',prco:1}}\") }\n\
         record(ai, c) { field(FLNK, {pva:{pv:\"x\", defer:true}}) }\n\
         record(ai, d) { field(INP, {pva:{pv:\"x\",\n time true}}) }\n",
        "P=longer:",
    );

    let placed: Vec<&str> = errors.iter().filter_map(|error| error.lines().next()).collect();
    assert_eq!(placed.len(), 4, "{errors:?}");
    for (error, place, reason) in [
        (
            placed[0],
            "file.db:3:19: INP cannot be ",
            "the option \"Q\" of a pva link must be a number between 1 and 65535",
        ),
        (
            placed[1],
            "file.db:6:42: INP cannot be ",
            "unknown option \"prco\" of a pva link; there are pv, field, local,",
        ),
        (placed[2], "file.db:7:30: FLNK cannot be ", "a forward link cannot have defer: it writes no value"),
        (placed[3], "file.db:9:11: INP cannot be ", "expected ':' at character 22"),
    ] {
        assert!(error.starts_with(place) && error.contains(reason), "{error}");
    }
}
