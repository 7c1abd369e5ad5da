//! The producing end of a load for a server that cannot take our requests: a client of Fodo that puts the values, or
//! that switches on records which count by themselves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fodo_net::{Channel, Context, Operation, Reading, Request};

use super::double::{Misbehavior, Update, UpdateFault};
use super::source::on_schedule;
use super::tally::{self, NumberEncoding};
use super::usage::Usage;
use super::worker::{LoadReply, LoadRequest, converse, name_of};
use crate::limit::BATCH_MAX;

/// Rates of the menu SCAN, with their choices.
const SCANS: [(f64, &str); 7] = [
    (10.0, ".1 second"),
    (5.0, ".2 second"),
    (2.0, ".5 second"),
    (1.0, "1 second"),
    (0.5, "2 second"),
    (0.2, "5 second"),
    (0.1, "10 second"),
];

/// The SCAN choice for a rate; `None` when SCAN does not support it.
pub fn scan_of(rate_hz: f64) -> Option<&'static str> {
    SCANS.iter().find(|(known, _)| *known == rate_hz).map(|(_, words)| *words)
}

/// A database of records whose values encode these numbers.
pub fn database(n_pvs: u32, numbers: NumberEncoding) -> String {
    let record = |pv| match numbers {
        NumberEncoding::Plain => format!("record(calc, \"{}\") {{ field(CALC, \"VAL+1\") }}\n", name_of(pv)),
        NumberEncoding::Checked => {
            format!("record(ao, \"{}\") {{ field(VAL, \"{}\") }}\n", name_of(pv), tally::encode(pv, 0))
        }
    };
    (0..n_pvs).map(record).collect()
}

/// Produces values until the end of its input. A double puts wrong values. `server`: number of the server's process,
/// whose resource usage is reported; `metrics`: where it reports what it has sent and merged.
pub fn produce(
    n_pvs: u32,
    numbers: NumberEncoding,
    double: Option<Misbehavior>,
    server: &str,
    metrics: Option<SocketAddr>,
) -> std::io::Result<()> {
    let context = Context::from_env().map_err(std::io::Error::other)?;
    let mut generator = Generator { channels: Vec::new(), scans: Vec::new(), meddlers: Vec::new(), number: 0 };
    for pv in 0..n_pvs {
        generator.channels.push(context.channel(&name_of(pv)).map_err(std::io::Error::other)?);
        generator.meddlers.push(UpdateFault::new(double, u64::from(pv)));
        if numbers == NumberEncoding::Plain {
            let name = format!("{}.SCAN", name_of(pv));
            generator.scans.push(context.channel(&name).map_err(std::io::Error::other)?);
        }
    }
    converse(|request| match request {
        LoadRequest::Produce { period_ns, n_rounds } => {
            let period = Duration::from_nanos(period_ns);
            let produced = match numbers {
                NumberEncoding::Plain => generator.switch_on(period, n_rounds),
                NumberEncoding::Checked => generator.put(period, n_rounds),
            };
            produced.unwrap_or_else(|why| LoadReply::Failed { why })
        }
        // A server other than ours does not report what it sent and merged.
        LoadRequest::Count {} => match metrics.map_or(Ok((0, 0)), update_counts) {
            Ok((sent, merged)) => LoadReply::Counts { sent, merged, usage: Usage::of_process(server) },
            Err(error) => LoadReply::Failed { why: format!("metrics of the server: {error}") },
        },
        other => LoadReply::Failed { why: format!("a generator does not support {other:?}") },
    })
}

/// The updates that an IOC has sent and merged, from its metrics.
fn update_counts(metrics: SocketAddr) -> std::io::Result<(u64, u64)> {
    let mut stream = TcpStream::connect_timeout(&metrics, BATCH_MAX)?;
    stream.set_read_timeout(Some(BATCH_MAX))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {metrics}\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    counts_in(&page).ok_or_else(|| std::io::Error::other(format!("no number of updates in {page:?}")))
}

fn counts_in(page: &str) -> Option<(u64, u64)> {
    let of = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((of("fodo_updates_sent_total ")?, of("fodo_updates_merged_total ")?))
}

struct Generator {
    channels: Vec<Channel>,
    scans: Vec<Channel>,
    meddlers: Vec<UpdateFault>,
    /// The current number of all PVs.
    number: u64,
}

