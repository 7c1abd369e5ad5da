//! The driver: one method for each request.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spvirit_client::MonitorOptions;
use spvirit_codec::spvd_decode::DecodedValue;

use crate::batch::{Batch, Channels, check};
use crate::circuit::{Circuit, OPERATION_MAX, READING, WHOLE, client, field, number};
use crate::failed::Failed;
use crate::subscribe::subscribe;

/// pvAccess does not report the maximum number of elements; the laboratory's waveform has this many.
const ELEMENTS_MAX: usize = 10_000_000;

const SPREAD: &str = "one request at a time on each of 4 connections, as spvirit's API requires";
const CONNECTIONS: &str = "spvirit opens a connection for each subscription";

/// The channels of the last `open`.
struct Opened {
    circuit: Circuit,
    channels: Vec<u32>,
}

#[derive(Default)]
pub struct Driver {
    pv: String,
    opened: Option<Opened>,
}

impl Driver {
    pub async fn reply(&mut self, line: &str) -> Value {
        match self.reply_to(line).await {
            Ok(reply) => reply,
            Err(failed) => json!({"failed": failed.described(line)}),
        }
    }

    async fn reply_to(&mut self, line: &str) -> Result<Value, Failed> {
        let parsed: Value = serde_json::from_str(line).unwrap_or_default();
        let Some((verb, request)) = parsed.as_object().and_then(|members| members.iter().next()) else {
            return Err(Failed::Described(json!({"protocol": {"line": line}})));
        };
        let channels = Channels::of(request);
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let size = |name: &str| request[name].as_u64().unwrap_or_default() as usize;
        match verb.as_str() {
            "open" => self.open(text("pv"), size("n_channels")).await,
            "get_scalars" => self.get_scalars(size("n")).await,
            "move_array" => self.move_array(size("n_elements"), size("salt") as u32, size("n_gets")).await,
            "get_group" => get_group(text("pv"), size("n_members"), size("n")).await,
            "create_contexts" => create_contexts(size("n"), text("pv")).await,
            "connect_one_by_one" => self.connect_one_by_one(&channels).await,
            "connect_at_once" => self.connect_at_once(&channels).await,
            "get_at_once" | "get_in_flight" => self.get_at_once(&channels, &READING).await,
            "get_whole_at_once" => self.get_at_once(&channels, &WHOLE).await,
            "put_at_once" => self.put_at_once(&channels).await,
            "monitor_at_once" => monitor_at_once(&channels).await,
            "commands" => commands(&channels),
            _ => Err(Failed::unable(verb, "this driver does not support it")),
        }
    }

    async fn open(&mut self, pv: &str, n_channels: usize) -> Result<Value, Failed> {
        self.opened = None;
        let mut circuit = Circuit::connect(pv).await?;
        let mut channels = Vec::new();
        for _ in 0..n_channels {
            let channel = circuit.channel(pv).await?;
            circuit.get(channel, &READING).await?;
            channels.push(channel);
        }
        self.pv = pv.to_owned();
        self.opened = Some(Opened { circuit, channels });
        let version = env!("CARGO_PKG_VERSION");
        Ok(json!({"opened": {"version": version, "n_channels": n_channels, "element_count_max": ELEMENTS_MAX}}))
    }

    fn opened(&mut self) -> Result<&mut Opened, Failed> {
        let is_open = |opened: &&mut Opened| !opened.channels.is_empty();
        self.opened.as_mut().filter(is_open).ok_or_else(|| Failed::Unexpected("no channel is open".into()))
    }

    async fn get_scalars(&mut self, n: usize) -> Result<Value, Failed> {
        let Opened { circuit, channels } = self.opened()?;
        let (mut latencies_ns, mut first, mut last) = (Vec::with_capacity(n), None, f64::NEG_INFINITY);
        for index in 0..n {
            let start = Instant::now();
            let value = circuit.get(channels[index % channels.len()], &READING).await?;
            latencies_ns.push(ns_since(start));
            let (counter, seconds) = (number(&value, &["value"]), number(&value, &["timeStamp", "secondsPastEpoch"]));
            let is_right = counter.is_finite() && counter >= last && seconds > 0.0;
            if !is_right {
                return Err(Failed::wrong_value(counter, "a counter at the last value or beyond, with its time"));
            }
            first.get_or_insert(counter);
            last = counter;
        }
        let first = first.unwrap_or_default();
        Ok(json!({"scalars": {"latencies_ns": latencies_ns, "first": first, "last": last.max(first)}}))
    }

    async fn move_array(&mut self, n_elements: usize, salt: u32, n_gets: usize) -> Result<Value, Failed> {
        let Opened { circuit, channels } = self.opened()?;
        let channel = channels[0];
        let mut latencies_ns = Vec::with_capacity(n_gets);
        for round in 0..n_gets {
            let salt = salt.wrapping_add(round as u32);
            let put: Vec<i32> = (0..n_elements as u32).map(|index| element(index, salt)).collect();
            circuit.put(channel, &json!(put)).await?;
            let start = Instant::now();
            let value = circuit.get(channel, &READING).await?;
            latencies_ns.push(ns_since(start));
            compare(&value, &put)?;
        }
        Ok(json!({"array": {"latencies_ns": latencies_ns, "n_elements": n_elements}}))
    }

    /// Connections without channels to the server of the last `open`.
    async fn batch(&self) -> Result<Batch, Failed> {
        Batch::to(&self.pv).await
    }

