//! Compares two runs row by row, and separates changes of the programs from those of the machine.
//!
//! A row differs when all of these conditions hold:
//! - Its two sets of repetitions differ by both tests of [`crate::significance`], corrected for all rows.
//! - Its median changed by at least `least` (a tenth by default): a smaller change is irrelevant and within the
//!   variation of a machine between two runs.
//! - Both still hold without the machine's share. That is the change of the floor, which contains no program under
//!   test, in the same series.
//!
//! Changes hidden in single rows show in all rows together. So a client also differs when the mean over its rows
//! changed by `least`, without the machine's share, and the probability of such a change by chance is at most one in
//! forty.
//!
//! Rows of runs with different methods (schemas) are compared only if the question has the same meaning in both; the
//! others are listed.
//!
//! A row that was measured and now fails or is capped differs, too, and so does a load that now has unexplained
//! updates. A row that only one of the runs has is reported, but does not count.

use std::collections::{BTreeSet, HashMap};

use fastrand::Rng;
use serde::Serialize;

use crate::result::{Key, ResultFile, ResultRow, RowVerdict, is_same_in_all_schemas};
use crate::significance::{ALPHA, REPETITIONS_MIN, corrected, delta, ranks_p, welch_p};
use crate::statistics::{Ratio, Summary, median_of_resample, quantile};

/// Minimum relative change of a median that counts as a difference.
pub const LEAST: f64 = 0.10;

/// Result of comparing two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Rows in both runs, in the order of the first.
    pub pairs: Vec<RowPair>,
    /// How the machine's speed changed.
    pub drifts: Vec<Drift>,
    /// How each client changed, over all of its rows.
    pub clients: Vec<ClientChange>,
    /// Questions measured in both runs by different methods; their rows are not compared.
    pub other_method: Vec<String>,
    /// The schemas of both runs.
    pub schemas: (String, String),
    /// Rows that only the first run measured.
    pub only_before: Vec<String>,
    /// Rows that only the second run measured.
    pub only_after: Vec<String>,
    /// Minimum relative change that counts as a difference.
    pub least: f64,
}

/// One row in both runs.
#[derive(Clone, Debug, Serialize)]
pub struct RowPair {
    /// The row's key.
    #[serde(flatten)]
    pub key: Key,
    /// Median of the first run, in `unit`.
    pub before: Option<f64>,
    /// Median of the second run, in `unit`.
    pub after: Option<f64>,
    /// The row's unit.
    pub unit: String,
    /// Second median divided by the first; above 1 is slower for times and faster for rates.
    pub ratio: Option<f64>,
    /// The ratio's 95 % bootstrap interval, after [`Comparison::fill_intervals`].
    pub interval: Option<(f64, f64)>,
    /// P-value of Welch's test, corrected for all rows.
    pub p: f64,
    /// P-value of the rank test for this row alone; missing when Welch's test is not significant.
    pub p_ranks: Option<f64>,
    /// Cliff's delta: 1 when every repetition of the second run is above every repetition of the first.
    pub delta: f64,
    /// The conclusion.
    pub change: PairVerdict,
}

/// The conclusion from a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PairVerdict {
    /// No difference, or none that can be detected.
    None,
    /// The second run is better.
    Faster,
    /// The second run is worse.
    Slower,
    /// The first run has a result, the second one tried and has none.
    Broken,
    /// The second run has a result, the first one tried and had none.
    Repaired,
    /// There are too few repetitions for any test.
    TooFew,
}

/// How the machine's speed changed from one run to the next, in one series.
#[derive(Clone, Debug, Serialize)]
pub struct Drift {
    /// Where client and server ran.
    pub series: String,
    /// The median of the floor's ratios.
    pub ratio: f64,
    /// Rows of the floor that both runs have.
    pub n_rows: usize,
}

/// How a client changed, over all of its rows that both runs measured.
#[derive(Clone, Debug, Serialize)]
pub struct ClientChange {
    /// The client.
    pub client: String,
    /// Geometric mean of the time ratios of its rows, without the machine's share.
    pub ratio: f64,
    /// The ratio's 95 % bootstrap interval over the repetitions.
    pub interval: (f64, f64),
    /// Number of rows.
    pub n_rows: usize,
    /// Whether the change counts as a difference.
    pub differs: bool,
}

