//! Studies 000 and 001, which measured PSI's `ca` in Java: every question as published, and what both clients in Java need
//! here.

use super::number;
use super::published::PublishedStudy;
use super::study_tables::TitledTable;
use super::table::{Cell, ReportTable, TableRow};
use crate::result::{Ledger, ResultFile, ResultRow, RowVerdict};

/// The clients of the studies' tables.
const CLIENTS: [&str; 2] = ["psi-ca", "fodo-java"];

/// The ways in which updates are delivered, and the implementation's name in study 001.
const ENGINES: [(&str, &str, &str); 7] = [
    ("psi-ca-single", "PSI's single worker", "BlockingQueueSingleWorkerMonitorNotificationServiceImpl"),
    ("psi-ca-multiple", "PSI's multiple workers", "BlockingQueueMultipleWorkerMonitorNotificationServiceImpl"),
    ("psi-ca-striped", "PSI's striped executor", "StripedExecutorServiceMonitorNotificationServiceImpl"),
    ("fodo-java", "Fodo, the context's thread", ""),
    ("fodo-java-executor", "Fodo, an executor", ""),
    ("fodo-java-virtual", "Fodo, virtual threads", ""),
    ("fodo-java-rows", "Fodo, rows", ""),
];

/// The server of the studies.
const SERVER: &str = "soft-ioc";

/// The load that proves order and loss.
const PROOF: &str = "L9";

/// The questions that each way of delivery was asked.
const OF_ENGINES: [&str; 2] = ["Q20", "Q21"];

/// The tables; none for a run without a question of the studies for a client in Java.
pub fn tables<'a>(run: &'a ResultFile, published: &[PublishedStudy]) -> Vec<TitledTable<'a>> {
    let is_measured = |row: &ResultRow| is_of_java(row) && row.question.starts_with('Q') && row.is_measured();
    if !run.rows.iter().any(is_measured) {
        return Vec::new();
    }
    let mut tables: Vec<TitledTable<'a>> = published.iter().map(|study| of_study(run, study)).collect();
    tables.extend(of_engines(run, published));
    tables
}

fn is_of_java(row: &ResultRow) -> bool {
    row.client.starts_with("fodo-java") || row.client.starts_with("psi-ca")
}

/// Each published line, with the same point measured here.
fn of_study<'a>(run: &ResultFile, study: &PublishedStudy) -> TitledTable<'a> {
    let has_two = study.has_two_hosts();
    let mut head = vec![String::new(), format!("{}, one host", study.name())];
    head.extend(has_two.then(|| format!("{}, two hosts", study.name())));
    head.extend(["PSI's `ca` here".to_owned(), "Fodo in Java here".to_owned()]);
    let mut lines = Vec::new();
    for question in study.questions() {
        for answer in study.answers(question) {
            let mut cells = vec![Cell::words(&answer.one_host)];
            cells.extend(has_two.then(|| Cell::words(answer.two_hosts.as_deref().unwrap_or_default())));
            cells.extend(CLIENTS.map(|client| Cell::words(&answered(run, question, client))));
            lines.push(TableRow { name: question.to_owned(), cells });
        }
        for point in study.points(question) {
            let n = if question == "Q21" { 1.0 } else { point.max(1) as f64 };
            let each = |series| {
                let ns = study.total_ns(question, series, point).map(|ns| ns / n);
                Cell { main: ns.map_or(String::new(), published_time), ..Cell::default() }
            };
            let mut cells = vec![each("two cores")];
            cells.extend(has_two.then(|| each("two hosts")));
            cells.extend(CLIENTS.map(|client| measured(run, question, client, point)));
            lines.push(TableRow { name: format!("{question}, {}", number::grouped(point as f64)), cells });
        }
    }
    let mut cold: Vec<Cell> = (0..=usize::from(has_two)).map(|_| Cell::default()).collect();
    cold.extend(CLIENTS.map(|client| measured(run, "P6", client, 1)));
    lines.push(TableRow { name: "cold first call".into(), cells: cold });
    let notes = vec![
        "Times are of one operation, with softIoc, client and server on two cores. Both clients are warm, except in the last \
         line: the first get of a process. The studies' clients were not warmed up. A published 0 is less than a millisecond for \
         all operations together."
            .to_owned(),
    ];
    TitledTable {
        title: format!("Study {}: {}", study.number(), study.title),
        table: ReportTable { head, lines },
        notes,
        section: None,
    }
}

/// A published time; the studies measured whole milliseconds.
fn published_time(ns: f64) -> String {
    if ns == 0.0 { "0 ms".into() } else { number::time(ns) }
}

