//! The server end of a circuit: recordings of QSRV2 replayed against it, and scripted clients.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic reports the failure")]

#[path = "../wire/conversation.rs"]
#[expect(dead_code, reason = "only the wire test uses the rest")]
mod conversation;
#[path = "../wire/recording.rs"]
#[expect(dead_code, reason = "only the wire test uses the rest")]
mod recording;

mod connections;
mod kept_requests;
mod limits;
mod memory;
mod monitors;
mod operations;
mod replay;
mod scripted;
