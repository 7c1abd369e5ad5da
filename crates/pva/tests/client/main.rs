//! The client end of a circuit against a server whose replies each test chooses, and against recorded servers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic reports the failure")]

#[path = "../wire/conversation.rs"]
#[expect(dead_code, reason = "only the wire test uses the rest")]
mod conversation;
#[path = "../wire/recording.rs"]
#[expect(dead_code, reason = "only the wire test uses the rest")]
mod recording;

mod channels;
mod dialog;
mod endings;
mod handshake;
mod hostile;
mod large;
mod liveness;
mod monitors;
mod puts;
mod reads;
mod recordings;