/// The row at the studies' placement; with one PV for all channels where there is a choice, as in the studies.
fn row<'a>(run: &'a ResultFile, question: &str, client: &str, point: u64) -> Option<&'a ResultRow> {
    let is_it = |row: &&ResultRow| {
        (row.question.as_str(), row.client.as_str(), row.server.as_str()) == (question, client, SERVER)
            && row.point == point
            && ["two cores", "not pinned"].contains(&row.series.as_str())
    };
    let is_same_pv = |row: &&ResultRow| row.variant != "distinct";
    let mut rows = run.rows.iter().filter(is_it);
    rows.clone().find(is_same_pv).or_else(|| rows.next())
}

fn measured(run: &ResultFile, question: &str, client: &str, point: u64) -> Cell {
    let Some(row) = row(run, question, client, point) else { return Cell::default() };
    match row.median_per_operation() {
        Some(each) => Cell { main: number::value(each, &row.unit), ..Cell::default() },
        None => Cell { is_bad: row.verdict == RowVerdict::Failed, ..Cell::words(row.verdict.text()) },
    }
}

fn answered(run: &ResultFile, question: &str, client: &str) -> String {
    let is_it = |answer: &&crate::result::QuestionAnswer| {
        (answer.question.as_str(), answer.client.as_str(), answer.server.as_str()) == (question, client, SERVER)
    };
    run.answers.iter().find(is_it).map_or(String::new(), |answer| {
        match (answer.yes, answer.words.starts_with("at least")) {
            (_, true) => answer.words.clone(),
            (true, _) => "YES".into(),
            (false, _) => "NO".into(),
        }
    })
}

/// Q20 and Q21 by the way in which updates are delivered, and the account of a load of each.
fn of_engines<'a>(run: &ResultFile, published: &[PublishedStudy]) -> Option<TitledTable<'a>> {
    let mut points: Vec<(&str, u64)> = Vec::new();
    for question in OF_ENGINES {
        let is_of_engine = |row: &&ResultRow| row.question == question && ENGINES.iter().any(|it| it.0 == row.client);
        let mut of_question: Vec<u64> = run.rows.iter().filter(is_of_engine).map(|row| row.point).collect();
        of_question.extend(published.iter().flat_map(|study| study.points_by_engine(question)));
        of_question.sort_unstable();
        of_question.dedup();
        points.extend(of_question.into_iter().map(|point| (question, point)));
    }
    let is_variant =
        |row: &ResultRow| ENGINES.iter().any(|(client, ..)| row.client == *client && *client != "fodo-java");
    if !run.rows.iter().any(is_variant) {
        return None;
    }
    let mut head = vec![String::new()];
    head.extend(points.iter().map(|(question, point)| format!("{question}, {}", number::grouped(*point as f64))));
    head.push("order and loss".into());
    let mut lines = Vec::new();
    for (client, name, implementation) in ENGINES {
        for study in published.iter().filter(|study| study.has_engine(implementation)) {
            let cell = |(question, point): &(&str, u64)| {
                let n = if *question == "Q21" { 1.0 } else { *point as f64 };
                let ns = study.engine_ns(question, *point, implementation).map(|ns| ns / n);
                Cell { main: ns.map_or(String::new(), published_time), ..Cell::default() }
            };
            let cells = points.iter().map(cell).chain(std::iter::once(Cell::default())).collect();
            lines.push(TableRow { name: format!("{name}, {}", study.name()), cells });
        }
        let of_points = points.iter().map(|(question, point)| measured(run, question, client, *point));
        let cells = of_points.chain(std::iter::once(proof(run, client))).collect();
        lines.push(TableRow { name: name.into(), cells });
    }
    let notes = vec![
        format!(
            "Q20: the first update of each monitor, time of one. Q21: a get of an array, to which the way of delivery makes no \
             difference; rows have no arrays. Order and loss: every update of load {PROOF} carries its number."
        ),
        "Virtual threads need Java 21 or newer.".to_owned(),
    ];
    Some(TitledTable {
        title: "Studies 000 and 001: monitors and arrays by the way of delivery".into(),
        table: ReportTable { head, lines },
        notes,
        section: None,
    })
}

/// The account of the load of this client.
fn proof(run: &ResultFile, client: &str) -> Cell {
    let Some(row) = run.rows.iter().find(|row| row.question == PROOF && row.client == client) else {
        return Cell::default();
    };
    let Some(ledger) = &row.ledger else { return Cell::words(row.verdict.text()) };
    Cell { is_bad: row.verdict == RowVerdict::Failed, ..Cell::words(&account(ledger)) }
}

