//! `cargo xtask fuzz SECONDS`; what is done with the bytes stands in `src/operations.rs`.
#![no_main]

#[path = "../src/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::feed(bytes));
