//! CSV of every row of a result, for spreadsheets.

use crate::result::{ResultFile, ResultRow, SampleUnit};

const COLUMNS: &str = "question,series,variant,point,client,server,verdict,unit,per,n_operations,n_samples,median,low,\
                       high,q1,q3,floor,median_per_operation,total_ns,megabytes_per_s,to_floor,p99,warm_up_rounds,is_steady,\
                       unexplained,why,samples";

/// One line per row, RFC 4180; samples in one field, separated by blanks.
pub fn text(run: &ResultFile) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for row in &run.rows {
        text += &fields(row).iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
        text += "\r\n";
    }
    text
}

fn fields(row: &ResultRow) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let samples: Vec<String> = row.samples.iter().map(f64::to_string).collect();
    vec![
        row.question.clone(),
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
        row.ledger.as_ref().map_or(String::new(), |ledger| ledger.unexplained.to_string()),
        row.why.clone().unwrap_or_default(),
        samples.join(" "),
    ]
}

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
