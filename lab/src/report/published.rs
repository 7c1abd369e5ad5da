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
    rows: Vec<PublishedRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct PublishedRow {
    question: String,
    /// 1 on one host, 2 on two.
    series: u8,
    point: u64,
    value: f64,
    unit: String,
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
