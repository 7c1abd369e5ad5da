//! `cargo xtask fuzz SECONDS`; the input is processed in `src/substitutions.rs`.
#![no_main]

#[path = "../src/substitutions.rs"]
mod substitutions;
#[path = "../src/files.rs"]
mod files;
#[path = "../src/ioc.rs"]
mod ioc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| substitutions::feed(bytes));
