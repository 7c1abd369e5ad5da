//! Reports troubles of links, and notices of their client, in the log of the IOC.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use fodo_data::Now;
use fodo_net::log::{Level, Log};
use fodo_net::{Context, Notice};

use super::RequestTarget;
use super::state::{LinkTrouble, UnreportedLink};
use crate::driver::DatabaseDriver;
use crate::limit;

/// Reports until the requests of links are stopped, on its own thread, since the log may be a slow terminal.
pub(super) fn run(driver: &DatabaseDriver, context: &Context, log: &Log) {
    let link_requests = driver.link_requests();
    while !link_requests.is_stopped() {
        let notice = context.next_notice(limit::LINK_LOG_PERIOD);
        if link_requests.is_stopped() {
            return;
        }
        let now = Now { monotonic: Instant::now(), wall: SystemTime::now().into() };
        if let Some(notice) = notice {
            let level = if matches!(notice, Notice::ServerStarted { .. }) { Level::Debug } else { Level::Warning };
            log.write(level, &notice.to_string(), None, None, now);
        }
        let unreported = link_requests.states().take_unreported(now.monotonic);
        let named = unreported.iter().map(|link| (name_of(driver, link), link));
        for line in lines(named) {
            log.write(line.level, &line.what, line.server, None, now);
        }
    }
}

/// The record field or the access rules that use a link, and its PV.
fn name_of(driver: &DatabaseDriver, link: &UnreportedLink) -> String {
    match &link.target {
        RequestTarget::Link(id) => format!("{} to \"{}\"", driver.database().name(id.field()), link.pv),
        RequestTarget::Input(_) | RequestTarget::Shared(_) => format!("of access rules to \"{}\"", link.pv),
    }
}

/// A line of the log.
#[derive(Debug, PartialEq)]
struct LinkLine {
    level: Level,
    what: String,
    server: Option<SocketAddr>,
}

/// One line for all links with the same trouble at the same server.
fn lines<'a>(links: impl Iterator<Item = (String, &'a UnreportedLink)>) -> Vec<LinkLine> {
    let mut groups: BTreeMap<(Option<String>, Option<SocketAddr>), Vec<String>> = BTreeMap::new();
    for (name, link) in links {
        let has_server = !matches!(link.trouble, Some(LinkTrouble::Unconnected | LinkTrouble::Unopened(_)));
        groups.entry((link.reason(), link.server.filter(|_| has_server))).or_default().push(name);
    }
    let line = |((reason, server), mut names): ((Option<String>, _), Vec<String>)| {
        names.sort_unstable();
        let level = if reason.is_some() { Level::Warning } else { Level::Info };
        let (subject, verb) = match names.as_slice() {
            [name] => (format!("link {name}"), "works again"),
            _ => (format!("{} links ({})", names.len(), listed(&names)), "work again"),
        };
        let what = reason.map_or_else(|| format!("{subject} {verb}"), |reason| format!("{subject}: {reason}"));
        LinkLine { level, what, server }
    };
    groups.into_iter().map(line).collect()
}

/// The first names, and the number of the others.
fn listed(names: &[String]) -> String {
    let (first, others) = names.split_at(names.len().min(limit::LINKS_NAMED));
    match others.len() {
        0 => first.join(", "),
        n_others => format!("{}, and {n_others} others that dbcar shows", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use fodo_net::{ErrorKind, Refusal};

    use super::super::state::LinkStates;
    use super::*;

    fn server(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    /// The lines for links in these states, after the grace period.
    fn lines_for(links: &[(&str, Option<SocketAddr>, LinkTrouble)]) -> Vec<(String, Option<SocketAddr>)> {
        let (states, now) = (LinkStates::default(), Now::for_test().monotonic);
        for (name, server, trouble) in links {
            let target = RequestTarget::Input((*name).into());
            states.add(target.clone(), name, now);
            server.iter().for_each(|server| states.set_server(&target, *server));
            states.set(&target, Some(trouble.clone()), now);
        }
        let unreported = states.take_unreported(now + limit::LINK_GRACE);
        let lines = lines(unreported.iter().map(|link| (format!("r:{} to \"{}\"", link.pv, link.pv), link)));
        assert!(lines.iter().all(|line| line.level == Level::Warning));
        lines.into_iter().map(|line| (line.what, line.server)).collect()
    }

    #[test]
    fn a_line_names_the_link_the_reason_and_the_server_if_there_is_one() {
        let misuse =
            LinkTrouble::Unopened(ErrorKind::Misuse { reason: "the name is too long for a server".into(), advice: "" });
        let lines = lines_for(&[
            ("a", None, LinkTrouble::Unconnected),
            ("b", Some(server(1)), LinkTrouble::Lost),
            ("c", Some(server(1)), LinkTrouble::Refused(Refusal::WriteAccess)),
            ("d", None, misuse),
        ]);

        let line = |what: &str, server| (what.to_owned(), server);
        assert_eq!(
            lines,
            [
                line("link r:a to \"a\": no server has claimed the name", None),
                line("link r:b to \"b\": the connection was lost", Some(server(1))),
                line("link r:d to \"d\": the name is too long for a server", None),
                line("link r:c to \"c\": the server refuses writing: this client has no write access", Some(server(1))),
            ]
        );
    }

    #[test]
    fn links_lost_with_one_server_are_one_line_that_names_some_of_them() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let mut lost: Vec<_> = names.iter().map(|name| (*name, Some(server(1)), LinkTrouble::Lost)).collect();
        lost.extend([("y", Some(server(2)), LinkTrouble::Lost), ("x", Some(server(2)), LinkTrouble::Lost)]);

        let lines = lines_for(&lost);

        let seven = "7 links (r:a to \"a\", r:b to \"b\", r:c to \"c\", r:d to \"d\", r:e to \"e\", and 2 others that \
                     dbcar shows): the connection was lost";
        let two = "2 links (r:x to \"x\", r:y to \"y\"): the connection was lost";
        assert_eq!(lines, [(seven.to_owned(), Some(server(1))), (two.to_owned(), Some(server(2)))]);
    }
}
