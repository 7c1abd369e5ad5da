//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_client.rs`.
#![no_main]

#[path = "../src/pva_client.rs"]
mod pva_client;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_client::feed(bytes));
