//! A result arranged for readers: by question, with the contenders and their rows at each point.

use crate::report::published::PublishedStudy;
use crate::result::{LabProtocol, ResultFile, ResultRow};

/// The rows of one question, in one variant and one series.
#[derive(Debug)]
pub struct Section<'a> {
    /// The question's id, such as `Q16`.
    pub question: &'a str,
    /// The question.
    pub title: &'a str,
    /// The protocol.
    pub protocol: LabProtocol,
    /// Where client and server ran.
    pub series: &'a str,
    /// `equal`, `distinct` or `none`.
    pub variant: &'a str,
    /// The points, ascending.
    pub points: Vec<u64>,
    /// The contenders, in the order of [`rank`].
    pub contenders: Vec<Contender<'a>>,
    rows: Vec<&'a ResultRow>,
}

/// A client and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender<'a> {
    /// The client.
    pub client: &'a str,
    /// The server.
    pub server: &'a str,
}

impl Contender<'_> {
    /// Text for a cell, a legend or a label.
    pub fn text(self) -> String {
        match self.client {
            "raw" => "floor (raw socket)".into(),
            client if self.server == "raw" => format!("{client} (floor)"),
            client => format!("{client} \u{2192} {}", self.server),
        }
    }

    /// Whether it is a raw socket.
    pub fn is_floor(self) -> bool {
        self.client.starts_with("raw")
    }
}

/// Sort key: Fodo first, then the known peers, others, and the floor.
fn rank(contender: &Contender<'_>) -> (usize, String, usize) {
    let clients = [
        "fodo",
        "fodo-group",
        "libca",
        "pvxs",
        "spvirit",
        "p4p",
        "core-pva",
        "fodo-java",
        "fodo-java-executor",
        "fodo-java-virtual",
        "fodo-java-rows",
        "fodo-java-into",
        "fodo-java-futures",
        "psi-ca",
        "psi-ca-single",
        "psi-ca-multiple",
        "psi-ca-striped",
        "aioca",
        "repics",
        "pyepics",
        "caproto",
    ];
    let known = clients.iter().position(|client| *client == contender.client).unwrap_or(clients.len());
    let place = if contender.is_floor() { usize::MAX } else { known };
    let server =
        ["fodo", "soft-ioc", "qsrv2", "qsrv1"].iter().position(|server| *server == contender.server).unwrap_or(4);
    (place, contender.client.to_owned(), server)
}

/// Sort key of questions: those of the studies, then ours, then loads, by their numbers.
fn place_of(question: &str) -> (usize, String, u64) {
    let letters = question.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = question.get(letters.len()..).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
    let place = ["Q", "P"].iter().position(|known| *known == letters).unwrap_or(2);
    (place, letters.to_owned(), number)
}

/// Sort key of series: two cores first, on which most programs run.
fn place_of_series(series: &str) -> usize {
    let known = ["two cores", "client not pinned", "one core", "two hosts", "two hosts, 2 ms"];
    known.iter().position(|known| *known == series).unwrap_or(known.len())
}

