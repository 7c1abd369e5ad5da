//! What the studies published, to stand beside what is measured here.

use serde::Deserialize;

const FILES: [&str; 2] = [include_str!("../published/study_000.toml"), include_str!("../published/study_001.toml")];

/// A study's rows.
#[derive(Clone, Debug, Deserialize)]
pub struct Study {
    /// Its number.
    pub study: String,
    /// What was measured, and when.
    pub title: String,
    rows: Vec<Published>,
}

#[derive(Clone, Debug, Deserialize)]
struct Published {
    question: String,
    series: u32,
    point: u64,
    value: f64,
    unit: String,
}

impl Study {
    /// All of them.
    pub fn all() -> Result<Vec<Study>, toml::de::Error> {
        FILES.iter().map(|text| toml::from_str(text)).collect()
    }

    /// The time of one operation in nanoseconds, on one host; of several implementations the fastest. An array
    /// is one operation. `None` where nothing was published; zero where the clock was too coarse.
    pub fn ns(&self, question: &str, point: u64) -> Option<f64> {
        let n = if question == "Q21" { 1 } else { point.max(1) };
        self.rows
            .iter()
            .filter(|row| row.question == question && row.point == point && row.series == 1 && row.unit == "ms")
            .map(|row| row.value * 1e6 / n as f64)
            .min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers_are_those_of_the_studies() {
        let studies = Study::all().unwrap();

        let [first, second] = &studies[..] else { panic!("{studies:?}") };
        assert_eq!(second.ns("Q16", 10_000), Some(205_000.0));
        assert_eq!(second.ns("Q21", 10_000_000), Some(89e6));
        assert_eq!(second.ns("Q17", 7), None);
        assert_eq!(first.ns("Q4", 100), Some(98_150_000.0));
    }
}
