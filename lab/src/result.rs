//! Result files: schema `fodo-lab/4`, written by `fodo lab run`, read by `compare`, `gate` and `report`.
//!
//! The names of questions, clients and servers are open: a future file with a client unknown to this program is read,
//! compared and drawn. Unknown fields are ignored. A field keeps its meaning as long as the schema keeps its number.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use crate::clu::point::{CluPoint, EndNumbers, RequestAccount};
pub use crate::diamond::point::{EndUsage, StudyPoint};
pub use crate::load::tally::UpdateRecording;
pub use crate::nsls2::point::CasePoint;
pub use crate::protocol::LabProtocol;
use crate::statistics::Summary;
pub use crate::warm_up::WarmUp;

/// Schema identifier, which readers check first.
pub const SCHEMA: &str = "fodo-lab/4";

/// The previous schema, still supported. Its fields are the same, but clients were not warmed up, except by 200 gets
/// before those of Q17, and loads ran two seconds.
pub const SCHEMA_COLD: &str = "fodo-lab/3";

/// Whether rows of a question have the same meaning in [`SCHEMA`] and [`SCHEMA_COLD`]: commands, which are separate
/// processes, servers that are restarted, idle memory, absent names, and the cost of an IOC.
pub fn is_same_in_all_schemas(question: &str) -> bool {
    matches!(question, "P5" | "L3" | "L4" | "L5") || question.starts_with('I')
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// [`SCHEMA`]; [`SCHEMA_COLD`] for a file of that schema.
    pub schema: String,
    /// The suite, such as `quick` or `full`.
    pub suite: String,
    /// The start of the run, UTC, as in RFC 3339.
    pub started: String,
    /// Duration of the run, in seconds.
    pub duration_s: f64,
    /// The host: kernel, processor, governor, sysctls, version and commit of Fodo. Scalars whose names are words joined
    /// by `_`; the report prints all of them.
    #[serde(default)]
    pub machine: Map<String, Value>,
    /// The settings: repetitions, and the seed that reproduces the order.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Every client and server that was measured or is missing.
    #[serde(default)]
    pub peers: Vec<PeerInfo>,
    /// The rows.
    #[serde(default)]
    pub rows: Vec<ResultRow>,
    /// Answers to yes-or-no questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<QuestionAnswer>,
}

/// A client or a server under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// The name in [`ResultRow::client`] and [`ResultRow::server`].
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it runs on, with versions: an interpreter, an underlying library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One result: one question, at one point, by one client with one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// `Q1` to `Q31` of the studies, or `L1` and so on for a load.
    pub question: String,
    /// The protocol; Channel Access in files that do not have the field.
    #[serde(default)]
    pub protocol: LabProtocol,
    /// The question, in one line.
    #[serde(default)]
    pub title: String,
    /// Where client and server ran: `one core`, `two cores`, `two hosts`.
    pub series: String,
    /// `equal` (all channels to one PV), `distinct` (each to its own) or `none`.
    #[serde(default = "no_variant")]
    pub variant: String,
    /// Channels, contexts or elements.
    pub point: u64,
    /// The client; `raw` for the floor.
    pub client: String,
    /// The server.
    pub server: String,
    /// Unit of `samples` and everything derived from them: `ns`, or a rate that ends in `/s`.
    #[serde(default = "nanoseconds")]
    pub unit: String,
    /// What one sample measures.
    #[serde(default)]
    pub per: SampleUnit,
    /// One value per repetition, in the order of measurement.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// Number of operations in one repetition.
    #[serde(default)]
    pub n_operations: u64,
    /// Bytes of values transferred per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Median of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// Lower end of the median's 95 % bootstrap interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of this interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The lower quartile of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q1: Option<f64>,
    /// The upper quartile of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q3: Option<f64>,
    /// The median of the floor of the same kind, series and point, in this row's `unit` and `per`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Percentiles of all individual times: pairs of per cent and value, ascending, such as `[99.9, 41000.0]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<(f64, f64)>,
    /// Histogram of all individual times: pairs of an upper bound in nanoseconds and the number of times between the
    /// previous bound and this one; at most 200 pairs, with bounds in equal ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
    /// The outcome.
    pub verdict: RowVerdict,
    /// Why there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the client was warmed up before the samples; `None` if the question is about the first work of a fresh
    /// process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
    /// The account of every update of a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// Resource usage of each end of a load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resources>,
    /// The point of study 002 of a row of its suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyPoint>,
    /// The point of study 003 of a row of its suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CasePoint>,
    /// The requests of a row of study 004's suite, whose `protocol` has no meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clu: Option<CluPoint>,
}

