//! Fodo's client in its default use: [`Channel::get`], configured by the environment only.

mod rounds;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{
    Array, Channel, ChannelState, Context, Detail, Error, ErrorKind, Monitor, MonitorEvent, MonitorOptions, Operation,
    PvRequest, Reading, Request, Scalar, TimeStamp, Value, many,
};

use super::batch::ns;
use super::rounds::{EventRounds, ProcessGets, RoundTimes};
use super::sockets::{n_threads, wait_for_sockets};
use super::{ArrayTimes, CloseBy, ConnectedChannels, Driver, DriverFailure, Hello, Timed, YesNoAnswer, command};
use crate::limit::{BATCH_MAX, ELEMENTS_MAX, IN_FLIGHT_MAX, OPERATION_MAX};
use crate::protocol::LabProtocol;

/// A context and its channels.
#[derive(Debug)]
pub struct FodoDriver {
    context: Context,
    channels: Vec<Channel>,
    elements: Arc<Vec<i32>>,
    /// Whether arrays are read into the memory of the previous array.
    into: bool,
    protocol: LabProtocol,
}

impl FodoDriver {
    /// Configured by the environment, as a user's program is; its names are of `protocol`. `into`: arrays are read by [`Channel::get_into`].
    pub fn new(into: bool, protocol: LabProtocol) -> Result<FodoDriver, DriverFailure> {
        Ok(FodoDriver { context: new_context()?, channels: Vec::new(), elements: Arc::default(), into, protocol })
    }

    fn channel(&self, index: usize) -> Result<&Channel, DriverFailure> {
        self.channels.get(index).ok_or_else(DriverFailure::not_open)
    }

    fn create(&self, names: &[String]) -> Result<Vec<Channel>, DriverFailure> {
        let mut channels = Vec::with_capacity(names.len());
        for name in names {
            channels.push(self.context.channel(name).map_err(failed("making a channel"))?);
        }
        Ok(channels)
    }

    fn connected(&self, batch: &ConnectedChannels) -> Result<Vec<Channel>, DriverFailure> {
        let channels = self.create(&batch.names())?;
        wait_connected(&channels)?;
        Ok(channels)
    }

    /// Channels that have done such a get, if a get must be opened.
    fn connected_for(&self, batch: &ConnectedChannels, request: Request) -> Result<Vec<Channel>, DriverFailure> {
        let channels = self.connected(batch)?;
        if self.protocol == LabProtocol::Pva {
            get_all_with(&channels, request)?;
        }
        Ok(channels)
    }

    fn time_gets(&self, batch: &ConnectedChannels, request: Request) -> Result<Timed, DriverFailure> {
        let channels = self.connected_for(batch, request)?;
        let start = Instant::now();
        let readings = get_all_with(&channels, request)?;
        let timed = Timed::since(start, readings.len());
        for (index, reading) in readings.iter().enumerate() {
            batch.check(index, double(reading)?)?;
        }
        Ok(timed)
    }

    /// Times `put` with values that differ from the current ones, reads them back, and restores the previous values.
    fn time_puts(
        &self,
        batch: &ConnectedChannels,
        put: impl FnOnce(&[Channel], &[f64]) -> Result<(), DriverFailure>,
    ) -> Result<Timed, DriverFailure> {
        let channels = self.connected(batch)?;
        let there: Vec<f64> = get_all(&channels)?.iter().map(double).collect::<Result<_, _>>()?;
        if self.protocol == LabProtocol::Pva {
            // Opens the puts.
            put_all(&channels, &there)?;
        }
        let new: Vec<f64> = there.iter().map(|value| -1.0 - value).collect();
        let start = Instant::now();
        put(&channels, &new)?;
        let timed = Timed::since(start, new.len());
        let received: Vec<f64> = get_all(&channels)?.iter().map(double).collect::<Result<_, _>>()?;
        put_all(&channels, &there)?;
        match received.iter().zip(&new).find(|(received, new)| received != new) {
            Some((value, expected)) => Err(DriverFailure::WrongValue { value: *value, expected: expected.to_string() }),
            None => Ok(timed),
        }
    }
}

fn new_context() -> Result<Context, DriverFailure> {
    Context::from_env()
        .map_err(|why| DriverFailure::Operation { what: "making a context".into(), why: why.to_string() })
}

fn wait_connected(channels: &[Channel]) -> Result<(), DriverFailure> {
    let connects: Vec<_> = channels.iter().map(Channel::start_connect).collect();
    for connect in connects {
        connect.wait_timeout(BATCH_MAX).map_err(failed("connecting"))?;
    }
    Ok(())
}

