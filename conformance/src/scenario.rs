//! Scenarios of a client and a server, written once for all pairs.

pub mod any_type;
pub mod life;
pub mod pva;
pub mod search;

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::TestFailure;
use crate::client::{Client, Sample, ValueForm, described};
use crate::server::{ServerProgram, TestServer};

/// Maximum time until an expected update arrives.
const UPDATE_DURATION_MAX: Duration = Duration::from_secs(30);

/// Number of updates that are checked for each 10 Hz counter.
const COUNTED_TICKS: usize = 100;

/// Maximum number of updates in which these must follow each other without a gap.
const TICKS_MAX: usize = 3 * COUNTED_TICKS;

/// Number of LONG elements in 4 MB.
const BIG_COUNT: usize = 1_000_000;

/// One record of the common set.
struct CommonRecord {
    name: &'static str,
    kind: &'static str,
    count: u64,
    /// Initial value.
    value: Json,
    /// The initial value as a string; for arrays, of the first element.
    text: &'static str,
    /// Values that are written one after the other, and read back.
    writes: Vec<Json>,
}

fn record(name: &'static str, kind: &'static str, value: Json, text: &'static str, writes: Json) -> CommonRecord {
    let writes = writes.as_array().cloned().unwrap_or_default();
    CommonRecord { name, kind, count: 1, value, text, writes }
}

fn waveform(name: &'static str, kind: &'static str, writes: Json) -> CommonRecord {
    let writes = writes.as_array().cloned().unwrap_or_default();
    CommonRecord { name, kind, count: 8, value: json!([]), text: "", writes }
}

fn records() -> Vec<CommonRecord> {
    let longest = "thirty-nine characters are all there is";
    vec![
        record("calc", "DOUBLE", json!(42.0), "42", json!([])),
        record("ai", "DOUBLE", json!(2.5), "2.500", json!([0.0, -1.5, 3.75])),
        record("ao", "DOUBLE", json!(-1.25), "-1.25", json!([0.5, 4.0])),
        record("bi", "ENUM", json!(1), "on", json!([0, 1])),
        record("bo", "ENUM", json!(0), "off", json!([1, 0])),
        record("longin", "LONG", json!(7), "7", json!([i32::MAX, i32::MIN, 0])),
        record("longout", "LONG", json!(-7), "-7", json!([i32::MIN, i32::MAX, 0])),
        record("stringin", "STRING", json!("hello"), "hello", json!([longest, "", "a b"])),
        record("stringout", "STRING", json!("world"), "world", json!([longest, "", "a b"])),
        record("mbbi", "ENUM", json!(2), "two", json!([0, 1])),
        record("mbbo", "ENUM", json!(1), "one", json!([2, 0])),
        waveform("wf_STRING", "STRING", json!([["a", longest, "c"], ["one", "two"]])),
        waveform("wf_CHAR", "CHAR", json!([[1, 2, 127], [7, 8]])),
        waveform("wf_UCHAR", "CHAR", json!([[1, 2, 200], [0, 255]])),
        waveform("wf_SHORT", "INT", json!([[-32768, 0, 32767], [5, 6]])),
        waveform("wf_USHORT", "LONG", json!([[0, 65535], [1, 2, 3]])),
        waveform("wf_LONG", "LONG", json!([[i32::MIN, 0, i32::MAX], [1, 2, 3, 4, 5, 6, 7, 8]])),
        waveform("wf_ULONG", "DOUBLE", json!([[4_000_000_000.0, 0.0], [1.0, 2.0]])),
        waveform("wf_INT64", "DOUBLE", json!([[-5_000_000_000.0, 5_000_000_000.0], [1.0, 2.0]])),
        waveform("wf_UINT64", "DOUBLE", json!([[5_000_000_000.0, 0.0], [1.0, 2.0]])),
        waveform("wf_FLOAT", "FLOAT", json!([[0.5, -0.25], [1.5, 2.0, 3.0]])),
        waveform("wf_DOUBLE", "DOUBLE", json!([[0.1, 1e300, -1e-300], [1.0, 2.0]])),
        waveform("wf_ENUM", "ENUM", json!([[0, 3, 15], [1, 2]])),
    ]
}

