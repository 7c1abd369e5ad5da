//! Writes the tables of a result into a page of the documentation, between two comments that name the suite, so that a
//! page never contains results copied by hand.

use std::fmt::Write;

use super::markdown::{capital, escaped, of_study};
use super::model::{Contender, Section};
use super::number;
use super::published::PublishedStudy;
use crate::result::{Ledger, ResultFile, ResultRow, RowVerdict};
use crate::scenario::Scenario;

/// Replaces the page's tables of the same suite by those of `run`. `file` is the result's name.
pub fn filled(page: &str, run: &ResultFile, file: &str, published: &[PublishedStudy]) -> Result<String, String> {
    let (begin, end) = (marker(&run.suite, "begin"), marker(&run.suite, "end"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("the lines {begin} and {end} are missing"))?;
    Ok(format!("{before}{begin}\n\n{}\n{end}{after}", text(run, file, published).trim_end()))
}

fn marker(suite: &str, which: &str) -> String {
    format!("<!-- fodo lab report, {suite}: {which} -->")
}

fn text(run: &ResultFile, file: &str, published: &[PublishedStudy]) -> String {
    let mut text = head(run, file);
    text += &of_study(run, published).replace("\n## ", "\n### ");
    let sections = Section::of(run);
    let is_load = |section: &&Section<'_>| section.rows().iter().any(|row| !is_closed_loop(&row.question));
    for section in sections.iter().filter(|section| !is_load(section)) {
        let place = capital(&section.place());
        let _ = write!(text, "\n### {}: {}\n\n{place}.\n\n", section.question, escaped(section.title));
        text += &columns(section, published);
    }
    let mut questions: Vec<&str> = sections.iter().filter(is_load).map(|section| section.question).collect();
    questions.dedup();
    for question in questions {
        let of_question: Vec<&ResultRow> = sections
            .iter()
            .filter(|section| section.question == question)
            .flat_map(|section| section.rows())
            .copied()
            .collect();
        let (updates, others): (Vec<&ResultRow>, Vec<&ResultRow>) =
            of_question.into_iter().partition(|row| row.ledger.is_some() && row.unit == "ns");
        let title =
            others.first().map_or("How many of the updates are delivered, and how late?", |row| row.title.as_str());
        let _ = write!(text, "\n### {question}: {}\n", escaped(title));
        text += &arrivals(&updates);
        text += &values(&others);
    }
    text
}

/// Questions of the studies and ours (P) are closed loops; the others are loads.
fn is_closed_loop(question: &str) -> bool {
    question.starts_with(['Q', 'P'])
}

fn head(run: &ResultFile, file: &str) -> String {
    let mut text =
        format!("{}; it took {:.0} minutes.", escaped(&super::environment::in_one_line(run)), run.duration_s / 60.0);
    let versions = run.peers.iter().filter_map(|peer| Some(format!("{} {}", peer.name, peer.version.as_ref()?)));
    let versions = versions.collect::<Vec<_>>().join(", ");
    text += &if versions.is_empty() { "\n".to_owned() } else { format!(" {}.\n", escaped(&versions)) };
    text += "Medians of the repetitions, per operation. A star: the latency was not steady at the end of the \
             warm-up. Empty: the client does not support it, or it was not measured.\n";
    let _ = writeln!(text, "Every repetition is in `lab/results/{file}`.");
    if run.schema != crate::result::SCHEMA {
        let _ = writeln!(
            text,
            "\n**This run used an older method ({}): clients were not warmed up, and loads ran two seconds.**",
            run.schema
        );
    }
    text
}

/// One row per point, one column per client and server.
fn columns(section: &Section<'_>, published: &[PublishedStudy]) -> String {
    let of_study = |study: &PublishedStudy, point: u64| {
        // An array is one operation, whatever its length.
        let n = if section.moves_bytes() { 1 } else { point.max(1) };
        section.published_ns(study, point).map(|ns| ns / n as f64)
    };
    let studies: Vec<&PublishedStudy> =
        published.iter().filter(|study| section.points.iter().any(|point| of_study(study, *point).is_some())).collect();
    let scenarios = Scenario::all().unwrap_or_default();
    let counted = scenarios.iter().find(|scenario| scenario.question == section.question);
    let contenders: Vec<Contender<'_>> = floors_first(&section.contenders);
    let mut head = vec![counted.map_or("n".into(), |scenario| scenario.points_are.clone())];
    head.extend(contenders.iter().map(|contender| column(*contender)));
    head.extend(studies.iter().map(|study| study.name()));
    let mut lines = vec![head];
    for &point in &section.points {
        let mut line = vec![number::grouped(point as f64)];
        line.extend(contenders.iter().map(|contender| section.row(*contender, point).map_or(String::new(), value)));
        line.extend(studies.iter().map(|study| of_study(study, point).map_or(String::new(), number::time)));
        lines.push(line);
    }
    table(&lines)
}

fn floors_first<'a>(contenders: &[Contender<'a>]) -> Vec<Contender<'a>> {
    let (floors, others): (Vec<_>, Vec<_>) = contenders.iter().partition(|contender| contender.is_floor());
    [floors, others].concat()
}

