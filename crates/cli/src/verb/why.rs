//! `fodo why`: finds out which step of connecting to a PV fails, and what to do.

use std::io;

use fodo_ca::eca::Eca;
use fodo_net::client::diagnosis::{
    AwaitedReply, ClaimResult, ClaimingServer, DiagnosedValue, Diagnosis, SearchMethod, SearchResult,
};
use fodo_net::{ChannelFacts, ClientConfig, Error, ErrorKind, Protocol, Refusal, Severity};
use serde_json::{Value as Json, json};

use crate::client::{ClientFlags, ProtocolFlag, kind_name};
use crate::epics::OutputStreams;
use crate::exit::{Exit, protocol_name};
use crate::json;
use crate::show::DisplayOptions;
use crate::structure;

/// Find out why a PV does not connect: which step fails, and what to do
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor`, `x:motor.RBV` or `pva://x:motor`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    protocol: ProtocolFlag,
    #[command(flatten)]
    client: ClientFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo why x:motor
  fodo why pva://x:motor
  fodo why --json x:motor | jq '.verdict'

Every step is tested separately: the search at each address, the claims of all servers, the
connection to each server (with pvAccess also TLS, its greeting and whether it accepts this client),
the channel, its access rights, its value. Nothing is written. For a PV without a server it takes
the whole --timeout, because a slow server may still respond.

JSON keys: pv, protocol (ca, pva), searched (address, way: datagram name_server, outcome: sent
nobody_listens not_sent, reason), claims (server, after_s, outcome: not_connected handshake silent
lost invalid rejected refused channel, and its details), verdict, advice, code.";

/// The result of a diagnosis: what is wrong, what to do, and the exit code.
#[derive(Debug, PartialEq)]
struct Conclusion {
    exit: Exit,
    what: String,
    advice: String,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let config = match arguments.protocol.config_from_env() {
        Ok(config) => config,
        Err(error) => {
            writeln!(outlet.err, "fodo: {error}")?;
            return Ok(Exit::Other);
        }
    };
    let mut exit = Exit::Done;
    for pv in &arguments.pvs {
        let diagnosis = Diagnosis::run(pv, &config, arguments.client.timeout)?;
        let is_record_there = diagnosis.claims.is_empty() && has_record(&diagnosis, &config, arguments)?;
        let verdict = judge(&diagnosis, is_record_there);
        let text = match arguments.client.json {
            true => json::line(object(pv, &diagnosis, &verdict)),
            false => block(pv, &diagnosis, &verdict),
        };
        outlet.out.write_all(text.as_bytes())?;
        // The next PV may take long.
        outlet.out.flush()?;
        exit = exit.and(verdict.exit);
    }
    Ok(exit)
}

/// Whether a server claims the record of a field that no server claims; then the field name is wrong.
fn has_record(field: &Diagnosis, config: &ClientConfig, arguments: &Arguments) -> io::Result<bool> {
    match field.pv.split_once('.') {
        Some((record, _field)) if !record.is_empty() => {
            let record = format!("{}://{record}", field.protocol);
            let diagnosis = Diagnosis::run(&record, config, arguments.client.timeout)?;
            Ok(!diagnosis.claims.is_empty())
        }
        _ => Ok(false),
    }
}

/// What the environment variables of a protocol begin with.
fn variables(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Pva { "EPICS_PVA" } else { "EPICS_CA" }
}

fn verdict(exit: Exit, what: impl Into<String>, advice: impl Into<String>) -> Conclusion {
    Conclusion { exit, what: what.into(), advice: advice.into() }
}

