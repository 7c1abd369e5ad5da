//! Operations: started, executed, interrupted, ended.

use std::sync::Arc;

use fodo_data::{EventMask, Kind, Reading, Scalar, Structure, StructureType, Value};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::server::{ChannelType, Contents, Event, ProcessOption, PutOptions, PutValue, RequestKey, WriteReply};
use fodo_pva::status::{RequestStatus, StatusLevel};
use fodo_pva::{Cid, Ioid, Sid, types, value};

use crate::scripted::{
    Received, Server, bits, contents, double, double_body, flat, get, pair, put, pv_request_body, reading, rpc,
};

const OK: RequestStatus = RequestStatus::OK;

/// The marked nodes and the value in a reply.
fn values(received: &Received, kind: &Arc<StructureType>) -> Structure {
    let mut values = Structure::new(kind.clone());
    let mut reader = received.reader();
    value::decode_changed(&mut values, &mut reader, &mut types::TypeCache::new());
    assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
    values
}

/// The contents of a [`pair`].
fn left_and_list(left: i32, list: Vec<i16>) -> Structure {
    let mut structure = Structure::new(pair().kind().clone());
    structure.set("left", left).unwrap();
    structure.set("right.list", list).unwrap();
    structure
}

#[test]
fn a_get_is_started_once_and_executed_many_times_in_both_byte_orders() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let (mut server, sid) = Server::with_double();
        server.order = order;
        let kind = server.init(&get(sid, 5, Subcommand::INIT), "");
        assert_eq!(kind, *double().kind());

        for (number, sub) in [(1.5, Subcommand::EXECUTE), (2.5, Subcommand::EXECUTE), (3.5, Subcommand::DESTROY)] {
            server.send(&get(sid, 5, sub), |_| {});
            let Event::Read { sid: of, request, needs_meta, .. } = server.event() else { panic!("no read") };
            assert_eq!((of, needs_meta), (sid, true));
            let reading = reading(number);
            server.circuit.read_done(request, Ok(contents(&reading)));

            let received = server.answer();
            assert_eq!(received.answer, Answer::Get { ioid: Ioid(5), sub, status: OK });
            let values = values(&received, &kind);
            let ChannelType::Flat(layout) = double() else { panic!("a double is flat") };
            assert_eq!(
                (layout.reading(&values), layout.meta(&values)),
                (Reading { meta: None, ..reading.clone() }, (**reading.meta.as_ref().unwrap()).clone())
            );
            assert_eq!(values.changed(), layout.whole(EventMask(15)));
        }
        server.send(&get(sid, 5, Subcommand::EXECUTE), |_| {});
        assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
    }
}

#[test]
fn a_client_that_refers_to_types_by_id_receives_each_type_once_and_its_id_from_then_on() {
    let (mut server, sid) = Server::with_double();
    let request = PvRequest::parse("").unwrap().to_structure();
    let mut ids = types::TypeIds::new(10);
    let mut sizes = Vec::new();
    // In full without an id, in full with one, and twice by the id alone.
    for ioid in 1..=4 {
        let ids = (ioid > 1).then_some(&mut ids);
        server.send(&get(sid, ioid, Subcommand::INIT), |to| value::encode_any(Some(&request), ids, to));
        server.take();
        sizes.push(server.sent().len());
    }

    assert_eq!(sizes, [8 + 451, 8 + 451, 8 + 451 + 3, 8 + 9]);
}

#[test]
fn a_client_that_refers_only_to_types_of_the_same_message_receives_each_type_in_full() {
    let (mut server, sid) = Server::with_double();
    // A structure of two empty ones, of which the second is a reference to the first.
    let request = b"\xfd\x01\x00\x80\x00\x02\x01a\xfd\x02\x00\x80\x00\x00\x01b\xfe\x02\x00";
    for ioid in [1, 2] {
        server.send(&get(sid, ioid, Subcommand::INIT), |to| to.bytes(request));
        assert_eq!((server.take(), server.sent().len()), (vec![], 8 + 451));
    }
}

