//! `cargo xtask fuzz SECONDS`; the input is processed in `src/database.rs`.
#![no_main]

#[path = "../src/database.rs"]
mod database;
#[path = "../src/files.rs"]
mod files;
#[path = "../src/ioc.rs"]
mod ioc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| database::feed(bytes));
