//! The worker process that talks to a plant: it connects, gets and subscribes; if permitted, it puts values that it
//! got.

use std::io::{BufRead, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fodo_net::{
    Channel, ClientConfig, Context, Monitor, MonitorEvent, MonitorOptions, Operation, Reading, Request, Scalar,
    TimeStamp, Value,
};

use super::gate::SearchGate;
use super::limiter::RateLimiter;
use super::{ConnectedPv, FirstUpdate, PlantReply, PlantRequest, RunLimits, SubscriptionCounts};
use crate::limit::{OPERATION_MAX, PLANT_LINE_BYTES, WATCH_AHEAD_MAX, WATCH_MAX};

/// Answers requests from standard input on standard output. Exits at the end of its input, even during a request.
pub fn run(search: Vec<SocketAddr>, caps: RunLimits) -> std::io::Result<()> {
    if !caps.allow_net && search.iter().any(|address| !address.ip().is_loopback()) {
        return Err(std::io::Error::other("a search address is not loopback: use --allow-net to permit it"));
    }
    let limiter = RateLimiter::new(caps.max_ops_per_second);
    let gate = SearchGate::open(search, caps.allow_net, limiter.clone())?;
    let config = ClientConfig::from_env().map_err(std::io::Error::other)?;
    let context = Context::new(ClientConfig { search_addresses: vec![gate.address], ..config });
    let mut worker = PlantWorker { caps, limiter, gate, context, channels: Vec::new(), monitors: Vec::new() };
    let (sender, asks) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Ok(Some(line)) = bounded_line(&mut input) {
            if sender.send(line).is_err() {
                break;
            }
        }
        // The laboratory has disconnected: nothing more may reach the plant.
        std::process::exit(0);
    });
    for line in asks {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => worker.answer(request).unwrap_or_else(|why| PlantReply::Failed { why }),
            Err(why) => PlantReply::Failed { why: why.to_string() },
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", serde_json::to_string(&answer)?)?;
        output.flush()?;
    }
    Ok(())
}

/// The next line; `None` at the end. A line longer than `PLANT_LINE_BYTES` is an error.
pub fn bounded_line(input: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let n = input.take(PLANT_LINE_BYTES).read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok(Some(line)),
        Some(_) if n as u64 == PLANT_LINE_BYTES => Err(std::io::Error::other("the line is too long")),
        _ => Ok(None),
    }
}

/// The wall clock, in nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

struct PlantWorker {
    caps: RunLimits,
    limiter: RateLimiter,
    gate: SearchGate,
    context: Context,
    channels: Vec<Channel>,
    monitors: Vec<Monitor>,
}

impl PlantWorker {
    fn answer(&mut self, request: PlantRequest) -> Result<PlantReply, String> {
        match request {
            PlantRequest::Clock {} => Ok(PlantReply::Clock { unix_ns: unix_ns() }),
            PlantRequest::Connect { pvs } => self.connect(&pvs),
            PlantRequest::ConnectAtOnce {} => self.connect_at_once(),
            PlantRequest::Get { pv, n } => self.get(&pv, n),
            PlantRequest::PutBack { pv, n } => self.put_back(&pv, n),
            PlantRequest::GetAtOnce {} => self.get_at_once(),
            PlantRequest::Subscribe {} => Ok(PlantReply::Subscribed(self.subscribe())),
            PlantRequest::Watch { start_unix_ns, seconds } => self.watch(start_unix_ns, seconds),
        }
    }

    /// A paid search and a new channel.
    fn open(&self, pv: &str) -> Result<Channel, String> {
        self.gate.allow_search(pv);
        self.context.channel(pv).map_err(|why| why.to_string())
    }

