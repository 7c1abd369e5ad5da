//! Tables for people and JSON for programs.

use std::fmt::Write;

use serde::Serialize;
use serde_json::json;

use crate::floor::{REQUEST_BYTES, SCALAR_REPLY_BYTES};
use crate::peers::Peers;
use crate::placement::Placement;
use crate::runner::{Outcome, Pair, Row, Run};
use crate::scenario::Scenario;
use crate::statistics::{Ratio, Summary, quantile_ns};

/// What a program that reads the JSON checks first.
const SCHEMA: &str = "fodo-lab/1";

/// The numbers of one row.
#[derive(Clone, Copy, Debug, Serialize)]
struct Numbers {
    /// Of the repetitions' medians, nanoseconds.
    ns: Summary,
    /// Of all single times, nanoseconds.
    p99_ns: Option<f64>,
    /// To the floor in the same placement; the floor itself has none.
    to_floor: Option<Ratio>,
}

fn numbers(run: &Run, row: &Row) -> Option<Numbers> {
    if row.outcome != Outcome::Measured {
        return None;
    }
    let seed = run.settings.seed;
    let floor = run.rows.iter().find(|other| {
        (other.scenario, other.n_elements, other.placement) == (row.scenario, row.n_elements, row.placement)
            && other.pair == Pair::FLOOR
            && other.outcome == Outcome::Measured
    });
    Some(Numbers {
        ns: Summary::of(&row.medians_ns, seed)?,
        p99_ns: quantile_ns(&row.latencies_ns, 0.99),
        to_floor: floor
            .filter(|_| row.pair != Pair::FLOOR)
            .and_then(|floor| Ratio::of(&row.medians_ns, &floor.medians_ns, seed)),
    })
}

/// The tables.
pub fn tables(run: &Run) -> String {
    let mut text = head(run);
    let mut notes = Notes::default();
    for placement in run.seats.placements() {
        let mut table = Table::new(&["client", "server", "us", "quartiles", "p99", "x floor", "95 %"], 2);
        for row in rows_of(run, Scenario::ScalarGet, placement) {
            table.row(scalar_cells(run, row, &mut notes));
        }
        let _ = writeln!(
            text,
            "\nQ17  blocking get of one double with time, {} [us]\n     floor: raw socket, {REQUEST_BYTES} bytes \
             there, {SCALAR_REPLY_BYTES} back",
            placement.text()
        );
        text += &table.text();
    }
    for placement in run.seats.placements() {
        let columns = ["elements", "client", "server", "ms", "quartiles", "MB/s", "% of raw", "95 %"];
        let mut table = Table::new(&columns, 3);
        for row in rows_of(run, Scenario::ArrayGet, placement) {
            table.row(array_cells(run, row, &mut notes));
        }
        let _ = writeln!(
            text,
            "\nQ21  get of an array of 32-bit integers, {}\n     raw socket: reads by way of a buffer into fresh \
             memory; \"memory reused\" is the limit of the wire",
            placement.text()
        );
        text += &table.text();
    }
    text + &notes.text() + &foot(run)
}

fn rows_of(run: &Run, scenario: Scenario, placement: Placement) -> impl Iterator<Item = &Row> {
    run.rows.iter().filter(move |row| row.scenario == scenario && row.placement == placement)
}

fn head(run: &Run) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "{}, {} CPUs, {}\nfodo {}{}, {} repetitions, each by a new process, in random order\n",
        machine.cpu_model,
        machine.n_cpus,
        machine.kernel,
        machine.fodo_version,
        machine.git_commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})")),
        run.settings.repetitions,
    );
    if !machine.is_optimized {
        text += "This program was built WITHOUT optimizations: our numbers mean nothing.\n";
    }
    if run.seats.other_cpu.is_none() {
        text += "There is only one CPU, or pinning is not possible: \"two cores\" is not measured.\n";
    }
    if run.seats.are_siblings {
        text += "\"two cores\" are two threads of one core on this machine.\n";
    }
    text
}

fn foot(run: &Run) -> String {
    format!(
        "\nA number is the median of the repetitions' medians; quartiles are of these, p99 is of all single times,\n\
         95 % is the bootstrap interval of the column before it. Loopback; every value was checked. {:.0} s.\n",
        run.elapsed.as_secs_f64()
    )
}

fn names(row: &Row) -> [String; 2] {
    [row.pair.client.text().into(), row.pair.server.text().into()]
}

