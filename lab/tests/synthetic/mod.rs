//! Synthetic results, for tests of the library and of the pages.

use fastrand::Rng;
use fodo_lab::result::{Ledger, PeerInfo, QuestionAnswer, Resources, ResultFile, ResultRow, RowVerdict};

/// The noise of the repetitions.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    /// 4 %, as on a quiet machine.
    Normal,
    /// 4 %, and one repetition in ten takes 1.5 times as long.
    Outliers,
    /// 4 %, and a tail towards longer times.
    Skewed,
    /// Whole microseconds, so that many repetitions are equal.
    Ties,
}

impl Noise {
    /// All kinds of noise.
    pub const ALL: [Noise; 4] = [Noise::Normal, Noise::Outliers, Noise::Skewed, Noise::Ties];

    fn factor(self, random: &mut Rng) -> f64 {
        let normal = 1.0 + 0.04 * normal(random);
        match self {
            Noise::Normal | Noise::Ties => normal,
            Noise::Outliers if random.f64() < 0.1 => 1.5 * normal,
            Noise::Outliers => normal,
            Noise::Skewed => normal - 0.04 * random.f64().max(1e-9).ln(),
        }
    }
}

/// Approximately normal: the sum of twelve uniform distributions.
fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// A run of ten questions at ten points with a floor, seven repetitions each; in the first `slow_share` of the
/// questions Fodo takes `factor` times as long.
pub fn comparable(seed: u64, noise: Noise, slow_share: f64, factor: f64) -> ResultFile {
    let mut random = Rng::with_seed(seed);
    let mut file = ResultFile::new("quick", "2024-02-29T12:00:00Z");
    for question in 0..10 {
        for point in 1..=10 {
            for (client, server, base_ns) in [("raw", "raw", 11e3), ("fodo", "fodo", 25e3)] {
                let is_slow = client == "fodo" && f64::from(question) < 10.0 * slow_share;
                let base_ns = if is_slow { base_ns * factor } else { base_ns };
                let sample = |random: &mut Rng| {
                    let ns = base_ns * noise.factor(random);
                    if matches!(noise, Noise::Ties) { (ns / 1e3).round() * 1e3 } else { ns }
                };
                let mut row = ResultRow {
                    question: format!("Q{question}"),
                    series: "two cores".into(),
                    variant: "none".into(),
                    point,
                    client: client.into(),
                    server: server.into(),
                    unit: "ns".into(),
                    samples: (0..7).map(|_| sample(&mut random)).collect(),
                    n_operations: 1,
                    verdict: RowVerdict::Measured,
                    ..ResultRow::default()
                };
                // The bootstrap is slow in a simulation, and a comparison only needs the medians.
                row.median = median(&row.samples);
                file.rows.push(row);
            }
        }
    }
    file
}

/// A question of [`whole`]: question, title, variant, points, nanoseconds per operation, bytes.
type Question = (&'static str, &'static str, &'static str, &'static [u64], f64, Option<u64>);

const QUESTIONS: [Question; 9] = [
    ("Q4", "What is the context creation cost?", "none", &[1, 10, 50, 100], 60e3, None),
    ("Q11", "What is the channel creation cost?", "distinct", &[1, 10, 100, 1000, 10_000, 100_000], 900.0, None),
    ("Q14", "What does connecting channels one by one cost?", "equal", &[1, 10, 100, 500], 90e3, None),
    ("Q16", "How long do channels take to connect at once?", "equal", &[1, 10, 100, 1000, 10_000], 4e3, None),
    ("Q16", "How long do channels take to connect at once?", "distinct", &[1, 10, 100, 1000, 10_000], 6e3, None),
    ("Q17", "What does a blocking get cost?", "equal", &[1000], 21e3, None),
    ("Q18", "What do gets cost that are started at once?", "equal", &[1, 10, 100, 1000, 10_000], 1.4e3, None),
    ("Q20", "What do monitors cost until their first update?", "distinct", &[1, 100, 1000], 2e3, None),
    ("Q21", "How fast do large arrays come?", "none", &[10_000, 100_000, 1_000_000, 10_000_000], 40e3, Some(4)),
];

/// Client, server, and ratio to the floor.
const CONTENDERS: [(&str, &str, f64); 9] = [
    ("raw", "raw", 1.0),
    ("fodo", "fodo", 1.6),
    ("fodo", "soft-ioc", 2.1),
    ("libca", "fodo", 2.3),
    ("libca", "soft-ioc", 2.9),
    ("psi-ca", "soft-ioc", 6.0),
    ("aioca", "soft-ioc", 14.0),
    ("pyepics", "soft-ioc", 11.0),
    ("caproto", "soft-ioc", 70.0),
];

