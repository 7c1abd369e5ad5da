//! How values are asked for: many at once, in memory of the caller, with all that belongs to them.

mod served;

use std::time::Duration;

use fodo_net::{Array, Detail, MonitorEvent, MonitorOptions, Request, Value};

use served::{Cell, Table, serve};

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_large_array_comes_into_the_memory_of_the_one_before() {
    let (_server, context) = serve(Table::default().with("a", Cell::new(vec![0.0; 100_000])));
    let a = context.channel("a").unwrap();
    let place = |value: &Value| match value {
        Value::Array(Array::F64(elements)) => elements.as_ptr(),
        other => panic!("{other:?}"),
    };
    let mut reading = a.get(PATIENCE).unwrap();
    let first = place(&reading.value);

    a.put(vec![7.5; 100_000], PATIENCE).unwrap();
    a.get_into(&mut reading, Request::default(), PATIENCE).unwrap();
    let kept = reading.clone();
    let second = place(&reading.value);
    a.put(vec![8.5; 100_000], PATIENCE).unwrap();
    a.get_into(&mut reading, Request::default(), PATIENCE).unwrap();

    assert_eq!(second, first);
    assert_eq!(kept.value, Value::from(vec![7.5; 100_000]));
    assert_eq!(reading.value, Value::from(vec![8.5; 100_000]));
}

#[test]
fn one_get_gives_alarm_time_and_units_together() {
    let (_server, context) = serve(Table::default().with("x", Cell::new(1.5)));
    let x = context.channel("x").unwrap();
    let full = Request { detail: Detail::Full, ..Request::default() };

    // The first waits for its channel, the second does not.
    for _ in 0..2 {
        let reading = x.get_with(full, PATIENCE).unwrap();
        assert_eq!(reading.value, Value::from(1.5));
        assert_eq!(reading.meta.as_ref().unwrap().units.to_str(), "mm");
    }
}

#[test]
fn every_update_has_the_units_with_it_when_they_are_asked_for() {
    let (_server, context) = serve(Table::default().with("x", Cell::new(1.5)));
    let x = context.channel("x").unwrap();
    let request = Request { detail: Detail::Full, ..Request::default() };
    let monitor = x.monitor(MonitorOptions { request, ..MonitorOptions::default() });

    assert!(matches!(monitor.next(PATIENCE), Some(MonitorEvent::Connected(_))));
    for value in [1.5, 2.5] {
        let Some(MonitorEvent::Update(reading)) = monitor.next(PATIENCE) else { panic!("no update") };
        assert_eq!((reading.value, reading.meta.unwrap().units.to_str().as_ref()), (Value::from(value), "mm"));
        x.put(value + 1.0, PATIENCE).unwrap();
    }
}
