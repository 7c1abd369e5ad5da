//! Rounds of study 003 with Fodo's client: gets that process, and a monitor group for the counters of an event.

use std::time::{Duration, Instant};

use fodo_net::{Array, Channel, GroupOptions, GroupRows, MonitorGroup, PvRequest, Request, Scalar, Value, many};

use super::{FodoDriver, failed, wait_connected};
use crate::driver::rounds::{
    CycleSums, CycleTally, EventRounds, ProcessGets, ProcessWay, RoundCheck, RoundTimes, next_of,
};
use crate::driver::{ConnectedChannels, DriverFailure};
use crate::limit::{BATCH_MAX, EVENT_QUIET, OPERATION_MAX, SUBSCRIPTIONS_AT_ONCE};

/// A get of what a reading has, which processes the record before.
const PROCESSED: &str = "field(value,alarm,timeStamp)record[process=true]";

impl FodoDriver {
    pub(super) fn repeat_process_gets(&self, gets: &ProcessGets) -> Result<RoundTimes, DriverFailure> {
        let channels = self.connected(&gets.records)?;
        let mut check = RoundCheck::new(gets);
        let rounds_ns = match gets.way {
            ProcessWay::OneOperation => {
                let request = PvRequest::parse(PROCESSED)
                    .map_err(|why| DriverFailure::Operation { what: PROCESSED.into(), why: why.to_string() })?;
                gets.spans.repeat(|| one_operation(&channels, &request, &mut check))?
            }
            ProcessWay::PutThenGet => {
                let pattern = format!("{}.PROC", gets.records.pattern);
                let processing = self.connected(&ConnectedChannels { pattern, ..gets.records.clone() })?;
                gets.spans.repeat(|| put_then_get(&processing, &channels, &mut check))?
            }
        };
        Ok(RoundTimes { rounds_ns, n: channels.len(), ..RoundTimes::default() })
    }

    pub(super) fn repeat_events(&self, rounds: &EventRounds) -> Result<RoundTimes, DriverFailure> {
        let event = self.context.channel(&rounds.event).map_err(failed("making a channel"))?;
        wait_connected(std::slice::from_ref(&event))?;
        let group = self.context.monitor_group(GroupOptions::default());
        let mut counters = CounterGroup { group, tallies: Vec::new(), rows: GroupRows::default(), merged: 0 };
        for names in rounds.records.names().chunks(SUBSCRIPTIONS_AT_ONCE) {
            counters.subscribe(names)?;
        }
        let first: Vec<Option<u16>> = counters.tallies.iter().map(CycleTally::last).collect();
        let mut n_events = 0;
        let rounds_ns = rounds.spans.repeat(|| {
            let next = counters.tallies.last().and_then(CycleTally::last).map(next_of);
            let start = Instant::now();
            event.put_unconfirmed_timeout(1.0, OPERATION_MAX).map_err(failed("put"))?;
            n_events += 1;
            let is_last = |tallies: &[CycleTally]| tallies.last().is_some_and(|tally| tally.last() == next);
            counters.take_until(OPERATION_MAX, is_last)?;
            Ok(start.elapsed())
        })?;
        let ends: Vec<Option<u16>> = first.into_iter().map(|number| Some(after(number?, n_events))).collect();
        counters.settle(|tallies| tallies.iter().map(CycleTally::last).eq(ends.iter().copied()));
        Ok(RoundTimes { rounds_ns, n: rounds.records.n, n_events, updates: counters.sums() })
    }
}

/// The value of a counter after that many events.
fn after(number: u16, n_events: u64) -> u16 {
    let cycle = u64::from(crate::driver::rounds::COUNTER_LAST) + 1;
    ((u64::from(number) + n_events) % cycle) as u16
}

fn one_operation(channels: &[Channel], request: &PvRequest, check: &mut RoundCheck) -> Result<Duration, DriverFailure> {
    let start = Instant::now();
    let results = match channels {
        [only] => vec![only.get_structure_timeout(request, OPERATION_MAX)],
        _ => many::get_structure_timeout(channels, request, BATCH_MAX),
    };
    let elapsed = start.elapsed();
    for (index, result) in results.into_iter().enumerate() {
        checked(check, index, result.map_err(failed("get"))?.get("value"))?;
    }
    Ok(elapsed)
}

/// The gets follow the puts on their circuit, whose requests a server handles in order.
fn put_then_get(
    processing: &[Channel],
    channels: &[Channel],
    check: &mut RoundCheck,
) -> Result<Duration, DriverFailure> {
    let start = Instant::now();
    let puts = many::start_put(processing.iter().map(|channel| (channel.clone(), 1.0.into())));
    let readings = many::get_timeout(channels, Request::default(), BATCH_MAX);
    let puts = puts.wait_timeout(BATCH_MAX);
    let elapsed = start.elapsed();
    puts.into_iter().collect::<Result<(), _>>().map_err(failed("put"))?;
    for (index, reading) in readings.into_iter().enumerate() {
        checked(check, index, Some(&reading.map_err(failed("get"))?.value))?;
    }
    Ok(elapsed)
}

fn checked(check: &mut RoundCheck, index: usize, value: Option<&Value>) -> Result<(), DriverFailure> {
    match value {
        Some(Value::Scalar(Scalar::F64(value))) => check.number(index, *value),
        Some(Value::Array(Array::F64(elements))) => check.array(index, elements),
        _ => Err(DriverFailure::WrongValue { value: f64::NAN, expected: "a double or an array of doubles".into() }),
    }
}

/// The subscriptions to the counters of an event.
struct CounterGroup {
    group: MonitorGroup,
    tallies: Vec<CycleTally>,
    rows: GroupRows,
    merged: u64,
}

impl CounterGroup {
    /// Subscribes to these counters, and waits for their first updates.
    fn subscribe(&mut self, names: &[String]) -> Result<(), DriverFailure> {
        self.tallies.resize(self.tallies.len() + names.len(), CycleTally::default());
        for added in self.group.add(names) {
            added.map_err(failed("monitor"))?;
        }
        self.take_until(OPERATION_MAX, |tallies| tallies.iter().all(|tally| tally.last().is_some()))
    }

    /// Takes rows until `is_enough`.
    fn take_until(
        &mut self,
        timeout: Duration,
        is_enough: impl Fn(&[CycleTally]) -> bool,
    ) -> Result<(), DriverFailure> {
        let deadline = Instant::now() + timeout;
        while !is_enough(&self.tallies) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let n = self.tallies.iter().filter(|tally| tally.last().is_some()).count();
                let why = format!("updates are missing; {n} of {} counters have a value", self.tallies.len());
                return Err(DriverFailure::Operation { what: "event".into(), why });
            }
            self.take(left);
        }
        Ok(())
    }

    /// The same without a deadline; ends also when no update has been received for [`EVENT_QUIET`].
    fn settle(&mut self, is_enough: impl Fn(&[CycleTally]) -> bool) {
        while !is_enough(&self.tallies) && self.take(EVENT_QUIET) {}
    }

    /// Returns whether there was anything to take.
    fn take(&mut self, timeout: Duration) -> bool {
        let has_any = self.group.take(&mut self.rows, timeout);
        for row in &self.rows.rows {
            self.merged += u64::from(row.merged);
            if let Some(tally) = self.tallies.get_mut(row.index as usize) {
                tally.add(row.value);
            }
        }
        has_any
    }

    fn sums(&self) -> CycleSums {
        let mut sums = CycleSums { merged: self.merged, ..CycleSums::default() };
        self.tallies.iter().for_each(|tally| sums.add(tally.sums()));
        sums
    }
}
