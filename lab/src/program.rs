//! The program that the laboratory starts for the processes under test: `fodo`.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

static SELECTED: OnceLock<PathBuf> = OnceLock::new();

/// Selects the program, for a process that runs the laboratory but is another program, such as Python. The first call
/// counts.
pub fn set_program(path: PathBuf) {
    // A second call has no effect.
    let _ = SELECTED.set(path);
}

/// The path of the program: the selected one, or that of this process.
pub fn path() -> io::Result<PathBuf> {
    SELECTED.get().cloned().map_or_else(std::env::current_exe, Ok)
}
