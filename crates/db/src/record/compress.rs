//! compress: collects samples in an array, either as they are or N compressed to one.

use std::sync::Arc;

use fodo_data::{Array, Kind, Limits, Meta, Scalar, Status, Value};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID, YES};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::array::capacity_of;
use crate::record::{CHANGED, Record, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// Samples collected in an array.
    Compress
    fields {
        "VAL" value: Array = Array::empty(Kind::F64), ASL0 PP SPECIAL INTEREST0;
        "INP" input: InLink, DEVICE;
        "RES" reset: Short, ASL0 SPECIAL INTEREST3;
        "ALG" algorithm: Menu(menu::COMPRESS_ALG), SPECIAL;
        "PBUF" allows_partial: Menu(menu::YES_NO), SPECIAL;
        "BALG" order: Menu(menu::BUFFER_ALG), SPECIAL;
        "NSAM" capacity: ULong = 1, NOMOD;
        "N" n_to_one: ULong = 1, SPECIAL;
        "IHIL" input_high: Double;
        "ILIL" input_low: Double;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "PREC" precision: Short, PROP;
        "EGU" units: String(16), PROP;
        "OFF" offset: ULong, NOMOD INTEREST0;
        "NUSE" n_used: ULong, NOMOD INTEREST0;
        "OUSE" n_used_before: ULong, NOMOD INTEREST0;
        "INPN" input_size: Long, NOMOD INTEREST4;
        "CVB" compressed: Double, NOMOD INTEREST3;
        "INX" n_compressed: ULong, NOMOD INTEREST3;
    }
    arrays {
    }
    private {
        common: Common;
        /// NSAM samples; OFF is the index of the next sample (FIFO) or of the last one (LIFO).
        ring: Vec<f64>;
        /// The sums of the algorithm Average.
        sums: Vec<f64>;
    }
}

record_type!(Compress, "compress", [], VAL NUSE);

/// A choice of BALG: new samples go to the front.
const LIFO: u16 = 1;

/// The algorithm that ALG selects.
#[derive(Clone, Copy, PartialEq)]
enum Algorithm {
    Low,
    High,
    Mean,
    Median,
    /// The mean of each element over N arrays.
    Average,
    /// Samples unchanged.
    Circular,
}

impl Record for Compress {
    fn init(&mut self) {
        self.capacity = capacity_of(self.capacity);
        self.ring = vec![0.0; self.capacity as usize];
        self.restart();
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Compress::ROWS, field)?;
        crate::meta::ranges(row, meta);
        if row.dbf == Dbf::Double || row.name == "VAL" {
            meta.units = self.units.clone();
        }
        meta.precision = if row.name == "VAL" { self.precision } else { crate::meta::precision(row, self.precision) };
        if matches!(row.name, "VAL" | "IHIL" | "ILIL") {
            meta.display = Limits { low: self.display_low, high: self.display_high };
            meta.control = meta.display;
        }
        None
    }

    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        Some(KindAndCount { kind: Kind::F64, count_max: self.capacity })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == VAL {
            // Values put to VAL count as new samples.
            let samples = Value::Array(self.value.clone());
            let n_used = self.n_used;
            self.add(numbers(&samples));
            if self.n_used != n_used {
                posts.post(self, NUSE, CHANGED);
            }
            return Ok(());
        }
        self.restart();
        self.monitor(posts);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let size = step.size_at(|compress| &compress.input);
        let mut fetched = None;
        if let Some(size) = size {
            let compress = step.lock();
            if i64::from(compress.input_size) != i64::from(size) {
                compress.input_size = i32::try_from(size).unwrap_or(i32::MAX);
                compress.restart();
            }
            // As in Base, a failed read is an alarm only: whatever started the processing succeeds.
            fetched = step.read_link_array("INP", |compress| &compress.input, Kind::F64).ok().flatten();
        }
        let samples = fetched.as_ref().map(numbers).unwrap_or_default();
        let is_whole = if samples.is_empty() {
            step.lock().common.raise(Status::LINK, INVALID);
            true
        } else {
            step.lock().take(samples)
        };
        if !is_whole {
            return ProcessOutcome::NoForward;
        }
        step.lock().common.undefined = 0;
        step.stamp(None);
        step.post(Compress::monitor);
        ProcessOutcome::Done
    }
}

/// The elements of a fetched value, as numbers.
fn numbers(value: &Value) -> &[f64] {
    match value {
        Value::Array(Array::F64(numbers)) => numbers,
        Value::Scalar(Scalar::F64(number)) => std::slice::from_ref(number),
        _ => &[],
    }
}

impl Compress {
    fn algorithm(&self) -> Algorithm {
        match self.algorithm {
            0 => Algorithm::Low,
            1 => Algorithm::High,
            2 => Algorithm::Mean,
            3 => Algorithm::Average,
            4 => Algorithm::Circular,
            _ => Algorithm::Median,
        }
    }

