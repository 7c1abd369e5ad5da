//! `cargo xtask fuzz SECONDS`; the input is processed in `src/links.rs`.
#![no_main]

#[path = "../src/links.rs"]
mod links;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| links::feed(bytes));
