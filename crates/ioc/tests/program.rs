//! An IOC inside a program: records that the program defines, sets and takes, seen by clients of both protocols.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fodo_data::{Severity, Status, TimeStamp};
use fodo_ioc::{
    Ioc, IocBuilder, IocError, OutputRequest, ProgramError, ProgramValue, PutError, RecordDefinition, RecordError,
    RecordHandle, RunningIoc,
};
use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{Channel, Context, MonitorEvent, MonitorOptions, Reading, ServerConfig, Value};

const PATIENCE: Duration = Duration::from_secs(20);

/// A record whose device is the program.
fn record(kind: &str, name: &str) -> RecordDefinition {
    RecordDefinition::new(kind, name).field("DTYP", "Program")
}

fn input(kind: &str, name: &str) -> RecordDefinition {
    record(kind, name).field("SCAN", "I/O Intr")
}

fn built(definitions: &[RecordDefinition]) -> IocBuilder {
    let mut builder = IocBuilder::new();
    definitions.iter().for_each(|definition| builder.define(definition).unwrap());
    builder
}

fn served(builder: IocBuilder) -> RunningIoc {
    builder.build().unwrap().serve(ServerConfig::isolated()).unwrap()
}

/// The same PV over both protocols.
fn channels(ioc: &RunningIoc, name: &str) -> [Channel; 2] {
    let context = Context::new(ioc.client_config());
    [format!("ca://{name}"), format!("pva://{name}")].map(|name| {
        let channel = context.channel(&name).unwrap();
        channel.connect_timeout(PATIENCE).unwrap();
        channel
    })
}

/// An IOC with one output, and the values that its handler passes on.
fn output(definition: RecordDefinition) -> (RunningIoc, RecordHandle, Receiver<OutputRequest>) {
    let name = definition.name().to_owned();
    let mut builder = built(&[definition]);
    let (sender, requests) = mpsc::channel();
    builder.on_output(&name, move |request| drop(sender.send(request)));
    let ioc = served(builder);
    let handle = ioc.record(&name).unwrap();
    (ioc, handle, requests)
}

fn until(monitor: &fodo_net::Monitor, what: impl Fn(&Reading) -> bool) -> Reading {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) if what(&reading) => return reading,
            Some(_) => {}
            None => panic!("the update never arrives"),
        }
    }
}

#[test]
fn subscribers_of_both_protocols_receive_what_the_program_sets() {
    let ioc = served(built(&[input("ai", "t").field("PREC", 1)]));
    let t = ioc.record("t").unwrap();
    let channels = channels(&ioc, "t");
    let monitors = channels.each_ref().map(|channel| channel.monitor(MonitorOptions::default()));
    for monitor in &monitors {
        until(monitor, |_| true);
    }

    let time = TimeStamp::from_epics(1_000_000_000, 123_456_789);
    let value = ProgramValue::new(21.5).with_alarm(Severity::Major, Status::HW_LIMIT).with_message("no sensor");
    t.set_with(value.at(time)).unwrap();

    for monitor in &monitors {
        let reading = until(monitor, |reading| reading.value == Value::from(21.5));
        assert_eq!((reading.alarm.severity, reading.time), (Severity::Major, time), "{reading:?}");
    }
    assert_eq!(t.read().message.map(|message| message.to_string()), Some("no sensor".into()));
    t.set_with(ProgramValue::unchanged()).unwrap();
    for monitor in &monitors {
        let reading = until(monitor, |reading| reading.alarm.severity == Severity::None);
        assert_eq!(reading.value, Value::from(21.5));
    }
}

#[test]
fn a_put_of_either_protocol_waits_until_the_program_completes_it() {
    let (ioc, gap, requests) = output(record("ao", "gap").value(10.0));
    let active = ioc.record("gap.PACT").unwrap();
    for (number, channel) in [20.0, 30.0].into_iter().zip(channels(&ioc, "gap")) {
        let put = channel.start_put(number);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        assert_eq!((request.value(), active.read().value), (&Value::from(number), 1_u8.into()));
        assert_eq!(request.previous(), Some(&Value::from(number - 10.0)));

        request.complete();

        put.wait_timeout(PATIENCE).unwrap();
        assert_eq!((gap.read().value, active.read().value), (number.into(), 0_u8.into()));
    }
}

