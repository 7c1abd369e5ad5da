//! The tables of study 003 in their own layout: the published number of each case, and beside it what was measured here.

use super::model::{Contender, Section};
use super::number;
use super::study_tables::TitledTable;
use super::table::{Cell, ReportTable, TableRow};
use crate::nsls2::study::{CaseRow, CaseTable, PublishedCases, number_of};
use crate::result::{LabProtocol, ResultFile, ResultRow};

/// Share of the wire from which on a cell shows it: below, the link hardly matters.
const WIRE_SHARE_MIN: f64 = 0.1;

/// The programs of a column; the floor has none.
type Ends<'a> = (&'a str, &'a str);

/// What the columns mean, a paragraph in each line; empty if the run has no table.
pub fn legend(run: &ResultFile) -> Vec<String> {
    let Some(study) = PublishedCases::load().ok().filter(|_| run.rows.iter().any(|row| row.case.is_some())) else {
        return Vec::new();
    };
    let source = format!("Study {}: {}.", study.study, study.title);
    std::iter::once(source).chain(LEGEND.map(str::to_owned)).collect()
}

const LEGEND: [&str; 5] = [
    "The columns of the study have its published numbers, all measured between two hosts; those beside them were measured here, \
     on other machines, each with one client and one server. The floor is a raw socket that moves as many bytes.",
    "processGet: Fodo's server processes a record for a get with the option process, one operation; other servers do not, and \
     core-pva sends no options, so these and Channel Access put to PROC with completion and get, all in flight.",
    "Event: updates per second of the counters that one event processes, from the put until the last of them; beside it what \
     became of all updates of all counters, whose values are a sequence.",
    "A number above what a link of one gigabit per second carries is marked with that: the smallest answers of the protocol with a \
     double and its time, in frames of 1500 bytes.",
    "A delay is that of both ends; only Fodo has one. The study measured delays over pvAccess.",
];

/// The tables of which the run has rows: one for each measurement, protocol and place.
pub fn tables(run: &ResultFile) -> Vec<TitledTable<'_>> {
    let Ok(study) = PublishedCases::load() else { return Vec::new() };
    let rows: Vec<&ResultRow> = run.rows.iter().filter(|row| row.case.is_some()).collect();
    let mut places: Vec<&str> = Vec::new();
    for row in &rows {
        if !places.contains(&row.series.as_str()) {
            places.push(&row.series);
        }
    }
    let mut tables = Vec::new();
    for table in &study.tables {
        for protocol in [LabProtocol::Ca, LabProtocol::Pva] {
            for &place in &places {
                let is_here = |row: &&&ResultRow| {
                    (&row.question, row.protocol, row.series.as_str()) == (&table.question, protocol, place)
                };
                let here: Vec<&ResultRow> = rows.iter().filter(is_here).copied().collect();
                if !here.is_empty() {
                    tables.push(of_place(&study, table, protocol, &here));
                }
            }
        }
    }
    tables
}

fn of_place<'a>(
    study: &PublishedCases,
    table: &CaseTable,
    protocol: LabProtocol,
    rows: &[&'a ResultRow],
) -> TitledTable<'a> {
    let mut ends: Vec<Ends<'a>> = Vec::new();
    let mut section = Section::of_rows(rows.iter().copied().filter(|row| delay_of(row) == 0)).into_iter().next();
    for row in rows {
        let pair = (row.client.as_str(), row.server.as_str());
        if !ends.contains(&pair) {
            ends.push(pair);
        }
    }
    let mut head = vec![table.points_are.clone()];
    head.extend(study.cases.iter().map(|case| format!("study {}: {case}", study.study)));
    head.extend(ends.iter().map(|&(client, server)| Contender { client, server }.text()));
    let line = |published: &CaseRow| {
        let is_it = |row: &&&ResultRow| (row.point, delay_of(row)) == (published.point, published.delay_ms);
        let of_line: Vec<&ResultRow> = rows.iter().filter(is_it).copied().collect();
        let name = match published.delay_ms {
            0 => number::grouped(published.point as f64),
            delay_ms => format!("{}, delay {delay_ms} ms", number::grouped(published.point as f64)),
        };
        let wire_hz = table.wire_hz(protocol, published.point);
        let mut cells: Vec<Cell> = published.cases.iter().map(|text| published_cell(text, wire_hz)).collect();
        cells.extend(ends.iter().map(|ends| own_cell(&of_line, *ends, published.delay_ms)));
        (!of_line.is_empty()).then_some(TableRow { name, cells })
    };
    let lines = table.rows.iter().filter(|row| row.protocol == protocol).filter_map(line).collect();
    let place = rows.first().map_or("", |row| row.series.as_str());
    if section.as_ref().is_some_and(|section| section.points.len() < 2) {
        section = None;
    }
    TitledTable {
        title: format!("{} ({}), {}, {place}", table.title, table.unit, protocol.full_text()),
        table: ReportTable { head, lines },
        notes: notes(table, protocol, rows),
        section,
    }
}

