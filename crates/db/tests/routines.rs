//! Routines of the program that sub and aSub records call.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_data::{Alarm, Now, Severity, Status, Text, Value};
use fodo_db::{Database, Event, FieldRef, Input, Loader, PutError, RoutineFailed};

fn started(mut loader: Loader, db: &str) -> Database {
    loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
    let database = loader.finish().unwrap();
    database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();
    database
}

fn put(database: &Database, name: &str, value: impl Into<Value>) -> Result<(), PutError> {
    let field = database.field(name).unwrap();
    database.handle(Input::Put { field, value: value.into(), put: None }, Now::for_test(), &mut Vec::new())
}

fn read(database: &Database, name: &str) -> Value {
    database.read(database.field(name).unwrap()).value
}

fn alarm(database: &Database, name: &str) -> Alarm {
    database.read(database.field(name).unwrap()).alarm
}

#[test]
fn an_array_routine_reads_typed_inputs_and_sets_typed_outputs() {
    let mut loader = Loader::default();
    loader.array_routine("split", |call| {
        let numbers = call.input::<i16>('A')?;
        let label = call.input::<Text>('B')?.first().cloned().unwrap_or_default();
        let (even, odd): (Vec<i16>, Vec<i16>) = numbers.iter().partition(|number| *number % 2 == 0);
        let odd: Vec<f64> = odd.into_iter().map(f64::from).collect();
        call.set_output('A', &even)?;
        call.set_output('B', &odd)?;
        call.set_output('C', &[label])?;
        Ok(0)
    });
    let database = started(
        loader,
        "record(waveform, w) { field(FTVL, LONG) field(NELM, 8) }
         record(aSub, s) {
             field(SNAM, split) field(INPA, w) field(FTA, SHORT) field(NOA, 8) field(INPB, label) field(FTB, STRING)
             field(FTVA, SHORT) field(NOVA, 8) field(OUTA, even) field(NOVB, 2) field(OUTB, \"odd PP\") field(FTVC, STRING)
         }
         record(stringin, label) { field(VAL, numbers) }
         record(waveform, even) { field(FTVL, DOUBLE) field(NELM, 8) }
         record(ao, odd) {}",
    );

    put(&database, "w", vec![1, 2, 3, 4, 5, 6]).unwrap();
    put(&database, "s.PROC", 1).unwrap();

    assert_eq!(read(&database, "s.VALA"), Value::from(vec![2_i16, 4, 6]));
    assert_eq!(read(&database, "s.NEVA"), Value::from(3_u32));
    assert_eq!(read(&database, "s.VALB"), Value::from(vec![1.0, 3.0]), "NOVB is 2");
    assert_eq!(read(&database, "s.VALC"), Value::from(vec![Text::from("numbers")]));
    assert_eq!(read(&database, "even"), Value::from(vec![2.0, 4.0, 6.0]));
    assert_eq!(read(&database, "odd"), Value::from(1.0));
    assert_eq!((read(&database, "s"), alarm(&database, "s").severity), (Value::from(0), Severity::None));
}

#[test]
fn an_asub_routine_result_is_stored_in_val_and_negative_results_raise_an_alarm() {
    let mut loader = Loader::default();
    loader.array_routine("code", |call| {
        let code = *call.input::<f64>('A')?.first().ok_or(RoutineFailed)?;
        call.set_output('A', &[code])?;
        Ok(code as i32)
    });
    let database = started(
        loader,
        "record(aSub, s) { field(SNAM, code) field(OUTA, out) field(BRSV, MAJOR) }
         record(ao, out) { field(VAL, 9) }",
    );

    for (code, severity, out) in
        [(3, Severity::None, 9.0), (-4, Severity::Major, 9.0), (0, Severity::None, 0.0), (5, Severity::None, 0.0)]
    {
        put(&database, "s.A", code).unwrap();
        put(&database, "s.PROC", 1).unwrap();

        assert_eq!(read(&database, "s"), Value::from(code));
        let status = if code < 0 { Status::SOFT } else { Status::NO_ALARM };
        assert_eq!(alarm(&database, "s"), Alarm { severity, status }, "{code}");
        assert_eq!(read(&database, "out"), Value::from(out), "{code}");
    }
}

#[test]
fn an_array_routine_that_panics_or_uses_a_wrong_type_raises_an_alarm() {
    let mut loader = Loader::default();
    loader.array_routine("faulty", |call| {
        let mode = call.input::<f64>('A')?.first().copied();
        call.set_output('A', &[7.0])?;
        match mode {
            Some(1.0) => panic!("this routine has a fault"),
            Some(2.0) => call.input::<i32>('A').map(|_| 0),
            Some(3.0) => call.set_output('A', &[1_u8]).map(|()| 0),
            Some(4.0) => call.set_output('V', &[1.0]).map(|()| 0),
            _ => Ok(0),
        }
    });
    let database = started(
        loader,
        "record(aSub, s) { field(SNAM, faulty) field(BRSV, INVALID) field(FLNK, next) }
         record(calc, next) { field(CALC, \"VAL+1\") }",
    );

    for mode in [1.0, 2.0, 3.0, 4.0] {
        put(&database, "s.A", mode).unwrap();
        put(&database, "s.PROC", 1).unwrap();
        assert_eq!(alarm(&database, "s"), Alarm { severity: Severity::Invalid, status: Status::SOFT }, "{mode}");
        assert_eq!((read(&database, "s"), read(&database, "s.PACT")), (Value::from(-1), Value::from(0_u8)));

        put(&database, "s.A", 0.0).unwrap();
        put(&database, "s.PROC", 1).unwrap();
        assert_eq!((read(&database, "s"), alarm(&database, "s").severity), (Value::from(0), Severity::None));
        assert_eq!(read(&database, "s.VALA"), Value::from(vec![7.0]));
    }
    assert_eq!(read(&database, "next"), Value::from(8.0));
}

#[test]
fn inam_is_called_once_and_subl_selects_the_routine_for_each_processing() {
    let mut loader = Loader::default();
    loader.array_routine("begin", |call| call.set_output('A', &[100.0]).map(|()| 0));
    for (name, step) in [("up", 1.0), ("down", -1.0)] {
        loader.array_routine(name, move |call| {
            let next = call.output::<f64>('A')?.iter().sum::<f64>() + step;
            call.set_output('A', &[next]).map(|()| 0)
        });
    }
    let database = started(
        loader,
        "record(aSub, s) { field(INAM, begin) field(LFLG, READ) field(SUBL, name) }
         record(stringin, name) { field(VAL, up) }",
    );

    let mut values = vec![read(&database, "s.VALA")];
    for name in ["up", "up", "down", "sideways", "down"] {
        put(&database, "name", name).unwrap();
        put(&database, "s.PROC", 1).unwrap();
        values.push(read(&database, "s.VALA"));
    }

    let expected = [100.0, 101.0, 102.0, 101.0, 101.0, 100.0].map(|number| Value::from(vec![number]));
    assert_eq!(values, expected, "an unknown name is not called");
    assert_eq!(put(&database, "s.LFLG", "IGNORE"), Ok(()));
    assert_eq!(put(&database, "s.SNAM", "sideways"), Err(PutError::Rejected("no routine has this name")));
}

#[test]
fn sub_and_asub_routines_have_separate_namespaces() {
    let mut loader = Loader::default();
    loader.routine("same", |call| {
        *call.value = 1.0;
        Ok(())
    });
    loader.array_routine("same", |_| Ok(2));
    let database = started(loader, "record(sub, one) { field(SNAM, same) } record(aSub, many) { field(SNAM, same) }");

    put(&database, "one.PROC", 1).unwrap();
    put(&database, "many.PROC", 1).unwrap();

    assert_eq!((read(&database, "one"), read(&database, "many")), (Value::from(1.0), Value::from(2)));
}

#[test]
fn an_empty_name_from_subl_calls_no_routine_and_an_empty_array_keeps_the_input() {
    let mut loader = Loader::default();
    loader.array_routine("sum", |call| {
        let sum: f64 = call.input::<f64>('B')?.iter().sum();
        call.set_output('C', &[sum]).map(|()| 0)
    });
    let database = started(
        loader,
        "record(aSub, s) { field(LFLG, READ) field(SUBL, name) field(INPB, w) field(FTB, DOUBLE) field(NOB, 4) }
         record(waveform, w) { field(FTVL, DOUBLE) field(NELM, 4) } record(stringin, name) {}",
    );
    let sum_of = |elements: Vec<f64>| {
        put(&database, "w", elements).unwrap();
        put(&database, "s.PROC", 1).unwrap();
        read(&database, "s.VALC")
    };

    put(&database, "name", "sum").unwrap();
    assert_eq!(sum_of(vec![1.0, 2.0]), Value::from(vec![3.0]));
    assert_eq!(sum_of(vec![]), Value::from(vec![3.0]));
    put(&database, "name", "").unwrap();
    assert_eq!(sum_of(vec![5.0]), Value::from(vec![3.0]), "no routine is called");
    assert_eq!(read(&database, "s.B"), Value::from(vec![5.0]), "the inputs are read");
}

#[test]
fn an_asub_record_posts_exactly_the_outputs_that_changed() {
    let mut loader = Loader::default();
    loader.array_routine("copy", |call| {
        let numbers = call.input::<f64>('A')?.to_vec();
        call.set_output('C', &numbers).map(|()| 0)
    });
    let database = started(
        loader,
        "record(aSub, s) { field(SNAM, copy) field(EFLG, \"ON CHANGE\") field(FTA, DOUBLE) field(NOA, 4) field(NOVC, 4) }",
    );
    let names = ["s.VALA", "s.VALB", "s.VALC", "s.VALD", "s.NEVB", "s.NEVC", "s.NEVD"];
    let fields = names.map(|name| database.field(name).unwrap());
    fields.iter().for_each(|field| database.watch(*field));
    let posted = |elements: Vec<f64>| {
        put(&database, "s.A", elements).unwrap();
        let (field, mut events) = (database.field("s.PROC").unwrap(), Vec::new());
        let process = Input::Put { field, value: Value::from(1), put: None };
        database.handle(process, Now::for_test(), &mut events).unwrap();
        let is_posted =
            |of: FieldRef| events.iter().any(|event| matches!(event, Event::Posted { field, .. } if *field == of));
        names.into_iter().zip(fields).filter(|(_, field)| is_posted(*field)).map(|(name, _)| name).collect::<Vec<_>>()
    };

    assert_eq!(posted(vec![1.0, 2.0]), ["s.VALC", "s.NEVC"]);
    assert_eq!(posted(vec![1.0, 3.0]), ["s.VALC"]);
    assert_eq!(posted(vec![1.0, 3.0]), [""; 0]);
}
