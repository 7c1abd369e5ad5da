//! Checks a run against limits from a TOML file.

use std::path::Path;

use serde::Deserialize;

use crate::result::{ResultFile, ResultRow};

/// A file of limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateLimits {
    /// All limits must be met.
    #[serde(rename = "limit")]
    pub limits: Vec<Limit>,
}

/// One limit: a selection of rows, and bounds for them. A missing selector matches any row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// `Q1` and so on.
    pub question: Option<String>,
    /// `one core`, `two cores`, `two hosts`.
    pub series: Option<String>,
    /// `equal`, `distinct`, `none`.
    pub variant: Option<String>,
    /// Channels, contexts or elements.
    pub point: Option<u64>,
    /// The client.
    pub client: Option<String>,
    /// The server.
    pub server: Option<String>,

    /// Maximum median nanoseconds of one operation.
    pub ns_max: Option<f64>,
    /// Maximum ratio to the floor: valid on any machine.
    pub to_floor_max: Option<f64>,
    /// Maximum 99th percentile of all individual times.
    pub p99_ns_max: Option<f64>,
    /// Minimum transfer rate, in million bytes of values per second.
    pub megabytes_per_s_min: Option<f64>,
    /// Maximum number of unexplained updates: 0.
    pub unexplained_max: Option<u64>,
    /// Maximum ratio to the time of `against` for the same row: valid on any machine.
    pub ratio_max: Option<f64>,
    /// The client that `ratio_max` refers to.
    pub against: Option<String>,
}

/// The result of one limit for one row.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitCheck {
    /// The row, the limit and the value found.
    pub words: String,
    /// Whether the limit is met.
    pub holds: bool,
}

/// Why a file of limits is invalid.
pub type Unreadable = Box<dyn std::error::Error>;

impl GateLimits {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<GateLimits, Unreadable> {
        GateLimits::parse(&std::fs::read_to_string(path)?)
    }

    /// Parses TOML text. A limit without a bound is rejected: it would always be met.
    pub fn parse(text: &str) -> Result<GateLimits, Unreadable> {
        let limits: GateLimits = toml::from_str(text)?;
        for (index, limit) in limits.limits.iter().enumerate() {
            if limit.ratio_max.is_some() != limit.against.is_some() {
                return Err(format!("limit {}: ratio_max and against must be used together", index + 1).into());
            }
            if limit.bounds().is_empty() {
                return Err(format!("limit {} has no bound: add one of {BOUNDS}", index + 1).into());
            }
        }
        Ok(limits)
    }

    /// Checks a run. A limit that selects no row is not met: nothing was verified.
    pub fn findings(&self, run: &ResultFile) -> Vec<LimitCheck> {
        self.limits.iter().flat_map(|limit| limit.findings(run)).collect()
    }
}

const BOUNDS: &str = "ns_max, to_floor_max, p99_ns_max, megabytes_per_s_min, unexplained_max, ratio_max with against";

/// One bound of a limit.
struct LimitBound {
    name: &'static str,
    limit: f64,
    found: fn(&Limit, &ResultRow, &ResultFile) -> Option<f64>,
    is_at_least: bool,
}

