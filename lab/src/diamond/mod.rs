//! Study 002 in the laboratory: its seven tables, measured with its programs and with Fodo.
//!
//! A point is a fan-out between two hosts, or on two CPUs where network namespaces are not permitted. Its row contains what
//! the study has, CPU and kB/s of both sides, and what it lacks: every update is accounted for.

pub mod point;
pub mod study;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::driver::{ClientUnderTest, DriverFailure};
use crate::hosts::TwoHosts;
use crate::limit::{DIAMOND_SHORT_MAX, WARM_UP_DIAMOND_SHARE};
use crate::load::{FanOut, LoadOutcome, LoadWindow, Producer};
use crate::machine::Machine;
use crate::peers::Peers;
use crate::placement::{CpuChoice, Placement};
use crate::result::{PeerInfo, ResultFile, ResultRow, RowVerdict};
use crate::runner;
use crate::server::ServerKind;

use self::point::{EndUsage, StudyPoint};
use self::study::{LoadEnds, PublishedTables, StudyRow, ValueSource};

/// Name of the suite in results and on the command line.
pub const SUITE: &str = "diamond";

/// Duration of a point, and of one of the short form, in seconds: long enough for twenty changes at 10 Hz.
pub const SECONDS: f64 = 10.0;
/// See [`SECONDS`].
pub const SECONDS_SHORT: f64 = 2.0;

/// The changes of a row without PVs: none, but its traffic is measured.
const IDLE_HZ: f64 = 10.0;

/// What to measure.
#[derive(Clone, Debug)]
pub struct DiamondRun {
    /// Only the eight rows of the short form.
    pub is_short: bool,
    /// Duration of a point.
    pub duration: Duration,
    /// Only these clients, unless empty.
    pub clients: Vec<ClientUnderTest>,
    /// Only these servers, unless empty.
    pub servers: Vec<ServerKind>,
    /// Only these tables, as `D1` to `D7`, unless empty.
    pub tables: Vec<String>,
    /// Written after each point, so that an interrupted run keeps what it has measured.
    pub json: Option<PathBuf>,
    /// An interrupted run with the same settings: its points are not measured again.
    pub before: Option<ResultFile>,
}

/// The name of a table in results: `D1` to `D7`.
pub fn question_of(table_number: usize) -> String {
    format!("D{table_number}")
}

