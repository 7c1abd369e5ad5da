//! A trial of one driver: sends every request once against softIoc, to test that it can be installed and answers
//! correctly.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::{Answer, Ask, Batch, Client, Conversation, Ending, Failure, Variant};
use crate::limit::BATCH_MAX;
use crate::peers;
use crate::server::{DatabaseFile, Server, ServerKind};

/// PVs whose value is their number.
const NUMBERED: &str = "lab:{:06}";
/// PVs whose value differs from their number.
const MISNUMBERED: &str = "wrong:{:06}";
/// A PV whose value changes.
const COUNTER: &str = "ca:test:counter01";
/// A PV with space for millions of elements.
const WAVEFORM: &str = "ca:test:rawdata";

/// One line of the output.
#[derive(Serialize)]
struct Exchange<'a> {
    asked: &'a Ask,
    answer: &'a Answer,
}

/// Writes the driver's greeting, then every request with its answer, one JSON object per line.
pub fn run(client: Client, n: usize, mut output: impl Write) -> Result<(), Failure> {
    let peers = peers::present();
    if let Some(why) = client.missing(&peers) {
        return Err(Failure::Unavailable { who: client.text().into(), why });
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |why: std::io::Error| Failure::Operation { what, why: why.to_string() }
    };
    let file = DatabaseFile::write(n).map_err(failed("writing the database"))?;
    let database = file.path().with_file_name("trial.db");
    write_database(&file.path(), &database, n).map_err(failed("writing the database"))?;
    let server = Server::start(ServerKind::SoftIoc, &database, None, None, &peers)?;
    let mut conversation = Conversation::start(client, &server, None, 0, &peers)?;
    let hello = Answer::Hello(conversation.hello().clone());
    let mut say = |line: Result<String, serde_json::Error>| {
        line.map_err(std::io::Error::from).and_then(|line| writeln!(output, "{line}")).map_err(failed("writing"))
    };
    say(serde_json::to_string(&hello))?;
    for ask in &asks(client, n) {
        let answer = conversation.ask_within(ask, BATCH_MAX).unwrap_or_else(Answer::Failed);
        say(serde_json::to_string(&Exchange { asked: ask, answer: &answer }))?;
    }
    Ok(())
}

fn write_database(from: &Path, to: &Path, n: usize) -> std::io::Result<()> {
    let mut text = std::fs::read_to_string(from)?;
    for index in 0..n {
        text.push_str(&format!("record(ao, \"wrong:{index:06}\") {{ field(VAL, \"77\") field(PINI, \"YES\") }}\n"));
    }
    std::fs::write(to, text)
}

fn asks(client: Client, n: usize) -> Vec<Ask> {
    let batch = |pattern: &str, variant| Batch { pattern: pattern.into(), n, variant };
    let distinct = || batch(NUMBERED, Variant::Distinct);
    let equal = || batch(COUNTER, Variant::Equal);
    let mut asks = vec![
        Ask::Open { pv: WAVEFORM.into(), n_channels: 1 },
        Ask::MoveArray { n_elements: 10_000, salt: u32::MAX, n_gets: 3 },
        Ask::Open { pv: COUNTER.into(), n_channels: n },
        Ask::Open { pv: COUNTER.into(), n_channels: 1 },
        Ask::GetScalars { n },
        Ask::CreateContexts { n: n.min(5), pv: COUNTER.into() },
        Ask::ContextClose { pv: COUNTER.into(), how: Ending::Explicit },
        Ask::ContextClose { pv: COUNTER.into(), how: Ending::Scope },
        Ask::CreateChannels(distinct()),
        Ask::CreateChannels(equal()),
        Ask::ConnectOneByOne(distinct()),
        Ask::ConnectOneByOne(equal()),
        Ask::ConnectAtOnce(distinct()),
        Ask::ConnectAtOnce(equal()),
        Ask::GetAtOnce(distinct()),
        Ask::GetAtOnce(equal()),
        Ask::MonitorAtOnce(distinct()),
        Ask::MonitorAtOnce(equal()),
        Ask::PutAtOnce(distinct()),
        Ask::GetAtOnce(distinct()),
        Ask::GetAtOnce(batch(MISNUMBERED, Variant::Distinct)),
        Ask::MonitorAtOnce(batch(MISNUMBERED, Variant::Distinct)),
    ];
    if client.external().is_none() {
        asks.extend([Ask::PutUnconfirmedAtOnce(distinct()), Ask::GetInFlight(distinct())]);
        asks.extend([Ask::GetInFlight(equal()), Ask::GetInFlight(batch(MISNUMBERED, Variant::Distinct))]);
    }
    asks
}