/// What one sample measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleUnit {
    /// The time of one operation.
    #[default]
    Operation,
    /// The time of all operations together.
    Total,
}

/// The outcome of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowVerdict {
    /// Measured, and every check passed.
    Measured,
    /// A check failed, so there is no result.
    Failed,
    /// A peer is missing, or does not support the question.
    #[default]
    NotRun,
    /// The time limit was exceeded, and the work was ended.
    Capped,
}

impl RowVerdict {
    /// Text for a cell of a table.
    pub fn text(self) -> &'static str {
        match self {
            RowVerdict::Measured => "measured",
            RowVerdict::Failed => "failed",
            RowVerdict::NotRun => "not run",
            RowVerdict::Capped => "capped",
        }
    }
}

/// The account of every update of a load; `unexplained` must be 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Updates produced by the generator.
    pub produced: u64,
    /// Updates replaced by a newer one in the server's queue, as specified.
    pub merged_server: u64,
    /// Updates received by the client.
    pub received: u64,
    /// Updates replaced by a newer one in the client's queue, as specified.
    pub merged_client: u64,
    /// Updates delivered to the program.
    pub delivered: u64,
    /// Updates not yet delivered when a measurement of a plant ended. Loads end when nothing is in flight any more.
    #[serde(default)]
    pub in_flight: i64,
    /// Updates missing without an explanation.
    pub unexplained: i64,
    /// Updates lost or merged by a client or server other than ours, which does not report which.
    #[serde(default)]
    pub unattributed: u64,
    /// Delivered more than once.
    pub duplicates: u64,
    /// Delivered after a newer one.
    pub out_of_order: u64,
    /// The longest time without an update for one subscription.
    pub longest_gap_ms: f64,
    /// Maximum delay of a change after its scheduled moment: more than some milliseconds means that the offered load
    /// was lower than requested.
    #[serde(default)]
    pub late_max_ms: f64,
}

/// Resource usage of one end of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// `server` or `client`.
    pub role: String,
    /// CPU time per million delivered updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_million: Option<f64>,
    /// Resident memory at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Number of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Number of context switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctx_switches: Option<u64>,
    /// TCP segments sent, including acknowledgements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_sent: Option<u64>,
    /// Bytes of the protocol sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
}

/// The answer to a yes-or-no question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    /// `Q1` and so on.
    pub question: String,
    /// The client.
    pub client: String,
    /// The server.
    #[serde(default)]
    pub server: String,
    /// The answer.
    pub yes: bool,
    /// A remark.
    #[serde(default)]
    pub words: String,
}

impl ResultFile {
    /// The answers sorted by question. If a client's answer is the same with several servers, it is listed once with
    /// the servers' names joined.
    pub fn answers_by_question(&self) -> Vec<QuestionAnswer> {
        let mut joined: Vec<QuestionAnswer> = Vec::new();
        for answer in &self.answers {
            let is_same = |other: &&mut QuestionAnswer| {
                let key = |answer: &QuestionAnswer| {
                    (answer.question.clone(), answer.client.clone(), answer.yes, answer.words.clone())
                };
                key(other) == key(answer)
            };
            match joined.iter_mut().find(is_same) {
                Some(known) => known.server = format!("{} and {}", known.server, answer.server),
                None => joined.push(answer.clone()),
            }
        }
        joined.sort_by_key(|answer| answer.question.trim_start_matches('Q').parse::<u32>().unwrap_or(u32::MAX));
        joined
    }
}

