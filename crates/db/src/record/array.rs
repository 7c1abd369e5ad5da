//! What array records share: element kinds, constants, limits, and when to post.

use std::sync::Arc;

use fodo_data::{Array, ConvertError, EventMask, Kind, Limits, Meta, STRING_BYTES, Scalar, Text, Value};

use crate::field::FieldInfo;
use crate::limit::ELEMENTS_MAX;
use crate::link::{Constant, Link, text_of_constant};
use crate::process::post::RecordPosts;
use crate::process::put::fitting;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::simulation::{self, Simulated, SimulationMode, simulation_mode};
use crate::record::{CHANGED, Record, is_changed, program};

/// The element kinds, in the order of the choices of FTVL.
pub const KINDS: [Kind; 12] = [
    Kind::Text,
    Kind::I8,
    Kind::U8,
    Kind::I16,
    Kind::U16,
    Kind::I32,
    Kind::U32,
    Kind::I64,
    Kind::U64,
    Kind::F32,
    Kind::F64,
    Kind::Enum,
];

/// The element kind that FTVL selects.
pub(crate) fn kind_of(element_type: u16) -> Kind {
    KINDS.get(usize::from(element_type)).copied().unwrap_or(Kind::U8)
}

/// NELM, clamped to its limits.
pub(crate) fn capacity_of(n_elements: u32) -> u32 {
    n_elements.clamp(1, ELEMENTS_MAX)
}

/// The elements of a constant link. `None`: the link is not a constant, or has no elements of this kind.
pub(crate) fn constants(link: &Link, kind: Kind, capacity: u32) -> Result<Option<Array>, ConvertError> {
    let Some(constant) = link.constant() else { return Ok(None) };
    if let (Constant::One(Scalar::Text(text)), Kind::I8) = (constant, kind) {
        // The characters of the text and a NUL, also if the text is truncated, as in Base.
        let n_characters = capacity.saturating_sub(1) as usize;
        let characters = text.as_bytes().iter().take(n_characters).map(|byte| byte.cast_signed());
        return Ok(Some(Array::I8(Arc::new(characters.chain([0]).collect()))));
    }
    let Some(scalars) = constant.elements(kind) else { return Ok(None) };
    Ok(Some(collect(&scalars, kind)?.truncated(capacity as usize)))
}

/// Converts the elements of a link to one kind.
fn collect(scalars: &[Scalar], kind: Kind) -> Result<Array, ConvertError> {
    if kind == Kind::Text {
        return Ok(Array::Text(Arc::new(scalars.iter().map(text_of_constant).collect())));
    }
    if matches!(kind, Kind::F32 | Kind::F64) {
        let numbers: Result<Vec<f64>, _> = scalars.iter().map(Scalar::to_f64).collect();
        return Array::F64(Arc::new(numbers?)).to_kind(kind, None);
    }
    // Each element is converted by itself: a double does not have all digits of an integer.
    let whole = |scalar: &Scalar| Ok(scalar.to_kind(kind, None)?.as_integer().unwrap_or_default() as i64);
    let numbers: Result<Vec<i64>, ConvertError> = scalars.iter().map(whole).collect();
    Array::I64(Arc::new(numbers?)).to_kind(kind, None)
}

/// An array of zeros or of empty texts.
pub(crate) fn zeros(kind: Kind, n: u32) -> Array {
    let n = n as usize;
    match kind {
        Kind::Text => Array::Text(Arc::new(vec![Text::EMPTY; n])),
        Kind::F64 => Array::F64(Arc::new(vec![0.0; n])),
        kind => Array::U8(Arc::new(vec![0; n])).to_kind(kind, None).unwrap_or(Array::empty(kind)),
    }
}

/// The fields that determine limits and units.
pub(crate) struct ArrayMeta<'a> {
    pub(crate) kind: Kind,
    pub(crate) units: &'a Text,
    pub(crate) precision: i16,
    pub(crate) display: Limits,
}

/// Sets units, precision and limits of a field of an array record. `span`: the range of a field that has its own range.
pub(crate) fn meta(row: &FieldInfo, array: &ArrayMeta, span: Option<Limits>, meta: &mut Meta) {
    let is_number = !matches!(array.kind, Kind::Text | Kind::Enum);
    crate::meta::ranges(row, meta);
    meta.precision = crate::meta::precision(row, array.precision);
    if row.name == "VAL" {
        meta.precision = if matches!(array.kind, Kind::F32 | Kind::F64) { array.precision } else { 0 };
    }
    if let Some(span) = span.or((row.name == "VAL").then_some(array.display)) {
        meta.display = span;
        meta.control = span;
    }
    if matches!(row.name, "HOPR" | "LOPR") || row.name == "VAL" && is_number {
        meta.units = array.units.clone();
    }
}

