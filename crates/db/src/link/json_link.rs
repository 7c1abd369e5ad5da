//! JSON links: `{const:..}`, `{state:..}` and `{calc:{..}}`.
//!
//! Source: EPICS Base 7.0.10, lnkConst, lnkState and lnkCalc.

use fodo_data::{Kind, Scalar, Value};
use fodo_lock::Mutex;

use crate::calc::{CompiledExpression, N_ARGS};
use crate::json::{Json, JsonMember};
use crate::link::Constant;
use crate::menu::{MAJOR, MINOR};
use crate::state::States;

/// A link to a state or an expression, not to a constant or a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonLink {
    /// Reads or sets a named state; `!` before the name inverts it.
    State {
        name: String,
        is_inverted: bool,
    },
    Calc(Box<CalcLink>),
}

/// An expression of constants, states and other expressions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CalcLink {
    expression: Option<CompiledExpression>,
    args: Vec<Arg>,
    /// Expressions that raise an alarm when their result is not 0.
    major: Option<CompiledExpression>,
    minor: Option<CompiledExpression>,
    /// The link that receives the result of an output.
    out: Option<JsonLink>,
    memory: Memory,
}

/// The last result, and the arguments, which the expression may assign.
#[derive(Debug, Default)]
struct Memory(Mutex<(f64, [f64; N_ARGS])>);

impl Clone for Memory {
    fn clone(&self) -> Memory {
        Memory(Mutex::new(*self.0.lock()))
    }
}

impl PartialEq for Memory {
    /// Always equal: links are compared by their text, not by their results.
    fn eq(&self, _other: &Memory) -> bool {
        true
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Arg {
    Number(f64),
    Link(JsonLink),
}

/// The alarm that a calc link raises in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkAlarm {
    pub(crate) severity: u16,
    pub(crate) message: &'static str,
}

/// A parsed JSON link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonLinkOrConstant {
    Constant(Constant),
    Link(JsonLink),
}

/// Parses a JSON link, which has exactly one member.
pub(crate) fn parse(json: &Json, is_output: bool) -> Result<JsonLinkOrConstant, String> {
    let Json::Map(entries) = json else { return Err("a JSON link must be a map".into()) };
    let [JsonMember { name, value, .. }] = &entries[..] else {
        return Err("a JSON link needs exactly one member".into());
    };
    match &**name {
        "const" if is_output => Err("an output link cannot be a constant".into()),
        "const" => constant(value)
            .map(JsonLinkOrConstant::Constant)
            .ok_or_else(|| "const takes only numbers or only texts".into()),
        "state" => state(value).map(JsonLinkOrConstant::Link).ok_or_else(|| "state must be the name of a state".into()),
        "calc" => calc(value, is_output).map(|calc| JsonLinkOrConstant::Link(JsonLink::Calc(Box::new(calc)))),
        "pva" => Err("a pva link cannot be part of a calc link".into()),
        _ => Err(format!("unknown JSON link \"{name}\"; known are const, state, calc and pva")),
    }
}

/// A number, a text, or a list of either.
pub(crate) fn constant(json: &Json) -> Option<Constant> {
    let Json::List(elements) = json else { return scalar(json).map(Constant::One) };
    let scalars = elements.iter().map(scalar).collect::<Option<Vec<Scalar>>>()?;
    let has = |kind| scalars.iter().any(|scalar| scalar.kind() == kind);
    match (has(Kind::Text), has(Kind::F64), has(Kind::I64)) {
        (true, false, false) | (false, _, false) | (false, false, true) => Some(Constant::Many(scalars)),
        (false, true, true) => {
            let real = |scalar: &Scalar| scalar.to_f64().ok().map(Scalar::F64);
            scalars.iter().map(real).collect::<Option<Vec<Scalar>>>().map(Constant::Many)
        }
        // Numbers and texts in one list.
        (true, ..) => None,
    }
}

/// The elements of a list of numbers and texts.
pub(crate) fn scalars(json: &Json) -> Option<Vec<Scalar>> {
    let Json::List(elements) = json else { return None };
    // Unlike `{const:[true]}`, this list has no booleans, as in Base.
    elements.iter().map(|element| scalar(element).filter(|_| !matches!(element, Json::Bool(_)))).collect()
}

/// A number or a text.
pub(crate) fn scalar(json: &Json) -> Option<Scalar> {
    match json {
        Json::Whole(number) => Some(Scalar::I64(*number)),
        Json::Bool(is_set) => Some(Scalar::I64(i64::from(*is_set))),
        Json::Real(number) => Some(Scalar::F64(*number)),
        Json::Text(text) => Some(Scalar::Text(text.as_str().into())),
        Json::Null | Json::List(_) | Json::Map(_) => None,
    }
}

fn state(json: &Json) -> Option<JsonLink> {
    let Json::Text(text) = json else { return None };
    let (name, is_inverted) = match text.strip_prefix('!') {
        Some(name) if !name.is_empty() => (name, true),
        _ => (text.as_str(), false),
    };
    Some(JsonLink::State { name: name.to_owned(), is_inverted })
}

