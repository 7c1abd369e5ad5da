//! Drivers: one process per client under test, which makes the timed calls itself.
//!
//! # The protocol
//!
//! The laboratory writes one JSON object per line to the driver's standard input and reads one per line from its
//! standard output. It ignores other lines there; standard error is free for messages. The driver's first line is its
//! greeting. Then it answers every request, in order, and exits at the end of its input. Times are nanoseconds of a
//! monotonic clock around exactly the work in the table.
//!
//! | request | what the driver does | answer |
//! |---|---|---|
//! | none; the first line | | `{"hello":{"client":"aioca","version":"2.1","runtime":"Python 3.11.7, libca 7.0.10"}}` |
//! | `{"open":{"pv":"name","n_channels":1000}}` | connects `n_channels` separate channels to one PV, and closes those of the previous `open` | `{"opened":{"version":"...","n_channels":1000,"element_count_max":1}}` |
//! | `{"get_scalars":{"n":1000}}` | `n` blocking gets of one double with time, one after another, the next one on the next channel; checks each value | `{"scalars":{"latencies_ns":[...],"first":1.0,"last":2.0}}` |
//! | `{"move_array":{"n_elements":10000,"salt":7,"n_gets":20}}` | `n_gets` times: puts the [`pattern`] untimed, waits until the server has it, gets it once, timed; compares every element | `{"array":{"latencies_ns":[...],"n_elements":10000}}` |
//! | `{"create_contexts":{"n":100,"pv":"name"}}` | creates `n` contexts and keeps them (`ns`), may check with `pv` that the first and the last work, closes them (`close_ns`) | `{"timed":{...}}`, `n`: how many were alive and distinct |
//! | `{"context_close":{"pv":"name","how":"explicit"}}` | connects one channel in a context of its own, closes the context explicitly, or by the end of a `"scope"`; answers whether the channel is closed | `{"answered":{"yes":true,"words":"optional"}}` |
//! | `{"create_channels":`[`ConnectedChannels`]`}` | creates `n` channels without waiting for any connection, then closes them, untimed | `{"timed":{...}}`, `n`: how many distinct objects |
//! | `{"connect_one_by_one":`[`ConnectedChannels`]`}` | for each channel: creates it, waits until it is connected, then the next | `{"timed":{...}}`, `n`: how many are connected |
//! | `{"connect_at_once":`[`ConnectedChannels`]`}` | creates all (`created_ns`), waits until all are connected (`ns`, from the start) | `{"timed":{...}}`, `n`: how many are connected |
//! | `{"get_at_once":`[`ConnectedChannels`]`}` | connects untimed; starts `n` gets of a double with time, waits for all; checks each against [`ConnectedChannels::expected`] | `{"timed":{...}}`, `n`: how many values were received and are right |
//! | `{"get_whole_at_once":`[`ConnectedChannels`]`}` | as `get_at_once`, but of every field, over pvAccess only | `{"timed":{...}}`, `n`: how many values were received and are right |
//! | `{"monitor_at_once":`[`ConnectedChannels`]`}` | connects untimed; subscribes to all, waits for the first update of each; then unsubscribes, untimed | `{"timed":{...}}`, `n`: how many distinct subscriptions had an update |
//! | `{"put_at_once":`[`ConnectedChannels`]`}` | connects untimed; starts `n` puts with completion, waits for all; reads back, and restores the previous values | `{"timed":{...}}`, `n`: how many read back right |
//! | `{"put_unconfirmed_at_once":`[`ConnectedChannels`]`}` | connects untimed; puts `n` times without a reply, then gets from the last channel, whose reply is sent after all puts have taken effect; reads back, and restores the previous values | `{"timed":{...}}`, `n`: how many read back right |
//! | `{"get_in_flight":`[`ConnectedChannels`]`}` | connects untimed; starts one get after another, at most a hundred of them in flight, until each channel has had one; checks as `get_at_once` | `{"timed":{...}}`, `n`: how many values were received and are right |
//! | `{"contexts_at_work":`[`ConnectedChannels`]`}` | creates `n` contexts (`created_ns`), a channel in each, waits for a first value of each; checks as `get_at_once`; closes them (`close_ns`) | `{"timed":{...}}`, `n`: how many values were received and are right, each over its own circuit |
//! | `{"commands":`[`ConnectedChannels`]`}` | runs a command that prints a PV's value `n` times, one after the other, each a process that is timed from its start to its end; checks the first number of each | `{"timed":{...}}`, `n`: how many printed the right value |
//! | `{"get_group":{"pv":"name","n_members":20,"n":1000}}` | connects and opens the get untimed; `n` blocking gets of every field of a group, one after another; checks that the value of its member `m00` is 0, that of `m01` 1, and so on | `{"array":{"latencies_ns":[...],"n_elements":20}}` |
//! | `{"put_ramp":{"pv":"name","n_elements":1010}}` | puts the doubles 0, 1 and so on to an array, once | `{"opened":{...}}`, `element_count_max`: how many |
//! | `{"process_gets":`[`ProcessGets`]`}` | connects untimed; in each round processes and reads each of `n` records, all in flight; checks that each has counted by one | `{"rounds":`[`RoundTimes`]`}` |
//! | `{"event_rounds":`[`EventRounds`]`}` | subscribes to `n` counters untimed; in each round puts to the event, without waiting for a reply, and waits for the update of the last of these counters; afterwards waits until each counter has its last value, or a second without an update | `{"rounds":`[`RoundTimes`]`}` with the sums of all updates |
//! | any of them | fails | `{"failed":{...}}`, a [`DriverFailure`] |
//!
//! A [`ConnectedChannels`] is `{"pattern":"lab:{:06}","n":10000,"variant":"distinct"}`, a `timed` is a [`Timed`]:
//! `{"ns":1200000,"created_ns":300000,"close_ns":1000,"n":10000,"note":"optional words"}`, where all but `ns` and `n`
//! are optional. The driver closes what it created for a batch before it answers. The channels of the last `open` stay
//! connected meanwhile, so that a circuit exists. The laboratory kills a driver that exceeds its time limit and marks
//! the row.
//!
//! Over pvAccess a double with its time is the fields value, alarm and timeStamp, and each channel has done one get, or
//! one put, before those that are timed, so that a client that keeps its operations open has opened them.
//!
//! A request of rounds is an object of texts and numbers: those of a [`ConnectedChannels`], `n_elements` and `way`, or
//! `event`, and how long the rounds are repeated ([`RoundSpans::repeat`](rounds::RoundSpans::repeat)).
//!
//! A further driver is a program in any language that implements this protocol. A driver in this crate implements
//! [`Driver`] and leaves the protocol and the checks to [`serve`].

