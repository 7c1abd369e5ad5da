//! histogram: counts how often a signal is in each of NELM equal parts of a range.

use std::sync::Arc;

use fodo_data::{Array, EventMask, Kind, Limits, Meta, Status, TimeStamp};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::deferred::Deferred;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::simulation::{self, InputSource, input_source, set_constant, simulated};
use crate::record::{CHANGED, Record, post_value, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// Counts of a signal's values.
    Histogram
    fields {
        "VAL" value: Array = Array::empty(Kind::U32), ASL0 INTEREST0;
        "NELM" n_bins: UShort = 1, NOMOD;
        "CSTA" is_counting: Short = 1, NOMOD;
        "CMD" command: Menu(menu::HISTOGRAM_CMD), ASL0 SPECIAL;
        "ULIM" high: Double, SPECIAL PROP;
        "LLIM" low: Double, SPECIAL PROP;
        "WDTH" width: Double, NOMOD INTEREST3;
        "SGNL" signal: Double, SPECIAL INTEREST0;
        "PREC" precision: Short, PROP;
        "SVL" input: InLink;
        "MDEL" monitor_deadband: Short;
        "MCNT" n_since_post: Short, NOMOD INTEREST3;
        "SDEL" post_interval: Double, SPECIAL;
        ..simulation(InLink, YES_NO);
        "SVAL" simulation_value: Double, INTEREST0;
        "HOPR" display_high: ULong, PROP;
        "LOPR" display_low: ULong, PROP;
    }
    arrays {
    }
    private {
        common: Common;
        /// Always NELM elements, even if a client puts fewer to VAL.
        counts: Vec<u32>;
    }
}

record_type!(Histogram, "histogram", ["Soft Channel"], VAL CMD SGNL SDEL SIMM);
simulated!(Histogram, has_raw: false);

/// The choices of CMD; Read also clears, as in Base.
const CLEAR: u16 = 1;
const START: u16 = 2;
const STOP: u16 = 3;

impl Record for Histogram {
    fn init(&mut self) {
        self.n_bins = self.n_bins.max(1);
        self.counts = vec![0; usize::from(self.n_bins)];
        self.update_value();
        self.set_width();
        simulation::init(self);
        set_constant(&mut self.simulation_value, &self.simulation_value_link);
        if set_constant(&mut self.signal, &self.input) {
            self.common.undefined = 0;
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Histogram::ROWS, field)?;
        crate::meta::ranges(row, meta);
        match row.name {
            "SDEL" => {
                meta.units = "s".into();
                meta.precision = 2;
            }
            "ULIM" | "LLIM" | "SGNL" | "SVAL" | "WDTH" => meta.precision = self.precision,
            _ => {}
        }
        let span = match row.name {
            "VAL" => Limits { low: self.display_low.into(), high: self.display_high.into() },
            "WDTH" => Limits { low: 0.0, high: self.high - self.low },
            _ => return None,
        };
        (meta.display, meta.control) = (span, span);
        None
    }

    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        Some(KindAndCount { kind: Kind::U32, count_max: self.n_bins.into() })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        match field {
            VAL => self.take_counts(),
            CMD => self.execute_command(),
            SGNL => self.count(),
            SDEL => posts.deferred.push(Deferred::DelayPosts { record: posts.record }),
            SIMM => return simulation::mode_was_put(self),
            _ => {
                self.set_width();
                self.clear();
            }
        }
        Ok(())
    }

    fn collect_interval_s(&self) -> Option<f64> {
        (self.post_interval > 0.0).then_some(self.post_interval)
    }

    fn post_collected(&mut self, now: TimeStamp, posts: &mut RecordPosts) {
        if self.n_since_post > 0 {
            self.common.time = now;
            posts.post(self, VAL, CHANGED);
            self.n_since_post = 0;
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let mut is_read = true;
        match input_source(step) {
            InputSource::Device => {
                // A link that cannot be read raises its alarm, and the last signal is counted again, as in Base.
                if let Ok(Some(signal)) = step.read_link("SVL", |histogram| &histogram.input) {
                    step.lock().signal = signal;
                }
            }
            InputSource::Simulation { value, .. } => {
                let histogram = step.lock();
                histogram.simulation_value = value.unwrap_or(histogram.simulation_value);
                histogram.signal = histogram.simulation_value;
                histogram.common.undefined = 0;
            }
            InputSource::Failed => is_read = false,
            InputSource::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        simulation::stamp(step);
        if is_read {
            step.lock().count();
        }
        step.post(Histogram::monitor);
        ProcessOutcome::done(is_read)
    }
}

impl Histogram {
    fn set_width(&mut self) {
        self.width = (self.high - self.low) / f64::from(self.n_bins);
    }

    /// Copies the counts to VAL.
    fn update_value(&mut self) {
        self.value = Array::U32(Arc::new(self.counts.clone()));
    }

    /// Replaces the first counts with the values that a client put; the others do not change.
    fn take_counts(&mut self) {
        if let Array::U32(put) = &self.value {
            self.counts.iter_mut().zip(put.iter()).for_each(|(count, put)| *count = *put);
        }
        self.update_value();
    }

    fn execute_command(&mut self) {
        match std::mem::take(&mut self.command) {
            ..=CLEAR => self.clear(),
            START => self.is_counting = 1,
            STOP => self.is_counting = 0,
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.update_value();
        self.n_since_post = self.monitor_deadband.wrapping_add(1);
        self.common.undefined = 0;
    }

    /// Counts the signal in its part of the range; a value on a border belongs to the lower part.
    ///
    /// Source: EPICS Base 7.0, add_count of histogramRecord; compared with softIoc 7.0.10.
    fn count(&mut self) {
        if self.is_counting == 0 {
            return;
        }
        if self.low >= self.high && self.common.new_severity < INVALID {
            // Base sets the alarm at once and posts nothing.
            self.common.status = Status::SOFT.0;
            self.common.severity = INVALID;
            return;
        }
        if !(self.low..self.high).contains(&self.signal) {
            return;
        }
        let offset = self.signal - self.low;
        let is_within = |bin: &u16| offset <= f64::from(*bin) * self.width;
        let bin = usize::from((1..self.n_bins).find(is_within).unwrap_or(self.n_bins)) - 1;
        let Some(count) = self.counts.get_mut(bin) else { return };
        // After the maximum the count continues with 1, as in Base.
        *count = count.checked_add(1).unwrap_or(1);
        if let Array::U32(shown) = &mut self.value
            && let Some(place) = Arc::make_mut(shown).get_mut(bin)
        {
            *place = *count;
        }
        self.n_since_post = self.n_since_post.wrapping_add(1);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mut changes = EventMask::NONE;
        if self.n_since_post > self.monitor_deadband {
            changes = CHANGED;
            self.n_since_post = 0;
        }
        post_value(self, changes, posts);
    }
}
