//! DTYP Program: values that the program sets, and values of outputs that it takes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fodo_data::{Alarm, EventMask, Now, Scalar, Severity, Status, Text, TimeStamp, Value};
use fodo_db::{
    Database, Event, FieldRef, Input, Loader, OutputId, OutputResult, ProgramDirection, ProgramError, ProgramValue,
    PutError, PutId,
};

/// A started database with its clock and events.
struct ProgramDatabase {
    database: Database,
    now: Now,
    events: Vec<Event>,
}

impl ProgramDatabase {
    fn start(db: &str) -> ProgramDatabase {
        let mut loader = Loader::default();
        loader.enable_program();
        loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
        let database = loader.finish().unwrap();
        for name in database.record_names() {
            let field = database.field(name).unwrap();
            database.watch(field);
            if database.program_direction(field) == Some(ProgramDirection::Output) {
                database.take_outputs(field).unwrap();
            }
        }
        let mut program = ProgramDatabase { database, now: Now::for_test(), events: Vec::new() };
        program.input(Input::Start).unwrap();
        program
    }

    fn field(&self, name: &str) -> FieldRef {
        self.database.field(name).unwrap()
    }

    fn input(&mut self, input: Input) -> Result<(), PutError> {
        self.database.handle(input, self.now, &mut self.events)
    }

