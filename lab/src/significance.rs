//! Tests whether two sets of repetitions differ, and by how much.
//!
//! Five to seven repetitions are few. A rank test alone cannot go below p = 0.008 (5 and 5) or 0.0006 (7 and 7), so
//! after correction for hundreds of rows it could never be significant. A test of means alone can be misled by one
//! outlier. A row therefore differs only if both tests agree: Welch's test on logarithms, corrected for the number of
//! rows, and the exact rank test.

use special::{Beta as _, Error as _};

/// Probability of a false alarm over all rows of a comparison.
pub const ALPHA: f64 = 0.05;

/// Minimum number of repetitions per side: with fewer, no rank test can reach [`ALPHA`].
pub const REPETITIONS_MIN: usize = 4;

/// Maximum number of repetitions of both sides together for the exact test; above it ranks are taken as normally
/// distributed.
const EXACT_MAX: usize = 60;

/// Two-sided p-value of Welch's test for equal means of the logarithms, that is for a common factor between the sides.
///
/// 1 if a side has fewer than two values. Values below a picosecond count as one.
///
/// Source: Welch, "The generalization of 'Student's' problem when several different population variances are
/// involved" (1947).
pub fn welch_p(a: &[f64], b: &[f64]) -> f64 {
    let (Some(a), Some(b)) = (Moments::of_logarithms(a), Moments::of_logarithms(b)) else { return 1.0 };
    let (error_a, error_b) = (a.variance / a.n, b.variance / b.n);
    let difference = a.mean - b.mean;
    if error_a + error_b <= f64::MIN_POSITIVE {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t = difference / (error_a + error_b).sqrt();
    let freedom = (error_a + error_b).powi(2) / (error_a.powi(2) / (a.n - 1.0) + error_b.powi(2) / (b.n - 1.0));
    student_p(t, freedom)
}

struct Moments {
    n: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of_logarithms(values: &[f64]) -> Option<Moments> {
        let logarithms: Vec<f64> = values.iter().map(|value| value.max(1e-3).ln()).collect();
        let n = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / n;
        let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
        (n >= 2.0).then(|| Moments { n, mean, variance: squares / (n - 1.0) })
    }
}

/// Two-sided p-value of `t` under Student's distribution with `freedom` degrees of freedom.
fn student_p(t: f64, freedom: f64) -> f64 {
    let (a, b) = (freedom / 2.0, 0.5_f64);
    (freedom / (freedom + t * t)).inc_beta(a, b, a.ln_beta(b)).clamp(0.0, 1.0)
}

/// Two-sided p-value of the exact rank sum test, ties by their mean rank. 1 if a side is empty.
///
/// Source: Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
/// the other" (1947).
pub fn ranks_p(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    if a.len() + b.len() > EXACT_MAX {
        let deviation = ((a.len() + b.len() + 1) as f64 / (3 * a.len() * b.len()) as f64).sqrt();
        // The distribution of the rank sum is nearly normal.
        return (delta(a, b).abs() / deviation / std::f64::consts::SQRT_2).compl_error();
    }
    let doubled = doubled_ranks(a, b);
    exact_p(&doubled, b.len(), doubled.iter().skip(a.len()).sum())
}

/// Cliff's delta: 1 if every value of `b` is above every value of `a`, 0 if equally often above and below, -1 if every
/// one is below; 0 if a side is empty.
///
/// Source: Cliff, "Dominance statistics" (1993).
pub fn delta(a: &[f64], b: &[f64]) -> f64 {
    let of_pairs = |x: &f64| b.iter().map(|y| f64::from(i8::from(y > x) - i8::from(y < x))).sum::<f64>();
    a.iter().map(of_pairs).sum::<f64>() / (a.len() * b.len()).max(1) as f64
}

/// Twice the rank of every value of `a`, then of `b`, among both together: whole numbers, even for ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let n_below = all.iter().filter(|other| *other < value).count();
        let n_equal = all.iter().filter(|other| *other == value).count();
        2 * n_below + n_equal + 1
    };
    all.iter().map(rank).collect()
}

