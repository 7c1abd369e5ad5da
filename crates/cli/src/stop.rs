//! The signals that end a program cleanly, and the one that has it read a file again.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at SIGINT and SIGTERM, on a thread of its own. A second one ends the program at once.
///
/// SIGHUP is left alone here, so that `nohup` keeps its meaning.
pub fn on_signal(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("fodo-signals".into()).spawn(move || {
        for (n_before, signal) in signals.forever().enumerate() {
            if n_before > 0 {
                // The number that shells give a program ended by this signal.
                std::process::exit(128 + signal);
            }
            stop();
        }
    })?;
    Ok(())
}

/// Calls `again` at SIGHUP, on a thread of its own: what was configured by a file is to be read again.
///
/// A program that asks for this outlives its terminal, as under `nohup`.
pub fn on_hangup(again: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    thread::Builder::new().name("fodo-hangup".into()).spawn(move || signals.forever().for_each(|_| again()))?;
    Ok(())
}
