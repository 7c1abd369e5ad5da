//! Operations on structures.

use fodo_data::{NodeKind, NodeValue};
use fodo_pva::request::PvRequest;

use super::*;
use crate::client::StructuredTask;

/// Two numbers, a state and anything else.
pub(super) fn group() -> Structure {
    let mut build = StructureBuilder::new("group_t");
    build.scalar("a", Kind::F64).scalar("b", Kind::I32);
    build.open("state", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
    build.leaf("extra", NodeKind::Any);
    let mut group = Structure::new(Arc::new(build.finish()));
    group.set("a", 1.5).unwrap();
    group.set("b", 2).unwrap();
    group
}

fn get(text: &str) -> StructuredTask {
    StructuredTask::Get(PvRequest::parse(text).unwrap())
}

fn put(fields: &[(&str, NodeValue)]) -> StructuredTask {
    let fields = fields.iter().map(|(path, value)| (path.to_string(), value.clone())).collect();
    StructuredTask::Put(PvRequest::default(), fields)
}

fn call() -> StructuredTask {
    StructuredTask::Call(Structure::single(1.5.into()))
}

impl Dialog {
    fn structured(&mut self, sid: Sid, ioid: u32, task: StructuredTask) -> Result<(), Failure> {
        self.client.request(Ioid(ioid), &OperationTask::Structured(Arc::new(task)), scalar_channel(sid))
    }

    /// The channel ends: nothing must be left.
    fn end(mut self) {
        self.client.clear(Cid(7));
        self.run();
        assert!(self.client.holds_nothing(), "{:?}", self.client);
    }

    /// What the server replies to the call that has waited for the longest time.
    fn answer(&mut self, value: f64) {
        let request = self.calls.remove(0);
        self.server.rpc_done(request, Ok(Some(&Structure::single(value.into()))));
        self.run();
    }

    fn ended_in_order(&mut self) -> Vec<u32> {
        self.ended().into_iter().map(|(ioid, _)| ioid).collect()
    }
}

#[test]
fn a_get_of_a_structure_opens_an_operation_once_for_each_request() {
    let (mut dialog, sid) = Dialog::with("group");
    dialog.n_flights = 0;

    dialog.structured(sid, 1, get("")).unwrap();
    dialog.run();
    assert_eq!((dialog.n_flights, dialog.client.tables.n_structured(sid)), (2, 1));
    dialog.structured(sid, 2, get("")).unwrap();
    dialog.run();
    assert_eq!((dialog.n_flights, dialog.client.tables.n_structured(sid)), (3, 1));
    dialog.structured(sid, 3, get("b")).unwrap();
    dialog.run();

    assert_eq!((dialog.n_flights, dialog.client.tables.n_structured(sid)), (5, 2));
    let ended = dialog.ended();
    assert!(ended.iter().zip(1..).all(|((ioid, text), n)| *ioid == n && text.starts_with("Structure(")), "{ended:?}");
    assert!(ended[0].1.contains("F64(1.5)") && !ended[2].1.contains("F64(1.5)"), "{ended:?}");
    dialog.end();
}

#[test]
fn a_channel_keeps_a_limited_number_of_open_operations() {
    let (mut dialog, sid) = Dialog::with("group");
    let n_most = limit::STRUCTURED_OPERATIONS as u32;

    for n in 0..2 * n_most {
        dialog.structured(sid, n, get(&format!("record[n={n}]"))).unwrap();
        dialog.run();
        dialog.structured(sid, 1000, get("record[n=0]")).unwrap();
        dialog.run();
    }
    assert_eq!((dialog.ended().len() as u32, dialog.client.tables.n_structured(sid)), (4 * n_most, n_most as usize));
    dialog.n_flights = 0;
    dialog.structured(sid, 1, get("record[n=0]")).unwrap();
    dialog.run();
    assert_eq!(dialog.n_flights, 1, "the operation that is used most is still open");

    let mut results = (0..=n_most).map(|n| dialog.structured(sid, n, get(&format!("record[m={n}]"))));
    assert!(results.by_ref().take(n_most as usize).all(|result| result.is_ok()));
    assert!(matches!(results.next(), Some(Err(Failure::Misuse(misuse))) if misuse.0.contains("16 requests")));
    drop(results);
    dialog.end();
}

#[test]
fn a_put_of_fields_is_converted_and_sends_only_these() {
    let (mut dialog, sid) = Dialog::with("group");
    let (number, text) = (|number: f64| NodeValue::Value(number.into()), NodeValue::Value("7".into()));

    // The type is not known yet.
    dialog.structured(sid, 1, put(&[("b", text.clone()), ("state", number(1.0))])).unwrap();
    dialog.structured(sid, 2, put(&[("c", number(1.0))])).unwrap();
    dialog.structured(sid, 3, put(&[("extra", text)])).unwrap();
    dialog.run();
    let late = dialog.structured(sid, 4, put(&[("a", NodeValue::Value("x".into()))]));

    let mut ended = dialog.ended();
    ended.sort();
    assert_eq!([&ended[0], &ended[2]], [&(1, "Written".to_owned()), &(3, "Written".to_owned())]);
    assert!(ended[1].1.contains("no field \\\"c\\\""), "{ended:?}");
    assert!(matches!(late, Err(Failure::Misuse(..))), "{late:?}");
    let [first, second] = &dialog.structures_put[..] else { panic!("{:?}", dialog.structures_put) };
    assert!(first.changed().iter().eq([2, 4]) && second.changed().iter().eq([6]), "{first:?} {second:?}");
    assert_eq!((first.get("b"), first.get("state.index")), (Some(&7.into()), Some(&1.into())));
    assert_eq!(second.node(6), Some(&NodeValue::Any(Some(Box::new(Structure::single("7".into()))))));
    dialog.end();
}

#[test]
fn a_request_for_structures_follows_puts_without_completion() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;

    dialog.put_unconfirmed(sid, 1.0);
    dialog.put_unconfirmed(sid, 2.0);
    dialog.structured(sid, 3, put(&[("value", NodeValue::Value(3.0.into()))])).unwrap();
    dialog.structured(sid, 4, get("value")).unwrap();
    dialog.run();
    assert_eq!((dialog.values_put.len(), dialog.ended().len()), (1, 0));
    while !dialog.puts.is_empty() {
        dialog.complete(Ok(()));
        dialog.run();
    }

    assert_eq!(dialog.values_put, [1.0, 2.0, 3.0].map(Value::from));
    assert_eq!(dialog.ended().len(), 2);
    dialog.end();
}

