//! The signals that end a program cleanly.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at SIGINT and SIGTERM, on a thread of its own. A second one ends the program at once.
///
/// SIGHUP is left alone, so that `nohup` keeps its meaning.
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
