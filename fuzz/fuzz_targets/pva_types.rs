//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_types.rs`.
#![no_main]

#[path = "../src/pva_types.rs"]
mod pva_types;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_types::feed(bytes));