impl<'a> Section<'a> {
    /// The sections of a run, by question, two cores first. A section without any result is left out.
    pub fn of(run: &'a ResultFile) -> Vec<Section<'a>> {
        Section::of_rows(run.rows.iter().filter(|row| !row.is_of_study()))
    }

    /// The sections of these rows.
    pub fn of_rows(rows: impl Iterator<Item = &'a ResultRow>) -> Vec<Section<'a>> {
        let mut sections: Vec<Section<'a>> = Vec::new();
        for row in rows {
            let known = sections.iter_mut().find(|section| section.holds(row));
            match known {
                Some(section) => section.rows.push(row),
                None => sections.push(Section {
                    question: &row.question,
                    title: &row.title,
                    protocol: row.protocol,
                    series: &row.series,
                    variant: &row.variant,
                    points: Vec::new(),
                    contenders: Vec::new(),
                    rows: vec![row],
                }),
            }
        }
        sections.iter_mut().for_each(Section::arrange);
        sections.retain(|section| section.rows.iter().any(|row| row.is_measured()));
        sections.sort_by_cached_key(|section| {
            (place_of(section.question), section.protocol, place_of_series(section.series))
        });
        sections
    }

    fn holds(&self, row: &ResultRow) -> bool {
        (self.question, self.protocol, self.series, self.variant)
            == (&row.question, row.protocol, &row.series, &row.variant)
    }

    fn arrange(&mut self) {
        self.points = self.rows.iter().map(|row| row.point).collect();
        self.points.sort_unstable();
        self.points.dedup();
        for row in &self.rows {
            let contender = Contender { client: &row.client, server: &row.server };
            if !self.contenders.contains(&contender) {
                self.contenders.push(contender);
            }
        }
        self.contenders.sort_by_key(rank);
    }

    /// The row of one contender at one point.
    pub fn row(&self, contender: Contender<'_>, point: u64) -> Option<&'a ResultRow> {
        let is_it =
            |row: &&&ResultRow| row.point == point && row.client == contender.client && row.server == contender.server;
        self.rows.iter().find(is_it).copied()
    }

    /// The rows of one contender that have a result, by point.
    pub fn measured(&self, contender: Contender<'_>) -> Vec<&'a ResultRow> {
        self.points.iter().filter_map(|point| self.row(contender, *point)).filter(|row| row.is_measured()).collect()
    }

    /// The largest point at which most contenders have a result: the best one to compare them.
    pub fn best_point(&self) -> Option<u64> {
        let n_at = |point: u64| {
            let rows = self.contenders.iter().filter_map(|contender| self.row(*contender, point));
            rows.filter(|row| row.is_measured()).count()
        };
        self.points.iter().copied().filter(|point| n_at(*point) > 0).max_by_key(|point| (n_at(*point), *point))
    }

    /// The rows of a point that have a result, in the order of the contenders.
    pub fn at(&self, point: u64) -> Vec<(Contender<'a>, &'a ResultRow)> {
        let row = |contender: &Contender<'a>| Some((*contender, self.row(*contender, point)?));
        self.contenders.iter().filter_map(row).filter(|(_, row)| row.is_measured()).collect()
    }

    /// All rows.
    pub fn rows(&self) -> &[&'a ResultRow] {
        &self.rows
    }

    /// The published total time of a point; the studies are of Channel Access.
    pub fn published_ns(&self, study: &PublishedStudy, point: u64) -> Option<f64> {
        match self.protocol {
            LabProtocol::Ca => study.total_ns(self.question, self.series, point),
            LabProtocol::Pva => None,
        }
    }

    /// Whether the question transfers values, so that MB/s are meaningful.
    pub fn moves_bytes(&self) -> bool {
        self.rows.iter().any(|row| row.bytes.is_some())
    }

    /// Series, variant and protocol, such as "two cores, each channel on its own PV".
    pub fn place(&self) -> String {
        let variant = match self.variant {
            "none" => return format!("{}{}", self.series, self.protocol.suffix()),
            "equal" => "all channels on one PV",
            "distinct" => "each channel on its own PV",
            other => other,
        };
        format!("{}, {variant}{}", self.series, self.protocol.suffix())
    }

    /// The label of a table row, in the wording of the studies.
    pub fn line(&self, point: u64) -> String {
        let n = super::number::grouped(point as f64);
        label(self.question, &n).unwrap_or_else(|| format!("n = {n}"))
    }
}

/// What a row of a question with `n` objects measures; `None` for a question that is not of a scenario.
fn label(question: &str, n: &str) -> Option<String> {
    Some(match question {
        "Q3" | "Q4" | "Q5" => format!("Creating {n} contexts"),
        "Q10" | "Q11" | "Q12" => format!("Creating {n} channels"),
        "Q13" | "Q14" | "Q31" => format!("Synchronously connecting {n} channels"),
        "Q15" => format!("Creating {n} channels that connect by themselves"),
        "Q16" => format!("Connecting {n} channels asynchronously"),
        "Q17" => format!("Synchronous get from {n} channels"),
        "Q18" | "Q19" => format!("Asynchronous get from {n} channels"),
        "Q20" => format!("Monitors on {n} channels"),
        "Q21" => format!("Array of {n} integers"),
        "P1" => format!("Putting to {n} channels with completion"),
        "P2" => format!("Putting to {n} channels without waiting"),
        "P3" => format!("Get from {n} channels, a hundred in flight"),
        "P4" => format!("A first value in each of {n} contexts"),
        "P5" => format!("{n} commands that print a value"),
        "P6" => "First get of a process".into(),
        "P7" => format!("First get from {n} channels at once"),
        "P8" => format!("First monitors on {n} channels"),
        "P9" => format!("Asynchronous get of every field from {n} channels"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn sections_are_ordered_by_question_with_fodo_first_and_the_floor_last() {
        let mut run = whole();
        run.rows.reverse();

        let sections = Section::of(&run);

        let questions: Vec<_> = sections.iter().map(|section| section.question).collect();
        let mut sorted_once = questions.clone();
        sorted_once.dedup();
        assert_eq!(sorted_once, ["Q4", "Q11", "Q14", "Q16", "Q17", "Q18", "Q20", "Q21", "L1"]);
        assert_eq!((sections[0].series, sections[1].series), ("two cores", "one core"));
        let of_first: Vec<_> = sections[0].contenders.iter().map(|contender| contender.text()).collect();
        assert_eq!(of_first[..2], ["fodo \u{2192} fodo", "fodo \u{2192} soft-ioc"]);
        assert_eq!(of_first.last().unwrap(), "floor (raw socket)");
    }

    #[test]
    fn the_rows_of_every_scenario_have_a_label() {
        for scenario in crate::scenario::Scenario::all().unwrap() {
            for question in [Some(&scenario.question), scenario.at_least.as_ref(), scenario.distinct.as_ref()] {
                // These two are answered by yes or no.
                let Some(question) = question.filter(|question| !["Q1", "Q2"].contains(&question.as_str())) else {
                    continue;
                };
                assert!(label(question, "1").is_some(), "{question}");
            }
        }
    }

    #[test]
    fn contenders_are_compared_at_the_point_with_the_most_results() {
        let run = whole();

        let sections = Section::of(&run);

        let connecting = sections.iter().find(|section| section.question == "Q16").unwrap();
        assert_eq!(connecting.points.last(), Some(&10_000));
        assert_eq!(connecting.best_point(), Some(1000));
    }
}
