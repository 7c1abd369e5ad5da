//! `fodo lab run --against PV...`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::link::WorkerConnection;
use super::worker::unix_ns;
use super::{ConnectedPv, PlantReply, PlantRequest, RunLimits, rows, search_addresses, text};
use crate::agent;
use crate::limit::WATCH_MAX;
use crate::machine::Machine;
use crate::result::{ResultFile, ResultRow, RowVerdict};

/// Time between sending the common start to the agents and the start.
const HEAD_START_NS: u64 = 500_000_000;

/// How long updates are counted by default, in seconds.
const SECONDS: f64 = 5.0;

/// Arguments of a run against a plant.
#[derive(Debug, clap::Args)]
pub struct PlantArguments {
    /// Measure these existing PVs, by EPICS_CA_ADDR_LIST; only reads unless --allow-puts is given.
    #[arg(long, value_name = "PV", num_args = 1.., conflicts_with_all = ["suite", "question", "server", "client", "resume"])]
    pub against: Vec<String>,
    #[command(flatten)]
    caps: RunLimits,
    /// How long to count updates of a plant (default: 5), how long the values of each point of the suite diamond change
    /// (default: 10, with --short 2), how long each point of the suite nsls2 is measured (default: 0.3), and the duration of a
    /// repetition of the suite clu (default: 60, with --short 6), in seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Measure from a `fodo lab agent` on another host; may be repeated; all agents count updates at the same time.
    #[arg(long, value_name = "HOST:PORT", requires = "against")]
    agent: Vec<String>,
    /// File with the agents' key; default: FODO_LAB_KEY.
    #[arg(long, value_name = "FILE", requires = "agent")]
    key_file: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if s > 0.0 && s <= WATCH_MAX.as_secs_f64() => Ok(s),
        _ => Err(format!("expected a number of seconds greater than 0 and at most {}", WATCH_MAX.as_secs())),
    }
}

