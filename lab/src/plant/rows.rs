//! Turns a worker's answers into rows of a result.

use crate::result::{Ledger, ResultRow, RowVerdict, SampleUnit};

use super::{ConnectedPv, FirstUpdate, SubscriptionCounts};

/// A row without samples; `variant` is the PV, or `all`.
pub fn row(question: &str, title: &str, client: &str, variant: &str) -> ResultRow {
    ResultRow {
        question: question.into(),
        title: title.into(),
        series: "plant".into(),
        variant: variant.into(),
        point: 1,
        client: client.into(),
        server: "plant".into(),
        unit: "ns".into(),
        per: SampleUnit::Operation,
        n_operations: 1,
        ..ResultRow::default()
    }
}

/// Adds the samples, or the reason why there are none.
pub fn with(mut row: ResultRow, samples: Result<Vec<f64>, String>) -> ResultRow {
    match samples {
        Ok(samples) if !samples.is_empty() => {
            row.samples = samples;
            row.verdict = RowVerdict::Measured;
            row.summarize(0);
        }
        Ok(_) => row.why = Some("no samples received".into()),
        Err(why) => (row.verdict, row.why) = (RowVerdict::Failed, Some(why)),
    }
    row
}

/// Time to search and connect a PV.
pub fn connected(client: &str, found: &ConnectedPv) -> ResultRow {
    let row = row("A1 connect", "Search and connect", client, &found.pv);
    with(row, found.failed.clone().map_or(Ok(vec![found.ns as f64]), Err))
}

/// Time until the first update.
pub fn first(client: &str, first: &FirstUpdate) -> ResultRow {
    let row = row("A5 first update", "Subscribe, until the first update", client, &first.pv);
    with(row, first.failed.clone().map_or(Ok(vec![first.ns as f64]), Err))
}

/// Update rate, and the longest time without an update. The number of updates that the plant produced is unknown, so
/// the ledger starts with those received.
pub fn watched(client: &str, seen: &SubscriptionCounts) -> [ResultRow; 2] {
    let lost = (seen.n_lost > 0).then(|| format!("the channel was lost {} times", seen.n_lost));
    let mut rate = row("A6 updates", "Updates per second", client, &seen.pv);
    rate.unit = "updates/s".into();
    rate.n_operations = seen.delivered;
    rate.ledger = Some(Ledger {
        produced: seen.received,
        received: seen.received,
        delivered: seen.delivered,
        merged_client: seen.merged,
        out_of_order: seen.out_of_order,
        in_flight: seen.received as i64 - seen.delivered as i64 - seen.merged as i64,
        longest_gap_ms: seen.longest_gap_ns as f64 / 1e6,
        ..Ledger::default()
    });
    let per_s = seen.received as f64 * 1e9 / seen.ns.max(1) as f64;
    let gap = row("A7 longest gap", "The longest time without an update", client, &seen.pv);
    [
        with(rate, lost.clone().map_or(Ok(vec![per_s]), Err)),
        with(gap, lost.map_or(Ok(vec![seen.longest_gap_ns as f64]), Err)),
    ]
}
