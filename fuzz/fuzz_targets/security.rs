//! `cargo xtask fuzz SECONDS`; the input is processed in `src/security.rs`.
#![no_main]

#[path = "../src/security.rs"]
mod security;
#[path = "../src/files.rs"]
mod files;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| security::feed(bytes));