fn n_connected(channels: &[Channel]) -> usize {
    channels.iter().filter(|channel| channel.state() == ChannelState::Active).count()
}

fn get_all(channels: &[Channel]) -> Result<Vec<Reading>, DriverFailure> {
    get_all_with(channels, Request::default())
}

fn get_all_with(channels: &[Channel], request: Request) -> Result<Vec<Reading>, DriverFailure> {
    let readings = many::get_timeout(channels, request, BATCH_MAX);
    readings.into_iter().collect::<Result<_, _>>().map_err(failed("get"))
}

fn put_all(channels: &[Channel], values: &[f64]) -> Result<(), DriverFailure> {
    let puts = channels.iter().cloned().zip(values.iter().map(|value| (*value).into()));
    many::put_timeout(puts, BATCH_MAX).into_iter().collect::<Result<_, _>>().map_err(failed("put"))
}

fn double(reading: &Reading) -> Result<f64, DriverFailure> {
    match reading.value {
        Value::Scalar(Scalar::F64(value)) => Ok(value),
        _ => Err(DriverFailure::WrongValue { value: f64::NAN, expected: "one double".into() }),
    }
}

fn first_update(monitor: &Monitor, deadline: Instant) -> Result<Reading, DriverFailure> {
    loop {
        match monitor.next_timeout(deadline.saturating_duration_since(Instant::now())) {
            Some(MonitorEvent::Update(reading)) => return Ok(reading),
            Some(MonitorEvent::Connected(_)) => {}
            other => {
                let why = other.map_or("no update received".into(), |event| format!("{event:?}"));
                return Err(DriverFailure::Operation { what: "monitor".into(), why });
            }
        }
    }
}

fn failed(what: &str) -> impl Fn(Error) -> DriverFailure + '_ {
    move |why| DriverFailure::Operation { what: what.into(), why: why.to_string() }
}

impl Driver for FodoDriver {
    fn hello(&self) -> Hello {
        let runtime = String::from(if cfg!(debug_assertions) { "Rust, not optimized" } else { "Rust" });
        Hello {
            client: if self.into { "fodo-into" } else { "fodo" }.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            runtime,
        }
    }

    fn open(&mut self, pv: &str, n_channels: usize) -> Result<usize, DriverFailure> {
        let mut channels = Vec::with_capacity(n_channels);
        for _index in 0..n_channels {
            channels.push(self.context.channel(pv).map_err(failed("making a channel"))?);
        }
        let mut element_count_max = 0;
        for channel in &channels {
            let facts = channel.connect_timeout(OPERATION_MAX).map_err(failed("connecting"))?;
            // pvAccess does not report it.
            element_count_max = if self.protocol == LabProtocol::Ca { facts.count_max as usize } else { ELEMENTS_MAX };
        }
        self.channels = channels;
        Ok(element_count_max)
    }

    fn get_scalar(&mut self, channel_index: usize) -> Result<f64, DriverFailure> {
        let reading = self.channel(channel_index)?.get_timeout(OPERATION_MAX).map_err(failed("get"))?;
        match reading.value {
            Value::Scalar(Scalar::F64(value)) if reading.time != TimeStamp::NEVER => Ok(value),
            _ => Err(DriverFailure::WrongValue { value: f64::NAN, expected: "one double with its time".into() }),
        }
    }

    fn put_array(&mut self, elements: &[i32]) -> Result<(), DriverFailure> {
        if !self.into {
            self.elements = Arc::default();
        }
        self.channel(0)?.put_timeout(elements.to_vec(), OPERATION_MAX).map_err(failed("put"))
    }

    fn get_array(&mut self, n_elements: usize) -> Result<(), DriverFailure> {
        let mut reading = Reading::bare(Value::Array(Array::I32(std::mem::take(&mut self.elements))));
        let channel = self.channel(0)?;
        match self.into {
            true => {
                channel.get_into_timeout(&mut reading, Request::default(), OPERATION_MAX).map_err(failed("get_into"))?
            }
            false => reading = channel.get_timeout(OPERATION_MAX).map_err(failed("get"))?,
        }
        match reading.value {
            Value::Array(Array::I32(elements)) => {
                self.elements = elements;
                Ok(())
            }
            other => Err(DriverFailure::WrongCount { n: other.len(), expected: n_elements }),
        }
    }

    fn elements(&mut self) -> &[i32] {
        &self.elements
    }

