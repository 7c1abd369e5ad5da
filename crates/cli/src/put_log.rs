//! The put log: writes puts to a file as JSON lines. A separate thread with a bounded queue writes it, so that record
//! processing never waits for the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use fodo_ioc::{PutCallback, PutEvent};
use fodo_lock::{Condvar, Mutex};
use fodo_net::Value;
use fodo_net::log::{Level, Log};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Map, Value as Json};

use crate::json;
use crate::limit::{
    LOGGED_ELEMENTS_MAX, PIPE_RETRIES_MAX, PIPE_RETRY_PERIOD, PUT_LINE_BYTES_MAX, PUT_LOG_PERIOD,
    PUT_LOG_REPORT_PERIOD, WAITING_PUT_BYTES_MAX,
};
use crate::local_time::Clock;
use crate::show::DisplayOptions;

/// A file to which puts are appended.
#[derive(Debug)]
pub struct PutLog {
    queue: Arc<LineQueue>,
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
    /// Missing puts that no line counts yet.
    uncounted: AtomicU64,
    /// All missing puts.
    all: Arc<AtomicU64>,
}

impl MissingPuts {
    fn add(&self, n_puts: u64) {
        self.uncounted.fetch_add(n_puts, Ordering::Relaxed);
        self.all.fetch_add(n_puts, Ordering::Relaxed);
    }

    /// The missing puts that a line is going to count.
    fn take_uncounted(&self) -> u64 {
        self.uncounted.swap(0, Ordering::Relaxed)
    }

    /// The line that counts this many missing puts is missing as well.
    fn restore_uncounted(&self, n_puts: u64) {
        self.uncounted.fetch_add(n_puts, Ordering::Relaxed);
    }

    fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

/// The lines that wait for the disk. They are formatted before they wait, so that the memory is limited exactly, and a flood
/// of puts leaves no work to another thread but to write them.
#[derive(Debug, Default)]
struct LineQueue {
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
    left_out: MissingPuts,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: String,
    /// The missing puts that the first line counts.
    n_left_out: u64,
    has_ended: bool,
}

impl LineQueue {
    /// Adds a line, or counts the put as missing if too many wait.
    fn push(&self, note: PutEvent) {
        let mut waiting = self.waiting.lock();
        if waiting.lines.len() >= WAITING_PUT_BYTES_MAX {
            self.left_out.add(1);
            return;
        }
        let is_first = waiting.lines.is_empty();
        let n_left_out = if is_first { self.left_out.take_uncounted() } else { 0 };
        waiting.lines.push_str(&line(note, n_left_out));
        if is_first {
            waiting.n_left_out = n_left_out;
            drop(waiting);
            self.changed.notify_one();
        }
    }

    /// Waits for lines. Returns them and the number of missing puts that the first one counts; `None` at the end.
    fn take(&self) -> Option<(String, u64)> {
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() && !waiting.has_ended {
            self.changed.wait(&mut waiting);
        }
        let lines = std::mem::take(&mut waiting.lines);
        (!lines.is_empty()).then_some((lines, waiting.n_left_out))
    }