    async fn connect_one_by_one(&self, channels: &Channels) -> Result<Value, Failed> {
        let mut circuit = Circuit::connect(&self.pv).await?;
        let start = Instant::now();
        for index in 0..channels.n {
            let name = channels.name(index);
            crate::circuit::search(&name).await?;
            circuit.channel(&name).await?;
        }
        timed(start.elapsed(), channels.n, None)
    }

    async fn connect_at_once(&self, channels: &Channels) -> Result<Value, Failed> {
        let mut batch = self.batch().await?;
        let start = Instant::now();
        batch.connect(channels).await?;
        timed(start.elapsed(), channels.n, Some(SPREAD))
    }

    async fn get_at_once(&self, channels: &Channels, fields: &[&str]) -> Result<Value, Failed> {
        let mut batch = self.batch().await?;
        batch.connect(channels).await?;
        batch.get(fields).await?;
        let start = Instant::now();
        let values = batch.get(fields).await?;
        let time = start.elapsed();
        check(channels, &values, 0.0)?;
        timed(time, channels.n, Some(SPREAD))
    }

    async fn put_at_once(&self, channels: &Channels) -> Result<Value, Failed> {
        let mut batch = self.batch().await?;
        batch.connect(channels).await?;
        batch.put(channels, 0.0).await?;
        let start = Instant::now();
        batch.put(channels, 0.5).await?;
        let time = start.elapsed();
        let values = batch.get(&READING).await?;
        batch.put(channels, 0.0).await?;
        check(channels, &values, 0.5)?;
        timed(time, channels.n, Some(SPREAD))
    }
}

async fn get_group(pv: &str, n_members: usize, n: usize) -> Result<Value, Failed> {
    let mut circuit = Circuit::connect(pv).await?;
    let channel = circuit.channel(pv).await?;
    circuit.get(channel, &WHOLE).await?;
    let mut latencies_ns = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        let value = circuit.get(channel, &WHOLE).await?;
        latencies_ns.push(ns_since(start));
        for index in 0..n_members {
            let member = format!("m{index:02}");
            let received = number(&value, &[&member, "value"]);
            if received != index as f64 {
                return Err(Failed::wrong_value(received, format!("{index} of {member}")));
            }
        }
    }
    Ok(json!({"array": {"latencies_ns": latencies_ns, "n_elements": n_members}}))
}

async fn create_contexts(n: usize, pv: &str) -> Result<Value, Failed> {
    let start = Instant::now();
    let clients: Vec<_> = (0..n).map(|_| client()).collect();
    let time = start.elapsed();
    for client in clients.first().into_iter().chain(clients.last()) {
        client.pvinfo(pv).await?;
    }
    timed(time, n, Some("a client of spvirit has no thread or socket before its first operation"))
}

async fn monitor_at_once(channels: &Channels) -> Result<Value, Failed> {
    let (client, names) = (client(), channels.names());
    let values = Arc::new(Mutex::new(vec![f64::NAN; channels.n]));
    let received = values.clone();
    let take = move |index: usize, update: &spvirit_client::MonitorUpdate| {
        if let (Ok(mut values), true) = (received.lock(), field(&update.value, &["value"]).is_some()) {
            values[index] = number(&update.value, &["value"]);
        }
    };
    let start = Instant::now();
    let deadline = tokio::time::Instant::now() + OPERATION_MAX;
    let monitors = subscribe(&client, &names, (&READING, MonitorOptions::default()), deadline, take).await;
    let time = start.elapsed();
    let monitors = monitors.map_err(|n| Failed::Unexpected(format!("only {n} first updates were received")))?;
    for monitor in monitors {
        monitor.cancel_and_join().await?;
    }
    let values = values.lock().map(|values| values.clone()).unwrap_or_default();
    values.iter().enumerate().try_for_each(|(index, value)| channels.check(index, *value))?;
    timed(time, channels.n, Some(CONNECTIONS))
}

/// This program prints a value as well.
fn commands(channels: &Channels) -> Result<Value, Failed> {
    let program = std::env::current_exe()?;
    let mut time = Duration::ZERO;
    for index in 0..channels.n {
        let start = Instant::now();
        let output = Command::new(&program).arg("get").arg(channels.name(index)).output()?;
        time += start.elapsed();
        let printed = String::from_utf8_lossy(&output.stdout);
        channels.check(index, printed.trim().parse().unwrap_or(f64::NAN))?;
    }
    timed(time, channels.n, None)
}

fn timed(time: Duration, n: usize, note: Option<&str>) -> Result<Value, Failed> {
    let mut timed = json!({"ns": time.as_nanos() as u64, "n": n});
    if let Some(note) = note {
        timed["note"] = note.into();
    }
    Ok(json!({"timed": timed}))
}

fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// An element of the array of the protocol.
fn element(index: u32, salt: u32) -> i32 {
    (index.wrapping_mul(2_654_435_761) ^ salt).cast_signed()
}

fn compare(value: &DecodedValue, put: &[i32]) -> Result<(), Failed> {
    let Some(DecodedValue::Array(received)) = field(value, &["value"]) else {
        return Err(Failed::wrong_count(0, put.len()));
    };
    if received.len() != put.len() {
        return Err(Failed::wrong_count(received.len(), put.len()));
    }
    for (index, (received, expected)) in received.iter().zip(put).enumerate() {
        let DecodedValue::Int32(value) = received else {
            return Err(Failed::Unexpected("the elements are not integers of 32 bits".into()));
        };
        if value != expected {
            let wrong = json!({"wrong_element": {"index": index, "value": value, "expected": expected}});
            return Err(Failed::Described(wrong));
        }
    }
    Ok(())
}