    fn set_with(&mut self, name: &str, value: ProgramValue) -> Result<(), ProgramError> {
        let (mut refused, _) = self.database.set_by_program([(self.field(name), value)], self.now, &mut self.events);
        refused.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<(), ProgramError> {
        self.set_with(name, ProgramValue::new(value))
    }

    /// A client's put with completion; its number is that of the value.
    fn put(&mut self, name: &str, value: impl Into<Value>, put: u64) {
        let field = self.field(name);
        self.input(Input::Put { field, value: value.into(), put: Some(PutId(put)) }).unwrap();
    }

    fn complete(&mut self, name: &str, output: OutputId, result: OutputResult) {
        let record = self.field(name);
        self.input(Input::CompleteOutput { record, output, result }).unwrap();
    }

    /// The value that waits for the program, with the one before.
    fn output(&mut self, name: &str) -> Option<(OutputId, Value, Option<Value>)> {
        let field = self.field(name);
        let position = self
            .events
            .iter()
            .position(|event| matches!(event, Event::OutputReady { record, .. } if *record == field))?;
        match self.events.remove(position) {
            Event::OutputReady { output, value, previous, .. } => Some((output, value, previous)),
            _ => None,
        }
    }

    fn value(&self, name: &str) -> Value {
        self.database.read(self.field(name)).value
    }

    fn alarm(&self, name: &str) -> (Severity, Status, String) {
        let reading = self.database.read(self.field(name));
        let Alarm { severity, status } = reading.alarm;
        (severity, status, reading.message.map_or(String::new(), |message| message.to_string()))
    }

    /// The values of a field that were posted since the last call, and all other events forgotten.
    fn posted(&mut self, name: &str) -> Vec<Value> {
        let of = self.field(name);
        let values = self.events.drain(..).filter_map(|event| match event {
            Event::Posted { field, mask, reading } if field == of && mask.meets(EventMask::VALUE) => {
                Some(reading.value)
            }
            _ => None,
        });
        values.collect()
    }

    fn has_ended(&mut self, put: u64) -> bool {
        self.events.contains(&Event::PutDone { put: PutId(put) })
    }
}

fn no_alarm() -> (Severity, Status, String) {
    (Severity::None, Status::NO_ALARM, String::new())
}

/// Every input type, with a value of the program, and VAL afterwards.
fn inputs() -> Vec<(&'static str, Value, Value)> {
    let long = "a text that is longer than the 39 bytes of a string of EPICS";
    let array = Value::from(vec![1.5, 2.5]);
    vec![
        ("ai", 1.5.into(), 1.5.into()),
        ("bi", 1_u16.into(), Value::Scalar(Scalar::Enum(1))),
        ("bi", "open".into(), Value::Scalar(Scalar::Enum(1))),
        ("mbbi", 3_i32.into(), Value::Scalar(Scalar::Enum(3))),
        ("mbbi", "three".into(), Value::Scalar(Scalar::Enum(3))),
        ("mbbiDirect", 5_i32.into(), 5_i32.into()),
        ("mbbiDirect", (-1_i32).into(), (-1_i32).into()),
        ("longin", (-7_i64).into(), (-7_i32).into()),
        ("int64in", i64::MAX.into(), i64::MAX.into()),
        ("stringin", "text".into(), "text".into()),
        ("lsi", long.into(), long.into()),
        ("waveform", array.clone(), array.clone()),
        ("aai", vec![1_i32, 2].into(), vec![1.0, 2.0].into()),
        ("subArray", array, vec![2.5].into()),
        ("event", "beam".into(), "beam".into()),
    ]
}

/// A record of a type, with the fields that the tests need.
fn record(kind: &str, fields: &str) -> String {
    let own = match kind {
        "bi" | "bo" => "field(ONAM, open)",
        "mbbi" | "mbbo" => "field(THST, three) field(THVL, 3)",
        "lsi" | "lso" => "field(SIZV, 100)",
        "waveform" | "aai" | "aao" => "field(FTVL, DOUBLE) field(NELM, 3)",
        "subArray" => "field(FTVL, DOUBLE) field(MALM, 3) field(NELM, 1) field(INDX, 1)",
        _ => "",
    };
    format!("record({kind}, {kind}) {{ field(DTYP, Program) {own} {fields} }}\n")
}

#[test]
fn every_input_type_posts_the_value_alarm_and_time_that_the_program_sets() {
    let time = TimeStamp::from_epics(1_000_000_000, 5);
    for (kind, value, expected) in inputs() {
        let mut program = ProgramDatabase::start(&record(kind, "field(SCAN, \"I/O Intr\")"));
        assert_eq!(program.value(&format!("{kind}.SCAN")).first(), Some(Scalar::Enum(2)), "{kind}");
        program.events.clear();

        let high = ProgramValue::new(value).with_alarm(Severity::Major, Status::HW_LIMIT).with_message("too hot");
        program.set_with(kind, high.at(time)).unwrap();

        assert_eq!(program.value(kind), expected, "{kind}");
        assert_eq!(program.alarm(kind), (Severity::Major, Status::HW_LIMIT, "too hot".into()), "{kind}");
        assert_eq!(program.database.read(program.field(kind)).time, time, "{kind}");
        assert_eq!(program.posted(kind), [expected], "{kind}");
        program.set_with(kind, ProgramValue::unchanged()).unwrap();
        assert_eq!(program.alarm(kind), no_alarm(), "{kind}");
        assert_eq!(program.database.read(program.field(kind)).time, program.now.wall, "{kind}");
    }
}

#[test]
fn an_input_with_a_period_reads_the_newest_value_when_it_is_scanned() {
    let mut program = ProgramDatabase::start(&record("ai", "field(SCAN, \"1 second\") field(PINI, YES)"));
    program.set("ai", 1.0).unwrap();
    program.set("ai", 2.0).unwrap();
    assert_eq!(program.value("ai"), 0.0.into(), "it is not processed yet");

    for expected in [2.0, 2.0] {
        program.now = program.now + Duration::from_secs(1);
        program.input(Input::Tick).unwrap();
        assert_eq!((program.value("ai"), program.alarm("ai")), (expected.into(), no_alarm()));
        assert_eq!(program.database.read(program.field("ai")).time, program.now.wall);
    }
}

#[test]
fn an_input_that_the_program_has_not_set_is_undefined_until_then() {
    for (kind, value, expected) in inputs() {
        let mut program = ProgramDatabase::start(&record(kind, "field(PINI, YES)"));
        let undefined = (Severity::Invalid, Status::UDF, "not set by the program".into());
        assert_eq!(program.alarm(kind), undefined, "{kind}");

        program.set(kind, value).unwrap();
        program.put(&format!("{kind}.PROC"), 1, 1);

        assert_eq!((program.value(kind), program.alarm(kind)), (expected, no_alarm()), "{kind}");
        assert_eq!(program.value(&format!("{kind}.UDF")), 0_u8.into(), "{kind}");
    }
}

#[test]
fn an_initial_value_has_no_alarm_and_the_time_of_the_start() {
    let mut program = ProgramDatabase::start(&format!(
        "{}{}",
        record("ai", "field(VAL, 3) field(SCAN, \"I/O Intr\") field(PINI, YES)"),
        record("ao", "field(VAL, 4)")
    ));

    for (name, expected) in [("ai", 3.0), ("ao", 4.0)] {
        let reading = program.database.read(program.field(name));
        assert_eq!((reading.value, reading.time), (expected.into(), program.now.wall), "{name}");
        assert_eq!(program.alarm(name), no_alarm(), "{name}");
    }
    assert_eq!(program.output("ao"), None, "the program is not called at the start");
}

#[test]
fn the_time_of_the_program_gives_way_to_an_event_and_tse_minus_2_takes_the_time_of_the_set() {
    let time = TimeStamp::from_epics(1_000_000_000, 5);
    for (tse, expected) in [(0, Some(time)), (-2, Some(time)), (-1, None), (1, None)] {
        let mut program =
            ProgramDatabase::start(&record("ai", &format!("field(TSE, {tse}) field(SCAN, \"I/O Intr\")")));
        program.set_with("ai", ProgramValue::new(1.0).at(time)).unwrap();
        let wall = program.now.wall;
        assert_eq!(program.database.read(program.field("ai")).time, expected.unwrap_or(wall), "{tse}");
    }

    let mut program = ProgramDatabase::start(&record("ai", "field(TSE, -2)"));
    program.set("ai", 1.0).unwrap();
    let set_at = program.now.wall;
    program.now = program.now + Duration::from_secs(5);
    program.put("ai.PROC", 1, 1);
    assert_eq!(program.database.read(program.field("ai")).time, set_at);
}

#[test]
fn the_highest_of_the_alarms_of_program_and_limits_is_shown() {
    let mut program =
        ProgramDatabase::start(&record("ai", "field(SCAN, \"I/O Intr\") field(HIGH, 5) field(HSV, MINOR)"));
    let set = |program: &mut ProgramDatabase, severity| {
        let value = ProgramValue::new(9.0).with_alarm(severity, Status::COMM);
        program.set_with("ai", value).unwrap();
        program.alarm("ai").1
    };

    assert_eq!(set(&mut program, Severity::Major), Status::COMM);
    assert_eq!(set(&mut program, Severity::None), Status::HIGH);
    assert_eq!(set(&mut program, Severity::Minor), Status::COMM, "the first of equal alarms is kept");
}

#[test]
fn simulation_replaces_the_value_of_the_program() {
    let mut program =
        ProgramDatabase::start(&record("ai", "field(SCAN, \"I/O Intr\") field(SIMM, YES) field(SIOL, 7)"));
    program.set("ai", 1.0).unwrap();
    assert_eq!((program.value("ai"), program.alarm("ai").1), (7.0.into(), Status::NO_ALARM));

    program.put("ai.SIMM", "NO", 1);
    program.set("ai", 2.0).unwrap();
    assert_eq!(program.value("ai"), 2.0.into());
}

#[test]
fn values_that_a_record_cannot_store_are_refused_with_the_reason() {
    let soft = "record(ai, soft) {}\n";
    let records: String = ["ai", "bi", "stringin", "lsi", "waveform", "aao"].map(|kind| record(kind, "")).concat();
    let mut program = ProgramDatabase::start(&(records + soft));
    let text = |n| Value::from("x".repeat(n));
    let too_long = |length, max| Err(ProgramError::TooLong { length, max });

    assert_eq!(program.set("soft", 1.0), Err(ProgramError::NotProgram));
    assert_eq!(program.database.take_outputs(program.field("ai")), Err(ProgramError::NotProgram));
    assert_eq!(program.set("ai", vec![1.0, 2.0]), too_long(2, 1));
    assert!(matches!(program.set("ai", "much"), Err(ProgramError::Put(PutError::Convert(_)))));
    assert!(matches!(program.set("bi", "ajar"), Err(ProgramError::Put(PutError::Convert(_)))));
    assert_eq!((program.set("stringin", text(39)), program.set("stringin", text(40))), (Ok(()), too_long(40, 39)));
    assert_eq!((program.set("lsi", text(99)), program.set("lsi", text(100))), (Ok(()), too_long(100, 99)));
    for name in ["waveform", "aao"] {
        assert_eq!(program.set(name, vec![1.0; 3]), Ok(()));
        assert_eq!(program.set(name, vec![1.0; 4]), too_long(4, 3));
    }

    let many = [("ai", 5.0.into()), ("soft", 1.0.into()), ("bi", "ajar".into()), ("bi", Value::from("open"))];
    let many = many.map(|(name, value): (&str, Value)| (program.field(name), ProgramValue::new(value)));
    let (refused, _) = program.database.set_by_program(many, program.now, &mut program.events);
    assert_eq!(refused.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_number_that_a_record_would_store_as_another_one_is_refused() {
    let records: String = ["longin", "int64in", "bi", "ai", "stringin"].map(|kind| record(kind, "")).concat();
    let arrays = "record(waveform, shorts) { field(DTYP, Program) field(FTVL, SHORT) field(NELM, 3) }\n\
                  record(waveform, floats) { field(DTYP, Program) field(FTVL, FLOAT) field(NELM, 3) }\n\
                  record(waveform, bytes) { field(DTYP, Program) field(FTVL, CHAR) field(NELM, 3) }\n\
                  record(waveform, texts) { field(DTYP, Program) field(FTVL, STRING) field(NELM, 3) }\n";
    let mut program = ProgramDatabase::start(&(records + arrays));

    for (name, value) in [
        ("longin", Value::from(2.5)),
        ("longin", (1_i64 << 31).into()),
        ("longin", f64::NAN.into()),
        ("longin", (-1e10).into()),
        ("longin", "2.5".into()),
        ("longin", "12 mm".into()),
        ("longin", "".into()),
        ("int64in", 2_f64.powi(63).into()),
        ("bi", (-1).into()),
        ("bi", 0.5.into()),
        ("ai", "12.5 mm".into()),
        ("shorts", vec![1.0, 2.5].into()),
        ("shorts", vec![1_i32, 40_000].into()),
        ("floats", vec![1e300].into()),
        ("bytes", vec![256].into()),
        ("bytes", vec![-129].into()),
    ] {
        let refused = program.set(name, value.clone());
        assert!(matches!(refused, Err(ProgramError::OtherNumber { .. })), "{name} {value:?}: {refused:?}");
    }
    for (name, value, stored) in [
        ("longin", Value::from(3.0), Value::from(3)),
        ("longin", "-12".into(), (-12).into()),
        ("bytes", vec![200, -56, 7].into(), vec![-56_i8, -56, 7].into()),
        ("longin", " 0x10 ".into(), 16.into()),
        ("int64in", "9007199254740993".into(), 9_007_199_254_740_993_i64.into()),
        ("int64in", 7.into(), 7_i64.into()),
        ("bi", Value::Scalar(Scalar::Bool(true)), Value::Scalar(Scalar::Enum(1))),
        ("bi", "open".into(), Value::Scalar(Scalar::Enum(1))),
        ("ai", "12.5".into(), 12.5.into()),
        ("ai", i64::MAX.into(), 9_223_372_036_854_775_807.0.into()),
        ("stringin", 1.23456789.into(), "1.23456789".into()),
        ("shorts", vec![1.0, -2.0].into(), vec![1_i16, -2].into()),
        ("floats", vec![0.1].into(), vec![0.1_f32].into()),
        ("texts", vec![0.1].into(), vec![Text::from("0.1")].into()),
    ] {
        assert_eq!(program.set(name, value.clone()), Ok(()), "{name} {value:?}");
        program.put(&format!("{name}.PROC"), 1, 1);
        assert_eq!(program.value(name), stored, "{name}");
    }
    assert_eq!(program.set("bytes", vec![255_u8]), Ok(()));
    let error = program.set("shorts", vec![1.0, 2.5]).unwrap_err();
    assert_eq!(error.to_string(), "element 1: expected an integer between -32768 and 32767, not 2.5");
}

#[test]
fn a_text_set_to_an_array_of_characters_becomes_its_bytes() {
    let db = "record(waveform, w) { field(DTYP, Program) field(FTVL, CHAR) field(NELM, 5) field(SCAN, \"I/O Intr\") }";
    let mut program = ProgramDatabase::start(db);

    program.set("w", "abcd").unwrap();

    assert_eq!((program.value("w").long_text(), program.value("w.NORD")), (Some("abcd".into()), 5_u32.into()));
    assert_eq!(program.set("w", "abcde"), Err(ProgramError::TooLong { length: 6, max: 5 }));
    let long = Text::from("x".repeat(40));
    let mut texts =
        ProgramDatabase::start("record(waveform, w) { field(DTYP, Program) field(FTVL, STRING) field(NELM, 2) }");
    assert_eq!(texts.set("w", vec![long]), Err(ProgramError::TooLong { length: 40, max: 39 }));
}

/// Every output type, with a put of a client, and the value that the program takes.
fn outputs() -> Vec<(&'static str, Value, Value)> {
    let long = "a text that is longer than the 39 bytes of a string of EPICS";
    vec![
        ("ao", 1.5.into(), 1.5.into()),
        ("bo", "open".into(), Value::Scalar(Scalar::Enum(1))),
        ("mbbo", "three".into(), Value::Scalar(Scalar::Enum(3))),
        ("mbboDirect", 5_i32.into(), 5_i32.into()),
        ("longout", 7_i32.into(), 7_i32.into()),
        ("int64out", i64::MAX.into(), i64::MAX.into()),
        ("stringout", "text".into(), "text".into()),
        ("lso", long.into(), long.into()),
        ("aao", vec![1.5, 2.5].into(), vec![1.5, 2.5].into()),
        ("waveform", vec![1.5, 2.5].into(), vec![1.5, 2.5].into()),
    ]
}

fn output_record(kind: &str, fields: &str) -> String {
    record(kind, fields).replace("waveform) { field(DTYP, Program)", "waveform) { field(DTYP, \"Program Output\")")
}

#[test]
fn every_output_type_waits_for_the_program_and_then_posts_its_value() {
    for (kind, value, expected) in outputs() {
        let mut program = ProgramDatabase::start(&output_record(kind, ""));
        program.put(kind, value.clone(), 1);

        let (output, offered, _) = program.output(kind).unwrap();
        assert_eq!(offered, expected, "{kind}");
        assert_eq!(program.value(&format!("{kind}.PACT")), 1_u8.into(), "{kind}");
        assert!(!program.has_ended(1), "{kind}");
        assert!(program.posted(kind).is_empty(), "{kind}");

        program.now = program.now + Duration::from_secs(1);
        program.complete(kind, output, OutputResult::Done);

        assert!(program.has_ended(1), "{kind}");
        assert_eq!((program.value(kind), program.alarm(kind)), (expected.clone(), no_alarm()), "{kind}");
        assert_eq!(program.value(&format!("{kind}.PACT")), 0_u8.into(), "{kind}");
        assert_eq!(program.database.read(program.field(kind)).time, program.now.wall, "{kind}");
        assert_eq!(program.posted(kind), std::slice::from_ref(&expected), "{kind}");

        program.put(kind, value, 2);
        assert_eq!(program.output(kind).unwrap().2, Some(expected), "{kind}: the value before");
    }
}

#[test]
fn a_refused_output_is_invalid_with_the_message_and_keeps_the_value_that_was_put() {
    for (kind, value, expected) in outputs() {
        let mut program = ProgramDatabase::start(&output_record(kind, ""));
        program.put(kind, value.clone(), 1);
        let (output, ..) = program.output(kind).unwrap();

        let message = Text::from("the motor is at its limit switch, so it does not move");
        program.complete(kind, output, OutputResult::Refused { message });

        let shown = "the motor is at its limit switch, so it".to_owned();
        assert_eq!(program.alarm(kind), (Severity::Invalid, Status::WRITE, shown), "{kind}");
        assert!(program.has_ended(1), "{kind}");
        assert_eq!(program.value(kind), expected, "{kind}");

        program.put(kind, value, 2);
        let (output, ..) = program.output(kind).unwrap();
        program.complete(kind, output, OutputResult::Done);
        assert_eq!(program.alarm(kind), no_alarm(), "{kind}");
    }
}

#[test]
fn a_restored_output_has_the_last_accepted_value_without_an_alarm() {
    let mut program = ProgramDatabase::start(&output_record("ao", "field(VAL, 4)"));
    program.put("ao", 5.0, 1);
    let (output, _, previous) = program.output("ao").unwrap();
    assert_eq!(previous, Some(4.0.into()));
    program.events.clear();

    program.complete("ao", output, OutputResult::Restored);

    assert_eq!((program.value("ao"), program.value("ao.OVAL")), (4.0.into(), 4.0.into()));
    assert_eq!((program.alarm("ao"), program.has_ended(1)), (no_alarm(), true));

    program.put("ao", 6.0, 2);
    let (output, ..) = program.output("ao").unwrap();
    program.complete("ao", output, OutputResult::Done);
    program.put("ao", 7.0, 3);
    let (output, _, previous) = program.output("ao").unwrap();
    assert_eq!(previous, Some(6.0.into()));
    program.complete("ao", output, OutputResult::Restored);
    assert_eq!(program.value("ao"), 6.0.into());
}

#[test]
fn a_value_that_the_program_sets_on_an_output_is_posted_and_not_offered() {
    let time = TimeStamp::from_epics(1_000_000_000, 5);
    for (kind, value, expected) in outputs() {
        let mut program = ProgramDatabase::start(&output_record(kind, ""));

        let set = ProgramValue::new(value.clone()).with_alarm(Severity::Minor, Status::COMM).with_message("remote");
        program.set_with(kind, set.at(time)).unwrap();

        assert_eq!(program.output(kind), None, "{kind}");
        assert_eq!(program.value(kind), expected, "{kind}");
        assert_eq!(program.alarm(kind), (Severity::Minor, Status::COMM, "remote".into()), "{kind}");
        assert_eq!(program.database.read(program.field(kind)).time, time, "{kind}");
        assert_eq!(program.posted(kind), std::slice::from_ref(&expected), "{kind}");
        assert_eq!(program.value(&format!("{kind}.UDF")), 0_u8.into(), "{kind}");

        program.put(kind, value, 1);
        assert_eq!(program.output(kind).unwrap().2, Some(expected), "{kind}");
    }
}

#[test]
fn a_value_that_the_program_sets_before_it_completes_a_put_is_the_result_of_the_put() {
    let mut program = ProgramDatabase::start(&output_record("ao", ""));
    program.put("ao", 5.0, 1);
    let (output, ..) = program.output("ao").unwrap();

    program.set_with("ao", ProgramValue::new(4.9).with_alarm(Severity::Minor, Status::SOFT)).unwrap();
    assert!(!program.has_ended(1), "the put still waits");
    program.complete("ao", output, OutputResult::Done);

    assert!(program.has_ended(1));
    assert_eq!((program.value("ao"), program.value("ao.OVAL")), (4.9.into(), 4.9.into()));
    assert_eq!((program.alarm("ao").1, program.posted("ao")), (Status::SOFT, vec![4.9.into()]));
}

#[test]
fn a_put_that_arrives_while_the_program_writes_is_offered_afterwards() {
    let mut program = ProgramDatabase::start(&output_record("ao", ""));
    let field = program.field("ao");
    program.put("ao", 5.0, 1);
    let (first, ..) = program.output("ao").unwrap();
    program.input(Input::Put { field, value: 6.0.into(), put: None }).unwrap();
    program.put("ao", 7.0, 2);
    assert_eq!(program.output("ao"), None);

    program.set("ao", 4.9).unwrap();
    assert_eq!(program.value("ao"), 6.0.into(), "the newer put is not overwritten");
    program.complete("ao", first, OutputResult::Restored);
    // The put with completion was queued before the record became active again.
    let (second, value, _) = program.output("ao").unwrap();
    program.complete("ao", second, OutputResult::Done);
    let values = [value, program.output("ao").map_or(Value::from(0.0), |(_, value, _)| value)];

    assert!(values.contains(&7.0.into()), "{values:?}");
    assert!(program.has_ended(1));
}

#[test]
fn an_outdated_result_is_ignored() {
    let mut program = ProgramDatabase::start(&output_record("ao", ""));
    program.put("ao", 5.0, 1);
    let (first, ..) = program.output("ao").unwrap();
    program.complete("ao", first, OutputResult::Done);
    program.put("ao", 6.0, 2);
    let (second, ..) = program.output("ao").unwrap();

    program.complete("ao", first, OutputResult::Done);
    assert!(!program.has_ended(2));
    program.complete("ao", second, OutputResult::Done);
    program.complete("ao", second, OutputResult::Refused { message: "twice".into() });

    assert_eq!((program.has_ended(2), program.alarm("ao")), (true, no_alarm()));
}

#[test]
fn a_value_set_on_a_disabled_output_does_not_swallow_the_next_put() {
    let mut program = ProgramDatabase::start(&output_record("ao", "field(DISV, 0)"));
    program.set("ao", 4.0).unwrap();
    assert_eq!(program.alarm("ao").1, Status::DISABLE);

    program.put("ao.DISV", 1, 1);
    program.put("ao", 5.0, 2);

    assert_eq!(program.output("ao").unwrap().1, 5.0.into());
}

#[test]
fn an_output_that_the_program_does_not_take_completes_at_once() {
    let mut loader = Loader::default();
    loader.enable_program();
    loader.load("test.db", "", &mut |_| Ok(output_record("ao", "").into_bytes())).unwrap();
    let database = loader.finish().unwrap();
    let mut program = ProgramDatabase { database, now: Now::for_test(), events: Vec::new() };
    program.input(Input::Start).unwrap();

    program.put("ao", 5.0, 1);

    assert!(program.has_ended(1) && program.output("ao").is_none());
    assert_eq!((program.value("ao"), program.alarm("ao")), (5.0.into(), no_alarm()));
}

#[test]
fn a_forward_link_of_an_output_is_processed_when_the_program_has_completed_it() {
    let next = "record(calc, next) { field(CALC, \"VAL+1\") }";
    let mut program = ProgramDatabase::start(&(output_record("ao", "field(FLNK, next)") + next));
    program.put("ao", 5.0, 1);
    let (output, ..) = program.output("ao").unwrap();
    assert_eq!(program.value("next"), 0.0.into());

    program.complete("ao", output, OutputResult::Done);
    assert_eq!(program.value("next"), 1.0.into());
    program.set("ao", 6.0).unwrap();
    assert_eq!(program.value("next"), 2.0.into());
}

#[test]
fn dtyp_program_exists_only_in_a_database_with_a_program_and_takes_no_link() {
    let load = |text: &str, has_program: bool| {
        let mut loader = Loader::default();
        if has_program {
            loader.enable_program();
        }
        let loaded = loader.load("a.db", "", &mut |_| Ok(text.as_bytes().to_vec()));
        loaded.and_then(|()| loader.finish())
    };
    let text = "record(ai, a) { field(DTYP, Program) }";

    let errors = load(text, false).unwrap_err();
    assert!(errors[0].message.starts_with("DTYP has no choice \"Program\""), "{errors:?}");
    let labels = |database: &Database| database.meta(database.field("a.DTYP").unwrap()).labels.clone();
    assert!(labels(&load(text, true).unwrap()).contains(&"Program".into()));
    assert!(
        !labels(&load("record(waveform, a) {}", false).unwrap()).iter().any(|label| label.to_str().contains("Program"))
    );

    assert!(load("record(ai, a) { field(DTYP, Program) field(INP, \"@any\") }", true).is_ok());
    let errors = load("record(ai, a) { field(DTYP, Program) field(INP, \"b\") }", true).unwrap_err();
    assert!(errors[0].message.contains("this DTYP takes no link"), "{errors:?}");
}
