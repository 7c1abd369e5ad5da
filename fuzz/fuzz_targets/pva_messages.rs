//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_messages.rs`.
#![no_main]

#[path = "../src/pva_messages.rs"]
mod pva_messages;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_messages::feed(bytes));