#[test]
fn calls_do_not_wait_for_each_other_and_leave_an_open_operation() {
    let (mut dialog, sid) = Dialog::with("group");

    dialog.structured(sid, 1, call()).unwrap();
    dialog.structured(sid, 2, call()).unwrap();
    dialog.run();
    assert_eq!((dialog.calls.len(), dialog.client.tables.n_structured(sid)), (2, 2));
    dialog.answer(1.0);
    dialog.structured(sid, 3, call()).unwrap();
    dialog.run();
    dialog.answer(2.0);
    dialog.answer(3.0);

    let ended = dialog.ended();
    for ((ioid, text), number) in ended.iter().zip(1..) {
        assert!(*ioid == number && text.contains(&format!("F64({number}.0)")), "{ended:?}");
    }
    assert_eq!((ended.len(), dialog.client.tables.n_structured(sid)), (3, 2));
    dialog.end();
}

#[test]
fn calls_beyond_the_limit_wait_for_others() {
    let (mut dialog, sid) = Dialog::with("group");
    let n_calls = limit::STRUCTURED_OPERATIONS as u32 + 2;

    (0..n_calls).for_each(|n| dialog.structured(sid, n, call()).unwrap());
    dialog.run();
    assert_eq!(dialog.calls.len(), limit::STRUCTURED_OPERATIONS);
    while !dialog.calls.is_empty() {
        dialog.answer(1.0);
    }

    let mut ended = dialog.ended_in_order();
    ended.sort_unstable();
    assert!(ended.into_iter().eq(0..n_calls));
    dialog.end();
}