#[test]
fn only_selected_fields_are_sent_and_unknown_ones_are_ignored() {
    for (selected, sent, needs_meta) in [
        ("value", vec![1], false),
        ("value,none", vec![1], false),
        ("timeStamp,value", vec![1, 7, 8, 9], false),
        ("alarm.severity,display.units", vec![3, 14], true),
    ] {
        let (mut server, sid) = Server::with_double();
        let kind = server.init(&get(sid, 1, Subcommand::INIT), selected);
        assert_eq!(kind, *double().kind(), "the type is complete");

        server.send(&get(sid, 1, Subcommand::EXECUTE), |_| {});
        let Event::Read { request, needs_meta: needed, .. } = server.event() else { panic!("no read") };
        server.circuit.read_done(request, Ok(contents(&reading(1.5))));

        assert_eq!(needed, needs_meta, "{selected}");
        assert!(values(&server.answer(), &kind).changed().iter().eq(sent), "{selected}");
    }
    let (mut server, sid) = Server::with_double();
    server.send(&get(sid, 1, Subcommand::INIT), pv_request_body("none,alarm.none"));
    assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
}

#[test]
fn a_pv_request_of_nothing_selects_everything() {
    let (mut server, sid) = Server::with_double();
    server.send(&get(sid, 1, Subcommand::INIT), |to| value::encode_any(None, None, to));
    server.take();

    assert_eq!(server.answer().level(), StatusLevel::Ok);
    server.send(&get(sid, 1, Subcommand::EXECUTE), |_| {});
    assert!(matches!(server.event(), Event::Read { needs_meta: true, .. }));
}

#[test]
fn the_structure_of_a_get_contains_its_marked_nodes() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    let kind = server.init(&get(sid, 1, Subcommand::INIT), "");
    let request = server.execute(&get(sid, 1, Subcommand::EXECUTE));

    let structure = left_and_list(7, vec![1, 2]);
    server.circuit.read_done(request, Ok(Contents::Structure(&structure)));

    let received = values(&server.answer(), &kind);
    assert_eq!((received.get("left"), received.get("right.list")), (Some(&7.into()), Some(&vec![1_i16, 2].into())));
    assert!(received.changed().iter().eq([1, 4]));
}

#[test]
fn a_value_of_another_type_is_reported_and_not_sent() {
    let mut server = Server::validated();
    let (flat, structured) = (server.channel(double()), server.channel(pair()));
    let other = Structure::single(1.5.into());
    let reading = reading(1.5);
    for (sid, ioid, value) in [(flat, 1, Contents::Structure(&other)), (structured, 2, Contents::Reading(&reading))] {
        server.init(&get(sid, ioid, Subcommand::INIT), "");
        let request = server.execute(&get(sid, ioid, Subcommand::EXECUTE));

        server.circuit.read_done(request, Ok(value));

        assert_eq!(server.answer().level(), StatusLevel::Error);
    }
}

#[test]
fn a_failed_read_sends_its_status_and_the_operation_remains() {
    let (mut server, sid) = Server::with_double();
    server.init(&get(sid, 1, Subcommand::INIT), "");
    for _ in 0..2 {
        let request = server.execute(&get(sid, 1, Subcommand::EXECUTE));
        let status = RequestStatus::error("no access");

        server.circuit.read_done(request, Err(&status));

        let expected = Answer::Get { ioid: Ioid(1), sub: Subcommand::EXECUTE, status };
        assert_eq!(server.answer().answer, expected);
    }
}

#[test]
fn a_put_delivers_its_value_its_options_and_its_request() {
    for (text, expected) in [
        ("", PutOptions::default()),
        (
            "record[process=true,block=true]",
            PutOptions { process: ProcessOption::Always, is_blocking: true, ..PutOptions::default() },
        ),
    ] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let (mut server, sid) = Server::with_double();
            server.order = order;
            server.init(&put(sid, 1, Subcommand::INIT), text);

            for number in [1.5, -2.5] {
                server.send(&put(sid, 1, Subcommand::EXECUTE), double_body(number));
                let Event::Write { sid: of, request, value, options, reply } = server.event() else {
                    panic!("no write")
                };
                assert_eq!((of, reply), (sid, WriteReply::Status));
                let sent = options.request.as_deref().map(|sent| PvRequest::from_structure(sent).options);
                assert_eq!(sent, Some(PvRequest::parse(text).unwrap().options));
                assert_eq!(PutOptions { request: None, ..options }, expected);
                assert_eq!(value, PutValue::Flat(Some(number.into())));
                assert_eq!(server.answers().len(), 0, "the reply waits for the end of the put");
                server.circuit.write_done(request, Ok(()));

                let done = Answer::Put { ioid: Ioid(1), sub: Subcommand::EXECUTE, status: OK };
                assert_eq!(server.answer().answer, done);
            }
        }
    }
}

