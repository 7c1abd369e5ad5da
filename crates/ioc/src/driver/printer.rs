//! Prints the lines of records on a thread of its own, so that output that is not read stops no record.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use fodo_data::Text;
use fodo_db::Stream;
use fodo_lock::{Condvar, Mutex};

use crate::limit;

/// A bounded queue of lines, and the thread that prints them in order. The first line starts the thread.
#[derive(Debug, Default)]
pub struct Printer {
    queue: Arc<PrintQueue>,
}

#[derive(Debug, Default)]
struct PrintQueue {
    state: Mutex<PrintState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PrintState {
    jobs: Vec<PrintJob>,
    /// The size of the lines in `jobs`.
    n_bytes: usize,
    /// Lines dropped after those in `jobs`, because the queue was full.
    n_dropped: u64,
    has_thread: bool,
    is_ended: bool,
}

#[derive(Debug)]
enum PrintJob {
    Line(Stream, Text),
    /// Reports that all earlier lines are printed.
    Flush(Sender<()>),
}

impl Printer {
    /// Queues a line. Never waits for the output: while the queue is full, lines are dropped and counted, and one line on
    /// stderr reports how many.
    pub fn print(&self, stream: Stream, line: Text) {
        let n_bytes = size_of::<PrintJob>() + line.as_bytes().len();
        let mut state = self.queue.state.lock();
        if state.n_bytes + n_bytes > limit::PRINT_QUEUE_BYTES {
            state.n_dropped += 1;
            return;
        }
        state.n_bytes += n_bytes;
        state.jobs.push(PrintJob::Line(stream, line));
        let has_thread = std::mem::replace(&mut state.has_thread, true);
        drop(state);
        if has_thread {
            self.queue.changed.notify_one();
        } else {
            self.start(write);
        }
    }

    /// Waits until all queued lines are printed, or the timeout has passed because the output is not read.
    pub fn flush(&self, timeout: Duration) {
        let (sender, printed) = mpsc::channel();
        let mut state = self.queue.state.lock();
        if !state.has_thread {
            return;
        }
        state.jobs.push(PrintJob::Flush(sender));
        drop(state);
        self.queue.changed.notify_one();
        // A timeout is no error: the lines are printed as soon as the output is read.
        let _ = printed.recv_timeout(timeout);
    }

    /// Starts the thread. If the system provides none, the next line tries again.
    fn start(&self, write: impl FnMut(Stream, &[u8]) + Send + 'static) {
        let queue = self.queue.clone();
        let thread = std::thread::Builder::new().name("fodo-print".into()).spawn(move || queue.run(write));
        self.queue.state.lock().has_thread = thread.is_ok();
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.queue.state.lock().is_ended = true;
        self.queue.changed.notify_one();
    }
}

impl PrintQueue {
    /// Prints lines until the printer is dropped.
    fn run(&self, mut write: impl FnMut(Stream, &[u8])) {
        let mut state = self.state.lock();
        while !(state.is_ended && state.jobs.is_empty()) {
            if state.jobs.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            state.n_bytes = 0;
            let (jobs, n_dropped) = (std::mem::take(&mut state.jobs), std::mem::take(&mut state.n_dropped));
            drop(state);
            for job in jobs {
                match job {
                    PrintJob::Line(stream, line) => write(stream, &[line.as_bytes(), b"\n"].concat()),
                    // It fails if the caller no longer waits.
                    PrintJob::Flush(sender) => drop(sender.send(())),
                }
            }
            if n_dropped > 0 {
                let line = format!("{n_dropped} lines of records were dropped here, because the output was not read\n");
                write(Stream::Error, line.as_bytes());
            }
            state = self.state.lock();
        }
    }
}

fn write(stream: Stream, line: &[u8]) {
    // Records are processed also if the stream is closed.
    let _ = match stream {
        Stream::Out => std::io::stdout().write_all(line),
        Stream::Error | Stream::Log => std::io::stderr().write_all(line),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A printer whose output reports each line and then blocks until a `()` is sent, or the sender is dropped.
    fn printer() -> (Printer, Sender<()>, Receiver<(Stream, String)>) {
        let (printer, (accept, accepted), (sender, printed)) = (Printer::default(), mpsc::channel(), mpsc::channel());
        printer.start(move |stream, line| {
            // Both fail only if the test no longer needs them.
            let _ = sender.send((stream, String::from_utf8_lossy(line).into_owned()));
            let _ = accepted.recv();
        });
        (printer, accept, printed)
    }

    #[test]
    fn lines_are_printed_in_order_on_their_streams() {
        let (printer, accept, printed) = printer();
        drop(accept);

        for (stream, line) in [(Stream::Out, "a"), (Stream::Error, "b"), (Stream::Log, ""), (Stream::Out, "c")] {
            printer.print(stream, line.into());
        }
        printer.flush(PATIENCE);

        let line = |stream, line: &str| (stream, line.to_owned());
        let expected =
            [line(Stream::Out, "a\n"), line(Stream::Error, "b\n"), line(Stream::Log, "\n"), line(Stream::Out, "c\n")];
        assert_eq!(printed.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_beyond_the_queue_limit_are_dropped_and_their_number_is_printed_in_their_place() {
        let (printer, accept, printed) = printer();
        let long = |number: usize| " ".repeat(limit::PRINT_QUEUE_BYTES / 10 - 2) + &format!("{number:2}");
        printer.print(Stream::Out, "first".into());
        assert_eq!(printed.recv().unwrap().1, "first\n");

        // The output blocks, so the queue fills up: nine such lines fit.
        (0..100).for_each(|number| printer.print(Stream::Out, long(number).into()));
        drop(accept);
        printer.flush(PATIENCE);
        printer.print(Stream::Out, "later".into());
        printer.flush(PATIENCE);

        let lines: Vec<(Stream, String)> = printed.try_iter().collect();
        let (kept, rest) = lines.split_at(9);
        let numbers: Vec<usize> = kept.iter().map(|(_, line)| line.trim().parse().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let dropped = "91 lines of records were dropped here, because the output was not read\n";
        assert_eq!(rest, [(Stream::Error, dropped.to_owned()), (Stream::Out, "later\n".to_owned())]);
    }

    #[test]
    fn a_flush_ends_after_its_timeout_if_the_output_is_not_read() {
        let (printer, _accept, printed) = printer();
        printer.print(Stream::Out, "first".into());
        printer.print(Stream::Out, "second".into());

        printer.flush(Duration::from_millis(1));

        assert_eq!(printed.recv().unwrap().1, "first\n");
        assert!(printed.try_recv().is_err());
    }

    #[test]
    fn a_flush_without_lines_returns_at_once() {
        Printer::default().flush(PATIENCE);
    }
}
