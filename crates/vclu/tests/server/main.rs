//! A virtual CLU on the network: real sockets, with the codec as the client.
#![cfg(unix)]

mod busy;
mod commissioning;
mod files;
mod reports;
mod requests;
#[expect(dead_code, reason = "each test program uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod world;