/// Title of a column: always the client and its server.
fn column(contender: Contender<'_>) -> String {
    match contender.client {
        "raw" => "floor".into(),
        "raw-reused" => "floor, reused memory".into(),
        "fodo-spin" => "Fodo, both ends polling".into(),
        _ => format!("{}, {}", client(contender.client), server(contender.server)),
    }
}

fn client(name: &str) -> String {
    match name {
        "fodo" => "Fodo".into(),
        "fodo-into" => "Fodo `get_into`".into(),
        "fodo-group" => "Fodo, monitor group".into(),
        "fodo-java" => "Fodo in Java".into(),
        "fodo-java-executor" => "Fodo in Java, executor".into(),
        "fodo-java-virtual" => "Fodo in Java, virtual threads".into(),
        "fodo-java-rows" => "Fodo in Java, rows".into(),
        "fodo-java-into" => "Fodo in Java `getInto`".into(),
        "fodo-java-futures" => "Fodo in Java, futures".into(),
        "psi-ca" => "PSI's `ca`".into(),
        "psi-ca-single" => "PSI's `ca`, single worker".into(),
        "psi-ca-multiple" => "PSI's `ca`, multiple workers".into(),
        "psi-ca-striped" => "PSI's `ca`, striped executor".into(),
        other => other.into(),
    }
}

fn server(name: &str) -> String {
    match name {
        "fodo" => "`fodo ioc`".into(),
        "soft-ioc" => "softIoc".into(),
        other => format!("{other}'s server"),
    }
}

fn value(row: &ResultRow) -> String {
    match (row.median_per_operation(), row.verdict) {
        (Some(each), _) => number::value(each, &row.unit) + star(row),
        (None, RowVerdict::Capped) => "*capped*".into(),
        (None, RowVerdict::Failed) => "*failed*".into(),
        (None, _) => String::new(),
    }
}

fn star(row: &ResultRow) -> &'static str {
    if row.warm_up.is_some_and(|warm_up| !warm_up.is_steady) { " \\*" } else { "" }
}

/// The account of the updates of a load, one row per client and server.
fn arrivals(rows: &[&ResultRow]) -> String {
    let head = [
        "load",
        "n",
        "where",
        "server",
        "client",
        "delivered",
        "merged",
        "lost or merged",
        "p50",
        "p99",
        "server s/M",
        "client s/M",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let mut line = vec![row.variant.clone(), number::grouped(row.point as f64), row.series.clone()];
        // The Fodo server of a load is the laboratory's own, not an IOC.
        line.push(if row.server == "fodo" { "`fodo`".into() } else { server(&row.server) });
        line.push(client(&row.client));
        let share = |count: fn(&Ledger) -> u64| {
            row.ledger.as_ref().map_or(String::new(), |ledger| {
                format!("{:.1} %", count(ledger) as f64 / ledger.produced.max(1) as f64 * 100.0)
            })
        };
        line.push(if row.is_measured() { share(|ledger| ledger.delivered) } else { value(row) });
        line.push(share(|ledger| ledger.merged_server + ledger.merged_client));
        line.push(share(|ledger| ledger.unattributed));
        line.push(value(row));
        line.push(row.percentile(99.0).map_or(String::new(), number::time));
        for role in ["server", "client"] {
            let used = row.resources.iter().find(|used| used.role == role).and_then(|used| used.cpu_s_per_million);
            line.push(used.map_or(String::new(), |s| format!("{s:.2}")));
        }
        lines.push(line);
    }
    if rows.is_empty() { String::new() } else { format!("\n{}", table(&lines)) }
}

