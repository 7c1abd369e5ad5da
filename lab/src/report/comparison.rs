//! Text output of `fodo lab compare`.

use std::fmt::Write;

use super::number;
use crate::compare::{Comparison, PairVerdict, RowPair};
use crate::result::SCHEMA;

/// The rows that differ, or all of them, and a summary.
pub fn text(comparison: &Comparison, with_all: bool) -> String {
    let mut text = String::new();
    for drift in &comparison.drifts {
        let _ = writeln!(
            text,
            "The machine, {}: the floor moved by {} ({} rows).",
            drift.series,
            per_cent(drift.ratio),
            drift.n_rows
        );
    }
    for moved in &comparison.clients {
        let _ = writeln!(
            text,
            "{} over all of its rows: {} in time ({} .. {}; {} rows): {}.",
            moved.client,
            per_cent(moved.ratio),
            per_cent(moved.interval.0),
            per_cent(moved.interval.1),
            moved.n_rows,
            match (moved.differs, moved.ratio > 1.0) {
                (false, _) => "no difference",
                (true, true) => "SLOWER",
                (true, false) => "FASTER",
            }
        );
    }
    let shown: Vec<&RowPair> =
        if with_all { comparison.pairs.iter().collect() } else { comparison.differences().collect() };
    if !shown.is_empty() {
        text += &table(&shown);
    }
    for (words, keys) in [("before", &comparison.only_before), ("after", &comparison.only_after)] {
        if !keys.is_empty() {
            let _ = writeln!(text, "\nMeasured only {words} ({}), so not compared: {}.", keys.len(), few(keys));
        }
    }
    text + &other_method(comparison) + &sentence(comparison)
}

/// Which questions the two runs measured by different methods; empty if there are none.
pub fn other_method(comparison: &Comparison) -> String {
    if comparison.other_method.is_empty() {
        return String::new();
    }
    let (before, after) = &comparison.schemas;
    format!(
        "\nNot comparable ({before} before, {after} after), since only {SCHEMA} warms every client up first: {}.\n",
        comparison.other_method.join(", ")
    )
}

fn few(keys: &[String]) -> String {
    let mut words = keys.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    if keys.len() > 3 {
        words += "; ...";
    }
    words
}

fn sentence(comparison: &Comparison) -> String {
    let n_of = |change: PairVerdict| comparison.pairs.iter().filter(|pair| pair.change == change).count();
    let (n, n_few) = (comparison.pairs.len(), n_of(PairVerdict::TooFew));
    let mut text = match comparison.differences().count() {
        _ if n == 0 => "\nThe two runs have no row in common: nothing was compared.\n".to_owned(),
        0 => format!("\nNo difference in {n} rows.\n"),
        _ => format!(
            "\n{} of {n} rows differ: {} slower, {} faster, {} broken, {} repaired.\n",
            comparison.differences().count(),
            n_of(PairVerdict::Slower),
            n_of(PairVerdict::Faster),
            n_of(PairVerdict::Broken),
            n_of(PairVerdict::Repaired),
        ),
    };
    if n_few > 0 {
        let _ = writeln!(text, "{n_few} rows have too few repetitions for a comparison.");
    }
    text
}

fn table(pairs: &[&RowPair]) -> String {
    let head = ["", "before", "after", "change", "95 %", "p", "effect", "what"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    rows.extend(pairs.iter().map(|pair| cells(pair)));
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::from("\n");
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_number = (1..7).contains(&column);
            let _ = if is_number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn cells(pair: &RowPair) -> Vec<String> {
    let what = match pair.change {
        PairVerdict::None => "no difference",
        PairVerdict::Faster => "FASTER",
        PairVerdict::Slower => "SLOWER",
        PairVerdict::Broken => "BROKEN",
        PairVerdict::Repaired => "REPAIRED",
        PairVerdict::TooFew => "too few repetitions",
    };
    let value = |value: Option<f64>| value.map_or("-".into(), |value| number::value(value, &pair.unit));
    let interval =
        pair.interval.map_or(String::new(), |(low, high)| format!("{} .. {}", per_cent(low), per_cent(high)));
    vec![
        pair.key.to_string(),
        value(pair.before),
        value(pair.after),
        pair.ratio.map_or(String::new(), per_cent),
        interval,
        if pair.p < 1e-4 { "< 0.0001".into() } else { format!("{:.4}", pair.p) },
        format!("{:+.2}", pair.delta),
        what.into(),
    ]
}

fn per_cent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::LEAST;
    use crate::report::synthetic::{Noise, comparable};
    use crate::result::SCHEMA_COLD;

    #[test]
    fn differing_rows_are_shown_with_numbers_and_equal_rows_are_counted() {
        let before = comparable(1, Noise::Normal, 0.0, 1.0);
        let slow = comparable(2, Noise::Normal, 0.1, 1.2);

        let alike = text(&Comparison::of(&before, &before, LEAST), false);
        let different = text(&Comparison::of(&before, &slow, LEAST), false);

        assert!(alike.ends_with("No difference in 100 rows.\n") && !alike.contains("SLOWER"), "{alike}");
        assert_eq!(different.matches("SLOWER").count(), 10, "{different}");
        assert!(different.contains("10 of 100 rows differ: 10 slower, 0 faster, 0 broken, 0 repaired."));
    }

    #[test]
    fn only_questions_measured_by_the_same_method_are_compared() {
        let mut cold = comparable(1, Noise::Normal, 0.0, 1.0);
        cold.schema = SCHEMA_COLD.into();
        let mut warm = comparable(2, Noise::Normal, 0.1, 1.2);
        for rows in [&mut cold.rows, &mut warm.rows] {
            rows.retain(|row| row.question == "Q1" || row.question == "Q0");
            rows.iter_mut().filter(|row| row.question == "Q0").for_each(|row| row.question = "P5".into());
        }

        let text = text(&Comparison::of(&cold, &warm, LEAST), false);

        assert!(
            text.contains("Not comparable (fodo-lab/3 before, fodo-lab/4 after)") && text.contains("first: Q1."),
            "{text}"
        );
        assert!(text.contains("10 of 10 rows differ: 10 slower"), "{text}");
    }

    #[test]
    fn runs_without_common_rows_are_reported_as_not_compared() {
        let before = comparable(1, Noise::Normal, 0.0, 1.0);
        let mut other = before.clone();
        other.rows.iter_mut().for_each(|row| row.series = "two hosts".into());

        assert!(text(&Comparison::of(&before, &other, LEAST), false).contains("nothing was compared"));
    }
}
