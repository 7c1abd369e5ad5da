//! `cargo xtask fuzz SECONDS`; what is done with the bytes stands in `src/codec.rs`.
#![no_main]

#[path = "../src/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| codec::feed(bytes));