mod batch;
mod command;
mod conversation;
pub mod external;
mod failure;
pub mod fodo;
mod java;
pub mod libca;
pub mod raw;
pub mod rounds;
mod sockets;
mod spvirit;
pub mod trial;

use std::io::{BufRead, Write};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limit::ELEMENTS_MAX;

pub use batch::{ConnectedChannels, Timed, Variant};
pub use conversation::{ClientUnderTest, DriverProcess, protocol_of_names};
pub use failure::DriverFailure;
use rounds::{EventRounds, ProcessGets, RoundTimes};

/// A request to a driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverRequest {
    /// Connect channels to a PV.
    Open {
        /// The PV's name.
        pv: String,
        /// How many separate channels.
        n_channels: usize,
    },
    /// Get one double many times.
    GetScalars {
        /// How many timed gets.
        n: usize,
    },
    /// Put and get an array of 32-bit integers.
    MoveArray {
        /// Its length.
        n_elements: usize,
        /// Makes the elements of this repetition differ from those of the last one.
        salt: u32,
        /// How often to put and get it.
        n_gets: usize,
    },
    /// Create contexts.
    CreateContexts {
        /// How many.
        n: usize,
        /// A PV to try the first and the last context with, untimed.
        pv: String,
    },
    /// Close a context that has a connected channel.
    ContextClose {
        /// The channel's PV.
        pv: String,
        /// In which way.
        how: CloseBy,
    },
    /// Create channels.
    CreateChannels(ConnectedChannels),
    /// Create and connect channels, each before the next.
    ConnectOneByOne(ConnectedChannels),
    /// Create and connect channels concurrently.
    ConnectAtOnce(ConnectedChannels),
    /// Get from all channels concurrently.
    GetAtOnce(ConnectedChannels),
    /// Get all fields of all channels concurrently.
    GetWholeAtOnce(ConnectedChannels),
    /// Subscribe to all channels concurrently.
    MonitorAtOnce(ConnectedChannels),
    /// Put to all channels concurrently.
    PutAtOnce(ConnectedChannels),
    /// Put to all channels without waiting for a reply.
    PutUnconfirmedAtOnce(ConnectedChannels),
    /// Get from one channel after the other, with several gets in flight.
    GetInFlight(ConnectedChannels),
    /// Create contexts, and get from a channel of each.
    ContextsAtWork(ConnectedChannels),
    /// Run a command for each of several PVs.
    Commands(ConnectedChannels),
    /// Get every field of a group many times.
    GetGroup {
        /// The group's name.
        pv: String,
        /// The number of its members.
        n_members: usize,
        /// How many timed gets.
        n: usize,
    },
    /// Put an array of doubles whose elements are their indexes.
    PutRamp {
        /// The PV's name.
        pv: String,
        /// Its length.
        n_elements: usize,
    },
    /// Process and read records, round after round.
    ProcessGets(ProcessGets),
    /// Post an event and wait for the counters that it processes, round after round.
    EventRounds(EventRounds),
}

