//! subArray: a part of another array.

use fodo_data::{Array, ConvertError, Kind, Limits, Meta};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::process::post::RecordPosts;
use crate::process::put::of_kind;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::array::{self, ArrayMeta, capacity_of, constants, kind_of};
use crate::record::device::DeviceSupport;
use crate::record::{CHANGED, Record, post_value, program, raise_undefined, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// A part of another array.
    SubArray
    fields {
        "VAL" value: Array = Array::empty(Kind::F64), ASL0 PP SPECIAL INTEREST0;
        "PREC" precision: Short, PROP;
        "FTVL" element_type: Menu(menu::FTYPE), NOMOD;
        "INP" input: InLink, DEVICE;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "MALM" capacity: ULong = 1, NOMOD PROP;
        "NELM" n_requested: ULong = 1, PP INTEREST0;
        "INDX" first: ULong, PP INTEREST0;
        "BUSY" busy: Short, NOMOD INTEREST0;
        "NORD" length: Long, NOMOD INTEREST0;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(SubArray, "subArray", ["Soft Channel", "Program"], VAL NORD);

impl Record for SubArray {
    fn init(&mut self) {
        self.capacity = capacity_of(self.capacity);
        self.n_requested = self.n_requested.min(self.capacity);
        self.value = Array::empty(self.kind());
        if let Ok(Some(constants)) = constants(&self.input, self.kind(), self.reach()) {
            self.cut(&constants);
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(SubArray::ROWS, field)?;
        let capacity = f64::from(self.capacity);
        let span = match row.name {
            "INDX" => Some(Limits { low: 0.0, high: capacity - 1.0 }),
            "NELM" => Some(Limits { low: 1.0, high: capacity }),
            "NORD" => Some(Limits { low: 0.0, high: capacity }),
            "BUSY" => Some(Limits { low: 0.0, high: 1.0 }),
            _ => None,
        };
        let display = Limits { low: self.display_low, high: self.display_high };
        let about = ArrayMeta { kind: self.kind(), units: &self.units, precision: self.precision, display };
        array::meta(row, &about, span, meta);
        if row.name == "NELM" {
            meta.display.low = 0.0;
        }
        None
    }

    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        Some(KindAndCount { kind: self.kind(), count_max: self.capacity })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == VAL {
            let length = self.length;
            self.count();
            self.post_length(length, posts);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let length_before = step.lock().length;
        let kind = {
            let part = step.lock();
            part.n_requested = part.n_requested.min(part.capacity);
            part.first = part.first.min(part.capacity - 1);
            part.kind()
        };
        let is_of_program = DeviceSupport::of(step.lock()) == DeviceSupport::Program;
        let fetched = match is_of_program {
            true => program::read(step),
            false => {
                // Numbers are converted after the cut, so that only NELM elements are converted.
                let there = step.kind_at(|part| &part.input).filter(|there| *there != Kind::Text);
                let read_as = there.filter(|_| kind != Kind::Text).unwrap_or(kind);
                step.read_link_array("INP", |part| &part.input, read_as)
            }
        };
        let is_read = {
            let part = step.lock();
            let is_ok = match fetched {
                Ok(Some(value)) => {
                    part.cut(&value.into_array());
                    true
                }
                Ok(None) => part.take_constants().is_ok(),
                Err(LinkError) => false,
            };
            if !is_ok {
                part.value = Array::empty(kind);
            }
            is_ok && part.length > 0
        };
        if is_read && !is_of_program {
            step.stamp_from(|part| &part.input);
        }
        step.stamp(None);
        program::stamp_input(step);
        step.post(|part, posts| {
            part.post_length(length_before, posts);
            part.common.undefined = u8::from(!is_read);
            raise_undefined(&mut part.common);
            post_value(part, CHANGED, posts);
        });
        // The record never counts as failed for a link that processes it, as in Base.
        ProcessOutcome::Done
    }
}

impl SubArray {
    fn kind(&self) -> Kind {
        kind_of(self.element_type)
    }

    /// Reads INP if it is empty or a constant.
    fn take_constants(&mut self) -> Result<(), ConvertError> {
        let constants = constants(&self.input, self.kind(), self.reach())?;
        // Without constants, the current value is cut once more, as in Base.
        let whole = constants.unwrap_or_else(|| self.value.clone());
        if !whole.is_empty() {
            self.cut(&whole);
        }
        Ok(())
    }

    /// The number of elements to read.
    fn reach(&self) -> u32 {
        self.first.saturating_add(self.n_requested).min(self.capacity)
    }

    /// Sets VAL to NELM elements, from index INDX on. Of a longer array only the first MALM elements count. Elements that
    /// cannot be converted change nothing.
    fn cut(&mut self, array: &Array) {
        let (first, n) = (self.first as usize, self.reach().saturating_sub(self.first) as usize);
        if array.kind() == self.kind() {
            // Large arrays in the memory of the last value, whose pages exist, unless a client still receives it.
            array.part_to(first, n, &mut self.value);
        } else if let Ok(part) = of_kind(array.part(first, n), self.kind()) {
            self.value = part;
        } else {
            return;
        }
        self.count();
        self.common.undefined = 0;
    }

    /// Posts NORD if it has changed.
    fn post_length(&mut self, before: i32, posts: &mut RecordPosts) {
        if self.length != before {
            posts.post(self, NORD, CHANGED);
        }
    }

    fn count(&mut self) {
        self.length = self.value.len() as i32;
    }
}
