//! A run: servers up, work in random order, numbers into rows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::driver::{Client, Conversation, Failure};
use crate::machine::Machine;
use crate::peers::Peers;
use crate::placement::{Placement, Seats};
use crate::scenario::{Scenario, array_get, scalar_get};
use crate::server::{DatabaseFile, Server, ServerKind};
use crate::statistics::{self, Random};

/// A client and the server it talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Pair {
    /// Who asks.
    pub client: Client,
    /// Who answers.
    pub server: ServerKind,
}

impl Pair {
    const fn of(client: Client, server: ServerKind) -> Pair {
        Pair { client, server }
    }

    /// The one every ratio is to.
    pub const FLOOR: Pair = Pair::of(Client::Raw, ServerKind::Raw);

    /// All that a quick run measures, in the order of its tables.
    pub const ALL: [Pair; 6] = [
        Pair::FLOOR,
        Pair::of(Client::RawReused, ServerKind::Raw),
        Pair::of(Client::Fodo, ServerKind::Fodo),
        Pair::of(Client::Fodo, ServerKind::SoftIoc),
        Pair::of(Client::Libca, ServerKind::Fodo),
        Pair::of(Client::Libca, ServerKind::SoftIoc),
    ];

    /// Whether it answers the question with something of its own: a small answer has no destination to
    /// tell fresh from reused.
    fn answers(self, scenario: Scenario) -> bool {
        self.client != Client::RawReused || scenario == Scenario::ArrayGet
    }
}

/// What is to be run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// How often each number is taken, each time by a new process.
    pub repetitions: usize,
    /// What decides the order of work and the bootstrap.
    pub seed: u64,
    /// Elements of the largest array.
    pub elements_max: usize,
    /// The clients to compare; the floor is always measured.
    pub clients: Vec<Client>,
    /// The servers to compare.
    pub servers: Vec<ServerKind>,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The question.
    pub scenario: Scenario,
    /// Elements of the value.
    pub n_elements: usize,
    /// Where client and server ran.
    pub placement: Placement,
    /// Who was asked.
    pub pair: Pair,
    /// The median of each repetition.
    pub medians_ns: Vec<f64>,
    /// Every single time.
    pub latencies_ns: Vec<u64>,
    /// What the client says of its version.
    pub client_version: Option<String>,
    /// How it came out.
    pub outcome: Outcome,
}

/// How a row came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Measured, and every check passed.
    Measured,
    /// Something was wrong, so no number is told.
    Failed(Failure),
    /// A peer is not there.
    NotRun(String),
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// What was asked for.
    pub settings: Settings,
    /// Where it ran.
    pub machine: Machine,
    /// The CPUs.
    pub seats: Seats,
    /// The lines.
    pub rows: Vec<Row>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Run {
    /// Whether any row has no number though it should.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// Whether any row is missing for want of a peer.
    pub fn is_incomplete(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::NotRun(_)))
    }
}

/// One piece of work: a new driver process that answers every question once.
#[derive(Clone, Copy, Debug)]
struct Item {
    pair: Pair,
    placement: Placement,
    repetition: usize,
}

