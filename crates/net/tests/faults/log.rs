//! What a server logs about its clients.

use std::sync::mpsc::{self, Receiver};

use fodo_net::Server;
use fodo_net::log::{Level, Log, LogLine};

use crate::PATIENCE;
use crate::cell::{Cell, Table, quiet};
use crate::raw::{Raw, create, echo};

/// A server of one PV, and its log.
fn serve_logged(level: Level) -> (Server, Receiver<LogLine>) {
    let (sender, lines) = mpsc::channel();
    let log = Log::new(level, move |line| drop(sender.send(line.clone())));
    (Server::start_with_log(quiet(), Table::of([("x", Cell::new(1.5))]), log).unwrap(), lines)
}

/// The next line that contains this word.
fn line(lines: &Receiver<LogLine>, word: &str) -> LogLine {
    loop {
        let line = lines.recv_timeout(PATIENCE).unwrap();
        if line.what.contains(word) {
            return line;
        }
    }
}

#[test]
fn connect_protocol_error_and_disconnect_are_logged_with_the_client_address() {
    let (server, lines) = serve_logged(Level::Info);
    let mut raw = Raw::connected(server.tcp_port());
    let address = Some(raw.stream.local_addr().unwrap());

    raw.send(&[b"GET / HTTP/1.1\r\n\r\n".to_vec()]);
    raw.ended_after();

    let logged = ["has connected", "is closed", "has disconnected"].map(|word| line(&lines, word));
    assert_eq!(logged.each_ref().map(|line| line.level), [Level::Info, Level::Warning, Level::Info]);
    assert!(logged.iter().all(|line| line.peer == address && line.pv.is_none()), "{logged:?}");
}

#[test]
fn a_rejected_channel_is_logged_with_its_name_at_debug_level() {
    let (server, lines) = serve_logged(Level::Debug);
    let mut raw = Raw::connected(server.tcp_port());

    raw.send(&[create(1, "no:such"), echo()]);
    raw.until(|answer| matches!(answer, fodo_ca::message::Answer::Echo {}));

    let logged = line(&lines, "refused");
    assert_eq!((logged.level, logged.pv.as_deref()), (Level::Debug, Some("no:such")));
}