fn no_variant() -> String {
    "none".into()
}

fn nanoseconds() -> String {
    "ns".into()
}

/// Identifies a row across files: question, protocol, series, variant, point, client, server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// As in [`ResultRow`], and so are the rest.
    pub question: String,
    /// The protocol.
    pub protocol: LabProtocol,
    /// Placement.
    pub series: String,
    /// Which PVs.
    pub variant: String,
    /// Number of channels, contexts or elements.
    pub point: u64,
    /// The client.
    pub client: String,
    /// The server.
    pub server: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { question, protocol, series, variant, point, client, server } = self;
        let variant = if variant == "none" { String::new() } else { format!(", {variant}") };
        write!(f, "{question} n={point}, {client} with {server}, {series}{variant}{}", protocol.suffix())
    }
}

impl ResultRow {
    /// See [`Key`].
    pub fn key(&self) -> Key {
        Key {
            question: self.question.clone(),
            protocol: self.protocol,
            series: self.series.clone(),
            variant: self.variant.clone(),
            point: self.point,
            client: self.client.clone(),
            server: self.server.clone(),
        }
    }

    /// Whether the row has a result.
    pub fn is_measured(&self) -> bool {
        self.verdict == RowVerdict::Measured && !self.samples.is_empty()
    }

    /// Whether the tables of a study show it, in its own layout.
    pub fn is_of_study(&self) -> bool {
        self.study.is_some() || self.case.is_some() || self.clu.is_some()
    }

    /// Whether it is a raw socket.
    pub fn is_floor(&self) -> bool {
        self.client.starts_with("raw")
    }

    /// Whether a slower machine worsens it: true for times and rates, false for sizes.
    pub fn depends_on_speed(&self) -> bool {
        self.unit == "ns" || self.is_rate()
    }

    /// Whether higher is better: true for rates, false for times.
    pub fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }

    /// Factor from a sample to nanoseconds per operation.
    pub fn per_operation(&self) -> f64 {
        match self.per {
            SampleUnit::Operation => 1.0,
            SampleUnit::Total => 1.0 / self.n_operations.max(1) as f64,
        }
    }

    /// The median per operation, in `unit`; `None` for a row without a result.
    pub fn median_per_operation(&self) -> Option<f64> {
        Some(self.median.filter(|_| self.is_measured())? * self.per_operation())
    }

    /// The median of all operations of a repetition together, in nanoseconds; `None` for a rate.
    pub fn total_ns(&self) -> Option<f64> {
        let median = self.median.filter(|_| self.is_measured() && self.unit == "ns")?;
        Some(match self.per {
            SampleUnit::Total => median,
            SampleUnit::Operation => median * self.n_operations.max(1) as f64,
        })
    }

    /// Transfer rate of values in MB/s (10^6 bytes); `None` for a row that transfers no values or is a rate.
    pub fn megabytes_per_s(&self) -> Option<f64> {
        let ns = self.median_per_operation().filter(|ns| *ns > 0.0 && self.unit == "ns")?;
        Some(self.bytes? as f64 * 1e3 / ns)
    }

    /// Ratio to the floor; `None` without a floor. For rates, the share of the floor.
    pub fn to_floor(&self) -> Option<f64> {
        let floor = self.floor.filter(|floor| *floor > 0.0 && !self.is_floor())?;
        Some(self.median.filter(|_| self.is_measured())? / floor)
    }

    /// The percentile `per_cent` of all individual times, if the row has it.
    pub fn percentile(&self, per_cent: f64) -> Option<f64> {
        self.percentiles.iter().find(|(known, _)| *known == per_cent).map(|(_, value)| *value)
    }

    /// Computes median, interval and quartiles from `samples`; `seed` determines the bootstrap. Does nothing without
    /// samples.
    pub fn summarize(&mut self, seed: u64) {
        if let Some(summary) = Summary::of(&self.samples, seed) {
            self.median = Some(summary.median);
            (self.low, self.high) = (Some(summary.interval.0), Some(summary.interval.1));
            (self.q1, self.q3) = (Some(summary.quartile_low), Some(summary.quartile_high));
        }
    }
}

