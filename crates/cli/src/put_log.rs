//! The put log: writes puts to a file as JSON lines. A separate thread with a bounded queue writes it, so that record
//! processing never waits for the disk.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use fodo_ioc::{PutCallback, PutEvent};
use fodo_net::Value;
use fodo_net::log::{Level, Log};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Map, Value as Json};

use crate::json;
use crate::limit::{LOGGED_ELEMENTS_MAX, PUT_LOG_REPORT_PERIOD, PUTS_AT_ONCE, WAITING_PUTS_MAX};
use crate::local_time::Clock;
use crate::show::DisplayOptions;

/// A file to which puts are appended.
#[derive(Debug)]
pub struct PutLog {
    queue: SyncSender<QueueEntry>,
    left_out: Arc<MissingPuts>,
    thread: JoinHandle<LogWriteResult>,
}

/// Whether every write to the file succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogWriteResult {
    Always,
    NotAlways,
}

/// Counters of puts that are missing from the file.
#[derive(Debug, Default)]
struct MissingPuts {
    /// Missing puts that no line of the file counts yet.
    uncounted: AtomicU64,
    /// All missing puts.
    all: Arc<AtomicU64>,
}

impl MissingPuts {
    fn add(&self, n_puts: u64) {
        self.uncounted.fetch_add(n_puts, Ordering::Relaxed);
        self.all.fetch_add(n_puts, Ordering::Relaxed);
    }

    fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Records that a line of the file counts this many missing puts.
    fn counted(&self, n_puts: u64) {
        self.uncounted.fetch_sub(n_puts, Ordering::Relaxed);
    }

    fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

enum QueueEntry {
    /// A put, and the number of elements of its new value before truncation.
    Put(Box<PutEvent>, usize),
    /// The end of the queue.
    End,
}

impl PutLog {
    /// Opens the file. Later write errors are reported to `log`.
    ///
    /// It never waits for a pipe: a pipe without a reader is an error, and lines for a full pipe are dropped.
    pub fn open(path: &Path, log: Log) -> io::Result<PutLog> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let opened = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::NXIO.raw_os_error() => io::Error::other("no program reads from this pipe"),
            _ => error,
        })?;
        let left_out = Arc::new(MissingPuts::default());
        let writer = Writer::new(file, path.display().to_string(), log, left_out.clone());
        let (queue, waiting) = sync_channel(WAITING_PUTS_MAX);
        let thread = thread::Builder::new().name("fodo-puts".into()).spawn(move || writer.run(&waiting))?;
        Ok(PutLog { queue, left_out, thread })
    }

    /// The callback for an IOC. It never blocks; puts that do not fit in the queue are counted.
    pub fn callback(&self) -> PutCallback {
        let (queue, left_out) = (self.queue.clone(), self.left_out.clone());
        Box::new(move |mut note| {
            let count = note.new.len();
            (note.old, note.new) = (shortened(note.old), shortened(note.new));
            if queue.try_send(QueueEntry::Put(Box::new(note), count)).is_err() {
                left_out.add(1);
            }
        })
    }

    /// The live counter of puts missing from the file.
    pub fn left_out(&self) -> Arc<AtomicU64> {
        self.left_out.all.clone()
    }

    /// Waits until all puts are written. Fails with the number of missing puts if a write has failed.
    pub fn finish(self) -> Result<(), String> {
        // It fails only if the thread has panicked.
        let _ = self.queue.send(QueueEntry::End);
        match self.thread.join() {
            Ok(LogWriteResult::Always) => Ok(()),
            Ok(LogWriteResult::NotAlways) => Err(format!("puts missing in the put log: {}", self.left_out.all())),
            Err(_) => Err("the thread of the put log has panicked".to_owned()),
        }
    }
}

fn shortened(value: Value) -> Value {
    match value {
        Value::Array(array) if array.len() > LOGGED_ELEMENTS_MAX => Value::Array(array.truncated(LOGGED_ELEMENTS_MAX)),
        value => value,
    }
}

