//! The program `fodo`; everything it does is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fodo_cli::run(std::env::args_os().collect())
}
