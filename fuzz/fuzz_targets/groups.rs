//! `cargo xtask fuzz SECONDS`; the input is processed in `src/groups.rs`.
#![no_main]

#[path = "../src/groups.rs"]
mod groups;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| groups::feed(bytes));
