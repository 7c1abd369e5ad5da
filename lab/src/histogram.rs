//! Histograms of times in a row: few buckets, so that a curve can be drawn from the file.

/// Buckets per decade. From a nanosecond to a minute, more than any row spans, there are fewer than 200.
const PER_DECADE: f64 = 18.0;

/// Pairs of upper bound in nanoseconds and count, ascending; empty buckets are left out.
///
/// `counts`: times in nanoseconds and the number of times each occurred, in any order. Each bound is 10^(1/18), 13.6 %,
/// above the previous one; a time equal to a bound counts below it.
pub fn compact(counts: impl Iterator<Item = (u64, u64)>) -> Vec<(f64, u64)> {
    let mut buckets = std::collections::BTreeMap::new();
    for (ns, count) in counts.filter(|(_, count)| *count > 0) {
        // Rounding may put the bound just below a time equal to it.
        let bucket = ((ns.max(1) as f64).log10() * PER_DECADE - 1e-9).ceil() as i32;
        *buckets.entry(bucket).or_insert(0) += count;
    }
    buckets.into_iter().map(|(bucket, count)| (bound(bucket), count)).collect()
}

/// In tenths, and never below a whole nanosecond in the bucket.
fn bound(bucket: i32) -> f64 {
    (10_f64.powf(f64::from(bucket) / PER_DECADE) * 10.0 + 1e-4).floor() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_counted_once_in_a_bucket_with_a_close_upper_bound() {
        let times = (0..10_000_u64).map(|index| 1000 + index * index);

        let buckets = compact(times.map(|ns| (ns, 1)));

        let below = |bound: f64| buckets.iter().filter(|(upper, _)| *upper <= bound).map(|(_, n)| n).sum::<u64>();
        assert_eq!(below(f64::INFINITY), 10_000);
        for (bound, _) in &buckets {
            let really = (0..10_000_u64).filter(|index| (1000 + index * index) as f64 <= *bound).count() as u64;
            assert!(below(*bound).abs_diff(really) <= 1, "{bound}");
        }
    }

    #[test]
    fn times_from_a_nanosecond_to_a_minute_need_at_most_two_hundred_buckets() {
        let times = (0..3600).map(|step| 10_f64.powf(f64::from(step) * 10.778 / 3600.0) as u64);

        let buckets = compact(times.map(|ns| (ns, 1)));

        assert!((150..=200).contains(&buckets.len()), "{}", buckets.len());
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0), "{buckets:?}");
    }
}
