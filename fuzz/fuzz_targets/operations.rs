//! `cargo xtask fuzz SECONDS`; the input is processed in `src/operations.rs`.
#![no_main]

#[path = "../src/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::feed(bytes));
