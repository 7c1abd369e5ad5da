//! Rows of a result from the answers of the client's process.

use super::QuestionPlan;
use super::point::{CluPoint, EndNumbers};
use super::subscribe::SubscriptionSums;
use super::tally::RequestAccount;
use super::worker::RequestSums;
use crate::driver::DriverFailure;
use crate::histogram;
use crate::load::tally::Latencies;
use crate::load::usage::Usage;
use crate::result::{Ledger, ResultRow, RowVerdict};

/// One repetition: what the client reports, and what the server's process used meanwhile.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRepetition {
    /// The requests.
    pub sums: RequestSums,
    /// The server.
    pub server: Usage,
}

/// The repetitions of a row.
#[derive(Debug, Default)]
pub struct RowRepetitions {
    /// Duration of one of them, in seconds.
    pub seconds: f64,
    /// Duration of the warm-up of one of them, in seconds.
    pub warm_up_s: f64,
    /// All of them.
    pub repetitions: Vec<MeasuredRepetition>,
    /// Why there are no more.
    pub failure: Option<DriverFailure>,
}

/// What a sample of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// Requests that were answered per second.
    Rate,
    /// The median time of a request.
    MedianTime,
    /// The time that 99 % of the requests did not exceed.
    P99,
}

impl SampleKind {
    /// The unit of the samples.
    pub fn unit(self) -> &'static str {
        match self {
            SampleKind::Rate => "requests/s",
            SampleKind::MedianTime | SampleKind::P99 => "ns",
        }
    }

    /// `None` without an answer.
    fn of(self, sums: &RequestSums, seconds: f64) -> Option<f64> {
        let percentile = |expected: f64| {
            let percentiles = Latencies::of_counts(&sums.latencies).percentiles();
            percentiles.into_iter().find(|(per_cent, _)| *per_cent == expected).map(|(_, ns)| ns)
        };
        match self {
            SampleKind::Rate => Some(sums.in_time as f64 / seconds),
            SampleKind::MedianTime => percentile(50.0),
            SampleKind::P99 => percentile(99.0),
        }
        .filter(|_| sums.account.answered > 0)
    }
}

/// The row of all repetitions of a question.
pub fn of_requests(place: &ResultRow, plan: &QuestionPlan, measured: &RowRepetitions) -> ResultRow {
    if measured.repetitions.is_empty() {
        let failure = measured.failure.clone();
        let why =
            failure.unwrap_or(DriverFailure::Unavailable { who: place.client.clone(), why: "no repetition".into() });
        return without_number(place, &why);
    }
    let mut account = RequestAccount::default();
    let (mut counts, mut server, mut client, mut n_requests) = (Vec::new(), 0.0, 0.0, 0);
    for repetition in &measured.repetitions {
        account.add(&repetition.sums.account);
        counts.extend(repetition.sums.latencies.iter().copied());
        server += repetition.server.cpu_s;
        client += repetition.sums.usage.cpu_s;
        n_requests += repetition.sums.account.sent + repetition.sums.n_warm_up;
    }
    let n_repetitions = measured.repetitions.len() as f64;
    let (total_s, with_warm_up_s) =
        (measured.seconds * n_repetitions, (measured.seconds + measured.warm_up_s) * n_repetitions);
    let per_request = |cpu_s: f64| cpu_s * 1e6 / n_requests.max(1) as f64;
    let in_time: u64 = measured.repetitions.iter().map(|repetition| repetition.sums.in_time).sum();
    let late_max_ns = measured.repetitions.iter().map(|repetition| repetition.sums.late_max_ns).max();
    let point = CluPoint {
        seconds: measured.seconds,
        unexplained: account.unexplained(),
        account: Some(account),
        cpu_us: Some(EndNumbers { server: per_request(server), client: per_request(client) }),
        cores: EndNumbers { server: server / with_warm_up_s, client: client / with_warm_up_s },
        answered_hz: Some(in_time as f64 / total_s),
        late_max_ms: late_max_ns
            .filter(|_| place.clu.as_ref().is_some_and(|point| point.offered_hz.is_some()))
            .map(|ns| ns as f64 / 1e6),
        offered_hz: place.clu.as_ref().and_then(|point| point.offered_hz),
    };
    let samples: Vec<f64> = measured
        .repetitions
        .iter()
        .filter_map(|repetition| plan.sample.of(&repetition.sums, measured.seconds))
        .collect();
    let why = fault(&account, samples.is_empty()).or_else(|| measured.failure.as_ref().map(ToString::to_string));
    let mut row = ResultRow {
        unit: plan.sample.unit().into(),
        samples,
        n_operations: account.answered,
        percentiles: Latencies::of_counts(&counts).percentiles(),
        histogram: histogram::compact(counts.iter().copied()),
        verdict: if why.is_some() { RowVerdict::Failed } else { RowVerdict::Measured },
        why,
        clu: Some(point),
        ..place.clone()
    };
    row.summarize(place.point);
    row
}