fn account(ledger: &Ledger) -> String {
    let lost = ledger.unattributed + ledger.unexplained.unsigned_abs();
    format!(
        "{} of {} delivered, {} merged, {} lost, {} twice, {} out of order",
        number::grouped(ledger.delivered as f64),
        number::grouped(ledger.produced as f64),
        number::grouped((ledger.merged_server + ledger.merged_client) as f64),
        number::grouped(lost as f64),
        number::grouped(ledger.duplicates as f64),
        number::grouped(ledger.out_of_order as f64)
    )
}

/// The questions of the studies that are missing in the tables, for the tests.
#[cfg(test)]
fn missing_questions(table: &TitledTable<'_>) -> Vec<String> {
    let is_there = |question: &String| table.table.lines.iter().any(|line| line.name.starts_with(question.as_str()));
    let numbers = [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 31];
    numbers.map(|number| format!("Q{number}")).into_iter().filter(|question| !is_there(question)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::QuestionAnswer;

    fn row(question: &str, client: &str, point: u64, ns: f64) -> ResultRow {
        let mut row = ResultRow {
            question: question.into(),
            client: client.into(),
            server: SERVER.into(),
            series: "two cores".into(),
            variant: "equal".into(),
            point,
            unit: "ns".into(),
            samples: vec![ns],
            n_operations: point,
            verdict: RowVerdict::Measured,
            ..ResultRow::default()
        };
        row.summarize(1);
        row
    }

    fn run() -> ResultFile {
        let answer = |client: &str| QuestionAnswer {
            question: "Q12".into(),
            client: client.into(),
            server: SERVER.into(),
            yes: false,
            words: "1000 channels".into(),
        };
        let ledger = Ledger { produced: 100, delivered: 99, unattributed: 1, out_of_order: 7, ..Ledger::default() };
        let failed =
            ResultRow { verdict: RowVerdict::Failed, ledger: Some(ledger), ..row(PROOF, "psi-ca-multiple", 10, 1.0) };
        ResultFile {
            rows: vec![
                row("Q4", "psi-ca", 10, 5.48e6),
                row("Q4", "fodo-java", 10, 3000.0),
                row("Q20", "fodo-java-rows", 1000, 900.0),
                row("P6", "fodo-java", 1, 2e6),
                failed,
            ],
            answers: vec![answer("psi-ca"), answer("fodo-java")],
            ..ResultFile::new("full", "2024-02-29T12:00:00Z")
        }
    }

    fn cells(table: &TitledTable<'_>, name: &str) -> Vec<String> {
        let line = table.table.lines.iter().find(|line| line.name == name).unwrap();
        line.cells.iter().map(|cell| cell.main.clone()).collect()
    }

    #[test]
    fn every_published_question_is_printed_with_both_clients_in_java() {
        let run = run();
        let tables = tables(&run, &PublishedStudy::all());

        let [first, second, engines] = tables.as_slice() else { panic!("{} tables", tables.len()) };
        assert!(missing_questions(first).is_empty(), "{:?}", missing_questions(first));
        assert!(missing_questions(second).is_empty(), "{:?}", missing_questions(second));
        assert_eq!(cells(first, "Q4, 10"), ["37.2 ms", "40.9 ms", "5.48 ms", "3.00 µs"]);
        assert_eq!(cells(second, "Q12"), ["NO", "NO", "NO"]);
        assert_eq!(cells(second, "Q11, 1")[0], "0 ms");
        assert_eq!(cells(first, "Q3")[..2], ["at least 627", "at least 639"]);
        assert_eq!(cells(second, "cold first call"), ["", "", "2.00 ms"]);
        let n_columns = engines.table.head.len() - 1;
        assert!(engines.table.lines.iter().all(|line| line.cells.len() == n_columns));
        let proof = cells(engines, "PSI's multiple workers").pop().unwrap();
        assert_eq!(proof, "99 of 100 delivered, 0 merged, 1 lost, 0 twice, 7 out of order");
        let place = engines.table.head.iter().position(|head| head == "Q20, 1\u{202f}000").unwrap() - 1;
        assert_eq!(cells(engines, "Fodo, rows")[place], "900 ns");
        assert_eq!(cells(engines, "PSI's single worker, study 001")[place], "97.0 µs");
    }

    #[test]
    fn a_run_without_a_client_in_java_has_no_such_table() {
        let run = ResultFile { rows: vec![row("Q4", "fodo", 10, 3000.0)], ..run() };

        assert!(tables(&run, &PublishedStudy::all()).is_empty());
    }
}
