//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_datagrams.rs`.
#![no_main]

#[path = "../src/pva_datagrams.rs"]
mod pva_datagrams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_datagrams::feed(bytes));
