//! `fodo get`: reads PVs concurrently.

use std::io;

use fodo_net::{Error, Operation, Protocol, PvRequest, Reading, Structure};

use super::{Readout, Started, context_with_clus, fail, received, requested, start_all, structure_instead};
use crate::client::{
    ClientContext, ClientFlags, CluFileFlag, Deadline, META, ProtocolFlag, RequestFlag, ValueFlags, meta_of, with_label,
};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, DisplayOptions, TableCell};
use crate::structure;

/// Read PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor`, `x:motor.RBV` or `pva://x:motor`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    request: RequestFlag,
    #[command(flatten)]
    protocol: ProtocolFlag,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    clu: CluFileFlag,
    #[command(flatten)]
    value: ValueFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo get x:motor.RBV x:motor.STAT
  fodo get --meta x:motor.VAL
  fodo get pva://x:motor
  fodo get --request 'record[process=true]' pva://x:sensor
  fodo get --request 'field(value,alarm)' pva://x:table
  fodo get --clu house.toml clu://house/Bath/PointValue
  fodo get --json x:wave | jq '.value | length'

A PV of pvAccess that is neither a scalar nor an array nor an enum is printed as a tree, and with
--json in the key structure. So are the fields that a pvRequest selects. An NTTable is printed as
columns under its labels; an NTNDArray as its dimensions and attributes, with the minimum, maximum
and mean of its elements. --json prints all elements.

All PVs are read concurrently, with one timeout, and printed in the order given. A PV that fails is
reported on stderr; the others are still printed.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let deadline = Deadline::after(arguments.client.timeout);
    let (pvs, timeout) = (&arguments.pvs, arguments.client.timeout);
    let client = match context_with_clus(arguments.protocol, pvs, &arguments.clu, timeout, outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let read = match &arguments.request.request {
        Some(request) => read_requested(arguments, &client, request, &deadline),
        None => read(arguments, &client, &deadline),
    };
    let look = arguments.value.look();
    print(&arguments.pvs, &read, arguments.client.json, &look, outlet)
}

/// The requests of a PV.
enum ValueRequests {
    /// Of the value, and of its metadata.
    Reading(Operation<Reading>, Operation<Reading>),
    /// Of all fields: one request returns the type, the value and the metadata.
    Whole(Operation<Structure>),
}

fn read(arguments: &Arguments, client: &ClientContext, deadline: &Deadline) -> Vec<Result<Readout, Error>> {
    let request = arguments.value.request();
    let started = start_all(client, &arguments.pvs, |channel, protocol| {
        if protocol == Protocol::Pva && !arguments.value.selects_elements() {
            return ValueRequests::Whole(channel.start_get_structure(PvRequest::default()));
        }
        ValueRequests::Reading(channel.start_get(request), channel.start_get(META))
    });
    let read_one = |(pv, started): (&String, Started<ValueRequests>)| -> Result<Readout, Error> {
        // Dropping the channel closes it, so it is kept until the last reply.
        let (channel, requests) = started?;
        match requests {
            ValueRequests::Whole(getting) => Ok(received(deadline.wait(getting)?)),
            ValueRequests::Reading(value, meta) => match deadline.wait(value) {
                Ok(reading) => {
                    let reading = Reading { meta: meta_of(deadline.wait(meta)), ..reading };
                    Ok(Readout::Reading(with_label(reading, &arguments.value, &channel, deadline)))
                }
                Err(error) => structure_instead(&channel, client.protocol(pv), error, deadline),
            },
        }
    };
    arguments.pvs.iter().zip(started).map(read_one).collect()
}

fn read_requested(
    arguments: &Arguments,
    client: &ClientContext,
    request: &PvRequest,
    deadline: &Deadline,
) -> Vec<Result<Readout, Error>> {
    let started = start_all(client, &arguments.pvs, |channel, _| channel.start_get_structure(request.clone()));
    let read_one = |started: Started<_>| -> Result<Readout, Error> {
        // Dropping the channel closes it, so it is kept until the reply.
        let (_channel, getting) = started?;
        let structure = deadline.wait(getting)?;
        Ok(requested(&structure, structure.changed(), request))
    };
    started.into_iter().map(read_one).collect()
}

fn print(
    pvs: &[String],
    read: &[Result<Readout, Error>],
    as_json: bool,
    look: &DisplayOptions,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Exit> {
    let mut exit = Exit::Done;
    let mut rows = Vec::new();
    for (pv, result) in pvs.iter().zip(read) {
        match result {
            Ok(Readout::Reading(reading)) if as_json => {
                writeln!(outlet.out, "{}", json::reading(pv, reading, look))?;
            }
            Ok(Readout::Structure(structure)) if as_json => {
                writeln!(outlet.out, "{}", json::structure(pv, structure))?;
            }
            Ok(Readout::Reading(reading)) => rows.push((pv, reading)),
            Ok(Readout::Structure(structure)) => {
                // The columns are those of the readings between structures.
                write_table(&std::mem::take(&mut rows), look, outlet.out)?;
                writeln!(outlet.out, "{pv}  {}", structure::type_name(structure.kind()))?;
                outlet.out.write_all(structure::tree(structure, look).as_bytes())?;
            }
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
    use fodo_net::{Alarm, ErrorKind, Meta, Severity, Status, StructureBuilder, TimeStamp};
    use std::sync::Arc;
    use std::time::Duration;

    fn reading(value: f64, severity: Severity, status: Status) -> Reading {
        Reading {
            alarm: Alarm { severity, status },
            time: TimeStamp { unix_s: 1_800_000_000, nanos: 1_000 },
            meta: Some(Arc::new(Meta { units: "mm".into(), precision: 2, ..Meta::default() })),
            ..Reading::bare(value.into())
        }
    }

    fn printed(as_json: bool) -> (Exit, String, String) {
        let pvs = ["x:a".to_owned(), "x:gone".to_owned(), "x:longer".to_owned()];
        let read = [
            Ok(Readout::Reading(reading(1.0, Severity::None, Status::NO_ALARM))),
            Err(Error::new("x:gone", ErrorKind::NotFound { protocol: Protocol::Ca, after: Duration::from_secs(5) })),
            Ok(Readout::Reading(reading(-20.0, Severity::Major, Status::LOLO))),
        ];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outlet = OutputStreams { out: &mut out, err: &mut err };

        let look = DisplayOptions::plain(Clock::utc());
        let exit = print(&pvs, &read, as_json, &look, &mut outlet).unwrap();

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
    #[test]
    fn a_structure_is_printed_as_a_tree_between_the_readings() {
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("n", fodo_net::Kind::I32);
        let structure = Box::new(Structure::new(build.finish().into()));
        let pvs = ["a".to_owned(), "pva://s".to_owned(), "b".to_owned()];
        let number = |value: f64| Ok(Readout::Reading(reading(value, Severity::None, Status::NO_ALARM)));
        let read = [number(1.0), Ok(Readout::Structure(structure)), number(2.0)];
        let texts = [false, true].map(|as_json| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut outlet = OutputStreams { out: &mut out, err: &mut err };
            print(&pvs, &read, as_json, &DisplayOptions::plain(Clock::utc()), &mut outlet).unwrap();
            String::from_utf8(out).unwrap()
        });

        assert!(texts[0].contains("\npva://s  scan_t\n    n  0\nb  2.00 mm"), "{}", texts[0]);
        assert_eq!(
            texts[1].lines().nth(1),
            Some("{\"pv\":\"pva://s\",\"kind\":\"structure\",\"id\":\"scan_t\",\"structure\":{\"n\":0}}")
        );
    }
}
