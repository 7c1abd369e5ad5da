//! Everything that a RecCeiver, or a program that claims to be one, may send to an IOC: announcements and replies in
//! arbitrary pieces, at the times that the input gives.
//!
//! The input is a series of events, each after two bytes: the kind of event with the time since the previous one, and
//! the number of bytes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_ioc::reccaster::machine::{Out, RecCasterMachine, RecSyncInput};
use fodo_ioc::reccaster::{ItemSource, RecSyncItem, RecSyncTimeouts};

/// More than fit in one slice.
const RECORDS: usize = 600;

const PATIENCE: RecSyncTimeouts =
    RecSyncTimeouts { hold_off_max: Duration::from_secs(10), answer: Duration::from_secs(20) };

/// More than a slice and the replies to all pings that one input can contain.
const SENT_AT_ONCE_MAX: usize = 64 * 1024;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let from = SocketAddr::from(([10, 0, 0, 9], 5049));
    let mut machine = RecCasterMachine::new(items(), PATIENCE, 1);
    let mut now = Instant::now();
    let mut has_connection = false;
    let mut rest = bytes;
    while let [first, length, after @ ..] = rest {
        let (piece, next) = after.split_at(after.len().min(usize::from(*length)));
        rest = next;
        now += Duration::from_millis(1 << (first >> 3).min(16));
        let input = match first & 7 {
            0 | 1 => RecSyncInput::Datagram(piece, from),
            2 | 3 if has_connection => RecSyncInput::Received(piece),
            4 if has_connection => RecSyncInput::Connected,
            5 if has_connection => RecSyncInput::Drained,
            6 if has_connection => {
                has_connection = false;
                RecSyncInput::Closed
            }
            _ => {
                now = now.max(machine.deadline().unwrap_or(now));
                RecSyncInput::Tick
            }
        };
        let mut out = Out::default();
        machine.handle(input, now, &mut out);
        assert!(out.send.len() < SENT_AT_ONCE_MAX, "{} bytes at once", out.send.len());
        assert!(!out.close || out.send.is_empty(), "bytes are sent on a connection that is being closed");
        assert!(machine.deadline().is_none_or(|due| due > now), "an action that was due was not performed");
        has_connection = (has_connection && !out.close) || out.connect.is_some();
    }
}

fn items() -> ItemSource {
    Box::new(|| {
        let variable = RecSyncItem::Variable { name: "IOC".to_owned(), value: "vac1".to_owned() };
        let records = (0..RECORDS).flat_map(|number| {
            let name = format!("x:{number}");
            let info = RecSyncItem::Info { name: "archive".to_owned(), value: "1 Hz".to_owned() };
            [
                RecSyncItem::Record { record_type: "ai", name: name.clone() },
                RecSyncItem::Alias(format!("y{name}")),
                info,
            ]
        });
        Box::new(std::iter::once(variable).chain(records))
    })
}
