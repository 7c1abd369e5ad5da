//! `cargo xtask fuzz SECONDS`; what is done with the bytes stands in `src/recsync.rs`.
#![no_main]

#[path = "../src/recsync.rs"]
mod recsync;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| recsync::feed(bytes));
