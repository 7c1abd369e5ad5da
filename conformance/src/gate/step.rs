//! The steps that a scenario can do on both servers.

use fodo_ca::dbr::DbrType;
use fodo_data::{Kind, Value};

use super::raw::RequestMethod;
use crate::TestFailure;

/// The acknowledgement field to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgeStep {
    /// ACKT: whether alarms that have cleared by themselves must still be acknowledged.
    Transient,
    /// ACKS: up to which severity alarms are acknowledged.
    Severity,
}

/// One step. Names are those of records and fields, without the prefix.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the field names are self-explanatory")]
pub enum GateStep {
    /// Compares the events of a field from now on, for each of the four masks.
    Watch(String),
    /// Writes, and waits until processing has ended.
    Put(Argument),
    /// Writes, and does not wait.
    Write(Argument),
    /// Reads as this kind; the text is the number of elements, by default all.
    Get(Argument),
    /// Requests a value as any DBR type, by a read or by the first update of a subscription; a count of 0 requests all
    /// elements.
    Request { pv: String, way: RequestMethod, dbr: DbrType, count: u32 },
    /// Acknowledges alarms: ACKT or ACKS, and the number to write.
    Acknowledge(String, AcknowledgeStep, u16),
    /// Waits, for both servers at once.
    Wait(f64),
    /// Waits until no record is active on either server. The writes before it follow each other closely, and are compared
    /// together.
    WaitIdle,
}

/// The value of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The record or field.
    pub pv: String,
    /// The kind on the wire.
    pub kind: Kind,
    /// One text, or numbers separated by blanks.
    pub text: String,
}

/// The names of kinds in scenario files.
const KINDS: [(&str, Kind); 7] = [
    ("string", Kind::Text),
    ("short", Kind::I16),
    ("float", Kind::F32),
    ("enum", Kind::Enum),
    ("char", Kind::U8),
    ("long", Kind::I32),
    ("double", Kind::F64),
];

impl GateStep {
    /// Parses `put PV VALUE`, `put PV as KIND VALUE`, the same with `write`, `process RECORD`, `get PV as KIND
    /// [COUNT]`, `read PV DBR COUNT`, `subscribe PV DBR COUNT`, `watch PV`, `ackt RECORD NUMBER`, `acks RECORD NUMBER`
    /// `wait SECONDS` or `wait idle`.
    pub fn parse(line: &str) -> Result<GateStep, TestFailure> {
        let unknown = || format!("unknown step \"{line}\"");
        let (verb, rest) = line.split_once(' ').ok_or_else(unknown)?;
        let (pv, argument) = rest.split_once(' ').unwrap_or((rest, ""));
        let (kind, text) = typed(argument).unwrap_or((Kind::Text, argument));
        let argument = Argument { pv: pv.to_string(), kind, text: text.to_string() };
        match verb {
            "watch" => Ok(GateStep::Watch(argument.pv)),
            "put" => Ok(GateStep::Put(argument)),
            "write" => Ok(GateStep::Write(argument)),
            "process" => Ok(GateStep::Put(Argument { pv: format!("{pv}.PROC"), kind: Kind::Text, text: "1".into() })),
            "get" => Ok(GateStep::Get(argument)),
            "read" | "subscribe" => {
                let way = if verb == "read" { RequestMethod::Read } else { RequestMethod::Subscribe };
                let (dbr, count) = argument.text.split_once(' ').ok_or_else(unknown)?;
                let dbr = DbrType(dbr.parse().map_err(|_| unknown())?);
                let count = count.parse().map_err(|_| unknown())?;
                Ok(GateStep::Request { pv: argument.pv, way, dbr, count })
            }
            "ackt" | "acks" => {
                let which = if verb == "ackt" { AcknowledgeStep::Transient } else { AcknowledgeStep::Severity };
                Ok(GateStep::Acknowledge(argument.pv, which, argument.text.parse().map_err(|_| unknown())?))
            }
            "wait" if rest == "idle" => Ok(GateStep::WaitIdle),
            "wait" => Ok(GateStep::Wait(rest.parse().map_err(|_| unknown())?)),
            _ => Err(unknown()),
        }
    }

    /// The line that [`GateStep::parse`] parses.
    pub fn text(&self) -> String {
        let written = |verb: &str, Argument { pv, kind, text }: &Argument| match kind {
            Kind::Text => format!("{verb} {pv} {text}"),
            kind => {
                let word = KINDS.iter().find(|(_, of)| of == kind).map_or("string", |(word, _)| word);
                format!("{verb} {pv} as {word} {text}")
            }
        };
        match self {
            GateStep::Watch(pv) => format!("watch {pv}"),
            GateStep::Put(argument) => written("put", argument),
            GateStep::Write(argument) => written("write", argument),
            GateStep::Get(argument) => written("get", argument),
            GateStep::Request { pv, way: RequestMethod::Read, dbr, count } => format!("read {pv} {} {count}", dbr.0),
            GateStep::Request { pv, way: RequestMethod::Subscribe, dbr, count } => {
                format!("subscribe {pv} {} {count}", dbr.0)
            }
            GateStep::Acknowledge(pv, AcknowledgeStep::Transient, number) => format!("ackt {pv} {number}"),
            GateStep::Acknowledge(pv, AcknowledgeStep::Severity, number) => format!("acks {pv} {number}"),
            GateStep::Wait(seconds) => format!("wait {seconds}"),
            GateStep::WaitIdle => "wait idle".into(),
        }
    }
}

/// `KIND` and the rest of `as KIND REST`.
fn typed(argument: &str) -> Option<(Kind, &str)> {
    let (word, value) = argument.strip_prefix("as ")?.split_once(' ').unwrap_or((argument.strip_prefix("as ")?, ""));
    KINDS.iter().find(|(of, _)| *of == word).map(|(_, kind)| (*kind, value))
}

/// The value to send: one text, or numbers separated by blanks.
pub fn value_of(kind: Kind, text: &str) -> Result<Value, TestFailure> {
    if kind == Kind::Text {
        return Ok(Value::from(text));
    }
    let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    let numbers = numbers.map_err(|_| format!("\"{text}\" is not a list of numbers"))?;
    let array = Value::from(numbers).to_kind(kind, None).map_err(|error| error.to_string())?;
    Ok(array.first().filter(|_| array.len() == 1).map_or(array, Value::Scalar))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_round_trips_through_its_text() {
        for line in [
            "watch r",
            "put r.A 1 2",
            "put r as double 1 NaN",
            "write r.OUT x PP",
            "get r as short 3",
            "read r.DESC 38 0",
            "subscribe r 24 2",
            "acks r 2",
            "wait 0.5",
            "wait idle",
        ] {
            assert_eq!(GateStep::parse(line).map(|step| step.text()), Ok(line.to_string()));
        }
        assert!(GateStep::parse("shout r").is_err());
    }
}
