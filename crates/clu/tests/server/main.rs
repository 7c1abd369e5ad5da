//! The server machine with a clock of the test: conversations, hostile datagrams, and a simulation.
#![forbid(unsafe_code)]

#[path = "../../../../fuzz/src/clu_server.rs"]
mod clu_server;
mod conversation;
mod hostile;
mod reports;
mod simulation;
mod world;
