//! The logs of the virtual CLUs in this process, as lines on stderr.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};

use fodo_net::log::Level;
use fodo_vclu::{CluLogReader, LogEntry, LogSeverity};

use crate::limit;
use crate::log::LogFlags;

/// A thread that prints the logs of virtual CLUs. Dropping it prints the last entries, so it is dropped after the CLUs.
#[derive(Default)]
pub struct CluLogThread(Option<(Sender<()>, JoinHandle<()>)>);

impl CluLogThread {
    /// Prints entries with the severity of `flags` or a higher one.
    ///
    /// `logs`: with the names of the CLUs; without any, there is no thread.
    pub fn start(mut logs: Vec<(String, CluLogReader)>, flags: LogFlags) -> io::Result<CluLogThread> {
        if logs.is_empty() {
            return Ok(CluLogThread::default());
        }
        let (sender, stop) = mpsc::channel();
        let thread = Builder::new().name("fodo-clu-log".into()).spawn(move || {
            let mut is_last = false;
            while !is_last {
                is_last = stop.recv_timeout(limit::LOG_PERIOD) != Err(RecvTimeoutError::Timeout);
                logs.iter_mut().for_each(|(name, log)| print(name, log, &flags));
            }
        })?;
        Ok(CluLogThread(Some((sender, thread))))
    }
}

impl Drop for CluLogThread {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

fn print(name: &str, log: &mut CluLogReader, flags: &LogFlags) {
    let new = log.new_entries();
    if new.n_missed > 0 {
        flags.report(Level::Warning, &format!("CLU \"{name}\": {} entries of the log are left out", new.n_missed));
    }
    for LogEntry { time, level, text } in new.entries {
        let level = match level {
            LogSeverity::Error => Level::Error,
            LogSeverity::Warning => Level::Warning,
            LogSeverity::Info => Level::Info,
            LogSeverity::Debug => Level::Debug,
        };
        flags.report_at(level, time, &format!("CLU \"{name}\": {text}"));
    }
}
