//! Texts: long strings, which are VAL of lsi, lso and printf with up to SIZV bytes, and EPICS strings.

use fodo_data::{EventMask, Kind, STRING_BYTES, STRING_BYTES_MAX, Scalar, Text, Value};

pub(crate) use crate::field::fitting_text as fitting;
use crate::link::{Constant, Link};
use crate::menu::ALWAYS;
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, Step};
use crate::record::{CHANGED, Record, is_changed};

/// The minimum of SIZV, as in Base.
pub(crate) const SIZE_MIN: u16 = 16;

/// The text, truncated to the 39 bytes of an EPICS string.
pub(crate) fn cut(text: Text) -> Text {
    match text.as_bytes().get(..STRING_BYTES_MAX) {
        Some(start) if text.len() > STRING_BYTES_MAX => Text::from_bytes(start),
        _ => text,
    }
}

/// The events that MPST and APST post always.
pub(crate) fn post_mask(post_value: u16, post_archive: u16) -> EventMask {
    let mut mask = EventMask::NONE;
    if post_value == ALWAYS {
        mask |= EventMask::VALUE;
    }
    if post_archive == ALWAYS {
        mask |= EventMask::LOG;
    }
    mask
}

/// A record whose VAL is a long string; [`long_text_record!`] implements it.
pub(crate) trait LongText: Record {
    const LEN: u16;

    fn long_text(&mut self) -> LongTextFields<'_>;
}

/// The fields of a long string.
pub(crate) struct LongTextFields<'a> {
    pub(crate) value: &'a mut Text,
    pub(crate) size: u16,
    pub(crate) length: &'a mut u32,
    /// VAL and LEN as last posted.
    pub(crate) old: (&'a mut Text, &'a mut u32),
    /// The events to post always.
    pub(crate) always: EventMask,
}

macro_rules! long_text_record {
    ($record:ident) => {
        impl $crate::record::long_text::LongText for $record {
            const LEN: u16 = $record::at("LEN");

            fn long_text(&mut self) -> $crate::record::long_text::LongTextFields<'_> {
                $crate::record::long_text::LongTextFields {
                    value: &mut self.value,
                    size: self.size,
                    length: &mut self.length,
                    old: (&mut self.old_value, &mut self.old_length),
                    always: $crate::record::long_text::post_mask(self.post_value, self.post_archive),
                }
            }
        }
    };
}

pub(crate) use long_text_record;

/// Sets VAL to the text of a constant link, if it is one.
pub(crate) fn init<R: LongText>(record: &mut R, constant: Option<&Text>) {
    let Some(text) = constant else { return };
    store(record, text);
    record.common().undefined = 0;
    let fields = record.long_text();
    fields.old.0.clone_from(fields.value);
    *fields.old.1 = *fields.length;
}

/// Sets VAL, truncated to SIZV, and LEN.
pub(crate) fn store<R: LongText>(record: &mut R, text: &Text) {
    let fields = record.long_text();
    *fields.value = fitting(text, fields.size.into());
    *fields.length = length(fields.value);
}

/// Updates LEN after a put to VAL.
pub(crate) fn value_was_put<R: LongText>(record: &mut R, posts: &mut RecordPosts) {
    let fields = record.long_text();
    *fields.length = length(fields.value);
    posts.post(record, R::LEN, CHANGED);
}

/// Posts VAL and LEN, always or on change.
pub(crate) fn monitor<R: LongText>(record: &mut R, posts: &mut RecordPosts) {
    let alarms = posts.alarms(record);
    let fields = record.long_text();
    let mut mask = alarms | fields.always;
    let is_length_changed = is_changed(fields.old.1, fields.length);
    if is_changed(fields.old.0, fields.value) || is_length_changed {
        mask |= CHANGED;
    }
    if is_length_changed {
        posts.post(record, R::LEN, CHANGED);
    }
    if !mask.is_empty() {
        let value = record.record_type().value;
        posts.post(record, value, mask);
    }
}

/// LEN: the length in bytes, including the NUL.
pub(crate) fn length(text: &Text) -> u32 {
    text.len() as u32 + 1
}

/// The text of a constant link; numbers in JSON give none. As in Base, a plain number gives an empty text if it is one in
/// JSON as well, and so does an empty list.
pub(crate) fn constant(link: &Link) -> Option<Text> {
    let text = |scalar: &Scalar| if let Scalar::Text(text) = scalar { Some(text.clone()) } else { None };
    match link.constant()? {
        number @ Constant::Number(_) => number.elements(Kind::Text).map(|_| Text::EMPTY),
        Constant::One(scalar) => text(scalar),
        Constant::Many(scalars) => scalars.first().and_then(text),
        Constant::List(scalars) if scalars.iter().all(|scalar| text(scalar).is_some()) => {
            Some(scalars.first().and_then(text).unwrap_or(Text::EMPTY))
        }
        Constant::List(_) => None,
    }
}

/// Reads a text: all of it from an array of characters, else up to the length of an EPICS string. `Ok(None)`: the link
/// is constant or has no target.
pub(crate) fn fetch<R: Record>(
    step: &mut Step<'_, '_, R>,
    name: &'static str,
    link: impl Fn(&R) -> &Link + Copy,
) -> Result<Option<Text>, LinkError> {
    match step.kind_at(link) {
        Some(Kind::I8 | Kind::U8) => Ok(step.read_link_array(name, link, Kind::U8)?.as_ref().and_then(of_characters)),
        Some(_) => Ok(step.read_link::<Text>(name, link)?.map(|text| fitting(&text, STRING_BYTES))),
        None => Ok(None),
    }
}

/// Converts characters to a text. The last character counts as the NUL, whatever it is, as in Base.
fn of_characters(value: &Value) -> Option<Text> {
    value.long_text().map(|text| fitting(&text, value.len()))
}

/// Converts a text to the kind of the link's target: characters with their NUL, or the length of an EPICS string.
/// `None`: the link has no target, which Base ignores silently.
pub(crate) fn to_target_kind(value: Value, to: Option<Kind>) -> Option<Value> {
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
        _ => Some(fitting(&text, STRING_BYTES).into()),
    }
}
