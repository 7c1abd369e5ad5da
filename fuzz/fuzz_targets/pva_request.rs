//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_request.rs`.
#![no_main]

#[path = "../src/pva_request.rs"]
mod pva_request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_request::feed(bytes));