impl Generator {
    fn put(&mut self, period: Duration, n_rounds: u64) -> Result<LoadReply, String> {
        self.values()?;
        let mut outcome = Ok(());
        let late_max = on_schedule(period, n_rounds, |_| {
            self.number += 1;
            for ((pv, channel), meddler) in (0..).zip(&self.channels).zip(&mut self.meddlers) {
                let update = Update { value: tally::encode(pv, self.number), latency: Duration::ZERO };
                meddler.pass(update, &mut |update| {
                    if let Err(error) = channel.put_unconfirmed_timeout(update.value, BATCH_MAX) {
                        outcome = Err(error.to_string());
                    }
                });
            }
        });
        outcome?;
        // The server handles the requests of a circuit in order, so these gets follow the last puts.
        for (pv, value) in (0..).zip(self.values()?) {
            let expected = tally::encode(pv, self.number);
            if value != expected {
                return Err(format!("{} has the value {value} after a put of {expected}", name_of(pv)));
            }
        }
        let n_posts = n_rounds * self.channels.len() as u64;
        Ok(LoadReply::Produced { n_posts, late_max_ns: late_max.as_nanos() as u64 })
    }

    fn switch_on(&mut self, period: Duration, n_rounds: u64) -> Result<LoadReply, String> {
        let scan = scan_of(1.0 / period.as_secs_f64()).ok_or("SCAN does not support this rate")?;
        let before = self.values()?;
        self.scan(scan)?;
        std::thread::sleep(period * u32::try_from(n_rounds).unwrap_or(u32::MAX));
        self.scan("Passive")?;
        // A record that was due when its SCAN was changed is processed once more.
        std::thread::sleep(period);
        let after = self.values()?;
        let produced: Vec<u64> = before.iter().zip(&after).map(|(before, after)| (after - before) as u64).collect();
        // The count may differ by one, depending on when both puts occurred within a period.
        let n_least = produced.iter().min().copied().unwrap_or(0) + 1;
        let n_short = u32::try_from(n_rounds.saturating_sub(n_least)).unwrap_or(u32::MAX);
        let late_max_ns = (period * n_short).as_nanos() as u64;
        Ok(LoadReply::Produced { n_posts: produced.iter().sum(), late_max_ns })
    }

    fn scan(&self, words: &str) -> Result<(), String> {
        let puts: Vec<Operation<()>> = self.scans.iter().map(|scan| scan.start_put(words)).collect();
        puts.into_iter().try_for_each(|put| put.wait_timeout(BATCH_MAX)).map_err(|error| error.to_string())
    }

    fn values(&self) -> Result<Vec<f64>, String> {
        let gets: Vec<Operation<Reading>> =
            self.channels.iter().map(|channel| channel.start_get(Request::default())).collect();
        let value = |get: Operation<Reading>| {
            let reading = get.wait_timeout(BATCH_MAX).map_err(|error| error.to_string())?;
            reading
                .value
                .first()
                .and_then(|value| value.to_f64().ok())
                .ok_or_else(|| "the value is not a number".to_owned())
        };
        gets.into_iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_records_start_at_number_zero_and_other_records_count() {
        let (checked, plain) = (database(3, NumberEncoding::Checked), database(3, NumberEncoding::Plain));

        assert!(
            checked.ends_with(&format!("record(ao, \"load:000002\") {{ field(VAL, \"{}\") }}\n", tally::encode(2, 0)))
        );
        assert!(plain.starts_with("record(calc, \"load:000000\") { field(CALC, \"VAL+1\") }\n"));
    }

    #[test]
    fn updates_of_an_ioc_are_counted_by_its_metrics() {
        let page = "HTTP/1.1 200 OK\r\n\r\n# TYPE fodo_updates_sent_total counter\nfodo_updates_sent_total 12\n\
                    fodo_updates_merged_total 3\n";

        assert_eq!((counts_in(page), counts_in("fodo_updates_sent_total 12\n")), (Some((12, 3)), None));
    }

    #[test]
    fn a_rate_without_a_scan_choice_returns_none() {
        assert_eq!((scan_of(10.0), scan_of(0.5), scan_of(3.0)), (Some(".1 second"), Some("2 second"), None));
    }
}
