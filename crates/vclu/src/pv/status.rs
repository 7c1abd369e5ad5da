//! The PVs of the connection to a CLU.

use std::time::{Duration, Instant};

use fodo_clu::client::Availability;
use fodo_data::{Alarm, Meta, Reading, Scalar, Severity, Status, Text, Value};
use fodo_lock::Mutex;
use fodo_net::SharedPv;

use super::core::now;
use super::end::CluEnd;
use super::shape::invalid;

/// Names after the prefix, with their units.
const NUMBERS: [(&str, &str); 8] = [
    ("LINK:ROUND_TRIP", "ms"),
    ("LINK:REPORT_AGE", "s"),
    ("LINK:REPORTS", ""),
    ("LINK:REQUESTS", ""),
    ("LINK:TIMEOUTS", ""),
    ("LINK:REFUSED", ""),
    ("LINK:MISSING", ""),
    (NEW_OBJECTS, ""),
];

/// Its alarm is MINOR while there are any.
const NEW_OBJECTS: &str = "LINK:NEW_OBJECTS";

const ALIVE: &str = "LINK:ALIVE";

const STATES: [&str; 4] = ["Unknown", "Available", "Emergency", "Unavailable"];

/// Whether the CLU answers, and counters of its requests.
pub(super) struct LinkPvs {
    alive: SharedPv,
    /// In the order of [`NUMBERS`].
    numbers: [SharedPv; NUMBERS.len()],
    state: Mutex<CluLinkState>,
}

struct CluLinkState {
    availability: Availability,
    round_trip: Option<Duration>,
    reported_at: Option<Instant>,
    n_reports: u64,
    /// How often a CLU in this process became silent.
    n_lost: u64,
}

impl LinkPvs {
    pub fn new() -> LinkPvs {
        let labels = STATES.map(Text::from).to_vec();
        let alive = SharedPv::builder(Value::Scalar(Scalar::Enum(0))).meta(Meta { labels, ..Meta::default() }).build();
        let numbers = NUMBERS.map(|(_, units)| {
            let precision = if units.is_empty() { 0 } else { 3 };
            SharedPv::builder(0.0).meta(Meta { units: units.into(), precision, ..Meta::default() }).build()
        });
        let state = CluLinkState {
            availability: Availability::Unknown,
            round_trip: None,
            reported_at: None,
            n_reports: 0,
            n_lost: 0,
        };
        let link = LinkPvs { alive, numbers, state: Mutex::new(state) };
        link.post_alive(Availability::Unknown);
        link
    }

    /// The PVs with their names after the prefix.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, SharedPv)> {
        let numbers = NUMBERS.iter().zip(&self.numbers).map(|((name, _), pv)| (*name, pv.clone()));
        [(ALIVE, self.alive.clone())].into_iter().chain(numbers)
    }

    pub fn set_availability(&self, availability: Availability) {
        let mut state = self.state.lock();
        if state.availability == availability {
            return;
        }
        state.availability = availability;
        state.n_lost += u64::from(availability == Availability::Unavailable);
        drop(state);
        self.post_alive(availability);
    }

    fn post_alive(&self, availability: Availability) {
        let (index, alarm) = match availability {
            Availability::Unknown => (0, invalid(Status::UDF)),
            Availability::Available => (1, Alarm::default()),
            Availability::Emergency => (2, Alarm { severity: Severity::Major, status: Status::STATE }),
            Availability::Unavailable => (3, invalid(Status::COMM)),
        };
        let value = Value::Scalar(Scalar::Enum(index));
        self.alive.post_reading(Reading { alarm, time: now(), ..Reading::bare(value) });
    }

    /// Values of the CLU were received.
    pub fn note_report(&self) {
        let mut state = self.state.lock();
        state.reported_at = Some(Instant::now());
        state.n_reports += 1;
    }

    pub fn note_round_trip(&self, round_trip: Duration) {
        self.state.lock().round_trip = Some(round_trip);
    }

    /// Posts the numbers. `n_missing`: the values that the CLU does not report. `n_new_objects`: those that have no PVs,
    /// because they are newer than the PVs.
    pub fn refresh(&self, end: &CluEnd, n_missing: usize, n_new_objects: usize) {
        let state = self.state.lock();
        let (round_trip, age) = (state.round_trip, state.reported_at.map(|at| at.elapsed()));
        let (n_reports, n_lost) = (state.n_reports, state.n_lost);
        drop(state);
        let (round_trip, n_requests, n_timeouts, n_refused) = match end {
            CluEnd::Process(clu) => {
                let counts = clu.counts();
                (round_trip, counts.requests, n_lost, counts.requests_refused + counts.calls_refused)
            }
            CluEnd::Network(connection) => {
                let counts = connection.counts();
                (connection.round_trip(), counts.submitted, counts.timed_out, counts.refused)
            }
        };
        let seconds = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
        let counts = [n_reports, n_requests, n_timeouts, n_refused, n_missing as u64, n_new_objects as u64];
        let counts = counts.map(|count| count as f64);
        let values = [1000.0 * seconds(round_trip), seconds(age)].into_iter().chain(counts);
        for ((pv, (name, _)), number) in self.numbers.iter().zip(NUMBERS).zip(values) {
            let alarm = match number {
                number if number.is_nan() => invalid(Status::UDF),
                number if number > 0.0 && name == NEW_OBJECTS => {
                    Alarm { severity: Severity::Minor, status: Status::STATE }
                }
                _ => Alarm::default(),
            };
            pv.post_reading(Reading { alarm, time: now(), ..Reading::bare(number.into()) });
        }
    }
}
