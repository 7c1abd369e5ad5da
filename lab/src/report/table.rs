//! The tables of the studies, with all contenders side by side; the source of both Markdown and HTML.

use super::model::{Contender, Section};
use super::number;
use super::published::PublishedStudy;
use crate::result::{Resources, ResultFile, ResultRow, RowVerdict};

/// A table.
#[derive(Debug)]
pub struct ReportTable {
    /// The column heads; the first column is the row's name.
    pub head: Vec<String>,
    /// The lines.
    pub lines: Vec<TableRow>,
}

/// One row of a table.
#[derive(Debug)]
pub struct TableRow {
    /// Its name, such as "Creating 1000 channels".
    pub name: String,
    /// One cell for each further column.
    pub cells: Vec<Cell>,
}

/// One result, or why there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The result.
    pub main: String,
    /// Additional detail.
    pub detail: String,
    /// Why there is no result.
    pub why: Option<String>,
    /// Whether it indicates an error.
    pub is_bad: bool,
    /// Whether it is text, not a number.
    pub is_text: bool,
    /// Whether it is the best of its row, not counting floor and studies.
    pub is_best: bool,
}

impl Cell {
    /// A cell with text.
    pub fn words(words: &str) -> Cell {
        Cell { main: words.to_owned(), is_text: true, ..Cell::default() }
    }
}

/// The layout of the studies: total time of all operations of a row, and the time or the transfer rate of one of them.
/// A study has a column when it has a value at one of the points.
pub fn of(section: &Section<'_>, published: &[PublishedStudy]) -> ReportTable {
    let known = |study: &&PublishedStudy, point: u64| section.published_ns(study, point);
    let studies: Vec<&PublishedStudy> =
        published.iter().filter(|study| section.points.iter().any(|point| known(study, *point).is_some())).collect();
    let mut head = vec![String::new()];
    head.extend(section.contenders.iter().map(|contender| contender.text()));
    head.extend(studies.iter().map(|study| study.name()));
    let line = |point: &u64| {
        let best = best(section, *point);
        let own = section.contenders.iter().map(|contender| {
            let cell = section.row(*contender, *point).map_or_else(Cell::default, cell);
            Cell { is_best: best == Some(*contender), ..cell }
        });
        let theirs = studies.iter().map(|study| {
            known(study, *point).map_or_else(Cell::default, |ns| Cell {
                main: number::milliseconds(ns),
                detail: if section.moves_bytes() { String::new() } else { average(ns / (*point).max(1) as f64) },
                ..Cell::default()
            })
        });
        TableRow { name: section.line(*point), cells: own.chain(theirs).collect() }
    };
    ReportTable { head, lines: section.points.iter().map(line).collect() }
}

fn best<'a>(section: &Section<'a>, point: u64) -> Option<Contender<'a>> {
    let rows = section.at(point);
    let mut racing = rows.into_iter().filter(|(contender, _)| !contender.is_floor());
    let first = racing.next()?;
    let median = |row: &ResultRow| row.median_per_operation().unwrap_or(f64::INFINITY);
    let is_better = |one: &ResultRow, other: &ResultRow| (median(one) < median(other)) != one.is_rate();
    Some(racing.fold(first, |best, next| if is_better(next.1, best.1) { next } else { best }).0)
}

fn average(ns: f64) -> String {
    format!("average {}", number::milliseconds(ns))
}

fn cell(row: &ResultRow) -> Cell {
    let (Some(each), true) = (row.median_per_operation(), row.is_measured()) else {
        return Cell { main: row.verdict.text().into(), why: row.why.clone(), ..Cell::default() };
    };
    if row.ledger.is_some() {
        let detail = row.percentile(99.0).map_or(String::new(), |p99| format!("p99 {}", number::value(p99, &row.unit)));
        return Cell { main: number::value(each, &row.unit), detail, ..Cell::default() };
    }
    let detail = match (row.megabytes_per_s(), row.unit.as_str()) {
        (Some(rate), _) => format!("{} MB/s", number::grouped(rate.round())),
        (None, "ns") => average(each),
        (None, _) => String::new(),
    };
    let main = row.total_ns().map_or_else(|| number::value(each, &row.unit), number::milliseconds);
    let is_unsteady = row.warm_up.is_some_and(|warm_up| !warm_up.is_steady);
    let detail = if is_unsteady { format!("{detail}, not steady") } else { detail };
    Cell { main, detail, ..Cell::default() }
}

/// The account of every update of a load. `None` when no row has a ledger.
pub fn ledger(section: &Section<'_>) -> Option<ReportTable> {
    let head = [
        "",
        "produced",
        "merged by the server",
        "received",
        "merged by the client",
        "delivered",
        "in flight",
        "unattributed",
        "unexplained",
        "twice",
        "out of order",
        "longest gap",
    ];
    let line = |row: &&ResultRow| {
        let ledger = row.ledger.as_ref()?;
        let contender = Contender { client: &row.client, server: &row.server };
        let counts = [
            ledger.produced as f64,
            ledger.merged_server as f64,
            ledger.received as f64,
            ledger.merged_client as f64,
            ledger.delivered as f64,
            ledger.in_flight as f64,
            ledger.unattributed as f64,
            ledger.unexplained as f64,
            ledger.duplicates as f64,
            ledger.out_of_order as f64,
        ];
        let mut cells: Vec<Cell> =
            counts.iter().map(|count| Cell { main: number::grouped(*count), ..Cell::default() }).collect();
        // The three that must be zero in a correct run: unexplained, twice, out of order.
        cells.iter_mut().skip(7).filter(|cell| cell.main != "0").for_each(|cell| cell.is_bad = true);
        cells.push(Cell { main: number::time(1e6 * ledger.longest_gap_ms), ..Cell::default() });
        Some(TableRow { name: format!("{}, n = {}", contender.text(), number::grouped(row.point as f64)), cells })
    };
    some(&head, section.rows().iter().filter_map(line).collect())
}

