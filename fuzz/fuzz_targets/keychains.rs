//! `cargo xtask fuzz SECONDS`; the input is processed in `src/keychains.rs`.
#![no_main]

#[path = "../src/keychains.rs"]
mod keychains;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keychains::feed(bytes));
