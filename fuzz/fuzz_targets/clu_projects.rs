//! `cargo xtask fuzz SECONDS`; the input is processed in `src/clu_projects.rs`.
#![no_main]

#[path = "../src/clu_projects.rs"]
mod clu_projects;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| clu_projects::feed(bytes));
