//! `fodo search`: searches for names, and watches the searches of all clients.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fodo_net::traffic_monitor::{NameState, NameTraffic, SearchMonitor, ServerTraffic, TrafficMonitor};
use fodo_net::{ClientConfig, Notice};
use serde_json::{Map, Value as Json};

use crate::client::{channel_access_name, seconds};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::limit;

/// Find the servers of a name, or watch the searches of all clients
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names of Channel Access to search for
    #[arg(required_unless_present = "watch", value_name = "PV", value_parser = channel_access_name)]
    pvs: Vec<String>,
    /// Watch the searches of all clients and the beacons of all servers, until a signal or --for
    #[arg(long, conflicts_with = "pvs")]
    watch: bool,
    /// Seconds between two reports of --watch
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, requires = "watch")]
    every: Duration,
    /// End --watch after this time
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds, requires = "watch")]
    duration: Option<Duration>,
    /// Maximum number of names in a report of --watch
    #[arg(long, value_name = "N", default_value_t = 40, requires = "watch")]
    rows: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo search x:motor x:motor.RBV
  fodo search --watch
  fodo search --watch --for 60 --json | jq 'select(.state == \"dead\")'

With names it searches for them like a client and lists every server that responds. It uses only
UDP, not name servers. A name without a server after 2 s is reported, and the exit code is 3.

With --watch it listens for searches on the ports of EPICS_CA_ADDR_LIST and EPICS_CA_SERVER_PORT. It
reports how often each name is searched for, by which clients, and which servers have it. A name
without a server is dead, and costs every server on the network time as long as a client searches
for it; a name with two servers connects to whichever responds first. Because it cannot receive the
responses to other clients, it also searches for every name it sees, several times within 2 s, and
again after a minute. On a host with servers it receives only broadcasts and multicasts, because
unicasts to the host are delivered to only one program. Servers are listed by their beacons, which
are received through the repeater.

JSON keys: event (name, server); for a name: pv, asked, per_s, clients (address, asked), state
(awaited, claimed, dead), servers; for a server: server, beacons, restarts. With --watch, a report
has one line for each name and server, and per_s is the mean since the start.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let started = ClientConfig::from_env().map_err(|error| error.to_string()).and_then(|config| {
        let monitor =
            if arguments.watch { TrafficMonitor::listening(&config) } else { TrafficMonitor::searching(&config) };
        monitor.map_err(|error| error.to_string())
    });
    match started {
        Ok(monitor) if arguments.watch => watch(arguments, monitor, outlet),
        Ok(monitor) => search_names(arguments, monitor, outlet),
        Err(error) => {
            writeln!(outlet.err, "fodo search: {error}")?;
            Ok(Exit::Other)
        }
    }
}