/// The records that a server of this kind has.
fn records_of(kind: ServerProgram) -> Vec<CommonRecord> {
    let simple = ["wf_SHORT", "wf_LONG", "wf_FLOAT", "wf_DOUBLE"];
    let is_served = |record: &CommonRecord| match kind {
        ServerProgram::Caproto => record.name != "calc" && (record.count == 1 || simple.contains(&record.name)),
        ServerProgram::PythonSoftIoc => record.count == 1 || simple.contains(&record.name),
        _ => true,
    };
    records().into_iter().filter(is_served).collect()
}

/// Connecting reports kind and count of every record; reading returns its value and its text.
pub fn every_record_is_read(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
        let about = client.connect(&pv)?;
        expect(&pv, "kind", &about.kind.as_str(), &record.kind)?;
        expect(&pv, "count", &about.count, &record.count)?;

        // caproto's server does not support empty arrays.
        let is_bare_array = record.count > 1 && server.kind == ServerProgram::Caproto;
        if !is_bare_array {
            let sample = client.get(&pv, ValueForm::Value)?;
            expect_value(&pv, &sample, &record.value)?;
        }
        // Only records format numbers with their own precision.
        if record.count == 1 && server.kind != ServerProgram::Caproto {
            expect(&pv, "text", &client.get(&pv, ValueForm::Text)?.value, &json!(record.text))?;
        }
    }
    Ok(())
}

/// A value written with completion is read back, for every kind of record.
pub fn every_record_is_written(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
        // pythonSoftIOC's In records reject puts, by design.
        if server.kind == ServerProgram::PythonSoftIoc
            && ["ai", "bi", "longin", "stringin", "mbbi"].contains(&record.name)
        {
            continue;
        }
        for written in &record.writes {
            client.put(&pv, written, true)?;
            expect_value(&pv, &client.get(&pv, ValueForm::Value)?, written)?;
        }
    }
    Ok(())
}

/// A monitor of every kind of record reports the present value, then every write, in order.
pub fn every_record_is_monitored(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
        let monitor = client.monitor(&pv)?;
        let first = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, "first updates", &first.len(), &1)?;
        if record.count == 1 {
            expect_value(&pv, &first[0], &client.get(&pv, ValueForm::Value)?.value)?;
        }
        if server.kind == ServerProgram::PythonSoftIoc
            && ["ai", "bi", "longin", "stringin", "mbbi"].contains(&record.name)
        {
            continue;
        }
        for written in &record.writes {
            client.put(&pv, written, true)?;
            let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
            expect(&pv, &format!("updates after {written}"), &updates.len(), &1)?;
            expect_value(&pv, &updates[0], written)?;
            if updates[0].time_ns.is_none() {
                return Err(format!("{pv}: an update without a time stamp"));
            }
        }
    }
    Ok(())
}

/// States are reported with their labels, and are written by label or by index.
pub fn enums_go_by_label_and_by_index(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for (name, labels) in [("bo", vec!["off", "on"]), ("mbbo", vec!["zero", "one", "two"])] {
        let pv = server.pv(name);
        let labels_read = client.get(&pv, ValueForm::Control)?.labels.unwrap_or_default();
        // pythonSoftIOC and softIoc differ in the number of unnamed states that follow.
        let labels_read: Vec<&str> = labels_read.iter().map(String::as_str).take(labels.len()).collect();
        expect(&pv, "labels", &labels_read, &labels)?;

        for (index, label) in labels.iter().enumerate() {
            client.put(&pv, &json!(label), true)?;
            expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(index))?;
            expect(&pv, "text", &client.get(&pv, ValueForm::Text)?.value, &json!(label))?;
        }
        client.put(&pv, &json!(0), true)?;
        expect(&pv, "text", &client.get(&pv, ValueForm::Text)?.value, &json!(labels[0]))?;
    }
    Ok(())
}

