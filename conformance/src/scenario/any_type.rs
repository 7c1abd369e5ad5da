//! PVs of any type, over pvAccess: tables, unions, variants, calls; and processing without a value.

use serde_json::{Value as Json, json};

use super::{UPDATE_DURATION_MAX, expect, expect_close, expect_value};
use crate::TestFailure;
use crate::client::{AnyTypeRequest, Client, MonitorForm, ValueForm};
use crate::server::TestServer;

/// Number of updates that a server may send before it is acknowledged.
const WINDOW: u32 = 4;

/// Number of updates, more than fit into a window.
const UPDATE_COUNT: i64 = 25;

/// A subscription with a window receives more updates than the window has, because the client acknowledges them.
pub fn updates_continue_after_the_window(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("longout");
    client.put(&pv, &json!(0), true)?;
    let monitor = client.subscribe(&pv, MonitorForm { window: Some(WINDOW), ..MonitorForm::default() })?;

    for n in 0..UPDATE_COUNT {
        if n > 0 {
            client.put(&pv, &json!(n), true)?;
        }
        let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
        expect(&pv, &format!("updates for {n}"), &updates.len(), &1)?;
        expect_value(&pv, &updates[0], &json!(n))?;
    }
    Ok(())
}

/// A table is described, read, and written column by column; a subscription reports each put.
pub fn tables_are_read_written_and_monitored(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("table");
    let kind = client.request(&pv, AnyTypeRequest::Describe)?;
    expect(&pv, "id", &kind["id"], &"epics:nt/NTTable:1.0")?;
    expect(&pv, "labels", &kind["members"]["labels"], &"string[]")?;
    expect(&pv, "columns", &kind["members"]["value"], &json!({ "name": "string[]", "position": "double[]" }))?;
    let table = client.request(&pv, AnyTypeRequest::Get)?;
    expect(&pv, "labels", &table["labels"], &json!(["name", "position"]))?;

    let monitor = client.subscribe(&pv, MonitorForm { is_structure: true, ..MonitorForm::default() })?;
    let first = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
    expect(&pv, "first updates", &first.len(), &1)?;
    expect_close(&pv, "first update", &first[0].value["value"], &table["value"])?;
    for position in [[0.25, -4.0], [1e300, 0.0]] {
        let expected = json!({ "name": table["value"]["name"], "position": position });
        client.request(&pv, AnyTypeRequest::Put(&json!({ "value.position": position })))?;
        reads(client, &pv, monitor, &expected)?;
    }
    client.request(&pv, AnyTypeRequest::Put(&json!({ "value.name": ["up", "down"] })))?;
    reads(client, &pv, monitor, &json!({ "name": ["up", "down"], "position": [1e300, 0.0] }))
}

/// A put selects the member of a union.
pub fn unions_are_written(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("union");
    let monitor = subscribed(client, &pv)?;

    for (member, value) in
        [("text", json!("two")), ("number", json!(-2.5)), ("text", json!("")), ("number", json!(1.5))]
    {
        client.request(&pv, AnyTypeRequest::PutUnion(member, &value))?;
        reads(client, &pv, monitor, &value)?;
    }
    Ok(())
}

/// A union is described, read and monitored.
pub fn unions_are_read(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("union");
    let members = json!({ "flag": "boolean", "number": "double", "text": "string" });
    expect(&pv, "type", &value_type(client, &pv)?, &json!({ "union": members }))?;
    subscribed(client, &pv).map(|_| ())
}

/// A put changes the value of a variant and its type.
pub fn variants_change_their_type(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("variant");
    expect(&pv, "type", &value_type(client, &pv)?, &"any")?;
    let monitor = subscribed(client, &pv)?;

    for value in [json!("two"), json!(-2.5), json!("")] {
        client.request(&pv, AnyTypeRequest::Put(&json!({ "value": value })))?;
        reads(client, &pv, monitor, &value)?;
    }
    Ok(())
}

/// A call returns what the procedure makes of its arguments.
pub fn a_call_returns_a_result(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("add");
    for (lhs, rhs) in [(1.5, 2.0), (-4.0, 0.25)] {
        let result = client.request(&pv, AnyTypeRequest::Call(&json!({ "lhs": lhs, "rhs": rhs })))?;
        expect_close(&pv, "result", &result["value"], &json!(lhs + rhs))?;
    }
    Ok(())
}

/// A procedure that fails is an error of the call, and can be called again.
pub fn a_failed_call_is_reported(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("add");
    match client.request(&pv, AnyTypeRequest::Call(&json!({ "lhs": 1.5 }))) {
        Ok(result) => return Err(format!("{pv}: a call without an argument returned {result}")),
        Err(why) if ["Timeout", "printed nothing", "within"].iter().any(|sign| why.contains(sign)) => return Err(why),
        Err(_) => {}
    }
    a_call_returns_a_result(client, server)
}

/// A request for processing, without a value, processes a record once.
pub fn a_record_is_processed_without_a_value(client: &mut dyn Client, server: &TestServer) -> Result<(), TestFailure> {
    let pv = server.pv("processed");
    client.put(&pv, &json!(10), true)?;
    for n in [11, 12, 13] {
        client.request(&pv, AnyTypeRequest::Process)?;
        expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(n))?;
    }
    Ok(())
}

/// The type of the member `value`.
fn value_type(client: &mut dyn Client, pv: &str) -> Result<Json, TestFailure> {
    Ok(client.request(pv, AnyTypeRequest::Describe)?["members"]["value"].take())
}

/// A subscription whose first update was 1.5, as was the value read.
fn subscribed(client: &mut dyn Client, pv: &str) -> Result<usize, TestFailure> {
    let monitor = client.subscribe(pv, MonitorForm { is_structure: true, ..MonitorForm::default() })?;
    reads(client, pv, monitor, &json!(1.5))?;
    Ok(monitor)
}

/// Checks the value read, and that of the next update.
fn reads(client: &mut dyn Client, pv: &str, monitor: usize, expected: &Json) -> Result<(), TestFailure> {
    expect_close(pv, "value", &client.request(pv, AnyTypeRequest::Get)?["value"], expected)?;
    let updates = client.take(monitor, 1, UPDATE_DURATION_MAX)?;
    expect(pv, "updates", &updates.len(), &1)?;
    expect_close(pv, "update", &updates[0].value["value"], expected)
}
