//! How pvAccess presents fields: the metadata that their record types have, and the info items that change it.
//!
//! Source: pvxs 1.5.3, `ioc/channel.cpp` and `ioc/iocsource.cpp`; the metadata of each record type was measured with
//! QSRV2 and EPICS Base 7.0.10.

use fodo_data::{DisplayForm, Kind, MetaParts, Text};

use crate::common::row;
use crate::database::Database;
use crate::field::Dbf;
use crate::record::contract::RecordType;
use crate::reference::{FieldFacts, FieldRef, LONG_STRING};

/// How pvAccess presents a field; see [`Database::presentation`].
///
/// ```
/// use fodo_data::{DisplayForm, Kind, MetaParts};
/// use fodo_db::Loader;
///
/// let mut loader = Loader::default();
/// let text = "record(waveform, w) { field(FTVL, CHAR) field(NELM, 40) info(Q:form, String) }";
/// loader.load("a.db", "", &mut |_| Ok(text.into()))?;
/// let database = loader.finish()?;
///
/// let field = database.field("w").expect("the record exists");
/// let shown = database.presentation(field, &database.facts(field));
/// assert_eq!((shown.kind, shown.is_array, shown.form), (Kind::Text, false, DisplayForm::String));
/// assert!(shown.parts.contains(MetaParts::UNITS) && !shown.parts.contains(MetaParts::ALARM));
/// assert_eq!(database.description(field), "".into());
/// # Ok::<(), Vec<fodo_db::LoadError>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presentation {
    /// The kind of an element; for characters that are presented as a text, [`Kind::Text`].
    pub kind: Kind,
    /// Whether the value is an array.
    pub is_array: bool,
    /// The metadata that the field has.
    pub parts: MetaParts,
    /// `info(Q:form, ...)` of the record, for its field VAL.
    pub form: DisplayForm,
    /// The number of the lowest bits of the nanoseconds that are the user tag, `info(Q:time:tag, "nsec:lsb:N")`; at
    /// most 32.
    pub tag_bits: u8,
}

impl Database {
    /// How pvAccess presents a field. `facts`: those of the field, after the filters of the channel. [`Presentation`] has
    /// an example.
    pub fn presentation(&self, field: FieldRef, facts: &FieldFacts) -> Presentation {
        // A filter may leave no element at all.
        let is_array = facts.count_max != 1;
        // A long string is an array of DBF_CHAR.
        let is_long_string = field.field & LONG_STRING != 0 && facts.kind == Kind::U8;
        let kind = if is_long_string { Kind::I8 } else { facts.kind };
        let Some(cell) = self.core().cell(field.record) else {
            let parts = MetaParts::of(kind, is_array);
            return Presentation { kind, is_array, parts, form: DisplayForm::Default, tag_bits: 0 };
        };
        let record_type = cell.record_type();
        let number = field.field & !LONG_STRING;
        let form = (number == record_type.value).then(|| match self.info(field.record, b"Q:form") {
            Some(name) => DisplayForm::from_name(name.as_bytes()),
            None => Some(DisplayForm::Default),
        });
        let form = form.flatten();
        let is_link = row(record_type.rows, number).is_some_and(|row| row.dbf.is_link());
        let is_text = kind == Kind::I8 && is_array && (form == Some(DisplayForm::String) || is_long_string && is_link);
        let mut parts = parts_of(record_type, number);
        if !matches!(kind, Kind::F32 | Kind::F64) {
            parts = parts.without(MetaParts::PRECISION);
        }
        if form.is_some() {
            parts = parts.with(MetaParts::FORM);
        }
        Presentation {
            kind: if is_text { Kind::Text } else { kind },
            is_array: is_array && !is_text,
            parts,
            form: form.unwrap_or_default(),
            tag_bits: self.info(field.record, b"Q:time:tag").map_or(0, tag_bits),
        }
    }

    /// The description of a field's record (DESC). [`Presentation`] has an example.
    pub fn description(&self, field: FieldRef) -> Text {
        self.core().with(field.record, |body| body.common().description.clone()).unwrap_or_default()
    }
}

/// The number of bits in a text such as `nsec:lsb:20`; 0 if it is invalid.
fn tag_bits(text: &Text) -> u8 {
    let text = text.to_str();
    let bits = text.strip_prefix("nsec:lsb:").and_then(|bits| bits.parse().ok());
    bits.filter(|bits| *bits <= 32).unwrap_or(0)
}

/// The metadata of a field, apart from its form. A record type has a part for all of its fields or for none, because
/// Base asks its support routines (`get_units`, `get_precision`, ...) for it.
fn parts_of(record_type: &RecordType, field: u16) -> MetaParts {
    const NONE: MetaParts = MetaParts(0);
    const LIMITS: MetaParts = MetaParts::DISPLAY.with(MetaParts::CONTROL);
    const NUMBERS: MetaParts = LIMITS.with(MetaParts::UNITS).with(MetaParts::PRECISION);
    let parts = match record_type.name {
        "ai" | "ao" | "calc" | "calcout" | "dfanout" | "sel" | "seq" | "sub" | "aSub" | "scalcout" | "acalcout" => {
            NUMBERS.with(MetaParts::ALARM)
        }
        "longin" | "longout" | "int64in" | "int64out" => NUMBERS.without(MetaParts::PRECISION).with(MetaParts::ALARM),
        "waveform" | "aai" | "aao" | "subArray" | "compress" | "histogram" => NUMBERS,
        "bo" => MetaParts::UNITS.with(MetaParts::PRECISION).with(MetaParts::CONTROL),
        "mbbiDirect" | "mbboDirect" | "busy" | "swait" | "sseq" | "transform" => MetaParts::PRECISION,
        _ => NONE,
    };
    let has_choices = match row(record_type.rows, field).map(|row| row.dbf) {
        Some(Dbf::Enum | Dbf::Menu) => true,
        Some(Dbf::Device) => !record_type.devices.is_empty(),
        _ => false,
    };
    if has_choices { parts.with(MetaParts::CHOICES) } else { parts }
}