/// A record whose array is posted according to MPST and APST.
pub(crate) trait ArrayRecord: Record {
    const NORD: u16;
    const HASH: u16;

    fn posting(&mut self) -> Posting<'_>;

    fn array_meta(&self) -> ArrayMeta<'_>;
}

/// The fields that decide what is posted.
pub(crate) struct Posting<'a> {
    pub(crate) kind: Kind,
    pub(crate) capacity: &'a mut u32,
    pub(crate) value: &'a mut Array,
    pub(crate) length: &'a mut u32,
    pub(crate) hash: &'a mut u32,
    pub(crate) post_value: u16,
    pub(crate) post_archive: u16,
}

macro_rules! array_record {
    ($record:ident) => {
        impl $crate::record::array::ArrayRecord for $record {
            const NORD: u16 = $record::at("NORD");
            const HASH: u16 = $record::at("HASH");

            fn posting(&mut self) -> $crate::record::array::Posting<'_> {
                $crate::record::array::Posting {
                    kind: $crate::record::array::kind_of(self.element_type),
                    capacity: &mut self.capacity,
                    value: &mut self.value,
                    length: &mut self.length,
                    hash: &mut self.hash,
                    post_value: self.post_value,
                    post_archive: self.post_archive,
                }
            }

            fn array_meta(&self) -> $crate::record::array::ArrayMeta<'_> {
                $crate::record::array::ArrayMeta {
                    kind: $crate::record::array::kind_of(self.element_type),
                    units: &self.units,
                    precision: self.precision,
                    display: fodo_data::Limits { low: self.display_low, high: self.display_high },
                }
            }
        }
    };
}

pub(crate) use array_record;

/// Sets NELM to its limits and the array to the constants of the link, if there is one; without constants it is empty.
pub(crate) fn init<R: ArrayRecord>(record: &mut R, link: impl Fn(&R) -> Option<&Link>) {
    let kind = record.array_meta().kind;
    *record.posting().capacity = capacity_of(*record.posting().capacity);
    let capacity = *record.posting().capacity;
    // A constant that cannot be converted is ignored, as in Base.
    let constants = link(record).and_then(|link| constants(link, kind, capacity).unwrap_or_default());
    if constants.is_some() {
        record.common().undefined = 0;
    }
    let fields = record.posting();
    *fields.value = constants.unwrap_or(Array::empty(kind));
    *fields.length = fields.value.len() as u32;
}

/// Called after a put to VAL or SIMM.
pub(crate) fn field_was_put<R: ArrayRecord + Simulated>(
    record: &mut R,
    field: u16,
    posts: &mut RecordPosts,
) -> Result<(), &'static str> {
    if field != record.record_type().value {
        return simulation::mode_was_put(record);
    }
    update_length(record, posts);
    Ok(())
}

/// Processes an input array: reads `link`, or SIOL in simulation mode.
///
/// As in Base, `is_waveform` makes two differences: a constant SIOL has no elements to read, so the array becomes empty;
/// and a NORD that INP changes is posted again with the new time stamp.
pub(crate) fn process_input<R: ArrayRecord + Simulated>(
    step: &mut Step<'_, '_, R>,
    link: impl Fn(&R) -> &Link + Copy,
    is_waveform: bool,
) -> ProcessOutcome {
    let kind = step.lock().array_meta().kind;
    let length_before = *step.lock().posting().length;
    let mode = simulation_mode(step);
    let is_of_program = DeviceSupport::of(step.lock()) == DeviceSupport::Program;
    let fetched = match mode {
        SimulationMode::Device if is_of_program => program::read(step),
        SimulationMode::Device => step.read_link_array("INP", link, kind),
        SimulationMode::Simulated { .. } => step.read_link_array("SIOL", R::value_link, kind),
        SimulationMode::Invalid => Err(LinkError),
        SimulationMode::Waiting(delay_s) => return step.complete_after(delay_s),
    };
    let is_read = fetched.is_ok();
    match fetched {
        Ok(Some(value)) => {
            step.post(|record, posts| store(record, value, posts));
            if mode == SimulationMode::Device && !is_of_program {
                step.stamp_from(link);
            }
        }
        Ok(None) if is_waveform && mode != SimulationMode::Device => {
            step.post(|record, posts| store(record, Value::Array(Array::empty(kind)), posts));
        }
        Ok(None) | Err(LinkError) => {}
    }
    // The other device supports clear UDF also if nothing was read, as in Base.
    if is_read || !is_of_program {
        step.lock().common().undefined = 0;
    }
    simulation::stamp(step);
    if mode == SimulationMode::Device {
        program::stamp_input(step);
    }
    step.post(|record, posts| {
        if is_waveform && mode == SimulationMode::Device && *record.posting().length != length_before {
            posts.post(record, R::NORD, CHANGED);
        }
        monitor(record, posts);
    });
    ProcessOutcome::done(is_read)
}