impl Comparison {
    /// Compares two runs; a relative change below `least` does not count as a difference.
    pub fn of(before: &ResultFile, after: &ResultFile, least: f64) -> Comparison {
        let index_after = index(after);
        let drifts = drifts(before, &index_after);
        let counts =
            |row: &&ResultRow| matches!(row.verdict, RowVerdict::Measured | RowVerdict::Failed | RowVerdict::Capped);
        let is_same = |row: &ResultRow| before.schema == after.schema || is_same_in_all_schemas(&row.question);
        let is_in_both = |row: &&ResultRow| index_after.contains_key(&row.key());
        let other_method: BTreeSet<&str> = before
            .rows
            .iter()
            .filter(is_in_both)
            .filter(|row| !is_same(row))
            .map(|row| row.question.as_str())
            .collect();
        let both: Vec<(&ResultRow, &ResultRow)> = before
            .rows
            .iter()
            .filter(|row| counts(row) && !row.is_floor() && is_same(row))
            .filter_map(|row| Some((row, index_after.get(&row.key()).copied().filter(counts)?)))
            .collect();
        let evidence: Vec<Evidence> =
            both.iter().map(|(a, b)| Evidence::of(a, b, drift_of(&drifts, &a.series))).collect();
        let p: Vec<f64> = evidence.iter().map(|evidence| evidence.p).collect();
        let pairs = both
            .iter()
            .zip(evidence)
            .zip(corrected(&p))
            .map(|(((a, b), evidence), p)| pair(a, b, &Evidence { p, ..evidence }, least))
            .collect();
        Comparison {
            pairs,
            clients: clients(&both, &drifts, least),
            drifts,
            other_method: other_method.into_iter().map(str::to_owned).collect(),
            schemas: (before.schema.clone(), after.schema.clone()),
            only_before: only(before, &index_after),
            only_after: only(after, &index(before)),
            least,
        }
    }

    /// Adds the interval of each ratio. Takes about a millisecond per pair, so it is separate for callers that show it.
    pub fn fill_intervals(&mut self, before: &ResultFile, after: &ResultFile) {
        let (before, after) = (index(before), index(after));
        for pair in self.pairs.iter_mut().filter(|pair| pair.ratio.is_some()) {
            if let (Some(a), Some(b)) = (before.get(&pair.key), after.get(&pair.key)) {
                pair.interval = Ratio::of(&b.samples, &a.samples, 1).map(|ratio| ratio.interval);
            }
        }
    }

    /// The rows that differ.
    pub fn differences(&self) -> impl Iterator<Item = &RowPair> {
        self.pairs.iter().filter(|pair| !matches!(pair.change, PairVerdict::None | PairVerdict::TooFew))
    }

    /// Whether any result can be compared: otherwise "no difference" is meaningless.
    pub fn compares(&self) -> bool {
        self.pairs
            .iter()
            .any(|pair| pair.change != PairVerdict::TooFew && (pair.before.is_some() || pair.after.is_some()))
    }

    /// Whether the runs differ, in a row or over all rows of a client.
    pub fn differ(&self) -> bool {
        self.differences().next().is_some() || self.clients.iter().any(|client| client.differs)
    }

    /// Whether anything became worse.
    pub fn is_worse(&self) -> bool {
        let is_slower = |client: &ClientChange| client.differs && client.ratio > 1.0;
        self.regressions().next().is_some() || self.clients.iter().any(is_slower)
    }

    /// The rows that became worse.
    pub fn regressions(&self) -> impl Iterator<Item = &RowPair> {
        self.pairs.iter().filter(|pair| matches!(pair.change, PairVerdict::Slower | PairVerdict::Broken))
    }
}

/// Statistics of the samples of a pair.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    /// The larger of both p-values, with and without the machine's share.
    p: f64,
    p_ranks: Option<f64>,
    delta: f64,
    ratio: Option<f64>,
    /// The ratio without the machine's share.
    own_ratio: f64,
}

