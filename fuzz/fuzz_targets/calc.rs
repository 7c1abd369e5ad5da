//! `cargo xtask fuzz SECONDS`; the input is processed in `src/calc.rs`.
#![no_main]

#[path = "../src/calc.rs"]
mod calc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| calc::feed(bytes));