    fn end(&self) {
        self.waiting.lock().has_ended = true;
        self.changed.notify_one();
    }
}

impl PutLog {
    /// Opens the file. Later write errors are reported to `log`. A line at its end that a crash has cut off is removed.
    ///
    /// It never waits for a pipe: a pipe without a reader is an error, and lines for a full pipe are dropped.
    pub fn open(path: &Path, log: Log) -> io::Result<PutLog> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let opened = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::NXIO.raw_os_error() => io::Error::other("no program reads from this pipe"),
            _ => error,
        })?;
        let queue = Arc::new(LineQueue::default());
        let mut writer = Writer::new(file, path.display().to_string(), log, queue.clone());
        writer.end_last_line(path)?;
        let thread = thread::Builder::new().name("fodo-puts".into()).spawn(move || writer.run())?;
        Ok(PutLog { queue, thread })
    }

    /// The callback for an IOC. It never waits for the file; puts that do not fit in the queue are counted.
    pub fn callback(&self) -> PutCallback {
        let queue = self.queue.clone();
        Box::new(move |note| queue.push(note))
    }

    /// The live counter of puts missing from the file.
    pub fn left_out(&self) -> Arc<AtomicU64> {
        self.queue.left_out.all.clone()
    }

    /// Waits until all puts are written. Fails with the number of missing puts if a write has failed.
    pub fn finish(self) -> Result<(), String> {
        self.queue.end();
        match self.thread.join() {
            Ok(LogWriteResult::Always) => Ok(()),
            Ok(LogWriteResult::NotAlways) => Err(format!("puts missing in the put log: {}", self.queue.left_out.all())),
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

/// What a put log is written to.
trait LogFile: Write {
    /// Removes the last bytes. Fails if that is not possible, as for a pipe.
    fn remove_last(&mut self, n_bytes: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn remove_last(&mut self, n_bytes: u64) -> io::Result<()> {
        let metadata = self.metadata()?;
        let n_left = metadata.len().checked_sub(n_bytes).filter(|_| metadata.is_file());
        self.set_len(n_left.ok_or(io::ErrorKind::Unsupported)?)
    }
}

/// Writes lines. If the disk is full, lines are dropped and counted.
struct Writer<W> {
    file: W,
    name: String,
    log: Log,
    queue: Arc<LineQueue>,
    /// The rest of a line whose beginning is in the file and cannot be removed.
    rest: Vec<u8>,
    written: LogWriteResult,
    /// When it was last reported that the file cannot be written.
    reported: Option<Instant>,
    /// Whether the current failure has been reported.
    is_reported: bool,
}

impl Writer<File> {
    /// Removes the last line of the file if a crash has cut it off, and counts its put as missing. Text that is not of a put
    /// log gets a line end.
    fn end_last_line(&mut self, path: &Path) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        // A file that cannot be read is only appended to.
        let Some(mut reader) = File::open(path).ok().filter(|_| metadata.is_file()) else { return Ok(()) };
        let start = metadata.len().saturating_sub(PUT_LINE_BYTES_MAX);
        let mut end = Vec::new();
        reader.seek(SeekFrom::Start(start))?;
        reader.read_to_end(&mut end)?;
        let line_start = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let last = end.get(line_start..).unwrap_or_default();
        let is_of_a_put = last.iter().zip(LINE_START).all(|(byte, expected)| byte == expected);
        if is_of_a_put && !last.is_empty() && (line_start > 0 || start == 0) {
            self.file.set_len(start + line_start as u64)?;
            self.queue.left_out.add(1);
        } else if !last.is_empty() {
            self.rest.push(b'\n');
        }
        Ok(())
    }
}

impl<W: LogFile> Writer<W> {
    fn new(file: W, name: String, log: Log, queue: Arc<LineQueue>) -> Writer<W> {
        let (rest, written) = (Vec::new(), LogWriteResult::Always);
        Writer { file, name, log, queue, rest, written, reported: None, is_reported: false }
    }

    /// Writes lines until the end of the queue.
    fn run(mut self) -> LogWriteResult {
        while let Some((lines, n_left_out)) = self.queue.take() {
            self.write_lines(lines, n_left_out);
            // Gathers lines, so that not every put of many wakes this thread.
            thread::sleep(PUT_LOG_PERIOD);
        }
        self.finish()
    }

    /// Writes lines, of which the first counts this many missing puts.
    fn write_lines(&mut self, lines: String, n_left_out: u64) {
        let n_lines = n_lines(lines.as_bytes());
        let n_written = self.append(lines);
        if n_written == 0 {
            self.queue.left_out.restore_uncounted(n_left_out);
        }
        self.queue.left_out.add(n_lines - n_written);
    }

    /// Writes a last line that counts missing puts not counted yet.
    fn finish(mut self) -> LogWriteResult {
        let n_left_out = self.queue.left_out.take_uncounted();
        let last_line = if n_left_out > 0 { missing(n_left_out) } else { String::new() };
        if self.append(last_line) == 0 {
            self.queue.left_out.restore_uncounted(n_left_out);
        }
        if !self.rest.is_empty() {
            self.queue.left_out.add(1);
        }
        self.written
    }

    /// Appends lines; returns how many of them are in the file. A line that is written in part is removed from the file or, if
    /// that is not possible, completed by the next write.
    fn append(&mut self, lines: String) -> u64 {
        let n_rest = self.rest.len();
        let mut text = std::mem::take(&mut self.rest);
        if n_rest == 0 {
            text = lines.into_bytes();
        } else {
            text.extend_from_slice(lines.as_bytes());
        }
        if text.is_empty() {
            return 0;
        }
        let (n_bytes, result) = self.write(&text);
        self.report(result);
        let written = text.get(..n_bytes).unwrap_or_default();
        let n_whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let is_torn = n_whole < n_bytes || n_bytes < n_rest;
        if !is_torn || (n_bytes >= n_rest && self.file.remove_last((n_bytes - n_whole) as u64).is_ok()) {
            return n_lines(text.get(n_rest..n_whole).unwrap_or_default());
        }
        let behind = text.get(n_bytes..).unwrap_or_default();
        let n_missing = behind.iter().position(|byte| *byte == b'\n').map_or(behind.len(), |newline| newline + 1);
        self.rest = behind.get(..n_missing).unwrap_or_default().to_vec();
        n_lines(text.get(n_rest..n_bytes + n_missing).unwrap_or_default())
    }

    /// Writes as much as possible; returns how many bytes were written.
    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let (mut n_written, mut n_retries) = (0, 0);
        while let Some(rest) = bytes.get(n_written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (n_written, Err(io::ErrorKind::WriteZero.into())),
                Ok(n_bytes) => n_written += n_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && n_retries < PIPE_RETRIES_MAX => {
                    n_retries += 1;
                    thread::sleep(PIPE_RETRY_PERIOD);
                }
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
                let n_puts = self.queue.left_out.all();
                self.log.note(Level::Warning, &format!("put log {name} is written again; puts missing: {n_puts}"));
            }
            Ok(()) => {}
        }
    }
}