#[test]
fn a_refused_output_is_invalid_for_clients_and_a_dropped_one_is_refused() {
    let (ioc, gap, requests) = output(record("ao", "gap"));
    let message = |reading: Reading| reading.message.map_or(String::new(), |message| message.to_string());
    for (channel, is_dropped) in channels(&ioc, "gap").into_iter().zip([false, true]) {
        let put = channel.start_put(20.0);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        if is_dropped {
            drop(request)
        } else {
            request.refuse("at the limit switch")
        }
        put.wait_timeout(PATIENCE).unwrap();

        let reading = channel.get_timeout(PATIENCE).unwrap();
        assert_eq!((reading.alarm.severity, reading.value), (Severity::Invalid, Value::from(20.0)));
        assert_eq!(gap.read().alarm.status, Status::WRITE);
        let expected = if is_dropped { "the program dropped the output" } else { "at the limit switch" };
        assert_eq!(message(gap.read()), expected);
    }
}

#[test]
fn a_handler_may_set_its_own_record_and_others_before_it_completes() {
    let mut builder = built(&[record("ao", "gap"), input("ai", "readback"), record("bo", "motor")]);
    builder.on_output("gap", |request| {
        let readback = request.record("readback").unwrap();
        readback.set(request.value().clone()).unwrap();
        request.record("gap").unwrap().set_with(ProgramValue::new(19.5)).unwrap();
        request.record("motor").unwrap().put(1).unwrap();
        request.complete();
    });
    let (sender, motor) = mpsc::channel();
    builder.on_output("motor", move |request| {
        sender.send(request.value().clone()).unwrap();
        request.complete();
    });
    let ioc = served(builder);

    channels(&ioc, "gap")[0].put_timeout(20.0, PATIENCE).unwrap();

    assert_eq!(motor.recv_timeout(PATIENCE).unwrap().first(), Some(fodo_data::Scalar::Enum(1)));
    let value = |name: &str| ioc.record(name).unwrap().read().value;
    assert_eq!((value("gap"), value("readback")), (19.5.into(), 20.0.into()));
}

#[test]
fn a_handler_that_panics_refuses_the_output_and_is_logged() {
    let mut builder = built(&[record("ao", "gap")]);
    let mut n_calls = 0;
    builder.on_output("gap", move |request| {
        n_calls += 1;
        assert!(n_calls > 1, "the first call fails");
        request.complete();
    });
    let (sender, lines): (_, Receiver<LogLine>) = mpsc::channel();
    let log = Log::new(Level::Error, move |line| drop(sender.send(line.clone())));
    let ioc = builder.build().unwrap().serve_with_log(ServerConfig::isolated(), log).unwrap();
    let gap = ioc.record("gap").unwrap();
    let [channel, _] = channels(&ioc, "gap");

    channel.put_timeout(1.0, PATIENCE).unwrap();
    assert_eq!(gap.read().alarm.status, Status::WRITE);
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(line.what.starts_with("gap.VAL: the program's function"), "{line:?}");
    channel.put_timeout(2.0, PATIENCE).unwrap();
    assert_eq!((gap.read().alarm.status, gap.read().value), (Status::NO_ALARM, 2.0.into()));
}

#[test]
fn a_waveform_output_hands_its_array_to_the_program() {
    let wave = RecordDefinition::new("waveform", "w").field("DTYP", "Program Output").field("FTVL", "LONG");
    let (ioc, handle, requests) = output(wave.field("NELM", 4).value(vec![1, 2]));
    for (channel, array) in channels(&ioc, "w").into_iter().zip([vec![3, 4, 5], vec![6]]) {
        let put = channel.start_put(array.clone());
        let request = requests.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request.value(), &Value::from(array.clone()));
        request.complete();
        put.wait_timeout(PATIENCE).unwrap();
        assert_eq!(handle.read().value, Value::from(array));
    }
}

