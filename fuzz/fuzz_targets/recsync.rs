//! `cargo xtask fuzz SECONDS`; the input is processed in `src/recsync.rs`.
#![no_main]

#[path = "../src/recsync.rs"]
mod recsync;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| recsync::feed(bytes));