/// The first bytes of each line of a put.
const LINE_START: &[u8] = b"{\"time\":\"";

fn n_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn line(note: PutEvent, n_left_out: u64) -> String {
    static LOOK: DisplayOptions = DisplayOptions::plain(Clock::utc());
    let PutEvent { time, by, pv, old, new, meta } = note;
    let count = new.len();
    let value = |value: Value| json::value(&shortened(value), Some(&meta), &LOOK);
    let (user, host, pv) = (Json::from(by.user), Json::from(by.host), Json::from(pv));
    let (time, peer) = (Json::from(Clock::rfc3339(time)), by.address);
    let (old, new) = (value(old), value(new));
    format!(
        "{{\"time\":{time},\"user\":{user},\"host\":{host},\"peer\":\"{peer}\",\"pv\":{pv},\"old\":{old},\"new\":{new},\
         \"count\":{count},\"left_out\":{n_left_out}}}\n"
    )
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
        let text = line(note(2.5), 3);

        let object: Map<String, Json> = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["user"], &object["host"]), (&"ann".into(), &"desk".into()));
        assert_eq!((&object["old"], &object["new"]), (&1.5.into(), &2.5.into()));
        assert_eq!((&object["peer"], &object["left_out"]), (&"10.0.0.2:4000".into(), &3.into()));
        for key in object.keys() {
            assert!(crate::verb::ioc::HELP.contains(key), "{key}");
        }
    }

    type Reports = Arc<Mutex<Vec<String>>>;

    /// A put log without its thread, and its reports.
    fn writer<W: LogFile>(file: W) -> (Writer<W>, Arc<LineQueue>, Reports) {
        let (queue, reports) = (Arc::new(LineQueue::default()), Reports::default());
        let reported = reports.clone();
        let log = Log::new(Level::Debug, move |line| reported.lock().unwrap().push(line.what.clone()));
        (Writer::new(file, "puts.json".to_owned(), log, queue.clone()), queue, reports)
    }

    /// The number of puts in a file, and the number of missing puts that it counts. Each line must be complete.
    fn counts(text: &str) -> (u64, u64) {
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let objects = text.lines().map(|line| serde_json::from_str::<Map<String, Json>>(line).unwrap());
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
        /// Whether it is a pipe, which keeps what is written.
        is_pipe: bool,
    }

    impl LogFile for Disk {
        fn remove_last(&mut self, n_bytes: u64) -> io::Result<()> {
            if self.is_pipe {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let mut held = self.bytes.lock().unwrap();
            let n_left = held.len() - n_bytes as usize;
            held.truncate(n_left);
            Ok(())
        }
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
    fn a_full_disk_or_pipe_leaves_whole_lines_that_count_every_missing_put() {
        const N_PUTS: u64 = 5;
        let line_bytes = line(note(2.5), 0).len();

        for (full_at, is_pipe) in (0..=2 * line_bytes).flat_map(|full_at| [(full_at, false), (full_at, true)]) {
            let bytes = Arc::default();
            let disk = Disk { bytes: Arc::clone(&bytes), full_at, n_failures: 2, is_pipe };
            let (mut writer, queue, reports) = writer(disk);
            for _ in 0..N_PUTS {
                queue.push(note(2.5));
                let (lines, n_left_out) = queue.take().unwrap();
                writer.write_lines(lines, n_left_out);
                let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
                assert!(is_pipe || text.is_empty() || text.ends_with('\n'), "full at {full_at}: {text}");
            }
            writer.finish();

            let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
            let (n_puts, n_left_out) = counts(&text);
            let case = format!("full at {full_at}, pipe {is_pipe}: {text}");
            assert_eq!((n_puts + n_left_out, queue.left_out.all()), (N_PUTS, n_left_out), "{case}");
            assert_eq!(reports.lock().unwrap().len(), 2, "{case}: {reports:?}");
        }
    }

    #[test]
    fn a_permanently_full_disk_is_reported_once_and_fails_the_put_log() {
        let disk = Disk { bytes: Arc::default(), full_at: 10, n_failures: usize::MAX, is_pipe: false };
        let (writer, queue, reports) = writer(disk);
        (0..1000).for_each(|_| queue.push(note(2.5)));
        queue.end();

        assert_eq!(writer.run(), LogWriteResult::NotAlways);

        assert_eq!((queue.left_out.all(), queue.left_out.take_uncounted()), (1000, 1000));
        assert_eq!(
            *reports.lock().unwrap(),
            ["put log puts.json cannot be written, puts are missing: no storage space"]
        );
    }

    #[test]
    fn a_line_that_a_crash_has_cut_off_is_removed_and_counted_and_other_text_is_kept() {
        let path = std::env::temp_dir().join(format!("fodo-put-log-crash-{}", std::process::id()));
        let whole = line(note(2.5), 0);
        for (before, kept, n_left_out) in [
            (whole.clone() + &whole[..whole.len() / 2], whole.clone(), 1),
            (whole[..1].to_owned(), String::new(), 1),
            ("{\"colour\": 1}".to_owned(), "{\"colour\": 1}\n".to_owned(), 0),
            (whole.clone(), whole.clone(), 0),
            ("notes".to_owned(), "notes\n".to_owned(), 0),
        ] {
            std::fs::write(&path, &before).unwrap();

            let put_log = PutLog::open(&path, Log::silent()).unwrap();
            put_log.callback()(note(2.5));
            put_log.finish().unwrap();

            assert_eq!(std::fs::read_to_string(&path).unwrap(), kept + &line(note(2.5), n_left_out), "{before}");
        }
        std::fs::remove_file(&path).unwrap();
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

    impl LogFile for InterruptedDisk {
        fn remove_last(&mut self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn an_interrupted_write_is_continued_and_is_not_a_failure() {
        let disk = InterruptedDisk::default();
        let bytes = Arc::clone(&disk.bytes);
        let (writer, queue, reports) = writer(disk);
        (0..3).for_each(|_| queue.push(note(2.5)));
        queue.end();

        assert_eq!(writer.run(), LogWriteResult::Always);

        let text = String::from_utf8(bytes.lock().unwrap().clone()).unwrap();
        assert_eq!((counts(&text), queue.left_out.all()), ((3, 0), 0), "{text}");
        assert_eq!(*reports.lock().unwrap(), [""; 0]);
    }

    #[test]
    fn puts_above_the_limit_of_waiting_lines_are_counted_by_the_next_line() {
        let queue = LineQueue::default();
        let long = "x".repeat(WAITING_PUT_BYTES_MAX / 4);

        (0..7).for_each(|_| queue.push(note(&*long)));
        let (lines, _) = queue.take().unwrap();
        queue.push(note(2.5));
        let (next, n_left_out) = queue.take().unwrap();

        assert_eq!((counts(&lines), counts(&next)), ((4, 0), (1, 3)));
        assert_eq!((n_left_out, queue.left_out.all()), (3, 3));
    }

    #[test]
    fn a_put_log_has_the_first_elements_of_an_array_and_their_number() {
        let path = std::env::temp_dir().join(format!("fodo-put-log-{}", std::process::id()));
        let put_log = PutLog::open(&path, Log::silent()).unwrap();

        put_log.callback()(note(vec![2.5; 1000]));
        put_log.finish().unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let object: Map<String, Json> = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((object["new"].as_array().unwrap().len(), &object["count"]), (LOGGED_ELEMENTS_MAX, &1000.into()));
    }
}