    fn connect(&mut self, pvs: &[String]) -> Result<PlantReply, String> {
        if pvs.len() > self.caps.max_channels as usize {
            return Err(format!("{} PVs are more than --max-channels {}", pvs.len(), self.caps.max_channels));
        }
        self.monitors.clear();
        self.channels.clear();
        let mut all = Vec::new();
        for pv in pvs {
            self.limiter.spend(self.gate.cost() + 1);
            let start = Instant::now();
            let facts = self.open(pv).and_then(|channel| {
                let facts = channel.connect_timeout(OPERATION_MAX).map_err(|why| why.to_string())?;
                Ok((channel, facts))
            });
            let (pv, ns) = (pv.clone(), ns(start));
            match facts {
                Err(why) => all.push(ConnectedPv { pv, failed: Some(why), ..ConnectedPv::default() }),
                Ok((channel, facts)) => {
                    let (server, kind) = (facts.server.to_string(), format!("{:?}", facts.kind));
                    all.push(ConnectedPv { pv, ns, server, kind, count_max: facts.count_max, failed: None });
                    self.channels.push(channel);
                }
            }
        }
        Ok(PlantReply::Connected(all))
    }

    fn connect_at_once(&self) -> Result<PlantReply, String> {
        let cost = self.gate.cost() + 1;
        let n_requested = self.channels.len().min((self.limiter.at_once() / cost).max(1));
        self.limiter.spend(n_requested * cost);
        let start = Instant::now();
        let mut channels = Vec::new();
        for channel in self.channels.iter().take(n_requested) {
            channels.push(self.open(channel.name())?);
        }
        let connects: Vec<Operation<_>> = channels.iter().map(Channel::start_connect).collect();
        let n = connects.into_iter().filter_map(|connect| connect.wait_timeout(OPERATION_MAX).ok()).count();
        Ok(PlantReply::AtOnce { ns: ns(start), n: n as u64, n_requested: n_requested as u64 })
    }

    fn get(&self, pv: &str, n: usize) -> Result<PlantReply, String> {
        let channel = self.channels.iter().find(|channel| channel.name() == pv).ok_or("the PV is not connected")?;
        let (mut latencies_ns, mut n_elements, mut bytes) = (Vec::new(), 0, 0);
        for _get in 0..n {
            self.limiter.spend(1);
            let start = Instant::now();
            let reading = channel.get_timeout(OPERATION_MAX).map_err(|why| why.to_string())?;
            latencies_ns.push(ns(start));
            (n_elements, bytes) = (reading.value.len() as u64, value_bytes(&reading.value));
        }
        Ok(PlantReply::Got { latencies_ns, n_elements, bytes })
    }

    fn put_back(&self, pv: &str, n: usize) -> Result<PlantReply, String> {
        if !self.caps.allow_puts {
            return Err("puts are not allowed without --allow-puts".into());
        }
        let channel = self.channels.iter().find(|channel| channel.name() == pv).ok_or("the PV is not connected")?;
        let mut latencies_ns = Vec::new();
        for _put in 0..n {
            self.limiter.spend(2);
            let reading = channel.get_timeout(OPERATION_MAX).map_err(|why| why.to_string())?;
            let start = Instant::now();
            channel.put_timeout(reading.value, OPERATION_MAX).map_err(|why| why.to_string())?;
            latencies_ns.push(ns(start));
        }
        Ok(PlantReply::PutBack { latencies_ns })
    }

    fn get_at_once(&self) -> Result<PlantReply, String> {
        let n_requested = self.channels.len().min(self.limiter.at_once());
        self.limiter.spend(n_requested);
        let start = Instant::now();
        let gets: Vec<Operation<Reading>> =
            self.channels.iter().take(n_requested).map(|channel| channel.start_get(Request::default())).collect();
        let n = gets.into_iter().filter_map(|get| get.wait_timeout(OPERATION_MAX).ok()).count();
        Ok(PlantReply::AtOnce { ns: ns(start), n: n as u64, n_requested: n_requested as u64 })
    }

