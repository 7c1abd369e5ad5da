//! Events in the life of a channel: event masks, rejected puts, work that takes time, a server that restarts.

use std::time::{Duration, Instant};

use fodo_data::EventMask;

use serde_json::{Value as Json, json};

use super::{UPDATE_DURATION_MAX, expect, expect_value};
use crate::TestFailure;
use crate::client::{Client, ValueForm};
use crate::server::{ServerProgram, TestServer};

/// Maximum time until a value is correct.
const SETTLED_DURATION_MAX: Duration = Duration::from_secs(30);

/// Monitors of VALUE and of LOG follow their own deadbands: 1 and 5.
pub fn value_and_log_have_their_own_deadbands(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("masked");
    client.put(&pv, &json!(-100.0), true)?;
    client.put(&pv, &json!(0.0), true)?;
    let value = client.monitor_masked(&pv, EventMask::VALUE)?;
    let log = client.monitor_masked(&pv, EventMask::LOG)?;
    all_report(client, &pv, &[value, log], 0.0)?;

    // An extra update would be received before the next expected one.
    for (written, reporting) in
        [(0.5, [].as_slice()), (2.0, &[value]), (7.0, &[value, log]), (9.0, &[value]), (20.0, &[value, log])]
    {
        client.put(&pv, &json!(written), true)?;
        all_report(client, &pv, reporting, written)?;
    }
    Ok(())
}

/// A monitor of ALARM reports changes of severity only, one of PROPERTY changes of units only.
pub fn alarm_and_property_are_reported_alone(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("masked");
    client.put(&pv, &json!(0.0), true)?;
    client.put(&server.pv("masked.EGU"), &json!("V"), true)?;
    let alarm = client.monitor_masked(&pv, EventMask::ALARM)?;
    let property = client.monitor_masked(&pv, EventMask::PROPERTY)?;
    all_report(client, &pv, &[alarm, property], 0.0)?;

    for (written, reporting) in [(10.0, [].as_slice()), (60.0, &[alarm]), (70.0, &[]), (20.0, &[alarm])] {
        client.put(&pv, &json!(written), true)?;
        all_report(client, &pv, reporting, written)?;
    }
    client.put(&server.pv("masked.EGU"), &json!("mV"), true)?;
    all_report(client, &pv, &[property], 20.0)?;
    client.put(&pv, &json!(80.0), true)?;
    all_report(client, &pv, &[alarm], 80.0)
}

fn all_report(client: &mut dyn Client, pv: &str, monitors: &[usize], value: f64) -> Result<(), TestFailure> {
    monitors.iter().try_for_each(|monitor| updates_are(client, pv, *monitor, &[value]))
}

fn updates_are(client: &mut dyn Client, pv: &str, monitor: usize, values: &[f64]) -> Result<(), TestFailure> {
    let updates = client.take(monitor, values.len(), UPDATE_DURATION_MAX)?;
    let received: Vec<Option<f64>> = updates.iter().map(|update| update.value.as_f64()).collect();
    let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
    expect(pv, "updates", &received, &values)
}

/// An array has as many elements as the last put, whether more or fewer than before.
pub fn arrays_grow_and_shrink(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("wf_DOUBLE");
    client.put(&pv, &json!([0.5, 0.5]), true)?;
    let monitor = client.monitor(&pv)?;
    client.take(monitor, 1, UPDATE_DURATION_MAX)?;

    for count in [3, 8, 2, 7, 1, 8] {
        let elements: Vec<f64> = (0..count).map(|index| f64::from(index) + 0.25).collect();
        client.put(&pv, &json!(elements), true)?;
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(elements))?;
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, "updates", &updates.len(), &1)?;
        expect_value(&pv, &updates[0], &json!(elements))?;
    }
    Ok(())
}

/// With `$` after the name a string is an array of characters, for reading and writing.
pub fn strings_are_long_with_a_dollar(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let (plain, long) = (server.pv("stringout"), server.pv("stringout.VAL$"));
    let longest = "all thirty-nine letters of one string..";

    client.put(&plain, &json!(longest), true)?;
    let about = client.connect(&long)?;
    expect(&long, "kind", &about.kind.as_str(), &"CHAR")?;
    expect(&long, "count", &about.count, &40)?;
    expect(&long, "text", &client.get(&long, ValueForm::LongText)?.value, &json!(longest))?;

    let shorter: Vec<u8> = b"written as characters\0".to_vec();
    client.put(&long, &json!(shorter), true)?;
    expect_value(&plain, &client.get(&plain, ValueForm::Value)?, &json!("written as characters"))
}

/// A put with completion ends after work that takes 0.3 s.
pub fn a_put_ends_after_work_that_takes_time(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let (pv, done) = (server.pv("slow"), server.pv("slow:done"));
    for n in 1..=3 {
        client.put(&pv, &json!(n), true)?;
        expect_value(&done, &client.get(&done, ValueForm::Value)?, &json!(n))?;
    }
    Ok(())
}

/// A PV that this user may not write is reported as not writable, can be read, and rejects puts.
pub fn rights_are_reported_and_kept(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("locked");
    expect(&pv, "may be written", &client.connect(&pv)?.may_write, &false)?;
    let open = server.pv("longout");
    expect(&open, "may be written", &client.connect(&open)?.may_write, &true)?;

    is_refused(client, &pv, &json!(6))?;

    expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(5))
}

/// A field that is not writable rejects puts and keeps its value.
pub fn a_field_that_is_fixed_refuses_puts(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("ao.RTYP");
    // EPICS' server reports it as writable, and rejects each put.
    if server.kind == ServerProgram::Fodo {
        expect(&pv, "may be written", &client.connect(&pv)?.may_write, &false)?;
    }

    is_refused(client, &pv, &json!("calc"))?;

    expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!("ao"))
}

/// Checks that a put with completion is refused, rather than that its client or server hangs.
pub(super) fn is_refused(client: &mut dyn Client, pv: &str, value: &Json) -> Result<(), TestFailure> {
    match client.put(pv, value, true) {
        Ok(()) => Err(format!("{pv}: a put succeeded that must be rejected")),
        Err(why) if why.contains("printed nothing") || why.contains("has ended") => Err(why),
        Err(_) => Ok(()),
    }
}

/// After a server was killed and restarted, monitors, gets and puts work again.
pub fn all_comes_back_with_the_server(client: &mut dyn Client, server: &mut TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("ao");
    client.put(&pv, &json!(4.5), true)?;
    let monitor = client.monitor(&pv)?;
    updates_are(client, &pv, monitor, &[4.5])?;

    server.restart()?;

    // The value at the start.
    updates_are(client, &pv, monitor, &[-1.25])?;
    settles(client, &pv, -1.25)?;
    client.put(&pv, &json!(2.25), true)?;
    updates_are(client, &pv, monitor, &[2.25])?;
    settles(client, &pv, 2.25)
}

/// A client may have several channels, which reconnect one after the other.
fn settles(client: &mut dyn Client, pv: &str, value: f64) -> Result<(), TestFailure> {
    let deadline = Instant::now() + SETTLED_DURATION_MAX;
    loop {
        match client.get(pv, ValueForm::Value) {
            Ok(sample) => return expect_value(pv, &sample, &json!(value)),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
