//! The log of a server, as lines on stderr.

use std::io::{self, Write as _};
use std::time::SystemTime;

use fodo_ioc::printable;
use fodo_net::TimeStamp;
use fodo_net::log::{Level, Log, LogLine};
use serde_json::Map;

use crate::json;
use crate::local_time::Clock;

/// Flags for the log.
#[derive(Clone, Debug, clap::Args)]
pub struct LogFlags {
    /// Lowest severity of log lines on stderr
    #[arg(long, value_name = "LEVEL", default_value = "warning")]
    log_level: LogLevel,
    /// Format of log lines; json prints one object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The lowest severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for LogFlags {
    fn default() -> LogFlags {
        LogFlags { log_level: LogLevel::Warning, log_format: LogFormat::Text }
    }
}

impl LogFlags {
    /// The log of a server.
    pub fn log(&self) -> Log {
        let format = self.log_format;
        Log::new(self.level(), move |line| {
            // There is no other place to report that stderr failed.
            let _ = io::stderr().write_all(format_line(line, format).as_bytes());
        })
    }

    /// Writes a line that does not concern a peer.
    pub fn report(&self, level: Level, what: &str) {
        self.report_at(level, SystemTime::now().into(), what);
    }

    /// The same for what happened at another time.
    pub fn report_at(&self, level: Level, time: TimeStamp, what: &str) {
        if level > self.level() {
            return;
        }
        let line = LogLine { level, time, what: what.to_owned(), peer: None, pv: None, n_suppressed: 0 };
        // As above.
        let _ = io::stderr().write_all(format_line(&line, self.log_format).as_bytes());
    }

    /// Formats a line that other programs wait for: plain text without a time, or JSON like any other line.
    pub fn as_it_is(&self, what: &str) -> String {
        match self.log_format {
            LogFormat::Text => what.to_owned(),
            LogFormat::Json => {
                let time = SystemTime::now().into();
                let line =
                    LogLine { level: Level::Info, time, what: what.to_owned(), peer: None, pv: None, n_suppressed: 0 };
                format_line(&line, LogFormat::Json).trim_end().to_owned()
            }
        }
    }

    fn level(&self) -> Level {
        match self.log_level {
            LogLevel::Error => Level::Error,
            LogLevel::Warning => Level::Warning,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        }
    }
}

fn format_line(line: &LogLine, format: LogFormat) -> String {
    let level = line.level.to_string();
    let peer = line.peer.map(|peer| peer.to_string());
    let time = Clock::rfc3339(line.time);
    if format == LogFormat::Json {
        return json::line(Map::from_iter([
            ("time".to_owned(), time.into()),
            ("level".to_owned(), level.into()),
            ("what".to_owned(), line.what.clone().into()),
            ("peer".to_owned(), peer.into()),
            ("pv".to_owned(), line.pv.clone().into()),
            ("left_out".to_owned(), line.n_suppressed.into()),
        ]));
    }
    // Names come from peers and files, so control characters are escaped for the terminal.
    let what = printable(&line.what);
    let pv = line.pv.as_ref().map(|pv| format!(" \"{}\"", pv.escape_debug())).unwrap_or_default();
    let peer = peer.map(|peer| format!(" ({peer})")).unwrap_or_default();
    let left_out =
        if line.n_suppressed > 0 { format!("; {} similar left out", line.n_suppressed) } else { String::new() };
    format!("{} {level}: {what}{pv}{peer}{left_out}\n", time.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_names_source_and_event_with_control_characters_escaped() {
        let line = LogLine {
            level: Level::Debug,
            time: fodo_net::TimeStamp { unix_s: 1_800_000_000, nanos: 5 },
            what: "a channel is refused".to_owned(),
            peer: Some("10.0.0.2:4000".parse().unwrap()),
            pv: Some("x\u{1b}[2J".to_owned()),
            n_suppressed: 3,
        };

        assert_eq!(
            format_line(&line, LogFormat::Text),
            "2027-01-15T08:00:00.000000005Z debug: a channel is refused \"x\\u{1b}[2J\" (10.0.0.2:4000); 3 similar left \
             out\n"
        );
        let object: Map<String, serde_json::Value> =
            serde_json::from_str(&format_line(&line, LogFormat::Json)).unwrap();
        assert_eq!((&object["peer"], &object["left_out"]), (&"10.0.0.2:4000".into(), &3.into()));
        for key in object.keys() {
            assert!(crate::verb::ioc::HELP.contains(key), "{key}");
        }
    }
}