/// Writes lines. If the disk is full, lines are dropped and counted.
struct Writer<W> {
    file: W,
    name: String,
    log: Log,
    left_out: Arc<MissingPuts>,
    /// Whether the last line of the file is incomplete.
    is_torn: bool,
    written: LogWriteResult,
    /// When it was last reported that the file cannot be written.
    reported: Option<Instant>,
    /// Whether the current failure has been reported.
    is_reported: bool,
}

impl<W: Write> Writer<W> {
    fn new(file: W, name: String, log: Log, left_out: Arc<MissingPuts>) -> Writer<W> {
        let written = LogWriteResult::Always;
        Writer { file, name, log, left_out, is_torn: false, written, reported: None, is_reported: false }
    }

    fn run(mut self, waiting: &Receiver<QueueEntry>) -> LogWriteResult {
        self.drain(waiting);
        self.finish()
    }

    /// Writes puts until the end of the queue.
    fn drain(&mut self, waiting: &Receiver<QueueEntry>) {
        let mut has_ended = false;
        while !has_ended {
            let first = waiting.recv().unwrap_or(QueueEntry::End);
            let n_left_out = self.left_out.uncounted();
            let (mut lines, mut n_lines) = (String::new(), 0);
            for entry in std::iter::once(first).chain(waiting.try_iter()).take(PUTS_AT_ONCE) {
                let QueueEntry::Put(note, count) = entry else {
                    has_ended = true;
                    break;
                };
                lines.push_str(&line(&note, count, if n_lines == 0 { n_left_out } else { 0 }));
                n_lines += 1;
            }
            let n_written = self.append(&lines);
            if n_written > 0 {
                self.left_out.counted(n_left_out);
            }
            self.left_out.add(n_lines - n_written);
        }
    }

    /// Writes a last line that counts missing puts not counted yet.
    fn finish(mut self) -> LogWriteResult {
        let n_left_out = self.left_out.uncounted();
        if n_left_out > 0 && self.append(&missing(n_left_out)) > 0 {
            self.left_out.counted(n_left_out);
        }
        self.written
    }

    /// Appends lines; returns how many of them are in the file.
    fn append(&mut self, lines: &str) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        let end_of_torn_line = if self.is_torn { "\n" } else { "" };
        let text = format!("{end_of_torn_line}{lines}");
        let (n_bytes, result) = self.write(text.as_bytes());
        if let Some(last) = n_bytes.checked_sub(1) {
            self.is_torn = text.as_bytes().get(last) != Some(&b'\n');
        }
        self.report(result);
        // A line that lacks only its line end counts as written, because the line end precedes the next write.
        let n_bytes = n_bytes.saturating_sub(end_of_torn_line.len());
        lines.bytes().enumerate().filter(|(index, byte)| *byte == b'\n' && *index <= n_bytes).count() as u64
    }

    /// Writes as much as possible; returns how many bytes were written.
    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut n_written = 0;
        while let Some(rest) = bytes.get(n_written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (n_written, Err(io::ErrorKind::WriteZero.into())),
                Ok(n_bytes) => n_written += n_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (n_written, Err(error)),
            }
        }
        (n_written, Ok(()))
    }

    /// Reports a write failure, at most once per period, and the recovery.
    fn report(&mut self, result: io::Result<()>) {
        let name = &self.name;
        match result {
            Err(error) => {
                self.written = LogWriteResult::NotAlways;
                if self.is_reported || self.reported.is_some_and(|at| at.elapsed() < PUT_LOG_REPORT_PERIOD) {
                    return;
                }
                (self.is_reported, self.reported) = (true, Some(Instant::now()));
                self.log.note(Level::Error, &format!("put log {name} cannot be written, puts are missing: {error}"));
            }
            Ok(()) if self.is_reported => {
                self.is_reported = false;
                let n_puts = self.left_out.all();
                self.log.note(Level::Warning, &format!("put log {name} is written again; puts missing: {n_puts}"));
            }
            Ok(()) => {}
        }
    }
}