/// How a context is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseBy {
    /// By a call, or the closest equivalent of the client.
    Explicit,
    /// By leaving the scope in which it was created.
    Scope,
}

/// A driver's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverReply {
    /// The driver's greeting; its first line, before any request.
    Hello(Hello),
    /// The channels are connected.
    Opened(Opened),
    /// The gets were done and their values are right.
    Scalars(ScalarTimes),
    /// The array was put and read back correctly.
    Array(ArrayTimes),
    /// The batch is done, and every check passed.
    Timed(Timed),
    /// Yes or no.
    Answered(YesNoAnswer),
    /// The rounds are done, and every value was right.
    Rounds(RoundTimes),
    /// The request failed.
    Failed(DriverFailure),
}

/// A driver's greeting: which client it drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The client's name.
    pub client: String,
    /// The client's version, as the client reports it.
    pub version: String,
    /// What it runs on: language, libraries.
    #[serde(default)]
    pub runtime: String,
}

/// A yes-or-no answer with a remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct YesNoAnswer {
    /// The answer.
    pub yes: bool,
    /// An optional remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// The result of `open`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The client's version, as the client reports it.
    pub version: String,
    /// How many channels are connected.
    pub n_channels: usize,
    /// How many elements the PV can hold.
    pub element_count_max: usize,
}

/// Timed gets of a scalar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalarTimes {
    /// The time of each, in order.
    pub latencies_ns: Vec<u64>,
    /// The first value.
    pub first: f64,
    /// The last value.
    pub last: f64,
}

/// Timed gets of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayTimes {
    /// The time of each, in order.
    pub latencies_ns: Vec<u64>,
    /// How many elements were received, all equal to those that were put.
    pub n_elements: usize,
}

/// A client under test. Each call blocks until it is done or has failed.
pub trait Driver {
    /// The driver's greeting.
    fn hello(&self) -> Hello;

    /// Connects `n_channels` channels to `pv` and closes the previous ones. Returns the PV's maximum element count.
    fn open(&mut self, pv: &str, n_channels: usize) -> Result<usize, DriverFailure>;

    /// One double with its time stamp, by this client's blocking get. This call is timed.
    fn get_scalar(&mut self, channel_index: usize) -> Result<f64, DriverFailure>;

