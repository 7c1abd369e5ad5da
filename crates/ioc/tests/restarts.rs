//! An IOC that a program starts and stops leaves nothing behind. Alone in its process, since it counts its threads.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_ioc::process::ProcessFacts;
use fodo_ioc::{IocBuilder, ProgramValue, RecordDefinition};
use fodo_net::{Context, ServerConfig, Value};

/// Starts an IOC, uses it over both protocols, and stops it.
fn run(number: i32) {
    let mut builder = IocBuilder::new();
    let record = |kind: &str, name: &str| RecordDefinition::new(kind, name).field("DTYP", "Program");
    for index in 0..100 {
        builder.define(&record("longin", &format!("in{index}")).field("SCAN", "I/O Intr")).unwrap();
    }
    builder.define(&record("longout", "out")).unwrap();
    builder.load_text("record(calc, \"$(P)c\") { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }", "P=x").unwrap();
    builder.on_output("out", move |request| {
        let input = request.record("in0").unwrap();
        input.set(request.value().clone()).unwrap();
        request.complete();
    });
    let ioc = builder.build().unwrap().serve(ServerConfig::isolated()).unwrap();
    let inputs: Vec<_> = (0..100).map(|index| ioc.record(&format!("in{index}")).unwrap()).collect();
    ioc.set_many(inputs.iter().map(|input| (input, ProgramValue::new(number)))).unwrap();

    let context = Context::new(ioc.client_config());
    context.channel("out").unwrap().put(number).unwrap();
    for name in ["ca://in0", "pva://in0"] {
        assert_eq!(context.channel(name).unwrap().get().unwrap().value, Value::from(number));
    }
    ioc.stop().unwrap();
    context.close();
}

#[test]
fn a_hundred_starts_and_stops_leave_threads_descriptors_and_memory_as_they_were() {
    /// Far below what an IOC of a hundred records and its client take.
    const GROWTH_BYTES: u64 = 100 * 100 * 1024;
    (0..10).for_each(run);
    let before = ProcessFacts::now();

    (10..110).for_each(run);

    let after = ProcessFacts::now();
    assert!(after.n_threads <= before.n_threads, "{before:?} {after:?}");
    assert!(after.n_descriptors <= before.n_descriptors, "{before:?} {after:?}");
    let grown = after.resident_bytes.unwrap_or(0).saturating_sub(before.resident_bytes.unwrap_or(0));
    assert!(grown < GROWTH_BYTES, "{grown} bytes: {before:?} {after:?}");
}