    fn create_contexts(&mut self, n: usize, pv: &str) -> Result<Timed, DriverFailure> {
        let start = Instant::now();
        let mut contexts = Vec::with_capacity(n);
        for _index in 0..n {
            contexts.push(new_context()?);
        }
        let mut timed = Timed::since(start, 0);
        // A context opens no socket before its first channel, so every context is tried, not only the first and the
        // last.
        let mut channels = Vec::with_capacity(n);
        for context in &contexts {
            channels.push(context.channel(pv).map_err(failed("making a channel"))?);
        }
        wait_connected(&channels)?;
        timed.n = n_connected(&channels);
        timed.note = Some("a context opens its sockets with its first channel".into());
        let start = Instant::now();
        drop((channels, contexts));
        timed.close_ns = Some(ns(start.elapsed()));
        Ok(timed)
    }

    fn context_close(&mut self, pv: &str, how: CloseBy) -> Result<YesNoAnswer, DriverFailure> {
        const WAIT: Duration = Duration::from_secs(5);
        let n_before = wait_for_sockets(|_| true, Duration::ZERO)?;
        let context = new_context()?;
        let channel = context.channel(pv).map_err(failed("making a channel"))?;
        channel.connect_timeout(OPERATION_MAX).map_err(failed("connecting"))?;
        wait_for_sockets(|n| n > n_before, WAIT)?;
        let words = match how {
            CloseBy::Scope => {
                drop((channel, context));
                None
            }
            CloseBy::Explicit => {
                context.close();
                match channel.get_timeout(OPERATION_MAX) {
                    Err(error) if error.kind() == &ErrorKind::ContextClosed => {
                        Some("a channel that is still held reports that it is closed".into())
                    }
                    other => {
                        let why = format!("a channel of a closed context returned {other:?}");
                        return Err(DriverFailure::Operation { what: "get".into(), why });
                    }
                }
            }
        };
        Ok(YesNoAnswer { yes: wait_for_sockets(|n| n <= n_before, WAIT).is_ok(), words })
    }

    fn create_channels(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let names = batch.names();
        let start = Instant::now();
        let channels = self.create(&names)?;
        // Each channel has its own id in the protocol: `Context::channel` guarantees that none is shared, and the
        // client's tests check it. A channel that was not created is missing from the count.
        let mut timed = Timed::since(start, channels.len());
        let start = Instant::now();
        drop(channels);
        timed.close_ns = Some(ns(start.elapsed()));
        Ok(timed)
    }

    fn connect_one_by_one(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let names = batch.names();
        let mut channels = Vec::with_capacity(batch.n);
        let start = Instant::now();
        for name in &names {
            let channel = self.context.channel(name).map_err(failed("making a channel"))?;
            channel.connect_timeout(OPERATION_MAX).map_err(failed("connecting"))?;
            channels.push(channel);
        }
        let timed = Timed::since(start, 0);
        Ok(Timed { n: n_connected(&channels), ..timed })
    }

