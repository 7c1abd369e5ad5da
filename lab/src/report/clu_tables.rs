//! The tables of study 004: its repetitions and their summary as published, and beside them what was measured here, with what
//! the study lacks.

use super::model::{Contender, Section};
use super::number;
use super::study_tables::TitledTable;
use super::table::{Cell, ReportTable, TableRow};
use crate::clu::study::{PublishedMachine, PublishedRequests};
use crate::result::{CluPoint, Ledger, RequestAccount, ResultFile, ResultRow};

/// The question of the study; the others are the laboratory's.
const STUDY_QUESTION: &str = "C1";

/// What the columns mean, a paragraph in each line; empty if the run has no table.
pub fn legend(run: &ResultFile) -> Vec<String> {
    let Some(study) = PublishedRequests::load().ok().filter(|_| run.rows.iter().any(|row| row.clu.is_some())) else {
        return Vec::new();
    };
    let PublishedRequests { study, title, n_threads, seconds, machines } = study;
    let machines: Vec<String> =
        machines.iter().map(|machine| format!("{} with {}", machine.name, machine.cpus)).collect();
    let source = format!("Study {study}: {title}, {n_threads} threads for {seconds} s; {}.", machines.join(", "));
    std::iter::once(source).chain(LEGEND.map(str::to_owned)).collect()
}

const LEGEND: [&str; 5] = [
    "The columns of the study have its published numbers; those beside them were measured here, on another machine, with client and \
     server as processes on a CPU each. The study's programs shared four CPUs.",
    "A message is a request with its answer: 48 bytes in each direction. raw: an echo of the encrypted bytes. aes: an echo that \
     decrypts and encrypts, whose client does so too. generator: prepared requests, so that the server is measured.",
    "Each request that was sent was answered, wrong, refused or timed out; what is unexplained must be 0. The study counts answers \
     only. A request that the client's full queue did not accept was not sent.",
    "CPU time is that of all threads of a process, with the system's work on their behalf, for each request.",
    "In an open loop latency counts from the scheduled time, so it includes waiting in the client. Updates of subscriptions count \
     from the scheduled time of their change; a CLU reports a change at most once a second.",
];

/// The tables of which the run has rows: one for each question.
pub fn tables(run: &ResultFile) -> Vec<TitledTable<'_>> {
    let Ok(study) = PublishedRequests::load() else { return Vec::new() };
    let mut questions: Vec<&str> = Vec::new();
    for row in run.rows.iter().filter(|row| row.clu.is_some()) {
        if !questions.contains(&row.question.as_str()) {
            questions.push(&row.question);
        }
    }
    let of_question = |question: &&str| {
        let rows: Vec<&ResultRow> =
            run.rows.iter().filter(|row| row.clu.is_some() && row.question == **question).collect();
        of_rows(&study, &rows)
    };
    questions.iter().map(of_question).collect()
}

fn of_rows<'a>(study: &PublishedRequests, rows: &[&'a ResultRow]) -> TitledTable<'a> {
    let first = rows.first();
    let is_of_study = first.is_some_and(|row| row.question == STUDY_QUESTION);
    let machines: &[PublishedMachine] = if is_of_study { &study.machines } else { &[] };
    let mut head = vec![first.map_or("", |row| &row.question).to_owned()];
    head.extend(machines.iter().map(|machine| format!("study {}: {}", study.study, machine.name)));
    head.extend(rows.iter().map(|row| column(row)));
    let mut lines = Vec::new();
    if is_of_study {
        lines.extend(study_lines(study, rows));
    } else {
        lines.extend(result_lines(rows));
    }
    let n_published = machines.len();
    for (name, value) in DETAILS {
        let cells: Vec<Option<Cell>> = rows.iter().map(|row| value(row)).collect();
        if cells.iter().any(Option::is_some) {
            let published = std::iter::repeat_n(Cell::default(), n_published);
            let cells = published.chain(cells.into_iter().map(Option::unwrap_or_default)).collect();
            lines.push(TableRow { name: name.into(), cells });
        }
    }
    let reasons = rows.iter().filter_map(|row| row.why.as_ref().map(|why| format!("{}: {why}", column(row))));
    let place = first.map_or("", |row| row.series.as_str());
    TitledTable {
        title: format!("{}, {place}", first.map_or("", |row| &row.title)),
        table: ReportTable { head, lines },
        notes: reasons.collect(),
        section: Section::of_rows(rows.iter().copied()).into_iter().next(),
    }
}

/// The programs of a column, or the rate of an open loop.
fn column(row: &ResultRow) -> String {
    if offered_hz(row).is_some() {
        return format!("{} %", row.point);
    }
    Contender { client: &row.client, server: &row.server }.text()
}

fn offered_hz(row: &ResultRow) -> Option<f64> {
    row.clu.as_ref()?.offered_hz
}