fn calc(json: &Json, is_output: bool) -> Result<CalcLink, String> {
    let Json::Map(entries) = json else { return Err("calc must be a map".into()) };
    let mut calc = CalcLink::default();
    for JsonMember { name, value, .. } in entries {
        match (&**name, value) {
            ("expr", Json::Text(text)) => calc.expression = Some(program(name, text)?),
            ("major", Json::Text(text)) => calc.major = Some(program(name, text)?),
            ("minor", Json::Text(text)) => calc.minor = Some(program(name, text)?),
            ("args", Json::List(args)) => calc.args = args.iter().map(arg).collect::<Result<_, _>>()?,
            ("args", single) => calc.args = vec![arg(single)?],
            ("out", map) if is_output => match parse(map, true)? {
                JsonLinkOrConstant::Link(link) => calc.out = Some(link),
                JsonLinkOrConstant::Constant(_) => return Err("out must be a link, not a constant".into()),
            },
            // Ignored: no record reads units or precision from such a link, and its inputs have no time stamp.
            ("units", Json::Text(_)) | ("prec", Json::Whole(_)) => {}
            ("time", Json::Text(input)) if input.len() == 1 => {}
            _ => return Err(format!("calc: \"{name}\" is unknown or has a value of the wrong type")),
        }
    }
    match (is_output, &calc.expression, &calc.out) {
        (false, None, _) => Err("calc needs expr".into()),
        (true, _, None) => Err("calc needs out".into()),
        _ if calc.args.len() > N_ARGS => Err(format!("calc can have at most {N_ARGS} args")),
        _ => {
            for (place, arg) in calc.memory.0.lock().1.iter_mut().zip(&calc.args) {
                *place = if let Arg::Number(number) = arg { *number } else { 0.0 };
            }
            Ok(calc)
        }
    }
}

fn program(name: &str, text: &str) -> Result<CompiledExpression, String> {
    CompiledExpression::compile(text).map_err(|error| format!("{name}: {error}"))
}

fn arg(json: &Json) -> Result<Arg, String> {
    match json {
        Json::Whole(number) => Ok(Arg::Number(*number as f64)),
        Json::Real(number) => Ok(Arg::Number(*number)),
        Json::Map(_) => match parse(json, false)? {
            JsonLinkOrConstant::Link(link) => Ok(Arg::Link(link)),
            JsonLinkOrConstant::Constant(constant) => {
                let number = constant.first(Kind::F64).and_then(|scalar| scalar.to_f64().ok());
                number.map(Arg::Number).ok_or_else(|| "args must be numbers".into())
            }
        },
        _ => Err("args must be numbers or JSON links".into()),
    }
}

impl JsonLink {
    /// Creates the states that the link names.
    pub(crate) fn open(&self, states: &States) {
        match self {
            JsonLink::State { name, .. } => drop(states.create(name)),
            JsonLink::Calc(calc) => {
                let links = calc.args.iter().filter_map(|arg| match arg {
                    Arg::Link(link) => Some(link),
                    Arg::Number(_) => None,
                });
                links.chain(&calc.out).for_each(|link| link.open(states));
            }
        }
    }

    /// The kind of the values that are read.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            JsonLink::State { .. } => Kind::I16,
            JsonLink::Calc(_) => Kind::F64,
        }
    }

    /// Whether the link counts as one that can disconnect, as in Base.
    pub(crate) fn is_volatile(&self) -> bool {
        matches!(self, JsonLink::Calc(_))
    }

    /// Reads the value and the alarm that it raises. No value: the expression has no result.
    pub(crate) fn read(&self, states: &States) -> (Option<Value>, Option<LinkAlarm>) {
        match self {
            JsonLink::State { name, is_inverted } => {
                let is_on = states.create(name).is_on() != *is_inverted;
                (Some(Value::from(i16::from(is_on))), None)
            }
            JsonLink::Calc(calc) => {
                let (value, raises) = calc.run(None, states);
                (value.map(Value::from), raises)
            }
        }
    }

    /// Writes a value. Returns the alarm that this raises; `Err`: the value cannot be written.
    pub(crate) fn write(&self, value: &Value, states: &States) -> Result<Option<LinkAlarm>, ()> {
        let scalar = value.first().ok_or(())?;
        match self {
            JsonLink::State { name, is_inverted } => {
                let is_set = match &scalar {
                    // As in Base, only these two texts are false.
                    Scalar::Text(text) => !matches!(text.as_bytes(), b"" | b"0"),
                    number => number.to_f64().map_err(drop)? != 0.0,
                };
                states.create(name).set(is_set != *is_inverted);
                Ok(None)
            }
            JsonLink::Calc(calc) => {
                let (result, raises) = calc.run(Some(scalar.to_f64().map_err(drop)?), states);
                let (result, out) = (result.ok_or(())?, calc.out.as_ref().ok_or(())?);
                Ok(out.write(&Value::from(result), states)?.or(raises))
            }
        }
    }
}