    /// Discards everything collected so far.
    fn restart(&mut self) {
        self.n_used = 0;
        self.offset = 0;
        self.n_compressed = 0;
        self.compressed = 0.0;
        self.reset = 0;
        self.sums = Vec::new();
        self.value = Array::empty(Kind::F64);
    }

    /// Takes the samples that were read. Returns whether VAL has new elements.
    ///
    /// Source: EPICS record reference, compress, "Algorithms and Related Parameters"; compared with softIoc 7.0.10.
    fn take(&mut self, samples: &[f64]) -> bool {
        match (self.algorithm(), samples) {
            (Algorithm::Average, samples) => self.average(samples),
            (Algorithm::Circular, samples) => {
                self.add(samples);
                true
            }
            (algorithm, [sample]) => self.compress_one(algorithm, *sample),
            (algorithm, samples) => self.compress_many(algorithm, samples),
        }
    }

    /// Adds one sample to the N that are compressed to one.
    fn compress_one(&mut self, algorithm: Algorithm, sample: f64) -> bool {
        let n_before = self.n_compressed;
        let so_far = self.compressed;
        self.compressed = match algorithm {
            _ if n_before == 0 => sample,
            Algorithm::Low => so_far.min(sample),
            Algorithm::High => so_far.max(sample),
            _ => (f64::from(n_before) * so_far + sample) / f64::from(n_before + 1),
        };
        self.n_compressed += 1;
        let is_full = self.n_compressed >= self.n_to_one;
        if is_full || self.allows_partial == YES {
            self.add(&[self.compressed]);
        }
        if is_full {
            self.n_compressed = 0;
        }
        is_full || self.allows_partial == YES
    }

    /// Compresses each N of the samples to one.
    fn compress_many(&mut self, algorithm: Algorithm, samples: &[f64]) -> bool {
        self.n_to_one = self.n_to_one.max(1);
        let n_to_one = self.n_to_one as usize;
        let is_out =
            |sample: &f64| self.input_low < self.input_high && (*sample < self.input_low || *sample > self.input_high);
        let n_out = samples.iter().take_while(|sample| is_out(sample)).count();
        let is_taken = |part: &[f64]| part.len() == n_to_one || self.allows_partial == YES;
        let parts = samples.get(n_out..).unwrap_or_default().chunks(n_to_one).take(self.capacity as usize);
        let ones: Vec<f64> = parts.filter(|part| is_taken(part)).map(|part| one_of(algorithm, part)).collect();
        self.add(&ones);
        !ones.is_empty()
    }

    /// Averages each element over N arrays.
    fn average(&mut self, samples: &[f64]) -> bool {
        self.sums.resize(self.capacity as usize, 0.0);
        for (sum, sample) in self.sums.iter_mut().zip(samples) {
            *sum += sample;
        }
        self.n_compressed += 1;
        if self.n_compressed < self.n_to_one {
            return false;
        }
        let share = 1.0 / f64::from(self.n_to_one.max(1));
        let means: Vec<f64> = self.sums.iter().take(samples.len()).map(|sum| sum * share).collect();
        self.n_compressed = 0;
        self.sums = Vec::new();
        self.add(&means);
        true
    }

    /// Adds samples to the ring.
    fn add(&mut self, samples: &[f64]) {
        let size = self.ring.len();
        let mut offset = self.offset as usize % size.max(1);
        for sample in samples {
            if self.order == LIFO {
                offset = (offset + size - 1) % size;
            }
            if let Some(place) = self.ring.get_mut(offset) {
                *place = *sample;
            }
            if self.order != LIFO {
                offset = (offset + 1) % size;
            }
        }
        let n_used = (self.n_used as usize).saturating_add(samples.len()).min(size);
        self.offset = offset as u32;
        self.n_used = n_used as u32;
        let start = if self.order == LIFO { offset } else { offset + size - n_used };
        let shown = self.ring.iter().cycle().skip(start % size.max(1)).take(n_used).copied().collect();
        self.value = Array::F64(Arc::new(shown));
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let alarms = posts.alarms(self);
        let mask = alarms | CHANGED;
        if !alarms.is_empty() || self.n_used != self.n_used_before {
            posts.post(self, NUSE, mask);
            self.n_used_before = self.n_used;
        }
        posts.post(self, VAL, mask);
    }
}

/// Compresses a group of samples to one.
fn one_of(algorithm: Algorithm, part: &[f64]) -> f64 {
    match algorithm {
        Algorithm::Low => part.iter().copied().fold(f64::INFINITY, f64::min),
        Algorithm::High => part.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Algorithm::Median => {
            let mut sorted = part.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        }
        Algorithm::Mean | Algorithm::Average | Algorithm::Circular => part.iter().sum::<f64>() / part.len() as f64,
    }
}