/// Measures the plant. Passes the result to `keep`, which returns the exit status unless the run is interrupted.
pub fn measure(words: &PlantArguments, n_gets: usize, keep: impl FnOnce(&ResultFile, &str) -> ExitCode) -> ExitCode {
    let start = Instant::now();
    let mut links = match open(words) {
        Ok(links) => links,
        Err(why) => {
            eprintln!("fodo lab: {why}");
            return ExitCode::from(2);
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // If it cannot be registered, the signal ends the run at once, the default behaviour.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    let machine = Machine::describe();
    let mut result = ResultFile::new("plant", &machine.date);
    if let Ok(Value::Object(machine)) = serde_json::to_value(&machine) {
        result.machine = machine;
    }
    result.settings.insert("caps".into(), json!(words.caps));
    result.settings.insert("repetitions".into(), n_gets.into());
    result.settings.insert("seconds".into(), words.seconds.unwrap_or(SECONDS).into());
    let is_over = || stop.load(Ordering::Acquire);
    for link in &mut links {
        if let Err(why) = survey(link, words, n_gets, &is_over, &mut result) {
            result.rows.push(rows::with(rows::row("A0 survey", "All of it", &link.client, "all"), Err(why)));
        }
    }
    watch(&mut links, words.seconds.unwrap_or(SECONDS), &is_over, &mut result);
    drop(links);
    result.duration_s = start.elapsed().as_secs_f64();
    let kept = keep(&result, &text::table(&result.rows));
    if is_over() { ExitCode::from(130) } else { kept }
}

/// Does all checks that can fail before anything is sent to a plant.
fn open(words: &PlantArguments) -> Result<Vec<WorkerConnection>, String> {
    let (n_pvs, caps) = (words.against.len(), words.caps);
    if n_pvs > caps.max_channels as usize {
        return Err(format!("{n_pvs} PVs are more than --max-channels {}", caps.max_channels));
    }
    let whose = if words.agent.is_empty() {
        let search = search_addresses(caps)?;
        announce(n_pvs, caps, &format!("from this host by searches to {search:?}"));
        return Ok(vec![WorkerConnection::here(&search, caps).map_err(|why| why.to_string())?]);
    } else {
        words.agent.join(", ")
    };
    let key = agent::key(words.key_file.as_deref())?;
    let key = key.ok_or("an agent requires its key: use --key-file FILE or FODO_LAB_KEY")?;
    announce(n_pvs, caps, &format!("from each agent ({whose}) by its own search addresses"));
    words.agent.iter().map(|agent| agent::connect(agent, &key, caps)).collect()
}

fn announce(n_pvs: usize, caps: RunLimits, how: &str) {
    let puts = if caps.allow_puts { "each PV's own value is PUT BACK" } else { "nothing is put" };
    eprintln!(
        "fodo lab: reads {n_pvs} PVs {how}; searches, channels, gets, puts and subscriptions together at most {} per \
         second; {puts}. Ctrl-C ends it.",
        caps.max_ops_per_second
    );
}

fn survey(
    link: &mut WorkerConnection,
    words: &PlantArguments,
    n_gets: usize,
    is_over: &dyn Fn() -> bool,
    result: &mut ResultFile,
) -> Result<(), String> {
    let (client, caps) = (link.client.clone(), words.caps);
    let PlantReply::Connected(found) = link.exchange(&PlantRequest::Connect { pvs: words.against.clone() }, is_over)?
    else {
        return Err(unexpected());
    };
    result.rows.extend(found.iter().map(|found| rows::connected(&client, found)));
    result.settings.insert(format!("found_by_{client}"), json!(found));
    let there: Vec<&ConnectedPv> = found.iter().filter(|found| found.failed.is_none()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let answer = link.exchange(&PlantRequest::ConnectAtOnce {}, is_over)?;
    result.rows.push(at_once("A2 connect at once", &client, answer)?);
    for found in there {
        let answer = link.exchange(&PlantRequest::Get { pv: found.pv.clone(), n: n_gets }, is_over);
        result.rows.push(got(&client, found, answer)?);
        if caps.allow_puts {
            let answer = link.exchange(&PlantRequest::PutBack { pv: found.pv.clone(), n: n_gets }, is_over);
            result.rows.push(put_back(&client, found, answer)?);
        }
        if is_over() {
            return Err("interrupted".into());
        }
    }
    let answer = link.exchange(&PlantRequest::GetAtOnce {}, is_over)?;
    result.rows.push(at_once("A4 get at once", &client, answer)?);
    let PlantReply::Subscribed(firsts) = link.exchange(&PlantRequest::Subscribe {}, is_over)? else {
        return Err(unexpected());
    };
    result.rows.extend(firsts.iter().map(|first| rows::first(&client, first)));
    Ok(())
}

fn unexpected() -> String {
    "unexpected answer from the worker".into()
}

fn at_once(question: &str, client: &str, answer: PlantReply) -> Result<ResultRow, String> {
    let PlantReply::AtOnce { ns, n, n_requested } = answer else { return Err(unexpected()) };
    let mut row = rows::row(question, "All PVs at once, as far as the cap allows", client, "all");
    (row.point, row.n_operations, row.per) = (n_requested, n_requested, crate::result::SampleUnit::Total);
    let missing = format!("{n} of {n_requested} answered");
    Ok(rows::with(row, if n == n_requested { Ok(vec![ns as f64]) } else { Err(missing) }))
}

fn got(client: &str, found: &ConnectedPv, answer: Result<PlantReply, String>) -> Result<ResultRow, String> {
    let mut row = rows::row("A3 get", "Blocking get", client, &found.pv);
    match answer {
        Err(why) => Ok(rows::with(row, Err(why))),
        Ok(PlantReply::Got { latencies_ns, n_elements, bytes }) => {
            row.point = n_elements;
            row.bytes = (found.count_max > 1).then_some(bytes);
            let is_right = n_elements <= u64::from(found.count_max);
            let wrong = format!("received {n_elements} elements, but the channel has at most {}", found.count_max);
            let samples = latencies_ns.iter().map(|ns| *ns as f64).collect();
            Ok(rows::with(row, if is_right { Ok(samples) } else { Err(wrong) }))
        }
        Ok(_) => Err(unexpected()),
    }
}

fn put_back(client: &str, found: &ConnectedPv, answer: Result<PlantReply, String>) -> Result<ResultRow, String> {
    let row = rows::row("A8 put back", "Put with completion of the value that was got", client, &found.pv);
    match answer {
        Err(why) => Ok(rows::with(row, Err(why))),
        Ok(PlantReply::PutBack { latencies_ns }) => {
            Ok(rows::with(row, Ok(latencies_ns.iter().map(|ns| *ns as f64).collect())))
        }
        Ok(_) => Err(unexpected()),
    }
}

/// Watches through all links at the same time; each receives the start by its own clock.
fn watch(links: &mut [WorkerConnection], seconds: f64, is_over: &dyn Fn() -> bool, result: &mut ResultFile) {
    let surveyed = |client: &str| !result.rows.iter().any(|row| row.question == "A0 survey" && row.client == client);
    let able: Vec<&mut WorkerConnection> = links.iter_mut().filter(|link| surveyed(&link.client)).collect();
    let mut ready: Vec<(&mut WorkerConnection, i64, u64)> = Vec::new();
    for link in able {
        match link.clock_offset(is_over) {
            Ok((offset, error)) => ready.push((link, offset, error)),
            Err(why) => failed(result, &link.client, why),
        }
    }
    let start = unix_ns() + HEAD_START_NS;
    for (link, offset, _) in &mut ready {
        let request = PlantRequest::Watch { start_unix_ns: start.wrapping_add_signed(*offset), seconds };
        if let Err(why) = link.send(&request) {
            failed(result, &link.client, why);
        }
    }
    for (link, offset, error) in ready {
        match link.answer(is_over) {
            Ok(PlantReply::Watched { started_unix_ns, seen }) => {
                let late = started_unix_ns.wrapping_add_signed(-offset).wrapping_sub(start) as i64;
                let clock = json!({ "offset_ns": offset, "error_ns": error, "start_late_ns": late });
                result.settings.insert(format!("clock_of_{}", link.client), clock);
                result.rows.extend(seen.iter().flat_map(|seen| rows::watched(&link.client, seen)));
            }
            Ok(_) => failed(result, &link.client, unexpected()),
            Err(why) => failed(result, &link.client, why),
        }
    }
}

fn failed(result: &mut ResultFile, client: &str, why: String) {
    let mut row = rows::with(rows::row("A6 updates", "Updates per second", client, "all"), Err(why));
    row.verdict = RowVerdict::Failed;
    result.rows.push(row);
}