#[test]
fn a_get_that_processes_the_record_puts_nothing_and_is_answered_with_the_value() {
    let (mut server, sid) = Server::with_double();
    let kind = server.init(&get(sid, 1, Subcommand::INIT), "record[process=true,block=true]field(value)");
    let process_and_wait = PutOptions { process: ProcessOption::Always, is_blocking: true, ..PutOptions::default() };

    for number in [1.5, 2.5] {
        server.send(&get(sid, 1, Subcommand::EXECUTE), |_| {});
        let Event::Write { request, value: PutValue::Flat(None), options, reply, .. } = server.event() else {
            panic!("no write")
        };
        assert_eq!((options, reply), (process_and_wait.clone(), WriteReply::Value { needs_meta: false }));
        server.circuit.read_done(request, Ok(contents(&reading(number))));

        assert_eq!(values(&server.answer(), &kind).get("value"), Some(&number.into()));
    }
    server.init(&get(sid, 2, Subcommand::INIT), "record[process=false]");
    server.send(&get(sid, 2, Subcommand::EXECUTE), |_| {});
    assert!(matches!(server.event(), Event::Read { .. }));
    let structured = server.channel(pair());
    server.init(&get(structured, 3, Subcommand::INIT), "record[process=true]");
    server.send(&get(structured, 3, Subcommand::EXECUTE), |_| {});
    assert!(matches!(server.event(), Event::Read { .. }), "a structure has no record");
}

#[test]
fn a_put_of_an_enum_is_its_index_and_one_without_a_value_has_none() {
    let mut server = Server::validated();
    let sid = server.channel(flat(Kind::Enum, false));
    let kind = server.init(&put(sid, 1, Subcommand::INIT), "value");
    let mut changed = Structure::new(kind.clone());
    changed.set("value.index", 2).unwrap();

    server.send(&put(sid, 1, Subcommand::EXECUTE), |to| value::encode_bits(&changed, changed.changed(), to));
    let Event::Write { request, value: put_value, .. } = server.event() else { panic!("no write") };
    assert_eq!(put_value, PutValue::Flat(Some(Value::Scalar(Scalar::Enum(2)))));
    server.circuit.write_done(request, Err(&RequestStatus::error("no such state")));
    assert_eq!(server.answer().level(), StatusLevel::Error);

    changed.unmark_all();
    server.send(&put(sid, 1, Subcommand::EXECUTE), |to| value::encode_bits(&changed, changed.changed(), to));
    let Event::Write { value: put_value, .. } = server.event() else { panic!("no write") };
    assert_eq!(put_value, PutValue::Flat(None));
}

#[test]
fn a_put_to_a_structure_marks_the_nodes_to_put() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    server.init(&put(sid, 1, Subcommand::INIT), "");
    let sent = left_and_list(7, vec![1, 2]);

    server.send(&put(sid, 1, Subcommand::EXECUTE), |to| value::encode_bits(&sent, sent.changed(), to));

    let event = server.event();
    assert!(event.value_bytes() > sent.kind().nodes().len() * 16);
    let Event::Write { value: PutValue::Structured(received), .. } = event else { panic!("{event:?}") };
    assert_eq!(received, sent);
}

#[test]
fn the_value_of_a_put_is_read_back_as_selected() {
    let (mut server, sid) = Server::with_double();
    let kind = server.init(&put(sid, 1, Subcommand::INIT), "value");

    let request = server.execute(&put(sid, 1, Subcommand::GET));
    server.circuit.read_done(request, Ok(contents(&reading(1.5))));

    let received = server.answer();
    assert_eq!(received.answer, Answer::Put { ioid: Ioid(1), sub: Subcommand::GET, status: OK });
    assert!(values(&received, &kind).changed().iter().eq([1]));
}

