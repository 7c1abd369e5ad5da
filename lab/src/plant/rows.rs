//! A worker's answers as rows of a result.

use crate::result::{Ledger, Per, Row, Verdict};

use super::{First, Found, Seen};

/// A row that is still without numbers; `variant` is the PV, or `all`.
pub fn row(question: &str, title: &str, client: &str, variant: &str) -> Row {
    Row {
        question: question.into(),
        title: title.into(),
        series: "plant".into(),
        variant: variant.into(),
        point: 1,
        client: client.into(),
        server: "plant".into(),
        unit: "ns".into(),
        per: Per::Operation,
        n_operations: 1,
        ..Row::default()
    }
}

/// With its samples, or why there are none.
pub fn with(mut row: Row, samples: Result<Vec<f64>, String>) -> Row {
    match samples {
        Ok(samples) if !samples.is_empty() => {
            row.samples = samples;
            row.verdict = Verdict::Measured;
            row.summarize(0);
        }
        Ok(_) => row.why = Some("nothing came".into()),
        Err(why) => (row.verdict, row.why) = (Verdict::Failed, Some(why)),
    }
    row
}

/// How long the PV took to be found and connected.
pub fn connected(client: &str, found: &Found) -> Row {
    let row = row("A1 connect", "Search and connect", client, &found.pv);
    with(row, found.failed.clone().map_or(Ok(vec![found.ns as f64]), Err))
}

/// How long the first update took.
pub fn first(client: &str, first: &First) -> Row {
    let row = row("A5 first update", "Subscribe, until the first update", client, &first.pv);
    with(row, first.failed.clone().map_or(Ok(vec![first.ns as f64]), Err))
}

/// How many updates came, and the longest time without one. What the plant produced is not known to us, so
/// the ledger begins with what was received.
pub fn watched(client: &str, seen: &Seen) -> [Row; 2] {
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