impl DiamondRun {
    /// Measures the rows in the order of the study. Rows fail individually.
    pub fn run(&self, peers: &Peers) -> std::io::Result<ResultFile> {
        let start = Instant::now();
        let study = PublishedTables::load().map_err(std::io::Error::other)?;
        let machine = Machine::describe();
        let cpus = CpuChoice::find();
        let hosts = TwoHosts::make();
        let placement = if hosts.is_ok() { Placement::TwoHosts } else { cpus.apart() };
        let mut result = ResultFile::new(SUITE, &machine.date);
        result.machine = runner::machine_words(&machine, &cpus, Some(&hosts))?;
        drop(hosts);
        result.settings.insert("repetitions".into(), 1.into());
        result.settings.insert("is_short".into(), self.is_short.into());
        result.settings.insert("seconds_per_point".into(), self.duration.as_secs_f64().into());
        if let Some(before) = &self.before {
            continue_run(&mut result, before)?;
        }
        let (duration_before_s, n_before) = (result.duration_s, result.rows.len());
        let rows: Vec<(StudyRow<'_>, Vec<LoadEnds>)> =
            study.rows(self.is_short).into_iter().map(|row| (row, self.pairs_of(&row))).collect();
        result.peers = peers_of(&rows, peers);
        let deadline = self.is_short.then(|| start + DIAMOND_SHORT_MAX);
        let is_measured = |row: &StudyRow<'_>, ends| result.rows.iter().any(|of| is_point(of, row, ends));
        let points: Vec<_> = self.in_order(&rows).into_iter().filter(|(row, ends)| !is_measured(row, *ends)).collect();
        let progress = runner::progress(n_before + points.len());
        progress.inc(n_before as u64);
        for (row, ends) in points {
            let (client, server) = (ends.0.text(), ends.1.text());
            let (table, number) = (row.table_number, row.row_number);
            progress.set_message(format!("table {table}, row {number}: {client} with {server}"));
            let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            result.rows.push(match is_late {
                true => not_run(row, ends, placement, "the time of the short form was over"),
                false => self.measure(row, ends, placement, &cpus),
            });
            progress.inc(1);
            result.duration_s = duration_before_s + start.elapsed().as_secs_f64();
            if let Some(path) = &self.json {
                result.write(path)?;
            }
        }
        progress.finish_and_clear();
        Ok(result)
    }

    /// All points in the order of the study; in the short form the first pair of each row, then the second, so that each row
    /// has some numbers when the time is over.
    fn in_order<'a, 'b>(&self, rows: &'a [(StudyRow<'b>, Vec<LoadEnds>)]) -> Vec<(&'a StudyRow<'b>, LoadEnds)> {
        let points_of = |(row, pairs): &'a (StudyRow<'b>, Vec<LoadEnds>)| {
            pairs.iter().enumerate().map(move |(index, ends)| (index, row, *ends))
        };
        let mut points: Vec<(usize, &StudyRow<'_>, LoadEnds)> = rows.iter().flat_map(points_of).collect();
        if self.is_short {
            points.sort_by_key(|(index, _, _)| *index);
        }
        points.into_iter().map(|(_, row, ends)| (row, ends)).collect()
    }

    fn pairs_of(&self, row: &StudyRow<'_>) -> Vec<LoadEnds> {
        let is_table = self.tables.is_empty() || self.tables.contains(&question_of(row.table_number));
        let is_selected = |(client, server): &&LoadEnds| {
            (self.clients.is_empty() || self.clients.contains(client))
                && (self.servers.is_empty() || self.servers.contains(server))
        };
        row.pairs().iter().filter(|_| is_table).filter(is_selected).copied().collect()
    }

    fn measure(&self, row: &StudyRow<'_>, ends: LoadEnds, placement: Placement, cpus: &CpuChoice) -> ResultRow {
        let load = self.load_of(row, ends);
        match load.run(placement, cpus) {
            Ok(outcome) => measured(row, &load, &outcome, placement),
            Err(failure @ DriverFailure::Unavailable { .. }) => not_run(row, ends, placement, &failure.to_string()),
            Err(failure) => {
                let without = not_run(row, ends, placement, &failure.to_string());
                ResultRow { verdict: RowVerdict::Failed, ..without }
            }
        }
    }

    fn load_of(&self, row: &StudyRow<'_>, (client, server): LoadEnds) -> FanOut {
        FanOut {
            n_pvs: row.line.n_pvs,
            n_subscriptions: row.line.n_monitors,
            rate_hz: if row.line.hz > 0.0 { row.line.hz } else { IDLE_HZ },
            duration: self.duration,
            double: None,
            protocol: row.protocol(),
            client,
            server,
            producer: match row.values() {
                ValueSource::Python => Some(Producer::Python),
                ValueSource::Calc => Some(Producer::Calc),
            },
            n_elements: None,
            n_watched: Some(row.n_watched()),
            recording: row.format(),
            warm_up_max: self.duration.mul_f64(WARM_UP_DIAMOND_SHARE),
        }
    }
}