#[test]
fn set_many_sets_all_valid_values_and_reports_the_others_by_position() {
    let names: Vec<String> = (0..100).map(|number| format!("r{number}")).collect();
    let definitions: Vec<RecordDefinition> = names.iter().map(|name| input("longin", name)).collect();
    let ioc = served(built(&definitions));
    let handles: Vec<RecordHandle> = names.iter().map(|name| ioc.record(name).unwrap()).collect();
    let values = |first: i32| handles.iter().zip(first..).map(|(handle, value)| (handle, ProgramValue::new(value)));

    ioc.set_many(values(1000)).unwrap();
    assert!(handles.iter().zip(1000..).all(|(handle, value)| handle.read().value == Value::from(value)));
    let time = handles[0].read().time;
    assert!(handles.iter().all(|handle| handle.read().time == time), "all have one time stamp");

    let with_error = values(0).map(|(handle, value)| match handle.name() {
        "r7" | "r9" => (handle, ProgramValue::new("many")),
        _ => (handle, value),
    });
    let failure = ioc.set_many(with_error).unwrap_err();
    assert_eq!(failure.errors.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(failure.to_string(), "r7: \"many\" is not a number; 1 more values are not set");
    assert_eq!((handles[7].read().value, handles[8].read().value), (1007.into(), 8.into()));

    let other = served(built(&[input("longin", "r0")]));
    let stranger = other.record("r0").unwrap();
    let refused = ioc.set_many([(&handles[0], ProgramValue::new(5)), (&stranger, ProgramValue::new(5))]).unwrap_err();
    assert_eq!(refused.errors.len(), 1);
    assert_eq!((handles[0].read().value, stranger.read().value), (0.into(), 0.into()), "nothing is set");
}

#[test]
fn a_handle_names_what_it_cannot_do() {
    let mut builder = built(&[input("longin", "n")]);
    builder.load_text("record(ao, \"soft\") { field(DRVH, 10) } record(ao, \"off\") { field(DISP, 1) }", "").unwrap();
    let ioc = served(builder);
    let text = |result: Result<(), RecordError>| result.unwrap_err().to_string();

    assert_eq!(ioc.record("absent").unwrap_err().to_string(), "there is no record \"absent\"");
    assert_eq!(
        ioc.record("n.DESK").unwrap_err().to_string(),
        "record \"n\" has no field \"DESK\"; did you mean \"DESC\"?"
    );
    let soft = ioc.record("soft").unwrap();
    assert_eq!(text(soft.set(1.0)), "soft: the program can only set records whose DTYP is Program");
    assert_eq!(text(ioc.record("n.DESC").unwrap().set("x")), text(soft.set(1.0)).replace("soft", "n.DESC"));
    assert_eq!(
        text(ioc.record("n").unwrap().set(vec![1, 2])),
        "n: the length of the value is 2; the record can store 1"
    );
    let rejected = ioc.record("off").unwrap().put(1.0).unwrap_err();
    assert_eq!(rejected, RecordError::Put { pv: "off".into(), error: PutError::Disabled });
    soft.put(5.0).unwrap();
    assert_eq!(soft.read().value, 5.0.into());
}

#[test]
fn the_end_of_a_put_of_the_program_is_reported_once_all_processing_has_ended() {
    let (_ioc, gap, requests) = output(record("ao", "gap"));
    let (sender, ended) = mpsc::channel();
    let put = |value: f64| {
        let sender = sender.clone();
        gap.put_with(value, move |result| drop(sender.send((value, result)))).unwrap();
    };

    put(1.0);
    put(2.0);
    assert!(ended.try_recv().is_err(), "both wait");
    let first = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first.value(), &Value::from(1.0));
    first.complete();
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), (1.0, Ok(())));
    requests.recv_timeout(PATIENCE).unwrap().complete();
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), (2.0, Ok(())));

    let error = gap.put_with("much", |_| panic!("it is refused at once")).unwrap_err();
    assert!(error.to_string().contains("\"much\" is not a number"), "{error}");
}

#[test]
fn after_the_stop_handles_only_read_and_puts_in_progress_end() {
    let (ioc, gap, requests) = output(record("ao", "gap"));
    let (sender, ended) = mpsc::channel();
    gap.put_with(1.0, move |result| drop(sender.send(result))).unwrap();
    let request = requests.recv_timeout(PATIENCE).unwrap();

    ioc.stop().unwrap();

    let stopped = RecordError::Stopped { pv: "gap".into() };
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), Err(stopped.clone()));
    assert_eq!((gap.set(2.0), gap.put(2.0)), (Err(stopped.clone()), Err(stopped)));
    request.complete();
    assert_eq!(gap.read().value, 1.0.into());
}

#[test]
fn iocs_of_one_process_are_independent() {
    let iocs: Vec<RunningIoc> = (0..3).map(|_| served(built(&[input("longin", "n")]))).collect();
    let handles: Vec<RecordHandle> = iocs.iter().map(|ioc| ioc.record("n").unwrap()).collect();

    handles.iter().zip(1..).for_each(|(handle, value)| handle.set(value).unwrap());

    for (ioc, expected) in iocs.iter().zip(1..) {
        for channel in channels(ioc, "n") {
            assert_eq!(channel.get_timeout(PATIENCE).unwrap().value, Value::from(expected));
        }
    }
}

#[test]
fn a_builder_reports_errors_of_records_files_and_handlers() {
    let mut builder = IocBuilder::new();
    let message = |result: Result<(), IocError>| result.unwrap_err().to_string();
    assert!(message(builder.load("/absent/a.db", "")).starts_with("/absent/a.db: cannot be read"));
    let wrong = message(builder.load_text("record(ai, a) { field(EUG, K) }", ""));
    assert!(wrong.starts_with("text:1:") && wrong.contains("did you mean \"EGU\"?"), "{wrong}");
    let wrong = message(builder.define(&RecordDefinition::new("ai", "b").field("SCAN", "often")));
    assert!(wrong.starts_with("record \"b\": SCAN has no choice \"often\""), "{wrong}");

    let mut builder = built(&[input("ai", "in"), record("ao", "out")]);
    for name in ["in", "out.DESC", "outt"] {
        builder.on_output(name, |request| request.complete());
    }
    let IocError::Load(errors) = builder.build().unwrap_err() else { panic!("another error") };
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages[0], "\"in\" is not an output record with DTYP Program, so it calls no handler");
    assert!(messages[1].starts_with("\"out.DESC\"") && messages[2].ends_with("did you mean \"out\"?"), "{messages:?}");
}