/// Stores a value that was read or put, truncated to the capacity.
pub(crate) fn store<R: ArrayRecord>(record: &mut R, value: Value, posts: &mut RecordPosts) {
    let fields = record.posting();
    if let Ok(array) = fitting(value, fields.kind, *fields.capacity) {
        *fields.value = array;
        update_length(record, posts);
    }
}

/// Updates NORD to the length of the array.
fn update_length<R: ArrayRecord>(record: &mut R, posts: &mut RecordPosts) {
    let fields = record.posting();
    let length = fields.value.len() as u32;
    if is_changed(fields.length, &length) {
        posts.post(record, R::NORD, CHANGED);
    }
}

/// Posts the array, always or on change.
pub(crate) fn monitor<R: ArrayRecord>(record: &mut R, posts: &mut RecordPosts) {
    const ON_CHANGE: u16 = 1;
    let mut mask = posts.alarms(record);
    let fields = record.posting();
    let on_change = [(fields.post_value, EventMask::VALUE), (fields.post_archive, EventMask::LOG)];
    for (_, kind) in on_change.iter().filter(|(when, _)| *when != ON_CHANGE) {
        mask |= *kind;
    }
    if on_change.iter().any(|(when, _)| *when == ON_CHANGE) {
        let hash = hash(fields.value);
        if is_changed(fields.hash, &hash) {
            for (_, kind) in on_change.iter().filter(|(when, _)| *when == ON_CHANGE) {
                mask |= *kind;
            }
            posts.post(record, R::HASH, EventMask::VALUE);
        }
    }
    if !mask.is_empty() {
        let value = record.record_type().value;
        posts.post(record, value, mask);
    }
}

/// The HASH of an array: a hash of its memory.
///
/// Source: EPICS Base 7.0, epicsMemHash.
fn hash(array: &Array) -> u32 {
    let (mut hash, mut is_even) = (0_u32, true);
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            let byte = i32::from(byte.cast_signed()).cast_unsigned();
            hash ^= if is_even { !((hash << 11) ^ byte ^ (hash >> 5)) } else { (hash << 7) ^ byte ^ (hash >> 3) };
            is_even = !is_even;
        }
    };
    macro_rules! numbers {
        ($elements:expr) => {
            $elements.iter().for_each(|element| add(&element.to_ne_bytes()))
        };
    }
    match array {
        Array::Bool(elements) => elements.iter().for_each(|&element| add(&[u8::from(element)])),
        Array::I8(elements) => numbers!(elements),
        Array::U8(elements) => add(elements),
        Array::I16(elements) => numbers!(elements),
        Array::U16(elements) | Array::Enum(elements) => numbers!(elements),
        Array::I32(elements) => numbers!(elements),
        Array::U32(elements) => numbers!(elements),
        Array::I64(elements) => numbers!(elements),
        Array::U64(elements) => numbers!(elements),
        Array::F32(elements) => numbers!(elements),
        Array::F64(elements) => numbers!(elements),
        Array::Text(elements) => elements.iter().for_each(|element| {
            let mut cell = [0; STRING_BYTES];
            cell.iter_mut().zip(element.as_bytes()).for_each(|(place, byte)| *place = *byte);
            add(&cell);
        }),
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_array_is_that_of_epics_mem_hash_on_its_memory() {
        fn of<T>(elements: T) -> u32
        where
            Value: From<T>,
        {
            hash(&Value::from(elements).into_array())
        }

        // Source: epicsMemHash of EPICS Base 7.0 with seed 0, compiled for a little-endian host.
        assert_eq!((of(Vec::<u8>::new()), of(vec![7_u8]), of(vec![1_u8, 2, 200])), (0, 4_294_967_288, 3_774_355_660));
        if cfg!(target_endian = "little") {
            assert_eq!((of(vec![1_i16, -2, 300]), of(vec![1.5, -2.0])), (3_456_824_873, 1_747_840_780));
        }
        assert_eq!(of(vec![fodo_data::Text::from("ab"), "c".into()]), 4_270_246_357, "cells of 40 bytes");
    }
}
