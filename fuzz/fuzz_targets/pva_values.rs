//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_values.rs`.
#![no_main]

#[path = "../src/pva_values.rs"]
mod pva_values;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_values::feed(bytes));