/// Why a row has no number.
fn why_not(row: &Row) -> String {
    match &row.outcome {
        Outcome::Failed(failure) => format!("FAILED: {failure}"),
        Outcome::NotRun(why) => format!("NOT RUN: {why}"),
        Outcome::Measured => "NOT RUN: no repetition was made".into(),
    }
}

/// The reasons of a run, each told once below the tables; a row holds its number there.
#[derive(Debug, Default)]
struct Notes {
    reasons: Vec<String>,
}

impl Notes {
    fn note(&mut self, row: &Row) -> String {
        let reason = why_not(row);
        let verdict = reason.split(':').next().unwrap_or_default().to_owned();
        let known = self.reasons.iter().position(|known| *known == reason);
        let index = known.unwrap_or_else(|| {
            self.reasons.push(reason);
            self.reasons.len() - 1
        });
        format!("{verdict} [{}]", index + 1)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (index, reason) in self.reasons.iter().enumerate() {
            let _ = writeln!(text, "\n[{}] {reason}", index + 1);
        }
        text
    }
}

fn scalar_cells(run: &Run, row: &Row, notes: &mut Notes) -> Vec<String> {
    let mut cells = names(row).to_vec();
    let Some(Numbers { ns, p99_ns, to_floor }) = numbers(run, row) else {
        cells.push(notes.note(row));
        return cells;
    };
    cells.push(format!("{:.1}", ns.median / 1e3));
    cells.push(format!("{:.1} .. {:.1}", ns.quartile_low / 1e3, ns.quartile_high / 1e3));
    cells.push(p99_ns.map_or(String::new(), |p99_ns| format!("{:.1}", p99_ns / 1e3)));
    cells.push(to_floor.map_or(String::new(), |ratio| format!("{:.2}", ratio.ratio)));
    cells.push(to_floor.map_or(String::new(), |r| format!("{:.2} .. {:.2}", r.interval.0, r.interval.1)));
    cells
}

fn array_cells(run: &Run, row: &Row, notes: &mut Notes) -> Vec<String> {
    let mut cells = vec![row.n_elements.to_string()];
    cells.extend(names(row));
    let Some(Numbers { ns, to_floor, .. }) = numbers(run, row) else {
        cells.push(notes.note(row));
        return cells;
    };
    cells.push(format!("{:.3}", ns.median / 1e6));
    cells.push(format!("{:.3} .. {:.3}", ns.quartile_low / 1e6, ns.quartile_high / 1e6));
    cells.push(format!("{:.0}", megabytes_per_second(row.n_elements, ns.median)));
    cells.push(to_floor.map_or(String::new(), |r| format!("{:.0}", 100.0 / r.ratio)));
    cells.push(
        to_floor.map_or(String::new(), |r| format!("{:.0} .. {:.0}", 100.0 / r.interval.1, 100.0 / r.interval.0)),
    );
    cells
}

/// MB = 10^6 bytes, of the elements alone.
fn megabytes_per_second(n_elements: usize, ns: f64) -> f64 {
    4.0 * n_elements as f64 * 1e3 / ns
}

/// The whole run, with every repetition.
pub fn json(run: &Run, peers: &Peers) -> serde_json::Value {
    let rows: Vec<_> = run.rows.iter().map(|row| row_json(run, row)).collect();
    json!({
        "schema": SCHEMA,
        "suite": "quick",
        "machine": run.machine,
        "seats": run.seats,
        "settings": run.settings,
        "peers": { "epics": match &peers.epics {
            Ok(epics) => json!({ "version": epics.version }),
            Err(why) => json!({ "missing": why }),
        } },
        "elapsed_s": run.elapsed.as_secs_f64(),
        "rows": rows,
    })
}

fn row_json(run: &Run, row: &Row) -> serde_json::Value {
    let numbers = numbers(run, row);
    let (verdict, why) = match &row.outcome {
        Outcome::Measured if numbers.is_some() => ("measured", None),
        Outcome::Failed(_) => ("failed", Some(why_not(row))),
        Outcome::Measured | Outcome::NotRun(_) => ("not_run", Some(why_not(row))),
    };
    let rate = numbers
        .filter(|_| row.scenario == Scenario::ArrayGet)
        .map(|numbers| megabytes_per_second(row.n_elements, numbers.ns.median));
    json!({
        "scenario": row.scenario,
        "n_elements": row.n_elements,
        "placement": row.placement,
        "client": row.pair.client,
        "client_version": row.client_version,
        "server": row.pair.server,
        "verdict": verdict,
        "why": why,
        "n_gets": row.latencies_ns.len(),
        "median_of_each_repetition_ns": row.medians_ns,
        "numbers": numbers,
        "megabytes_per_s": rate,
    })
}

