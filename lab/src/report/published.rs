//! Results that the studies published for the same questions.

use serde::Deserialize;

/// Both studies, embedded in the program.
const FILES: [&str; 2] =
    [include_str!("../../published/study_000.toml"), include_str!("../../published/study_001.toml")];

/// One study.
#[derive(Clone, Debug, Deserialize)]
pub struct PublishedStudy {
    /// The study's number.
    study: String,
    /// Which program the study measured, and when.
    pub title: String,
    /// Answers that are not times.
    #[serde(default)]
    answers: Vec<PublishedAnswer>,
    rows: Vec<PublishedRow>,
}

/// A published answer that is not a time.
#[derive(Clone, Debug, Deserialize)]
pub struct PublishedAnswer {
    question: String,
    /// The answer for one host.
    pub one_host: String,
    /// The answer for two hosts, if they were measured.
    pub two_hosts: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct PublishedRow {
    question: String,
    /// 1 on one host, 2 on two.
    series: u8,
    point: u64,
    value: f64,
    unit: String,
    /// How updates were delivered, where the study measured several ways.
    implementation: Option<String>,
}

impl PublishedStudy {
    /// All studies.
    pub fn all() -> Vec<PublishedStudy> {
        FILES.iter().filter_map(|text| toml::from_str(text).ok()).collect()
    }

    /// The study's name in tables.
    pub fn name(&self) -> String {
        format!("study {}", self.study)
    }

    /// The study's number.
    pub fn number(&self) -> &str {
        &self.study
    }

    /// Whether it has a second series, on two hosts.
    pub fn has_two_hosts(&self) -> bool {
        self.rows.iter().any(|row| row.series == 2)
    }

    /// The questions, ascending.
    pub fn questions(&self) -> Vec<&str> {
        let answered = self.answers.iter().map(|answer| answer.question.as_str());
        let mut questions: Vec<&str> = self.rows.iter().map(|row| row.question.as_str()).chain(answered).collect();
        questions.sort_by_key(|question| question.trim_start_matches('Q').parse::<u32>().unwrap_or(u32::MAX));
        questions.dedup();
        questions
    }

    /// The answers to a question that are not times.
    pub fn answers(&self, question: &str) -> impl Iterator<Item = &PublishedAnswer> {
        self.answers.iter().filter(move |answer| answer.question == question)
    }

    /// The points of a question, ascending.
    pub fn points(&self, question: &str) -> Vec<u64> {
        let mut points: Vec<u64> =
            self.rows.iter().filter(|row| row.question == question).map(|row| row.point).collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The points of a question that were measured in several ways of delivery.
    pub fn points_by_engine(&self, question: &str) -> impl Iterator<Item = u64> {
        let rows = self.rows.iter().filter(move |row| row.question == question && row.implementation.is_some());
        rows.map(|row| row.point)
    }

    /// Whether it measured this way of delivery.
    pub fn has_engine(&self, implementation: &str) -> bool {
        self.rows.iter().any(|row| row.implementation.as_deref() == Some(implementation))
    }

    /// Total nanoseconds of all operations with this way of delivery.
    pub fn engine_ns(&self, question: &str, point: u64, implementation: &str) -> Option<f64> {
        let is_it = |row: &&PublishedRow| {
            (row.question.as_str(), row.point, row.implementation.as_deref()) == (question, point, Some(implementation))
        };
        self.rows.iter().find(is_it)?.ns()
    }

    /// Total nanoseconds of all operations; the fastest, if the study measured several methods. Results on two hosts
    /// are returned only for two hosts.
    pub fn total_ns(&self, question: &str, series: &str, point: u64) -> Option<f64> {
        let our_series = if series == "two hosts" { 2 } else { 1 };
        self.rows
            .iter()
            .filter(|row| row.question == question && row.point == point)
            .filter(|row| row.series == our_series)
            .filter_map(PublishedRow::ns)
            .min_by(f64::total_cmp)
    }
}

impl PublishedRow {
    fn ns(&self) -> Option<f64> {
        let unit_ns = match self.unit.as_str() {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return None,
        };
        Some(self.value * unit_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_published_studies_are_parsed_with_distinct_hosts() {
        let all = PublishedStudy::all();

        let [first, second] = all.as_slice() else { panic!("{} studies", all.len()) };
        assert_eq!(first.total_ns("Q17", "two cores", 1000), Some(72e6));
        assert_eq!(first.total_ns("Q17", "two hosts", 1000), Some(300e6));
        assert_eq!(second.total_ns("Q16", "one core", 10_000), Some(2050e6));
        assert_eq!(second.total_ns("Q20", "one core", 1000), Some(43e6));
        assert_eq!(second.total_ns("Q16", "two hosts", 10_000), None);
    }
}
