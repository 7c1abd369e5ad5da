//! Channel Access bytes: `cargo xtask fuzz SECONDS`.
#![no_main]

#[path = "../src/ca.rs"]
mod ca;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ca::feed(bytes));