/// The share of all ways to choose `n_chosen` ranks whose sum is at least as far from the middle as `sum`.
fn exact_p(doubled: &[usize], n_chosen: usize, sum: usize) -> f64 {
    let total: usize = doubled.iter().sum();
    let mut n_ways = vec![vec![0.0_f64; total + 1]; n_chosen + 1];
    if let Some(none) = n_ways.first_mut().and_then(|of_none| of_none.first_mut()) {
        *none = 1.0;
    }
    for &rank in doubled {
        for n in (1..=n_chosen).rev() {
            let (below, from) = n_ways.split_at_mut(n);
            if let (Some(fewer), Some(these)) = (below.last(), from.first_mut()) {
                for (ways, more) in these.iter_mut().skip(rank).zip(fewer) {
                    *ways += more;
                }
            }
        }
    }
    let middle = total as f64 * n_chosen as f64 / doubled.len() as f64;
    let distance = (sum as f64 - middle).abs();
    let of_all = n_ways.last().map_or(&[][..], Vec::as_slice);
    let as_far = |sum: usize| (sum as f64 - middle).abs() >= distance - 1e-9;
    let n_as_far: f64 = of_all.iter().enumerate().filter(|(sum, _)| as_far(*sum)).map(|(_, ways)| ways).sum();
    (n_as_far / of_all.iter().sum::<f64>()).min(1.0)
}

/// Adjusted p-values of all rows: of the rows with an adjusted p-value below alpha, on average at most the share alpha
/// is a false alarm. When nothing differs, the probability of any false alarm is alpha.
///
/// Source: Benjamini and Hochberg, "Controlling the False Discovery Rate" (1995).
pub fn corrected(p: &[f64]) -> Vec<f64> {
    let mut descending: Vec<usize> = (0..p.len()).collect();
    let of = |index: usize| p.get(index).copied().unwrap_or(1.0);
    descending.sort_by(|x, y| of(*y).total_cmp(&of(*x)));
    let mut corrected = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (n_above, index) in descending.into_iter().enumerate() {
        least = least.min(of(index) * p.len() as f64 / (p.len() - n_above) as f64);
        if let Some(slot) = corrected.get_mut(index) {
            *slot = least;
        }
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-6 * expected.abs().max(1e-3)
    }

    #[test]
    fn students_t_distribution_has_the_tabulated_values() {
        // Abramowitz and Stegun, table 26.10, and the closed forms for 1 and 2 degrees of freedom.
        assert!(is_near(student_p(1.0, 1.0), 0.5));
        assert!(is_near(student_p(2.0, 2.0), 1.0 - 2.0 / 6.0_f64.sqrt()));
        assert!((student_p(2.228, 10.0) - 0.05).abs() < 2e-5);
        assert!((student_p(3.169, 10.0) - 0.01).abs() < 1e-5);
        assert_eq!(student_p(0.0, 5.0), 1.0);
    }

    #[test]
    fn fully_separated_samples_have_the_smallest_rank_p_value() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);

        assert!(is_near(ranks_p(&a, &b), 2.0 / 252.0));
        assert_eq!((delta(&a, &b), delta(&b, &a)), (1.0, -1.0));
    }

    #[test]
    fn equal_or_missing_values_have_a_rank_p_value_of_one() {
        assert_eq!((ranks_p(&[3.0; 5], &[3.0; 7]), delta(&[3.0; 5], &[3.0; 7])), (1.0, 0.0));
        assert_eq!((ranks_p(&[], &[3.0; 7]), delta(&[], &[3.0; 7])), (1.0, 0.0));
    }

    #[test]
    fn the_normal_approximation_for_many_repetitions_has_nearly_the_exact_p_value() {
        let a: Vec<f64> = (0..30).map(|n| f64::from(n) * 1.03).collect();
        let b: Vec<f64> = (0..30).map(|n| f64::from(n) + 6.0).collect();
        let exact = ranks_p(&a, &b);
        let longer: Vec<f64> = b.iter().chain(&[20.5]).copied().collect();

        let normal = ranks_p(&a, &longer);

        assert!((exact - normal).abs() < 0.02, "{exact} and {normal}");
    }

    #[test]
    fn welchs_test_detects_twenty_percent_and_ignores_half_a_percent() {
        let a = [100.0, 101.0, 99.0, 102.0, 98.0];
        let slower: Vec<f64> = a.iter().map(|ns| ns * 1.2).collect();
        let alike: Vec<f64> = a.iter().map(|ns| ns * 1.005).collect();

        assert!(welch_p(&a, &slower) < 1e-6);
        assert!(welch_p(&a, &alike) > 0.3);
        assert_eq!(welch_p(&[5.0; 5], &[5.0; 5]), 1.0);
        assert_eq!(welch_p(&[5.0; 5], &[6.0; 5]), 0.0);
        assert_eq!(welch_p(&[5.0], &[6.0; 5]), 1.0);
    }

    #[test]
    fn p_values_are_corrected_for_multiple_comparisons() {
        assert_eq!(corrected(&[0.01, 0.5, 0.9, 1.0]), [0.04, 1.0, 1.0, 1.0]);
        assert_eq!(corrected(&[0.01, 0.02, 0.02, 0.01]), [0.02, 0.02, 0.02, 0.02]);
        assert!(corrected(&[]).is_empty());
    }
}
