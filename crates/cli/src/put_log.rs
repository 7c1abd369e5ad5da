//! Puts in a file, as JSON lines. What writes it is a thread of its own behind a bounded queue, so that processing waits for no disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use fodo_ioc::{PutNote, TellPut};
use fodo_net::Value;
use serde_json::{Map, Value as Json};

use crate::json;
use crate::local_time::Clock;
use crate::show::Look;

/// Puts that may wait for the disk: a second of what a busy client puts, in a few MiB.
const WAITING_MAX: usize = 4096;
/// Elements of an array that are kept: who put what, not a recording.
const ELEMENTS_MAX: usize = 100;
/// Lines that are written at once while more are waiting.
const LINES_AT_ONCE: usize = 256;

/// A file that puts are appended to.
#[derive(Debug)]
pub struct PutLog {
    queue: SyncSender<Entry>,
    left_out: Arc<LeftOut>,
    thread: JoinHandle<io::Result<()>>,
}

/// Puts that are not in the file.
#[derive(Debug, Default)]
struct LeftOut {
    /// Since the last line that tells of them.
    untold: AtomicU64,
    /// All there have been.
    all: Arc<AtomicU64>,
}

impl LeftOut {
    fn add(&self, n_puts: u64) {
        self.untold.fetch_add(n_puts, Ordering::Relaxed);
        self.all.fetch_add(n_puts, Ordering::Relaxed);
    }

    /// How many are to be told now.
    fn take(&self) -> u64 {
        self.untold.swap(0, Ordering::Relaxed)
    }
}

enum Entry {
    /// With the number of elements of the new value, before it was shortened.
    Put(Box<PutNote>, usize),
    /// Nothing follows.
    End,
}

impl PutLog {
    pub fn open(path: &Path) -> io::Result<PutLog> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (queue, waiting) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(LeftOut::default());
        let counted = left_out.clone();
        let thread = thread::Builder::new().name("fodo-puts".into()).spawn(move || write(file, &waiting, &counted))?;
        Ok(PutLog { queue, left_out, thread })
    }

    /// What an IOC tells its puts to: never blocks; what finds no room is counted.
    pub fn teller(&self) -> TellPut {
        let (queue, left_out) = (self.queue.clone(), self.left_out.clone());
        Box::new(move |mut note| {
            let count = note.new.len();
            (note.old, note.new) = (shortened(note.old), shortened(note.new));
            if queue.try_send(Entry::Put(Box::new(note), count)).is_err() {
                left_out.add(1);
            }
        })
    }

    /// How many puts are not in the file; it goes on counting.
    pub fn left_out(&self) -> Arc<AtomicU64> {
        self.left_out.all.clone()
    }

    /// Waits until all is written.
    pub fn finish(self) -> io::Result<()> {
        // It fails only when the thread has ended by itself, which it then tells why.
        let _ = self.queue.send(Entry::End);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the put log has failed")))
    }
}

fn shortened(value: Value) -> Value {
    match value {
        Value::Array(array) if array.len() > ELEMENTS_MAX => Value::Array(array.truncated(ELEMENTS_MAX)),
        value => value,
    }
}

/// Writes what comes until the end of it. A disk that is full costs what cannot be written, which is counted, and nothing else.
fn write(mut file: File, waiting: &Receiver<Entry>, left_out: &LeftOut) -> io::Result<()> {
    let mut result = Ok(());
    let mut has_ended = false;
    while !has_ended {
        let first = waiting.recv().unwrap_or(Entry::End);
        let mut lines = String::new();
        let mut n_lines = 0;
        for entry in std::iter::once(first).chain(waiting.try_iter()).take(LINES_AT_ONCE) {
            let Entry::Put(note, count) = entry else {
                has_ended = true;
                break;
            };
            n_lines += 1;
            lines.push_str(&line(&note, count, left_out.take()));
        }
        let n_missing = if has_ended { left_out.take() } else { 0 };
        if n_missing > 0 {
            lines.push_str(&missing(n_missing));
        }
        result = file.write_all(lines.as_bytes());
        if result.is_err() {
            left_out.add(n_lines);
        }
    }
    result
}

fn line(note: &PutNote, count: usize, n_left_out: u64) -> String {
    let look = Look::plain(Clock::utc());
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

/// The last line of a file in which the latest puts are not.
fn missing(n_left_out: u64) -> String {
    let time: Json = Clock::rfc3339(SystemTime::now().into()).into();
    json::line(Map::from_iter([("time".to_owned(), time), ("left_out".to_owned(), n_left_out.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::{Peer, TimeStamp};

    fn note(new: impl Into<Value>) -> PutNote {
        let address = "10.0.0.2:4000".parse().unwrap();
        PutNote {
            time: TimeStamp { unix_s: 1_800_000_000, nanos: 5 },
            by: Peer { user: "ann".to_owned(), host: "desk".to_owned(), address },
            pv: "x.VAL".to_owned(),
            old: Value::from(1.5),
            new: new.into(),
            meta: Arc::default(),
        }
    }

    #[test]
    fn a_put_is_a_line_of_who_what_and_when_with_the_documented_keys() {
        let text = line(&note(2.5), 1, 3);

        let object: Map<String, Json> = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["user"], &object["host"]), (&"ann".into(), &"desk".into()));
        assert_eq!((&object["old"], &object["new"]), (&1.5.into(), &2.5.into()));
        assert_eq!((&object["peer"], &object["left_out"]), (&"10.0.0.2:4000".into(), &3.into()));
        for key in object.keys() {
            assert!(crate::verb::ioc::HELP.contains(key), "{key}");
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_in_the_file_and_holds_nobody_up() {
        let folder = std::env::temp_dir().join(format!("fodo-put-log-{}", std::process::id()));
        let n_puts = 10 * WAITING_MAX as u64;
        let put_log = PutLog::open(&folder).unwrap();
        let (tell, left_out) = (put_log.teller(), put_log.left_out());

        (0..n_puts).for_each(|_| tell(note(vec![2.5; 1000])));
        drop(tell);
        put_log.finish().unwrap();

        let text = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        let objects = text.lines().map(|line| serde_json::from_str::<Map<String, Json>>(line).unwrap());
        let (mut n_lines, mut n_left_out) = (0, 0);
        for object in objects {
            n_left_out += object["left_out"].as_u64().unwrap();
            if let Some(new) = object.get("new") {
                n_lines += 1;
                assert_eq!((new.as_array().unwrap().len(), &object["count"]), (ELEMENTS_MAX, &1000.into()));
            }
        }
        assert_eq!((n_lines + n_left_out, left_out.load(Ordering::Relaxed)), (n_puts, n_left_out));
    }
}
