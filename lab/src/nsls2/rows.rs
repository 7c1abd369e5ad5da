//! Rows of a result from the rounds of a driver.

use crate::driver::DriverFailure;
use crate::driver::rounds::{CycleSums, RoundTimes};
use crate::limit::ROUND_SAMPLES_MAX;
use crate::result::{Ledger, ResultRow, RowVerdict, SampleUnit};

/// The variant of rows with this delay.
pub fn delay_text(delay_ms: u32) -> String {
    if delay_ms == 0 { "no delay".into() } else { format!("delay {delay_ms} ms") }
}

/// The row of a point that was measured. `counts_merges`: both ends count the updates that they merge, so every missing one
/// must be explained.
pub fn measured(place: &ResultRow, times: &RoundTimes, counts_merges: bool) -> ResultRow {
    let ledger = (times.n_events > 0).then(|| ledger(times, counts_merges));
    let why = ledger.as_ref().and_then(|ledger| fault(ledger, &times.updates));
    let mut row = ResultRow {
        samples: rates(&times.rounds_ns, times.n),
        per: SampleUnit::Operation,
        n_operations: (times.rounds_ns.len() * times.n) as u64,
        verdict: if why.is_some() { RowVerdict::Failed } else { RowVerdict::Measured },
        why,
        ledger,
        ..place.clone()
    };
    row.summarize(place.point);
    row
}

/// The row of a point without a number.
pub fn without_number(place: &ResultRow, failure: &DriverFailure) -> ResultRow {
    let verdict = match failure {
        DriverFailure::Unavailable { .. } => RowVerdict::NotRun,
        DriverFailure::Silent { .. } => RowVerdict::Capped,
        _ => RowVerdict::Failed,
    };
    ResultRow { verdict, why: Some(failure.to_string()), ..place.clone() }
}

/// Operations per second of consecutive rounds, in as many parts of nearly equal numbers of rounds as there are samples.
fn rates(rounds_ns: &[u64], n: usize) -> Vec<f64> {
    let n_samples = rounds_ns.len().min(ROUND_SAMPLES_MAX);
    let part = |index: usize| {
        let bound = |index: usize| index * rounds_ns.len() / n_samples;
        let part = rounds_ns.get(bound(index)..bound(index + 1)).unwrap_or_default();
        let ns: u64 = part.iter().sum();
        (part.len() * n) as f64 * 1e9 / ns.max(1) as f64
    };
    (0..n_samples).map(part).collect()
}

/// Each event processes each counter once.
fn ledger(times: &RoundTimes, counts_merges: bool) -> Ledger {
    let CycleSums { received, duplicates, out_of_order, merged, .. } = times.updates;
    let produced = times.n as u64 * times.n_events;
    let rest = produced as i64 - (received + merged) as i64;
    // A missing update may be lost or merged, if a peer does not report which; an extra update is neither.
    let unattributed = if counts_merges { 0 } else { rest.max(0) as u64 };
    Ledger {
        produced,
        received: received + merged,
        merged_client: merged,
        delivered: received,
        unexplained: rest - unattributed as i64,
        unattributed,
        duplicates,
        out_of_order,
        ..Ledger::default()
    }
}

fn fault(ledger: &Ledger, updates: &CycleSums) -> Option<String> {
    let mut faults = Vec::new();
    if ledger.unexplained != 0 {
        faults.push(format!("{} updates unexplained", ledger.unexplained));
    }
    for (n, what) in [
        (updates.duplicates, "duplicates"),
        (updates.out_of_order, "out of order"),
        (updates.wrong, "values that a counter never has"),
    ] {
        if n > 0 {
            faults.push(format!("{n} {what}"));
        }
    }
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// Adds the rates of raw sockets to the rows of the same table, place, protocol and point.
pub fn add_floors(rows: &mut [ResultRow]) {
    let floors: Vec<ResultRow> = rows.iter().filter(|row| row.is_floor() && row.is_measured()).cloned().collect();
    for row in rows.iter_mut().filter(|row| !row.is_floor()) {
        let is_its = |floor: &&ResultRow| {
            (&floor.question, floor.protocol, &floor.series, floor.point)
                == (&row.question, row.protocol, &row.series, row.point)
        };
        row.floor = floors.iter().find(is_its).and_then(|floor| floor.median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(updates: CycleSums) -> RoundTimes {
        RoundTimes { rounds_ns: vec![1_000_000; 12], n: 10, n_events: 20, updates }
    }

    #[test]
    fn samples_are_the_rates_of_consecutive_rounds() {
        assert_eq!(rates(&[1_000_000; 12], 10), [10_000.0; 5]);
        assert_eq!(rates(&[500_000_000, 1_000_000_000], 10), [20.0, 10.0]);
        assert_eq!(rates(&[], 10), [] as [f64; 0]);
    }

    #[test]
    fn with_fodo_at_both_ends_every_missing_update_is_unexplained() {
        let place = ResultRow { question: "N3".into(), unit: "updates/s".into(), ..ResultRow::default() };
        let lost = times(CycleSums { received: 197, missing: 2, merged: 1, ..CycleSums::default() });
        let all = times(CycleSums { received: 200, ..CycleSums::default() });

        let (fodo, peer, whole) =
            (measured(&place, &lost, true), measured(&place, &lost, false), measured(&place, &all, true));

        let counts = |row: &ResultRow| {
            let ledger = row.ledger.clone().unwrap();
            (ledger.produced, ledger.delivered, ledger.merged_client, ledger.unattributed, ledger.unexplained)
        };
        assert_eq!((fodo.verdict, counts(&fodo)), (RowVerdict::Failed, (200, 197, 1, 0, 2)));
        assert_eq!((peer.verdict, counts(&peer)), (RowVerdict::Measured, (200, 197, 1, 2, 0)));
        assert_eq!((whole.verdict, counts(&whole)), (RowVerdict::Measured, (200, 200, 0, 0, 0)));
        assert_eq!((whole.median, whole.n_operations), (Some(10_000.0), 120));
    }

    #[test]
    fn repeated_and_extra_updates_fail_the_row_of_any_client() {
        let place = ResultRow::default();
        let twice = times(CycleSums { received: 201, duplicates: 1, ..CycleSums::default() });

        let row = measured(&place, &twice, false);

        assert_eq!(row.verdict, RowVerdict::Failed);
        assert_eq!(row.why.as_deref(), Some("-1 updates unexplained, 1 duplicates"));
    }

    #[test]
    fn a_floor_belongs_to_the_rows_of_its_table_place_protocol_and_point() {
        let row = |client: &str, series: &str, rate: f64| {
            let place = ResultRow {
                question: "N2".into(),
                client: client.into(),
                series: series.into(),
                point: 1,
                ..ResultRow::default()
            };
            measured(
                &place,
                &RoundTimes { rounds_ns: vec![(1e9 / rate) as u64; 5], n: 1, ..RoundTimes::default() },
                false,
            )
        };
        let mut rows =
            vec![row("raw", "two cores", 50_000.0), row("fodo", "two cores", 40_000.0), row("fodo", "two hosts", 1e4)];

        add_floors(&mut rows);

        assert_eq!(rows.iter().map(|row| row.floor).collect::<Vec<_>>(), [None, Some(50_000.0), None]);
        assert_eq!(rows[1].to_floor(), Some(0.8));
    }
}
