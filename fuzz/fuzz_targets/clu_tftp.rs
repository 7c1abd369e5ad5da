//! `cargo xtask fuzz SECONDS`; the input is processed in `src/clu_tftp.rs`.
#![no_main]

#[path = "../src/clu_tftp.rs"]
mod clu_tftp;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| clu_tftp::feed(bytes));
