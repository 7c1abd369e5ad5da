//! The tables of study 002 in their own layout: each row as published, and below it what was measured here.

use super::model::Section;
use super::number;
use super::table::{Cell, ReportTable, TableRow};
use crate::diamond::study::{PublishedTables, StudyRow};
use crate::result::{EndUsage, ResultFile, ResultRow, RowVerdict, StudyPoint};

/// The columns of the study, then what it lacks. Pairs of numbers are of the server and of the client.
const HEAD: [&str; 23] = [
    "",
    "N PVs",
    "Rate (Hz)",
    "server CPU (%)",
    "server sent (kB/s)",
    "server received (kB/s)",
    "N PVs watched",
    "N monitors",
    "client CPU (%)",
    "client sent (kB/s)",
    "client received (kB/s)",
    "packets sent /s",
    "memory (MB)",
    "threads",
    "offered /s",
    "delivered /s",
    "delivered",
    "merged by server",
    "merged by client",
    "lost or merged",
    "lost",
    "p50",
    "p99",
];

/// One table of the study.
#[derive(Debug)]
pub struct TitledTable<'a> {
    /// The study's title.
    pub title: String,
    /// Its lines.
    pub table: ReportTable,
    /// The study's notes, and why rows have no numbers: one line each.
    pub notes: Vec<String>,
    /// The rows of which a page draws curves.
    pub section: Option<Section<'a>>,
}

/// What the columns mean, a paragraph in each line; empty if the run has no table.
pub fn legend(run: &ResultFile) -> Vec<String> {
    let Some(study) = PublishedTables::load().ok().filter(|_| run.rows.iter().any(|row| row.study.is_some())) else {
        return Vec::new();
    };
    let source = format!("Study {}: {}.", study.study, study.title);
    std::iter::once(source).chain(LEGEND.map(str::to_owned)).collect()
}

const LEGEND: [&str; 5] = [
    "The line of each row that is named after the study has its published numbers; those below it were measured here, on other \
     machines: the first pair of client and server is that of the study.",
    "Pairs of numbers are those of the server and of the client. CPU, kB/s and packets are those of the time in which values \
     changed; between two hosts they include the headers of frames.",
    "A row's updates are delivered, merged by the server, merged by the client, or lost. Only Fodo reports what it merges; what \
     another implementation has lost or merged is one number, and a last value that never arrived is lost.",
    "Each monitor is a subscription of its own on the wire, also with caproto and pyepics, which by default share one.",
    "Latency is measured from the time stamp of a value until the program has it, by one subscription of a hundred.",
];

/// The tables of which the run has rows.
pub fn tables(run: &ResultFile) -> Vec<TitledTable<'_>> {
    let Ok(study) = PublishedTables::load() else { return Vec::new() };
    let rows = study.rows(false);
    let of_table = |number: usize| {
        let mut titled = TitledTable {
            title: study.tables.get(number - 1)?.title.clone(),
            table: ReportTable { head: HEAD.map(str::to_owned).to_vec(), lines: Vec::new() },
            notes: Vec::new(),
            section: None,
        };
        for row in rows.iter().filter(|row| row.table_number == number) {
            titled.add(&study.study, row, run);
        }
        (!titled.table.lines.is_empty()).then_some(titled)
    };
    (1..=study.tables.len()).filter_map(of_table).collect()
}

impl TitledTable<'_> {
    fn add(&mut self, study: &str, row: &StudyRow<'_>, run: &ResultFile) {
        let is_of_row = |point: &StudyPoint| (point.table, point.row) == (row.table_number, row.row_number);
        let measured: Vec<&ResultRow> =
            run.rows.iter().filter(|measured| measured.study.as_ref().is_some_and(is_of_row)).collect();
        if measured.is_empty() {
            return;
        }
        self.table.lines.push(published(study, row));
        if let Some(note) = &row.line.note {
            self.notes.push(format!("row {}, study {study}: {note}", row.row_number));
        }
        for row_of_run in measured {
            let Some(point) = &row_of_run.study else { continue };
            let name = format!("{} \u{2192} {}", row_of_run.client, row_of_run.server);
            if let Some(why) = &row_of_run.why {
                self.notes.push(format!("row {}, {name}: {why}", point.row));
            }
            self.table.lines.push(TableRow { name, cells: cells(row_of_run, point) });
        }
    }
}

fn published(study: &str, row: &StudyRow<'_>) -> TableRow {
    let [server_cpu, server_sent, server_received, client_cpu, client_sent, client_received] = &row.line.published;
    let words = [
        row.line.n_pvs.to_string(),
        row.line.hz.to_string(),
        server_cpu.clone(),
        server_sent.clone(),
        server_received.clone(),
        row.n_watched().to_string(),
        row.line.n_monitors.to_string(),
        client_cpu.clone(),
        client_sent.clone(),
        client_received.clone(),
    ];
    let empty = HEAD.len() - 1 - words.len();
    let cells = words.into_iter().chain(std::iter::repeat_n(String::new(), empty));
    TableRow { name: format!("study {study}"), cells: cells.map(|main| Cell { main, ..Cell::default() }).collect() }
}

