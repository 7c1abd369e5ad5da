//! Tables of a result for the terminal, in the layout of the studies: a question, then one line per point.

use std::fmt::Write;

use crate::report::case_tables;
use crate::report::clu_tables;
use crate::report::number;
use crate::report::overview;
use crate::report::published::PublishedStudy;
use crate::report::study_tables;
use crate::report::table::Cell;
use crate::result::{LabProtocol, QuestionAnswer, ResultFile, ResultRow, RowVerdict};
use crate::scenario::Scenario;

/// Formats all tables.
pub fn tables(result: &ResultFile) -> String {
    let mut text = head(result);
    let mut notes = Footnotes::default();
    let studies = PublishedStudy::all();
    let scenarios = Scenario::all().unwrap_or_default();
    for answer in grouped(&result.answers_by_question()) {
        text += &answer;
    }
    let key_of = |row: &ResultRow| (row.question.clone(), row.protocol, row.variant.clone(), row.series.clone());
    let mut known = Vec::new();
    for row in result.rows.iter().filter(|row| !row.is_of_study()) {
        let key = key_of(row);
        if known.contains(&key) {
            continue;
        }
        let rows: Vec<&ResultRow> = result.rows.iter().filter(|other| key_of(other) == key).collect();
        known.push(key);
        let counted = scenarios.iter().find(|scenario| scenario.question == row.question);
        let points_are = counted.map_or("n", |scenario| scenario.points_are.as_str());
        text += &table(&rows, points_are, &studies, &mut notes);
    }
    let of_study = of_study(result);
    if !of_study.is_empty() {
        return text + &notes.text() + &of_study + &format!("{:.0} s.\n", result.duration_s);
    }
    text + &notes.text() + &foot(result, &studies)
}

/// The machine, a line for each question, and what the report has besides.
pub fn one_page(result: &ResultFile) -> String {
    head(result) + &overview::overview(result) + &format!("{:.0} s; --all prints every table.\n", result.duration_s)
}

/// The tables of studies 002 to 004; heads are broken into lines of one word each.
fn of_study(result: &ResultFile) -> String {
    let mut text = String::new();
    let tables = study_tables::tables(result);
    let tables = tables.into_iter().chain(case_tables::tables(result)).chain(clu_tables::tables(result));
    for titled in tables {
        let heads: Vec<Vec<&str>> = titled.table.head.iter().map(|head| head.split(' ').collect()).collect();
        let n_lines = heads.iter().map(Vec::len).max().unwrap_or(0);
        let word = |head: &Vec<&str>, line: usize| {
            let above = n_lines - head.len();
            line.checked_sub(above).and_then(|at| head.get(at)).map_or(String::new(), |word| (*word).to_owned())
        };
        let mut cells: Vec<Vec<String>> =
            (0..n_lines).map(|line| heads.iter().map(|head| word(head, line)).collect()).collect();
        for line in &titled.table.lines {
            cells.push(std::iter::once(line.name.clone()).chain(line.cells.iter().map(cell_of_study)).collect());
        }
        let _ = write!(text, "\n{}\n{}", titled.title, aligned(&cells));
        for note in &titled.notes {
            let _ = writeln!(text, "     {note}");
        }
    }
    let legend = [study_tables::legend(result), case_tables::legend(result), clu_tables::legend(result)].concat();
    if legend.is_empty() { text } else { format!("{text}\n{}\n", legend.join("\n")) }
}

fn cell_of_study(cell: &Cell) -> String {
    if cell.detail.is_empty() { cell.main.clone() } else { format!("{} ({})", cell.main, cell.detail) }
}

fn head(result: &ResultFile) -> String {
    let of = |name: &str| match result.machine.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "?".into(),
    };
    // The suites of studies 002 to 004 have no seed.
    let order = if result.settings.contains_key("seed") { " in random order" } else { "" };
    let mut text = format!(
        "{}, {} CPUs, {}\nfodo {} ({}), suite {}, {} repetitions{order}\n",
        of("cpu_model"),
        of("n_cpus"),
        of("kernel"),
        of("fodo_version"),
        of("git_commit"),
        result.suite,
        result.settings.get("repetitions").map_or("?".into(), ToString::to_string),
    );
    for peer in &result.peers {
        let _ = match (&peer.version, &peer.missing) {
            (_, Some(why)) => writeln!(text, "{} is missing: {why}", peer.name),
            (version, None) => writeln!(
                text,
                "{} {}{}",
                peer.name,
                version.as_deref().unwrap_or(""),
                peer.runtime.as_ref().map_or(String::new(), |runtime| format!(" ({runtime})"))
            ),
        };
    }
    if of("is_optimized") == "false" {
        text += "This program was built WITHOUT optimizations: its results are meaningless.\n";
    }
    if of("other_cpu") == "null" {
        text += "There is only one CPU, or pinning is not possible: \"two cores\" is not measured.\n";
    }
    if of("cpus_are_siblings") == "true" {
        text += "\"two cores\" are two threads of one core on this machine.\n";
    }
    text
}