/// Units, precision and limits are returned on request.
pub fn units_precision_and_limits_are_returned(
    client: &mut dyn Client,
    server: &TestServer,
) -> Result<(), TestFailure> {
    let pv = server.pv("ai");
    let sample = client.get(&pv, ValueForm::Control)?;

    expect(&pv, "units", &sample.units.as_deref(), &Some("mm"))?;
    expect(&pv, "precision", &sample.precision, &Some(3))?;
    let limits = sample.limits.unwrap_or_default();
    expect_close(&pv, "display limits", &limits[0], &json!([-10.0, 10.0]))?;
    if server.kind != ServerProgram::Caproto && server.kind != ServerProgram::PythonSoftIoc {
        expect_close(&pv, "alarm limits", &limits[1], &json!([-8.0, 8.0]))?;
        expect_close(&pv, "warning limits", &limits[2], &json!([-6.0, 6.0]))?;
    }
    Ok(())
}

/// A put with completion ends after the whole chain of records has processed.
pub fn a_put_ends_after_the_chain_behind_it(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for n in 1..=20 {
        client.put(&server.pv("chain"), &json!(n), true)?;
        let last = client.get(&server.pv("chain:more"), ValueForm::Value)?;
        expect_value("chain:more", &last, &json!(2 * n + 1))?;
    }
    Ok(())
}

/// Limits raise alarms, and a monitor reports them with the value.
pub fn alarms_come_with_the_value(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("alarmed");
    let monitor = client.monitor(&pv)?;
    client.take(monitor, 1, UPDATE_DURATION_MAX)?;

    for (value, severity) in [(7.0, 1), (9.0, 2), (0.0, 0), (-7.0, 1), (-9.0, 2), (1.0, 0)] {
        client.put(&pv, &json!(value), true)?;
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, "updates", &updates.len(), &1)?;
        expect_value(&pv, &updates[0], &json!(value))?;
        expect(&pv, &format!("severity at {value}"), &updates[0].severity, &Some(severity))?;
    }
    Ok(())
}

/// Fields of a record are channels, including menus and units.
pub fn fields_are_channels(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let field = |name: &str| server.pv(name);

    client.put(&field("ao"), &json!(-1.25), true)?;
    expect_value("ao.VAL", &client.get(&field("ao.VAL"), ValueForm::Value)?, &json!(-1.25))?;
    expect_value("ao.DESC", &client.get(&field("ao.DESC"), ValueForm::Value)?, &json!("how far"))?;
    expect("ao.SCAN", "text", &client.get(&field("ao.SCAN"), ValueForm::Text)?.value, &json!("Passive"))?;
    expect("ao.RTYP", "text", &client.get(&field("ao.RTYP"), ValueForm::Text)?.value, &json!("ao"))?;
    expect("ao.NAME", "text", &client.get(&field("ao.NAME"), ValueForm::Text)?.value, &json!(server.pv("ao")))?;

    client.put(&field("ao.PREC"), &json!(4), true)?;
    expect("ao", "text", &client.get(&field("ao"), ValueForm::Text)?.value, &json!("-1.2500"))?;
    client.put(&field("ao.EGU"), &json!("mV"), true)?;
    expect("ao", "units", &client.get(&field("ao"), ValueForm::Control)?.units.as_deref(), &Some("mV"))?;

    client.put(&field("calc.SCAN"), &json!(".1 second"), true)?;
    expect("calc.SCAN", "text", &client.get(&field("calc.SCAN"), ValueForm::Text)?.value, &json!(".1 second"))?;
    client.put(&field("calc.SCAN"), &json!("Passive"), true)?;

    client.put(&field("ao.PROC"), &json!(1), true)
}

/// A put without completion arrives as well, and puts of one client keep their order.
pub fn puts_without_waiting_arrive_in_order(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("longout");
    for n in 1..=50 {
        client.put(&pv, &json!(n), false)?;
    }
    client.put(&pv, &json!(51), true)?;

    expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(51))
}

