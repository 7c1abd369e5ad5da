//! A run on one page of a terminal: a line for each question, with Fodo, its fastest peer and the floor.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::model::{Contender, Section};
use super::number;
use crate::result::{LabProtocol, ResultFile, ResultRow, RowVerdict};

/// The maximum width of the first column, in characters.
const LABEL_WIDTH: usize = 62;

/// The heads of the columns.
const HEADS: [&str; 5] = ["", "Fodo", "fastest peer", "peer/Fodo", "floors"];

/// The page, without the description of the machine. Everything that was measured is in the tables.
pub fn overview(result: &ResultFile) -> String {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for section in Section::of(result) {
        let is_same = |other: &Section<'_>| {
            (other.question, other.protocol, other.variant) == (section.question, section.protocol, section.variant)
        };
        // Of several placements the first one counts: two cores, if it was measured.
        if !sections.iter().any(is_same) {
            sections.push(section);
        }
    }
    let lines: Vec<[String; 5]> = sections.iter().filter_map(line).collect();
    let place = sections.first().map_or("", |section| section.series);
    let mut text = format!("\nTime of one operation, or rate; {place} where nothing else is said\n");
    text += &columns(&lines);
    text += &account(result);
    text += &not_measured(result);
    text
}

/// The line of a section, at the point with the most results; `None` if Fodo has none.
fn line(section: &Section<'_>) -> Option<[String; 5]> {
    let rows = section.at(section.best_point()?);
    // With its defaults, which other clients of Fodo do not have.
    let (_, ours) = best(rows.iter().filter(|(contender, _)| contender.client == "fodo"))?;
    let is_peer = |contender: &Contender<'_>| !contender.client.starts_with("fodo") && !contender.is_floor();
    let peer = best(rows.iter().filter(|(contender, _)| is_peer(contender)));
    let ratio = peer.and_then(|(_, theirs)| {
        let (ours, theirs) = (ours.median_per_operation()?, theirs.median_per_operation()?);
        let ratio = if section.rows().iter().any(|row| row.is_rate()) { ours / theirs } else { theirs / ours };
        Some(format!("{}x", number::digits(ratio)))
    });
    let floors = ours.to_floor().map(number::digits);
    Some([
        label(section, ours),
        shown(ours),
        peer.map(|(contender, row)| format!("{}  {} with {}", shown(row), contender.client, contender.server))
            .unwrap_or_default(),
        ratio.unwrap_or_default(),
        floors.unwrap_or_default(),
    ])
}

/// The row with the shortest time or the highest rate.
fn best<'a, 'b: 'a>(
    rows: impl Iterator<Item = &'a (Contender<'b>, &'b ResultRow)>,
) -> Option<(Contender<'b>, &'b ResultRow)> {
    let cost =
        |row: &ResultRow| row.median_per_operation().map_or(f64::INFINITY, |m| if row.is_rate() { -m } else { m });
    rows.copied().min_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)))
}

fn shown(row: &ResultRow) -> String {
    number::value(row.median_per_operation().unwrap_or_default(), &row.unit)
}

/// What the line is about.
fn label(section: &Section<'_>, row: &ResultRow) -> String {
    let what = if section.question.starts_with('L') {
        let title = section.title.split(['?', ':']).next().unwrap_or_default();
        match section.variant {
            "none" => title.to_owned(),
            variant => format!("{variant}: {title}"),
        }
    } else {
        section.line(row.point)
    };
    let variant = match section.variant {
        "equal" => ", one PV",
        "distinct" if !section.question.starts_with('P') => ", a PV each",
        _ => "",
    };
    let protocol = if section.protocol == LabProtocol::Pva { ", pvAccess" } else { "" };
    let series = if section.series == "two cores" { String::new() } else { format!(", {}", section.series) };
    let tail = format!("{variant}{protocol}{series}");
    let room = LABEL_WIDTH.saturating_sub(section.question.len() + 2 + tail.chars().count());
    let what = if what.chars().count() > room {
        format!("{}..", what.chars().take(room.saturating_sub(2)).collect::<String>().trim_end())
    } else {
        what
    };
    format!("{:<3} {what}{tail}", section.question)
}

/// The columns under their heads: words to the left, numbers to the right.
fn columns(lines: &[[String; 5]]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.chain([HEADS[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let padded = |cells: &[String; 5]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            // The label and the peer are words.
            line += &if matches!(column, 0 | 2) { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        format!("{}\n", line.trim_end())
    };
    let heads = padded(&HEADS.map(str::to_owned));
    std::iter::once(heads).chain(lines.iter().map(padded)).collect()
}

/// What happened to the updates of loads with Fodo at both ends, in one line; empty without any.
fn account(result: &ResultFile) -> String {
    let ours = result.rows.iter().filter(|row| row.client.starts_with("fodo") && row.server.starts_with("fodo"));
    let ledgers: Vec<_> = ours.filter_map(|row| row.ledger.as_ref()).collect();
    if ledgers.is_empty() {
        return String::new();
    }
    let total = |part: fn(&crate::result::Ledger) -> f64| number::grouped(ledgers.iter().map(|l| part(l)).sum());
    format!(
        "\nUpdates with Fodo at both ends: {} produced, {} delivered, {} merged and counted, {} unexplained\n",
        total(|ledger| ledger.produced as f64),
        total(|ledger| ledger.delivered as f64),
        total(|ledger| (ledger.merged_server + ledger.merged_client) as f64),
        total(|ledger| ledger.unexplained as f64),
    )
}

/// What has no result, in one line; empty if nothing was planned that has none.
fn not_measured(result: &ResultFile) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in result.rows.iter().filter(|row| !row.is_measured()) {
        let word = if row.verdict == RowVerdict::Failed { "FAILED" } else { row.verdict.text() };
        *counts.entry((&row.client, word)).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nWithout a number:");
    for (index, ((client, word), n)) in counts.iter().enumerate() {
        let _ = write!(text, "{} {client} {word} {n}", if index == 0 { "" } else { "," });
    }
    text + " (--all shows why)\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn a_question_has_a_line_for_each_variant_with_the_fastest_peer_of_any_server() {
        let run = whole();

        let text = overview(&run);

        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Q16")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("Q16 Connecting 1\u{202f}000 channels asynchronously, one PV"), "{text}");
        assert!(lines[0].contains("libca with"), "{text}");
        assert!(text.contains("0 unexplained") && text.contains("pyepics not run"), "{text}");
    }

    #[test]
    fn the_ratio_is_above_one_where_fodo_is_faster_for_times_and_for_rates() {
        let row = |client: &str, unit: &str, median| {
            let mut row = ResultRow {
                question: "L6".into(),
                title: "How many?".into(),
                series: "two cores".into(),
                variant: "p99".into(),
                client: client.into(),
                server: "fodo".into(),
                unit: unit.into(),
                samples: vec![median; 3],
                verdict: RowVerdict::Measured,
                ..ResultRow::default()
            };
            row.summarize(1);
            row
        };
        let of = |unit, ours, spinning, theirs| {
            let mut run = ResultFile::new("quick", "2024-02-29T12:00:00Z");
            run.rows = vec![row("fodo", unit, ours), row("fodo-spin", unit, spinning), row("libca", unit, theirs)];
            overview(&run)
        };

        assert!(of("ns", 200.0, 10.0, 500.0).contains("2.50x"));
        assert!(of("updates/s", 500.0, 900.0, 200.0).contains("2.50x"));
    }
}
