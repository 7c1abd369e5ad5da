//! The filters of one channel, with their state.

use fodo_data::{Array, EventMask, Kind, Reading, Scalar, Value};

use super::{Filter, FilterContext, SyncMode, TimeFormat, time};
use crate::reference::FieldFacts;
use crate::state::DbState;

const CHANGED: EventMask = EventMask::VALUE.with(EventMask::LOG);

/// The filters of one channel, with their state.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterChain {
    /// The filters that drop updates or change time stamps. As in Base, all of them run before the others.
    update_filters: Vec<UpdateFilter>,
    value_filters: Vec<ValueFilter>,
}

/// A filter that drops updates, or changes their time stamp.
#[derive(Clone, Debug, PartialEq)]
enum UpdateFilter {
    Deadband { by: f64, is_relative: bool, last: f64, band: f64 },
    Stamp,
    Sync { mode: SyncMode, state: DbState, was_on: bool, last: Option<(EventMask, Reading)> },
    Decimate { n: i32, place: i32 },
    Tag { mask: i32, value: i32, is_first: bool },
}

/// A filter that converts the value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ValueFilter {
    Slice { start: i32, step: i32, end: i32 },
    Time { form: TimeFormat, is_unix: bool },
}

impl FilterChain {
    /// Makes the filters of a new channel. `facts` are the properties of the field; they become those of the channel.
    pub fn new(filters: Vec<Filter>, facts: &mut FieldFacts) -> FilterChain {
        let mut chain = FilterChain { update_filters: Vec::new(), value_filters: Vec::new() };
        for filter in filters {
            match filter {
                // A slice of a scalar has no effect.
                Filter::Slice { .. } if facts.count_max <= 1 => {}
                Filter::Slice { start, step, end } => {
                    facts.count_max = cut_max(start, step, end, facts.count_max as usize) as u32;
                    chain.value_filters.push(ValueFilter::Slice { start, step, end });
                }
                Filter::Time { form, is_unix } => {
                    (facts.kind, facts.count_max) = match form {
                        TimeFormat::Double => (Kind::F64, 1),
                        TimeFormat::Seconds | TimeFormat::Nanos => (Kind::U32, 1),
                        TimeFormat::Both => (Kind::U32, 2),
                        TimeFormat::EpicsText | TimeFormat::IsoText => (Kind::Text, 1),
                    };
                    chain.value_filters.push(ValueFilter::Time { form, is_unix });
                }
                Filter::Deadband { by, is_relative } => {
                    chain.update_filters.push(UpdateFilter::Deadband { by, is_relative, last: f64::NAN, band: by });
                }
                Filter::Stamp => chain.update_filters.push(UpdateFilter::Stamp),
                Filter::Sync { mode, state } => {
                    chain.update_filters.push(UpdateFilter::Sync { mode, state, was_on: false, last: None });
                }
                Filter::Decimate { n } => chain.update_filters.push(UpdateFilter::Decimate { n, place: 0 }),
                Filter::Tag { mask, value } => {
                    chain.update_filters.push(UpdateFilter::Tag { mask, value, is_first: true })
                }
            }
        }
        chain
    }

    /// Filters the reading of a get. No reading is dropped, and the state does not change.
    pub fn read(&self, mut reading: Reading, moment: &FilterContext) -> Reading {
        if self.update_filters.contains(&UpdateFilter::Stamp) {
            reading.time = moment.now;
        }
        self.shape(reading, moment)
    }

    /// Filters an update. Returns the update, an earlier one in its place, or `None`.
    pub fn update(
        &mut self,
        mask: EventMask,
        reading: Reading,
        moment: &FilterContext,
    ) -> Option<(EventMask, Reading)> {
        let (mask, reading) = self
            .update_filters
            .iter_mut()
            .try_fold((mask, reading), |(mask, reading), gate| gate.pass(mask, reading, moment))?;
        Some((mask, self.shape(reading, moment)))
    }

    fn shape(&self, mut reading: Reading, moment: &FilterContext) -> Reading {
        for shape in &self.value_filters {
            reading.value = match *shape {
                ValueFilter::Slice { start, step, end } => match &reading.value {
                    Value::Array(array) => Value::Array(slice(array, start, step, end)),
                    Value::Scalar(_) => reading.value,
                },
                ValueFilter::Time { form, is_unix } => time::value(form, is_unix, reading.time, moment.site),
            };
        }
        reading
    }
}