    /// Puts an array and returns when the server has it. Drops the elements of the last get.
    fn put_array(&mut self, elements: &[i32]) -> Result<(), DriverFailure>;

    /// Gets `n_elements` and keeps them. This call is timed.
    fn get_array(&mut self, n_elements: usize) -> Result<(), DriverFailure>;

    /// The elements of the last get. Any conversion that a user of this client would not need belongs here.
    fn elements(&mut self) -> &[i32];

    /// Creates `n` contexts; see the table above for this method and the following ones.
    fn create_contexts(&mut self, _n: usize, _pv: &str) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("create_contexts"))
    }

    /// Whether closing a context closes its channels.
    fn context_close(&mut self, _pv: &str, _how: CloseBy) -> Result<YesNoAnswer, DriverFailure> {
        Err(DriverFailure::cannot("context_close"))
    }

    /// Creates channels.
    fn create_channels(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("create_channels"))
    }

    /// Creates and connects channels, each before the next.
    fn connect_one_by_one(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("connect_one_by_one"))
    }

    /// Creates and connects channels concurrently.
    fn connect_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("connect_at_once"))
    }

    /// Gets from all channels concurrently.
    fn get_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("get_at_once"))
    }

    /// Gets all fields from all channels concurrently.
    fn get_whole_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("get_whole_at_once"))
    }

    /// Subscribes to all channels concurrently.
    fn monitor_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("monitor_at_once"))
    }

    /// Puts to all channels concurrently.
    fn put_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("put_at_once"))
    }

    /// Puts to all channels without waiting for a reply.
    fn put_unconfirmed_at_once(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("put_unconfirmed_at_once"))
    }

    /// Gets from one channel after the other, with at most [`IN_FLIGHT_MAX`](crate::limit::IN_FLIGHT_MAX) in flight.
    fn get_in_flight(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("get_in_flight"))
    }

    /// Creates contexts, each with a circuit, a channel and a first value.
    fn contexts_at_work(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("contexts_at_work"))
    }

    /// Runs a command for each of several PVs, one after the other.
    fn commands(&mut self, _batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        Err(DriverFailure::cannot("commands"))
    }

    /// Gets every field of a group `n` times.
    fn get_group(&mut self, _pv: &str, _n_members: usize, _n: usize) -> Result<ArrayTimes, DriverFailure> {
        Err(DriverFailure::cannot("get_group"))
    }

    /// Puts the doubles 0, 1 and so on to an array.
    fn put_ramp(&mut self, _pv: &str, _n_elements: usize) -> Result<(), DriverFailure> {
        Err(DriverFailure::cannot("put_ramp"))
    }

    /// Processes and reads records, round after round.
    fn process_gets(&mut self, _gets: &ProcessGets) -> Result<RoundTimes, DriverFailure> {
        Err(DriverFailure::cannot("process_gets"))
    }

    /// Posts an event and waits for its counters, round after round.
    fn event_rounds(&mut self, _rounds: &EventRounds) -> Result<RoundTimes, DriverFailure> {
        Err(DriverFailure::cannot("event_rounds"))
    }
}

/// Answers requests until the end of the input.
pub fn serve(driver: impl Driver, input: impl BufRead, output: impl Write) -> std::io::Result<()> {
    serve_slowed(driver, 0, input, output)
}

/// The same, but each timed get takes `slower_per_cent` longer, to test whether a comparison of runs detects it.
pub fn serve_slowed(
    mut driver: impl Driver,
    slower_per_cent: u32,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let mut n_channels = 0;
    write_answer(&mut output, &DriverReply::Hello(driver.hello()))?;
    for line in input.lines() {
        let answer = answer(&mut driver, slower_per_cent, &line?, &mut n_channels).unwrap_or_else(DriverReply::Failed);
        write_answer(&mut output, &answer)?;
    }
    Ok(())
}