fn delay_of(row: &ResultRow) -> u32 {
    row.case.map_or(0, |case| case.delay_ms)
}

/// The study's notes about this protocol, and why rows have no number: one line for each reason.
fn notes(table: &CaseTable, protocol: LabProtocol, rows: &[&ResultRow]) -> Vec<String> {
    let of_protocol = |note: &&String| note.starts_with(protocol.full_text());
    let mut notes: Vec<String> =
        table.notes.iter().filter(of_protocol).map(|note| format!("study 003: {note}")).collect();
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(why) = &row.why else { continue };
        let reason = format!("{} \u{2192} {}, {}: {why}", row.client, row.server, row.verdict.text());
        let point = format!("{} ({})", number::grouped(row.point as f64), row.variant);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, points)) => points.push(point),
            None => reasons.push((reason, vec![point])),
        }
    }
    notes.extend(reasons.into_iter().map(|(reason, points)| format!("{reason}; at {}", points.join(", "))));
    notes
}

/// A published number, marked if the wire carries less.
fn published_cell(text: &str, wire_hz: f64) -> Cell {
    let is_beyond = number_of(text).is_some_and(|number| number > wire_hz);
    let detail = if is_beyond { carries(wire_hz) } else { String::new() };
    Cell { main: text.to_owned(), detail, is_bad: is_beyond, ..Cell::default() }
}

fn carries(wire_hz: f64) -> String {
    format!("the wire carries {}", number::grouped(number_of_digits(wire_hz)))
}

/// Rounded down to three digits, so that no more is claimed than the wire carries.
fn number_of_digits(value: f64) -> f64 {
    let unit = 10_f64.powf((value.max(1.0).log10().floor() - 2.0).max(0.0));
    (value / unit).floor() * unit
}

fn own_cell(rows: &[&ResultRow], (client, server): Ends<'_>, delay_ms: u32) -> Cell {
    let Some(row) = rows.iter().find(|row| (row.client.as_str(), row.server.as_str()) == (client, server)) else {
        let has_delay = (client, server) == ("fodo", "fodo");
        let is_delayed = delay_ms > 0 && !has_delay;
        let main = if is_delayed { "no such delay" } else { "" };
        return Cell { main: main.into(), is_text: is_delayed, ..Cell::default() };
    };
    let Some(rate) = row.median.filter(|_| row.is_measured()) else {
        return Cell { main: row.verdict.text().into(), why: row.why.clone(), ..Cell::default() };
    };
    let wire_hz = row.case.and_then(|case| case.wire_hz);
    let is_beyond = wire_hz.is_some_and(|wire_hz| rate > wire_hz);
    let mut details = detail(row, rate);
    if (client, server) == ("fodo", "fodo") {
        details.extend(best_peer(rows).map(|best| format!("{} the best peer", number::times(rate / best))));
    }
    let (main, detail) = (number::grouped(rate.round()), details.join(", "));
    Cell { main, detail, is_bad: is_beyond, ..Cell::default() }
}

/// The best rate with other implementations at both ends.
fn best_peer(rows: &[&ResultRow]) -> Option<f64> {
    let is_peer = |row: &&&ResultRow| !row.is_floor() && row.client != "fodo" && row.server != "fodo";
    let rates = rows.iter().filter(is_peer).filter(|row| row.is_measured()).filter_map(|row| row.median);
    rates.max_by(f64::total_cmp)
}