fn foot(result: &ResultFile, studies: &[PublishedStudy]) -> String {
    let mut text = String::from(
        "\nTime of one operation: the median of the repetitions, and half the distance between the quartiles in per \
         cent.\np99 is that of all individual times. Loopback; every value was checked.\n",
    );
    let n_requested = result.settings.get("repetitions").and_then(serde_json::Value::as_u64).unwrap_or_default();
    let counts = result.rows.iter().filter(|row| row.is_measured()).map(|row| row.samples.len());
    let fewer: Vec<usize> = counts.filter(|n| (*n as u64) < n_requested).collect();
    if let Some(least) = fewer.iter().min() {
        let n = fewer.len();
        let _ = writeln!(text, "{n} results have fewer than {n_requested} repetitions, the fewest {least}.");
    }
    for study in studies {
        let _ = writeln!(text, "{}: {}, another machine, one host, one run.", study.name(), study.title);
    }
    let is_resumed = result.settings.get("resumed").and_then(serde_json::Value::as_bool).unwrap_or_default();
    let since = if is_resumed { " since it was resumed" } else { "" };
    let _ = writeln!(text, "{:.0} s{since}.", result.duration_s);
    text
}

fn grouped(answers: &[QuestionAnswer]) -> Vec<String> {
    let mut questions: Vec<&str> = answers.iter().map(|answer| answer.question.as_str()).collect();
    questions.sort_by_key(|question| question.trim_start_matches('Q').parse::<u32>().unwrap_or(u32::MAX));
    questions.dedup();
    let mut texts = Vec::new();
    for question in questions {
        let mut text = format!("\n{question}: {}\n", question_text(question));
        for answer in answers.iter().filter(|answer| answer.question == question) {
            let yes = match (answer.yes, answer.words.starts_with("at least")) {
                (_, true) => "",
                (true, _) => "YES ",
                (false, _) => "NO ",
            };
            let _ = writeln!(text, "     {:<8} with {:<8}  {yes}{}", answer.client, answer.server, answer.words);
        }
        texts.push(text);
    }
    texts
}

/// The text of a question that is answered in words.
fn question_text(question: &str) -> String {
    let known = match question {
        "Q3" => "How many contexts can be created?",
        "Q5" => "Do all contexts share the same returned object?",
        "Q10" => "How many channels can be created?",
        "Q12" => "Do all channels connected to the same PV share the same returned object?",
        "Q13" => "How many connected channels can the library simultaneously support?",
        _ => "",
    };
    let scenarios = Scenario::all().unwrap_or_default();
    let scenario = scenarios.into_iter().find(|scenario| scenario.question == question);
    scenario.map_or(known.into(), |scenario| scenario.title)
}

fn words_of_variant(variant: &str) -> String {
    match variant {
        "equal" => ", all channels on one PV".into(),
        "distinct" => ", each channel on its own PV".into(),
        "none" => String::new(),
        other => format!(", {other}"),
    }
}

