//! What differs in pvAccess: types, enums with their labels, requests for processing, servers that share a port.

use serde_json::{Value as Json, json};

use super::{UPDATE_DURATION_MAX, expect, expect_value};
use crate::client::{self, Client, ClientKind, NameSearch, ValueForm, described};
use crate::server::{PvaPorts, ServerProgram, TestServer};
use crate::{TestFailure, place};

/// Number of int elements in 8 MB.
const HUGE_COUNT: usize = 2_000_000;

/// Number of puts in a burst.
const BURST_COUNT: i64 = 50;

/// One record of the common set.
struct PvaRecord {
    name: &'static str,
    kind: &'static str,
    /// Maximum number of elements; 0 for arrays, because the protocol does not report it.
    count: u64,
    /// Initial value.
    value: Json,
    /// Values that are written one after the other, and read back.
    writes: Vec<Json>,
}

fn record(name: &'static str, kind: &'static str, value: Json, writes: Json) -> PvaRecord {
    let writes = writes.as_array().cloned().unwrap_or_default();
    PvaRecord { name, kind, count: 1, value, writes }
}

fn waveform(name: &'static str, kind: &'static str, writes: Json) -> PvaRecord {
    PvaRecord { count: 0, ..record(name, kind, json!([]), writes) }
}

/// The records that servers of this kind have.
fn records_of(kind: ServerProgram) -> Vec<PvaRecord> {
    let longest = "thirty-nine characters are all there is";
    let mut records = vec![
        record("ai", "double", json!(2.5), json!([0.0, -1.5, 3.75])),
        record("ao", "double", json!(-1.25), json!([0.5, 4.0])),
        record("bi", "enum", json!(1), json!([0, 1])),
        record("bo", "enum", json!(0), json!([1, 0])),
        record("longin", "int", json!(7), json!([i32::MAX, i32::MIN, 0])),
        record("longout", "int", json!(-7), json!([i32::MIN, i32::MAX, 0])),
        record("int64out", "long", json!(-4_294_967_296_i64), json!([5_000_000_000_i64, -5_000_000_000_i64])),
        record("stringin", "string", json!("hello"), json!([longest, "", "a b"])),
        record("stringout", "string", json!("world"), json!([longest, "", "a b"])),
        record("mbbi", "enum", json!(2), json!([0, 1])),
        record("mbbo", "enum", json!(1), json!([2, 0])),
        waveform("wf_STRING", "string", json!([["a", longest, "c"], ["one", "two"]])),
        waveform("wf_CHAR", "byte", json!([[1, -2, 127], [-128, 8]])),
        waveform("wf_UCHAR", "ubyte", json!([[1, 2, 200], [0, 255]])),
        waveform("wf_SHORT", "short", json!([[-32768, 0, 32767], [5, 6]])),
        waveform("wf_USHORT", "ushort", json!([[0, 65535], [1, 2, 3]])),
        waveform("wf_LONG", "int", json!([[i32::MIN, 0, i32::MAX], [1, 2, 3, 4, 5, 6, 7, 8]])),
        waveform("wf_ULONG", "uint", json!([[4_000_000_000_u32, 0], [1, 2]])),
        waveform("wf_INT64", "long", json!([[-5_000_000_000_i64, 5_000_000_000_i64], [1, 2]])),
        waveform("wf_UINT64", "ulong", json!([[5_000_000_000_u64, 0], [1, 2]])),
        waveform("wf_FLOAT", "float", json!([[0.5, -0.25], [1.5, 2.0, 3.0]])),
        waveform("wf_DOUBLE", "double", json!([[0.1, 1e300, -1e-300], [1.0, 2.0]])),
    ];
    if kind.serves_a_database() {
        records.push(record("calc", "double", json!(42.0), json!([])));
    }
    records
}

/// Connecting reports the type of every record, and whether it is an array.
pub fn every_type_is_reported(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
        let about = client.connect(&pv)?;
        expect(&pv, "kind", &about.kind.as_str(), &record.kind)?;
        expect(&pv, "count", &about.count, &record.count)?;
    }
    Ok(())
}

/// Reading returns the value, alarm and time stamp of every record.
pub fn every_record_is_read(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
        let sample = client.get(&pv, ValueForm::Value)?;
        expect_value(&pv, &sample, &record.value)?;
        // A waveform has neither time nor value before the first put.
        if record.count == 1 {
            expect(&pv, "severity", &sample.severity, &Some(0))?;
            expect(&pv, "has a time stamp", &sample.time_ns.is_some(), &true)?;
        }
    }
    Ok(())
}

/// A value written with completion is read back, for every kind of record.
pub fn every_record_is_written(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for record in records_of(server.kind) {
        let pv = server.pv(record.name);
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
        expect_value(&pv, &first[0], &client.get(&pv, ValueForm::Value)?.value)?;
        for written in &record.writes {
            client.put(&pv, written, true)?;
            let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
            expect(&pv, &format!("updates after {written}"), &updates.len(), &1)?;
            expect_value(&pv, &updates[0], written)?;
            expect(&pv, "has a time stamp", &updates[0].time_ns.is_some(), &true)?;
        }
    }
    Ok(())
}

