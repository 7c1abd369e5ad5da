//! Loading `.db` files: what is accepted, what is rejected, and how errors are reported.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "load/recovery.rs"]
mod recovery;

use std::fmt::Write as _;
use std::io::ErrorKind;

use fastrand::Rng;
use fodo_data::{Kind, Now, Value};
use fodo_db::{Database, Input, LoadError, Loader, Macros, UndefinedMacros};

fn load_files(files: &[(&str, &str)], macros: &str) -> Result<Database, Vec<LoadError>> {
    let mut loader = Loader::with_places();
    let mut open = |requested: &str| {
        let found = files.iter().find(|(name, _)| *name == requested);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| ErrorKind::NotFound.into())
    };
    loader.load(files[0].0, macros, &mut open)?;
    loader.finish()
}

fn load(text: &str, macros: &str) -> Result<Database, Vec<LoadError>> {
    load_files(&[("file.db", text)], macros)
}

fn load_errors(text: &str, macros: &str) -> Vec<String> {
    load(text, macros).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn text_of(database: &Database, name: &str) -> String {
    let field = database.field(name).unwrap();
    database.read(field).value.first().unwrap().to_text(Some(&database.meta(field))).to_string()
}

#[test]
fn records_aliases_info_items_and_appended_fields_are_loaded() {
    let database = load(
        "\u{feff}record(ai, \"$(P)a\") { # a comment, don't mind\r\n\
         field(DESC, \"tab\\tquote\\\"\")\r\n\
         field(EGU, mm) info(archive, {period: 1, \"list\": [1, 2]})\r\n\
         alias(\"$(P)inner\")\r\n}\r\n\
         grecord(ao, $(P)b) alias(\"$(P)b\", \"$(P)outer\")\r\n\
         record(\"*\", \"$(P)a\") { field(PREC, \"$(PREC=3)\") }\r\n\
         record(ai, \"$(P)a\") { field(HIGH, \"0x10\") }\r\n",
        "P=X:",
    )
    .unwrap();

    assert_eq!(database.record_names().collect::<Vec<_>>(), ["X:a", "X:b"]);
    assert_eq!(text_of(&database, "X:a.DESC"), "tab\tquote\"");
    assert_eq!(text_of(&database, "X:inner.EGU"), "mm");
    assert_eq!(text_of(&database, "X:a.HIGH"), "16.000");
    assert_eq!(text_of(&database, "X:outer.RTYP"), "ao");
    let infos: Vec<_> = database.info_items("X:a").map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(infos, ["archive={period:1,\"list\":[1,2]}"]);
}

#[test]
fn warnings_and_invalid_links_name_the_places_that_loaded_their_file() {
    let text = "record(ai, x) { field(SIOL, \"@\") }\nrecord(ai, x) {}\n";
    let mut open = |name: &str| {
        let text = if name == "a.substitutions" { "file b.db { { X=1 } }" } else { text };
        Ok(text.as_bytes().to_vec())
    };
    let load = |of_template: bool, open: &mut fodo_db::OpenFile| {
        let mut loader = Loader::with_places();
        loader.set_include_trace(vec!["st.cmd:7".to_owned(), "outer.cmd:2".to_owned()]);
        match of_template {
            true => loader.load_template("a.substitutions", "", open).unwrap(),
            false => loader.load("b.db", "", open).unwrap(),
        }
        [loader.warnings(), loader.disable_invalid_links()].map(|errors| errors[0].clone())
    };

    for error in load(false, &mut open) {
        assert_eq!(error.from, ["st.cmd:7", "outer.cmd:2"]);
        assert!(error.to_string().ends_with("\n  loaded by st.cmd:7\n  loaded by outer.cmd:2"), "{error}");
    }
    for error in load(true, &mut open) {
        assert_eq!(error.from, ["a.substitutions:1:13", "st.cmd:7", "outer.cmd:2"]);
    }
}

#[test]
fn integer_fields_accept_signed_and_unsigned_values_of_their_width() {
    let database = load(
        "record(longin, l) { field(VAL, \"0xffffffff\") field(HIGH, \"2147483648\") field(PHAS, \"65535\") }
         record(bi, b) { field(RVAL, \"-1\") field(TPRO, \"-1\") }",
        "",
    )
    .unwrap();

    let fields = ["l.VAL", "l.HIGH", "l.PHAS", "b.RVAL", "b.TPRO"];
    let taken = fields.map(|field| text_of(&database, field));
    assert_eq!(taken, ["-1", "-2147483648", "-1", "4294967295", "255"]);
    for wrong in ["4294967296", "-2147483649", "0x1ffffffff"] {
        let complaint = load_errors(&format!("record(longin, l) {{ field(VAL, \"{wrong}\") }}"), "");
        assert!(complaint[0].contains("it must be between"), "{complaint:?}");
    }
}

#[test]
fn record_names_have_at_most_sixty_bytes() {
    let named = |n_bytes| format!("record(ai, \"{}\") {{}}", "n".repeat(n_bytes));

    assert_eq!(load_errors(&named(60), ""), [""; 0]);
    let errors = load_errors(&named(61), "");
    assert!(errors[0].starts_with("file.db:1:12: the name is 61 bytes long; the maximum is 60\n"), "{errors:?}");
}

#[test]
fn an_array_has_the_configured_element_type_and_size() {
    let cases = [
        ("aai", "field(FTVL, LONG) field(NELM, 4)", Kind::I32, 4),
        ("aao", "field(FTVL, ULONG) field(NELM, 5)", Kind::U32, 5),
        ("compress", "field(NSAM, 6)", Kind::F64, 6),
        ("histogram", "field(NELM, 7)", Kind::U32, 7),
        ("subArray", "field(FTVL, FLOAT) field(MALM, 8) field(NELM, 2)", Kind::F32, 8),
        ("waveform", "field(FTVL, STRING) field(NELM, 9)", Kind::Text, 9),
    ];
    for (record_type, fields, kind, count_max) in cases {
        let database = load(&format!("record({record_type}, r) {{ {fields} }}"), "").unwrap();
        let facts = database.facts(database.field("r").unwrap());
        assert_eq!((facts.kind, facts.count_max), (kind, count_max), "{record_type}");
    }
}

#[test]
fn a_load_error_contains_the_position_and_the_closest_name() {
    assert_eq!(
        load_errors("record(ai, \"a\") {\n  field(VLA, 1)\n}\n", ""),
        ["file.db:2:9: no field \"VLA\" in record type ai; did you mean \"VAL\"?\n    field(VLA, 1)\n          ^"]
    );
    assert_eq!(
        load_errors("record(aii, \"a\") {}\n", ""),
        ["file.db:1:8: no record type \"aii\"; did you mean \"ai\"?\n  record(aii, \"a\") {}\n         ^"]
    );
    assert_eq!(
        load_errors("record(ai, \"a\") { field(SCAN, \"1 secnd\") }\n", ""),
        ["file.db:1:31: SCAN has no choice \"1 secnd\"; did you mean \"1 second\"?\n  \
          record(ai, \"a\") { field(SCAN, \"1 secnd\") }\n                                ^"]
    );
}

const WRONG: &str = "record(ai, \"good\") {}\n\
    record(ai, \"a\") { field(PREC, \"x\") field(DTYP, \"asynInt32\") field(INP, \"@asyn(A)\") field(EGU, mm) }\n\
    record(ai, \"b c\") { field(PREC, 1) }\nrecord(calc, \"c\") { field(CALC, \"A+\") }\nrecord(ai, \"$(M)\") {}\n\
    recrod(ai, \"d\") {}\nrecord(ai, \"good\") { field(DESC, \"unclosed) }\nrecord(ai, \"behind\") {}\n";

/// The line numbers of errors, the names of the loaded records, and the database.
fn loaded(mut loader: Loader, text: &str) -> (Vec<usize>, Vec<String>, Database) {
    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).err().unwrap_or_default();
    loader.disable_invalid_links();
    let database = loader.finish().unwrap();
    let names = database.record_names().map(str::to_owned).collect();
    (errors.iter().map(|error| error.line).collect(), names, database)
}

#[test]
fn an_error_drops_only_its_item_and_a_syntax_error_drops_the_rest_of_the_file() {
    let (lines, names, database) = loaded(Loader::default(), WRONG);

    assert_eq!(lines, [2, 2, 3, 4, 5, 6]);
    assert_eq!(names, ["good", "a", "c"]);
    assert_eq!(text_of(&database, "a.PREC"), "0");
    assert_eq!(text_of(&database, "a.EGU"), "mm");
}

#[test]
fn a_checking_loader_continues_after_a_syntax_error() {
    let (lines, names, _) = loaded(Loader::with_places(), WRONG);

    assert_eq!(lines, [2, 2, 3, 4, 5, 6, 7]);
    assert_eq!(names, ["good", "a", "c", "behind"]);
}

#[test]
fn a_record_with_an_unknown_dtyp_is_loaded_but_invalid_and_names_the_missing_device() {
    let text = "record(ao, a) { field(DTYP, asynInt32) field(OUT, \"@asyn(A)\") field(SCAN, \".1 second\") }\n";
    let (lines, _, database) = loaded(Loader::default(), text);
    let field = database.field("a").unwrap();
    for tick in 0..20 {
        let put = Input::Put { field, value: Value::from(f64::from(tick)), put: None };
        database.handle(put, Now::for_test(), &mut Vec::new()).unwrap();
    }

    assert_eq!(lines, [1]);
    assert_eq!(text_of(&database, "a.SEVR"), "INVALID");
    assert_eq!(text_of(&database, "a.STAT"), "UDF");
    assert_eq!(text_of(&database, "a.AMSG"), "no device support \"asynInt32\"");
    assert_eq!(text_of(&database, "a.PACT"), "1");
    assert_eq!(text_of(&database, "a"), "19");
}

#[test]
fn an_invalid_hardware_address_is_reported_with_its_position_and_dropped() {
    let text = "record(ai, a) { field(SIOL, \"@\") field(PREC, 1) }\nrecord(ai, b) { field(TSEL, \"#C0 S0 @\") }\n\
                record(ai, c) { field(INP, \"@asyn(A)\") }\n\
                record(stringin, d) { field(DTYP, \"General Time\") field(INP, \"@BESTTEV\") }\n";
    let mut loader = Loader::default();
    loader.load("a.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();

    let places: Vec<String> = loader.invalid_links().iter().map(LoadError::place).collect();
    loader.disable_invalid_links();
    let database = loader.finish().unwrap();

    assert_eq!(places, ["a.db:1:29", "a.db:2:29", "a.db:3:28", "a.db:4:62"]);
    assert_eq!((text_of(&database, "a.SIOL"), text_of(&database, "c.INP")), (String::new(), String::new()));
    assert_eq!((text_of(&database, "c.PACT"), text_of(&database, "d.PACT")), ("0".into(), "1".into()));
    assert_eq!(text_of(&database, "d.AMSG"), "wrong INP \"@BESTTEV\"");
}

#[test]
fn errors_above_the_report_limit_are_counted_and_valid_records_are_loaded() {
    let wrong: String = (0..500).map(|n| format!("record(ai, r{n}) {{ field(PREC, x) field(EGU, mm) }}\n")).collect();
    let text = format!("{wrong}record(throttle, m) {{ field(VELO, 1) }}\nalias(m, n)\nrecord(ai, last) {{}}\n");
    let mut loader = Loader::default();

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    assert_eq!(errors.len(), 100);
    let omitted = loader.omitted();
    assert_eq!((omitted.n_records, omitted.n_fields, omitted.n_others), (1, 500, 1));
    assert_eq!(omitted.to_string(), "left out because of errors: 1 record, 500 fields, 1 other statement");
    assert_eq!(loader.finish().unwrap().record_names().count(), 501);
}

#[test]
fn every_undefined_macro_of_a_line_is_reported_and_drops_its_field() {
    let text = "record(ai, a) { field(EGU, \"$(U)\") field(DESC, \"$(D) $(U)\") field(PREC, 3) }\n";
    let mut loader = Loader::default();

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    let places: Vec<(usize, String)> = errors.iter().map(|error| (error.column, error.message.clone())).collect();
    assert_eq!(places.iter().map(|(column, _)| *column).collect::<Vec<_>>(), [29, 49], "{places:?}");
    assert!(places[0].1.contains("\"U\"") && places[1].1.contains("\"D\""), "{places:?}");
    assert_eq!(loader.omitted().n_fields, 2);
    let database = loader.finish().unwrap();
    assert_eq!((text_of(&database, "a.EGU"), text_of(&database, "a.PREC")), (String::new(), "3".into()));
}

#[test]
fn an_unclosed_macro_is_reported_even_if_a_later_bracket_could_close_it() {
    let errors = load_errors("record(ai, a) { field(CALC, \"$(P calc\") field(PREC, 1) }\n", "P=1");

    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("file.db:1:30: ')' is missing at the end of this macro"), "{errors:?}");
}

#[test]
fn general_time_reports_the_os_clock_as_time_provider() {
    let text = "record(stringin, a) { field(DTYP, \"General Time\") field(INP, \"@TOPTCP\") field(PINI, YES) }\n";
    let (_, _, database) = loaded(Loader::default(), text);

    database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();

    assert_eq!((text_of(&database, "a"), text_of(&database, "a.SEVR")), ("OS Clock".into(), "NO_ALARM".into()));
}

#[test]
fn error_columns_refer_to_the_line_before_macro_expansion() {
    assert_eq!(
        load_errors("record(ai, \"$(P)$(P)\") { field(VALL, 1) }", "P=long-prefix:"),
        ["file.db:1:32: no field \"VALL\" in record type ai; did you mean \"VAL\"?\n  \
          record(ai, \"$(P)$(P)\") { field(VALL, 1) }\n                                 ^"]
    );
}

#[test]
fn includes_are_found_along_the_path_and_circular_includes_are_rejected() {
    let files = [("top.db", "addpath \"lib\"\ninclude \"part.db\"\n"), ("lib/part.db", "record(ai, part) {}\n")];
    assert!(load_files(&files, "").unwrap().field("part").is_some());

    let errors = load_files(&[("a.db", "include \"a.db\"\n")], "").unwrap_err();
    assert!(errors[0].message.contains("circular"), "{}", errors[0]);
    let errors = load_files(&[("a.db", "include \"b.db\"\n")], "").unwrap_err();
    assert!(errors[0].message.contains("\"b.db\" cannot be read"), "{}", errors[0]);
}

#[test]
fn record_names_that_channels_cannot_address_are_rejected() {
    for name in ["", "a.b", "a b", "a$", "-a", &"x".repeat(61)] {
        assert_eq!(load_errors(&format!("record(ai, \"{name}\") {{}}"), "").len(), 1, "{name}");
    }
    assert!(load(&format!("record(ai, \"{}\") {{}}", "x".repeat(60)), "").is_ok());
    assert_eq!(load_errors("record(ai, a) {} record(ao, a) {}", "").len(), 1);
}

#[test]
fn deeply_nested_brackets_and_unclosed_quotes_are_errors() {
    let nested = format!("record(ai, a) {{ info(x, {}) }}", "[".repeat(100_000));
    assert_eq!(load_errors(&nested, "").len(), 1);
    assert!(!load_errors("record(ai, a) { info(x, {\"", "").is_empty());
    assert!(!load_errors("record(ai, \"$(A)\") {}", "A=$(A)").is_empty());
    assert!(!load_errors(&"$(".repeat(10_000), "").is_empty());
}

#[test]
fn long_strings_are_read_as_characters_with_a_trailing_nul() {
    let database = load("record(ai, a) { field(DESC, \"abc\") field(INP, \"b\") }", "").unwrap();
    let field = database.field("a.DESC$").unwrap();

    assert_eq!(database.facts(field).kind, Kind::U8);
    assert_eq!(database.facts(field).count_max, 41);
    assert_eq!(database.read(field).value, Value::from(vec![97_u8, 98, 99, 0]));
    assert_eq!(database.facts(database.field("a.INP$").unwrap()).count_max, 1024);
    assert!(database.field("a.VAL$").is_none());
    let put = Input::Put { field, value: Value::from(vec![b'h', b'i', 0]), put: None };
    database.handle(put, Now::for_test(), &mut Vec::new()).unwrap();
    assert_eq!(text_of(&database, "a.DESC"), "hi");
}

#[test]
fn deleting_a_record_removes_its_aliases_and_deleting_an_alias_keeps_the_record() {
    let database = load(
        "record(ai, a) { alias(aa) info(x, y) }\nrecord(ai, b) { alias(bb) info(n, of_b) }\nrecord(ai, c) { field(INP, b) }\n\
         record(\"#\", a) {}\nrecord(\"#\", bb)\nrecord(ao, a) { field(EGU, new) }\n",
        "",
    )
    .unwrap();

    assert_eq!(database.record_names().collect::<Vec<_>>(), ["b", "c", "a"]);
    assert!(database.field("aa").is_none() && database.field("bb").is_none());
    assert_eq!(text_of(&database, "a.EGU"), "new");
    assert_eq!(text_of(&database, "b.NAME"), "b");
    assert_eq!(database.info_items("b").map(|(_, value)| value.to_string()).collect::<Vec<_>>(), ["of_b"]);
    assert!(load_errors("record(ai, abc) {}\nrecord(\"#\", abd) {}\n", "")[0].contains("did you mean \"abc\"?"));
}

#[test]
fn dbd_declarations_are_accepted_only_for_supported_types() {
    let text = "menu(menuColour) { choice(menuColourRed, \"Red\") }\nrecordtype(motor) { field(VAL, DBF_DOUBLE) {} }\n\
                menu(menuConvert) { choice(menuConvertCavity, \"cavity\") }\nrecordtype(ai) {\n%#include \"link.h\"\n field(VAL, DBF_DOUBLE) { prompt(\"Value\") asl(ASL0) }\n}\n\
                device(ai, CONSTANT, devAiSoft, \"Soft Channel\")\nregistrar(rsrvRegistrar) variable(atExit, int)\n\
                driver(drvX) breaktable(typeX) { 0 10, 1 20 }\nrecord(ai, a) {}\n";
    assert!(load(text, "").unwrap().field("a").is_some());

    let wrong = "menu(menuScan) { choice(menuScan20_second, \"20 second\") }\nrecordtype(luascript) { field(VAL, DBF_DOUBLE) {} }\n\
                 device(ai, INST_IO, devX, \"asynInt32\")\nbreaktable(t) { 0 1 0 2 }\nrecordtype(ai) { field(VALU, X) {} }\n";
    let lines: Vec<usize> = load(wrong, "").unwrap_err().iter().map(|error| error.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5]);
}

/// A menu of scan rates that starts with the mandatory choices.
fn scan_menu(choices: &[&str]) -> String {
    let all = ["Passive", "Event", "I/O Intr"].iter().chain(choices);
    let choices: String = all.map(|choice| format!(" choice(menuScan_, \"{choice}\")\n")).collect();
    format!("menu(menuScan) {{\n{choices}}}\n")
}

#[test]
fn site_scan_rates_replace_the_default_scan_rates() {
    let site = scan_menu(&["60 second", "1 minute", "6 second", "10 Hz"]);
    let records =
        "record(ai, a) { field(SCAN, \"60 second\") field(SSCN, 5) }\nrecord(ai, b) { field(SCAN, \"10 Hz\") }\n";
    let files = [("file.db", &*format!("include \"site.dbd\"\n{site}{records}")), ("site.dbd", &*site)];

    let database = load_files(&files, "").unwrap();

    let labels = |name: &str| -> Vec<String> {
        database.meta(database.field(name).unwrap()).labels.iter().map(ToString::to_string).collect()
    };
    assert_eq!(labels("a.SCAN"), ["Passive", "Event", "I/O Intr", "60 second", "1 minute", "6 second", "10 Hz"]);
    assert_eq!(labels("a.SSCN"), labels("a.SCAN"));
    assert_eq!(labels("a.PINI").len(), 6);
    assert_eq!((text_of(&database, "a.SCAN"), text_of(&database, "a.SSCN")), ("60 second".into(), "6 second".into()));
    let periods: Vec<f64> = database.scan_counts().iter().map(|scan| scan.period.as_secs_f64()).collect();
    assert_eq!(periods, [60.0, 60.0, 6.0, 0.1]);
    assert!(
        load_errors(&format!("{site}record(ai, a) {{ field(SCAN, \"1 second\") }}"), "")[0].contains("has no choice")
    );
}

#[test]
fn invalid_scan_rates_are_reported() {
    let menu = scan_menu(&["60 second"]);
    let second = format!("{menu}{menu}{}", scan_menu(&["30 second"]));
    let late = format!("record(ai, a) {{ field(SCAN, \"1 second\") }}\n{menu}");
    let early = format!("record(ai, a) {{ field(SCAN, \"Event\") }}\n{menu}");
    let too_many: Vec<String> = (1..=198).map(|number| format!("{number} second")).collect();
    let too_many = scan_menu(&too_many.iter().map(String::as_str).collect::<Vec<_>>());

    for (text, line, expected) in [
        (
            "menu(menuScan) { choice(a, \"Passive\") choice(b, \"60 second\") }",
            1,
            "must begin with the choices \"Passive\", ",
        ),
        (&*scan_menu(&["60 second", "often"]), 6, "\"often\" is not a scan rate"),
        (&*second, 13, "a menuScan with other choices is already loaded"),
        (&*late, 2, "must be loaded before records use its choices"),
        (&*too_many, 1, "has 201 choices; the maximum is 200"),
    ] {
        let errors = load(text, "").unwrap_err();
        assert_eq!((errors.len(), errors[0].line), (1, line), "{errors:?}");
        assert!(errors[0].message.contains(expected), "{}", errors[0].message);
    }
    assert_eq!(load_errors(&early, ""), [""; 0]);
}

#[test]
fn a_dbd_file_may_declare_unsupported_record_types_and_device_support() {
    let text = format!(
        "{}recordtype(robot) {{ field(VAL, DBF_DOUBLE) {{ special(100) }} }}\nrecordtype(ai) {{ field(NEW, DBF_LONG) {{}} }}\n\
         device(ai, INST_IO, devX, \"asynInt32\")\nregistrar(r) variable(v, int) function(f) link(l, s) driver(d)\n\
         breaktable(cavity) {{ 0 0 1 2 }}\n",
        scan_menu(&["6 second"])
    );
    let mut loader = Loader::default();
    loader.load_description("site.dbd", "", &mut |_| Ok(text.clone().into_bytes())).unwrap();
    let db =
        "record(ai, a) { field(SCAN, \"6 second\") }\nrecord(robot, b) {}\nrecord(ai, c) { field(DTYP, asynInt32) }";

    let errors = loader.load("file.db", "", &mut |_| Ok(db.into())).unwrap_err();

    assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [2, 3]);
    let database = loader.finish().unwrap();
    assert_eq!(text_of(&database, "a.SCAN"), "6 second");
}

