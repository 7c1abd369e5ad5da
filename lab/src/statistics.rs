//! Medians, quartiles and bootstrap intervals. A seed determines the resamples.

use fastrand::Rng;
use serde::Serialize;

/// Number of bootstrap resamples; with more, the ends of the interval no longer change visibly.
const N_RESAMPLES: usize = 2000;

/// Summary statistics of the repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of repetitions.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub quartile_low: f64,
    /// The upper quartile.
    pub quartile_high: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The 95 % bootstrap interval of the median.
    pub interval: (f64, f64),
}

impl Summary {
    /// Summarizes `samples` in any order; `None` without samples.
    pub fn of(samples: &[f64], seed: u64) -> Option<Summary> {
        let sorted = sorted(samples);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mut random = Rng::with_seed(seed);
        let medians = (0..N_RESAMPLES).map(|_| median_of_resample(&sorted, &mut random)).collect();
        Some(Summary {
            n: sorted.len(),
            median: quantile(&sorted, 0.5)?,
            quartile_low: quantile(&sorted, 0.25)?,
            quartile_high: quantile(&sorted, 0.75)?,
            min,
            max,
            interval: middle_95(medians)?,
        })
    }
}

/// The ratio of the medians of two sets of repetitions, with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the first set divided by that of the second.
    pub ratio: f64,
    /// Its 95 % bootstrap interval.
    pub interval: (f64, f64),
}

impl Ratio {
    /// Compares `samples` with `base`; `None` when either is empty or the base's median is zero.
    pub fn of(samples: &[f64], base: &[f64], seed: u64) -> Option<Ratio> {
        let (samples, base) = (sorted(samples), sorted(base));
        let base_median = quantile(&base, 0.5).filter(|median| *median != 0.0)?;
        let ratio = quantile(&samples, 0.5)? / base_median;
        let mut random = Rng::with_seed(seed);
        let ratios = (0..N_RESAMPLES)
            .map(|_| median_of_resample(&samples, &mut random) / median_of_resample(&base, &mut random))
            .collect();
        Some(Ratio { ratio, interval: middle_95(ratios)? })
    }
}

/// The value below which a `share` (0 to 1) of `sorted` lies, interpolated between neighbours.
///
/// Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), definition 7.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let below = sorted.get(position.floor() as usize)?;
    let above = sorted.get(position.ceil() as usize)?;
    Some(below + (above - below) * position.fract())
}

/// The median of samples in any order.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(&sorted(samples), 0.5)
}

/// The median of nanoseconds in any order.
pub fn median_ns(samples: &[u64]) -> Option<f64> {
    quantile_ns(samples, 0.5)
}

/// A quantile of nanoseconds in any order.
pub fn quantile_ns(samples: &[u64], share: f64) -> Option<f64> {
    let floats: Vec<f64> = samples.iter().map(|ns| *ns as f64).collect();
    quantile(&sorted(&floats), share)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median of a resample of the same size, drawn with replacement.
pub fn median_of_resample(samples: &[f64], random: &mut Rng) -> f64 {
    let mut resample: Vec<f64> =
        (0..samples.len()).filter_map(|_| samples.get(random.usize(..samples.len())).copied()).collect();
    resample.sort_by(f64::total_cmp);
    quantile(&resample, 0.5).unwrap_or(f64::NAN)
}

fn middle_95(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    Some((quantile(&values, 0.025)?, quantile(&values, 0.975)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_between_neighbours() {
        let sorted = [1.0, 2.0, 3.0, 10.0];

        assert_eq!(quantile(&sorted, 0.5), Some(2.5));
        assert_eq!(quantile(&sorted, 0.25), Some(1.75));
        assert_eq!(quantile(&sorted, 1.0), Some(10.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_summary_does_not_depend_on_the_order_of_its_samples() {
        let summary = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0], 7).unwrap();

        assert_eq!(summary, Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0], 7).unwrap());
        assert_eq!((summary.median, summary.min, summary.max), (3.0, 1.0, 5.0));
        assert_eq!((summary.quartile_low, summary.quartile_high), (2.0, 4.0));
    }

    #[test]
    fn a_confidence_interval_contains_the_median_and_stays_within_the_samples() {
        let samples: Vec<f64> = (0..101).map(f64::from).collect();

        let summary = Summary::of(&samples, 1).unwrap();

        let (low, high) = summary.interval;
        assert!(summary.min < low && low < summary.median && summary.median < high && high < summary.max);
    }

    #[test]
    fn a_ratio_of_equal_samples_is_one_and_its_interval_contains_one() {
        let samples = [9.0, 10.0, 11.0, 10.5, 9.5];

        let ratio = Ratio::of(&samples, &samples, 3).unwrap();

        assert_eq!(ratio.ratio, 1.0);
        assert!(ratio.interval.0 <= 1.0 && 1.0 <= ratio.interval.1);
    }

    #[test]
    fn empty_samples_and_a_zero_base_have_no_summary_or_ratio() {
        assert_eq!(Summary::of(&[], 1), None);
        assert_eq!(Ratio::of(&[1.0], &[], 1), None);
        assert_eq!(Ratio::of(&[1.0], &[0.0], 1), None);
    }
}