#[test]
fn a_put_get_replies_with_the_value_after_the_put() {
    let (mut server, sid) = Server::with_double();
    let put_get = |sub| Request::PutGet { sid, ioid: Ioid(1), sub };
    server.send(&put_get(Subcommand::INIT), pv_request_body("putField(value)getField(value,alarm)"));
    server.take();
    let received = server.answer();
    let mut reader = received.reader();
    let kinds = [(), ()].map(|()| types::decode(&mut reader, &mut server.types).unwrap());
    assert_eq!(kinds[0], kinds[1]);

    server.send(&put_get(Subcommand::EXECUTE), double_body(1.5));
    let Event::Write { request, reply, .. } = server.event() else { panic!("no write") };
    assert_eq!(reply, WriteReply::Value { needs_meta: false });
    server.circuit.read_done(request, Ok(contents(&reading(1.5))));
    let received = server.answer();
    assert_eq!(received.answer, Answer::PutGet { ioid: Ioid(1), sub: Subcommand::EXECUTE, status: OK });
    assert!(values(&received, &kinds[0]).changed().iter().eq([1, 3, 4, 5]));

    for sub in [Subcommand::GET, Subcommand::ACK] {
        let request = server.execute(&put_get(sub));
        server.circuit.read_done(request, Ok(contents(&reading(1.5))));
        assert_eq!(server.answer().answer, Answer::PutGet { ioid: Ioid(1), sub, status: OK });
    }
}

#[test]
fn a_put_get_without_a_selection_of_its_own_for_the_get_reads_the_fields_of_the_request() {
    for (selected, expected) in [("field(value)", vec![1]), ("getField(alarm)field(value)", vec![3, 4, 5])] {
        let (mut server, sid) = Server::with_double();
        let put_get = |sub| Request::PutGet { sid, ioid: Ioid(1), sub };
        server.init(&put_get(Subcommand::INIT), selected);

        let request = server.execute(&put_get(Subcommand::GET));
        server.circuit.read_done(request, Ok(contents(&reading(1.5))));

        let received = values(&server.answer(), double().kind());
        assert!(received.changed().iter().eq(expected), "{selected}");
    }
}

#[test]
fn a_record_is_processed_on_request() {
    let (mut server, sid) = Server::with_double();
    let process = |sub| Request::Process { sid, ioid: Ioid(1), sub };
    server.send(&process(Subcommand::INIT), pv_request_body(""));
    server.take();
    let started = server.answer();
    assert_eq!((started.level(), started.body.len()), (StatusLevel::Ok, 0));

    let request = server.execute(&process(Subcommand::EXECUTE));
    server.circuit.write_done(request, Ok(()));

    let done = Answer::Process { ioid: Ioid(1), sub: Subcommand::EXECUTE, status: OK };
    assert_eq!(server.answer().answer, done);
}

#[test]
fn a_procedure_is_called_with_its_argument_and_replies_with_its_result() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    server.send(&rpc(sid, 1, Subcommand::INIT), pv_request_body(""));
    server.take();
    assert_eq!(server.answer().body.len(), 0);
    let argument = left_and_list(7, vec![1, 2]);

    for (sent, result) in [(Some(&argument), Some(&argument)), (None, None)] {
        server.send(&rpc(sid, 1, Subcommand::EXECUTE), |to| value::encode_any(sent, None, to));
        let event = server.event();
        assert_eq!(event.value_bytes() > 0, sent.is_some());
        let Event::Rpc { request, argument: received, .. } = event else { panic!("{event:?}") };
        let received = received.map(|mut received| {
            received.mark_only(argument.changed().clone());
            received
        });
        assert_eq!(received.as_ref(), sent);
        server.circuit.rpc_done(request, Ok(result));

        let reply = server.answer();
        assert_eq!(reply.level(), StatusLevel::Ok);
        let found = value::decode_any(&mut reply.reader(), &mut server.types);
        assert_eq!(found.as_ref().and_then(|found| found.get("left")), result.and_then(|result| result.get("left")));
    }
    server.send(&rpc(sid, 1, Subcommand::EXECUTE), |to| value::encode_any(None, None, to));
    let request = server.request();
    server.circuit.rpc_done(request, Err(&RequestStatus::error("not implemented")));
    assert_eq!(server.answer().level(), StatusLevel::Error);
}

