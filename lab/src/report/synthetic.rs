//! Results that nobody measured, for tests.

use crate::result::{ResultFile, Row, Verdict};
use crate::statistics::{Random, quantile};

/// How repetitions scatter.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    /// 4 %, as on a quiet machine.
    Normal,
    /// 4 %, and one repetition in ten takes half as long again.
    Outliers,
    /// 4 %, and a tail to the long side only.
    Skewed,
    /// Whole microseconds, so that many repetitions are equal.
    Ties,
}

impl Noise {
    /// All of them.
    pub const ALL: [Noise; 4] = [Noise::Normal, Noise::Outliers, Noise::Skewed, Noise::Ties];

    fn factor(self, random: &mut Random) -> f64 {
        let normal = 1.0 + 0.04 * normal(random);
        match self {
            Noise::Normal | Noise::Ties => normal,
            Noise::Outliers if share(random) < 0.1 => 1.5 * normal,
            Noise::Outliers => normal,
            Noise::Skewed => normal - 0.04 * share(random).max(1e-9).ln(),
        }
    }
}

fn share(random: &mut Random) -> f64 {
    random.bits() as f64 / u64::MAX as f64
}

/// Nearly: the sum of twelve equal distributions.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| share(random)).sum::<f64>() - 6.0
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// A run of ten questions at ten points with a floor, seven repetitions each; in the first `slow_share` of
/// the questions Fodo takes `factor` times as long.
pub fn comparable(seed: u64, noise: Noise, slow_share: f64, factor: f64) -> ResultFile {
    let mut random = Random::new(seed.wrapping_mul(7919));
    let mut file = ResultFile::new("quick", "2024-02-29T12:00:00Z");
    for question in 0..10 {
        for point in 1..=10 {
            for (client, server, base_ns) in [("raw", "raw", 11e3), ("fodo", "fodo", 25e3)] {
                let is_slow = client == "fodo" && f64::from(question) < 10.0 * slow_share;
                let base_ns = if is_slow { base_ns * factor } else { base_ns };
                let sample = |random: &mut Random| {
                    let ns = base_ns * noise.factor(random);
                    if matches!(noise, Noise::Ties) { (ns / 1e3).round() * 1e3 } else { ns }
                };
                let mut row = Row {
                    question: format!("Q{question}"),
                    series: "two cores".into(),
                    variant: "none".into(),
                    point,
                    client: client.into(),
                    server: server.into(),
                    unit: "ns".into(),
                    samples: (0..7).map(|_| sample(&mut random)).collect(),
                    n_operations: 1,
                    verdict: Verdict::Measured,
                    ..Row::default()
                };
                // The bootstrap is slow in a simulation, and a comparison needs the medians alone.
                row.median = median(&row.samples);
                file.rows.push(row);
            }
        }
    }
    file
}
