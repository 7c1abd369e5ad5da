//! The signals that stop a program cleanly, and the one that makes it reload a file.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` on SIGINT and SIGTERM, on a separate thread. A second signal ends the program immediately.
///
/// SIGHUP is not handled here, so that `nohup` works.
pub fn on_signal(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("fodo-signals".into()).spawn(move || {
        for (n_before, signal) in signals.forever().enumerate() {
            if n_before > 0 {
                // The exit code that shells report for a program ended by this signal.
                std::process::exit(128 + signal);
            }
            stop();
        }
    })?;
    Ok(())
}

/// Calls `again` on SIGHUP, on a separate thread, to reload a configuration file.
///
/// A program that uses this survives the end of its terminal, as under `nohup`.
pub fn on_sighup(again: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    thread::Builder::new().name("fodo-hangup".into()).spawn(move || signals.forever().for_each(|_| again()))?;
    Ok(())
}