fn search_names(
    arguments: &Arguments,
    mut monitor: TrafficMonitor,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Exit> {
    arguments.pvs.iter().for_each(|pv| monitor.search(pv));
    let is_known = |name: &NameTraffic| name.state != NameState::Awaited;
    let start = Instant::now();
    monitor.run(Duration::from_secs(3600), |traffic| traffic.names().iter().all(is_known))?;
    monitor.run(limit::LATE_CLAIM, |_| false)?;
    report_unresolved(&mut monitor, outlet)?;
    let mut exit = Exit::Done;
    for name in monitor.traffic().names() {
        let text = match arguments.json {
            true => json::line(name_object(name, start.elapsed())),
            false => format!("{}  {}\n", name.name, servers_text(name)),
        };
        outlet.out.write_all(text.as_bytes())?;
        if name.state != NameState::Claimed {
            exit = Exit::NotFound;
        }
    }
    Ok(exit)
}

fn watch(arguments: &Arguments, mut monitor: TrafficMonitor, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stop = is_stopped.clone();
    crate::stop::on_signal(move || stop.store(true, Ordering::Release))?;
    let listening_on: Vec<String> = monitor.listening_on().iter().map(SocketAddr::to_string).collect();
    writeln!(outlet.err, "fodo search: listening on {}", listening_on.join(", "))?;
    let start = Instant::now();
    let end = arguments.duration.map(|duration| start + duration);
    let mut report_at = start + arguments.every;
    loop {
        let next = end.map_or(report_at, |end| end.min(report_at)).min(Instant::now() + limit::SIGNAL_NOTICED);
        monitor.run(next.saturating_duration_since(Instant::now()), |_| false)?;
        let now = Instant::now();
        let is_over = is_stopped.load(Ordering::Acquire) || end.is_some_and(|end| end <= now);
        if is_over || report_at <= now {
            report_unresolved(&mut monitor, outlet)?;
            let text = match arguments.json {
                true => lines(monitor.traffic(), now - start),
                false => report(monitor.traffic(), now - start, arguments.rows),
            };
            outlet.out.write_all(text.as_bytes())?;
            outlet.out.flush()?;
            report_at = now + arguments.every;
        }
        if is_over {
            return Ok(Exit::Done);
        }
    }
}

fn report_unresolved(monitor: &mut TrafficMonitor, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
    for host in monitor.take_unresolved() {
        writeln!(outlet.err, "fodo search: {}", Notice::UnresolvedHost { host })?;
    }
    Ok(())
}

fn servers_text(name: &NameTraffic) -> String {
    let servers: Vec<String> = name.servers.iter().map(SocketAddr::to_string).collect();
    match (name.state, servers.as_slice()) {
        (NameState::Awaited, _) => "?".to_owned(),
        (NameState::Dead, _) | (_, []) => "NO SERVER".to_owned(),
        (_, [server]) => server.clone(),
        (_, several) => format!("{} SERVERS: {}", several.len(), several.join(" ")),
    }
}

fn per_s(n: u64, elapsed: Duration) -> f64 {
    n as f64 / elapsed.as_secs_f64().max(0.001)
}

/// The names by urgency: dead names, then names with several servers, then the others; each most requested first.
fn in_order(traffic: &SearchMonitor) -> Vec<&NameTraffic> {
    let urgency = |name: &NameTraffic| match (name.state, name.servers.len()) {
        (NameState::Dead, _) => 0,
        (NameState::Claimed, 2..) => 1,
        _ => 2,
    };
    let mut names: Vec<&NameTraffic> = traffic.names().iter().collect();
    names.sort_by_key(|name| (urgency(name), std::cmp::Reverse(name.n_searches)));
    names
}

fn report(traffic: &SearchMonitor, elapsed: Duration, n_rows: usize) -> String {
    let clients: HashSet<SocketAddr> =
        traffic.names().iter().flat_map(|name| &name.clients).map(|client| client.address).collect();
    let is_dead = |name: &&NameTraffic| name.state == NameState::Dead;
    let mut text = format!(
        "{:.0} s: {} searches for {} names by {} clients, {} dead names, {} servers seen\n",
        elapsed.as_secs_f64(),
        traffic.n_searches(),
        traffic.names().len(),
        clients.len(),
        traffic.names().iter().filter(is_dead).count(),
        traffic.servers().len()
    );
    let names = in_order(traffic);
    let shown = || names.iter().take(n_rows);
    let width = shown().map(|name| name.name.chars().count()).max().unwrap_or(0).max(4);
    if !names.is_empty() {
        text += &format!("  {:<width$}  {:>7} {:>8}  ANSWER, ASKED BY\n", "NAME", "ASKED", "PER S");
    }
    for name in shown() {
        let (rate, answer, by) = (per_s(name.n_searches, elapsed), servers_text(name), clients_text(name));
        text += &format!("  {:<width$}  {:>7} {rate:>8.2}  {answer}, {by}\n", name.name, name.n_searches);
    }
    if names.len() > n_rows {
        text += &format!("  and {} more names (--rows)\n", names.len() - n_rows);
    }
    if traffic.n_left_out() > 0 {
        text += &format!("  and {} searches for names beyond the limit\n", traffic.n_left_out());
    }
    for server in traffic.servers() {
        let restarts = if server.n_restarts > 0 { format!(", {} restarts", server.n_restarts) } else { String::new() };
        text += &format!("  server {}: {} beacons{restarts}\n", server.address, server.n_beacons);
    }
    text
}

/// The busiest clients, and the number of the others.
fn clients_text(name: &NameTraffic) -> String {
    const SHOWN: usize = 3;
    let mut clients: Vec<_> = name.clients.iter().collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.n_searches));
    let mut text: Vec<String> = clients.iter().take(SHOWN).map(|client| client.address.to_string()).collect();
    if clients.len() > SHOWN {
        text.push(format!("and {} more", clients.len() - SHOWN));
    }
    text.join(" ")
}

