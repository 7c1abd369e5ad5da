//! Where the IOC runs: its environment and time zone, and what its records print.

use std::io::Write;

use fodo_data::{Text, TimeStamp};
use fodo_db::{Site, Stream, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// This process.
#[derive(Debug)]
pub struct Process {
    zone: TimeZone,
}

impl Process {
    pub fn new() -> Process {
        Process { zone: TimeZone::system() }
    }
}

impl Site for Process {
    fn variable(&self, name: &str) -> Option<Text> {
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