/// One line per row that has a single result.
fn values(rows: &[&ResultRow]) -> String {
    let head = ["what", "n", "server", "client", "median", "quartiles"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let of = |value: Option<f64>| value.map_or(String::new(), |value| number::value(value, &row.unit));
        let quartiles = if row.is_measured() { format!("{} to {}", of(row.q1), of(row.q3)) } else { String::new() };
        let n = number::grouped(row.point as f64);
        // Rows without a variant differ by their place.
        let what = if row.variant == "none" { row.series.clone() } else { row.variant.clone() };
        lines.push(vec![what, n, server(&row.server), client(&row.client), value(row), quartiles]);
    }
    if rows.is_empty() { String::new() } else { format!("\n{}", table(&lines)) }
}

fn table(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let _ = writeln!(text, "| {} |", line.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---:|".repeat(line.len()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;
    use crate::result::{SCHEMA_COLD, WarmUp};

    const PAGE: &str =
        "Before.\n<!-- fodo lab report, full: begin -->\nold\n<!-- fodo lab report, full: end -->\nAfter.\n";

    #[test]
    fn inserting_the_tables_of_a_run_into_a_page_is_idempotent() {
        let run = whole();

        let once = filled(PAGE, &run, "x.json", &PublishedStudy::all()).unwrap();
        let twice = filled(&once, &run, "x.json", &PublishedStudy::all()).unwrap();

        assert!(once.starts_with("Before.\n<!--") && once.ends_with("end -->\nAfter.\n") && !once.contains("\nold\n"));
        assert!(once.contains("### Q16: ") && once.contains("### L1: ") && once.contains("`lab/results/x.json`"));
        assert_eq!(once, twice);
    }

    #[test]
    fn a_row_without_a_variant_shows_its_place() {
        let row = ResultRow {
            question: "N4".into(),
            variant: "none".into(),
            series: "two cores".into(),
            unit: "ns".into(),
            ..ResultRow::default()
        };
        let group = ResultRow { variant: "of a group".into(), ..row.clone() };

        let table = values(&[&row, &group]);

        assert!(table.contains("| two cores | 0 |") && table.contains("| of a group | 0 |"), "{table}");
        assert!(!table.contains("none"), "{table}");
    }

    #[test]
    fn every_client_column_names_its_server() {
        let text = text(&whole(), "x.json", &[]);

        let heads: Vec<&str> = text.lines().filter(|line| line.contains("| floor |")).collect();
        assert!(heads.len() > 10);
        for column in heads.iter().flat_map(|head| head.trim_matches('|').split(" | ")).skip(1).map(str::trim) {
            let is_alone = ["floor", "n", "channels", "contexts", "elements"].contains(&column);
            assert!(is_alone || column.ends_with("`fodo ioc`") || column.ends_with("softIoc"), "{column}");
        }
        assert!(text.contains("| PSI's `ca`, softIoc |"), "{text}");
    }

    #[test]
    fn unsteady_numbers_have_a_star_and_a_run_without_warm_ups_is_noted() {
        let mut run = whole();
        run.schema = SCHEMA_COLD.into();
        let row = run.rows.iter_mut().find(|row| row.question == "Q17" && row.client == "psi-ca").unwrap();
        row.warm_up = Some(WarmUp { n_rounds: 7, is_steady: false });

        let text = text(&run, "x.json", &[]);

        assert_eq!(text.matches("s \\* |").count(), 1, "{text}");
        assert!(text.contains("**This run used an older method (fodo-lab/3)"));
    }

    #[test]
    fn a_page_without_marker_comments_is_unchanged() {
        assert!(filled("no comments", &whole(), "x.json", &[]).unwrap_err().contains("full: begin"));
    }
}