impl Evidence {
    fn of(before: &ResultRow, after: &ResultRow, drift: f64) -> Evidence {
        let nothing = Evidence { p: 1.0, p_ranks: None, delta: 0.0, ratio: None, own_ratio: 1.0 };
        let (a, b) = (&before.samples, &after.samples);
        let is_testable = before.is_measured() && after.is_measured() && a.len().min(b.len()) >= REPETITIONS_MIN;
        let ratio = after.median.zip(before.median).map(|(after, before)| after / before);
        let Some(ratio) = ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0) else { return nothing };
        if !is_testable || before.unit != after.unit || before.per != after.per {
            return Evidence { ratio: Some(ratio), ..nothing };
        }
        // A slower machine increases times and decreases rates.
        let share = match (before.depends_on_speed(), before.is_rate()) {
            (false, _) => 1.0,
            (true, true) => drift.recip(),
            (true, false) => drift,
        };
        let own: Vec<f64> = b.iter().map(|value| value / share).collect();
        let p = welch_p(a, b).max(welch_p(a, &own));
        Evidence {
            p,
            p_ranks: (p <= ALPHA).then(|| ranks_p(a, b).max(ranks_p(a, &own))),
            delta: delta(a, b),
            ratio: Some(ratio),
            own_ratio: ratio / share,
        }
    }

    fn is_significant(&self) -> bool {
        self.p <= ALPHA && self.p_ranks.is_some_and(|p| p <= ALPHA)
    }

    /// Whether the medians differ by at least a factor of 1 + `least`, with and without the machine's share, in the
    /// same direction.
    fn is_large(&self, least: f64) -> bool {
        let Some(ratio) = self.ratio else { return false };
        let far = (1.0 + least).ln();
        let (all, own) = (ratio.ln(), self.own_ratio.ln());
        (all >= far && own >= far) || (all <= -far && own <= -far)
    }
}

fn pair(before: &ResultRow, after: &ResultRow, evidence: &Evidence, least: f64) -> RowPair {
    let n = before.samples.len().min(after.samples.len());
    let is_unexplained = |row: &ResultRow| row.ledger.as_ref().is_some_and(|ledger| ledger.unexplained != 0);
    let change = match (before.is_measured(), after.is_measured()) {
        (true, false) => PairVerdict::Broken,
        (false, true) => PairVerdict::Repaired,
        (false, false) => PairVerdict::None,
        (true, true) if is_unexplained(after) && !is_unexplained(before) => PairVerdict::Broken,
        (true, true) if n < REPETITIONS_MIN => PairVerdict::TooFew,
        (true, true) if !evidence.is_significant() || !evidence.is_large(least) => PairVerdict::None,
        (true, true) if (evidence.own_ratio > 1.0) == before.is_rate() => PairVerdict::Faster,
        (true, true) => PairVerdict::Slower,
    };
    RowPair {
        key: before.key(),
        before: before.median.filter(|_| before.is_measured()),
        after: after.median.filter(|_| after.is_measured()),
        unit: before.unit.clone(),
        ratio: evidence.ratio,
        interval: None,
        p: evidence.p,
        p_ranks: evidence.p_ranks,
        delta: evidence.delta,
        change,
    }
}

/// Number of bootstrap resamples.
const N_DRAWS: usize = 200;

fn clients(both: &[(&ResultRow, &ResultRow)], drifts: &[Drift], least: f64) -> Vec<ClientChange> {
    let names: BTreeSet<&str> = both.iter().map(|(row, _)| row.client.as_str()).collect();
    let of_client = |name: &str| {
        let is_its = |(a, b): &(&ResultRow, &ResultRow)| {
            let n = a.samples.len().min(b.samples.len());
            a.client == name && a.depends_on_speed() && a.is_measured() && b.is_measured() && n >= REPETITIONS_MIN
        };
        let rows: Vec<(&ResultRow, &ResultRow)> = both.iter().copied().filter(is_its).collect();
        ClientChange::of(name, &rows, drifts, least)
    };
    names.into_iter().filter_map(of_client).collect()
}

