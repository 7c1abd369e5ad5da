//! The log of a server.
//!
//! It is our own and not a library's: there are few messages, all of them here and in `server`. What they need is a
//! limit per peer and text, so that no peer fills a disk, and libraries lack that.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fodo_data::{Now, TimeStamp};
use fodo_lock::Mutex;

use crate::limit;

/// Severity of a line, the most severe first. It is displayed as a word in lower case. [`Log`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The server cannot do its work, or the code of the program has panicked.
    Error,
    /// A peer violates the protocol or exceeds a limit.
    Warning,
    /// Clients connect and disconnect; the program refuses their puts.
    Info,
    /// Details for troubleshooting only.
    Debug,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        })
    }
}

/// One line. [`Log`] has an example.
///
/// It is displayed without its time, because a program usually adds the time in its own format. Control characters are
/// escaped, since names and texts come from the network.
///
/// ```
/// use fodo_data::TimeStamp;
/// use fodo_net::log::{Level, LogLine};
///
/// let line = LogLine {
///     level: Level::Debug,
///     time: TimeStamp::NEVER,
///     what: "a channel is refused".into(),
///     peer: Some("192.0.2.7:4000".parse().unwrap()),
///     pv: Some("x\u{1b}[2J".into()),
///     n_suppressed: 3,
/// };
/// let text = "debug: a channel is refused \"x\\u{1b}[2J\" (192.0.2.7:4000); 3 similar left out";
/// assert_eq!(line.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its severity.
    pub level: Level,
    /// When it happened.
    pub time: TimeStamp,
    /// What happened.
    pub what: String,
    /// The peer that caused it.
    pub peer: Option<SocketAddr>,
    /// The PV it is about.
    pub pv: Option<String>,
    /// Number of suppressed lines with the same text about the same host since the last one.
    pub n_suppressed: u64,
}

impl std::fmt::Display for LogLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.level)?;
        for character in self.what.chars() {
            match character.is_control() {
                true => write!(f, "{}", character.escape_debug())?,
                false => write!(f, "{character}")?,
            }
        }
        if let Some(pv) = &self.pv {
            write!(f, " \"{}\"", pv.escape_debug())?;
        }
        if let Some(peer) = self.peer {
            write!(f, " ({peer})")?;
        }
        if self.n_suppressed > 0 {
            write!(f, "; {} similar left out", self.n_suppressed)?;
        }
        Ok(())
    }
}