/// The clients and servers of these rows that are other implementations, with their versions or why they are missing.
fn peers_of(rows: &[(StudyRow<'_>, Vec<LoadEnds>)], peers: &Peers) -> Vec<PeerInfo> {
    let mut known: Vec<PeerInfo> = Vec::new();
    let mut add = |name: &str, about: &dyn Fn() -> (Option<String>, Option<String>)| {
        if known.iter().all(|peer| peer.name != name) {
            let (version, missing) = about();
            known.push(PeerInfo { name: name.into(), version, runtime: None, missing });
        }
    };
    for (client, server) in rows.iter().flat_map(|(_, pairs)| pairs) {
        if let Some(external) = client.external() {
            add(client.text(), &|| (external.version(peers), client.missing(peers)));
        }
        add(server.text(), &|| (server.version(peers), server.missing(peers)));
    }
    known
}

fn measured(row: &StudyRow<'_>, load: &FanOut, outcome: &LoadOutcome, placement: Placement) -> ResultRow {
    let shown = load.row(placement, outcome);
    let (verdict, why) = match outcome.failure_apart_from_end(load.reports_all_merges()) {
        Some(why) => (RowVerdict::Failed, Some(why)),
        None => (RowVerdict::Measured, shown.why.clone().filter(|_| shown.verdict == RowVerdict::Measured)),
    };
    let why: Vec<String> = why.into_iter().chain(outcome.complaint.clone()).collect();
    let window = outcome.window;
    let study = StudyPoint {
        seconds: window.seconds,
        delivered_hz: outcome.delivered_hz,
        server: side(&window, true),
        client: side(&window, false),
        lost_at_end: outcome.n_missing_at_end(),
        ..point(row)
    };
    ResultRow {
        // A point without changes has no latency.
        samples: if shown.samples.is_empty() { vec![0.0] } else { shown.samples.clone() },
        verdict,
        why: (!why.is_empty()).then(|| why.join("; ")),
        study: Some(study),
        ..place(row, (load.client, load.server), placement, shown)
    }
}

fn side(window: &LoadWindow, is_server: bool) -> EndUsage {
    let usage = if is_server { window.server } else { window.client };
    let a_second = |count: u64| count as f64 / window.seconds.max(f64::MIN_POSITIVE);
    let ends = window.traffic.map(|traffic| match is_server {
        true => (traffic.server, traffic.client),
        false => (traffic.client, traffic.server),
    });
    EndUsage {
        cpu_per_cent: usage.cpu_s / window.seconds.max(f64::MIN_POSITIVE) * 100.0,
        sent_kb_s: ends.map(|(sent, _)| a_second(sent.bytes) / 1e3),
        received_kb_s: ends.map(|(_, received)| a_second(received.bytes) / 1e3),
        sent_packets_s: ends.map(|(sent, _)| a_second(sent.packets)),
        rss_bytes: usage.rss_bytes,
        threads: usage.threads,
    }
}

fn not_run(row: &StudyRow<'_>, ends: LoadEnds, placement: Placement, why: &str) -> ResultRow {
    let without = ResultRow {
        unit: "ns".into(),
        verdict: RowVerdict::NotRun,
        why: Some(why.into()),
        study: Some(point(row)),
        ..ResultRow::default()
    };
    place(row, ends, placement, without)
}

/// Takes over what an interrupted run has measured. Its commit is kept if this is another.
fn continue_run(result: &mut ResultFile, before: &ResultFile) -> std::io::Result<()> {
    let unlike = result.settings.iter().find(|(name, value)| before.settings.get(*name) != Some(value));
    if let Some((name, value)) = unlike {
        let of_before = before.settings.get(name).map_or_else(|| "nothing".to_owned(), ToString::to_string);
        let why = format!("the interrupted run has {name} {of_before}, not {value}");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    if let Some(commit) =
        before.machine.get("git_commit").filter(|commit| result.machine.get("git_commit") != Some(commit))
    {
        result.settings.insert("resumed_from".into(), commit.clone());
    }
    result.rows.clone_from(&before.rows);
    result.duration_s = before.duration_s;
    Ok(())
}

/// Whether a row of a result is of this point.
fn is_point(of: &ResultRow, row: &StudyRow<'_>, (client, server): LoadEnds) -> bool {
    let is_row = |point: &StudyPoint| (point.table, point.row) == (row.table_number, row.row_number);
    of.study.as_ref().is_some_and(is_row) && of.client == client.text() && of.server == server.text()
}

/// The row with everything that identifies it.
fn place(row: &StudyRow<'_>, (client, server): LoadEnds, placement: Placement, of: ResultRow) -> ResultRow {
    ResultRow {
        question: question_of(row.table_number),
        protocol: row.protocol(),
        title: row.title().to_owned(),
        series: placement.text().into(),
        variant: format!("row {}: {} PVs, {} Hz", row.row_number, row.line.n_pvs, row.line.hz),
        point: u64::from(row.n_watched()) * u64::from(row.line.n_monitors),
        client: client.text().into(),
        server: server.text().into(),
        ..of
    }
}

fn point(row: &StudyRow<'_>) -> StudyPoint {
    StudyPoint {
        table: row.table_number,
        row: row.row_number,
        n_pvs: row.line.n_pvs,
        hz: row.line.hz,
        n_watched: row.n_watched(),
        n_monitors: row.line.n_monitors,
        format: row.format(),
        ..StudyPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::traffic::{CircuitTraffic, SentBytes};
    use crate::load::usage::Usage;

    #[test]
    fn rates_and_cpu_of_each_side_are_those_of_the_time_in_which_values_changed() {
        let traffic = CircuitTraffic {
            server: SentBytes { packets: 400, bytes: 800_000 },
            client: SentBytes { packets: 200, bytes: 4000 },
        };
        let usage = |cpu_s| Usage { cpu_s, threads: 3, ..Usage::default() };
        let window = LoadWindow { seconds: 4.0, server: usage(1.0), client: usage(3.0), traffic: Some(traffic) };

        let (server, client) = (side(&window, true), side(&window, false));

        assert_eq!((server.cpu_per_cent, client.cpu_per_cent, client.threads), (25.0, 75.0, 3));
        assert_eq!((server.sent_kb_s, server.received_kb_s), (Some(200.0), Some(1.0)));
        assert_eq!((client.sent_kb_s, client.received_kb_s), (Some(1.0), Some(200.0)));
        assert_eq!((server.sent_packets_s, client.sent_packets_s), (Some(100.0), Some(50.0)));
    }

    #[test]
    fn selected_tables_clients_and_servers_restrict_the_pairs() {
        let study = PublishedTables::load().unwrap();
        let run = DiamondRun {
            is_short: false,
            duration: Duration::from_secs(1),
            clients: vec![ClientUnderTest::FodoGroup],
            servers: vec![ServerKind::Fodo],
            tables: vec![question_of(5)],
            json: None,
            before: None,
        };

        let selected: Vec<(usize, usize)> = study
            .rows(false)
            .iter()
            .map(|row| (row.table_number, run.pairs_of(row).len()))
            .filter(|(_, n)| *n > 0)
            .collect();

        assert_eq!(selected, [(5, 1); 16]);
    }

    #[test]
    fn the_short_form_measures_the_first_pair_of_each_row_before_the_second_of_any() {
        let study = PublishedTables::load().unwrap();
        let run = DiamondRun {
            is_short: true,
            duration: Duration::from_secs(1),
            clients: Vec::new(),
            servers: Vec::new(),
            tables: Vec::new(),
            json: None,
            before: None,
        };
        let rows: Vec<(StudyRow<'_>, Vec<LoadEnds>)> =
            study.rows(true).into_iter().map(|row| (row, row.pairs().to_vec())).collect();

        let points = run.in_order(&rows);

        let first: Vec<LoadEnds> = points.iter().take(rows.len()).map(|(_, ends)| *ends).collect();
        let expected: Vec<LoadEnds> = rows.iter().map(|(row, _)| row.pairs()[0]).collect();
        assert_eq!(first, expected);
        assert_eq!(points.len(), rows.iter().map(|(_, pairs)| pairs.len()).sum::<usize>());
    }

    #[test]
    fn a_resumed_run_keeps_the_points_of_before_and_rejects_another_run() {
        let study = PublishedTables::load().unwrap();
        let rows = study.rows(false);
        let settings = |seconds: f64| {
            let mut result = ResultFile::new(SUITE, "2026-11-23");
            result.settings.insert("seconds_per_point".into(), seconds.into());
            result
        };
        let ends = rows[0].pairs()[0];
        let measured = not_run(&rows[0], ends, Placement::OneCore, "a peer is missing");
        let before = ResultFile { rows: vec![measured], duration_s: 7.0, ..settings(3.0) };

        let (mut resumed, mut other) = (settings(3.0), settings(10.0));
        continue_run(&mut resumed, &before).unwrap();
        let why = continue_run(&mut other, &before).unwrap_err().to_string();

        assert_eq!((resumed.rows.len(), resumed.duration_s), (1, 7.0));
        assert!(is_point(&resumed.rows[0], &rows[0], ends));
        assert!(
            !is_point(&resumed.rows[0], &rows[1], ends) && !is_point(&resumed.rows[0], &rows[0], rows[0].pairs()[1])
        );
        assert_eq!(why, "the interrupted run has seconds_per_point 3.0, not 10.0");
        assert!(other.rows.is_empty());
    }

    #[test]
    fn a_load_has_the_size_format_and_source_of_its_row() {
        let study = PublishedTables::load().unwrap();
        let run = DiamondRun {
            is_short: true,
            duration: Duration::from_secs(2),
            clients: Vec::new(),
            servers: Vec::new(),
            tables: Vec::new(),
            json: None,
            before: None,
        };
        let rows = study.rows(false);
        let row = rows.iter().find(|row| (row.table_number, row.row_number) == (1, 6)).unwrap();

        let load = run.load_of(row, (ClientUnderTest::Aioca, ServerKind::Softioc));

        assert_eq!((load.n_pvs, load.n_watched(), load.n_subscriptions, load.rate_hz), (100, 1, 100, 100.0));
        assert_eq!((load.recording, load.producer()), (crate::load::tally::UpdateRecording::Raw, Producer::Python));
        assert_eq!(load.warm_up_max, Duration::from_millis(800));
    }
}