/// Resource usage of each end of a load. `None` when no row has it.
pub fn resources(section: &Section<'_>) -> Option<ReportTable> {
    let head = ["", "CPU per million updates", "memory", "threads", "context switches", "packets sent", "bytes sent"];
    let lines = section.rows().iter().flat_map(|row| row.resources.iter().map(|used| costs(row, used))).collect();
    some(&head, lines)
}

fn costs(row: &ResultRow, used: &Resources) -> TableRow {
    let contender = Contender { client: &row.client, server: &row.server };
    let count = |count: Option<u64>| count.map_or(String::new(), |count| number::grouped(count as f64));
    let cells = [
        used.cpu_s_per_million.map_or(String::new(), |s| format!("{} s", number::digits(s))),
        used.rss_bytes.map_or(String::new(), |bytes| format!("{} MB", number::digits(bytes as f64 / 1e6))),
        count(used.threads),
        count(used.ctx_switches),
        count(used.packets_sent),
        count(used.bytes_sent),
    ];
    let cells = cells.into_iter().map(|main| Cell { main, ..Cell::default() }).collect();
    let n = number::grouped(row.point as f64);
    TableRow { name: format!("{}, n = {n}, the {}", contender.text(), used.role), cells }
}

/// The individual times of one point, as percentiles. `None` when no row has them.
pub fn percentiles(section: &Section<'_>, point: u64) -> Option<ReportTable> {
    let rows = section.at(point);
    let mut shares: Vec<f64> =
        rows.iter().flat_map(|(_, row)| row.percentiles.iter().map(|(share, _)| *share)).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let mut head = vec![String::new()];
    head.extend(shares.iter().map(|share| format!("{share} %")));
    let value =
        |row: &ResultRow, share: f64| row.percentile(share).map_or(String::new(), |ns| number::value(ns, &row.unit));
    let line = |(contender, row): &(Contender<'_>, &ResultRow)| TableRow {
        name: contender.text(),
        cells: shares.iter().map(|share| Cell { main: value(row, *share), ..Cell::default() }).collect(),
    };
    (!shares.is_empty()).then(|| ReportTable { head, lines: rows.iter().map(line).collect() })
}

/// The spread at one point: median, interval, quartiles, ratio to the floor.
pub fn spread(section: &Section<'_>, point: u64) -> ReportTable {
    let head = ["", "median", "95 %", "quartiles", "times the floor", "repetitions"];
    let line = |(contender, row): (Contender<'_>, &ResultRow)| {
        let per = row.per_operation();
        let value = |value: Option<f64>| value.map_or(String::new(), |value| number::value(value * per, &row.unit));
        let cells = [
            value(row.median),
            format!("{} to {}", value(row.low), value(row.high)),
            format!("{} to {}", value(row.q1), value(row.q3)),
            row.to_floor().map_or(String::new(), number::times),
            row.samples.len().to_string(),
        ];
        let cells = cells.into_iter().map(|main| Cell { main, ..Cell::default() }).collect();
        TableRow { name: contender.text(), cells }
    };
    let lines = section.at(point).into_iter().map(line).collect();
    ReportTable { head: head.map(str::to_owned).to_vec(), lines }
}

fn some(head: &[&str], lines: Vec<TableRow>) -> Option<ReportTable> {
    (!lines.is_empty()).then(|| ReportTable { head: head.iter().map(|word| (*word).to_owned()).collect(), lines })
}

/// Rows without a result, grouped by reason.
pub fn reasons(run: &ResultFile) -> Vec<(RowVerdict, String, Vec<String>)> {
    let mut reasons: Vec<(RowVerdict, String, Vec<String>)> = Vec::new();
    for row in run.rows.iter().filter(|row| !row.is_measured()) {
        let why = row.why.clone().unwrap_or_else(|| "no reason reported".into());
        match reasons.iter_mut().find(|(verdict, known, _)| *verdict == row.verdict && *known == why) {
            Some((_, _, keys)) => keys.push(row.key().to_string()),
            None => reasons.push((row.verdict, why, vec![row.key().to_string()])),
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn a_table_line_has_cells_for_all_clients_the_floor_and_the_studies() {
        let run = whole();
        let sections = Section::of(&run);
        let connecting = sections.iter().find(|section| section.question == "Q16").unwrap();

        let table = of(connecting, &PublishedStudy::all());

        assert_eq!(table.head.last().unwrap(), "study 001");
        assert!(table.lines.iter().all(|line| line.cells.len() + 1 == table.head.len()));
        let line = table.lines.last().unwrap();
        assert_eq!(line.name, "Connecting 10\u{202f}000 channels asynchronously");
        assert_eq!(
            (line.cells.last().unwrap().main.as_str(), line.cells.last().unwrap().detail.as_str()),
            ("2050 ms", "average 0.205 ms")
        );
        assert!(line.cells[0].is_best && line.cells.iter().filter(|cell| cell.is_best).count() == 1);
        assert!(line.cells.iter().any(|cell| cell.main == "capped" && cell.why.is_some()));
    }

    #[test]
    fn array_cells_show_throughput_and_loads_have_a_ledger() {
        let run = whole();
        let sections = Section::of(&run);
        let named = |name: &str| sections.iter().find(|section| section.question == name).unwrap();

        let arrays = of(named("Q21"), &[]);
        let ledger = ledger(named("L1")).unwrap();

        assert!(arrays.lines[0].cells[0].detail.ends_with(" MB/s"));
        assert_eq!(ledger.lines.len(), 16);
        assert!(super::ledger(named("Q21")).is_none());
    }
}