impl UpdateFilter {
    fn pass(&mut self, mask: EventMask, mut reading: Reading, moment: &FilterContext) -> Option<(EventMask, Reading)> {
        let is_property = mask.meets(EventMask::PROPERTY);
        match self {
            UpdateFilter::Deadband { by, is_relative, last, band } => {
                let Some(value) = number(&reading.value) else { return Some((mask, reading)) };
                let mut passed = EventMask(mask.0 & !CHANGED.0);
                if distance(*last, value) > *band {
                    passed = mask;
                    *last = value;
                }
                if passed.is_empty() {
                    return None;
                }
                if *is_relative {
                    *band = value * *by / 100.0;
                }
                return Some((passed, reading));
            }
            UpdateFilter::Stamp => reading.time = moment.now,
            UpdateFilter::Sync { .. } | UpdateFilter::Decimate { .. } | UpdateFilter::Tag { .. } if is_property => {}
            UpdateFilter::Sync { mode, state, was_on, last } => {
                let is_on = state.is_on();
                let (went_on, went_off) = (is_on && !*was_on, !is_on && *was_on);
                *was_on = is_on;
                return match mode {
                    SyncMode::Before => last.replace((mask, reading)).filter(|_| went_on),
                    SyncMode::Last => last.replace((mask, reading)).filter(|_| went_off),
                    SyncMode::First => went_on.then_some((mask, reading)),
                    SyncMode::After => went_off.then_some((mask, reading)),
                    SyncMode::While => is_on.then_some((mask, reading)),
                    SyncMode::Unless => (!is_on).then_some((mask, reading)),
                };
            }
            UpdateFilter::Decimate { n, place } => {
                let is_passed = *place == 0;
                *place = (*place + 1) % *n;
                return is_passed.then_some((mask, reading));
            }
            UpdateFilter::Tag { mask: bits, value, is_first } => {
                // As in Base, the 32-bit arguments are sign-extended to the 64 bits of the tag.
                let is_match = moment.user_tag & i64::from(*bits).cast_unsigned() == i64::from(*value).cast_unsigned();
                if !std::mem::take(is_first) && !is_match {
                    return None;
                }
            }
        }
        Some((mask, reading))
    }
}

/// The number that a deadband compares; `None` for arrays and texts, which always pass.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Scalar(Scalar::Text(_)) | Value::Array(_) => None,
        Value::Scalar(scalar) => scalar.to_f64().ok(),
    }
}

/// The size of a change; infinite if one value is NaN or infinite and the other is not the same.
///
/// Source: EPICS Base 7.0, recGblCheckDeadband.
fn distance(last: f64, value: f64) -> f64 {
    if last.is_finite() && value.is_finite() {
        return (last - value).abs();
    }
    let is_same_kind = last.is_nan() == value.is_nan() && last.is_infinite() == value.is_infinite();
    if is_same_kind && (value.is_nan() || last == value) { 0.0 } else { f64::INFINITY }
}

/// The start of a slice in an array of `length`, and its number of elements.
fn cut(start: i32, step: i32, end: i32, length: usize) -> (usize, usize) {
    let length = length as i64;
    let from_end = |index: i32| {
        let index = i64::from(index);
        if index < 0 { (length + index).max(0) } else { index }
    };
    let (start, end) = (from_end(start).min(length), from_end(end).min(length - 1));
    let n = if end >= start { 1 + (end - start) / i64::from(step.max(1)) } else { 0 };
    (start as usize, n as usize)
}

/// The maximum number of elements of a slice, for arrays up to a length. If the start counts from the end and the end
/// from the start, the slice can be longer in a shorter array.
fn cut_max(start: i32, step: i32, end: i32, length_max: usize) -> usize {
    let met = if start < 0 { length_max.min(start.unsigned_abs() as usize) } else { length_max };
    let n = |length| cut(start, step, end, length).1;
    n(length_max).max(n(met))
}

fn slice(array: &Array, start: i32, step: i32, end: i32) -> Array {
    let (start, n) = cut(start, step, end, array.len());
    array.strided(start, step.unsigned_abs() as usize, n)
}

#[cfg(test)]
mod tests {
    use fodo_data::TimeStamp;

    use super::*;
    use crate::filter::filters;
    use crate::site::DefaultSite;
    use crate::state::States;

    const VALUE: EventMask = EventMask::VALUE;
    const ALARM: EventMask = EventMask::ALARM;
    const PROPERTY: EventMask = EventMask::PROPERTY;