/// Runs it all. Rows fail one by one; only what concerns all of them fails the run.
pub fn run(settings: Settings, peers: &Peers) -> std::io::Result<Run> {
    let start = Instant::now();
    let machine = Machine::look();
    let seats = Seats::find();
    let database = DatabaseFile::write()?;
    let pairs: Vec<Pair> = Pair::ALL.into_iter().filter(|pair| is_wanted(*pair, &settings)).collect();
    let mut rows = empty_rows(&pairs, &seats, &settings, peers);
    let servers = start_servers(&pairs, &database, &seats, peers, &mut rows);
    // Every server has read it; an interrupted run leaves nothing behind.
    drop(database);
    let items = items(&pairs, &seats, &settings);
    let progress = progress(items.len());
    for item in items {
        progress.set_message(format!("{} with {}", item.pair.client.text(), item.pair.server.text()));
        if let Some(server) = servers.get(&item.pair.server).filter(|_| has_hope(&rows, item)) {
            work(item, server, &seats, settings.elements_max, peers, &mut rows);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Run { settings, machine, seats, rows, elapsed: start.elapsed() })
}

fn is_wanted(pair: Pair, settings: &Settings) -> bool {
    pair.server == ServerKind::Raw
        || (settings.clients.contains(&pair.client) && settings.servers.contains(&pair.server))
}

fn empty_rows(pairs: &[Pair], seats: &Seats, settings: &Settings, peers: &Peers) -> Vec<Row> {
    let mut rows = Vec::new();
    for scenario in Scenario::ALL {
        let sizes = match scenario {
            Scenario::ScalarGet => vec![1],
            Scenario::ArrayGet => array_get::sizes(settings.elements_max).map(|(n_elements, _)| n_elements).collect(),
        };
        for n_elements in sizes {
            for placement in seats.placements() {
                for &pair in pairs.iter().filter(|pair| pair.answers(scenario)) {
                    let missing = pair.client.missing(peers).or_else(|| pair.server.missing(peers));
                    rows.push(Row {
                        scenario,
                        n_elements,
                        placement,
                        pair,
                        medians_ns: Vec::new(),
                        latencies_ns: Vec::new(),
                        client_version: None,
                        outcome: missing.map_or(Outcome::Measured, Outcome::NotRun),
                    });
                }
            }
        }
    }
    rows
}

fn start_servers(
    pairs: &[Pair],
    database: &DatabaseFile,
    seats: &Seats,
    peers: &Peers,
    rows: &mut [Row],
) -> HashMap<ServerKind, Server> {
    let mut servers = HashMap::new();
    for kind in [ServerKind::Raw, ServerKind::Fodo, ServerKind::SoftIoc] {
        if kind.missing(peers).is_some() || !pairs.iter().any(|pair| pair.server == kind) {
            continue;
        }
        match Server::start(kind, &database.path(), seats.server_cpu, peers) {
            Ok(server) => {
                servers.insert(kind, server);
            }
            Err(failure) => fail(rows, |row| row.pair.server == kind, &failure),
        }
    }
    servers
}

/// Repetition by repetition, each in an order of its own, so that drift of the machine hits all alike.
fn items(pairs: &[Pair], seats: &Seats, settings: &Settings) -> Vec<Item> {
    let mut random = Random::new(settings.seed);
    let mut items = Vec::new();
    for repetition in 0..settings.repetitions {
        let mut block: Vec<Item> = Vec::new();
        for placement in seats.placements() {
            block.extend(pairs.iter().map(|&pair| Item { pair, placement, repetition }));
        }
        random.shuffle(&mut block);
        items.extend(block);
    }
    items
}

fn progress(n: usize) -> ProgressBar {
    let progress = ProgressBar::new(n as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left: {msg}") {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}

/// A pair that has failed once in a placement is not tried again there: it would only cost time-outs.
fn has_hope(rows: &[Row], item: Item) -> bool {
    rows.iter().any(|row| concerns(row, item) && row.outcome == Outcome::Measured)
}

fn concerns(row: &Row, item: Item) -> bool {
    row.pair == item.pair && row.placement == item.placement
}

fn fail(rows: &mut [Row], concerned: impl Fn(&Row) -> bool, failure: &Failure) {
    for row in rows.iter_mut().filter(|row| row.outcome == Outcome::Measured && concerned(row)) {
        row.outcome = Outcome::Failed(failure.clone());
    }
}

fn work(item: Item, server: &Server, seats: &Seats, elements_max: usize, peers: &Peers, rows: &mut [Row]) {
    let cpu = seats.client_cpu(item.placement);
    let conversation = Conversation::start(item.pair.client, server, cpu, peers);
    let mut conversation = match conversation {
        Ok(conversation) => conversation,
        Err(failure) => return fail(rows, |row| concerns(row, item), &failure),
    };
    if item.pair.answers(Scenario::ScalarGet) {
        let concerned = |row: &Row| concerns(row, item) && row.scenario == Scenario::ScalarGet;
        match scalar_get::measure(&mut conversation) {
            Ok((_opened, scalars)) => {
                let hello = conversation.hello();
                for row in rows.iter_mut().filter(|row| concerns(row, item)) {
                    row.client_version = Some(format!("{} {}", hello.client, hello.version));
                }
                record(rows, concerned, &scalars.latencies_ns);
            }
            Err(failure) => fail(rows, concerned, &failure),
        }
    }
    let all_arrays = |row: &Row| concerns(row, item) && row.scenario == Scenario::ArrayGet;
    if let Err(failure) = array_get::open(&mut conversation) {
        return fail(rows, all_arrays, &failure);
    }
    for (n_elements, n_gets) in array_get::sizes(elements_max) {
        let concerned = |row: &Row| all_arrays(row) && row.n_elements == n_elements;
        let salt = (item.repetition as u32).wrapping_mul(0x0100_0193).wrapping_add(n_elements as u32);
        match array_get::measure(&mut conversation, n_elements, n_gets, salt) {
            Ok(latencies_ns) => record(rows, concerned, &latencies_ns),
            Err(failure) => return fail(rows, all_arrays, &failure),
        }
    }
}

fn record(rows: &mut [Row], concerned: impl Fn(&Row) -> bool, latencies_ns: &[u64]) {
    for row in rows.iter_mut().filter(|row| concerned(row)) {
        row.medians_ns.extend(statistics::median_ns(latencies_ns));
        row.latencies_ns.extend(latencies_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            repetitions: 5,
            seed: 1,
            elements_max: 1_000_000,
            clients: vec![Client::Libca],
            servers: vec![ServerKind::SoftIoc],
        }
    }

    fn seats() -> Seats {
        Seats { server_cpu: Some(0), other_cpu: Some(1), are_siblings: false }
    }

    fn no_peers() -> Peers {
        Peers { directory: "/nonexistent".into(), epics: Err("not there".into()) }
    }

    #[test]
    fn the_floor_is_measured_whatever_else_is_wanted() {
        let wanted: Vec<Pair> = Pair::ALL.into_iter().filter(|pair| is_wanted(*pair, &settings())).collect();

        assert_eq!(
            wanted,
            [Pair::FLOOR, Pair::of(Client::RawReused, ServerKind::Raw), Pair::of(Client::Libca, ServerKind::SoftIoc)]
        );
    }

    #[test]
    fn every_repetition_holds_every_pair_in_every_placement_in_an_order_of_its_own() {
        let items = items(&Pair::ALL, &seats(), &settings());

        let blocks: Vec<&[Item]> = items.chunks(12).collect();
        assert_eq!(blocks.len(), 5);
        for (repetition, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|item| item.repetition == repetition));
            for pair in Pair::ALL {
                assert_eq!(block.iter().filter(|item| item.pair == pair).count(), 2);
            }
        }
        let order = |block: &[Item]| block.iter().map(|item| (item.pair, item.placement)).collect::<Vec<_>>();
        assert_ne!(order(blocks[0]), order(blocks[1]));
    }

    #[test]
    fn a_missing_peer_is_told_in_every_row_that_needs_it_and_in_no_other() {
        let rows = empty_rows(&Pair::ALL, &seats(), &settings(), &no_peers());

        for row in rows {
            let needs = row.pair.client == Client::Libca || row.pair.server == ServerKind::SoftIoc;
            assert_eq!(row.outcome == Outcome::NotRun("not there".into()), needs, "{row:?}");
        }
    }

    #[test]
    fn a_failure_takes_the_numbers_of_its_own_rows_only_and_is_not_tried_again() {
        let mut rows = empty_rows(&[Pair::FLOOR], &seats(), &settings(), &no_peers());
        let failure = Failure::WrongCount { n: 1, expected: 2 };

        fail(&mut rows, |row| row.placement == Placement::OneCore, &failure);

        let item = |placement| Item { pair: Pair::FLOOR, placement, repetition: 0 };
        assert!(!has_hope(&rows, item(Placement::OneCore)));
        assert!(has_hope(&rows, item(Placement::TwoCores)));
    }
}