#[test]
fn an_operation_on_a_part_of_an_array_is_refused() {
    let (mut server, sid) = Server::with_double();
    for sub in [Subcommand::INIT, Subcommand::GET] {
        server.send(&Request::Array { sid, ioid: Ioid(1), sub }, pv_request_body(""));

        let received = server.answer();
        assert!(matches!(received.answer, Answer::Array { ioid: Ioid(1), .. }));
        assert_eq!((received.level(), server.take()), (StatusLevel::Error, vec![]));
    }
}

#[test]
fn an_execution_during_another_one_is_refused_and_ends_the_operation_if_it_demands_that() {
    let (mut server, sid) = Server::with_double();
    server.init(&get(sid, 1, Subcommand::INIT), "");
    let first = server.execute(&get(sid, 1, Subcommand::EXECUTE));

    for sub in [Subcommand::EXECUTE, Subcommand::DESTROY, Subcommand::DESTROY, Subcommand::EXECUTE] {
        server.send(&get(sid, 1, sub), |_| {});
        assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
    }
    server.circuit.read_done(first, Ok(contents(&reading(1.5))));

    assert_eq!(server.answer().level(), StatusLevel::Ok);
    server.init(&get(sid, 1, Subcommand::INIT), "");
}

// Row 43 of docs/reference/faults.md.
#[test]
fn a_request_with_a_stale_or_foreign_number_gets_a_status_and_the_circuit_continues() {
    let (mut server, sid) = Server::with_double();
    let other = server.channel(double());
    server.init(&get(sid, 1, Subcommand::INIT), "");

    for request in [
        get(Sid(77), 2, Subcommand::INIT),
        get(Sid(77), 1, Subcommand::EXECUTE),
        get(other, 1, Subcommand::EXECUTE),
        get(sid, 77, Subcommand::EXECUTE),
        put(sid, 1, Subcommand::EXECUTE),
        rpc(sid, 77, Subcommand::EXECUTE),
        Request::Process { sid, ioid: Ioid(1), sub: Subcommand::EXECUTE },
        Request::PutGet { sid, ioid: Ioid(77), sub: Subcommand::EXECUTE },
        Request::GetField { sid: Sid(77), ioid: Ioid(3), sub_field: "".into() },
    ] {
        server.send(&request, pv_request_body(""));
        assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error), "{request}");
    }
    for request in [
        Request::CancelRequest { sid, ioid: Ioid(77) },
        Request::DestroyRequest { sid: other, ioid: Ioid(1) },
        Request::DestroyRequest { sid: Sid(77), ioid: Ioid(77) },
    ] {
        server.send(&request, |_| {});
        assert_eq!((server.take(), server.answers().len()), (vec![], 0), "{request}");
    }
    server.execute(&get(sid, 1, Subcommand::EXECUTE));
    assert!(server.is_alive());
}

// Row 43 of docs/reference/faults.md.
#[test]
fn a_number_in_use_is_refused_for_a_second_operation() {
    let (mut server, sid) = Server::with_double();
    server.init(&get(sid, 1, Subcommand::INIT), "");

    server.send(&put(sid, 1, Subcommand::INIT), pv_request_body(""));

    assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
    server.execute(&get(sid, 1, Subcommand::EXECUTE));
}

/// A put in progress, and its request.
fn put_in_progress() -> (Server, Sid, RequestKey) {
    let (mut server, sid) = Server::with_double();
    server.init(&put(sid, 1, Subcommand::INIT), "");
    server.send(&put(sid, 1, Subcommand::EXECUTE), double_body(1.5));
    let request = server.request();
    (server, sid, request)
}

// Row 43 of docs/reference/faults.md.
#[test]
fn the_late_reply_to_a_destroyed_operation_is_not_sent() {
    for destroy_channel in [false, true] {
        let (mut server, sid, request) = put_in_progress();

        let (destroy, expected) = match destroy_channel {
            true => (
                Request::DestroyChannel { sid, cid: Cid(9) },
                vec![Event::Cancel { sid, request }, Event::Clear { sid }],
            ),
            false => (Request::DestroyRequest { sid, ioid: Ioid(1) }, vec![Event::Cancel { sid, request }]),
        };
        server.send(&destroy, |_| {});
        assert_eq!(server.take(), expected);
        server.answers();
        server.circuit.write_done(request, Ok(()));
        server.circuit.read_done(request, Ok(contents(&reading(1.5))));

        assert_eq!(server.answers().len(), 0);
        let again = server.channel(double());
        server.init(&put(again, 1, Subcommand::INIT), "");
    }
}