/// A run with everything that a page shows: curves, single points, arrays, a load, answers, and rows without a result
/// for each reason. Its names contain characters that a page must escape.
pub fn whole() -> ResultFile {
    let mut random = Rng::with_seed(11);
    let mut file = ResultFile::new("full", "2024-02-29T12:00:00Z");
    file.duration_s = 1234.5;
    file.machine.insert("cpu_model".into(), "A <fast> & \"quiet\" CPU".into());
    file.machine.insert("kernel".into(), "linux x86_64 6.1".into());
    file.machine.insert("fodo_version".into(), "0.1.0".into());
    file.machine.insert("is_optimized".into(), true.into());
    file.settings.insert("repetitions".into(), 7.into());
    for (name, version) in [("fodo", "0.1.0"), ("libca", "7.0.10"), ("psi-ca", "1.3.2"), ("aioca", "2.1")] {
        file.peers.push(PeerInfo { name: name.into(), version: Some(version.into()), ..PeerInfo::default() });
    }
    file.peers.push(PeerInfo { name: "p4p".into(), missing: Some("not <installed>".into()), ..PeerInfo::default() });
    for series in ["two cores", "one core"] {
        for question in &QUESTIONS {
            for contender in &CONTENDERS {
                let rows = question.3.iter().map(|point| number(question, contender, *point, series, &mut random));
                file.rows.extend(rows);
            }
        }
    }
    file.rows.extend(load(&mut random));
    for (question, client, yes) in [("Q1", "fodo", true), ("Q1", "libca", true), ("Q5", "fodo", false)] {
        let (question, client) = (question.into(), client.into());
        file.answers.push(QuestionAnswer { question, client, server: "soft-ioc".into(), yes, words: "seen".into() });
    }
    file
}

fn number(question: &Question, contender: &(&str, &str, f64), point: u64, series: &str, random: &mut Rng) -> ResultRow {
    let (name, title, variant, _, floor_ns, bytes_per_element) = *question;
    let (client, server, factor) = *contender;
    let start_ns = 20.0 * floor_ns / point as f64;
    let base_ns = match bytes_per_element {
        Some(bytes) => floor_ns + (bytes * point) as f64 / 2.0,
        None => floor_ns + start_ns,
    };
    let base_ns = if series == "one core" { 0.8 * base_ns } else { base_ns };
    let ns = base_ns * factor;
    let mut row = ResultRow {
        question: name.into(),
        title: title.into(),
        series: series.into(),
        variant: variant.into(),
        point,
        client: client.into(),
        server: server.into(),
        unit: "ns".into(),
        samples: (0..7).map(|_| ns * Noise::Skewed.factor(random)).collect(),
        n_operations: if bytes_per_element.is_some() { 1 } else { point },
        bytes: bytes_per_element.map(|bytes| bytes * point),
        floor: (client != "raw").then_some(base_ns),
        percentiles: if name == "Q17" { percentiles(ns) } else { Vec::new() },
        verdict: RowVerdict::Measured,
        ..ResultRow::default()
    };
    let (verdict, why) = match (client, name, point) {
        ("caproto", "Q16", 10_000) => (RowVerdict::Capped, "took longer than 60 s"),
        ("pyepics", "Q4", _) => (RowVerdict::NotRun, "has one context <only>"),
        ("aioca", "Q20", 1000) => (RowVerdict::Failed, "received 999 first updates, expected 1000"),
        _ => (RowVerdict::Measured, ""),
    };
    if verdict != RowVerdict::Measured {
        row = ResultRow { verdict, why: Some(why.into()), samples: Vec::new(), percentiles: Vec::new(), ..row };
    }
    summarize(&mut row);
    row
}

fn percentiles(ns: f64) -> Vec<(f64, f64)> {
    [(50.0, 1.0), (90.0, 1.1), (99.0, 1.5), (99.9, 3.0), (99.99, 9.0)].map(|(share, times)| (share, ns * times)).into()
}

fn load(random: &mut Rng) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (client, server, factor) in CONTENDERS.into_iter().filter(|contender| contender.0 != "raw") {
        for point in [1000, 10_000] {
            let ns = 30e3 * factor;
            let mut row = ResultRow {
                question: "L1".into(),
                title: "Do all updates of many monitors come, and when?".into(),
                series: "two cores".into(),
                variant: "none".into(),
                point,
                client: client.into(),
                server: server.into(),
                unit: "ns".into(),
                samples: (0..5).map(|_| ns * Noise::Normal.factor(random)).collect(),
                n_operations: 10 * point,
                percentiles: percentiles(ns),
                verdict: RowVerdict::Measured,
                ledger: Some(Ledger {
                    produced: 10 * point,
                    received: 10 * point,
                    delivered: 10 * point - u64::from(client == "caproto"),
                    unexplained: i64::from(client == "caproto"),
                    longest_gap_ms: 12.5,
                    ..Ledger::default()
                }),
                resources: ["server", "client"].map(|role| resources(role, factor)).to_vec(),
                ..ResultRow::default()
            };
            summarize(&mut row);
            rows.push(row);
        }
    }
    rows
}

/// Without a bootstrap: the interval is the range of the samples.
fn summarize(row: &mut ResultRow) {
    let mut sorted = row.samples.clone();
    sorted.sort_by(f64::total_cmp);
    row.median = median(&sorted);
    (row.low, row.high) = (sorted.first().copied(), sorted.last().copied());
    (row.q1, row.q3) = (sorted.get(sorted.len() / 4).copied(), sorted.get(3 * sorted.len() / 4).copied());
}

fn resources(role: &str, factor: f64) -> Resources {
    Resources {
        role: role.into(),
        cpu_s_per_million: Some(1.5 * factor),
        rss_bytes: Some(30 << 20),
        threads: Some(3),
        ctx_switches: Some(1200),
        packets_sent: Some(40_000),
        bytes_sent: Some(4_000_000),
    }
}