#[test]
fn a_call_whose_caller_gives_up_is_interrupted() {
    let (mut dialog, sid) = Dialog::with("group");
    dialog.structured(sid, 1, call()).unwrap();
    dialog.structured(sid, 2, StructuredTask::Process).unwrap();
    dialog.run();
    assert_eq!(dialog.calls.len(), 2);

    dialog.client.forget(Ioid(1));
    dialog.client.forget(Ioid(2));
    dialog.client.forget(Ioid(9));
    dialog.run();

    assert_eq!((dialog.n_cancelled, dialog.client.tables.n_structured(sid)), (2, 0));
    dialog.calls.clear();
    dialog.structured(sid, 3, call()).unwrap();
    dialog.run();
    dialog.answer(1.0);
    assert_eq!(dialog.ended_in_order(), [3]);
    dialog.end();
}

#[test]
fn a_call_is_sent_before_the_server_has_described_the_channel() {
    let mut dialog = Dialog::new();
    dialog.client.create(Cid(7), "group", dialog.now);
    while dialog.client.sid(Cid(7)).is_none() {
        assert!(dialog.exchange());
    }
    assert!(dialog.events.is_empty(), "{:?}", dialog.events);

    dialog.structured(dialog.client.sid(Cid(7)).unwrap(), 1, call()).unwrap();
    dialog.run();
    dialog.answer(1.0);

    assert_eq!(dialog.ended_in_order(), [1]);
    dialog.end();
}

#[test]
fn a_field_is_described() {
    let (mut dialog, sid) = Dialog::with("group");

    for (ioid, path) in [(1, "state.index"), (2, ""), (3, "c")] {
        dialog.structured(sid, ioid, StructuredTask::Describe(path.into())).unwrap();
    }
    dialog.run();

    let ended = dialog.ended();
    assert!(ended[0].1.contains("Scalar(I32)") && ended[1].1.contains("group_t"), "{ended:?}");
    assert!(ended[2].1.contains("no field"), "{ended:?}");
    dialog.end();
}

#[test]
fn a_monitor_of_a_structure_receives_the_whole_value_and_what_has_changed() {
    let (mut dialog, sid) = Dialog::with("group");
    let request = PreparedRequest::new(&PvRequest::parse("record[pipeline=true,queueSize=4]").unwrap());
    let options = MonitorOptions::default();
    let opened = dialog.client.subscribe(sid, &options, Some(&request), None, SubscriptionId(1)).unwrap();
    dialog.run();
    let subscription = dialog.subscription.unwrap();
    let marks = |bits: &[usize]| bits.iter().copied().collect::<BitSet>();

    let group = group();
    assert!(dialog.server.update(subscription, Contents::Structure(&group), &marks(&[0]), &BitSet::new()));
    let mut changed = group.clone();
    changed.set("b", 3).unwrap();
    assert!(dialog.server.update(subscription, Contents::Structure(&changed), &marks(&[2]), &marks(&[2])));
    dialog.run();

    let [(first, false), (second, true)] = &dialog.log.structures[..] else { panic!("{:?}", dialog.log.structures) };
    assert_eq!((first.get("a"), first.get("b")), (Some(&1.5.into()), Some(&2.into())));
    assert_eq!((second.get("a"), second.get("b")), (Some(&1.5.into()), Some(&3.into())));
    assert!(first.changed().contains(0) && second.changed().iter().eq([2]));
    assert!(dialog.log.updates.is_empty());
    dialog.client.cancel(opened);
    dialog.end();
}

#[test]
fn a_channel_that_ends_while_structures_are_in_progress_leaves_nothing() {
    let (mut dialog, sid) = Dialog::with("group");
    dialog.structured(sid, 1, call()).unwrap();
    dialog.structured(sid, 2, StructuredTask::Process).unwrap();
    dialog.structured(sid, 3, put(&[])).unwrap();
    dialog.structured(sid, 4, get("")).unwrap();
    dialog.structured(sid, 5, StructuredTask::Describe(String::new())).unwrap();

    dialog.end();
}