fn judge(diagnosis: &Diagnosis, is_record_there: bool) -> Conclusion {
    match diagnosis.claims.as_slice() {
        [] => judge_search(diagnosis, is_record_there),
        [claimed] => judge_server(diagnosis.protocol, claimed),
        [_, ..] => {
            let servers: Vec<String> = diagnosis.claims.iter().map(|claimed| claimed.server.to_string()).collect();
            let mut verdicts = diagnosis.claims.iter().map(|claimed| judge_server(diagnosis.protocol, claimed));
            let first = verdicts.find(|verdict| verdict.exit != Exit::Done);
            verdict(
                first.map_or(Exit::Done, |verdict| verdict.exit),
                format!("{} servers claim the name: {}", servers.len(), servers.join(", ")),
                "a client connects to the first that responds, and may switch at every reconnect; stop one of them, or \
                 rename its records (perhaps a test IOC with the same database is running)",
            )
        }
    }
}

fn judge_search(diagnosis: &Diagnosis, is_record_there: bool) -> Conclusion {
    let all = |is: fn(&SearchResult) -> bool| diagnosis.searched.iter().all(|searched| is(&searched.result));
    let variables = variables(diagnosis.protocol);
    if is_record_there {
        return verdict(
            Exit::NotFound,
            "the record exists, but the field does not",
            "check the fields of its record type; `fodo info` on the record shows the type",
        );
    }
    if diagnosis.searched.is_empty() {
        return verdict(
            Exit::NotFound,
            "no search was sent",
            format!(
                "{variables}_ADDR_LIST and {variables}_NAME_SERVERS are empty and {variables}_AUTO_ADDR_LIST is NO; set \
                 one of them"
            ),
        );
    }
    if all(|result| matches!(result, SearchResult::NotSent { .. })) {
        return verdict(
            Exit::Other,
            "this host could not send the search to any address",
            "check that an interface is up, that these addresses have a route, and that no local firewall blocks UDP",
        );
    }
    if all(|result| matches!(result, SearchResult::PortClosed)) {
        return verdict(
            Exit::NotFound,
            "no server runs at any of the addresses",
            format!(
                "start the IOC, or correct {variables}_ADDR_LIST and {} (an IOC prints its address at the start)",
                if diagnosis.protocol == Protocol::Pva { "EPICS_PVA_BROADCAST_PORT" } else { "EPICS_CA_SERVER_PORT" }
            ),
        );
    }
    verdict(
        Exit::NotFound,
        format!("no server claimed the name within {:.1} s", diagnosis.waited.as_secs_f64()),
        "check that the name is spelled as in the database (case matters), that its IOC is running, and that the \
         addresses above contain its host or the broadcast address of its network; UDP must pass in both directions",
    )
}

fn judge_server(protocol: Protocol, claimed: &ClaimingServer) -> Conclusion {
    let server = claimed.server;
    match &claimed.result {
        ClaimResult::NotConnected { is_refused: true, .. } => verdict(
            Exit::Refused,
            format!("{server} answered the search but refuses the connection"),
            "the IOC has just ended, or a network address translation passes UDP but not TCP",
        ),
        ClaimResult::NotConnected { reason, is_refused: false } => verdict(
            Exit::NoReply,
            format!("{server} answered the search but cannot be connected to: {reason}"),
            format!(
                "check that no firewall blocks this TCP port; a second IOC on a host uses a random port, unless \
                 {}S_SERVER_PORT is set",
                variables(protocol)
            ),
        ),
        ClaimResult::Handshake { reason } => verdict(
            Exit::Refused,
            format!("the handshake of TLS with {server} failed: {reason}"),
            "check the certificates and the authorities in the keychains of both ends",
        ),
        ClaimResult::Silent { after, awaited } => judge_silence(claimed, after.as_secs_f64(), *awaited),
        ClaimResult::Lost { reason } => {
            let advice = Error::new("", ErrorKind::ConnectionClosed { server }).advice();
            verdict(Exit::NoReply, format!("the connection to {server} was lost: {reason}"), advice.unwrap_or_default())
        }
        ClaimResult::Invalid { reason } => verdict(
            Exit::NoReply,
            format!("{server} sent an invalid message: {reason}"),
            format!(
                "this is an error of that server, or the program on this port is not a {} server",
                protocol_name(protocol)
            ),
        ),
        ClaimResult::Rejected { reason } => verdict(
            Exit::Refused,
            // Quoted, since it may contain control characters.
            format!("{server} accepted the connection but rejects this client: {reason:?}"),
            "the server decides by user and host, which this client sends as known to the system",
        ),
        ClaimResult::Refused { reason } => verdict(
            Exit::Refused,
            format!("{server} claims the name but refuses the channel{}", server_text(reason)),
            "a name server or gateway may respond for an ended IOC; on an IOC, the filter or field may be wrong",
        ),
        ClaimResult::Channel { facts, value, .. } => judge_value(facts, value.as_ref()),
    }
}