/// A destination for lines. Clones share the destination and the rate limit.
///
/// ```
/// use std::sync::mpsc;
///
/// use fodo_data::Now;
/// use fodo_net::log::{Level, Log, LogLine};
///
/// let (sender, lines) = mpsc::channel::<LogLine>();
/// let log = Log::new(Level::Warning, move |line| drop(sender.send(line.clone())));
/// log.note(Level::Info, "below the level of this log");
/// log.note(Level::Warning, "the disk is nearly full");
/// assert_eq!(lines.try_iter().map(|line| line.what).collect::<Vec<_>>(), ["the disk is nearly full"]);
///
/// // A peer cannot fill the log: the same text about its host is logged once a minute.
/// let peer = Some("192.0.2.7:5064".parse().unwrap());
/// for _ in 0..100 {
///     log.write(Level::Warning, "sent an invalid message", peer, None, Now::for_test());
/// }
/// assert_eq!(lines.try_iter().count(), 1);
///
/// // A server without a log has this one.
/// Log::silent().note(Level::Error, "dropped");
/// ```
#[derive(Clone)]
pub struct Log {
    level: Level,
    sink: Arc<dyn Fn(&LogLine) + Send + Sync>,
    limiter: Arc<Mutex<LogLimiter>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Log {
    /// Calls `sink` with every line of severity `level` or higher, on the server's threads; it must not block for long,
    /// since the clients of the thread wait meanwhile. If it panics, the line is lost. The same text about one host is
    /// logged at most once a minute; suppressed lines are counted.
    pub fn new(level: Level, sink: impl Fn(&LogLine) + Send + Sync + 'static) -> Log {
        Log { level, sink: Arc::new(sink), limiter: Arc::default() }
    }

    /// A log that drops every line.
    pub fn silent() -> Log {
        Log::new(Level::Error, |_| {})
    }

    /// Logs a line without a peer, for the program that runs the server. It is never suppressed, so log only changes.
    pub fn note(&self, level: Level, what: &str) {
        if level <= self.level {
            let time = SystemTime::now().into();
            self.pass_on(&LogLine { level, time, what: what.to_owned(), peer: None, pv: None, n_suppressed: 0 });
        }
    }

    fn pass_on(&self, line: &LogLine) {
        // The panic hook has reported it; the thread that logs must continue to serve.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.sink)(line)));
    }

    /// Logs a line about a peer or a PV, unless the same text about the same host was logged within the last minute.
    pub fn write(&self, level: Level, what: &str, peer: Option<SocketAddr>, pv: Option<&str>, now: Now) {
        if level > self.level {
            return;
        }
        // By the whole address, also of IPv6: each host of a network is named. The number of keys is limited.
        let key = (peer.map(|peer| peer.ip()), what.to_owned());
        let Some(n_suppressed) = self.limiter.lock().passes(key, now.monotonic) else { return };
        // No client's PV name is longer, but a peer may send any text.
        let pv =
            pv.map(|pv| pv.get(..pv.floor_char_boundary(fodo_ca::limit::NAME_BYTES)).unwrap_or_default().to_owned());
        self.pass_on(&LogLine { level, time: now.wall, what: what.to_owned(), peer, pv, n_suppressed });
    }
}

/// Limits how often the same text about the same host is logged.
#[derive(Debug, Default)]
struct LogLimiter {
    last_logged: HashMap<(Option<IpAddr>, String), LastLogged>,
}

#[derive(Debug)]
struct LastLogged {
    at: Instant,
    n_suppressed: u64,
}

impl LogLimiter {
    /// Number of lines suppressed before this one; `None` if this one is suppressed too.
    fn passes(&mut self, key: (Option<IpAddr>, String), now: Instant) -> Option<u64> {
        if let Some(last) = self.last_logged.get_mut(&key) {
            if now < last.at + limit::LOG_PAUSE {
                last.n_suppressed += 1;
                return None;
            }
            let n_suppressed = std::mem::take(&mut last.n_suppressed);
            last.at = now;
            return Some(n_suppressed);
        }
        if self.last_logged.len() >= limit::LOG_TEXTS {
            self.last_logged.retain(|_, last| now < last.at + limit::LOG_PAUSE);
        }
        // That many hosts at once are an attack; only the first ones are logged.
        if self.last_logged.len() >= limit::LOG_TEXTS {
            return None;
        }
        self.last_logged.insert(key, LastLogged { at: now, n_suppressed: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use fodo_ca::limit::NAME_BYTES;

    use super::*;
    use std::sync::mpsc::{self, Receiver};

    fn log(level: Level) -> (Log, Receiver<LogLine>) {
        let (sender, lines) = mpsc::channel();
        (Log::new(level, move |line| sender.send(line.clone()).unwrap()), lines)
    }

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn repeated_messages_of_a_host_are_logged_once_a_minute_with_a_count() {
        let (log, lines) = log(Level::Warning);
        let start = Now::for_test();

        for port in 4000..4100 {
            log.write(Level::Warning, "noise", Some(SocketAddr::from(([10, 0, 0, 2], port))), None, start);
        }
        log.write(Level::Warning, "noise", peer("10.0.0.3:4000"), None, start);
        log.write(Level::Warning, "noise", peer("10.0.0.2:4000"), None, start + limit::LOG_PAUSE);

        let logged: Vec<_> = lines.try_iter().map(|line| (line.peer, line.n_suppressed)).collect();
        assert_eq!(logged, [(peer("10.0.0.2:4000"), 0), (peer("10.0.0.3:4000"), 0), (peer("10.0.0.2:4000"), 99)]);
    }

    #[test]
    fn local_log_messages_are_never_suppressed() {
        let (log, lines) = log(Level::Warning);

        for level in [Level::Error, Level::Info, Level::Error] {
            log.clone().note(level, "a disk is full");
        }

        let logged: Vec<_> = lines.try_iter().map(|line| (line.level, line.n_suppressed)).collect();
        assert_eq!(logged, [(Level::Error, 0), (Level::Error, 0)]);
    }

    #[test]
    fn lines_below_the_level_are_not_logged() {
        let (log, lines) = log(Level::Warning);

        log.write(Level::Info, "a client", None, None, Now::for_test());
        log.write(Level::Error, "no memory", None, Some("x:y"), Now::for_test());

        let logged: Vec<_> = lines.try_iter().map(|line| (line.what, line.pv)).collect();
        assert_eq!(logged, [("no memory".to_owned(), Some("x:y".to_owned()))]);
    }

    #[test]
    fn log_suppression_uses_bounded_memory_for_any_number_of_hosts() {
        let (log, lines) = log(Level::Warning);
        let start = Now::for_test();

        for number in 0..2 * limit::LOG_TEXTS as u32 {
            log.write(Level::Warning, "noise", Some(SocketAddr::from((number.to_be_bytes(), 1))), None, start);
        }
        log.write(Level::Warning, "noise", peer("192.0.2.1:1"), None, start + limit::LOG_PAUSE);

        assert_eq!(lines.try_iter().count(), limit::LOG_TEXTS + 1);
    }

    #[test]
    fn the_log_truncates_pv_names_at_the_name_limit() {
        let (log, lines) = log(Level::Debug);

        for name in ["x".repeat(NAME_BYTES), "x".repeat(NAME_BYTES + 1), "é".repeat(NAME_BYTES)] {
            log.write(Level::Debug, &format!("a name of {}", name.len()), None, Some(&name), Now::for_test());
        }

        let lengths: Vec<usize> = lines.try_iter().filter_map(|line| Some(line.pv?.len())).collect();
        assert_eq!(lengths, [NAME_BYTES, NAME_BYTES, NAME_BYTES / 2 * 2]);
    }

    #[test]
    fn a_repeated_message_is_logged_again_only_after_the_pause() {
        let (log, lines) = log(Level::Warning);
        let start = Now::for_test();

        for after in
            [std::time::Duration::ZERO, limit::LOG_PAUSE.mul_f64(0.999), limit::LOG_PAUSE, limit::LOG_PAUSE * 2]
        {
            log.write(Level::Warning, "noise", peer("10.0.0.2:4000"), None, start + after);
            log.write(Level::Warning, "other noise", peer("10.0.0.2:4000"), None, start + after);
        }

        let logged: Vec<u64> =
            lines.try_iter().filter(|line| line.what == "noise").map(|line| line.n_suppressed).collect();
        assert_eq!(logged, [0, 1, 0]);
    }

    #[test]
    fn a_silent_log_drops_every_line() {
        Log::silent().note(Level::Error, "no memory");
        assert!(Level::Error < Level::Warning && Level::Warning < Level::Info && Level::Info < Level::Debug);
    }

    #[test]
    fn a_panic_of_the_sink_loses_only_its_line() {
        let (sender, lines) = mpsc::channel();
        let log = Log::new(Level::Info, move |line| {
            assert_ne!(line.what, "first", "this panic is part of the test");
            sender.send(line.clone()).unwrap();
        });

        log.note(Level::Error, "first");
        log.write(Level::Error, "first", None, None, Now::for_test());
        log.note(Level::Error, "second");

        assert_eq!(lines.try_iter().map(|line| line.to_string()).collect::<Vec<_>>(), ["error: second"]);
    }

    #[test]
    fn debug_output_of_a_log_contains_its_level() {
        assert!(format!("{:?}", log(Level::Info).0).contains("Info"));
    }
}