/// What fails a row. A timeout does not: it is one of the numbers.
fn fault(account: &RequestAccount, is_empty: bool) -> Option<String> {
    let mut faults = Vec::new();
    if account.unexplained() != 0 {
        faults.push(format!("{} requests unexplained", account.unexplained()));
    }
    for (n, what) in [(account.wrong, "wrong answers"), (account.refused, "requests refused")] {
        if n > 0 {
            faults.push(format!("{n} {what}"));
        }
    }
    if is_empty {
        faults.push("no request was answered".into());
    }
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// The row of the subscriptions.
pub fn of_subscriptions(place: &ResultRow, sums: &SubscriptionSums, server: Usage) -> ResultRow {
    let received = &sums.sums;
    let delivered = received.received - received.duplicates - received.out_of_order - received.wrong;
    let ledger = Ledger {
        produced: sums.produced,
        received: received.received + sums.merged,
        merged_client: sums.merged,
        delivered,
        unexplained: sums.produced as i64 - (delivered + sums.merged) as i64,
        duplicates: received.duplicates,
        out_of_order: received.out_of_order,
        longest_gap_ms: received.longest_gap_ms,
        ..Ledger::default()
    };
    let mut faults = Vec::new();
    if ledger.unexplained != 0 {
        faults.push(format!("{} updates unexplained", ledger.unexplained));
    }
    for (n, what) in [(received.out_of_order, "out of order"), (received.wrong, "with different values")] {
        if n > 0 {
            faults.push(format!("{n} {what}"));
        }
    }
    let percentiles = Latencies::of_counts(&sums.latencies).percentiles();
    let median = percentiles.iter().find(|(per_cent, _)| *per_cent == 50.0).map(|(_, ns)| *ns);
    if median.is_none() {
        faults.push("no update was received".into());
    }
    let cores = |cpu_s: f64| cpu_s / sums.seconds.max(f64::MIN_POSITIVE);
    let point = CluPoint {
        seconds: sums.seconds,
        unexplained: ledger.unexplained,
        cores: EndNumbers { server: cores(server.cpu_s), client: cores(sums.usage.cpu_s) },
        ..CluPoint::default()
    };
    let why = (!faults.is_empty()).then(|| faults.join(", "));
    let mut row = ResultRow {
        unit: "ns".into(),
        samples: median.into_iter().collect(),
        n_operations: delivered,
        percentiles,
        histogram: histogram::compact(sums.latencies.iter().copied()),
        verdict: if why.is_some() { RowVerdict::Failed } else { RowVerdict::Measured },
        why,
        ledger: Some(ledger),
        clu: Some(point),
        ..place.clone()
    };
    row.summarize(place.point);
    row
}

/// The row of a measurement without a number.
pub fn without_number(place: &ResultRow, failure: &DriverFailure) -> ResultRow {
    let verdict = match failure {
        DriverFailure::Unavailable { .. } => RowVerdict::NotRun,
        DriverFailure::Silent { .. } => RowVerdict::Capped,
        _ => RowVerdict::Failed,
    };
    ResultRow { verdict, why: Some(failure.to_string()), ..place.clone() }
}

/// Adds the floor to each row: with an echo the raw one, with a CLU the raw one, or the one that encrypts if the client is
/// only a generator, since a CLU encrypts as well.
pub fn add_floors(rows: &mut [ResultRow]) {
    let medians: Vec<(String, String, String, f64)> = rows
        .iter()
        .filter(|row| row.is_measured())
        .filter_map(|row| Some((row.question.clone(), row.client.clone(), row.server.clone(), row.median?)))
        .collect();
    for row in rows.iter_mut() {
        let (client, server) = match (row.client.as_str(), row.server.as_str()) {
            (_, "raw") => continue,
            ("generator", "aes") => ("generator", "raw"),
            ("generator", _) => ("generator", "aes"),
            _ => ("raw", "raw"),
        };
        let is_its = |known: &&(String, String, String, f64)| {
            (known.0.as_str(), known.1.as_str(), known.2.as_str()) == (row.question.as_str(), client, server)
        };
        row.floor = medians.iter().find(is_its).map(|known| known.3);
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan_of;
    use super::*;

    fn place(question: &str, client: &str, server: &str) -> ResultRow {
        ResultRow { question: question.into(), client: client.into(), server: server.into(), ..ResultRow::default() }
    }

    fn repetition(answered: u64, timed_out: u64) -> MeasuredRepetition {
        let account = RequestAccount { sent: answered + timed_out, answered, timed_out, ..RequestAccount::default() };
        let (usage, n_warm_up) = (Usage { cpu_s: 0.5, ..Usage::default() }, 1000 - answered - timed_out);
        let latencies = if answered > 0 { vec![(40_000, answered)] } else { Vec::new() };
        let sums = RequestSums { account, in_time: answered, n_warm_up, latencies, usage, late_max_ns: 0 };
        MeasuredRepetition { sums, server: Usage { cpu_s: 0.25, ..Usage::default() } }
    }

    #[test]
    fn a_row_has_the_rate_of_each_repetition_and_the_account_of_all() {
        let measured = RowRepetitions {
            seconds: 2.0,
            warm_up_s: 0.5,
            repetitions: vec![repetition(800, 0), repetition(900, 1), repetition(700, 0)],
            failure: None,
        };

        let row = of_requests(&place("C1", "fodo", "fodo"), &plan_of("C1").unwrap(), &measured);

        let point = row.clu.clone().unwrap();
        assert_eq!(
            (row.verdict, row.samples.clone(), row.median),
            (RowVerdict::Measured, vec![400.0, 450.0, 350.0], Some(400.0))
        );
        assert_eq!(
            point.account.map(|account| (account.sent, account.answered, account.timed_out)),
            Some((2401, 2400, 1))
        );
        assert_eq!((point.unexplained, point.answered_hz), (0, Some(400.0)));
        // 1.5 s and 0.75 s of CPU time for 3000 requests, with those of the warm-up.
        assert_eq!(point.cpu_us, Some(EndNumbers { server: 250.0, client: 500.0 }));
        assert_eq!(
            row.percentile(99.9),
            Some(40_000.0).map(|ns: f64| Latencies::of_counts(&[(ns as u64, 1)]).median().unwrap())
        );
    }

    #[test]
    fn unexplained_and_wrong_requests_fail_a_row_and_timeouts_do_not() {
        let with = |change: fn(&mut RequestAccount)| {
            let mut repetition = repetition(900, 5);
            change(&mut repetition.sums.account);
            let measured =
                RowRepetitions { seconds: 1.0, warm_up_s: 0.0, repetitions: vec![repetition], failure: None };
            of_requests(&place("C2", "fodo", "fodo"), &plan_of("C2").unwrap(), &measured)
        };

        let (right, lost) = (with(|_| ()), with(|account| account.sent += 2));
        let wrong = with(|account| (account.wrong, account.sent) = (3, account.sent + 3));
        let none = RowRepetitions { seconds: 1.0, warm_up_s: 0.0, repetitions: vec![repetition(0, 9)], failure: None };
        let none = of_requests(&place("C3", "fodo", "fodo"), &plan_of("C3").unwrap(), &none);

        assert_eq!((right.verdict, right.why), (RowVerdict::Measured, None));
        assert_eq!((lost.verdict, lost.why.as_deref()), (RowVerdict::Failed, Some("2 requests unexplained")));
        assert_eq!((wrong.verdict, wrong.why.as_deref()), (RowVerdict::Failed, Some("3 wrong answers")));
        assert_eq!((none.verdict, none.why.as_deref()), (RowVerdict::Failed, Some("no request was answered")));
    }

    #[test]
    fn a_missing_or_torn_update_fails_the_row_of_the_subscriptions() {
        let sums = |received, wrong, duplicates| SubscriptionSums {
            produced: 100,
            sums: crate::load::tally::Sums { received, wrong, duplicates, ..Default::default() },
            merged: 0,
            seconds: 4.0,
            latencies: vec![(1_000_000, 99)],
            usage: Usage { cpu_s: 2.0, ..Usage::default() },
        };
        let row = |sums: &SubscriptionSums| {
            of_subscriptions(&place("C6", "fodo", "fodo"), sums, Usage { cpu_s: 0.4, ..Usage::default() })
        };

        let (right, missing, torn) = (row(&sums(103, 0, 3)), row(&sums(98, 0, 0)), row(&sums(101, 1, 0)));

        assert_eq!(
            (right.verdict, right.clu.unwrap().cores),
            (RowVerdict::Measured, EndNumbers { server: 0.1, client: 0.5 })
        );
        assert_eq!((missing.verdict, missing.why.as_deref()), (RowVerdict::Failed, Some("2 updates unexplained")));
        assert_eq!((torn.verdict, torn.why.as_deref()), (RowVerdict::Failed, Some("1 with different values")));
    }

    #[test]
    fn the_floor_of_a_clu_under_a_generator_is_the_echo_that_encrypts() {
        let row = |client: &str, server: &str, rate: f64| {
            let mut row = place("C4", client, server);
            (row.samples, row.verdict, row.unit) = (vec![rate], RowVerdict::Measured, "requests/s".into());
            row.summarize(1);
            row
        };
        let mut rows =
            vec![row("generator", "raw", 200.0), row("generator", "aes", 100.0), row("generator", "fodo", 80.0)];
        let mut others = vec![row("raw", "raw", 50.0), row("aes", "aes", 40.0), row("fodo", "fodo", 30.0)];

        add_floors(&mut rows);
        add_floors(&mut others);

        assert_eq!(rows.iter().map(|row| row.floor).collect::<Vec<_>>(), [None, Some(200.0), Some(100.0)]);
        assert_eq!(others.iter().map(|row| row.floor).collect::<Vec<_>>(), [None, Some(50.0), Some(50.0)]);
    }
}