fn cells(row: &ResultRow, point: &StudyPoint) -> Vec<Cell> {
    let mut words = vec![point.n_pvs.to_string(), point.hz.to_string()];
    if row.ledger.is_none() {
        words.extend([String::new(), String::new(), String::new()]);
        words.extend([point.n_watched.to_string(), point.n_monitors.to_string(), row.verdict.text().into()]);
        words.resize(HEAD.len() - 1, String::new());
        let verdict = row.verdict;
        let cell =
            |main: String| Cell { is_bad: verdict == RowVerdict::Failed && !main.is_empty(), main, ..Cell::default() };
        return words.into_iter().map(cell).collect();
    }
    words.extend(side(&point.server));
    words.extend([point.n_watched.to_string(), point.n_monitors.to_string()]);
    words.extend(side(&point.client));
    let both = |number: fn(&EndUsage) -> String| format!("{} / {}", number(&point.server), number(&point.client));
    words.push(both(|side| optional(side.sent_packets_s)));
    words.push(both(|side| number::digits(side.rss_bytes as f64 / 1e6)));
    words.push(both(|side| side.threads.to_string()));
    words.extend(account(row, point));
    for per_cent in [50.0, 99.0] {
        words.push(row.percentile(per_cent).map_or(String::new(), number::time));
    }
    let is_failed = row.verdict == RowVerdict::Failed;
    words.into_iter().map(|main| Cell { main, is_bad: is_failed, ..Cell::default() }).collect()
}

fn side(side: &EndUsage) -> [String; 3] {
    [number::digits(side.cpu_per_cent), optional(side.sent_kb_s), optional(side.received_kb_s)]
}

fn optional(value: Option<f64>) -> String {
    value.map_or(String::new(), number::digits)
}

/// Offered per second, and where the updates went.
fn account(row: &ResultRow, point: &StudyPoint) -> Vec<String> {
    let Some(ledger) = &row.ledger else { return Vec::new() };
    let share = |count: u64| match count {
        0 => "0".to_owned(),
        count if count < ledger.produced && count as f64 > ledger.produced as f64 * 0.9995 => "> 99.9 %".to_owned(),
        count => format!("{} %", number::small(count as f64 / ledger.produced.max(1) as f64 * 100.0)),
    };
    let lost = point.lost_at_end + ledger.unexplained.unsigned_abs();
    vec![
        number::grouped((ledger.produced as f64 / point.seconds.max(f64::MIN_POSITIVE)).round()),
        number::grouped(point.delivered_hz.round()),
        share(ledger.delivered),
        share(ledger.merged_server),
        share(ledger.merged_client),
        share(ledger.unattributed.saturating_sub(point.lost_at_end)),
        share(lost),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Ledger;

    fn row() -> ResultRow {
        let side = |cpu| EndUsage {
            cpu_per_cent: cpu,
            sent_kb_s: Some(245.5),
            received_kb_s: Some(3.0),
            sent_packets_s: Some(170.0),
            rss_bytes: 12_000_000,
            threads: 4,
        };
        ResultRow {
            question: "D1".into(),
            client: "aioca".into(),
            server: "softioc".into(),
            verdict: RowVerdict::Measured,
            samples: vec![2e6],
            percentiles: vec![(50.0, 2e6), (99.0, 9e6)],
            ledger: Some(Ledger { produced: 1000, delivered: 900, unattributed: 100, ..Ledger::default() }),
            study: Some(StudyPoint {
                table: 1,
                row: 2,
                n_pvs: 1,
                hz: 100.0,
                n_watched: 1,
                n_monitors: 1000,
                seconds: 10.0,
                delivered_hz: 75.0,
                server: side(12.0),
                client: side(61.0),
                lost_at_end: 40,
                ..StudyPoint::default()
            }),
            ..ResultRow::default()
        }
    }

    fn run(rows: Vec<ResultRow>) -> ResultFile {
        ResultFile { rows, ..ResultFile::new("diamond", "2024-02-29T12:00:00Z") }
    }

    #[test]
    fn a_measured_row_follows_that_of_the_study_with_the_same_columns() {
        let run = run(vec![row()]);
        let tables = tables(&run);

        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        let [published, ours] = table.table.lines.as_slice() else { panic!("{table:?}") };
        let text = |line: &TableRow| line.cells.iter().map(|cell| cell.main.clone()).collect::<Vec<_>>();
        assert_eq!(table.title, "Performance (Python IOC / aioca)");
        assert_eq!((published.name.as_str(), ours.name.as_str()), ("study 002", "aioca \u{2192} softioc"));
        assert_eq!(text(published)[..10], ["1", "100", "6", "520", "3", "1", "1000", "120", "2", "528"]);
        assert_eq!(text(ours)[..10], ["1", "100", "12.0", "246", "3.00", "1", "1000", "61.0", "246", "3.00"]);
        assert_eq!((published.cells.len(), ours.cells.len()), (HEAD.len() - 1, HEAD.len() - 1));
    }

    #[test]
    fn what_was_not_delivered_is_divided_into_lost_and_unattributed() {
        let row = row();

        let account = account(&row, row.study.as_ref().unwrap());

        assert_eq!(account, ["100", "75", "90.0 %", "0", "0", "6.00 %", "4.00 %"]);
    }

    #[test]
    fn a_row_without_numbers_shows_its_verdict_and_a_note() {
        let failed = ResultRow {
            verdict: RowVerdict::Failed,
            why: Some("7 of 1000 first updates were received".into()),
            ledger: None,
            ..row()
        };

        let run = run(vec![failed]);
        let tables = tables(&run);

        let table = &tables.first().unwrap();
        assert!(table.table.lines[1].cells.iter().any(|cell| cell.main == "failed" && cell.is_bad));
        assert_eq!(table.notes, ["row 2, aioca \u{2192} softioc: 7 of 1000 first updates were received"]);
    }
}
