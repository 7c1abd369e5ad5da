//! How a client finds a server. All other scenarios use unicast.

use serde_json::json;

use super::expect_value;
use crate::client::{self, ClientKind, Shape, Way};
use crate::server::{Ears, Server};
use crate::{Failure, place};

/// With a name server, searches use TCP only; the server itself is the name server.
pub fn by_name_server(client: ClientKind, server: &Server) -> Result<(), Failure> {
    finds(client, server, Way::NameServer)
}

/// A broadcast reaches a server that listens on all interfaces. Only in an isolated network, where no other host
/// receives it.
pub fn by_broadcast(client: ClientKind, server: &Server) -> Result<(), Failure> {
    if !place::is_alone() {
        eprintln!("skipped: a broadcast would reach other hosts; conformance/alone.sh isolates the test");
        return Ok(());
    }
    finds(client, &Server::start_with(server.kind, Ears::Everywhere)?, Way::Broadcast)
}

fn finds(client: ClientKind, server: &Server, way: Way) -> Result<(), Failure> {
    let mut client = client::start(client, server, way)?;
    let pv = server.pv("longout");

    client.put(&pv, &json!(17), true)?;

    expect_value(&pv, &client.get(&pv, Shape::Value)?, &json!(17))
}