fn write_answer(output: &mut impl Write, answer: &DriverReply) -> std::io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn answer(
    driver: &mut impl Driver,
    slower_per_cent: u32,
    line: &str,
    n_channels: &mut usize,
) -> Result<DriverReply, DriverFailure> {
    match serde_json::from_str(line).map_err(|_| DriverFailure::Protocol { line: line.into() })? {
        DriverRequest::Open { pv, n_channels: n } => {
            let element_count_max = driver.open(&pv, n)?;
            *n_channels = n;
            Ok(DriverReply::Opened(Opened { version: driver.hello().version, n_channels: n, element_count_max }))
        }
        DriverRequest::GetScalars { n } => {
            get_scalars(driver, slower_per_cent, *n_channels, n).map(DriverReply::Scalars)
        }
        DriverRequest::MoveArray { n_elements, .. } if n_elements > ELEMENTS_MAX => {
            Err(DriverFailure::WrongCount { n: n_elements, expected: ELEMENTS_MAX })
        }
        DriverRequest::MoveArray { n_elements, salt, n_gets } => {
            move_array(driver, slower_per_cent, n_elements, salt, n_gets).map(DriverReply::Array)
        }
        DriverRequest::CreateContexts { n, pv } => driver.create_contexts(n, &pv).map(DriverReply::Timed),
        DriverRequest::ContextClose { pv, how } => driver.context_close(&pv, how).map(DriverReply::Answered),
        DriverRequest::CreateChannels(batch) => driver.create_channels(&batch).map(DriverReply::Timed),
        DriverRequest::ConnectOneByOne(batch) => driver.connect_one_by_one(&batch).map(DriverReply::Timed),
        DriverRequest::ConnectAtOnce(batch) => driver.connect_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::GetAtOnce(batch) => driver.get_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::GetWholeAtOnce(batch) => driver.get_whole_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::MonitorAtOnce(batch) => driver.monitor_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::PutAtOnce(batch) => driver.put_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::PutUnconfirmedAtOnce(batch) => driver.put_unconfirmed_at_once(&batch).map(DriverReply::Timed),
        DriverRequest::GetInFlight(batch) => driver.get_in_flight(&batch).map(DriverReply::Timed),
        DriverRequest::ContextsAtWork(batch) => driver.contexts_at_work(&batch).map(DriverReply::Timed),
        DriverRequest::Commands(batch) => driver.commands(&batch).map(DriverReply::Timed),
        DriverRequest::GetGroup { pv, n_members, n } => driver.get_group(&pv, n_members, n).map(DriverReply::Array),
        DriverRequest::PutRamp { pv, n_elements } => {
            driver.put_ramp(&pv, n_elements)?;
            let version = driver.hello().version;
            Ok(DriverReply::Opened(Opened { version, n_channels: 1, element_count_max: n_elements }))
        }
        DriverRequest::ProcessGets(gets) => driver.process_gets(&gets).map(DriverReply::Rounds),
        DriverRequest::EventRounds(rounds) => driver.event_rounds(&rounds).map(DriverReply::Rounds),
    }
}

/// Does the work; returns its result and its duration in nanoseconds, including the artificial delay.
fn timed<T>(slower_per_cent: u32, work: impl FnOnce() -> Result<T, DriverFailure>) -> Result<(T, u64), DriverFailure> {
    let start = Instant::now();
    let result = work()?;
    let mut elapsed = start.elapsed();
    if slower_per_cent > 0 {
        let total = elapsed * (100 + slower_per_cent) / 100;
        while elapsed < total {
            std::hint::spin_loop();
            elapsed = start.elapsed();
        }
    }
    Ok((result, elapsed.as_nanos() as u64))
}

