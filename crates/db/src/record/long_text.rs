//! Long strings: VAL of lsi, lso and printf, with room for SIZV bytes.

use fodo_data::{Kind, Scalar, Text, Value};

use crate::link::{Constant, Link};
use crate::record::Record;
use crate::step::{Broken, Step};

/// Bytes of a text on its way through a link, as EPICS has its strings.
const LINK_TEXT_BYTES_MAX: usize = 39;
/// What SIZV is at least, as in Base.
pub(crate) const SIZE_MIN: u16 = 16;

/// The start of a text that fits `size` bytes with its NUL.
pub(crate) fn fitting(text: &Text, size: usize) -> Text {
    match text.as_bytes().get(..size.saturating_sub(1)) {
        Some(start) if start.len() < text.len() => Text::from_bytes(start),
        _ => text.clone(),
    }
}

/// LEN: bytes with the NUL.
pub(crate) fn length(text: &Text) -> u32 {
    text.len() as u32 + 1
}

/// The text of a constant link. A plain number is none, as in Base.
pub(crate) fn constant(link: &Link) -> Option<Text> {
    match link.constant()? {
        Constant::One(Scalar::Text(text)) => Some(text.clone()),
        Constant::One(_) => Some(Text::EMPTY),
        Constant::Many(scalars) => scalars.first().map(|scalar| scalar.to_text(None)),
    }
}

/// Reads a text: whole from characters, else what an EPICS string holds. `Ok(None)`: the link is constant or not there.
pub(crate) fn fetch<R: Record>(
    step: &mut Step<'_, '_, R>,
    name: &'static str,
    link: impl Fn(&R) -> &Link + Copy,
) -> Result<Option<Text>, Broken> {
    let kind = match step.kind_at(link) {
        Some(Kind::I8 | Kind::U8) => Kind::U8,
        Some(_) => Kind::Text,
        None => return Ok(None),
    };
    Ok(step.fetch_array(name, link, kind)?.as_ref().and_then(of))
}

/// What was read as characters or text. Whatever the last character is, it counts as the NUL, as in Base.
fn of(value: &Value) -> Option<Text> {
    match (value.long_text(), value.first()) {
        (Some(text), _) => Some(fitting(&text, value.len())),
        (None, Some(Scalar::Text(text))) => Some(fitting(&text, LINK_TEXT_BYTES_MAX + 1)),
        (None, _) => None,
    }
}

/// A text as what a link leads to takes it: characters with their NUL, or what an EPICS string holds. `None`: the link
/// leads nowhere, and Base says nothing of it.
pub(crate) fn suited(value: Value, to: Option<Kind>) -> Option<Value> {
    let text = match value.first() {
        Some(Scalar::Text(text)) => text,
        _ => Text::EMPTY,
    };
    match to? {
        Kind::I8 | Kind::U8 if value.is_empty() => Some(value),
        Kind::I8 | Kind::U8 => {
            let mut bytes = text.as_bytes().to_vec();
            bytes.push(0);
            Some(bytes.into())
        }
        _ => Some(fitting(&text, LINK_TEXT_BYTES_MAX + 1).into()),
    }
}