/// Updates may be merged, but never change their order, and the last one is never lost.
pub fn a_burst_arrives_in_order_with_its_last_value(
    client: &mut dyn Client,
    server: &TestServer,
) -> Result<(), TestFailure> {
    let pv = server.pv("longout");
    client.put(&pv, &json!(0), true)?;
    let monitor = client.monitor(&pv)?;
    expect(&pv, "first updates", &client.take(monitor, 1, UPDATE_DURATION_MAX)?.len(), &1)?;

    for n in 1..BURST_COUNT {
        client.put(&pv, &json!(n), false)?;
    }
    client.put(&pv, &json!(BURST_COUNT), true)?;

    let mut last = 0;
    while last != BURST_COUNT {
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        let value = updates.first().and_then(|update| update.value.as_i64());
        match value {
            Some(value) if value > last => last = value,
            other => return Err(format!("{pv}: {last} is followed by {other:?}")),
        }
    }
    Ok(())
}

/// States are reported with their labels, and are written by label or by index.
pub fn enums_go_by_label_and_by_index(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    for (name, labels) in [("bo", vec!["off", "on"]), ("mbbo", vec!["zero", "one", "two"])] {
        let pv = server.pv(name);
        let labels_read = client.get(&pv, ValueForm::Control)?.labels.unwrap_or_default();
        let labels_read: Vec<&str> = labels_read.iter().map(String::as_str).collect();
        expect(&pv, "labels", &labels_read, &labels)?;

        for (index, label) in labels.iter().enumerate() {
            client.put(&pv, &json!(label), true)?;
            expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(index))?;
        }
        client.put(&pv, &json!(0), true)?;
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(0))?;
    }
    Ok(())
}

/// An array of 8 MB is written, read back and monitored, every element as expected.
pub fn eight_megabytes_go_both_ways(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("huge");
    let monitor = client.monitor(&pv)?;
    client.take(monitor, 1, UPDATE_DURATION_MAX)?;

    for first in [1, -77, 123_456_789] {
        client.put_pattern(&pv, first, HUGE_COUNT)?;
        let expected = described(first, HUGE_COUNT);
        expect(&pv, "value", &client.get(&pv, ValueForm::Value)?.value, &expected)?;
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, "updates", &updates.len(), &1)?;
        expect(&pv, "update", &updates[0].value, &expected)?;
    }
    client.put_pattern(&pv, 5, 2000)?;
    expect(&pv, "shorter value", &client.get(&pv, ValueForm::Value)?.value, &described(5, 2000))
}

/// A put to a field that does not process its record processes it once if that is requested.
pub fn a_put_processes_on_request(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("processed");
    for n in [10, 20, 30] {
        client.put(&pv, &json!(n), true)?;
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(n))?;
        client.process(&pv, &json!(n))?;
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(n + 1))?;
    }
    Ok(())
}

/// Fields of a record are channels, including menus and units.
pub fn fields_are_channels(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let field = |name: &str| server.pv(name);

    client.put(&field("ao"), &json!(-1.25), true)?;
    expect_value("ao.VAL", &client.get(&field("ao.VAL"), ValueForm::Value)?, &json!(-1.25))?;
    expect_value("ao.DESC", &client.get(&field("ao.DESC"), ValueForm::Value)?, &json!("how far"))?;
    expect_value("ao.RTYP", &client.get(&field("ao.RTYP"), ValueForm::Value)?, &json!("ao"))?;
    expect_value("ao.NAME", &client.get(&field("ao.NAME"), ValueForm::Value)?, &json!(server.pv("ao")))?;

    client.put(&field("ao.EGU"), &json!("mV"), true)?;
    expect("ao", "units", &client.get(&field("ao"), ValueForm::Control)?.units.as_deref(), &Some("mV"))?;

    let scan = field("calc.SCAN");
    expect("calc.SCAN", "kind", &client.connect(&scan)?.kind.as_str(), &"enum")?;
    client.put(&scan, &json!(".1 second"), true)?;
    expect_value("calc.SCAN", &client.get(&scan, ValueForm::Value)?, &json!(9))?;
    client.put(&scan, &json!("Passive"), true)?;

    client.put(&field("ao.PROC"), &json!(1), true)
}

/// A value that this user may not write can be read, and refuses puts.
pub fn a_locked_value_refuses_puts(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    refuses(client, &server.pv("locked"), &json!(6), &json!(5))
}

/// A field that is not writable refuses puts and keeps its value.
pub fn a_read_only_field_refuses_puts(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    refuses(client, &server.pv("ao.RTYP"), &json!("calc"), &json!("ao"))
}

fn refuses(client: &mut dyn Client, pv: &str, written: &Json, kept: &Json) -> Result<(), TestFailure> {
    super::life::is_refused(client, pv, written)?;
    expect_value(pv, &client.get(pv, ValueForm::Value)?, kept)
}

/// A search by unicast reaches one of the servers that share a UDP port; it forwards the search to the others.
pub fn servers_that_share_a_port_are_found(kind: ClientKind, server: &TestServer) -> Result<(), TestFailure> {
    let others: &[ServerProgram] = match server.kind {
        ServerProgram::Fodo => &[ServerProgram::Fodo, ServerProgram::Qsrv2],
        _ => &[ServerProgram::P4p],
    };
    let ports = || PvaPorts { search: server.pva.search, tcp: place::free_port() };
    let others = others.iter().map(|&other| TestServer::start_pva_at(other, ports()));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let mut client = client::start(kind, server, NameSearch::Unicast)?;

    for server in others.iter().chain([server]) {
        let pv = server.pv("longin");
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(7))?;
    }
    Ok(())
}
