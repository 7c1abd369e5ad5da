//! `fodo why`: finds out which step of connecting to a PV fails, and what to do.

use std::io;

use fodo_ca::eca::Eca;
use fodo_net::client::diagnosis::{ClaimResult, ClaimingServer, Diagnosis, SearchMethod, SearchResult};
use fodo_net::{ChannelFacts, ClientConfig, Reading, Refusal, Severity};
use serde_json::{Value as Json, json};

use crate::client::{ClientFlags, kind_name};
use crate::epics::OutputStreams;
use crate::exit::{CAUSES_OF_LOSS, Exit, explain_refusal};
use crate::json;
use crate::show::DisplayOptions;

/// Find out why a PV does not connect: which step fails, and what to do
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor` or `x:motor.RBV`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    client: ClientFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo why x:motor
  fodo why --json x:motor | jq '.verdict'

Every step is tested separately: the search at each address, the claims of all servers, the
connection to each server, the channel, its access rights, its value. Nothing is written. For a PV
without a server it takes the whole --timeout, because a slow server may still respond.

JSON keys: pv, searched (address, way: datagram name_server, outcome: sent nobody_listens not_sent,
reason), claims (server, after_s, outcome: not_connected silent lost invalid refused channel, and
its details), verdict, advice, code.";

/// The result of a diagnosis: what is wrong, what to do, and the exit code.
#[derive(Debug, PartialEq)]
struct Conclusion {
    exit: Exit,
    what: String,
    advice: String,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let config = match ClientConfig::from_env() {
        Ok(config) => config,
        Err(error) => {
            writeln!(outlet.err, "fodo: {error}")?;
            return Ok(Exit::Other);
        }
    };
    let mut exit = Exit::Done;
    for pv in &arguments.pvs {
        let diagnosis = Diagnosis::run(pv, &config, arguments.client.timeout)?;
        let is_record_there = diagnosis.claims.is_empty() && has_record(pv, &config, arguments)?;
        let verdict = judge(&diagnosis, is_record_there);
        let text = match arguments.client.json {
            true => json::line(object(&diagnosis, &verdict)),
            false => block(&diagnosis, &verdict),
        };
        outlet.out.write_all(text.as_bytes())?;
        // The next PV may take long.
        outlet.out.flush()?;
        exit = exit.and(verdict.exit);
    }
    Ok(exit)
}

/// Whether a server claims the record of a field that no server claims; then the field name is wrong.
fn has_record(pv: &str, config: &ClientConfig, arguments: &Arguments) -> io::Result<bool> {
    match pv.split_once('.') {
        Some((record, _field)) if !record.is_empty() => {
            let diagnosis = Diagnosis::run(record, config, arguments.client.timeout)?;
            Ok(!diagnosis.claims.is_empty())
        }
        _ => Ok(false),
    }
}

fn verdict(exit: Exit, what: impl Into<String>, advice: &str) -> Conclusion {
    Conclusion { exit, what: what.into(), advice: advice.into() }
}

fn judge(diagnosis: &Diagnosis, is_record_there: bool) -> Conclusion {
    match diagnosis.claims.as_slice() {
        [] => judge_search(diagnosis, is_record_there),
        [claimed] => judge_server(claimed),
        [_, ..] => {
            let servers: Vec<String> = diagnosis.claims.iter().map(|claimed| claimed.server.to_string()).collect();
            let first = diagnosis.claims.iter().map(judge_server).find(|verdict| verdict.exit != Exit::Done);
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
            "EPICS_CA_ADDR_LIST and EPICS_CA_NAME_SERVERS are empty and EPICS_CA_AUTO_ADDR_LIST is NO; set one of them",
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
            "start the IOC, or correct EPICS_CA_ADDR_LIST and EPICS_CA_SERVER_PORT (an IOC prints its address at the \
             start)",
        );
    }
    verdict(
        Exit::NotFound,
        format!("no server claimed the name within {:.1} s", diagnosis.waited.as_secs_f64()),
        "check that the name is spelled as in the database (case matters), that its IOC is running, and that the \
         addresses above contain its host or the broadcast address of its network; UDP must pass in both directions",
    )
}

fn judge_server(claimed: &ClaimingServer) -> Conclusion {
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
            "check that no firewall blocks this TCP port; a second IOC on a host uses a random port, unless \
             EPICS_CAS_SERVER_PORT is set",
        ),
        ClaimResult::Silent { after } => verdict(
            Exit::NoReply,
            format!("{server} accepted the connection but did not respond for {:.1} s", after.as_secs_f64()),
            "its IOC hangs or is suspended; check its console, or restart it",
        ),
        ClaimResult::Lost { reason } => {
            verdict(Exit::NoReply, format!("the connection to {server} was lost: {reason}"), CAUSES_OF_LOSS)
        }
        ClaimResult::Invalid { reason } => verdict(
            Exit::NoReply,
            format!("{server} sent an invalid message: {reason}"),
            "this is an error of that server, or the program on this port is not a Channel Access server",
        ),
        ClaimResult::Refused => verdict(
            Exit::Refused,
            format!("{server} claims the name but refuses the channel"),
            "a name server or gateway may respond for an ended IOC; on an IOC, the filter or field may be wrong",
        ),
        ClaimResult::Channel { facts, value, .. } => judge_value(facts, value.as_ref()),
    }
}

fn judge_value(facts: &ChannelFacts, value: Option<&Result<Box<Reading>, Refusal>>) -> Conclusion {
    let server = facts.server;
    match value {
        None => verdict(
            Exit::NoReply,
            format!("{server} has the channel but does not respond to a get"),
            "the record may be locked by processing that does not end; check the IOC's console",
        ),
        Some(Err(refusal)) => verdict(
            Exit::Refused,
            format!("{server} {}", explain_refusal(refusal)),
            match refusal {
                Refusal::ReadAccess | Refusal::Status { status: Eca::NORDACCESS, .. } => {
                    "the IOC's access security decides by user and host; this client sends both as known to the system"
                }
                _ => "the IOC has the PV but could not read it; check the record, and the console of its IOC",
            },
        ),
        Some(Ok(reading)) if reading.alarm.severity == Severity::Invalid => verdict(
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

fn block(diagnosis: &Diagnosis, verdict: &Conclusion) -> String {
    let mut text = format!("{}\n", diagnosis.pv);
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
        text += &format!("    {:<10}{}\n", "", outcome_of(&claimed.result));
        heading = "";
    }
    text += &format!("    {:<10}{}\n", "verdict", verdict.what);
    if !verdict.advice.is_empty() {
        text += &format!("    {:<10}{}\n", "advice", verdict.advice);
    }
    text
}

fn outcome_of(found: &ClaimResult) -> String {
    match found {
        ClaimResult::NotConnected { reason, .. } => format!("not connected: {reason}"),
        ClaimResult::Silent { after } => format!("connected, then silent for {:.1} s", after.as_secs_f64()),
        ClaimResult::Lost { reason } => format!("connected, then lost: {reason}"),
        ClaimResult::Invalid { reason } => format!("connected, then an invalid message: {reason}"),
        ClaimResult::Refused => "connected, channel refused".into(),
        ClaimResult::Channel { facts, after, value } => {
            let value = match value {
                None => "no reply to a get".to_owned(),
                Some(Err(refusal)) => refusal.to_string(),
                Some(Ok(reading)) => DisplayOptions::of_stdout().value(reading).to_string(),
            };
            let after_ms = after.as_secs_f64() * 1e3;
            let (kind, rights) = (kind_name(facts.kind), rights_of(facts));
            format!("channel after {after_ms:.1} ms: {kind}, up to {}, {rights}; value {value}", facts.count_max)
        }
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

fn object(diagnosis: &Diagnosis, verdict: &Conclusion) -> serde_json::Map<String, Json> {
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
    let claims: Vec<Json> = diagnosis.claims.iter().map(claim_object).collect();
    let mut object = serde_json::Map::new();
    object.insert("pv".into(), diagnosis.pv.as_str().into());
    object.insert("searched".into(), searched.into());
    object.insert("claims".into(), claims.into());
    object.insert("verdict".into(), verdict.what.as_str().into());
    object.insert("advice".into(), verdict.advice.as_str().into());
    object.insert("code".into(), verdict.exit.code().into());
    object
}

fn claim_object(claimed: &ClaimingServer) -> Json {
    let mut object = match &claimed.result {
        ClaimResult::NotConnected { reason, .. } => json!({"outcome": "not_connected", "reason": reason}),
        ClaimResult::Silent { after } => json!({"outcome": "silent", "silent_s": after.as_secs_f64()}),
        ClaimResult::Lost { reason } => json!({"outcome": "lost", "reason": reason}),
        ClaimResult::Invalid { reason } => json!({"outcome": "invalid", "reason": reason}),
        ClaimResult::Refused => json!({"outcome": "refused"}),
        ClaimResult::Channel { facts, after, value } => {
            let mut channel = json::facts("", facts, None);
            channel.remove("pv");
            channel.remove("record_type");
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
        Diagnosis { pv: "x:y".into(), searched, claims, waited: Duration::from_secs(1) }
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
        let verdict = judge(&diagnosis(&[SearchResult::Sent], &[ClaimResult::Refused, ClaimResult::Refused]), false);

        assert!(verdict.what.starts_with("2 servers claim the name"), "{verdict:?}");
        assert_eq!(verdict.exit, Exit::Refused);
    }

    fn channel(severity: Severity, may_write: bool) -> ClaimResult {
        let facts = ChannelFacts { server: SERVER, kind: fodo_net::Kind::F64, count_max: 3, may_read: true, may_write };
        let status = if severity == Severity::None { fodo_net::Status::NO_ALARM } else { fodo_net::Status::UDF };
        let reading = Reading {
            value: 1.5.into(),
            alarm: fodo_net::Alarm { severity, status },
            time: fodo_net::TimeStamp::default(),
            meta: None,
        };
        ClaimResult::Channel { facts, after: Duration::from_millis(2), value: Some(Ok(Box::new(reading))) }
    }

    #[test]
    fn each_failure_of_a_server_has_a_distinct_verdict() {
        let ClaimResult::Channel { facts, after, .. } = channel(Severity::None, true) else { return };
        let results = [
            (ClaimResult::NotConnected { reason: "refused".into(), is_refused: true }, Exit::Refused),
            (ClaimResult::NotConnected { reason: "timeout".into(), is_refused: false }, Exit::NoReply),
            (ClaimResult::Silent { after }, Exit::NoReply),
            (ClaimResult::Lost { reason: "reset".into() }, Exit::NoReply),
            (ClaimResult::Invalid { reason: "an unknown command".into() }, Exit::NoReply),
            (ClaimResult::Refused, Exit::Refused),
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
            &[channel(Severity::None, false), ClaimResult::Refused],
        );
        let by_name_server = |result| SearchedAddress { address: SERVER, method: SearchMethod::NameServer, result };
        found.searched.push(by_name_server(SearchResult::PortClosed));
        let verdict = judge(&found, false);

        let text = block(&found, &verdict);

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

    #[test]
    fn a_diagnosis_as_json_contains_every_step() {
        let outcomes = [
            ClaimResult::NotConnected { reason: "timeout".into(), is_refused: false },
            ClaimResult::Silent { after: Duration::from_secs(2) },
            ClaimResult::Lost { reason: "reset".into() },
            ClaimResult::Invalid { reason: "an unknown command".into() },
            ClaimResult::Refused,
            channel(Severity::None, true),
        ];
        let found = diagnosis(&[SearchResult::Sent, SearchResult::NotSent { reason: "no route".into() }], &outcomes);

        let object = Json::Object(object(&found, &judge(&found, false)));

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