    fn connect_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let names = batch.names();
        let start = Instant::now();
        let channels = self.create(&names)?;
        let created_ns = Some(ns(start.elapsed()));
        wait_connected(&channels)?;
        let timed = Timed::since(start, 0);
        Ok(Timed { created_ns, n: n_connected(&channels), ..timed })
    }

    fn get_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.time_gets(batch, Request::default())
    }

    fn get_whole_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        match self.protocol {
            LabProtocol::Ca => Err(DriverFailure::cannot("get_whole_at_once")),
            LabProtocol::Pva => self.time_gets(batch, Request { detail: Detail::Full, ..Request::default() }),
        }
    }

    fn monitor_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let channels = self.connected(batch)?;
        let start = Instant::now();
        let deadline = start + BATCH_MAX;
        let monitors: Vec<Monitor> =
            channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
        let mut first_updates = Vec::with_capacity(monitors.len());
        for monitor in &monitors {
            first_updates.push(first_update(monitor, deadline)?);
        }
        let timed = Timed::since(start, first_updates.len());
        for (index, reading) in first_updates.iter().enumerate() {
            batch.check(index, double(reading)?)?;
        }
        Ok(timed)
    }

    fn put_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.time_puts(batch, put_all)
    }

    fn put_unconfirmed_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.time_puts(batch, |channels, new| {
            for (channel, value) in channels.iter().zip(new) {
                channel.put_unconfirmed_timeout(*value, BATCH_MAX).map_err(failed("put"))?;
            }
            // The server handles the requests of a circuit in order.
            channels.last().map_or(Ok(()), |last| last.get_timeout(BATCH_MAX).map(drop).map_err(failed("get")))
        })
    }

    fn get_in_flight(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let channels = self.connected_for(batch, Request::default())?;
        let mut readings = Vec::with_capacity(channels.len());
        let mut gets: VecDeque<Operation<Reading>> = VecDeque::with_capacity(IN_FLIGHT_MAX);
        let start = Instant::now();
        for channel in &channels {
            if gets.len() == IN_FLIGHT_MAX
                && let Some(oldest) = gets.pop_front()
            {
                readings.push(oldest.wait_timeout(BATCH_MAX).map_err(failed("get"))?);
            }
            gets.push_back(channel.start_get(Request::default()));
        }
        for get in gets {
            readings.push(get.wait_timeout(BATCH_MAX).map_err(failed("get"))?);
        }
        let timed = Timed::since(start, readings.len());
        for (index, reading) in readings.iter().enumerate() {
            batch.check(index, double(reading)?)?;
        }
        Ok(timed)
    }

    fn contexts_at_work(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let names = batch.names();
        let (n_before, n_threads_before) = (wait_for_sockets(|_| true, Duration::ZERO)?, n_threads()?);
        let start = Instant::now();
        let mut contexts = Vec::with_capacity(batch.n);
        for _name in &names {
            contexts.push(new_context()?);
        }
        let created_ns = Some(ns(start.elapsed()));
        let mut channels = Vec::with_capacity(batch.n);
        for (context, name) in contexts.iter().zip(&names) {
            channels.push(context.channel(name).map_err(failed("making a channel"))?);
        }
        let gets: Vec<_> = channels.iter().map(|channel| channel.start_get(Request::default())).collect();
        let readings = many::wait_timeout(gets, BATCH_MAX);
        let mut timed = Timed::since(start, 0);
        for (index, reading) in readings.into_iter().enumerate() {
            batch.check(index, double(&reading.map_err(failed("get"))?)?)?;
        }
        timed.n = wait_for_sockets(|_| true, Duration::ZERO)?.saturating_sub(n_before);
        timed.created_ns = created_ns;
        let n_more = n_threads()?.saturating_sub(n_threads_before);
        if n_more > 0 {
            let why = format!("the contexts started {n_more} threads");
            return Err(DriverFailure::Operation { what: "contexts_at_work".into(), why });
        }
        let start = Instant::now();
        drop((channels, contexts));
        timed.close_ns = Some(ns(start.elapsed()));
        // Sockets that are still closing would disturb the next measurement.
        wait_for_sockets(|n| n <= n_before, BATCH_MAX)?;
        Ok(timed)
    }

    fn commands(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        command::time(batch, |name| {
            let mut command = command::this_program()?;
            command.args(["get", name]);
            Ok(command)
        })
    }

    fn get_group(&mut self, pv: &str, n_members: usize, n: usize) -> Result<ArrayTimes, DriverFailure> {
        let channel = self.context.channel(pv).map_err(failed("making a channel"))?;
        let request = PvRequest::default();
        let get = || channel.get_structure_timeout(&request, OPERATION_MAX).map_err(failed("get"));
        let names: Vec<String> = (0..n_members).map(|index| format!("m{index:02}.value")).collect();
        get()?;
        let mut latencies_ns = Vec::with_capacity(n);
        for _get in 0..n {
            let start = Instant::now();
            let group = get()?;
            latencies_ns.push(ns(start.elapsed()));
            for (index, name) in names.iter().enumerate() {
                let value = match group.get(name) {
                    Some(Value::Scalar(Scalar::F64(value))) => *value,
                    _ => f64::NAN,
                };
                if value != index as f64 {
                    return Err(DriverFailure::WrongValue { value, expected: format!("{index} of {name}") });
                }
            }
        }
        Ok(ArrayTimes { latencies_ns, n_elements: n_members })
    }

    fn put_ramp(&mut self, pv: &str, n_elements: usize) -> Result<(), DriverFailure> {
        let ramp: Vec<f64> = (0..n_elements as u32).map(f64::from).collect();
        let channel = self.context.channel(pv).map_err(failed("making a channel"))?;
        channel.put_timeout(ramp, OPERATION_MAX).map_err(failed("put"))
    }

    fn process_gets(&mut self, gets: &ProcessGets) -> Result<RoundTimes, DriverFailure> {
        self.repeat_process_gets(gets)
    }

    fn event_rounds(&mut self, rounds: &EventRounds) -> Result<RoundTimes, DriverFailure> {
        self.repeat_events(rounds)
    }
}
