//! waveform: an array.

use std::sync::Arc;

use fodo_data::{Array, EventMask, Kind, Limits, Meta, Scalar, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::limit::ELEMENTS_MAX;
use crate::link::{Constant, Target};
use crate::menu;
use crate::post::Posts;
use crate::put::fitting;
use crate::record::simulation::{self, Plan, Simulated, plan, simulated, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An array.
    Waveform
    fields {
        "VAL" value: Array = Array::empty(Kind::F64), ASL0 PP SPECIAL;
        "RARM" rearm: Short, PP;
        "PREC" precision: Short, PROP;
        "INP" input: InLink;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "NELM" capacity: ULong = 1, NOMOD;
        "FTVL" element_type: Menu(menu::FTYPE), NOMOD;
        "BUSY" busy: Short, NOMOD;
        "NORD" length: ULong, NOMOD;
        "SIOL" simulation_value_link: InLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "MPST" post_value: Menu(menu::WAVEFORM_POST);
        "APST" post_archive: Menu(menu::WAVEFORM_POST);
        "HASH" hash: ULong;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Waveform, "waveform", ["Soft Channel"]);
simulated!(Waveform, has_raw: false);

const VAL: u16 = Waveform::at("VAL");
const NORD: u16 = Waveform::at("NORD");
const HASH: u16 = Waveform::at("HASH");
const SIMM: u16 = Waveform::at("SIMM");

/// The kinds in the order of FTVL's choices.
const KINDS: [Kind; 12] = [
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

impl Record for Waveform {
    fn init(&mut self) {
        simulation::init(self);
        self.capacity = self.capacity.clamp(1, ELEMENTS_MAX);
        self.value = Array::empty(self.kind());
        let constants = match self.input.constant() {
            Some(Constant::Many(scalars)) => scalars.clone(),
            Some(Constant::One(scalar)) => vec![scalar.clone()],
            None => Vec::new(),
        };
        if let Some(array) = collect(&constants, self.kind()) {
            self.value = array.truncated(self.capacity as usize);
            self.common.undefined = 0;
        }
        self.length = self.value.len() as u32;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Waveform::ROWS, field)?;
        crate::meta::ranges(row, meta);
        meta.precision = crate::meta::precision(row, self.precision);
        match row.name {
            "VAL" => {
                meta.precision = if matches!(self.kind(), Kind::F32 | Kind::F64) { self.precision } else { 0 };
                meta.display = Limits { low: self.display_low, high: self.display_high };
            }
            "BUSY" => meta.display = Limits { low: 0.0, high: 1.0 },
            "NORD" => meta.display = Limits { low: 0.0, high: self.capacity.into() },
            "HOPR" | "LOPR" => meta.units = self.units.clone(),
            _ => return None,
        }
        if matches!(row.name, "VAL" | "BUSY" | "NORD") {
            meta.control = meta.display;
        }
        if field == VAL && !matches!(self.kind(), Kind::Text | Kind::Enum) {
            meta.units = self.units.clone();
        }
        None
    }

    fn value_facts(&self) -> Option<(Kind, u32)> {
        Some((self.kind(), self.capacity))
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        match field {
            VAL => self.count(posts),
            SIMM => {
                simulation::swap_scan(self);
            }
            _ => {}
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let kind = step.lock().kind();
        let mut is_read = true;
        match plan(step) {
            Plan::Device => match step.fetch_array("INP", |waveform| &waveform.input, kind) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    step.post(|waveform, posts| waveform.take(value, posts));
                    step.stamp_from(|waveform| &waveform.input);
                }
                Err(Broken) => is_read = false,
            },
            Plan::Simulate { .. } => match step.fetch_array("SIOL", Waveform::value_link, kind) {
                // Of a constant there are no elements.
                Ok(None) => step.post(|waveform, posts| waveform.take(Value::Array(Array::empty(kind)), posts)),
                Ok(Some(value)) => step.post(|waveform, posts| waveform.take(value, posts)),
                Err(Broken) => is_read = false,
            },
            Plan::Failed => is_read = false,
            Plan::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        step.lock().common.undefined = 0;
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(Waveform::monitor);
        Outcome::done(is_read)
    }
}

impl Waveform {
    fn kind(&self) -> Kind {
        KINDS.get(usize::from(self.element_type)).copied().unwrap_or(Kind::U8)
    }

    fn take(&mut self, value: Value, posts: &mut Posts) {
        if let Ok(array) = fitting(value, self.kind(), self.capacity) {
            self.value = array;
            self.count(posts);
        }
    }

    /// NORD follows the array.
    fn count(&mut self, posts: &mut Posts) {
        let length = self.value.len() as u32;
        if self.length != length {
            self.length = length;
            posts.post(self, NORD, CHANGED);
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        const ON_CHANGE: u16 = 1;
        let mut mask = posts.alarms(self);
        if self.post_value != ON_CHANGE {
            mask |= EventMask::VALUE;
        }
        if self.post_archive != ON_CHANGE {
            mask |= EventMask::LOG;
        }
        if self.post_value == ON_CHANGE || self.post_archive == ON_CHANGE {
            let hash = hash(&self.value);
            if hash != self.hash {
                if self.post_value == ON_CHANGE {
                    mask |= EventMask::VALUE;
                }
                if self.post_archive == ON_CHANGE {
                    mask |= EventMask::LOG;
                }
                self.hash = hash;
                posts.post(self, HASH, EventMask::VALUE);
            }
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
    }
}

/// The constants of a link as elements.
fn collect(scalars: &[Scalar], kind: Kind) -> Option<Array> {
    scalars.first()?;
    if kind == Kind::Text {
        return Some(Array::Text(Arc::new(scalars.iter().map(|scalar| scalar.to_text(None)).collect())));
    }
    let numbers: Result<Vec<f64>, _> = scalars.iter().map(Scalar::to_f64).collect();
    Array::F64(Arc::new(numbers.ok()?)).to_kind(kind, None).ok()
}

/// What Base keeps a text in.
const TEXT_BYTES: usize = 40;

/// What HASH says of an array as it lies in memory.
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
            let mut cell = [0; TEXT_BYTES];
            cell.iter_mut().zip(element.as_bytes()).for_each(|(place, byte)| *place = *byte);
            add(&cell);
        }),
    }
    hash
}