impl Limit {
    fn bounds(&self) -> Vec<LimitBound> {
        type Found = fn(&Limit, &ResultRow, &ResultFile) -> Option<f64>;
        let all: [(&'static str, Option<f64>, Found, bool); 6] = [
            ("ns", self.ns_max, |_, row, _| row.median_per_operation().filter(|_| row.unit == "ns"), false),
            ("times the floor", self.to_floor_max, |_, row, _| row.to_floor(), false),
            ("ns at p99", self.p99_ns_max, |_, row, _| row.percentile(99.0), false),
            ("MB/s", self.megabytes_per_s_min, |_, row, _| row.megabytes_per_s(), true),
            (
                "updates unexplained",
                self.unexplained_max.map(|n| n as f64),
                |_, row, _| row.ledger.as_ref().map(|ledger| ledger.unexplained.unsigned_abs() as f64),
                false,
            ),
            ("times as long as the other client", self.ratio_max, Limit::ratio, false),
        ];
        let bound = |(name, limit, found, is_at_least)| Some(LimitBound { name, limit: limit?, found, is_at_least });
        all.into_iter().filter_map(bound).collect()
    }

    fn ratio(&self, row: &ResultRow, run: &ResultFile) -> Option<f64> {
        let mut key = row.key();
        key.client = self.against.clone()?;
        let ratio = row.median_per_operation()? / run.row(&key)?.median_per_operation()?;
        Some(if row.is_rate() { ratio.recip() } else { ratio })
    }

    fn concerns(&self, row: &ResultRow) -> bool {
        let fits = |pattern: &Option<String>, word: &str| pattern.as_deref().is_none_or(|pattern| pattern == word);
        fits(&self.question, &row.question)
            && fits(&self.series, &row.series)
            && fits(&self.variant, &row.variant)
            && fits(&self.client, &row.client)
            && fits(&self.server, &row.server)
            && self.point.is_none_or(|point| point == row.point)
    }

    fn findings(&self, run: &ResultFile) -> Vec<LimitCheck> {
        let rows: Vec<&ResultRow> = run.rows.iter().filter(|row| self.concerns(row)).collect();
        let mut findings = Vec::new();
        for bound in self.bounds() {
            findings.extend(rows.iter().filter_map(|row| self.finding(row, &bound, run)));
            if rows.is_empty() {
                let words = format!("no row matches the limit of {} {}: {}", bound.limit, bound.name, self.words());
                findings.push(LimitCheck { words, holds: false });
            }
        }
        findings
    }

    /// `None` for the row of the client that is compared against, and for the floor.
    fn finding(&self, row: &ResultRow, bound: &LimitBound, run: &ResultFile) -> Option<LimitCheck> {
        if self.against.as_ref() == Some(&row.client) || row.is_floor() {
            return None;
        }
        let (name, limit) = (bound.name, bound.limit);
        let side = if bound.is_at_least { "at least" } else { "at most" };
        let finding = match (bound.found)(self, row, run) {
            Some(found) => LimitCheck {
                words: format!("{}: {found:.4} {name}, {side} {limit}", row.key()),
                holds: if bound.is_at_least { found >= limit } else { found <= limit },
            },
            None => LimitCheck {
                words: format!(
                    "{}: {}, so the limit of {side} {limit} {name} cannot be checked",
                    row.key(),
                    row.verdict.text()
                ),
                holds: false,
            },
        };
        Some(finding)
    }

    fn words(&self) -> String {
        let names = [&self.question, &self.series, &self.variant, &self.client, &self.server];
        let mut words: Vec<String> = names.into_iter().flatten().cloned().collect();
        words.extend(self.point.map(|point| format!("n={point}")));
        if words.is_empty() { "any".into() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    fn verdicts(limits: &str) -> Vec<bool> {
        GateLimits::parse(limits).unwrap().findings(&whole()).iter().map(|finding| finding.holds).collect()
    }

    #[test]
    fn a_limit_applies_to_every_matching_row() {
        let generous = "[[limit]]\nquestion = 'Q17'\nclient = 'fodo'\nto_floor_max = 100.0\nns_max = 1e9";
        let strict = "[[limit]]\nquestion = 'Q17'\nclient = 'fodo'\nto_floor_max = 0.01";

        assert!(verdicts(generous).len() > 2 && verdicts(generous).iter().all(|holds| *holds));
        assert!(!verdicts(strict).is_empty() && verdicts(strict).iter().all(|holds| !holds));
    }

    #[test]
    fn a_limit_against_a_peer_compares_the_common_rows() {
        let limits = "[[limit]]\nquestion = 'Q18'\nclient = 'fodo'\nserver = 'soft-ioc'\nseries = 'two cores'\n\
                      against = 'aioca'\nratio_max = 1.0";

        let verdicts = verdicts(limits);

        assert!(!verdicts.is_empty() && verdicts.iter().all(|holds| *holds), "{verdicts:?}");
    }

    #[test]
    fn limits_invert_ratios_of_rates_and_reject_time_limits_on_bytes() {
        let row = |client: &str, unit: &str, value: f64| {
            let mut row = ResultRow {
                question: "L2".into(),
                client: client.into(),
                unit: unit.into(),
                samples: vec![value; 5],
                verdict: crate::result::RowVerdict::Measured,
                ..ResultRow::default()
            };
            row.summarize(1);
            row
        };
        let mut run = ResultFile::new("full", "2024-02-29T12:00:00Z");
        run.rows = vec![row("fodo", "updates/s", 2e6), row("libca", "updates/s", 1e6), row("aioca", "bytes", 5.0)];
        let holds = |limits: &str| -> Vec<bool> {
            GateLimits::parse(limits).unwrap().findings(&run).iter().map(|finding| finding.holds).collect()
        };

        assert_eq!(holds("[[limit]]\nclient = 'fodo'\nagainst = 'libca'\nratio_max = 0.6"), [true]);
        assert_eq!(holds("[[limit]]\nclient = 'libca'\nagainst = 'fodo'\nratio_max = 0.6"), [false]);
        assert_eq!(holds("[[limit]]\nclient = 'aioca'\nns_max = 10.0"), [false]);
    }

    #[test]
    fn a_limit_without_a_matching_row_fails() {
        assert_eq!(verdicts("[[limit]]\nquestion = 'Q99'\nns_max = 1"), [false]);
    }

    #[test]
    fn a_row_without_the_limited_number_fails_the_limit() {
        assert_eq!(
            verdicts("[[limit]]\nquestion = 'Q4'\nclient = 'fodo'\npoint = 10\nunexplained_max = 0"),
            [false; 4]
        );
    }

    #[test]
    fn empty_or_misspelt_limits_are_rejected() {
        for text in ["[[limit]]\nquestion = 'Q17'", "[[limit]]\nns_maximum = 1", "[[limit]]\nratio_max = 1.0", "x = 1"]
        {
            assert!(GateLimits::parse(text).is_err(), "{text}");
        }
    }
}
