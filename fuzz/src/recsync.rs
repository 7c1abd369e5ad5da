//! A RecCeiver, or somebody who says that he is one, in all he may send to an IOC: announcements and answers in any
//! pieces, at the moments that the input says.
//!
//! The input is a row of things that come in, each behind two bytes: what it is and how long after the one before, and
//! how many bytes it has.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_net::reccaster::machine::{Input, Out, RecCasterMachine};
use fodo_net::reccaster::{Inventory, Item, Patience};

/// More than one slice takes.
const RECORDS: usize = 600;

const PATIENCE: Patience = Patience { hold_off_max: Duration::from_secs(10), answer: Duration::from_secs(20) };

/// More than a slice and the answers to the pings that one input holds.
const SENT_AT_ONCE_MAX: usize = 64 * 1024;

/// Feeds one input.
pub fn feed(bytes: &[u8]) {
    let from = SocketAddr::from(([10, 0, 0, 9], 5049));
    let mut machine = RecCasterMachine::new(inventory(), PATIENCE, 1);
    let mut now = Instant::now();
    let mut has_connection = false;
    let mut rest = bytes;
    while let [first, length, after @ ..] = rest {
        let (piece, next) = after.split_at(after.len().min(usize::from(*length)));
        rest = next;
        now += Duration::from_millis(1 << (first >> 3).min(16));
        let input = match first & 7 {
            0 | 1 => Input::Heard(piece, from),
            2 | 3 if has_connection => Input::Received(piece),
            4 if has_connection => Input::Connected,
            5 if has_connection => Input::Drained,
            6 if has_connection => {
                has_connection = false;
                Input::Closed
            }
            _ => {
                now = now.max(machine.deadline().unwrap_or(now));
                Input::Tick
            }
        };
        let mut out = Out::default();
        machine.handle(input, now, &mut out);
        assert!(out.send.len() < SENT_AT_ONCE_MAX, "{} bytes at once", out.send.len());
        assert!(!out.close || out.send.is_empty(), "something is sent to whom it lets go of");
        assert!(machine.deadline().is_none_or(|due| due > now), "what was due is not done");
        has_connection = (has_connection && !out.close) || out.connect.is_some();
    }
}

fn inventory() -> Inventory {
    Box::new(|| {
        let variable = Item::Variable { name: "IOC".to_owned(), value: "vac1".to_owned() };
        let records = (0..RECORDS).flat_map(|number| {
            let name = format!("x:{number}");
            let info = Item::Info { name: "archive".to_owned(), value: "1 Hz".to_owned() };
            [Item::Record { record_type: "ai", name: name.clone() }, Item::Alias(format!("y{name}")), info]
        });
        Box::new(std::iter::once(variable).chain(records))
    })
}
