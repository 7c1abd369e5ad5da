//! Where the IOC runs: its environment and time zone, and what its records print.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use fodo_data::{Text, TimeStamp};
use fodo_db::{Site, Stream, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Variables that a shell sets while records read them.
pub type Environment = Arc<Mutex<HashMap<String, String>>>;

/// This process.
#[derive(Debug)]
pub struct Process {
    zone: TimeZone,
    /// What counts instead of the process's environment.
    environment: Option<Environment>,
}

impl Process {
    pub fn new(environment: Option<Environment>) -> Process {
        Process { zone: TimeZone::system(), environment }
    }
}

impl Site for Process {
    fn variable(&self, name: &str) -> Option<Text> {
        if let Some(environment) = &self.environment {
            // A thread that panicked meanwhile has left whole variables.
            let environment = environment.lock().unwrap_or_else(PoisonError::into_inner);
            return environment.get(name).map(|value| value.as_str().into());
        }
        // The system panics at names that cannot be.
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        std::env::var_os(name).map(|value| Text::from_bytes(value.as_encoded_bytes()))
    }

    fn zone(&self, at: TimeStamp) -> Zone {
        let moment = Timestamp::from_second(at.unix_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let about = self.zone.to_offset_info(moment);
        Zone { offset_s: about.offset().seconds(), name: about.abbreviation().to_owned() }
    }
}

/// Writes a line of the device support stdio.
pub fn print(stream: Stream, line: &Text) {
    let mut bytes = line.as_bytes().to_vec();
    bytes.push(b'\n');
    // A stream that nobody reads any more is no reason to stop processing.
    let _ = match stream {
        Stream::Out => std::io::stdout().write_all(&bytes),
        Stream::Error | Stream::Log => std::io::stderr().write_all(&bytes),
    };
}