/// Why a file is not a valid result.
#[derive(Debug)]
pub enum ResultFileError {
    /// The file cannot be read.
    Io(std::io::Error),
    /// The JSON does not match the schema.
    Json(serde_json::Error),
    /// The schema is not supported.
    Schema(String),
    /// A row is marked as measured, but has no samples or invalid ones.
    Row(Box<Key>),
}

impl fmt::Display for ResultFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResultFileError::Io(why) => write!(f, "{why}"),
            ResultFileError::Json(why) => write!(f, "not a result of `fodo lab run`: {why}"),
            ResultFileError::Schema(found) => {
                write!(f, "unsupported schema {found:?}, expected {SCHEMA:?}: measure again")
            }
            ResultFileError::Row(key) => {
                write!(f, "the row {key} is marked as measured but has no samples or invalid ones")
            }
        }
    }
}

impl std::error::Error for ResultFileError {}

impl ResultFile {
    /// A result without rows.
    pub fn new(suite: &str, started: &str) -> ResultFile {
        ResultFile {
            schema: SCHEMA.into(),
            suite: suite.into(),
            started: started.into(),
            duration_s: 0.0,
            machine: Map::new(),
            settings: Map::new(),
            peers: Vec::new(),
            rows: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Parses and checks JSON text: the schema first, so that an old file is reported as old, not as broken.
    pub fn parse(text: &str) -> Result<ResultFile, ResultFileError> {
        let value: Value = serde_json::from_str(text).map_err(ResultFileError::Json)?;
        let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default();
        if schema != SCHEMA && schema != SCHEMA_COLD {
            return Err(ResultFileError::Schema(schema.into()));
        }
        let mut result: ResultFile = serde_json::from_value(value).map_err(ResultFileError::Json)?;
        for row in &mut result.rows {
            let is_sound = !row.samples.is_empty() && row.samples.iter().all(|ns| ns.is_finite() && *ns >= 0.0);
            if row.verdict == RowVerdict::Measured && !is_sound {
                return Err(ResultFileError::Row(Box::new(row.key())));
            }
            if row.median.is_none() {
                row.summarize(0);
            }
        }
        Ok(result)
    }

    /// Reads a file, see [`ResultFile::parse`].
    pub fn read(path: &Path) -> Result<ResultFile, ResultFileError> {
        ResultFile::parse(&std::fs::read_to_string(path).map_err(ResultFileError::Io)?)
    }

    /// JSON text, one line per field, with a line feed at the end.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes the file. Replaces an existing file only after the new one is complete.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".part");
        std::fs::write(&unfinished, self.text()?)?;
        std::fs::rename(&unfinished, path)
    }

    /// The row with that key.
    pub fn row(&self, key: &Key) -> Option<&ResultRow> {
        self.rows.iter().find(|row| row.key() == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> ResultRow {
        let mut row = ResultRow {
            question: "Q18".into(),
            series: "two cores".into(),
            variant: "distinct".into(),
            point: 1000,
            client: "fodo".into(),
            server: "soft-ioc".into(),
            unit: "ns".into(),
            samples: vec![900.1, 1000.3, 1100.7],
            n_operations: 1000,
            floor: Some(500.15),
            percentiles: vec![(50.0, 990.0), (99.99, 5000.0)],
            verdict: RowVerdict::Measured,
            ledger: Some(Ledger { produced: 7, unexplained: -1, ..Ledger::default() }),
            resources: vec![Resources { role: "server".into(), rss_bytes: Some(1 << 20), ..Resources::default() }],
            ..ResultRow::default()
        };
        row.summarize(1);
        row
    }

    fn file() -> ResultFile {
        let mut file = ResultFile::new("quick", "2024-02-29T12:00:00Z");
        file.machine.insert("n_cpus".into(), 2.into());
        file.peers.push(PeerInfo { name: "aioca".into(), missing: Some("no Python".into()), ..PeerInfo::default() });
        file.rows =
            vec![row(), ResultRow { verdict: RowVerdict::Capped, why: Some("60 s".into()), ..ResultRow::default() }];
        file.answers.push(QuestionAnswer {
            question: "Q1".into(),
            client: "fodo".into(),
            yes: true,
            ..QuestionAnswer::default()
        });
        file
    }

    #[test]
    fn result_files_round_trip_exactly() {
        let file = file();

        let back = ResultFile::parse(&file.text().unwrap()).unwrap();

        assert_eq!(back, file);
    }

    #[test]
    fn a_result_file_is_replaced_atomically() {
        let path = std::env::temp_dir().join(format!("fodo-lab-result-{}.json", std::process::id()));
        std::fs::write(&path, "old").unwrap();

        file().write(&path).unwrap();

        assert_eq!(ResultFile::read(&path).unwrap(), file());
        assert!(!path.with_extension("json.part").exists());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_row_with_only_required_fields_is_parsed() {
        let text = r#"{"schema":"fodo-lab/3","suite":"full","started":"2024-02-29T12:00:00Z","duration_s":1,
            "of tomorrow":1,"rows":[{"question":"Q4","series":"one core","point":10,"client":"psi-ca",
            "server":"fodo","samples":[2,1,3],"n_operations":10,"verdict":"measured","of tomorrow":[]}]}"#;

        let file = ResultFile::parse(text).unwrap();

        let row = &file.rows[0];
        assert_eq!((row.variant.as_str(), row.unit.as_str(), row.per), ("none", "ns", SampleUnit::Operation));
        assert_eq!((row.median, row.total_ns()), (Some(2.0), Some(20.0)));
        assert_eq!(row.protocol, LabProtocol::Ca);
    }

    #[test]
    fn rows_of_two_protocols_have_different_keys() {
        let (ca, pva) = (row(), ResultRow { protocol: LabProtocol::Pva, ..row() });

        assert_ne!(ca.key(), pva.key());
        assert_eq!(pva.key().to_string(), format!("{}, pvAccess", ca.key()));
    }

    #[test]
    fn a_result_file_with_another_schema_is_rejected_by_name() {
        let refused = ResultFile::parse(r#"{"schema":"fodo-lab/1","rows":"elsewhere"}"#).unwrap_err();

        assert_eq!(refused.to_string(), r#"unsupported schema "fodo-lab/1", expected "fodo-lab/4": measure again"#);
    }

    #[test]
    fn a_measured_row_without_samples_is_rejected() {
        let mut file = file();
        file.rows[0].samples.clear();

        let refused = ResultFile::parse(&file.text().unwrap()).unwrap_err();

        assert!(matches!(refused, ResultFileError::Row(_)), "{refused}");
        assert!(refused.to_string().contains("Q18 n=1000, fodo with soft-ioc, two cores, distinct"), "{refused}");
    }

    #[test]
    fn total_and_per_operation_samples_are_converted_to_each_other() {
        let per_operation = row();
        let mut total = ResultRow { per: SampleUnit::Total, samples: vec![1e6, 1.1e6, 1.2e6], ..row() };
        total.summarize(1);

        assert_eq!((per_operation.median_per_operation(), per_operation.total_ns()), (Some(1000.3), Some(1_000_300.0)));
        assert_eq!((total.median_per_operation(), total.total_ns()), (Some(1100.0), Some(1.1e6)));
    }

    #[test]
    fn the_throughput_is_computed_in_megabytes_per_second() {
        let arrays = ResultRow { bytes: Some(40_000_000), samples: vec![40e6], median: Some(40e6), ..row() };

        assert_eq!(arrays.megabytes_per_s(), Some(1000.0));
        assert_eq!(row().to_floor(), Some(2.0));
    }
}