/// A text of a server; empty without one. Quoted, since it may contain control characters.
fn server_text(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text:?}") }
}

fn judge_silence(claimed: &ClaimingServer, after_s: f64, awaited: AwaitedReply) -> Conclusion {
    let server = claimed.server;
    let hangs = "its IOC hangs or is suspended; check its console, or restart it";
    let (what, advice) = match awaited {
        AwaitedReply::Handshake => ("does not continue the handshake of TLS", hangs),
        AwaitedReply::Greeting => (
            "sends no greeting",
            "its IOC hangs or is suspended, or the program on this port is not a pvAccess server or expects TLS",
        ),
        AwaitedReply::Validation => (
            "neither accepts nor rejects this client",
            "the server may be unable to resolve the name of this host; check its console",
        ),
        AwaitedReply::Channel => {
            let what = format!("{server} accepted the connection but did not respond for {after_s:.1} s");
            return verdict(Exit::NoReply, what, hangs);
        }
    };
    verdict(Exit::NoReply, format!("{server} accepted the connection but {what} for {after_s:.1} s"), advice)
}

fn judge_value(facts: &ChannelFacts, value: Option<&Result<DiagnosedValue, Refusal>>) -> Conclusion {
    let server = facts.server;
    match value {
        None => verdict(
            Exit::NoReply,
            format!("{server} has the channel but does not respond to a get"),
            "the record may be locked by processing that does not end; check the IOC's console",
        ),
        Some(Err(refusal)) => verdict(
            Exit::Refused,
            format!("{server} refused {refusal}"),
            match refusal {
                Refusal::ReadAccess | Refusal::Status { status: Eca::NORDACCESS, .. } => {
                    "the IOC's access security decides by user and host; this client sends both as known to the system"
                }
                _ => "the IOC has the PV but could not read it; check the record, and the console of its IOC",
            },
        ),
        Some(Ok(DiagnosedValue::Reading(reading))) if reading.alarm.severity == Severity::Invalid => verdict(
            Exit::Done,
            format!("connected; the value is INVALID, status {}", reading.alarm.status),
            match reading.alarm.status.to_string().as_str() {
                "UDF" => "the record has never been processed: give it a scan, PINI, or a value",
                _ => "the connection works; the record reports that its value cannot be trusted",
            },
        ),
        Some(Ok(_)) if !facts.may_write => {
            verdict(Exit::Done, "nothing is wrong; no write access", "access security, or a read-only field")
        }
        Some(Ok(_)) => verdict(Exit::Done, "nothing is wrong", ""),
    }
}

/// `pv`: the name as the user typed it.
fn block(pv: &str, diagnosis: &Diagnosis, verdict: &Conclusion) -> String {
    let mut text = format!("{pv}\n");
    let mut heading = "searched";
    for searched in &diagnosis.searched {
        let outcome = match (&searched.result, searched.method) {
            (SearchResult::Sent, SearchMethod::Datagram) => String::new(),
            (SearchResult::Sent, SearchMethod::NameServer) => "name server".into(),
            (SearchResult::PortClosed, SearchMethod::Datagram) => "no server on this port".into(),
            (SearchResult::PortClosed, SearchMethod::NameServer) => "name server; no server on this port".into(),
            (SearchResult::NotSent { reason }, SearchMethod::Datagram) => format!("not sent: {reason}"),
            (SearchResult::NotSent { reason }, SearchMethod::NameServer) => {
                format!("name server; not searched: {reason}")
            }
        };
        let line = format!("    {heading:<10}{:<22}{outcome}", searched.address.to_string());
        text += &format!("{}\n", line.trim_end());
        heading = "";
    }
    heading = "claimed";
    for claimed in &diagnosis.claims {
        let after_ms = claimed.after.as_secs_f64() * 1e3;
        text += &format!("    {heading:<10}{:<22}after {after_ms:.1} ms\n", claimed.server.to_string());
        text += &format!("    {:<10}{}\n", "", outcome_of(diagnosis.protocol, &claimed.result));
        heading = "";
    }
    text += &format!("    {:<10}{}\n", "verdict", verdict.what);
    if !verdict.advice.is_empty() {
        text += &format!("    {:<10}{}\n", "advice", verdict.advice);
    }
    text
}

