//! A trial of one driver: sends every request once against softIoc, or QSRV2, to test that it can be installed and answers
//! correctly.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::{
    ClientUnderTest, CloseBy, ConnectedChannels, DriverFailure, DriverProcess, DriverReply, DriverRequest, Variant,
};
use crate::limit::BATCH_MAX;
use crate::peers;
use crate::protocol::LabProtocol;
use crate::server::{DatabaseFile, ServerKind, ServerUnderTest};

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
struct TrialLine<'a> {
    #[serde(rename = "asked")]
    request: &'a DriverRequest,
    answer: &'a DriverReply,
}

/// Writes the driver's greeting, then every request with its answer, one JSON object per line. Without a protocol it is
/// Channel Access, if the client is measured over it; without a server, that of EPICS.
pub fn run(
    client: ClientUnderTest,
    n: usize,
    (protocol, server): (Option<LabProtocol>, Option<ServerKind>),
    mut output: impl Write,
) -> Result<(), DriverFailure> {
    let peers = peers::present();
    if let Some(why) = client.missing(&peers) {
        return Err(DriverFailure::Unavailable { who: client.text().into(), why });
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |why: std::io::Error| DriverFailure::Operation { what, why: why.to_string() }
    };
    let file = DatabaseFile::write(n).map_err(failed("writing the database"))?;
    let database = file.path().with_file_name("trial.db");
    write_database(&file.path(), &database, n).map_err(failed("writing the database"))?;
    let has_ca = client.is_measured_over(LabProtocol::Ca);
    let protocol = protocol.unwrap_or(if has_ca { LabProtocol::Ca } else { LabProtocol::Pva });
    let kind = server.unwrap_or(match protocol {
        LabProtocol::Ca => ServerKind::SoftIoc,
        LabProtocol::Pva => ServerKind::Qsrv2,
    });
    let server = ServerUnderTest::start(kind, &database, None, None, &peers)?;
    let mut conversation = DriverProcess::start((client, protocol), &server, None, 0, &peers)?;
    let hello = DriverReply::Hello(conversation.hello().clone());
    let mut print = |line: Result<String, serde_json::Error>| {
        line.map_err(std::io::Error::from).and_then(|line| writeln!(output, "{line}")).map_err(failed("writing"))
    };
    print(serde_json::to_string(&hello))?;
    for request in &asks(client, protocol, n) {
        let answer = conversation.request(request, BATCH_MAX).unwrap_or_else(DriverReply::Failed);
        print(serde_json::to_string(&TrialLine { request, answer: &answer }))?;
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

fn asks(client: ClientUnderTest, protocol: LabProtocol, n: usize) -> Vec<DriverRequest> {
    let batch = |pattern: &str, variant| ConnectedChannels { pattern: pattern.into(), n, variant };
    let distinct = || batch(NUMBERED, Variant::Distinct);
    let equal = || batch(COUNTER, Variant::Equal);
    let mut asks = vec![
        DriverRequest::Open { pv: WAVEFORM.into(), n_channels: 1 },
        DriverRequest::MoveArray { n_elements: 10_000, salt: u32::MAX, n_gets: 3 },
        DriverRequest::Open { pv: COUNTER.into(), n_channels: n },
        DriverRequest::Open { pv: COUNTER.into(), n_channels: 1 },
        DriverRequest::GetScalars { n },
        DriverRequest::CreateContexts { n: n.min(5), pv: COUNTER.into() },
        DriverRequest::ContextClose { pv: COUNTER.into(), how: CloseBy::Explicit },
        DriverRequest::ContextClose { pv: COUNTER.into(), how: CloseBy::Scope },
        DriverRequest::CreateChannels(distinct()),
        DriverRequest::CreateChannels(equal()),
        DriverRequest::ConnectOneByOne(distinct()),
        DriverRequest::ConnectOneByOne(equal()),
        DriverRequest::ConnectAtOnce(distinct()),
        DriverRequest::ConnectAtOnce(equal()),
        DriverRequest::GetAtOnce(distinct()),
        DriverRequest::GetAtOnce(equal()),
        DriverRequest::MonitorAtOnce(distinct()),
        DriverRequest::MonitorAtOnce(equal()),
        DriverRequest::PutAtOnce(distinct()),
        DriverRequest::GetAtOnce(distinct()),
        DriverRequest::GetAtOnce(batch(MISNUMBERED, Variant::Distinct)),
        DriverRequest::MonitorAtOnce(batch(MISNUMBERED, Variant::Distinct)),
    ];
    if protocol == LabProtocol::Pva {
        asks.push(DriverRequest::GetWholeAtOnce(distinct()));
    }
    if client.external().is_none() || client.is_fodo_java() {
        asks.extend([DriverRequest::PutUnconfirmedAtOnce(distinct()), DriverRequest::GetInFlight(equal())]);
    }
    let peers_of_pvaccess = [ClientUnderTest::Pvxs, ClientUnderTest::Spvirit, ClientUnderTest::CorePva];
    if client.external().is_none() || client.is_fodo_java() || peers_of_pvaccess.contains(&client) {
        asks.extend([
            DriverRequest::GetInFlight(distinct()),
            DriverRequest::GetInFlight(batch(MISNUMBERED, Variant::Distinct)),
        ]);
    }
    asks
}
