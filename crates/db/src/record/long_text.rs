//! Long strings: VAL of lsi, lso and printf, up to SIZV bytes.

use fodo_data::{Kind, Scalar, Text, Value};

use crate::link::{Constant, Link};
use crate::record::Record;
use crate::step::{Broken, Step};

/// The maximum length in bytes of a text that passes through a link, that of an EPICS string.
const LINK_TEXT_BYTES_MAX: usize = 39;
/// The minimum of SIZV, as in Base.
pub(crate) const SIZE_MIN: u16 = 16;

/// The text, truncated so that it fits into `size` bytes with its NUL.
pub(crate) fn fitting(text: &Text, size: usize) -> Text {
    match text.as_bytes().get(..size.saturating_sub(1)) {
        Some(start) if start.len() < text.len() => Text::from_bytes(start),
        _ => text.clone(),
    }
}

/// LEN: the length in bytes, including the NUL.
pub(crate) fn length(text: &Text) -> u32 {
    text.len() as u32 + 1
}

/// The text of a constant link. A plain number gives an empty text, as in Base.
pub(crate) fn constant(link: &Link) -> Option<Text> {
    match link.constant()? {
        Constant::One(Scalar::Text(text)) => Some(text.clone()),
        Constant::One(_) => Some(Text::EMPTY),
        Constant::Many(scalars) => scalars.first().map(|scalar| scalar.to_text(None)),
    }
}

/// Reads a text: all of it from an array of characters, else up to the length of an EPICS string. `Ok(None)`: the link
/// is constant or has no target.
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

/// Converts characters or a text to a text. The last character counts as the NUL, whatever it is, as in Base.
fn of(value: &Value) -> Option<Text> {
    match (value.long_text(), value.first()) {
        (Some(text), _) => Some(fitting(&text, value.len())),
        (None, Some(Scalar::Text(text))) => Some(fitting(&text, LINK_TEXT_BYTES_MAX + 1)),
        (None, _) => None,
    }
}

/// Converts a text to the kind of the link's target: characters with their NUL, or the length of an EPICS string.
/// `None`: the link has no target, which Base ignores silently.
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