impl ClientChange {
    fn of(client: &str, rows: &[(&ResultRow, &ResultRow)], drifts: &[Drift], least: f64) -> Option<ClientChange> {
        let median = |row: &ResultRow| row.median.unwrap_or(f64::NAN);
        let shares: Vec<f64> = rows.iter().map(|(a, _)| drift_of(drifts, &a.series)).collect();
        let whole = longer(rows, &vec![1.0; rows.len()], median)?;
        let ratio = longer(rows, &shares, median)?;
        let mut random = Rng::with_seed(1);
        let mut drawn: Vec<f64> = (0..N_DRAWS)
            .filter_map(|_| longer(rows, &shares, |row| median_of_resample(&row.samples, &mut random)))
            .collect();
        drawn.sort_by(f64::total_cmp);
        let interval = (quantile(&drawn, 0.025)?, quantile(&drawn, 0.975)?);
        let far = 1.0 + least;
        let is_slower = ratio >= far && whole >= far && interval.0 > 1.0;
        let is_faster = ratio <= far.recip() && whole <= far.recip() && interval.1 < 1.0;
        let differs = is_slower || is_faster;
        Some(ClientChange { client: client.to_owned(), ratio, interval, n_rows: rows.len(), differs })
    }
}

/// Geometric mean of the time ratios of the rows, each without the machine's share: twice the time in one row and half
/// the time in another cancel out. `None` without rows.
fn longer(rows: &[(&ResultRow, &ResultRow)], shares: &[f64], mut middle: impl FnMut(&ResultRow) -> f64) -> Option<f64> {
    let of_row = |((a, b), share): (&(&ResultRow, &ResultRow), &f64)| {
        let change = (middle(b) / middle(a)).ln();
        (if a.is_rate() { -change } else { change }) - share.ln()
    };
    let changes: Vec<f64> = rows.iter().zip(shares).map(of_row).filter(|change| change.is_finite()).collect();
    (!changes.is_empty()).then(|| (changes.iter().sum::<f64>() / changes.len() as f64).exp())
}

type Index<'a> = HashMap<Key, &'a ResultRow>;

fn index(file: &ResultFile) -> Index<'_> {
    file.rows.iter().map(|row| (row.key(), row)).collect()
}

fn drifts(before: &ResultFile, after: &Index<'_>) -> Vec<Drift> {
    let series: BTreeSet<&str> = before.rows.iter().map(|row| row.series.as_str()).collect();
    let of_series = |series: &str| {
        let floors = before.rows.iter().filter(|row| row.is_floor() && row.series == series && !row.is_rate());
        let ratios: Vec<f64> = floors
            .filter_map(|row| Some(after.get(&row.key())?.median_per_operation()? / row.median_per_operation()?))
            .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            .collect();
        let summary = Summary::of(&ratios, 1)?;
        Some(Drift { series: series.to_owned(), ratio: summary.median, n_rows: summary.n })
    };
    series.into_iter().filter_map(of_series).collect()
}

fn drift_of(drifts: &[Drift], series: &str) -> f64 {
    drifts.iter().find(|drift| drift.series == series).map_or(1.0, |drift| drift.ratio)
}