fn outcome_of(protocol: Protocol, found: &ClaimResult) -> String {
    match found {
        ClaimResult::NotConnected { reason, .. } => format!("not connected: {reason}"),
        ClaimResult::Handshake { reason } => format!("connected, then the handshake of TLS failed: {reason}"),
        ClaimResult::Silent { after, awaited } => {
            let awaited = match awaited {
                AwaitedReply::Handshake => ", in the handshake of TLS",
                AwaitedReply::Greeting => ", without a greeting",
                AwaitedReply::Validation => ", without accepting this client",
                AwaitedReply::Channel => "",
            };
            format!("connected, then silent for {:.1} s{awaited}", after.as_secs_f64())
        }
        ClaimResult::Lost { reason } => format!("connected, then lost: {reason}"),
        ClaimResult::Invalid { reason } => format!("connected, then an invalid message: {reason}"),
        ClaimResult::Rejected { reason } => format!("connected, client rejected{}", server_text(reason)),
        ClaimResult::Refused { reason } => format!("connected, channel refused{}", server_text(reason)),
        ClaimResult::Channel { facts, after, value } => {
            let value_text = match value {
                None => "no reply to a get".to_owned(),
                Some(Err(refusal)) => refusal.to_string(),
                Some(Ok(DiagnosedValue::Reading(reading))) => {
                    format!("value {}", DisplayOptions::of_stdout().value(reading))
                }
                Some(Ok(DiagnosedValue::Structure(structure))) => structure::type_name(structure.kind()).to_string(),
            };
            let after_ms = after.as_secs_f64() * 1e3;
            let tls = if facts.tls.is_some() { " with TLS" } else { "" };
            format!("channel{tls} after {after_ms:.1} ms: {}{value_text}", type_of(protocol, facts, value.as_ref()))
        }
    }
}

/// Type, length and rights of a channel, as far as its protocol reports them.
fn type_of(protocol: Protocol, facts: &ChannelFacts, value: Option<&Result<DiagnosedValue, Refusal>>) -> String {
    let kind = kind_name(facts.kind);
    match (protocol, value) {
        (Protocol::Ca, _) => format!("{kind}, up to {}, {}; ", facts.count_max, rights_of(facts)),
        (_, Some(Ok(DiagnosedValue::Reading(_)))) => match facts.count_max {
            0 => format!("{kind}, any number of elements; "),
            1 => format!("{kind}; "),
            n => format!("{kind}, up to {n}; "),
        },
        _ => String::new(),
    }
}

fn rights_of(facts: &ChannelFacts) -> &'static str {
    match (facts.may_read, facts.may_write) {
        (true, true) => "read, write",
        (true, false) => "read only",
        (false, true) => "write only",
        (false, false) => "no access",
    }
}