/// Mutated bytes give a result or errors, never a panic.
#[test]
fn loading_mutated_database_files_never_panics() {
    let seed = "record(calc, \"$(P=x)a\") { # c\n field(CALC, \"A+B*(C-1)\") field(INPA, \"b PP MS\")\n \
                info(n, {a: [1, \"}\"]}) alias(\"q\")\n}\ninclude \"f\"\nrecord(ao, b) { field(OUT, \"[1, 2]\") }\n\
                record(mbbo, c) { field(ZRST, \"\\x41\\101\") field(NELM, 3) }\n";
    let mut random = Rng::with_seed(1);
    for _ in 0..4_000 {
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..=random.usize(..4) {
            let place = random.usize(..bytes.len().max(1));
            match random.u8(..4) {
                0 if !bytes.is_empty() => bytes[place] = random.u8(..),
                1 if !bytes.is_empty() => drop(bytes.remove(place)),
                2 => bytes.insert(place, b"(){}[]\"\\$#,=\n\0"[random.usize(..14)]),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let mut loader = Loader::default();
        let mut opened = 0;
        let loaded = loader.load("file.db", "P=y", &mut |_| {
            opened += 1;
            if opened < 4 { Ok(bytes.clone()) } else { Err(ErrorKind::NotFound.into()) }
        });
        match loaded {
            Ok(()) => drop(loader.finish()),
            Err(errors) => errors.iter().for_each(|error| drop(error.to_string())),
        }
    }
}

/// The same for the formats that databases are expanded from: substitutions and templates.
#[test]
fn loading_mutated_substitutions_and_templates_never_panics() {
    let seeds = [
        "global { P=\"$(P)x\" }\nfile \"a$(N=1)\" { # c\n pattern { A, B } { 1, \"2\\\"\" } {'x' ${Y}}\n}\nfile b { {A=1,B=$(A,B=2)} }\ninclude f\n",
        "record(ai, \"$(P)$(A=$(B,C='d'))\")\ninclude \"f\"\nsubstitute \"A=1,B=$(A)\"\n${X} $(Y\n",
    ];
    let mut random = Rng::with_seed(2);
    for round in 0..2_000 {
        let mut bytes = seeds[round % 2].as_bytes().to_vec();
        for _ in 0..=random.usize(..4) {
            let place = random.usize(..bytes.len().max(1));
            match random.u8(..3) {
                0 if !bytes.is_empty() => bytes[place] = random.u8(..),
                1 => bytes.insert(place, b"(){}[]\"'\\$#,=\n "[random.usize(..15)]),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let mut open = |_: &str| Ok(bytes.clone());
        let macros = Macros::parse("P=y,Q=$(P)").unwrap();
        // The results do not matter, only that the calls return.
        let _ = fodo_db::instances("f", &macros, &mut open);
        let _ = fodo_db::template_sets("f", &bytes, &macros);
        let _ = fodo_db::expand("f", &mut macros.clone(), UndefinedMacros::Keep, &mut open);
        let _ = fodo_db::expand("f", &mut macros.clone(), UndefinedMacros::Mark, &mut open);
    }
}

/// `cargo test --release -p fodo-db --test load -- --ignored --nocapture` prints the time.
#[test]
#[ignore = "prints a time and asserts nothing; for work on the loader, in a release build"]
fn a_hundred_thousand_records_load_in_about_a_second() {
    let mut text = String::new();
    for index in 0..100_000 {
        writeln!(
            text,
            "record(ao, \"$(P)record:{index}\") {{\n field(DESC, \"number {index}\") field(EGU, \"mm\") field(PREC, \"3\")\n \
             field(OUT, \"$(P)record:{} NPP\") field(HIGH, \"10\") field(HSV, \"MINOR\")\n}}",
            (index + 1) % 100_000
        )
        .unwrap();
    }

    let start = std::time::Instant::now();
    let database = load(&text, "P=X:").unwrap();

    println!("{} records in {:?}", database.record_names().count(), start.elapsed());
}

#[test]
fn an_invalid_row_of_a_substitutions_file_does_not_affect_other_rows() {
    let template = "record(ai, \"$(P)$(N)\") { field(PREC, \"$(PREC=2)\") }\n";
    let good = "global { P=x: }\nfile motor.template { pattern { N, PREC } { 1, 3 } { 2 } }\n";
    let bad = "file motor.template { {P=y:, N=1, PREC=3} {P=y:, N=2, PREC=high} {P=y:, N=3, PREC=low} }\n";
    let mut open = |name: &str| match name {
        "good" => Ok(good.as_bytes().to_vec()),
        "bad" => Ok(bad.as_bytes().to_vec()),
        "motor.template" => Ok(template.as_bytes().to_vec()),
        _ => Err(ErrorKind::NotFound.into()),
    };
    let mut loader = Loader::default();

    loader.load_template("good", "", &mut open).unwrap();
    let errors = loader.load_template("bad", "", &mut open).unwrap_err();

    let shown: Vec<String> = errors.iter().map(|error| format!("{} {:?}", error.place(), error.from)).collect();
    assert_eq!(
        shown,
        ["motor.template:1:38 [\"bad:1:43\"]", "motor.template:1:38 [\"bad:1:66\"]"],
        "both rows, each with its own value"
    );
    let database = loader.finish().unwrap();
    assert_eq!(database.record_names().collect::<Vec<_>>(), ["x:1", "x:2", "y:1", "y:2", "y:3"]);
    assert_eq!(text_of(&database, "y:2.PREC"), "0");
    assert_eq!(text_of(&database, "x:1.PREC"), "3");
}

#[test]
fn unknown_types_and_devices_of_a_dbd_file_are_skipped_with_their_blocks() {
    let text = "recordtype(robot) { include \"dbCommon.dbd\" field(VAL, DBF_DOUBLE) { a { b { c } d } } }\n\
        recordtype(ai) { field(VAL, DBF_DOUBLE) {} }\n";
    let mut loader = Loader::default();
    loader.load_description("site.dbd", "", &mut |_| Ok(text.into())).unwrap();

    for (wrong, message) in [
        ("recordtype(robot) { field(VAL, DBF_DOUBLE) { a {", "expected '}'"),
        ("recordtype(robot) { nonsense }", "expected field or '}'"),
    ] {
        let errors = Loader::default().load_description("site.dbd", "", &mut |_| Ok(wrong.into())).unwrap_err();
        assert!(errors[0].message.contains(message), "{errors:?}");
    }
    let errors = load_errors("device(robot, INST_IO, devX, \"x\")\ndevice(ai, INST_IO, devX, \"x\")\n", "");
    assert!(errors.len() == 2 && errors[0].contains("robot") && errors[1].contains("\"x\""), "{errors:?}");
}

#[test]
fn an_undefined_macro_is_reported_once_with_the_number_of_its_lines() {
    let lines = |n: usize| {
        let text: String =
            (0..n).map(|index| format!("record(ai, a{index}) {{ field(DESC, \"$(X) $(X)\") }}\n")).collect();
        load_errors(&text, "")
    };

    let [once, twice, often] = [1, 2, 4].map(lines);

    assert_eq!([once.len(), twice.len(), often.len()], [1, 1, 1]);
    assert!(!once[0].contains("line uses it") && !once[0].contains("lines use it"), "{once:?}");
    assert!(twice[0].contains("; another line uses it too"), "{twice:?}");
    assert!(often[0].contains("; 3 more lines use it"), "{often:?}");
}

#[test]
fn fields_in_info_items_of_autosave_are_checked_only_there() {
    let text = "record(ai, a) { info(autosaveFields, \"VAL NOPE, DESC$\") info(other, \"NOPE\") }\n";
    let mut loader = Loader::with_places();
    loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap();

    let warnings = loader.warnings();

    assert!(
        matches!(warnings.as_slice(), [one] if one.message.contains("no field \"NOPE\" in record type ai")),
        "{warnings:?}"
    );
}

#[test]
fn items_that_are_left_out_are_counted_by_kind() {
    let mut loader = Loader::default();
    let text = "record(nonsense, a) {}\nrecord(ai, b) { field(NOPE, 1) field(NEVER, 1) }\nalias(none, c)\n";

    loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap_err();

    assert_eq!(loader.omitted().total(), 4);
}