    fn subscribe(&mut self) -> Vec<FirstUpdate> {
        self.monitors.clear();
        let mut firsts = Vec::new();
        for channel in &self.channels {
            self.limiter.spend(1);
            let start = Instant::now();
            let monitor = channel.monitor(MonitorOptions::default());
            let failed = first_update(&monitor).err();
            firsts.push(FirstUpdate { pv: channel.name().into(), ns: ns(start), failed });
            self.monitors.push(monitor);
        }
        firsts
    }

    fn watch(&self, start_unix_ns: u64, seconds: f64) -> Result<PlantReply, String> {
        let ahead = Duration::from_nanos(start_unix_ns.saturating_sub(unix_ns()));
        if ahead > WATCH_AHEAD_MAX {
            return Err(format!("the start is {ahead:?} in the future: check that the clocks agree"));
        }
        let period = Duration::try_from_secs_f64(seconds).ok().filter(|period| *period <= WATCH_MAX);
        let period = period.ok_or_else(|| format!("invalid duration of {seconds} s"))?;
        std::thread::sleep(ahead);
        let (started_unix_ns, start) = (unix_ns(), Instant::now());
        let seen = std::thread::scope(|scope| {
            let watches: Vec<_> = self
                .monitors
                .iter()
                .zip(&self.channels)
                .map(|(monitor, channel)| scope.spawn(move || seen(monitor, channel.name(), start, period)))
                .collect();
            watches.into_iter().filter_map(|watch| watch.join().ok()).collect()
        });
        Ok(PlantReply::Watched { started_unix_ns, seen })
    }
}

fn ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

fn first_update(monitor: &Monitor) -> Result<(), String> {
    let deadline = Instant::now() + OPERATION_MAX;
    loop {
        match monitor.next_timeout(deadline.saturating_duration_since(Instant::now())) {
            Some(MonitorEvent::Update(_)) => return Ok(()),
            Some(MonitorEvent::Refused(why)) => return Err(why.to_string()),
            Some(_) => {}
            None => return Err("no update received".into()),
        }
    }
}

/// Counts updates until `period` is over. Updates queued before `start` are not counted.
fn seen(monitor: &Monitor, pv: &str, start: Instant, period: Duration) -> SubscriptionCounts {
    while monitor.next_timeout(Duration::ZERO).is_some() {}
    let before = monitor.counts();
    let mut seen = SubscriptionCounts { pv: pv.into(), ..SubscriptionCounts::default() };
    let (mut last, mut stamp, mut gap) = (start, TimeStamp::NEVER, Duration::ZERO);
    let end = start + period;
    while let Some(event) = monitor.next_timeout(end.saturating_duration_since(Instant::now())) {
        let now = Instant::now();
        match event {
            MonitorEvent::Update(reading) => {
                seen.out_of_order += u64::from(reading.time < stamp);
                (gap, last, stamp) = (gap.max(now.saturating_duration_since(last)), now, reading.time);
            }
            MonitorEvent::Disconnected => seen.n_lost += 1,
            _ => {}
        }
        if now >= end {
            break;
        }
    }
    let after = monitor.counts();
    seen.ns = ns(start);
    seen.received = after.received - before.received;
    seen.delivered = after.delivered - before.delivered;
    seen.merged = after.merged - before.merged;
    seen.longest_gap_ns = gap.max(last.elapsed()).as_nanos() as u64;
    seen
}

fn value_bytes(value: &Value) -> u64 {
    let each = match value.first() {
        None => 0,
        Some(Scalar::Bool(_) | Scalar::I8(_) | Scalar::U8(_)) => 1,
        Some(Scalar::I16(_) | Scalar::U16(_) | Scalar::Enum(_)) => 2,
        Some(Scalar::I32(_) | Scalar::U32(_) | Scalar::F32(_)) => 4,
        Some(Scalar::I64(_) | Scalar::U64(_) | Scalar::F64(_)) => 8,
        // Channel Access sends strings of fixed size.
        Some(Scalar::Text(_)) => 40,
    };
    each * value.len() as u64
}