impl CalcLink {
    /// Computes the result. VAL in the expression is `value`, or else the last result. Without an expression, VAL is
    /// the result.
    fn run(&self, value: Option<f64>, states: &States) -> (Option<f64>, Option<LinkAlarm>) {
        // Read before locking, because an argument may be a calc link with a lock of its own.
        let mut read = [None; N_ARGS];
        for (place, arg) in read.iter_mut().zip(&self.args) {
            if let Arg::Link(link) = arg {
                let number = link.read(states).0.and_then(|value| value.to_f64().ok());
                let Some(number) = number else { return (None, None) };
                *place = Some(number);
            }
        }
        let mut memory = self.memory.0.lock();
        let (last, args) = &mut *memory;
        for (place, number) in args.iter_mut().zip(read) {
            *place = number.unwrap_or(*place);
        }
        *last = value.unwrap_or(*last);
        if let Some(expression) = &self.expression {
            let Some(result) = expression.run(args, *last) else { return (None, None) };
            *last = result;
        }
        let result = *last;
        let mut holds = |program: &Option<CompiledExpression>| {
            let verdict = program.as_ref().map(|program| program.run(args, result));
            verdict.is_some_and(|verdict| verdict.is_some_and(|number| number != 0.0))
        };
        let raises = if holds(&self.major) {
            Some(LinkAlarm { severity: MAJOR, message: "post_major error" })
        } else if holds(&self.minor) {
            Some(LinkAlarm { severity: MINOR, message: "post_minor error" })
        } else {
            None
        };
        (Some(result), raises)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;

    fn link(text: &str, is_output: bool) -> JsonLink {
        match parse(&read(text).unwrap(), is_output) {
            Ok(JsonLinkOrConstant::Link(link)) => link,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_state_link_reads_and_writes_its_state_directly_or_inverted() {
        let states = States::default();
        let (plain, inverted) = (link("{state:'red'}", true), link("{state:'!red'}", true));

        plain.write(&Value::from(2.5), &states).unwrap();
        assert_eq!(plain.read(&states).0, Some(Value::from(1_i16)));
        assert_eq!(inverted.read(&states).0, Some(Value::from(0_i16)));
        inverted.write(&Value::from("yes"), &states).unwrap();
        assert!(!states.create("red").is_on());
    }

    #[test]
    fn a_calc_link_computes_from_constants_states_and_links_and_raises_alarms() {
        let states = States::default();
        let calc = link(
            "{calc:{expr:'A+10*B+100*C',args:[1,{state:'on'},{calc:{expr:'A*A',args:{const:3}}}],major:'VAL>905'}}",
            false,
        );

        assert_eq!(calc.read(&states), (Some(Value::from(901.0)), None));
        states.create("on").set(true);
        let raises = LinkAlarm { severity: 2, message: "post_major error" };
        assert_eq!(calc.read(&states), (Some(Value::from(911.0)), Some(raises)));
    }

    #[test]
    fn a_calc_link_keeps_its_last_result_and_assigned_variables() {
        let states = States::default();
        let count = link("{calc:{expr:'VAL+1'}}", false);
        let sum = link("{calc:{expr:'A:=A+VAL;A',args:[1]}}", false);

        let results = |link: &JsonLink| [(); 3].map(|()| link.read(&states).0.unwrap().to_f64().unwrap());
        assert_eq!(results(&count), [1.0, 2.0, 3.0]);
        assert_eq!(results(&sum), [1.0, 2.0, 4.0]);
    }

    #[test]
    fn a_calc_link_computes_the_value_written_to_its_output() {
        let states = States::default();
        let out = link("{calc:{expr:'VAL>5',out:{state:'high'}}}", true);

        out.write(&Value::from(7.0), &states).unwrap();
        assert!(states.create("high").is_on());
        out.write(&Value::from(3.0), &states).unwrap();
        assert!(!states.create("high").is_on());
    }

    #[test]
    fn an_invalid_json_link_is_reported() {
        let error = |text: &str, is_output| parse(&read(text).unwrap(), is_output).unwrap_err();

        assert_eq!(error("{db:'x'}", false), "unknown JSON link \"db\"; known are const, state, calc and pva");
        assert_eq!(error("{calc:{expr:'A',args:{pva:'x'}}}", false), "a pva link cannot be part of a calc link");
        assert_eq!(error("{const:[1,'a']}", false), "const takes only numbers or only texts");
        assert_eq!(error("{calc:{expr:'A+'}}", false), "expr: a value is missing at character 3");
        assert_eq!(error("{calc:{args:[1]}}", false), "calc needs expr");
        assert_eq!(error("{calc:{expr:'1'}}", true), "calc needs out");
        assert_eq!(error("{const:1}", true), "an output link cannot be a constant");
    }
}
