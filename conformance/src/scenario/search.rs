//! How a client finds a server. All other scenarios use unicast.

use serde_json::json;

use super::expect_value;
use crate::client::{self, ClientKind, NameSearch, ValueForm};
use crate::server::{ListenOn, TestServer};
use crate::{TestFailure, place};

/// With a name server, searches use TCP only; the server itself is the name server.
pub fn by_name_server(client: ClientKind, server: &TestServer) -> Result<(), TestFailure> {
    finds(client, server, NameSearch::NameServer)
}

/// A broadcast reaches a server that listens on all interfaces. Only in an isolated network, where no other host
/// receives it.
pub fn by_broadcast(client: ClientKind, server: &TestServer) -> Result<(), TestFailure> {
    if !place::is_alone() {
        eprintln!("skipped: a broadcast would reach other hosts; conformance/alone.sh isolates the test");
        return Ok(());
    }
    finds(client, &TestServer::start_with(server.kind, ListenOn::Everywhere)?, NameSearch::Broadcast)
}

fn finds(client: ClientKind, server: &TestServer, way: NameSearch) -> Result<(), TestFailure> {
    let mut client = client::start(client, server, way)?;
    let pv = server.pv("longout");

    client.put(&pv, &json!(17), true)?;

    expect_value(&pv, &client.get(&pv, ValueForm::Value)?, &json!(17))
}
