//! The time stamps in the output of camonitor: of which clock, and relative to what.

use fodo_net::TimeStamp;

use crate::local_time::Clock;

/// The reference of a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StampReference {
    /// None: an absolute time.
    Ever,
    /// The start of the program (client's clock), or the first update (server's).
    Start,
    /// The previous update of any PV.
    Update,
    /// The previous update of the same PV.
    SamePv,
}

/// The time of an update on both clocks.
#[derive(Clone, Copy, Debug)]
struct StampPair {
    server: TimeStamp,
    client: TimeStamp,
}

/// The selected time stamps, and the state that relative ones need.
#[derive(Debug)]
pub struct Stamps {
    server: bool,
    client: bool,
    since: StampReference,
    started: TimeStamp,
    first: Option<TimeStamp>,
    previous: Option<StampPair>,
    /// The last update of each PV.
    of_pv: Vec<Option<StampPair>>,
}

impl Stamps {
    /// Absolute server time stamps, for `n_pvs` PVs and a program started at `now`.
    pub fn new(n_pvs: usize, now: TimeStamp) -> Stamps {
        Stamps {
            server: true,
            client: false,
            since: StampReference::Ever,
            started: now,
            first: None,
            previous: None,
            of_pv: vec![None; n_pvs],
        }
    }

    /// Applies the value of `-t`; returns invalid letters.
    pub fn choose(&mut self, keys: &str) -> Vec<char> {
        self.server = false;
        self.client = false;
        let mut unknown = Vec::new();
        for key in keys.chars() {
            match key {
                's' => self.server = true,
                'c' => self.client = true,
                'n' => {}
                'r' => self.since = StampReference::Start,
                'i' => self.since = StampReference::Update,
                'I' => self.since = StampReference::SamePv,
                other => unknown.push(other),
            }
        }
        unknown
    }

    /// The stamp of an update of PV number `pv` with time stamp `server`, received at `client`.
    pub fn stamp(&mut self, pv: usize, server: TimeStamp, client: TimeStamp, clock: &Clock) -> String {
        let now = StampPair { server, client };
        let first = *self.first.get_or_insert(server);
        let last_of_pv = self.of_pv.get_mut(pv).and_then(|last| last.replace(now));
        let previous = self.previous.replace(now);
        // The first line of a PV always has an absolute time.
        let reference = match (self.since, last_of_pv) {
            (StampReference::Ever, _) | (_, None) => None,
            (StampReference::Start, _) => Some(StampPair { server: first, client: self.started }),
            (StampReference::Update, _) => previous,
            (StampReference::SamePv, last) => last,
        };
        let mut text = String::new();
        match reference {
            None => {
                if self.server {
                    text.push_str(&clock.for_epics(server));
                }
                if self.client {
                    text.push_str(&format!("({})", clock.for_epics(client)));
                }
            }
            Some(reference) => {
                if self.server {
                    text.push_str(&format!("{:14}{:+12.6}", "", seconds(reference.server, server)));
                }
                if self.client {
                    text.push_str(&format!("{:14}({:+12.6})", "", seconds(reference.client, client)));
                }
            }
        }
        text
    }
}

fn seconds(from: TimeStamp, to: TimeStamp) -> f64 {
    (to.unix_s - from.unix_s) as f64 + (f64::from(to.nanos) - f64::from(from.nanos)) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u32, nanos: u32) -> TimeStamp {
        TimeStamp::from_epics(seconds, nanos)
    }

    fn lines(keys: &str) -> [String; 4] {
        let mut stamps = Stamps::new(2, at(100, 0));
        stamps.choose(keys);
        let mut stamp = |pv, server, client| stamps.stamp(pv, at(server, 0), at(client, 500_000_000), &Clock::utc());
        [stamp(0, 90, 100), stamp(1, 91, 100), stamp(0, 101, 102), stamp(1, 103, 104)]
    }

    #[test]
    fn time_stamps_without_a_reference_are_absolute_dates() {
        assert_eq!(lines("s")[3], "1990-01-01 00:01:43.000000");
        assert_eq!(lines("sc")[0], "1990-01-01 00:01:30.000000(1990-01-01 00:01:40.500000)");
        assert_eq!(lines("nr").concat(), "");
    }

    #[test]
    fn relative_time_stamps_start_at_the_first_update_or_program_start() {
        let server = lines("sr");
        let client = lines("cr");

        assert_eq!(server[1], "1990-01-01 00:01:31.000000");
        assert_eq!(server[2], "                +11.000000");
        assert_eq!(client[2], "              (   +2.500000)");
    }

    #[test]
    fn incremental_time_stamps_start_at_the_previous_update_of_any_or_the_same_pv() {
        assert_eq!(lines("si")[2..], ["                +10.000000", "                 +2.000000"]);
        assert_eq!(lines("sI")[2..], ["                +11.000000", "                +12.000000"]);
        assert_eq!(lines("scI")[3], "                +12.000000              (   +4.000000)");
    }
}
