//! CSV of every row of a result, for spreadsheets.

use crate::result::{RequestAccount, ResultFile, ResultRow, SampleUnit};

const COLUMNS: &str = "question,protocol,series,variant,point,client,server,verdict,unit,per,n_operations,n_samples,median,low,\
                       high,q1,q3,floor,median_per_operation,total_ns,megabytes_per_s,to_floor,p99,warm_up_rounds,is_steady,\
                       unexplained,why,samples,\
                       study_table,study_row,n_pvs,hz,n_watched,n_monitors,format,seconds,produced,delivered,merged_server,\
                       merged_client,unattributed,lost_at_end,server_cpu_per_cent,server_sent_kb_s,server_received_kb_s,\
                       client_cpu_per_cent,client_sent_kb_s,client_received_kb_s,p50,\
                       sent,answered,wrong,refused,timed_out,not_sent,late,p999,offered_hz,server_cpu_us,client_cpu_us,\
                       server_cores,client_cores";

/// One line per row, RFC 4180; samples in one field, separated by blanks.
pub fn text(run: &ResultFile) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for row in &run.rows {
        text += &[fields(row), study_fields(row), request_fields(row)]
            .concat()
            .iter()
            .map(|field| quoted(field))
            .collect::<Vec<_>>()
            .join(",");
        text += "\r\n";
    }
    text
}

fn fields(row: &ResultRow) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let samples: Vec<String> = row.samples.iter().map(f64::to_string).collect();
    vec![
        row.question.clone(),
        row.protocol.text().into(),
        row.series.clone(),
        row.variant.clone(),
        row.point.to_string(),
        row.client.clone(),
        row.server.clone(),
        row.verdict.text().into(),
        row.unit.clone(),
        if row.per == SampleUnit::Total { "total".into() } else { "operation".into() },
        row.n_operations.to_string(),
        row.samples.len().to_string(),
        number(row.median),
        number(row.low),
        number(row.high),
        number(row.q1),
        number(row.q3),
        number(row.floor),
        number(row.median_per_operation()),
        number(row.total_ns()),
        number(row.megabytes_per_s()),
        number(row.to_floor()),
        number(row.percentile(99.0)),
        row.warm_up.map_or(String::new(), |warm_up| warm_up.n_rounds.to_string()),
        row.warm_up.map_or(String::new(), |warm_up| warm_up.is_steady.to_string()),
        unexplained(row).map_or(String::new(), |n| n.to_string()),
        row.why.clone().unwrap_or_default(),
        samples.join(" "),
    ]
}

/// Updates or requests.
fn unexplained(row: &ResultRow) -> Option<i64> {
    let of_updates = row.ledger.as_ref().map(|ledger| ledger.unexplained);
    of_updates.or_else(|| row.clu.as_ref().and_then(|point| point.account.and(Some(point.unexplained))))
}

/// The columns that only rows of study 002 have.
fn study_fields(row: &ResultRow) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let (Some(point), ledger) = (&row.study, row.ledger.clone().unwrap_or_default()) else {
        return vec![String::new(); N_OF_STUDY];
    };
    vec![
        point.table.to_string(),
        point.row.to_string(),
        point.n_pvs.to_string(),
        point.hz.to_string(),
        point.n_watched.to_string(),
        point.n_monitors.to_string(),
        point.format.text().into(),
        point.seconds.to_string(),
        ledger.produced.to_string(),
        ledger.delivered.to_string(),
        ledger.merged_server.to_string(),
        ledger.merged_client.to_string(),
        ledger.unattributed.to_string(),
        point.lost_at_end.to_string(),
        point.server.cpu_per_cent.to_string(),
        number(point.server.sent_kb_s),
        number(point.server.received_kb_s),
        point.client.cpu_per_cent.to_string(),
        number(point.client.sent_kb_s),
        number(point.client.received_kb_s),
        number(row.percentile(50.0)),
    ]
}

/// The last columns, which only rows of study 004 have.
fn request_fields(row: &ResultRow) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let Some(point) = &row.clu else { return vec![String::new(); N_OF_REQUESTS] };
    let count = |of: fn(&RequestAccount) -> u64| {
        point.account.as_ref().map_or(String::new(), |account| of(account).to_string())
    };
    vec![
        count(|account| account.sent),
        count(|account| account.answered),
        count(|account| account.wrong),
        count(|account| account.refused),
        count(|account| account.timed_out),
        count(|account| account.not_sent),
        count(|account| account.late),
        number(row.percentile(99.9)),
        number(point.offered_hz),
        number(point.cpu_us.map(|cpu| cpu.server)),
        number(point.cpu_us.map(|cpu| cpu.client)),
        point.cores.server.to_string(),
        point.cores.client.to_string(),
    ]
}

/// Number of the columns of [`request_fields`].
const N_OF_REQUESTS: usize = 13;

/// Number of the columns of [`study_fields`].
const N_OF_STUDY: usize = 21;

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn every_csv_row_has_one_field_per_column() {
        let run = whole();

        let text = text(&run);

        assert_eq!(text.lines().count(), 1 + run.rows.len());
        let simple = text.lines().filter(|line| !line.contains('"'));
        assert!(simple.into_iter().all(|line| line.split(',').count() == COLUMNS.split(',').count()));
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
