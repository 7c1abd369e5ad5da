//! A limit for the time of a scenario, so that a peer that hangs costs a minute and not the whole run.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::{AnyTypeRequest, ChannelProperties, Client, MonitorForm, Sample, ValueForm};
use crate::TestFailure;

/// A client whose operations fail after a deadline; one that runs at that moment still ends.
pub struct TimedClient<'a> {
    client: &'a mut dyn Client,
    timeout: Duration,
    deadline: Instant,
}

impl<'a> TimedClient<'a> {
    /// The same client for the next `timeout`.
    pub fn new(client: &'a mut dyn Client, timeout: Duration) -> TimedClient<'a> {
        TimedClient { client, timeout, deadline: Instant::now() + timeout }
    }

    fn client(&mut self, pv: &str) -> Result<&mut dyn Client, TestFailure> {
        if Instant::now() > self.deadline {
            return Err(format!("{pv}: hangs: the scenario has not finished after {:?}", self.timeout));
        }
        Ok(self.client)
    }
}

impl Client for TimedClient<'_> {
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure> {
        self.client(pv)?.connect(pv)
    }

    fn get(&mut self, pv: &str, shape: ValueForm) -> Result<Sample, TestFailure> {
        self.client(pv)?.get(pv, shape)
    }

    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure> {
        self.client(pv)?.put(pv, value, wait)
    }

    fn put_pattern(&mut self, pv: &str, first: i32, count: usize) -> Result<(), TestFailure> {
        self.client(pv)?.put_pattern(pv, first, count)
    }

    fn process(&mut self, pv: &str, value: &Json) -> Result<(), TestFailure> {
        self.client(pv)?.process(pv, value)
    }

    fn request(&mut self, pv: &str, request: AnyTypeRequest) -> Result<Json, TestFailure> {
        self.client(pv)?.request(pv, request)
    }

    fn subscribe(&mut self, pv: &str, form: MonitorForm) -> Result<usize, TestFailure> {
        self.client(pv)?.subscribe(pv, form)
    }

    fn end_monitors(&mut self) -> Result<(), TestFailure> {
        self.client.end_monitors()
    }

    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.client("monitor")?.take(monitor, count, timeout.min(left))
    }
}
