//! Text table of the measurements, one line per row.

use std::fmt::Write;

use crate::result::{ResultRow, RowVerdict};

/// Formats the rows.
pub fn table(rows: &[ResultRow]) -> String {
    let pv = rows.iter().map(|row| row.variant.len()).max().unwrap_or(0);
    let client = rows.iter().map(|row| row.client.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:<18} {:<pv$}  {:<client$}  ", row.question, row.variant, row.client);
        let _ = match (row.median, row.verdict) {
            (Some(median), RowVerdict::Measured) if row.is_rate() => write!(text, "{median:.2} {}", row.unit),
            (Some(median), RowVerdict::Measured) => write!(text, "{:.3} ms", median / 1e6),
            _ => write!(text, "{}: {}", row.verdict.text(), row.why.as_deref().unwrap_or("")),
        };
        if let Some(ledger) = &row.ledger {
            let (merged, late) = (ledger.merged_client, ledger.out_of_order);
            let _ = write!(text, ", {} received, {merged} merged here, {late} out of order", ledger.received);
        }
        if let Some(rate) = row.megabytes_per_s().filter(|_| row.point > 1 && row.bytes.is_some()) {
            let _ = write!(text, ", {} elements, {rate:.1} MB/s", row.point);
        }
        text.push('\n');
    }
    text
}