fn get_scalars(
    driver: &mut impl Driver,
    slower_per_cent: u32,
    n_channels: usize,
    n: usize,
) -> Result<ScalarTimes, DriverFailure> {
    let mut latencies_ns = Vec::with_capacity(n);
    let mut first = None;
    let mut last = f64::NEG_INFINITY;
    for index in 0..n {
        let (value, ns) = timed(slower_per_cent, || driver.get_scalar(index % n_channels.max(1)))?;
        latencies_ns.push(ns);
        if !value.is_finite() || value < last {
            return Err(DriverFailure::WrongValue { value, expected: format!("a counter at {last} or beyond") });
        }
        first.get_or_insert(value);
        last = value;
    }
    Ok(ScalarTimes { latencies_ns, first: first.unwrap_or(0.0), last: last.max(first.unwrap_or(0.0)) })
}

fn move_array(
    driver: &mut impl Driver,
    slower_per_cent: u32,
    n_elements: usize,
    salt: u32,
    n_gets: usize,
) -> Result<ArrayTimes, DriverFailure> {
    let mut latencies_ns = Vec::with_capacity(n_gets);
    for round in 0..n_gets {
        let put = pattern(n_elements, salt.wrapping_add(round as u32));
        driver.put_array(&put)?;
        let ((), ns) = timed(slower_per_cent, || driver.get_array(n_elements))?;
        latencies_ns.push(ns);
        compare(driver.elements(), &put)?;
    }
    Ok(ArrayTimes { latencies_ns, n_elements })
}

fn compare(received: &[i32], put: &[i32]) -> Result<(), DriverFailure> {
    if received.len() != put.len() {
        return Err(DriverFailure::WrongCount { n: received.len(), expected: put.len() });
    }
    // Comparing slices is as fast as memory; search for the element only if they differ.
    if received == put {
        return Ok(());
    }
    match received.iter().zip(put).enumerate().find(|(_, (received, put))| received != put) {
        Some((index, (value, expected))) => {
            Err(DriverFailure::WrongElement { index, value: *value, expected: *expected })
        }
        None => Ok(()),
    }
}