fn table(rows: &[&ResultRow], points_are: &str, studies: &[PublishedStudy], notes: &mut Footnotes) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut points: Vec<u64> = Vec::new();
    for row in rows {
        let pair = (row.client.as_str(), row.server.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
        if !points.contains(&row.point) {
            points.push(row.point);
        }
    }
    // An array is one operation, whatever its length. The studies are of Channel Access.
    let of_study = |study: &PublishedStudy, point: u64| {
        if first.protocol != LabProtocol::Ca {
            return None;
        }
        let n = if first.bytes.is_some() { 1 } else { point.max(1) };
        study.total_ns(&first.question, &first.series, point).map(|ns| ns / n as f64)
    };
    let studies: Vec<&PublishedStudy> =
        studies.iter().filter(|study| points.iter().any(|point| of_study(study, *point).is_some())).collect();
    let title = format!(
        "\n{}: {}\n     {}{}{}\n",
        first.question,
        first.title,
        first.series,
        words_of_variant(&first.variant),
        first.protocol.suffix()
    );
    if pairs.len() > SIDE_BY_SIDE_MAX {
        return title
            + &aligned(&by_client(rows, &pairs, &points, points_are, notes, &|point| {
                studies.iter().map(|study| (study.name(), of_study(study, point))).collect()
            }));
    }
    let mut clients = vec![String::new()];
    clients.extend(pairs.iter().map(|(client, _)| (*client).to_owned()));
    clients.extend(studies.iter().map(|study| study.name()));
    let mut servers = vec![points_are.to_owned()];
    servers.extend(pairs.iter().map(|(_, server)| format!("with {server}")));
    servers.extend(studies.iter().map(|_| "published".to_owned()));
    let mut cells = vec![clients, servers];
    for point in points {
        let of = |pair: &(&str, &str)| {
            rows.iter().find(|row| row.point == point && (row.client.as_str(), row.server.as_str()) == *pair)
        };
        let found: Vec<Option<&ResultRow>> = pairs.iter().map(|pair| of(pair).copied()).collect();
        let mut line = vec![point.to_string()];
        line.extend(found.iter().map(|row| row.map_or(String::new(), |row| cell(row, notes))));
        line.extend(studies.iter().map(|study| of_study(study, point).map_or(String::new(), published)));
        cells.push(line);
        for (label, value) in DETAILS {
            let values: Vec<Option<String>> = found.iter().map(|row| row.and_then(value)).collect();
            if values.iter().any(Option::is_some) {
                let mut line = vec![label.to_owned()];
                line.extend(values.into_iter().map(Option::unwrap_or_default));
                cells.push(line);
            }
        }
    }
    title + &aligned(&cells)
}

/// Maximum number of clients with their servers that are shown as columns; more are shown as rows.
const SIDE_BY_SIDE_MAX: usize = 6;

/// A row for each client and server, a column for each point; in parentheses the ratio to the floor.
fn by_client(
    rows: &[&ResultRow],
    pairs: &[(&str, &str)],
    points: &[u64],
    points_are: &str,
    notes: &mut Footnotes,
    published_at: &dyn Fn(u64) -> Vec<(String, Option<f64>)>,
) -> Vec<Vec<String>> {
    let mut head = vec![points_are.to_owned()];
    head.extend(points.iter().map(u64::to_string));
    let mut lines = vec![head];
    for (client, server) in pairs {
        let mut line = vec![format!("{client} with {server}")];
        for point in points {
            let is_it =
                |row: &&&ResultRow| (row.client.as_str(), row.server.as_str(), row.point) == (*client, *server, *point);
            line.push(rows.iter().find(is_it).map_or(String::new(), |row| {
                let floors = row.to_floor().map_or(String::new(), |ratio| format!(" ({ratio:.2})"));
                cell(row, notes) + &floors
            }));
        }
        lines.push(line);
    }
    let mut names: Vec<String> = points.iter().flat_map(|point| published_at(*point)).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    for name in names {
        let at =
            |point: &u64| published_at(*point).into_iter().find(|(study, _)| *study == name).and_then(|(_, ns)| ns);
        let mut line = vec![format!("{name}, published")];
        line.extend(points.iter().map(|point| at(point).map_or(String::new(), published)));
        lines.push(line);
    }
    lines
}

/// The label of a detail line below a point, and its value for a row.
type DetailLine = (&'static str, fn(&ResultRow) -> Option<String>);

/// Detail lines below a point, for rows that have the value.
const DETAILS: [DetailLine; 12] = [
    ("p99", |row| row.percentile(99.0).map(time)),
    ("p99.9", |row| row.ledger.as_ref().and_then(|_| row.percentile(99.9)).map(time)),
    ("delivered", |row| row.ledger.as_ref().map(|ledger| share(ledger.delivered, ledger.produced))),
    ("merged", |row| {
        row.ledger.as_ref().map(|ledger| share(ledger.merged_server + ledger.merged_client, ledger.produced))
    }),
    ("unattributed", |row| row.ledger.as_ref().map(|ledger| share(ledger.unattributed, ledger.produced))),
    ("unexplained", |row| row.ledger.as_ref().map(|ledger| ledger.unexplained.to_string())),
    ("longest gap", |row| row.ledger.as_ref().map(|ledger| time(ledger.longest_gap_ms * 1e6))),
    ("server, s/million", |row| cpu(row, "server")),
    ("client, s/million", |row| cpu(row, "client")),
    ("bytes each", |row| {
        let sent = row.resources.iter().find(|used| used.role == "server")?.bytes_sent?;
        Some(format!("{:.1}", sent as f64 / row.ledger.as_ref()?.delivered.max(1) as f64))
    }),
    ("x floor", |row| row.to_floor().map(|ratio| format!("{ratio:.2}"))),
    ("MB/s", |row| row.megabytes_per_s().map(|rate| format!("{rate:.0}"))),
];

/// CPU seconds of one end per million delivered updates.
fn cpu(row: &ResultRow, role: &str) -> Option<String> {
    let used = row.resources.iter().find(|used| used.role == role)?;
    used.cpu_s_per_million.map(|s| format!("{s:.2}"))
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 / whole.max(1) as f64 * 100.0)
}

