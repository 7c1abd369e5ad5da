//! Breakpoint tables: conversion between raw counts and engineering units by linear interpolation.

use std::sync::Arc;

/// The table of a `breaktable` statement; at least two points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BreakTable {
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    raw: f64,
    units: f64,
    /// The slope of the line to the next point; the last point has the slope of the previous one.
    slope: f64,
}

/// The table that a record converts with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectedTable(Option<Arc<BreakTable>>);

impl SelectedTable {
    /// Returns the table to use: `found`, if LINR changed (`is_new`), else the present one. If the table is missing,
    /// this conversion fails and the previous table is kept, as in Base.
    pub(crate) fn renew(
        &mut self,
        found: Option<&Arc<BreakTable>>,
        is_new: bool,
        place: &mut i16,
    ) -> Option<Arc<BreakTable>> {
        if is_new || self.0.is_none() {
            self.0 = Some(found?.clone());
            *place = 0;
        }
        self.0.clone()
    }
}

/// A converted value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Converted {
    pub(crate) value: f64,
    /// Whether the value is between the ends of the table.
    pub(crate) is_inside: bool,
}

impl BreakTable {
    /// Makes a table of pairs: raw, units. The error describes invalid pairs.
    pub(crate) fn new(numbers: &[f64]) -> Result<BreakTable, &'static str> {
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("the last raw value has no value in engineering units");
        }
        let mut points: Vec<Point> = Vec::with_capacity(pairs.len());
        for &[raw, units] in pairs {
            if let Some(last) = points.last_mut() {
                last.slope = (units - last.units) / (raw - last.raw);
            }
            points.push(Point { raw, units, slope: 0.0 });
        }
        let [first, .., last] = points.as_mut_slice() else { return Err("fewer than two points") };
        let slope = first.slope;
        last.slope = slope;
        let lines = points.len() - 1;
        if points.iter().take(lines).any(|point| !point.slope.is_finite() || point.slope == 0.0) {
            return Err("two successive points have the same raw value or the same value in engineering units");
        }
        if points.iter().take(lines).any(|point| (point.slope < 0.0) != (slope < 0.0)) {
            return Err("the values must either all increase or all decrease");
        }
        if let [.., before, last] = points.as_mut_slice() {
            last.slope = before.slope;
        }
        Ok(BreakTable { points })
    }

    /// Converts raw counts to engineering units. `place`: LBRK, the index of the line that was used last; updated.
    ///
    /// Source: EPICS Base 7.0, cvtRawToEngBpt.
    pub(crate) fn to_units(&self, raw: f64, place: &mut i16) -> Converted {
        let (point, is_inside) = self.find(raw, |point| point.raw, place);
        Converted { value: point.units + (raw - point.raw) * point.slope, is_inside }
    }

    /// Converts engineering units to raw counts. Source: EPICS Base 7.0, cvtEngToRawBpt.
    pub(crate) fn to_raw(&self, units: f64, place: &mut i16) -> Converted {
        let (point, is_inside) = self.find(units, |point| point.units, place);
        Converted { value: point.raw + (units - point.units) / point.slope, is_inside }
    }

    /// Finds the first point of the line that contains a value.
    fn find(&self, value: f64, coordinate: fn(&Point) -> f64, place: &mut i16) -> (Point, bool) {
        let last = self.points.len() - 1;
        let mut index = usize::try_from(*place).unwrap_or(0).min(last - 1);
        let at = |index: usize| self.points.get(index).map_or(f64::NAN, coordinate);
        let is_rising = at(index + 1) > at(index);
        let is_beyond = |bound: f64| if is_rising { value > bound } else { value <= bound };
        let is_before = |bound: f64| if is_rising { value < bound } else { value > bound };
        let mut is_inside = true;
        while is_inside && is_beyond(at(index + 1)) {
            index += 1;
            is_inside = index < last;
        }
        while is_inside && is_before(at(index)) {
            is_inside = index > 0;
            index = index.saturating_sub(1);
        }
        *place = index as i16;
        let point = self.points.get(index).copied().unwrap_or(Point { raw: 0.0, units: 0.0, slope: 1.0 });
        (point, is_inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_tables_must_be_strictly_monotonic() {
        assert!(BreakTable::new(&[0.0, 0.0, 1.0]).is_err());
        assert!(BreakTable::new(&[0.0, 0.0]).is_err());
        assert!(BreakTable::new(&[0.0, 0.0, 1.0, 1.0, 2.0, 0.0]).is_err());
        assert!(BreakTable::new(&[0.0, 0.0, 0.0, 1.0]).is_err());
        assert!(BreakTable::new(&[0.0, 0.0, 1.0, 1.0, 3.0, 2.0]).is_ok());
    }

    #[test]
    fn values_convert_on_the_line_between_the_points_around_them() {
        for numbers in [[0.0, 0.0, 10.0, 100.0, 20.0, 120.0], [0.0, 0.0, 10.0, -100.0, 20.0, -120.0]] {
            let table = BreakTable::new(&numbers).unwrap();
            let sign = numbers[3].signum();
            for (raw, units, place, is_inside) in [
                (0.0, 0.0, 0, true),
                (5.0, 50.0, 0, true),
                (15.0, 110.0, 1, true),
                (-1.0, -10.0, 0, false),
                (25.0, 130.0, 2, false),
            ] {
                for start in [0, 1, 99, -1] {
                    let (mut raw_place, mut units_place) = (start, start);
                    let expected_units = Converted { value: units * sign, is_inside };

                    assert_eq!(table.to_units(raw, &mut raw_place), expected_units, "{raw} from {start}");
                    let back = table.to_raw(units * sign, &mut units_place);
                    assert_eq!(back, Converted { value: raw, is_inside }, "{units} from {start}");
                    assert_eq!((raw_place, units_place), (place, place), "{raw} from {start}");
                }
            }
        }
    }
}