/// The requests of each repetition and their summary, as the study has them.
fn study_lines(study: &PublishedRequests, rows: &[&ResultRow]) -> Vec<TableRow> {
    let n_published = study.machines.first().map_or(0, |machine| machine.requests.len());
    let n = rows.iter().map(|row| row.samples.len()).chain([n_published]).max().unwrap_or(0);
    let requests = |row: &ResultRow| -> Vec<f64> {
        let seconds = row.clu.as_ref().map_or(0.0, |point| point.seconds);
        row.samples.iter().map(|rate| (rate * seconds).round()).collect()
    };
    let text = |main: &String| Cell { main: main.clone(), ..Cell::default() };
    let of_run = |index: usize| {
        let published = study.machines.iter().map(|machine| machine.requests.get(index).map(text).unwrap_or_default());
        let ours = rows.iter().map(|row| {
            let Some(n) = requests(row).get(index).copied() else { return without(row, index == 0) };
            let ms = row.clu.as_ref().map_or(0.0, |point| (point.seconds * 1e3).round());
            Cell { main: number::grouped(n), detail: format!("in {ms} ms"), ..Cell::default() }
        });
        TableRow { name: format!("requests, repetition {}", index + 1), cells: published.chain(ours).collect() }
    };
    let mut lines: Vec<TableRow> = (0..n).map(of_run).collect();
    let summaries: [SummaryLine; 4] = [
        ("mean", |machine| &machine.mean, |numbers| numbers.iter().sum::<f64>() / numbers.len() as f64),
        ("median", |machine| &machine.median, median),
        ("minimum", |machine| &machine.minimum, |numbers| numbers.first().copied().unwrap_or_default()),
        ("maximum", |machine| &machine.maximum, |numbers| numbers.last().copied().unwrap_or_default()),
    ];
    for (name, published, compute) in summaries {
        let ours = rows.iter().map(|row| {
            let mut numbers = requests(row);
            numbers.sort_by(f64::total_cmp);
            let main = if numbers.is_empty() { String::new() } else { number::grouped(compute(&numbers)) };
            Cell { main, ..Cell::default() }
        });
        let cells = study.machines.iter().map(|machine| text(published(machine))).chain(ours).collect();
        lines.push(TableRow { name: name.into(), cells });
    }
    let ours = rows.iter().map(|row| Cell { main: row.median.map_or(String::new(), whole), ..Cell::default() });
    let cells = study.machines.iter().map(|machine| text(&machine.messages_per_s)).chain(ours).collect();
    lines.push(TableRow { name: "messages per second".into(), cells });
    lines
}