fn cell(row: &ResultRow, notes: &mut Footnotes) -> String {
    let Some(median) = row.median_per_operation() else { return notes.note(row) };
    let spread = match (row.q1, row.q3, row.median) {
        (Some(q1), Some(q3), Some(median)) if median > 0.0 => format!(" ±{:.0}%", (q3 - q1) / median * 50.0),
        _ => String::new(),
    };
    let value = if row.unit == "ns" { time(median) } else { number::value(median, &row.unit) };
    let note = row.why.as_ref().map_or(String::new(), |why| notes.mark(format!("{}: {why}", row.client)));
    value + &spread + &note
}

fn published(ns: f64) -> String {
    if ns == 0.0 { "0 ms".into() } else { time(ns) }
}

fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "us"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// The reasons of a run, each listed once below the tables; a cell refers to it by number.
#[derive(Debug, Default)]
struct Footnotes {
    reasons: Vec<String>,
}

impl Footnotes {
    fn note(&mut self, row: &ResultRow) -> String {
        let verdict = if row.verdict == RowVerdict::Failed { "FAILED" } else { row.verdict.text() };
        let reason = format!("{}: {verdict}: {}", row.client, row.why.as_deref().unwrap_or("no repetition was done"));
        verdict.to_owned() + &self.mark(reason)
    }

    fn mark(&mut self, reason: String) -> String {
        let known = self.reasons.iter().position(|known| *known == reason);
        let index = known.unwrap_or_else(|| {
            self.reasons.push(reason);
            self.reasons.len() - 1
        });
        format!(" [{}]", index + 1)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (index, reason) in self.reasons.iter().enumerate() {
            let _ = write!(text, "\n[{}] {reason}", index + 1);
        }
        if self.reasons.is_empty() { text } else { text + "\n" }
    }
}

/// Right-aligned columns of minimal width.
fn aligned(cells: &[Vec<String>]) -> String {
    let width = |column: usize| {
        cells.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for line in cells {
        let mut shown = String::from("   ");
        for (column, cell) in line.iter().enumerate() {
            let _ = write!(shown, "  {cell:>0$}", width(column));
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: &str, median: f64) -> ResultRow {
        let mut row = ResultRow {
            question: "Q16".into(),
            title: "How long?".into(),
            series: "two cores".into(),
            variant: "equal".into(),
            point: 10_000,
            client: client.into(),
            server: "soft-ioc".into(),
            unit: "ns".into(),
            samples: vec![median * 0.9, median, median * 1.1],
            n_operations: 10_000,
            verdict: RowVerdict::Measured,
            ..ResultRow::default()
        };
        row.summarize(1);
        row
    }

    fn result(rows: Vec<ResultRow>) -> ResultFile {
        ResultFile { rows, ..ResultFile::new("quick", "2024-02-29T12:00:00Z") }
    }

    #[test]
    fn a_point_has_one_line_with_all_clients_spreads_and_published_values() {
        let text = tables(&result(vec![row("fodo", 12_000.0), row("libca", 8_000.0)]));

        let line = text.lines().find(|line| line.trim_start().starts_with("10000 ")).unwrap();
        let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
        assert_eq!(cells, ["10000", "12.0 us ±5%", "8.00 us ±5%", "106 us", "205 us"]);
    }

    #[test]
    fn the_reason_for_a_missing_number_is_shown_below_the_table() {
        let capped = ResultRow { verdict: RowVerdict::Capped, why: Some("too long".into()), ..row("aioca", 1.0) };

        let text = tables(&result(vec![capped]));

        assert!(text.contains("capped [1]"), "{text}");
        assert!(text.contains("[1] aioca: capped: too long"), "{text}");
    }

    #[test]
    fn a_text_answer_is_shown_with_its_question() {
        let mut result = result(Vec::new());
        let answer = QuestionAnswer {
            question: "Q3".into(),
            client: "fodo".into(),
            server: "fodo".into(),
            yes: true,
            words: "at least 150".into(),
        };
        result.answers.push(answer);

        let text = tables(&result);

        assert!(text.contains("Q3: How many contexts can be created?"), "{text}");
        assert!(text.contains("at least 150"), "{text}");
    }
}