    fn moment() -> FilterContext<'static> {
        FilterContext { now: TimeStamp { unix_s: 1_800_000_000, nanos: 5 }, user_tag: 0, site: &DefaultSite }
    }

    fn chain_of(text: &str, states: &States, kind: Kind, count_max: u32) -> (FilterChain, FieldFacts) {
        let mut facts = FieldFacts { kind, count_max, is_read_only: false, record_type: "any" };
        let chain = FilterChain::new(filters(text, 0, states).unwrap(), &mut facts);
        (chain, facts)
    }

    fn scalar_chain(text: &str) -> FilterChain {
        chain_of(text, &States::default(), Kind::F64, 1).0
    }

    /// The updates that pass.
    fn passed(chain: &mut FilterChain, updates: &[(EventMask, f64)]) -> Vec<(EventMask, f64)> {
        let passed = updates.iter().filter_map(|(mask, value)| {
            let (mask, reading) = chain.update(*mask, Reading::bare(Value::from(*value)), &moment())?;
            Some((mask, number(&reading.value)?))
        });
        passed.collect()
    }

    fn values(chain: &mut FilterChain, values: &[f64]) -> Vec<f64> {
        let updates: Vec<(EventMask, f64)> = values.iter().map(|value| (VALUE, *value)).collect();
        passed(chain, &updates).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_deadband_filter_passes_values_that_change_by_more_than_the_deadband() {
        let mut absolute = scalar_chain("{dbnd:{abs:1.5}}");
        let mut relative = scalar_chain("{dbnd:{rel:50}}");

        assert_eq!(values(&mut absolute, &[0.0, 1.5, 1.6, 1.6, f64::NAN, f64::NAN, 1.6]).len(), 4);
        assert_eq!(values(&mut relative, &[10.0, 14.0, 16.0, 23.0, 25.0]), [10.0, 16.0, 25.0]);
    }

    #[test]
    fn a_deadband_filter_passes_alarm_and_property_updates_without_the_value_event() {
        let mut chain = scalar_chain("{dbnd:{abs:5}}");
        let updates = [(VALUE, 0.0), (VALUE | ALARM, 1.0), (PROPERTY, 2.0), (VALUE, 4.0), (VALUE | ALARM, 9.0)];

        let passed = passed(&mut chain, &updates);

        assert_eq!(passed, [(VALUE, 0.0), (ALARM, 1.0), (PROPERTY, 2.0), (VALUE | ALARM, 9.0)]);
    }

    #[test]
    fn a_decimation_filter_passes_every_nth_value_and_all_property_updates() {
        let mut chain = scalar_chain("{dec:{n:3}}");

        assert_eq!(values(&mut chain, &[0.0, 1.0, 2.0, 3.0, 4.0]), [0.0, 3.0]);
        assert_eq!(passed(&mut chain, &[(PROPERTY, 5.0), (VALUE, 6.0)]), [(PROPERTY, 5.0)]);
    }

    #[test]
    fn each_sync_filter_mode_passes_its_updates_around_a_state_change() {
        let part = |mode: &str| {
            let states = States::default();
            let state = states.create("on");
            let (mut chain, _) = chain_of(&format!("{{sync:{{m:'{mode}',s:'on'}}}}"), &states, Kind::F64, 1);
            let mut all = Vec::new();
            for (is_on, updates) in [(false, [1.0, 2.0]), (true, [3.0, 4.0]), (false, [5.0, 6.0])] {
                state.set(is_on);
                all.extend(values(&mut chain, &updates));
            }
            all
        };

        assert_eq!(part("before"), [2.0]);
        assert_eq!(part("first"), [3.0]);
        assert_eq!(part("last"), [4.0]);
        assert_eq!(part("after"), [5.0]);
        assert_eq!(part("while"), [3.0, 4.0]);
        assert_eq!(part("unless"), [1.0, 2.0, 5.0, 6.0]);
    }

    #[test]
    fn a_utag_filter_compares_tags_after_the_first_update() {
        let mut chain = scalar_chain("{utag:{M:0xf,V:2}}");
        let mut update = |user_tag| {
            let moment = FilterContext { user_tag, ..moment() };
            chain.update(VALUE, Reading::bare(Value::from(1.0)), &moment).is_some()
        };

        assert_eq!([1, 1, 0x12, 2, 3].map(&mut update), [true, false, true, true, false]);
    }

    #[test]
    fn an_array_filter_slices_values_and_the_channel_reports_the_maximum_count() {
        let cut = |text: &str, elements: &[i32]| {
            let (chain, facts) = chain_of(text, &States::default(), Kind::I32, 10);
            let Value::Array(Array::I32(part)) =
                chain.read(Reading::bare(Value::from(elements.to_vec())), &moment()).value
            else {
                panic!("no array")
            };
            (facts.count_max, part.to_vec())
        };

        assert_eq!(cut("[2:4]", &[0, 1, 2, 3, 4, 5]), (3, vec![2, 3, 4]));
        assert_eq!(cut("[-3:-1]", &[0, 1, 2, 3, 4, 5]), (3, vec![3, 4, 5]));
        assert_eq!(cut("[1:2:-1]", &[0, 1, 2, 3, 4, 5]), (5, vec![1, 3, 5]));
        assert_eq!(cut("[4]", &[0, 1]), (1, vec![]));
        assert_eq!(cut("[0:1]", &[0, 1, 2]), (2, vec![0, 1]));
        assert_eq!(cut("[0:0]", &[0, 1, 2]), (1, vec![0]));
        assert_eq!(cut("[-3:0]", &[0, 1, 2]), (1, vec![0]));
        assert_eq!(cut("[-9:9]", &[0, 1, 2]), (9, vec![0, 1, 2]));
        assert_eq!(cut("[2:2]", &[0, 1, 2]), (1, vec![2]));
        assert_eq!(cut("[5:2]", &[0, 1, 2, 3, 4, 5]), (0, vec![]));
        assert_eq!(cut("[-4:2]", &[0, 1, 2, 3]), (3, vec![0, 1, 2]));
        assert_eq!(cut("[2:6]{arr:{s:-2}}", &[0, 1, 2, 3, 4]), (2, vec![3, 4]));
    }

    #[test]
    fn a_ts_filter_returns_the_time_stamp_as_value_or_sets_the_current_time() {
        let time = TimeStamp { unix_s: 1_700_000_000, nanos: 250_000_000 };
        let reading = Reading { time, ..Reading::bare(Value::from(1.0)) };
        let (chain, facts) = chain_of("{ts:{num:'dbl',epoch:'unix'}}", &States::default(), Kind::Text, 40);

        let read = chain.read(reading.clone(), &moment());
        let stamped = scalar_chain("{ts:{}}").read(reading, &moment());

        assert_eq!((facts.kind, facts.count_max), (Kind::F64, 1));
        assert_eq!((read.value, read.time), (Value::from(1_700_000_000.25), time));
        assert_eq!((stamped.value, stamped.time), (Value::from(1.0), moment().now));
    }

    #[test]
    fn property_updates_pass_the_filters_of_states_and_tags_and_texts_and_arrays_pass_a_deadband() {
        let states = States::default();
        states.create("off");
        let (mut sync, _) = chain_of("{sync:{m:'while',s:'off'}}", &states, Kind::F64, 1);
        let mut tag = scalar_chain("{utag:{M:1,V:1}}");
        let mut deadband = scalar_chain("{dbnd:{abs:5}}");
        assert_eq!(values(&mut tag, &[0.0]), [0.0], "the first update");

        assert_eq!(passed(&mut sync, &[(VALUE, 1.0), (PROPERTY, 2.0)]), [(PROPERTY, 2.0)]);
        assert_eq!(passed(&mut tag, &[(VALUE, 1.0), (PROPERTY, 2.0)]), [(PROPERTY, 2.0)]);
        for value in [Value::from("text"), Value::from(vec![1.0, 2.0])] {
            for _ in 0..2 {
                assert!(deadband.update(VALUE, Reading::bare(value.clone()), &moment()).is_some());
            }
        }
    }

    #[test]
    fn infinite_values_change_only_if_the_sign_or_the_kind_changes() {
        use std::f64::consts::PI;
        const INFINITE: f64 = f64::INFINITY;
        for (last, value, expected) in [
            (INFINITE, INFINITE, 0.0),
            (-INFINITE, INFINITE, INFINITE),
            (INFINITE, PI, INFINITE),
            (PI, f64::NAN, INFINITE),
            (f64::NAN, f64::NAN, 0.0),
            (f64::NAN, INFINITE, INFINITE),
            (1.0, -2.5, 3.5),
        ] {
            assert_eq!(distance(last, value), expected, "{last} {value}");
        }
    }

    #[test]
    fn each_format_of_a_time_stamp_has_its_kind_and_count() {
        let facts = |text: &str| {
            let (_, facts) = chain_of(text, &States::default(), Kind::I32, 10);
            (facts.kind, facts.count_max)
        };

        assert_eq!(facts("{ts:{num:'sec'}}"), (Kind::U32, 1));
        assert_eq!(facts("{ts:{num:'nsec'}}"), (Kind::U32, 1));
        assert_eq!(facts("{ts:{num:'ts'}}"), (Kind::U32, 2));
        assert_eq!(facts("{ts:{str:'iso'}}"), (Kind::Text, 1));
        assert_eq!(facts("{ts:{}}"), (Kind::I32, 10));
    }

    #[test]
    fn a_slice_of_a_scalar_field_has_no_effect() {
        let (chain, facts) = chain_of("[1:2]", &States::default(), Kind::I32, 1);

        assert_eq!((facts.count_max, chain.value_filters.len()), (1, 0));
        assert_eq!(chain.read(Reading::bare(Value::from(7)), &moment()).value, Value::from(7));
    }
}