fn object(pv: &str, diagnosis: &Diagnosis, verdict: &Conclusion) -> serde_json::Map<String, Json> {
    let searched: Vec<Json> = diagnosis
        .searched
        .iter()
        .map(|searched| {
            let (outcome, reason) = match &searched.result {
                SearchResult::Sent => ("sent", None),
                SearchResult::PortClosed => ("nobody_listens", None),
                SearchResult::NotSent { reason } => ("not_sent", Some(reason)),
            };
            let way = if searched.method == SearchMethod::NameServer { "name_server" } else { "datagram" };
            json!({"address": searched.address.to_string(), "way": way, "outcome": outcome, "reason": reason})
        })
        .collect();
    let claims: Vec<Json> = diagnosis.claims.iter().map(|claimed| claim_object(diagnosis.protocol, claimed)).collect();
    let mut object = serde_json::Map::new();
    object.insert("pv".into(), pv.into());
    object.insert("protocol".into(), diagnosis.protocol.to_string().into());
    object.insert("searched".into(), searched.into());
    object.insert("claims".into(), claims.into());
    object.insert("verdict".into(), verdict.what.as_str().into());
    object.insert("advice".into(), verdict.advice.as_str().into());
    object.insert("code".into(), verdict.exit.code().into());
    object
}

fn claim_object(protocol: Protocol, claimed: &ClaimingServer) -> Json {
    let mut object = match &claimed.result {
        ClaimResult::NotConnected { reason, .. } => json!({"outcome": "not_connected", "reason": reason}),
        ClaimResult::Handshake { reason } => json!({"outcome": "handshake", "reason": reason}),
        ClaimResult::Silent { after, awaited } => {
            let awaited = match awaited {
                AwaitedReply::Handshake => "handshake",
                AwaitedReply::Greeting => "greeting",
                AwaitedReply::Validation => "validation",
                AwaitedReply::Channel => "channel",
            };
            json!({"outcome": "silent", "silent_s": after.as_secs_f64(), "awaited": awaited})
        }
        ClaimResult::Lost { reason } => json!({"outcome": "lost", "reason": reason}),
        ClaimResult::Invalid { reason } => json!({"outcome": "invalid", "reason": reason}),
        ClaimResult::Rejected { reason } => json!({"outcome": "rejected", "reason": reason}),
        ClaimResult::Refused { reason } if reason.is_empty() => json!({"outcome": "refused"}),
        ClaimResult::Refused { reason } => json!({"outcome": "refused", "reason": reason}),
        ClaimResult::Channel { facts, after, value } => {
            let mut channel = json::facts("", protocol, facts, None);
            channel.remove("pv");
            channel.remove("record_type");
            match value {
                Some(Ok(DiagnosedValue::Structure(structure))) => {
                    channel.insert("kind".into(), "structure".into());
                    channel.insert("id".into(), structure.kind().id().to_str().into());
                }
                // Its type is known with its value only.
                None | Some(Err(_)) if protocol == Protocol::Pva => {
                    channel.insert("kind".into(), Json::Null);
                }
                _ => {}
            }
            channel.insert("outcome".into(), "channel".into());
            channel.insert("channel_after_s".into(), after.as_secs_f64().into());
            channel.insert("is_readable".into(), matches!(value, Some(Ok(_))).into());
            Json::Object(channel)
        }
    };
    object["server"] = claimed.server.to_string().into();
    object["after_s"] = claimed.after.as_secs_f64().into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::client::diagnosis::SearchedAddress;
    use fodo_net::{Kind, Reading, Structure, StructureBuilder};
    use std::net::SocketAddr;
    use std::time::Duration;

    const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5064);

    fn diagnosis(outcomes: &[SearchResult], found: &[ClaimResult]) -> Diagnosis {
        let searched = outcomes
            .iter()
            .map(|outcome| SearchedAddress { address: SERVER, method: SearchMethod::Datagram, result: outcome.clone() })
            .collect();
        let after = Duration::from_millis(1);
        let claims =
            found.iter().map(|found| ClaimingServer { server: SERVER, after, result: found.clone() }).collect();
        Diagnosis { pv: "x:y".into(), protocol: Protocol::Ca, searched, claims, waited: Duration::from_secs(1) }
    }

    #[test]
    fn each_search_failure_has_a_distinct_verdict() {
        let unsent = SearchResult::NotSent { reason: "no route".into() };
        let verdicts = [
            judge(&diagnosis(&[], &[]), false),
            judge(&diagnosis(std::slice::from_ref(&unsent), &[]), false),
            judge(&diagnosis(&[SearchResult::PortClosed], &[]), false),
            judge(&diagnosis(&[SearchResult::PortClosed, SearchResult::Sent], &[]), false),
            judge(&diagnosis(&[SearchResult::Sent], &[]), true),
        ];

        for (index, verdict) in verdicts.iter().enumerate() {
            assert!(!verdict.advice.is_empty(), "{verdict:?}");
            assert!(verdicts.iter().skip(index + 1).all(|other| other.what != verdict.what), "{verdict:?}");
        }
        assert_eq!(verdicts[1].exit, Exit::Other);
        assert_eq!(verdicts[2].exit, Exit::NotFound);
    }

    #[test]
    fn why_reports_duplicate_servers_before_other_results() {
        let verdict = judge(&diagnosis(&[SearchResult::Sent], &[refused(), refused()]), false);

        assert!(verdict.what.starts_with("2 servers claim the name"), "{verdict:?}");
        assert_eq!(verdict.exit, Exit::Refused);
    }

    fn refused() -> ClaimResult {
        ClaimResult::Refused { reason: String::new() }
    }

    fn silent(awaited: AwaitedReply) -> ClaimResult {
        ClaimResult::Silent { after: Duration::from_secs(2), awaited }
    }

    fn value(reading: Reading) -> DiagnosedValue {
        DiagnosedValue::Reading(Box::new(reading))
    }

    fn channel(severity: Severity, may_write: bool) -> ClaimResult {
        let facts = ChannelFacts {
            server: SERVER,
            kind: fodo_net::Kind::F64,
            count_max: 3,
            may_read: true,
            may_write,
            tls: None,
        };
        let status = if severity == Severity::None { fodo_net::Status::NO_ALARM } else { fodo_net::Status::UDF };
        let reading = Reading { alarm: fodo_net::Alarm { severity, status }, ..Reading::bare(1.5.into()) };
        ClaimResult::Channel { facts, after: Duration::from_millis(2), value: Some(Ok(value(reading))) }
    }

    #[test]
    fn each_failure_of_a_server_has_a_distinct_verdict() {
        let ClaimResult::Channel { facts, after, .. } = channel(Severity::None, true) else { return };
        let results = [
            (ClaimResult::NotConnected { reason: "refused".into(), is_refused: true }, Exit::Refused),
            (ClaimResult::NotConnected { reason: "timeout".into(), is_refused: false }, Exit::NoReply),
            (silent(AwaitedReply::Handshake), Exit::NoReply),
            (silent(AwaitedReply::Greeting), Exit::NoReply),
            (silent(AwaitedReply::Validation), Exit::NoReply),
            (silent(AwaitedReply::Channel), Exit::NoReply),
            (ClaimResult::Lost { reason: "reset".into() }, Exit::NoReply),
            (ClaimResult::Invalid { reason: "an unknown command".into() }, Exit::NoReply),
            (ClaimResult::Handshake { reason: "expired".into() }, Exit::Refused),
            (ClaimResult::Rejected { reason: "who?".into() }, Exit::Refused),
            (refused(), Exit::Refused),
            (ClaimResult::Refused { reason: "no such PV".into() }, Exit::Refused),
            (ClaimResult::Channel { facts: facts.clone(), after, value: None }, Exit::NoReply),
            (ClaimResult::Channel { facts, after, value: Some(Err(Refusal::ReadAccess)) }, Exit::Refused),
            (channel(Severity::Invalid, true), Exit::Done),
            (channel(Severity::Major, false), Exit::Done),
            (channel(Severity::Major, true), Exit::Done),
        ];

        let verdicts = results.map(|(result, exit)| {
            let verdict = judge(&diagnosis(&[SearchResult::Sent], std::slice::from_ref(&result)), false);
            assert_eq!(verdict.exit, exit, "{verdict:?}");
            verdict
        });

        for (index, verdict) in verdicts.iter().enumerate() {
            assert!(verdicts.iter().skip(index + 1).all(|other| other.what != verdict.what), "{verdict:?}");
        }
        let [.., invalid, read_only, good] = verdicts;
        assert_eq!(invalid.what, "connected; the value is INVALID, status UDF");
        assert!(invalid.advice.contains("never been processed") && read_only.what.contains("no write access"));
        assert_eq!((good.what.as_str(), good.advice.as_str()), ("nothing is wrong", ""));
    }

    #[test]
    fn only_a_denied_access_is_explained_with_access_security() {
        let ClaimResult::Channel { facts, .. } = channel(Severity::None, true) else { return };
        let advice = |refusal| judge_value(&facts, Some(&Err(refusal))).advice;

        for denied in [Refusal::ReadAccess, Eca::NORDACCESS.into()] {
            assert!(advice(denied).contains("access security"));
        }
        let failed = advice(Eca::GETFAIL.into());
        assert!(!failed.contains("access security") && failed.contains("check the record"), "{failed}");
    }

    #[test]
    fn a_diagnosis_is_shown_step_by_step() {
        let mut found = diagnosis(
            &[SearchResult::Sent, SearchResult::PortClosed, SearchResult::NotSent { reason: "no route".into() }],
            &[channel(Severity::None, false), refused()],
        );
        let by_name_server = |result| SearchedAddress { address: SERVER, method: SearchMethod::NameServer, result };
        found.searched.push(by_name_server(SearchResult::PortClosed));
        let verdict = judge(&found, false);

        let text = block("x:y", &found, &verdict);

        let lines: Vec<&str> = text.lines().take(9).collect();
        assert_eq!(
            lines,
            [
                "x:y",
                "    searched  127.0.0.1:5064",
                "              127.0.0.1:5064        no server on this port",
                "              127.0.0.1:5064        not sent: no route",
                "              127.0.0.1:5064        name server; no server on this port",
                "    claimed   127.0.0.1:5064        after 1.0 ms",
                "              channel after 2.0 ms: double, up to 3, read only; value 1.5",
                "              127.0.0.1:5064        after 1.0 ms",
                "              connected, channel refused",
            ]
        );
        assert!(text.contains("\n    verdict   2 servers claim the name: "), "{text}");
        assert!(text.contains("\n    advice    a client connects to the first"), "{text}");
    }

    /// The results of a search over pvAccess: a number, a structure, a PV that cannot be read, and a channel that is refused.
    fn over_pva() -> Diagnosis {
        let mut build = StructureBuilder::new("scan_t");
        let structure = Structure::new(build.scalar("n", Kind::I32).finish().into());
        let of = |kind, count_max, value| {
            let facts = ChannelFacts { server: SERVER, kind, count_max, may_read: true, may_write: true, tls: None };
            ClaimResult::Channel { facts, after: Duration::from_millis(2), value: Some(value) }
        };
        let results = [
            of(Kind::F64, 1, Ok(value(Reading::bare(1.5.into())))),
            of(Kind::I32, 0, Ok(value(Reading::bare(vec![1, 2].into())))),
            of(Kind::Text, 0, Ok(DiagnosedValue::Structure(structure.into()))),
            of(Kind::Text, 0, Err(Refusal::Reported { text: "only calls".into() })),
            ClaimResult::Refused { reason: "no\u{1b}such PV".into() },
        ];
        Diagnosis { protocol: Protocol::Pva, ..diagnosis(&[SearchResult::Sent], &results) }
    }

    #[test]
    fn a_diagnosis_of_pvaccess_shows_what_its_servers_report() {
        let found = over_pva();

        let text = block("pva://x:y", &found, &judge(&found, false));

        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert_eq!(lines[0], "pva://x:y");
        assert_eq!(lines[3], "channel after 2.0 ms: double; value 1.5");
        assert!(lines[5].starts_with("channel after 2.0 ms: long, any number of elements; value "), "{}", lines[5]);
        assert_eq!(lines[7], "channel after 2.0 ms: scan_t");
        assert!(lines[9].starts_with("channel after 2.0 ms: ") && lines[9].contains("only calls"), "{}", lines[9]);
        assert_eq!(lines[11], "connected, channel refused: \"no\\u{1b}such PV\"");
    }

    #[test]
    fn a_diagnosis_of_pvaccess_as_json_has_no_rights_and_the_kind_as_far_as_it_is_known() {
        let found = over_pva();

        let object = Json::Object(object("pva://x:y", &found, &judge(&found, false)));

        assert_eq!((&object["pv"], &object["protocol"]), (&json!("pva://x:y"), &json!("pva")));
        let claims = object["claims"].as_array().unwrap();
        let kinds: Vec<&Json> = claims.iter().map(|claim| &claim["kind"]).collect();
        assert_eq!(kinds, [&json!("double"), &json!("long"), &json!("structure"), &Json::Null, &Json::Null]);
        assert_eq!((&claims[0]["read"], &claims[2]["id"]), (&Json::Null, &json!("scan_t")));
        let readable = [true, true, true, false].map(Json::from);
        assert!(claims.iter().zip(&readable).all(|(claim, is_readable)| claim["is_readable"] == *is_readable));
        assert_eq!(claims[4]["reason"], "no\u{1b}such PV");
    }

    #[test]
    fn the_advice_names_the_variables_of_the_protocol() {
        for (protocol, variables) in [
            (Protocol::Ca, ["EPICS_CA_NAME_SERVERS", "EPICS_CA_SERVER_PORT", "EPICS_CAS_SERVER_PORT"]),
            (Protocol::Pva, ["EPICS_PVA_NAME_SERVERS", "EPICS_PVA_BROADCAST_PORT", "EPICS_PVAS_SERVER_PORT"]),
        ] {
            let unreachable = ClaimResult::NotConnected { reason: "timeout".into(), is_refused: false };
            let of = |outcomes: &[SearchResult], found: &[ClaimResult]| {
                judge(&Diagnosis { protocol, ..diagnosis(outcomes, found) }, false).advice
            };
            let advice =
                [of(&[], &[]), of(&[SearchResult::PortClosed], &[]), of(&[SearchResult::Sent], &[unreachable])];

            assert!(advice.iter().zip(variables).all(|(advice, variable)| advice.contains(variable)), "{advice:?}");
        }
    }

    #[test]
    fn a_diagnosis_as_json_contains_every_step() {
        let outcomes = [
            ClaimResult::NotConnected { reason: "timeout".into(), is_refused: false },
            silent(AwaitedReply::Channel),
            ClaimResult::Lost { reason: "reset".into() },
            ClaimResult::Invalid { reason: "an unknown command".into() },
            refused(),
            channel(Severity::None, true),
        ];
        let found = diagnosis(&[SearchResult::Sent, SearchResult::NotSent { reason: "no route".into() }], &outcomes);

        let object = Json::Object(object("x:y", &found, &judge(&found, false)));

        let outcomes: Vec<&Json> = object["claims"].as_array().unwrap().iter().map(|claim| &claim["outcome"]).collect();
        assert_eq!(outcomes, ["not_connected", "silent", "lost", "invalid", "refused", "channel"]);
        let claims = &object["claims"];
        assert_eq!((&claims[0]["reason"], &claims[1]["silent_s"]), (&json!("timeout"), &json!(2.0)));
        assert_eq!((&claims[2]["reason"], &claims[3]["reason"]), (&json!("reset"), &json!("an unknown command")));
        let channel = &claims[5];
        assert_eq!((&channel["server"], &channel["after_s"]), (&json!("127.0.0.1:5064"), &json!(0.001)));
        assert_eq!((&channel["channel_after_s"], &channel["is_readable"]), (&json!(0.002), &json!(true)));
        assert_eq!(channel.get("pv"), None);
        assert_eq!(object["searched"][1]["outcome"], "not_sent");
        assert_eq!(
            (&object["searched"][1]["reason"], &object["searched"][0]["way"]),
            (&json!("no route"), &json!("datagram"))
        );
        assert_eq!((&object["pv"], &object["code"]), (&json!("x:y"), &json!(Exit::NoReply.code())));
    }
}
