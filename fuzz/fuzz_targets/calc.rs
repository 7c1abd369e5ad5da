//! `cargo xtask fuzz SECONDS`; what is done with the bytes stands in `src/calc.rs`.
#![no_main]

#[path = "../src/calc.rs"]
mod calc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| calc::feed(bytes));