fn only(one: &ResultFile, other: &Index<'_>) -> Vec<String> {
    let is_absent = |row: &&ResultRow| other.get(&row.key()).is_none_or(|twin| twin.verdict == RowVerdict::NotRun);
    one.rows.iter().filter(|row| row.is_measured() && is_absent(row)).map(|row| row.key().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{Noise, comparable};

    /// How many of `n_seeds` pairs of runs with different seeds show a difference.
    fn n_different(n_seeds: u64, noise: Noise, slow_share: f64, factor: f64) -> usize {
        let is_different = |seed: &u64| {
            let before = comparable(2 * seed, noise, 0.0, 1.0);
            let after = comparable(2 * seed + 1, noise, slow_share, factor);
            Comparison::of(&before, &after, LEAST).differences().next().is_some()
        };
        (0..n_seeds).filter(is_different).count()
    }

    #[test]
    fn two_runs_of_one_build_show_no_difference_at_any_noise() {
        for noise in Noise::ALL {
            // At most ALPHA of the comparisons may err: three of sixty.
            let n = n_different(60, noise, 0.0, 1.0);
            assert!(n <= 3, "{noise:?}: {n}");
        }
    }

    #[test]
    fn a_twenty_percent_slowdown_of_all_rows_is_detected_at_any_noise() {
        for noise in Noise::ALL {
            assert_eq!(n_different(8, noise, 1.0, 1.2), 8, "{noise:?}");
        }
    }

    #[test]
    fn a_twenty_percent_slowdown_in_one_of_ten_questions_is_detected() {
        assert_eq!(n_different(30, Noise::Normal, 0.1, 1.2), 30);
    }

    #[test]
    fn a_slower_machine_is_reported_as_drift_and_not_as_a_regression() {
        let before = comparable(1, Noise::Normal, 0.0, 1.0);
        let mut after = comparable(2, Noise::Normal, 0.0, 1.0);
        for row in &mut after.rows {
            row.samples.iter_mut().for_each(|ns| *ns *= 1.3);
            row.summarize(1);
        }

        let comparison = Comparison::of(&before, &after, LEAST);

        assert_eq!(comparison.differences().count(), 0);
        assert!(comparison.drifts.iter().all(|drift| (drift.ratio - 1.3).abs() < 0.05), "{:?}", comparison.drifts);
    }

    #[test]
    fn a_shorter_time_is_faster_and_a_lower_rate_is_slower() {
        let before = comparable(1, Noise::Normal, 0.0, 1.0);
        let mut rates = before.clone();
        rates.rows.iter_mut().for_each(|row| row.unit = "updates/s".into());
        let scaled = |file: &ResultFile, factor: f64| {
            let mut file = file.clone();
            for row in file.rows.iter_mut().filter(|row| row.client == "fodo") {
                row.samples.iter_mut().for_each(|value| *value *= factor);
                row.summarize(1);
            }
            file
        };

        let times = Comparison::of(&before, &scaled(&before, 0.7), LEAST);
        let rates = Comparison::of(&rates, &scaled(&rates, 0.7), LEAST);

        assert!(
            times.differences().next().is_some() && times.differences().all(|pair| pair.change == PairVerdict::Faster)
        );
        assert!(
            rates.differences().next().is_some() && rates.differences().all(|pair| pair.change == PairVerdict::Slower)
        );
    }

    #[test]
    fn a_newly_failing_row_is_a_regression_and_an_unmeasured_row_is_reported() {
        let before = comparable(1, Noise::Normal, 0.0, 1.0);
        let mut after = before.clone();
        let fodo: Vec<usize> = (0..after.rows.len()).filter(|index| after.rows[*index].client == "fodo").collect();
        after.rows[fodo[0]].verdict = RowVerdict::Failed;
        after.rows[fodo[1]].verdict = RowVerdict::NotRun;

        let comparison = Comparison::of(&before, &after, LEAST);

        let regressions: Vec<_> = comparison.regressions().map(|pair| pair.key.clone()).collect();
        assert_eq!(regressions, [before.rows[fodo[0]].key()]);
        assert_eq!(comparison.only_before, [before.rows[fodo[1]].key().to_string()]);
        assert!(comparison.only_after.is_empty());
    }

    #[test]
    fn unexplained_lost_updates_are_always_a_regression() {
        let mut before = comparable(1, Noise::Normal, 0.0, 1.0);
        let index = before.rows.iter().position(|row| !row.is_floor()).unwrap();
        before.rows[index].ledger = Some(crate::result::Ledger::default());
        let mut after = before.clone();
        after.rows[index].ledger = Some(crate::result::Ledger { unexplained: 1, ..Default::default() });

        assert_eq!(Comparison::of(&before, &after, LEAST).regressions().count(), 1);
        assert_eq!(Comparison::of(&after, &after, LEAST).regressions().count(), 0);
    }

    #[test]
    fn three_repetitions_are_too_few_for_significance() {
        let mut before = comparable(1, Noise::Normal, 0.0, 1.0);
        before.rows.iter_mut().for_each(|row| row.samples.truncate(3));
        let after = comparable(2, Noise::Normal, 1.0, 2.0);

        let comparison = Comparison::of(&before, &after, LEAST);

        assert!(comparison.pairs.iter().all(|pair| pair.change == PairVerdict::TooFew));
        assert!(!comparison.compares());
    }
}