/// The name of a line of the summary, the published number, and how it is computed from sorted numbers.
type SummaryLine = (&'static str, fn(&PublishedMachine) -> &String, fn(&[f64]) -> f64);

fn median(sorted: &[f64]) -> f64 {
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    (at((sorted.len().max(1) - 1) / 2) + at(sorted.len() / 2)) / 2.0
}

fn whole(value: f64) -> String {
    number::grouped(value.round())
}

fn without(row: &ResultRow, is_first: bool) -> Cell {
    if is_first && row.samples.is_empty() { Cell::words(row.verdict.text()) } else { Cell::default() }
}

/// The median of the samples, and its spread.
fn result_lines(rows: &[&ResultRow]) -> Vec<TableRow> {
    // The latency of an open loop and of subscriptions is below.
    if rows.iter().any(|row| offered_hz(row).is_some() || row.ledger.is_some()) {
        return Vec::new();
    }
    let is_rate = rows.first().is_some_and(|row| row.is_rate());
    let cell = |row: &&ResultRow| {
        let Some(median) = row.median else { return without(row, true) };
        let range = match (row.q1, row.q3) {
            (Some(low), Some(high)) if row.samples.len() > 1 => {
                format!("{} to {}", of_unit(low, row), of_unit(high, row))
            }
            _ => String::new(),
        };
        Cell { main: of_unit(median, row), detail: range, ..Cell::default() }
    };
    let name = if is_rate { "messages per second (quartiles)" } else { "time of a request (quartiles)" };
    vec![TableRow { name: name.into(), cells: rows.iter().map(cell).collect() }]
}

fn of_unit(value: f64, row: &ResultRow) -> String {
    if row.is_rate() { whole(value) } else { number::time(value) }
}

/// The name of a line, and the value of a row.
type DetailRow = (&'static str, fn(&ResultRow) -> Option<Cell>);

const DETAILS: [DetailRow; 27] = [
    ("share of an echo", |row| row.to_floor().filter(|_| row.is_rate()).map(|share| of_echo(row, share))),
    ("times an echo", |row| row.to_floor().filter(|_| !row.is_rate()).map(|ratio| of_echo(row, ratio))),
    ("offered /s", |row| offered_hz(row).map(|hz| plain(whole(hz)))),
    ("answered in time /s", |row| offered_hz(row).and(row.clu.as_ref()?.answered_hz).map(|hz| plain(whole(hz)))),
    ("p50", |row| latency(row, 50.0)),
    ("p90", |row| latency(row, 90.0)),
    ("p99", |row| latency(row, 99.0)),
    ("p99.9", |row| latency(row, 99.9)),
    ("slowest", |row| latency(row, 100.0)),
    ("not sent", |row| count(row, |account| account.not_sent).filter(|_| offered_hz(row).is_some())),
    ("sent", |row| count(row, |account| account.sent)),
    ("answered", |row| count(row, |account| account.answered)),
    ("timed out", |row| count(row, |account| account.timed_out)),
    ("wrong", |row| fault_count(row, |account| account.wrong)),
    ("refused", |row| fault_count(row, |account| account.refused)),
    ("changes x subscriptions", |row| update(row, |ledger| ledger.produced)),
    ("delivered", |row| update(row, |ledger| ledger.delivered)),
    ("merged by the client", |row| update(row, |ledger| ledger.merged_client)),
    ("repeated reports", |row| update(row, |ledger| ledger.duplicates)),
    ("out of order", |row| update(row, |ledger| ledger.out_of_order)),
    ("unexplained", unexplained),
    ("late replies", |row| count(row, |account| account.late)),
    ("generator behind its schedule", |row| row.clu.as_ref()?.late_max_ms.map(|ms| plain(number::time(ms * 1e6)))),
    ("server, CPU of a request", |row| row.clu.as_ref()?.cpu_us.map(|cpu| plain(number::time(cpu.server * 1e3)))),
    ("client, CPU of a request", |row| row.clu.as_ref()?.cpu_us.map(|cpu| plain(number::time(cpu.client * 1e3)))),
    ("server, cores", |row| measured_point(row).map(|point| plain(number::small(point.cores.server)))),
    ("client, cores", |row| measured_point(row).map(|point| plain(number::small(point.cores.client)))),
];

/// A ratio to the floor: the raw echo or, for a CLU under a generator, the echo that encrypts.
fn of_echo(row: &ResultRow, ratio: f64) -> Cell {
    let is_encrypting = row.client == "generator" && row.server != "aes";
    let detail = if is_encrypting { "of aes" } else { "of raw" };
    Cell { detail: detail.into(), ..plain(number::small(ratio)) }
}

fn plain(main: String) -> Cell {
    Cell { main, ..Cell::default() }
}

fn measured_point(row: &ResultRow) -> Option<&CluPoint> {
    row.clu.as_ref().filter(|point| point.account.is_some() || row.ledger.is_some())
}

fn latency(row: &ResultRow, per_cent: f64) -> Option<Cell> {
    row.percentile(per_cent).map(|ns| plain(number::time(ns)))
}

fn count(row: &ResultRow, of: fn(&RequestAccount) -> u64) -> Option<Cell> {
    row.clu.as_ref()?.account.as_ref().map(|account| plain(number::grouped(of(account) as f64)))
}

fn fault_count(row: &ResultRow, of: fn(&RequestAccount) -> u64) -> Option<Cell> {
    let is_bad = row.clu.as_ref()?.account.as_ref().is_some_and(|account| of(account) > 0);
    count(row, of).map(|cell| Cell { is_bad, ..cell })
}

fn update(row: &ResultRow, of: fn(&Ledger) -> u64) -> Option<Cell> {
    row.ledger.as_ref().map(|ledger| plain(number::grouped(of(ledger) as f64)))
}

fn unexplained(row: &ResultRow) -> Option<Cell> {
    let point = measured_point(row)?;
    Some(Cell { is_bad: point.unexplained != 0, ..plain(point.unexplained.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{EndNumbers, RowVerdict};

    fn row(question: &str, (client, server): (&str, &str), samples: &[f64]) -> ResultRow {
        let account = RequestAccount { sent: 36_001, answered: 36_000, timed_out: 1, ..RequestAccount::default() };
        let mut row = ResultRow {
            question: question.into(),
            title: "64 threads".into(),
            series: "two cores".into(),
            client: client.into(),
            server: server.into(),
            unit: "requests/s".into(),
            samples: samples.to_vec(),
            percentiles: vec![(50.0, 5e5), (99.0, 9e5), (99.9, 2e6)],
            verdict: RowVerdict::Measured,
            clu: Some(CluPoint {
                seconds: 6.0,
                account: Some(account),
                cpu_us: Some(EndNumbers { server: 7.5, client: 9.0 }),
                ..CluPoint::default()
            }),
            ..ResultRow::default()
        };
        row.summarize(1);
        row
    }

    fn run(rows: Vec<ResultRow>) -> ResultFile {
        ResultFile { rows, ..ResultFile::new("clu", "2024-02-29T12:00:00Z") }
    }

    fn cells(table: &TitledTable<'_>, line: &str) -> Vec<String> {
        let line = table.table.lines.iter().find(|it| it.name == line);
        line.map_or(Vec::new(), |line| line.cells.iter().map(|cell| cell.main.clone()).collect())
    }

    #[test]
    fn the_studys_lines_have_its_numbers_and_ours_from_the_same_sums() {
        let ours = ResultRow { floor: Some(4000.0), ..row("C1", ("fodo", "fodo"), &[1000.0, 3000.0, 2000.0]) };
        let run = run(vec![row("C1", ("raw", "raw"), &[4000.0]), ours]);

        let tables = tables(&run);

        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        assert_eq!(
            table.table.head[1..],
            ["study 004: Raspberry Pi 4", "study 004: Odroid H3+", "floor (raw socket)", "fodo \u{2192} fodo"]
        );
        assert_eq!(cells(table, "requests, repetition 2"), ["106785", "291381", "", "18\u{202f}000"]);
        assert_eq!(cells(table, "mean"), ["99661.2", "287318.8", "24\u{202f}000", "12\u{202f}000"]);
        assert_eq!(cells(table, "median")[3], "12\u{202f}000");
        assert_eq!(
            (cells(table, "minimum")[3].as_str(), cells(table, "maximum")[3].as_str()),
            ("6\u{202f}000", "18\u{202f}000")
        );
        assert_eq!(cells(table, "messages per second"), ["1676", "4875", "4\u{202f}000", "2\u{202f}000"]);
        assert_eq!(cells(table, "share of an echo"), ["", "", "", "0.500"]);
        assert_eq!(cells(table, "timed out")[2..], ["1", "1"]);
        assert_eq!(cells(table, "unexplained")[2..], ["0", "0"]);
        assert_eq!(cells(table, "p99.9")[3], "2.00 ms");
        assert_eq!(cells(table, "server, CPU of a request")[3], "7.50 \u{b5}s");
        assert!(table.table.lines.iter().all(|line| line.cells.len() == 4), "{table:?}");
        assert_eq!(table.table.lines.iter().filter(|line| line.name.starts_with("requests, ")).count(), 10);
    }

    #[test]
    fn a_failed_row_shows_its_reason_and_what_is_unexplained() {
        let mut failed = row("C2", ("fodo", "fodo"), &[5000.0]);
        (failed.verdict, failed.why) = (RowVerdict::Failed, Some("2 requests unexplained".into()));
        failed.clu.as_mut().unwrap().unexplained = 2;
        let not_run = ResultRow {
            verdict: RowVerdict::NotRun,
            why: Some("no Java".into()),
            samples: Vec::new(),
            median: None,
            percentiles: Vec::new(),
            clu: Some(CluPoint::default()),
            ..row("C2", ("fodo", "opengr8ton"), &[])
        };

        let run = run(vec![failed, not_run]);
        let tables = tables(&run);

        let line = tables[0].table.lines.iter().find(|line| line.name == "unexplained").unwrap();
        assert_eq!((line.cells[0].main.as_str(), line.cells[0].is_bad), ("2", true));
        assert_eq!(
            tables[0].notes,
            ["fodo \u{2192} fodo: 2 requests unexplained", "fodo \u{2192} opengr8ton: no Java"]
        );
        assert_eq!(cells(&tables[0], "messages per second (quartiles)"), ["5\u{202f}000", "not run"]);
    }

    #[test]
    fn the_columns_of_an_open_loop_are_its_rates_and_subscriptions_have_a_ledger() {
        let mut open = ResultRow { point: 80, unit: "ns".into(), ..row("C5", ("fodo", "fodo"), &[9e5]) };
        open.clu.as_mut().unwrap().offered_hz = Some(6000.0);
        let mut subscriptions = row("C6", ("fodo", "fodo"), &[1e6]);
        subscriptions.clu = Some(CluPoint { cores: EndNumbers { server: 0.08, client: 0.05 }, ..CluPoint::default() });
        subscriptions.ledger = Some(Ledger { produced: 5000, delivered: 5000, ..Ledger::default() });

        let run = run(vec![open, subscriptions]);
        let tables = tables(&run);

        assert_eq!(tables[0].table.head, ["C5", "80 %"]);
        assert_eq!(
            (cells(&tables[0], "offered /s"), cells(&tables[0], "not sent")),
            (vec!["6\u{202f}000".into()], vec!["0".into()])
        );
        assert_eq!(cells(&tables[1], "delivered"), ["5\u{202f}000"]);
        assert_eq!((cells(&tables[1], "server, cores"), cells(&tables[1], "sent").len()), (vec!["0.0800".into()], 0));
    }
}