#[test]
fn values_of_info_items_are_kept_over_a_restart() {
    let folder = std::env::temp_dir().join(format!("fodo-program-{}", std::process::id()));
    let start = || {
        let gap = record("ao", "gap").value(1.0).info("autosaveFields", "VAL PREC");
        let wave = RecordDefinition::new("waveform", "w").field("DTYP", "Program Output").field("NELM", 3);
        let wave = wave.field("FTVL", "DOUBLE").value(vec![1.0]).info("autosaveFields", "VAL");
        let mut builder = built(&[gap, wave]);
        builder.keep_values_in(&folder);
        builder.build().unwrap()
    };
    let values = |ioc: &RunningIoc| ["gap", "gap.PREC", "w"].map(|name| ioc.record(name).unwrap().read().value);

    let ioc: Ioc = start();
    assert_eq!(ioc.autosave_warnings(), [""; 0]);
    let ioc = ioc.serve(ServerConfig::isolated()).unwrap();
    assert_eq!(values(&ioc), [1.0.into(), 0_i16.into(), vec![1.0].into()]);
    ioc.record("gap").unwrap().set(20.0).unwrap();
    ioc.record("gap.PREC").unwrap().put(3).unwrap();
    ioc.record("w").unwrap().put(vec![7.0, 8.0]).unwrap();
    ioc.stop().unwrap();

    let ioc = start().serve(ServerConfig::isolated()).unwrap();
    assert_eq!(values(&ioc), [20.0.into(), 3_i16.into(), vec![7.0, 8.0].into()]);
    assert_eq!(ioc.record("gap").unwrap().read().alarm.severity, Severity::None);
    ioc.stop().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_input_refuses_what_a_client_puts_if_disp_is_set_as_in_python_soft_ioc() {
    // pythonSoftIOC's In records have DISP 1 and PINI YES.
    let ioc = served(built(&[input("ai", "t").field("DISP", 1).field("PINI", "YES").value(3.0)]));
    let t = ioc.record("t").unwrap();
    let [channel, _] = channels(&ioc, "t");

    assert!(channel.put_timeout(1.0, PATIENCE).is_err());
    t.set(4.0).unwrap();

    assert_eq!(channel.get_timeout(PATIENCE).unwrap().value, Value::from(4.0));
    assert_eq!(
        t.set(vec![1.0, 2.0]),
        Err(RecordError::Set { pv: "t".into(), error: ProgramError::TooLong { length: 2, max: 1 } })
    );
}

#[test]
fn a_function_for_the_end_of_a_put_uses_handles_and_puts_again() {
    const N: u32 = 10_000;
    fn count_to(handle: &RecordHandle, n: u32, ended: mpsc::Sender<u32>) {
        let again = handle.clone();
        let put = handle.put_with(f64::from(n), move |result| {
            result.unwrap();
            assert_eq!(again.read().value, Value::from(f64::from(n)), "{n}");
            match n < N {
                true => count_to(&again, n + 1, ended),
                false => drop(ended.send(n)),
            }
        });
        put.unwrap();
    }
    let running = served(built(&[RecordDefinition::new("ao", "gap")]));
    let (sender, ended) = mpsc::channel();

    count_to(&running.record("gap").unwrap(), 1, sender);

    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), N);
    running.stop().unwrap();
}

#[test]
fn a_handler_that_never_returns_does_not_block_the_stop() {
    let mut builder = built(&[record("ao", "gap")]);
    let (sender, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    builder.on_output("gap", move |_| {
        sender.send(()).unwrap();
        let _ = released.recv();
    });
    let (lines, logged) = mpsc::channel();
    let log = Log::new(Level::Warning, move |line| drop(lines.send(line.what.clone())));
    let running = builder.build().unwrap().serve_with_log(ServerConfig::isolated(), log).unwrap();
    running.record("gap").unwrap().put(1.0).unwrap();
    entered.recv_timeout(PATIENCE).unwrap();

    running.stop().unwrap();

    let line = logged.try_iter().find(|line| line.contains("has not returned within"));
    assert!(line.is_some());
    drop(release);
}
