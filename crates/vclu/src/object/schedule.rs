//! A weekly schedule: a value for each quarter of an hour.

use jiff::Zoned;

const SLOTS_PER_DAY: usize = 96;

const SLOTS: usize = 7 * SLOTS_PER_DAY;

/// The values of a week. The text has entries `DAYS HH:MM VALUE` separated by `;`: from this time on these days, the value
/// applies until the next entry. Days are 1 (Monday) to 7, as a list with ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeekSchedule {
    pub text: String,
    /// Empty, or one value for each slot.
    slots: Vec<f64>,
}

impl WeekSchedule {
    /// Parses a text. Returns what is wrong.
    pub fn parse(text: &str) -> Result<WeekSchedule, String> {
        let mut starts = vec![None; SLOTS];
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (days, slot, value) = parse_entry(entry)
                .ok_or_else(|| format!("\"{entry}\" is not of the form DAYS HH:MM VALUE, such as 1-5 06:15 21.5"))?;
            for day in days {
                if let Some(start) = starts.get_mut(day * SLOTS_PER_DAY + slot) {
                    *start = Some(value);
                }
            }
        }
        // The week starts with the value with which it ends.
        let Some(mut current) = starts.iter().rev().find_map(|start| *start) else {
            return Ok(WeekSchedule { text: text.to_string(), slots: Vec::new() });
        };
        let fill = |start: Option<f64>| {
            current = start.unwrap_or(current);
            current
        };
        Ok(WeekSchedule { text: text.to_string(), slots: starts.into_iter().map(fill).collect() })
    }

    /// The value at a local time; `None` for a schedule without entries.
    pub fn value_at(&self, local: &Zoned) -> Option<f64> {
        let day = local.weekday().to_monday_zero_offset() as usize;
        let quarter = local.hour() as usize * 4 + local.minute() as usize / 15;
        self.slots.get(day * SLOTS_PER_DAY + quarter).copied()
    }
}

fn parse_entry(entry: &str) -> Option<(Vec<usize>, usize, f64)> {
    let mut parts = entry.split_whitespace();
    let (days, time, value) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (usize, usize) = (hour.parse().ok()?, minute.parse().ok()?);
    let value: f64 = value.parse().ok()?;
    let is_valid = hour < 24 && minute < 60 && minute.is_multiple_of(15) && value.is_finite();
    let mut all_days = Vec::new();
    for part in days.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first < 1 || last > 7 || first > last {
            return None;
        }
        all_days.extend(first - 1..last);
    }
    is_valid.then_some((all_days, hour * 4 + minute / 15, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(schedule: &WeekSchedule, local: &str) -> Option<f64> {
        schedule.value_at(&format!("{local}[UTC]").parse().unwrap())
    }

    #[test]
    fn a_value_applies_until_the_next_entry_and_over_the_end_of_the_week() {
        let schedule = WeekSchedule::parse("1-5 06:00 21; 1-5 22:00 17; 6,7 08:15 20.5").unwrap();

        // 2027-01-11 is a Monday.
        assert_eq!(at(&schedule, "2027-01-11T05:59"), Some(20.5));
        assert_eq!(at(&schedule, "2027-01-11T06:00"), Some(21.0));
        assert_eq!(at(&schedule, "2027-01-12T23:00"), Some(17.0));
        assert_eq!(at(&schedule, "2027-01-16T08:14"), Some(17.0));
        assert_eq!(at(&schedule, "2027-01-17T23:59"), Some(20.5));
    }

    #[test]
    fn a_schedule_without_entries_has_no_value() {
        assert_eq!(at(&WeekSchedule::parse(" ; ").unwrap(), "2027-01-11T06:00"), None);
    }

    #[test]
    fn an_invalid_entry_is_named() {
        for entry in ["1 24:00 5", "0 06:00 5", "5-1 06:00 5", "1 06:10 5", "1 06:00", "1 06:00 x", "1 06:00 5 6"] {
            let error = WeekSchedule::parse(&format!("1-7 01:00 1;{entry}")).unwrap_err();
            assert!(error.contains(entry), "{error}");
        }
    }
}