fn lines(traffic: &SearchMonitor, elapsed: Duration) -> String {
    let names = in_order(traffic).into_iter().map(|name| name_object(name, elapsed));
    names.chain(traffic.servers().iter().map(server_object)).map(json::line).collect()
}

fn name_object(name: &NameTraffic, elapsed: Duration) -> Map<String, Json> {
    let clients = name.clients.iter().map(|client| {
        let address = client.address.to_string();
        Json::Object(Map::from_iter([("address".into(), address.into()), ("asked".into(), client.n_searches.into())]))
    });
    let state = match name.state {
        NameState::Awaited => "awaited",
        NameState::Claimed => "claimed",
        NameState::Dead => "dead",
    };
    Map::from_iter([
        ("event".to_owned(), "name".into()),
        ("pv".to_owned(), name.name.clone().into()),
        ("asked".to_owned(), name.n_searches.into()),
        ("per_s".to_owned(), per_s(name.n_searches, elapsed).into()),
        ("clients".to_owned(), clients.collect()),
        ("state".to_owned(), state.into()),
        ("servers".to_owned(), name.servers.iter().map(SocketAddr::to_string).collect()),
    ])
}

fn server_object(server: &ServerTraffic) -> Map<String, Json> {
    Map::from_iter([
        ("event".to_owned(), "server".into()),
        ("server".to_owned(), server.address.to_string().into()),
        ("beacons".to_owned(), server.n_beacons.into()),
        ("restarts".to_owned(), server.n_restarts.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_ca::message::Answer;
    use fodo_ca::search::{Datagram, NameSearcher, Responder, Searcher};
    use fodo_data::Now;
    use fodo_engine::Cid;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// A client searches for both names; two servers have the first, and no server has the other.
    fn observed() -> SearchMonitor {
        let start = Now::for_test();
        let (mut client, mut traffic) = (Searcher::new(1), SearchMonitor::new(1));
        let (mut searches, mut answers): (Vec<Datagram>, Vec<Datagram>) = Default::default();
        client.add(Cid(1), "x:twice", start);
        client.add(Cid(2), "no:such", start);
        client.tick(start, &mut searches);
        traffic.handle_broadcast(at("10.0.0.2:4000"), &searches.remove(0).bytes, start);
        traffic.tick(start, &mut searches);
        for port in [5064, 6064] {
            let mut responder = Responder::new(port, start);
            responder.handle(at("10.0.0.9:4000"), &searches[0].bytes, &mut |name| name == "x:twice", &mut answers);
        }
        for answer in answers {
            traffic.answered(at("10.0.0.1:5064"), &answer.bytes, start);
        }
        traffic.tick(start + Duration::from_secs(10), &mut searches);
        traffic
    }

    #[test]
    fn a_search_report_lists_unanswered_names_before_duplicate_servers() {
        let text = report(&observed(), Duration::from_secs(10), 40);

        assert_eq!(
            text,
            "10 s: 2 searches for 2 names by 1 clients, 1 dead names, 0 servers seen\n  \
             NAME       ASKED    PER S  ANSWER, ASKED BY\n  \
             no:such        1     0.10  NO SERVER, 10.0.0.2:4000\n  \
             x:twice        1     0.10  2 SERVERS: 10.0.0.1:5064 10.0.0.1:6064, 10.0.0.2:4000\n"
        );
    }

    #[test]
    fn search_json_keys_are_the_same_as_in_the_help() {
        let text = lines(&observed(), Duration::from_secs(10));

        let first: Map<String, Json> = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&first["pv"], &first["state"]), (&"no:such".into(), &"dead".into()));
        for key in first.keys() {
            assert!(HELP.contains(key), "{key}");
        }
    }

    /// The search of a client for `x`.
    fn search(now: Now) -> Vec<u8> {
        let (mut client, mut searches): (Searcher, Vec<Datagram>) = (Searcher::new(1), Vec::new());
        client.add(Cid(1), "x", now);
        client.tick(now, &mut searches);
        searches.remove(0).bytes
    }

    #[test]
    fn the_servers_of_a_name_are_shown_by_their_number_and_state() {
        let (mut traffic, start) = (SearchMonitor::new(1), Now::for_test());
        traffic.ask("x", start);

        let observed = observed();
        let shown = |name: &str| {
            let selected = observed.names().iter().find(|traffic| traffic.name == name);
            servers_text(selected.unwrap())
        };

        assert_eq!(servers_text(&traffic.names()[0]), "?");
        assert_eq!(shown("no:such"), "NO SERVER");
        assert_eq!(shown("x:twice"), "2 SERVERS: 10.0.0.1:5064 10.0.0.1:6064");
    }

    #[test]
    fn the_three_busiest_clients_of_a_name_are_shown_and_the_others_counted() {
        let shown = |searches: &[u64]| {
            let (mut traffic, mut now) = (SearchMonitor::new(1), Now::for_test());
            for (host, n_searches) in searches.iter().enumerate() {
                for _ in 0..*n_searches {
                    traffic.handle_broadcast(at(&format!("10.0.0.{host}:4000")), &search(now), now);
                    now = now + Duration::from_secs(1);
                }
            }
            clients_text(&traffic.names()[0])
        };

        assert_eq!(shown(&[1, 4, 2, 3, 1]), "10.0.0.1:4000 10.0.0.3:4000 10.0.0.2:4000 and 2 more");
        assert_eq!(shown(&[1, 1, 1]), "10.0.0.0:4000 10.0.0.1:4000 10.0.0.2:4000");
    }

    #[test]
    fn a_search_report_shows_the_requested_number_of_names_and_counts_the_others() {
        let text = report(&observed(), Duration::from_secs(10), 1);

        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  NAME       ASKED    PER S  ANSWER, ASKED BY",
                "  no:such        1     0.10  NO SERVER, 10.0.0.2:4000",
                "  and 1 more names (--rows)",
            ]
        );
    }

    #[test]
    fn a_search_report_contains_servers_with_their_restarts() {
        let (mut traffic, start) = (SearchMonitor::new(1), Now::for_test());
        let beacon = |beacon| {
            let mut bytes = Vec::new();
            Answer::RsrvIsUp { minor: 13, port: 5064, beacon, address: 0 }.encode(&mut bytes);
            bytes
        };
        for (server, numbers) in [("10.0.0.1:5065", [7, 8, 0]), ("10.0.0.2:5065", [1, 2, 3])] {
            for (seconds, number) in numbers.into_iter().enumerate() {
                traffic.answered(at(server), &beacon(number), start + Duration::from_secs(15 * seconds as u64));
            }
        }

        let text = report(&traffic, Duration::from_secs(40), 40);
        let json = lines(&traffic, Duration::from_secs(40));

        assert_eq!(
            text,
            "40 s: 0 searches for 0 names by 0 clients, 0 dead names, 2 servers seen\n  \
             server 10.0.0.1:5064: 3 beacons, 1 restarts\n  \
             server 10.0.0.2:5064: 3 beacons\n"
        );
        assert_eq!(
            json.lines().next().unwrap(),
            "{\"event\":\"server\",\"server\":\"10.0.0.1:5064\",\"beacons\":3,\"restarts\":1}"
        );
    }
}