/// An array of 4 MB is written, read back and monitored, every element as expected.
pub fn four_megabytes_go_both_ways(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("big");
    let monitor = client.monitor(&pv)?;
    client.take(monitor, 1, UPDATE_DURATION_MAX)?;

    for first in [1, -77, 123_456_789] {
        client.put_pattern(&pv, first, BIG_COUNT)?;
        let expected = described(first, BIG_COUNT);
        expect(&pv, "value", &client.get(&pv, ValueForm::Value)?.value, &expected)?;
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, "updates", &updates.len(), &1)?;
        expect(&pv, "update", &updates[0].value, &expected)?;
    }
    client.put_pattern(&pv, 5, 2000)?;
    expect(&pv, "shorter value", &client.get(&pv, ValueForm::Value)?.value, &described(5, 2000))
}

/// Fifty counters at 10 Hz: no value is duplicate or out of order, time increases, and for ten seconds no value is missing.
///
/// A client or server that gets no processor for a while merges updates, as it should; therefore the ten seconds may be
/// any of thirty.
pub fn counters_at_10_hz_leave_no_gap(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let names: Vec<String> = (0..50).map(|n| server.pv(&format!("count{n:02}"))).collect();
    let monitors = names.iter().map(|name| client.monitor(name)).collect::<Result<Vec<_>, _>>()?;

    for (name, monitor) in names.iter().zip(monitors) {
        let patience = Duration::from_millis(100 * COUNTED_TICKS as u64) + UPDATE_DURATION_MAX;
        let mut updates = Vec::new();
        loop {
            let more = client.take(monitor, COUNTED_TICKS, patience)?;
            expect(name, "updates", &more.len(), &COUNTED_TICKS)?;
            updates.extend(more);
            let gaps = gaps_in_order(name, &updates)?;
            // The ends of the series, as indices of the updates after them.
            let ends = [&[0], &gaps[..], &[updates.len()]].concat();
            if ends.windows(2).any(|pair| pair[1] - pair[0] >= COUNTED_TICKS) {
                break;
            }
            if updates.len() >= TICKS_MAX {
                return Err(format!(
                    "{name}: values are missing before {:?}",
                    gaps.iter().map(|&gap| &updates[gap].value).collect::<Vec<_>>()
                ));
            }
        }
    }
    Ok(())
}

/// The indices of the updates before which a value is missing; an error if values or times do not increase.
fn gaps_in_order(name: &str, updates: &[Sample]) -> Result<Vec<usize>, TestFailure> {
    let mut gaps = Vec::new();
    for (index, pair) in updates.windows(2).enumerate() {
        let values = (pair[0].value.as_f64().unwrap_or(f64::NAN), pair[1].value.as_f64().unwrap_or(f64::NAN));
        let step = values.1 - values.0;
        if step.is_nan() || step < 1.0 {
            return Err(format!("{name}: value {} is followed by {}", values.0, values.1));
        }
        if step > 1.0 {
            gaps.push(index + 1);
        }
        if pair[0].time_ns >= pair[1].time_ns {
            return Err(format!("{name}: time {:?} is followed by {:?}", pair[0].time_ns, pair[1].time_ns));
        }
    }
    Ok(gaps)
}

fn expect<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    pv: &str,
    what: &str,
    found: &T,
    expected: &U,
) -> Result<(), TestFailure> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{pv}: {what}: found {found:?}, expected {expected:?}"))
}

fn expect_value(pv: &str, sample: &Sample, expected: &Json) -> Result<(), TestFailure> {
    expect_close(pv, "value", &sample.value, expected)
}

/// Checks that two JSON values are equal; `2` and `2.0` count as equal.
fn expect_close(pv: &str, what: &str, found: &Json, expected: &Json) -> Result<(), TestFailure> {
    if is_same(found, expected) {
        return Ok(());
    }
    Err(format!("{pv}: {what}: found {found}, expected {expected}"))
}

fn is_same(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        // Some clients return an array of one element as a scalar.
        (Json::Array(a), b) | (b, Json::Array(a)) if a.len() == 1 => is_same(&a[0], b),
        (a, b) => a == b,
    }
}