/// Elements that differ by index and by repetition: (index * 2654435761) xor salt, in 32 bits.
pub fn pattern(n_elements: usize, salt: u32) -> Vec<i32> {
    (0..n_elements as u32).map(|index| (index.wrapping_mul(2_654_435_761) ^ salt) as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A driver whose server is its own memory, and which can be made to cheat.
    #[derive(Default)]
    struct Double {
        held: Vec<i32>,
        reply: Vec<i32>,
        counter: f64,
        step: f64,
        corrupt_index: Option<usize>,
        n_lost: usize,
        delay: Duration,
    }

    impl Driver for Double {
        fn hello(&self) -> Hello {
            Hello { client: "double".into(), ..Hello::default() }
        }

        fn open(&mut self, _pv: &str, _n_channels: usize) -> Result<usize, DriverFailure> {
            Ok(1)
        }

        fn get_scalar(&mut self, _channel_index: usize) -> Result<f64, DriverFailure> {
            let start = Instant::now();
            while start.elapsed() < self.delay {
                std::hint::spin_loop();
            }
            self.counter += self.step;
            Ok(self.counter)
        }

        fn put_array(&mut self, elements: &[i32]) -> Result<(), DriverFailure> {
            self.held = elements.to_vec();
            Ok(())
        }

        fn get_array(&mut self, n_elements: usize) -> Result<(), DriverFailure> {
            self.reply = self.held[..n_elements - self.n_lost].to_vec();
            if let Some(index) = self.corrupt_index {
                self.reply[index] ^= 1;
            }
            Ok(())
        }

        fn elements(&mut self) -> &[i32] {
            &self.reply
        }
    }

    fn answers(driver: Double, requests: &[DriverRequest]) -> Vec<DriverReply> {
        let input: String = requests.iter().map(|request| serde_json::to_string(request).unwrap() + "\n").collect();
        let mut output = Vec::new();
        serve(driver, input.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    const GET: DriverRequest = DriverRequest::GetScalars { n: 3 };
    const MOVE: DriverRequest = DriverRequest::MoveArray { n_elements: 1000, salt: 5, n_gets: 2 };

    #[test]
    fn a_correct_driver_reports_its_times() {
        let double = Double { step: 1.0, ..Double::default() };

        let answers = answers(double, &[DriverRequest::Open { pv: "x".into(), n_channels: 2 }, GET, MOVE]);

        let [DriverReply::Opened(_), DriverReply::Scalars(scalars), DriverReply::Array(moved)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!((scalars.latencies_ns.len(), scalars.first, scalars.last), (3, 1.0, 3.0));
        assert_eq!((moved.latencies_ns.len(), moved.n_elements), (2, 1000));
    }

    #[test]
    fn latencies_include_the_get_delay_and_exclude_time_between_gets() {
        let delay = Duration::from_micros(300);
        let double = Double { step: 1.0, delay, ..Double::default() };

        let start = Instant::now();
        let answers = answers(double, &[GET]);
        let all_ns = start.elapsed().as_nanos() as u64;

        let [DriverReply::Scalars(scalars)] = &answers[..] else { panic!("{answers:?}") };
        assert!(scalars.latencies_ns.iter().all(|ns| *ns >= delay.as_nanos() as u64), "{scalars:?}");
        assert!(scalars.latencies_ns.iter().sum::<u64>() <= all_ns, "{scalars:?}");
    }

    #[test]
    fn a_decreasing_counter_is_detected() {
        let double = Double { step: -1.0, ..Double::default() };

        let answers = answers(double, &[GET]);

        assert!(matches!(answers[..], [DriverReply::Failed(DriverFailure::WrongValue { .. })]), "{answers:?}");
    }

    #[test]
    fn one_wrong_element_is_detected() {
        let double = Double { corrupt_index: Some(999), ..Double::default() };

        let answers = answers(double, &[MOVE]);

        assert!(
            matches!(answers[..], [DriverReply::Failed(DriverFailure::WrongElement { index: 999, .. })]),
            "{answers:?}"
        );
    }

    #[test]
    fn one_missing_element_is_detected() {
        let double = Double { n_lost: 1, ..Double::default() };

        let answers = answers(double, &[MOVE]);

        assert_eq!(answers, [DriverReply::Failed(DriverFailure::WrongCount { n: 999, expected: 1000 })]);
    }

    #[test]
    fn a_get_that_returns_the_previous_array_is_detected() {
        let (put, stale) = (pattern(10, 2), pattern(10, 1));

        assert!(matches!(compare(&stale, &put), Err(DriverFailure::WrongElement { index: 0, .. })));
    }

    #[test]
    fn a_driver_identifies_itself_before_the_first_request() {
        let mut output = Vec::new();

        serve(Double::default(), &b""[..], &mut output).unwrap();

        let line: serde_json::Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(line["hello"]["client"], "double");
    }

    #[test]
    fn an_unsupported_driver_request_fails_with_a_message() {
        let answers = answers(Double::default(), &[DriverRequest::CreateContexts { n: 1, pv: "x".into() }]);

        assert!(matches!(&answers[..], [DriverReply::Failed(DriverFailure::Operation { .. })]), "{answers:?}");
    }

    #[test]
    fn driver_requests_are_serialised_as_documented() {
        let open = serde_json::to_string(&DriverRequest::Open { pv: "name".into(), n_channels: 1000 }).unwrap();

        assert_eq!(open, r#"{"open":{"pv":"name","n_channels":1000}}"#);
        assert_eq!(serde_json::to_string(&GET).unwrap(), r#"{"get_scalars":{"n":3}}"#);
        let batch = ConnectedChannels { pattern: "lab:{:06}".into(), n: 10, variant: Variant::Distinct };
        let get = serde_json::to_string(&DriverRequest::GetAtOnce(batch)).unwrap();
        assert_eq!(get, r#"{"get_at_once":{"pattern":"lab:{:06}","n":10,"variant":"distinct"}}"#);
        let close =
            serde_json::to_string(&DriverRequest::ContextClose { pv: "x".into(), how: CloseBy::Scope }).unwrap();
        assert_eq!(close, r#"{"context_close":{"pv":"x","how":"scope"}}"#);
    }
}
