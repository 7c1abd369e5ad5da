//! Study 004, as published.

use serde::Deserialize;

const FILE: &str = include_str!("../../published/study_004.toml");

/// The study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRequests {
    /// Its number.
    pub study: String,
    /// What it measured.
    pub title: String,
    /// Threads, each with a client.
    pub n_threads: usize,
    /// Duration of a repetition.
    pub seconds: u32,
    /// What it measured on.
    #[serde(rename = "machine")]
    pub machines: Vec<PublishedMachine>,
}

/// The numbers of one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// Its name.
    pub name: String,
    /// Its processors.
    pub cpus: String,
    /// The requests of each repetition.
    pub requests: Vec<String>,
    /// Their mean.
    pub mean: String,
    /// Their median.
    pub median: String,
    /// The smallest.
    pub minimum: String,
    /// The largest.
    pub maximum: String,
    /// Messages per second.
    pub messages_per_s: String,
}

impl PublishedRequests {
    /// The embedded study.
    pub fn load() -> Result<PublishedRequests, toml::de::Error> {
        toml::from_str(FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean, the median, the smallest and the largest number of a machine.
    fn computed(machine: &PublishedMachine) -> [f64; 4] {
        let mut numbers: Vec<f64> = machine.requests.iter().map(|text| text.parse().unwrap()).collect();
        numbers.sort_by(f64::total_cmp);
        let n = numbers.len();
        [
            numbers.iter().sum::<f64>() / n as f64,
            (numbers[n / 2 - 1] + numbers[n / 2]) / 2.0,
            numbers[0],
            numbers[n - 1],
        ]
    }

    #[test]
    fn the_published_summaries_are_those_of_the_published_repetitions() {
        let study = PublishedRequests::load().unwrap();

        assert_eq!((study.n_threads, study.machines.len()), (64, 2));
        for machine in &study.machines {
            let published = [&machine.mean, &machine.median, &machine.minimum, &machine.maximum];
            let published = published.map(|text| text.parse::<f64>().unwrap());
            assert_eq!(machine.requests.len(), 10);
            assert_eq!(computed(machine), published, "{}", machine.name);
            let messages_per_s = (published[1] / f64::from(study.seconds)).floor();
            assert_eq!(messages_per_s, machine.messages_per_s.parse::<f64>().unwrap(), "{}", machine.name);
        }
    }
}
