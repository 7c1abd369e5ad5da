//! `fodo get`: reads PVs concurrently.

use std::io;

use fodo_net::{Error, Reading};

use super::{context, fail, start_all};
use crate::client::{ClientFlags, Deadline, META, ValueFlags, meta_of};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, DisplayOptions, TableCell};

/// Read PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor` or `x:motor.RBV`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    value: ValueFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo get x:motor.RBV x:motor.STAT
  fodo get --meta x:motor.VAL
  fodo get --json x:wave | jq '.value | length'

All PVs are read concurrently, with one timeout, and printed in the order given. A PV that fails is
reported on stderr; the others are still printed.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let deadline = Deadline::after(arguments.client.timeout);
    let context = match context(outlet)? {
        Ok(context) => context,
        Err(exit) => return Ok(exit),
    };
    let request = arguments.value.request();
    let started = start_all(&context, &arguments.pvs, |channel| (channel.start_get(request), channel.start_get(META)));
    let look = arguments.value.look();
    let mut read = Vec::with_capacity(started.len());
    for started in started {
        read.push(started.and_then(|(_channel, (value, meta))| {
            let reading = deadline.wait(value)?;
            Ok(Reading { meta: meta_of(deadline.wait(meta)), ..reading })
        }));
    }
    print(&arguments.pvs, &read, arguments.client.json, &look, outlet)
}

fn print(
    pvs: &[String],
    read: &[Result<Reading, Error>],
    as_json: bool,
    look: &DisplayOptions,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Exit> {
    let mut exit = Exit::Done;
    let mut rows = Vec::new();
    for (pv, result) in pvs.iter().zip(read) {
        match result {
            Ok(reading) if as_json => {
                writeln!(outlet.out, "{}", json::reading(pv, reading, look))?;
            }
            Ok(reading) => rows.push((pv, reading)),
            Err(error) => exit = exit.and(fail(pv, error, as_json, outlet)?),
        }
    }
    write_table(&rows, look, outlet.out)?;
    Ok(exit)
}

/// Writes the readings in columns, each followed by its metadata if requested.
fn write_table(rows: &[(&String, &Reading)], look: &DisplayOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let cells: Vec<Vec<TableCell<'_>>> = rows
        .iter()
        .map(|(pv, reading)| -> Vec<TableCell<'_>> {
            let (time, alarm) = (look.time(reading), look.alarm(reading));
            vec![Box::new(pv), Box::new(look.of(pv).value(reading)), Box::new(time), Box::new(alarm)]
        })
        .collect();
    let columns = Columns::of(&cells);
    for (row, (_, reading)) in cells.iter().zip(rows) {
        columns.write(row, out)?;
        let Some(meta) = reading.meta.as_deref().filter(|_| look.with_meta) else { continue };
        for (name, value) in look.meta_lines(reading.value.kind(), meta) {
            writeln!(out, "    {name:<10}{value}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_time::Clock;
    use fodo_net::{Alarm, ErrorKind, Meta, Severity, Status, TimeStamp};
    use std::sync::Arc;
    use std::time::Duration;

    fn reading(value: f64, severity: Severity, status: Status) -> Reading {
        Reading {
            value: value.into(),
            alarm: Alarm { severity, status },
            time: TimeStamp { unix_s: 1_800_000_000, nanos: 1_000 },
            meta: Some(Arc::new(Meta { units: "mm".into(), precision: 2, ..Meta::default() })),
        }
    }

    fn printed(as_json: bool) -> (Exit, String, String) {
        let pvs = ["x:a".to_owned(), "x:gone".to_owned(), "x:longer".to_owned()];
        let read = [
            Ok(reading(1.0, Severity::None, Status::NO_ALARM)),
            Err(Error::new("x:gone", ErrorKind::NotFound { after: Duration::from_secs(5) })),
            Ok(reading(-20.0, Severity::Major, Status::LOLO)),
        ];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outlet = OutputStreams { out: &mut out, err: &mut err };

        let exit = print(&pvs, &read, as_json, &DisplayOptions::plain(Clock::utc()), &mut outlet).unwrap();

        (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn get_prints_readings_in_columns_and_failures_to_stderr() {
        let (exit, out, err) = printed(false);

        assert_eq!(
            out,
            "x:a       1.00 mm    2027-01-15 08:00:00.000001 +00:00\n\
             x:longer  -20.00 mm  2027-01-15 08:00:00.000001 +00:00  MAJOR LOLO\n"
        );
        assert!(err.starts_with("fodo: \"x:gone\": no server claimed the name within 5 s"), "{err}");
        assert_eq!(exit, Exit::NotFound);
    }

    #[test]
    fn get_json_has_one_line_per_pv_including_failed_ones() {
        let (_, out, _) = printed(true);

        let pvs: Vec<_> = out.lines().map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(pvs, ["{\"pv\":\"x:a\"", "{\"pv\":\"x:gone\"", "{\"pv\":\"x:longer\""]);
    }
}
