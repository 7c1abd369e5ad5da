//! The input of the calls of servers and IOCs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fodo_ioc::ProgramValue;
use fodo_net::{Alarm, Limits, Meta, NodeValue, Reading, Severity, Status, Text, TimeStamp, Value};

use super::ioc::{BuildStep, IocSpec, RecordSpec};
use crate::codec::{InputReader, InvalidInput};

/// The body of a reading; without a time it has the present one.
pub fn reading(input: &mut InputReader<'_>) -> Result<Reading, InvalidInput> {
    let alarm = alarm(input)?;
    let time = time(input)?.unwrap_or_else(|| std::time::SystemTime::now().into());
    let user_tag = input.i32()?;
    let message = message(input)?;
    let value = input.value()?;
    let meta = if input.u8()? == 0 { None } else { Some(Arc::new(meta(input)?)) };
    Ok(Reading { value, alarm, time, user_tag, message, meta })
}

fn alarm(input: &mut InputReader<'_>) -> Result<Alarm, InvalidInput> {
    let severity = Severity::from_code(u16::from(input.u8()?));
    Ok(Alarm { severity, status: Status(input.u16()?) })
}

/// `None`: the present time.
fn time(input: &mut InputReader<'_>) -> Result<Option<TimeStamp>, InvalidInput> {
    let (unix_s, nanos) = (input.i64()?, input.u32()?);
    Ok((unix_s != i64::MIN).then_some(TimeStamp { unix_s, nanos }))
}

fn message(input: &mut InputReader<'_>) -> Result<Option<Arc<Text>>, InvalidInput> {
    let text = input.text()?;
    Ok((!text.is_empty()).then(|| Arc::new(Text::from(&*text))))
}

fn meta(input: &mut InputReader<'_>) -> Result<Meta, InvalidInput> {
    input.u16()?;
    let units = input.text()?.as_str().into();
    let precision = input.u16()? as i16;
    let [display, alarm, warning, control] = [limits(input)?, limits(input)?, limits(input)?, limits(input)?];
    let description = input.text()?.as_str().into();
    input.u8()?;
    let labels = texts(input)?.iter().map(|label| Text::from(label.as_str())).collect();
    Ok(Meta { units, precision, display, alarm, warning, control, description, labels, ..Meta::default() })
}

fn limits(input: &mut InputReader<'_>) -> Result<Limits, InvalidInput> {
    Ok(Limits { low: input.f64()?, high: input.f64()? })
}

/// `None` for a value that is empty.
fn optional_value(input: &mut InputReader<'_>) -> Result<Option<Value>, InvalidInput> {
    match input.optional_node()? {
        None => Ok(None),
        Some(NodeValue::Value(value)) => Ok(Some(value)),
        Some(_) => Err(InvalidInput::new("the value must be a number, a text, or an array of these")),
    }
}

pub fn texts(input: &mut InputReader<'_>) -> Result<Vec<String>, InvalidInput> {
    let n = input.count(4)?;
    (0..n).map(|_| input.text()).collect()
}

/// Names with their texts.
pub fn pairs(input: &mut InputReader<'_>) -> Result<Vec<(String, String)>, InvalidInput> {
    let n = input.count(8)?;
    (0..n).map(|_| Ok((input.text()?, input.text()?))).collect()
}

/// The fields of a change, with their paths.
pub fn fields(input: &mut InputReader<'_>) -> Result<Vec<(String, NodeValue)>, InvalidInput> {
    let n = input.count(5)?;
    (0..n).map(|_| Ok((input.text()?, input.node()?))).collect()
}

/// What a record is set to.
pub fn program_value(input: &mut InputReader<'_>) -> Result<ProgramValue, InvalidInput> {
    const HAS_ALARM: u8 = 2;
    const HAS_MESSAGE: u8 = 8;

    let parts = input.u8()?;
    let mut set = optional_value(input)?.map_or_else(ProgramValue::unchanged, ProgramValue::new);
    let alarm = alarm(input)?;
    if parts & HAS_ALARM != 0 {
        set = set.with_alarm(alarm.severity, alarm.status);
    }
    if let Some(time) = time(input)? {
        set = set.at(time);
    }
    let message = input.text()?;
    Ok(if parts & HAS_MESSAGE != 0 { set.with_message(message.as_str()) } else { set })
}

/// What an IOC is started from.
pub fn ioc_spec(input: &mut InputReader<'_>) -> Result<IocSpec, InvalidInput> {
    let is_isolated = input.u8()? != 0;
    let settings: HashMap<String, String> = pairs(input)?.into_iter().collect();
    let some = |text: String| (!text.is_empty()).then_some(text);
    let (access, access_macros) = (some(input.text()?), input.text()?);
    let statistics = some(input.text()?);
    let (folder, period) = (some(input.text()?), Duration::from_nanos(input.i64()?.unsigned_abs()));
    let n = input.count(5)?;
    let steps = (0..n).map(|_| build_step(input)).collect::<Result<_, _>>()?;
    Ok(IocSpec {
        is_isolated,
        settings,
        access: access.map(|path| (path.into(), access_macros)),
        statistics,
        saved: folder.map(|folder| (folder.into(), period)),
        steps,
        outputs: texts(input)?,
    })
}

fn build_step(input: &mut InputReader<'_>) -> Result<BuildStep, InvalidInput> {
    Ok(match input.u8()? {
        0 => BuildStep::File { path: input.text()?.into(), macros: input.text()? },
        1 => BuildStep::Text { text: input.text()?, macros: input.text()? },
        _ => BuildStep::Record(RecordSpec {
            record_type: input.text()?,
            name: input.text()?,
            fields: pairs(input)?,
            infos: pairs(input)?,
            aliases: texts(input)?,
            initial: optional_value(input)?,
        }),
    })
}