// Row 43 of docs/reference/faults.md.
#[test]
fn a_cancelled_execution_is_not_taken_for_the_next_one() {
    let (mut server, sid, first) = put_in_progress();
    server.send(&Request::CancelRequest { sid, ioid: Ioid(1) }, |_| {});
    server.send(&put(sid, 1, Subcommand::EXECUTE), double_body(2.5));
    let [Event::Cancel { request: cancelled, .. }, Event::Write { request: second, .. }] = server.take()[..] else {
        panic!("a put is cancelled, and another one starts")
    };
    assert_eq!(cancelled, first);

    server.circuit.write_done(first, Err(&RequestStatus::error("late")));
    assert_eq!(server.answers().len(), 0);
    server.circuit.write_done(second, Ok(()));

    assert_eq!(server.answer().level(), StatusLevel::Ok);
}

#[test]
fn the_reply_to_the_start_of_an_operation_that_has_ended_is_not_sent() {
    let (mut server, sid) = Server::with_double();
    server.send(&get(sid, 1, Subcommand::INIT), pv_request_body(""));
    server.send(&Request::DestroyRequest { sid, ioid: Ioid(1) }, |_| {});
    server.send(&put(sid, 1, Subcommand::INIT), pv_request_body(""));

    assert_eq!(server.take(), []);

    assert!(matches!(server.answer().answer, Answer::Put { .. }));
}

#[test]
fn an_operation_can_be_executed_before_its_start_is_confirmed() {
    let (mut server, sid) = Server::with_double();
    server.send(&get(sid, 1, Subcommand::INIT), pv_request_body(""));
    server.send(&get(sid, 1, Subcommand::DESTROY), |_| {});

    let request = server.request();
    server.circuit.read_done(request, Ok(contents(&reading(1.5))));

    let subs = server.answers().into_iter().map(|received| match received.answer {
        Answer::Get { sub, .. } => sub,
        other => panic!("{other}"),
    });
    assert!(subs.eq([Subcommand::INIT, Subcommand::DESTROY]));
}

#[test]
fn an_option_that_is_not_understood_is_reported_in_the_log_of_the_client() {
    let (mut server, sid) = Server::with_double();

    server.send(&put(sid, 7, Subcommand::INIT), pv_request_body("record[process=perhaps]"));
    server.take();

    let answers = server.answers();
    let Answer::Message { ioid, level, text } = &answers[0].answer else { panic!("{answers:?}") };
    assert_eq!((*ioid, *level), (Ioid(7), 1));
    assert!(text.to_str().contains("perhaps"));
    assert_eq!((answers.len(), answers[1].level()), (2, StatusLevel::Ok));
}

#[test]
fn a_large_array_is_sent_from_the_memory_of_the_reading() {
    let elements = Arc::new((0..100_000).map(f64::from).collect::<Vec<f64>>());
    let large = Reading { value: Value::Array(fodo_data::Array::F64(elements.clone())), ..reading(0.0) };
    let mut server = Server::validated();
    let sid = server.channel(flat(Kind::F64, true));
    let kind = server.init(&get(sid, 1, Subcommand::INIT), "");
    for ioid in 2..5 {
        server.init(&get(sid, ioid, Subcommand::INIT), "");
    }

    for ioid in 1..5 {
        let request = server.execute(&get(sid, ioid, Subcommand::EXECUTE));
        server.circuit.read_done(request, Ok(contents(&large)));
        assert_eq!(Arc::strong_count(&elements), 2 + ioid as usize);
    }

    assert!(server.circuit.pending_bytes() > 4 * 800_000);
    for received in server.answers() {
        assert_eq!(values(&received, &kind).get("value"), Some(&large.value));
    }
    assert_eq!(Arc::strong_count(&elements), 2);
}

#[test]
fn a_selection_of_marked_structures_contains_only_selected_members() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    let kind = server.init(&get(sid, 1, Subcommand::INIT), "right.x");
    let request = server.execute(&get(sid, 1, Subcommand::EXECUTE));
    let mut structure = left_and_list(7, vec![1]);
    structure.mark_only(bits(&[0]));

    server.circuit.read_done(request, Ok(Contents::Structure(&structure)));

    assert!(values(&server.answer(), &kind).changed().iter().eq([3]));
}
