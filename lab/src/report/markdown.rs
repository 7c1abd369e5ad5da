//! Markdown tables of a result, for documentation and for a terminal.

use std::fmt::Write;

use super::case_tables;
use super::clu_tables;
use super::environment;
use super::java_tables;
use super::model::Section;
use super::published::PublishedStudy;
use super::study_tables;
use super::table::{self, Cell, ReportTable};
use crate::result::ResultFile;

/// The complete result.
pub fn text(run: &ResultFile, published: &[PublishedStudy]) -> String {
    let sections = Section::of(run);
    let mut text =
        format!("# Laboratory: {}, {}\n\n{}\n", run.suite, run.started, escaped(&environment::in_one_line(run)));
    text += &answers(run);
    for section in &sections {
        let _ = write!(
            text,
            "\n## {}: {}\n\n{}.\n\n",
            escaped(section.question),
            escaped(section.title),
            capital(&section.place())
        );
        text += &markdown(&table::of(section, published));
        let more = [table::ledger(section), table::resources(section)];
        for table in more.into_iter().flatten() {
            text += "\n";
            text += &markdown(&table);
        }
    }
    text += &of_study(run, published);
    let reasons = table::reasons(run);
    if !reasons.is_empty() {
        text += "\n## Without a number\n\n";
    }
    for (verdict, why, keys) in reasons {
        let _ = writeln!(text, "- {}: {} ({})", verdict.text(), escaped(&why), escaped(&keys.join("; ")));
    }
    text += "\n## Environment\n\n";
    for (name, value) in environment::all(run) {
        let _ = writeln!(text, "- {}: {}", escaped(&name), escaped(&value));
    }
    text += "\n## Method\n\n";
    for sentence in environment::METHOD {
        let _ = writeln!(text, "- {sentence}");
    }
    for study in published {
        let _ = writeln!(text, "- {}: {}, as published.", study.name(), study.title);
    }
    text
}

/// The tables of the studies in their own layouts, below headings of the second level.
pub(super) fn of_study(run: &ResultFile, published: &[PublishedStudy]) -> String {
    let tables = study_tables::tables(run).into_iter().chain(case_tables::tables(run)).chain(clu_tables::tables(run));
    let mut text = String::new();
    for titled in tables.chain(java_tables::tables(run, published)) {
        let _ = write!(text, "\n## {}\n\n{}\n", escaped(&titled.title), markdown(&titled.table));
        for note in &titled.notes {
            let _ = writeln!(text, "- {}", escaped(note));
        }
    }
    for line in [study_tables::legend(run), case_tables::legend(run), clu_tables::legend(run)].concat() {
        let _ = write!(text, "\n{}\n", escaped(&line));
    }
    text
}

fn answers(run: &ResultFile) -> String {
    let mut text = String::new();
    for answer in &run.answers_by_question() {
        let yes = if answer.yes { "YES" } else { "NO" };
        let _ = writeln!(
            text,
            "- {}, {} with {}: **{yes}** {}",
            escaped(&answer.question),
            escaped(&answer.client),
            escaped(&answer.server),
            escaped(&answer.words)
        );
    }
    if text.is_empty() { text } else { format!("\n## Answers\n\n{text}") }
}

fn markdown(table: &ReportTable) -> String {
    let mut text = String::from("|");
    for head in &table.head {
        let _ = write!(text, " {} |", escaped(head));
    }
    text += "\n|:---|";
    text += &"---:|".repeat(table.head.len().saturating_sub(1));
    text += "\n";
    for line in &table.lines {
        let _ = write!(text, "| {} |", escaped(&line.name));
        for cell in &line.cells {
            let _ = write!(text, " {} |", cell_text(cell));
        }
        text += "\n";
    }
    text
}

fn cell_text(cell: &Cell) -> String {
    let main = escaped(&cell.main);
    let main = if cell.is_best { format!("**{main}**") } else { main };
    if cell.detail.is_empty() { main } else { format!("{main} ({})", cell.detail) }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace(['\r', '\n'], " ")
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn every_line_of_a_markdown_table_has_the_same_number_of_cells() {
        let text = text(&whole(), &PublishedStudy::all());

        let mut n_columns = None;
        for line in text.lines() {
            let n = line.starts_with('|').then(|| line.replace("\\|", "").matches('|').count());
            assert!(n.is_none() || n_columns.is_none() || n == n_columns, "{line}");
            n_columns = n;
        }
        assert!(text.contains("| Connecting 10\u{202f}000 channels asynchronously | **"));
        assert!(text.contains("not &lt;installed>") && text.contains("- failed: received 999 first updates"));
    }
}