/// Columns as wide as they need to be; names to the left, numbers to the right.
struct Table {
    n_names: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str], n_names: usize) -> Table {
        Table { n_names, rows: vec![columns.iter().map(|column| (*column).to_owned()).collect()] }
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn text(&self) -> String {
        let n_columns = self.rows.first().map_or(0, Vec::len);
        // A row that is cut short explains itself in its last cell, which no column has to hold.
        let whole = || self.rows.iter().filter(|row| row.len() == n_columns);
        let width = |column: usize| {
            whole().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let named = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from("    ");
            for (column, cell) in row.iter().enumerate() {
                let _ = match column < self.n_names {
                    true => write!(line, " {cell:<0$}", named(column)),
                    false => write!(line, "  {cell:>0$}", width(column)),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Client, Failure};
    use crate::machine::Machine;
    use crate::placement::Seats;
    use crate::runner::Settings;
    use crate::server::ServerKind;
    use std::time::Duration;

    fn row(client: Client, server: ServerKind, medians_ns: &[f64], outcome: Outcome) -> Row {
        Row {
            scenario: Scenario::ScalarGet,
            n_elements: 1,
            placement: Placement::OneCore,
            pair: Pair { client, server },
            medians_ns: medians_ns.to_vec(),
            latencies_ns: medians_ns.iter().map(|ns| *ns as u64).collect(),
            client_version: None,
            outcome,
        }
    }

    fn run(rows: Vec<Row>) -> Run {
        Run {
            settings: Settings { repetitions: 5, seed: 1, elements_max: 1, clients: vec![], servers: vec![] },
            machine: Machine::look(),
            seats: Seats { server_cpu: Some(0), other_cpu: None, are_siblings: false },
            rows,
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_number_is_shown_with_its_spread_and_its_ratio_to_the_floor() {
        let floor = row(Client::Raw, ServerKind::Raw, &[10_000.0; 5], Outcome::Measured);
        let ours = row(Client::Fodo, ServerKind::Fodo, &[19e3, 20e3, 20e3, 20e3, 21e3], Outcome::Measured);

        let text = tables(&run(vec![floor, ours]));

        let line = text.lines().find(|line| line.contains("fodo ioc")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, ["fodo", "fodo", "ioc", "20.0", "20.0", "..", "20.0", "21.0", "2.00", "1.90", "..", "2.10"]);
    }

    #[test]
    fn a_failed_row_says_why_and_shows_no_number_even_when_there_were_some() {
        let failure = Failure::WrongCount { n: 9, expected: 10 };
        let row = row(Client::Fodo, ServerKind::Fodo, &[5e3; 5], Outcome::Failed(failure));
        let run = run(vec![row]);

        let text = tables(&run);

        let line = text.lines().find(|line| line.contains("fodo ioc")).unwrap();
        assert!(line.ends_with("FAILED [1]"), "{line}");
        assert!(text.contains("[1] FAILED: 9 elements came, expected 10"), "{text}");
        assert!(run.has_failed());
        assert_eq!(row_json(&run, &run.rows[0])["numbers"], serde_json::Value::Null);
    }

    #[test]
    fn forty_megabytes_in_forty_milliseconds_are_a_thousand_per_second() {
        assert_eq!(megabytes_per_second(10_000_000, 40e6), 1000.0);
    }

    #[test]
    fn the_json_says_its_schema_and_holds_every_repetition() {
        let measured = row(Client::Raw, ServerKind::Raw, &[1.0, 2.0, 3.0], Outcome::Measured);
        let peers = Peers { directory: "/nonexistent".into(), epics: Err("not there".into()) };

        let json = json(&run(vec![measured]), &peers);

        assert_eq!(json["schema"], "fodo-lab/1");
        assert_eq!(json["rows"][0]["median_of_each_repetition_ns"], json!([1.0, 2.0, 3.0]));
        assert_eq!(json["rows"][0]["verdict"], "measured");
        assert_eq!(json["rows"][0]["numbers"]["ns"]["median"], 2.0);
    }
}
