//! `cargo xtask fuzz SECONDS`; the input is processed in `src/codec.rs`.
#![no_main]

#[path = "../src/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| codec::feed(bytes));