fn detail(row: &ResultRow, rate: f64) -> Vec<String> {
    let mut details = Vec::new();
    if let Some(wire_hz) = row.case.and_then(|case| case.wire_hz) {
        if rate > wire_hz {
            details.push(carries(wire_hz));
        } else if rate >= WIRE_SHARE_MIN * wire_hz {
            details.push(format!("{} % of the wire", number::digits(rate / wire_hz * 100.0)));
        }
    }
    match (row.to_floor(), row.bytes) {
        (Some(share), Some(_)) => details.push(format!("{} of the raw stream", number::small(share))),
        (Some(share), None) => details.push(format!("{} floors", number::small(share.recip()))),
        (None, _) => {}
    }
    if let Some(ledger) = &row.ledger {
        let missing = ledger.merged_server + ledger.merged_client + ledger.unattributed;
        details.push(match missing {
            0 => "all delivered".into(),
            missing => {
                let share = missing as f64 / ledger.produced.max(1) as f64 * 100.0;
                format!("{} % lost or merged", number::small(share))
            }
        });
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{CasePoint, Ledger, RowVerdict};

    fn row(question: &str, point: u64, (client, server): Ends<'_>, rate: f64, case: CasePoint) -> ResultRow {
        ResultRow {
            question: question.into(),
            protocol: LabProtocol::Pva,
            series: "two hosts".into(),
            variant: if case.delay_ms == 0 { "no delay".into() } else { format!("delay {} ms", case.delay_ms) },
            point,
            client: client.into(),
            server: server.into(),
            unit: "updates/s".into(),
            samples: vec![rate],
            median: Some(rate),
            verdict: RowVerdict::Measured,
            case: Some(case),
            ..ResultRow::default()
        }
    }

    fn run(rows: Vec<ResultRow>) -> ResultFile {
        ResultFile { rows, ..ResultFile::new("nsls2", "2024-02-29T12:00:00Z") }
    }

    fn cell<'a>(table: &'a TitledTable<'_>, line: &str, column: usize) -> &'a Cell {
        let line = table.table.lines.iter().find(|it| it.name == line).unwrap();
        &line.cells[column]
    }

    #[test]
    fn the_published_numbers_stand_beside_those_measured_and_beyond_the_wire_are_marked() {
        let wire = CasePoint { delay_ms: 0, wire_hz: Some(3_300_000.0) };
        let ledger = Ledger { produced: 1000, delivered: 1000, ..Ledger::default() };
        let ours = ResultRow { ledger: Some(ledger), ..row("N3", 1000, ("fodo", "fodo"), 1_650_000.0, wire) };
        let run = run(vec![ours, row("N3", 10, ("fodo", "fodo"), 40_000.0, wire)]);

        let tables = tables(&run);

        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        assert!(table.title.contains("pvAccess, two hosts"), "{}", table.title);
        assert_eq!(table.table.head.len(), 1 + 4 + 1);
        let published = cell(table, "1\u{202f}000", 3);
        assert_eq!((published.main.as_str(), published.is_bad), ("8,028,389", true));
        assert_eq!(published.detail, "the wire carries 3\u{202f}260\u{202f}000");
        let measured = cell(table, "1\u{202f}000", 4);
        assert_eq!((measured.main.as_str(), measured.is_bad), ("1\u{202f}650\u{202f}000", false));
        assert_eq!(measured.detail, "50.0 % of the wire, all delivered");
        assert_eq!((cell(table, "10", 0).main.as_str(), cell(table, "10", 0).is_bad), ("3578", false));
        assert_eq!(table.notes.len(), 3);
        assert!(table.section.is_some());
    }

    #[test]
    fn only_fodo_has_a_delay_and_a_cell_of_another_client_says_so() {
        let no_delay = CasePoint::default();
        let delay = CasePoint { delay_ms: 5, wire_hz: None };
        let run = run(vec![
            row("N2", 1, ("fodo", "fodo"), 9000.0, no_delay),
            row("N2", 1, ("pvxs", "qsrv2"), 3000.0, no_delay),
            row("N2", 1, ("fodo", "fodo"), 90.0, delay),
        ]);

        let tables = tables(&run);

        let table = &tables[0];
        assert_eq!(table.table.lines.len(), 2);
        assert_eq!(cell(table, "1", 4).detail, "3.00\u{d7} the best peer");
        assert_eq!(cell(table, "1, delay 5 ms", 0).main, "176");
        assert_eq!(cell(table, "1, delay 5 ms", 4).main, "90");
        assert_eq!(cell(table, "1, delay 5 ms", 5).main, "no such delay");
    }

    #[test]
    fn ratios_to_the_floor_are_shares_of_the_stream_for_arrays_and_floors_for_counters() {
        let place = CasePoint::default();
        let with_floor = |question: &str, bytes| ResultRow {
            floor: Some(1000.0),
            bytes,
            ..row(question, 10, ("fodo", "fodo"), 625.0, place)
        };

        assert_eq!(detail(&with_floor("N1", Some(80)), 625.0), ["0.625 of the raw stream"]);
        assert_eq!(detail(&with_floor("N2", None), 625.0), ["1.60 floors"]);
    }

    #[test]
    fn a_row_without_a_number_has_one_note_for_all_its_points() {
        let missing = |point| ResultRow {
            verdict: RowVerdict::NotRun,
            why: Some("no `mvn` in PATH".into()),
            samples: Vec::new(),
            median: None,
            ..row("N2", point, ("core-pva", "fodo"), 0.0, CasePoint::default())
        };
        let run = run(vec![missing(1), missing(10)]);

        let tables = tables(&run);

        let notes: Vec<&String> = tables[0].notes.iter().filter(|note| note.contains("mvn")).collect();
        assert_eq!(notes, ["core-pva \u{2192} fodo, not run: no `mvn` in PATH; at 1 (no delay), 10 (no delay)"]);
        assert_eq!(cell(&tables[0], "1", 4).main, "not run");
    }
}
