//! A stream: one large array that changes as fast as the server sends it to one subscription, beside a raw stream.
//!
//! The server is ours, because only a server that changes its arrays itself can do so as fast as it sends them. The
//! records of another server receive arrays by puts, each of which moves as many bytes through the same processor; the
//! result would be the rate of the puts.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{Array, PvTable, Reading, SharedPv, Value};

use super::worker::name_of;
use super::{FanOut, LoadOutcome, on_cpu, tally};
use crate::driver::DriverFailure;
use crate::driver::raw::{Destination, RawDriver};
use crate::limit::{RAW_STREAM, STREAM_POLL, STREAM_WAITING_MAX};
use crate::peers;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;
use crate::protocol::LabProtocol;
use crate::server::{ServerKind, ServerUnderTest};

/// The array of a stream, `load:000000`; its server's side.
pub struct StreamSource {
    pv: SharedPv,
    n_elements: usize,
    /// Each is written again as soon as the server no longer holds it; the server limits how many it holds.
    arrays: Vec<Arc<Vec<f64>>>,
    /// The current number.
    number: u64,
}

impl StreamSource {
    /// An array of `n_elements`, at number 0.
    pub fn new(n_elements: usize) -> StreamSource {
        let mut first = vec![0.0; n_elements];
        tally::set_ends(&mut first, tally::encode(0, 0));
        StreamSource { pv: SharedPv::new(first), n_elements, arrays: Vec::new(), number: 0 }
    }

    /// The PV as a source.
    pub fn table(&self) -> Arc<PvTable> {
        Arc::new([(name_of(0), self.pv.clone())].into_iter().collect())
    }

    /// Changes the array for this time, whenever fewer than [`STREAM_WAITING_MAX`] changes wait. Returns the number of
    /// changes. `n_taken`: how many updates the server has sent or merged so far.
    pub fn produce(&mut self, duration: Duration, n_taken: impl Fn() -> u64) -> u64 {
        let (start, n_before, mut n_posts) = (Instant::now(), n_taken(), 0);
        while start.elapsed() < duration {
            if n_posts < n_taken() - n_before + STREAM_WAITING_MAX {
                self.post_next();
                n_posts += 1;
            } else {
                std::thread::sleep(STREAM_POLL);
            }
        }
        n_posts
    }

    fn post_next(&mut self) {
        self.number += 1;
        let unused = self.arrays.iter().position(|array| Arc::strong_count(array) == 1);
        let mut array = match unused {
            Some(index) => self.arrays.swap_remove(index),
            None => Arc::new(vec![0.0; self.n_elements]),
        };
        tally::set_ends(Arc::<Vec<f64>>::make_mut(&mut array), tally::encode(0, self.number));
        let value = Value::Array(Array::F64(array.clone()));
        self.arrays.push(array);
        self.pv.post_reading(Reading { time: SystemTime::now().into(), ..Reading::bare(value) });
    }
}

/// A stream, and a raw stream of as many bytes at the same placement just before it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRates {
    /// The account of every update.
    pub outcome: LoadOutcome,
    /// Values received, in MB/s (10^6 bytes).
    pub received: f64,
    /// The same of the raw stream.
    pub raw: f64,
}

impl StreamRates {
    /// Measures both. `load` must have arrays of `n_elements`.
    pub fn run(
        load: &FanOut,
        n_elements: u32,
        placement: Placement,
        cpus: &CpuChoice,
    ) -> Result<StreamRates, DriverFailure> {
        let array_bytes = size_of::<f64>() as f64 * f64::from(n_elements);
        let raw_hz = raw_stream(array_bytes as usize, placement, cpus)?;
        let outcome = load.run(placement, cpus)?;
        let of = |hz: f64| hz * array_bytes / 1e6;
        Ok(StreamRates { received: of(outcome.delivered_hz), raw: of(raw_hz), outcome })
    }
}

/// Arrays per second over a raw socket, each read into the memory of the one before.
fn raw_stream(array_bytes: usize, placement: Placement, cpus: &CpuChoice) -> Result<f64, DriverFailure> {
    let raw = ServerUnderTest::start(ServerKind::Raw, Path::new(""), cpus.server_cpu, None, &peers::present())?;
    let Ports { host, server, .. } = raw.ports();
    on_cpu(cpus.client_cpu(placement), || {
        let address = SocketAddrV4::new(host, server);
        RawDriver::new(address, Destination::Reused, LabProtocol::Pva).stream_arrays(array_bytes, RAW_STREAM)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The number of changes while the server takes each array at once, or none.
    fn changes(source: &mut StreamSource, is_taken: bool) -> u64 {
        let n_taken = Cell::new(7);
        source.produce(Duration::from_millis(20), || {
            n_taken.set(n_taken.get() + u64::from(is_taken));
            n_taken.get()
        })
    }

    #[test]
    fn a_stream_changes_only_as_fast_as_its_updates_are_taken() {
        let mut source = StreamSource::new(10);

        assert_eq!(changes(&mut source, false), STREAM_WAITING_MAX);
        assert!(changes(&mut source, true) > STREAM_WAITING_MAX);
    }

    #[test]
    fn each_array_of_a_stream_has_the_next_number_at_both_ends() {
        let mut source = StreamSource::new(10);

        for number in 1..=20 {
            source.post_next();
            let Value::Array(Array::F64(elements)) = source.pv.value() else { panic!("an array of f64") };
            assert_eq!(tally::value_of_ends(&elements), tally::encode(0, number));
        }
    }

    #[test]
    fn an_array_is_written_again_only_when_the_server_no_longer_holds_it() {
        let mut source = StreamSource::new(10);
        let post = |source: &mut StreamSource| {
            source.post_next();
            source.pv.value()
        };

        let held: Vec<Value> = (0..20).map(|_| post(&mut source)).collect();
        let n_held = source.arrays.len();
        drop(held);
        (0..20).for_each(|_| source.post_next());

        assert_eq!((n_held, source.arrays.len()), (20, 20));
    }
}