fn line(note: &PutEvent, count: usize, n_left_out: u64) -> String {
    let look = DisplayOptions::plain(Clock::utc());
    let value = |value: &Value| json::value(value, Some(&note.meta), &look);
    json::line(Map::from_iter([
        ("time".to_owned(), Clock::rfc3339(note.time).into()),
        ("user".to_owned(), note.by.user.clone().into()),
        ("host".to_owned(), note.by.host.clone().into()),
        ("peer".to_owned(), note.by.address.to_string().into()),
        ("pv".to_owned(), note.pv.clone().into()),
        ("old".to_owned(), value(&note.old)),
        ("new".to_owned(), value(&note.new)),
        ("count".to_owned(), count.into()),
        ("left_out".to_owned(), n_left_out.into()),
    ]))
}

/// The last line of a file from which the latest puts are missing.
fn missing(n_left_out: u64) -> String {
    let time: Json = Clock::rfc3339(SystemTime::now().into()).into();
    json::line(Map::from_iter([("time".to_owned(), time), ("left_out".to_owned(), n_left_out.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use fodo_net::{Peer, TimeStamp};

    fn note(new: impl Into<Value>) -> PutEvent {
        let address = "10.0.0.2:4000".parse().unwrap();
        PutEvent {
            time: TimeStamp { unix_s: 1_800_000_000, nanos: 5 },
            by: Peer { user: "ann".to_owned(), host: "desk".to_owned(), ..Peer::new(address) },
            pv: "x.VAL".to_owned(),
            old: Value::from(1.5),
            new: new.into(),
            meta: Arc::default(),
        }
    }

    #[test]
    fn a_put_log_line_has_the_documented_keys() {
        let text = line(&note(2.5), 1, 3);

        let object: Map<String, Json> = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["user"], &object["host"]), (&"ann".into(), &"desk".into()));
        assert_eq!((&object["old"], &object["new"]), (&1.5.into(), &2.5.into()));
        assert_eq!((&object["peer"], &object["left_out"]), (&"10.0.0.2:4000".into(), &3.into()));
        for key in object.keys() {
            assert!(crate::verb::ioc::HELP.contains(key), "{key}");
        }
    }

    /// A put log without its thread, and its reports.
    fn writer<W: Write>(file: W) -> (Writer<W>, Arc<MissingPuts>, Arc<Mutex<Vec<String>>>) {
        let (left_out, reports) = (Arc::new(MissingPuts::default()), Arc::new(Mutex::new(Vec::new())));
        let reported = reports.clone();
        let log = Log::new(Level::Debug, move |line| reported.lock().unwrap().push(line.what.clone()));
        (Writer::new(file, "puts.json".to_owned(), log, left_out.clone()), left_out, reports)
    }

    /// The number of puts in a file, and the number of missing puts that it counts. Incomplete lines are ignored.
    fn counts(text: &str) -> (u64, u64) {
        let objects = text.lines().filter_map(|line| serde_json::from_str::<Map<String, Json>>(line).ok());
        objects.fold((0, 0), |(n_puts, n_left_out), object| {
            (n_puts + u64::from(object.contains_key("new")), n_left_out + object["left_out"].as_u64().unwrap())
        })
    }

    /// A disk that is full after `full_at` bytes until `n_failures` writes have failed.
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        full_at: usize,
        /// The number of writes that fail before space is free again.
        n_failures: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut held = self.bytes.lock().unwrap();
            let room = if self.n_failures > 0 { self.full_at.saturating_sub(held.len()) } else { usize::MAX };
            if room == 0 {
                self.n_failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let n_bytes = bytes.len().min(room);
            held.extend(&bytes[..n_bytes]);
            Ok(n_bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_put_log_torn_by_a_full_disk_counts_every_missing_put() {
        const N_PUTS: u64 = 5;
        let line_bytes = line(&note(2.5), 1, 0).len();

        for full_at in 0..=2 * line_bytes {
            let bytes = Arc::default();
            let disk = Disk { bytes: Arc::clone(&bytes), full_at, n_failures: 2 };
            let (mut writer, left_out, reports) = writer(disk);
            for _ in 0..N_PUTS {
                let (queue, waiting) = sync_channel(2);
                queue.send(QueueEntry::Put(Box::new(note(2.5)), 1)).unwrap();
                drop(queue);
                writer.drain(&waiting);
            }
            writer.finish();

            let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
            let (n_puts, n_left_out) = counts(&text);
            assert_eq!((n_puts + n_left_out, left_out.all()), (N_PUTS, n_left_out), "full at {full_at}: {text}");
            assert_eq!(reports.lock().unwrap().len(), 2, "full at {full_at}: {reports:?}");
        }
    }

    #[test]
    fn a_permanently_full_disk_is_reported_once_and_fails_the_put_log() {
        let disk = Disk { bytes: Arc::default(), full_at: 10, n_failures: usize::MAX };
        let (writer, left_out, reports) = writer(disk);
        let (queue, waiting) = sync_channel(1000);
        (0..1000).for_each(|_| queue.send(QueueEntry::Put(Box::new(note(2.5)), 1)).unwrap());
        drop(queue);

        assert_eq!(writer.run(&waiting), LogWriteResult::NotAlways);

        assert_eq!((left_out.all(), left_out.uncounted()), (1000, 1000));
        assert_eq!(
            *reports.lock().unwrap(),
            ["put log puts.json cannot be written, puts are missing: no storage space"]
        );
    }

    /// A disk of which every second write is interrupted, and the others write a few bytes.
    #[derive(Default)]
    struct InterruptedDisk {
        bytes: Arc<Mutex<Vec<u8>>>,
        is_interrupted: bool,
    }

    impl Write for InterruptedDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.is_interrupted = !self.is_interrupted;
            if self.is_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n_bytes = bytes.len().min(7);
            self.bytes.lock().unwrap().extend(&bytes[..n_bytes]);
            Ok(n_bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_interrupted_write_is_continued_and_is_not_a_failure() {
        let disk = InterruptedDisk::default();
        let bytes = Arc::clone(&disk.bytes);
        let (writer, left_out, reports) = writer(disk);
        let (queue, waiting) = sync_channel(3);
        (0..3).for_each(|_| queue.send(QueueEntry::Put(Box::new(note(2.5)), 1)).unwrap());
        drop(queue);

        assert_eq!(writer.run(&waiting), LogWriteResult::Always);

        let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
        assert_eq!((counts(&text), left_out.all()), ((3, 0), 0), "{text}");
        assert_eq!(*reports.lock().unwrap(), [""; 0]);
    }

    #[test]
    fn puts_above_the_queue_limit_are_counted_in_the_log_without_blocking() {
        let path = std::env::temp_dir().join(format!("fodo-put-log-{}", std::process::id()));
        let n_puts = 10 * WAITING_PUTS_MAX as u64;
        let put_log = PutLog::open(&path, Log::silent()).unwrap();
        let (log_put, left_out) = (put_log.callback(), put_log.left_out());

        (0..n_puts).for_each(|_| log_put(note(vec![2.5; 1000])));
        drop(log_put);
        put_log.finish().unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (n_lines, n_left_out) = counts(&text);
        assert_eq!((n_lines + n_left_out, left_out.load(Ordering::Relaxed)), (n_puts, n_left_out));
        let first: Map<String, Json> = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((first["new"].as_array().unwrap().len(), &first["count"]), (LOGGED_ELEMENTS_MAX, &1000.into()));
    }
}
