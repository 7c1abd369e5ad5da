//! Calendar: an event at the times of a rule in cron format.

use std::time::Instant;

use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, ToSpan, Zoned};

use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter,
    ValueKind, flag, number_or,
};
use crate::clock::LocalClock;
use crate::value::LuaValue;

/// Days in which the next run is searched: a rule for 29 February runs at least every eight years.
const SEARCH_DAYS: i64 = 8 * 366;

/// Minutes without a check after which the clock has been set: the runs between are not made up for.
const CATCH_UP_MINUTES: i64 = 30;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 15,
    name: "Calendar",
    version: 1,
    features: &[
        Feature::new(0, "Rule", ValueKind::Text, FeatureAccess::GetSet),
        Feature::number(1, "SinceLastRun").unit("min"),
        Feature::number(2, "ToNextRun").unit("min"),
        Feature::number(3, "State").unit("bool").choices(super::OFF_ON),
    ],
    methods: &[
        ObjectMethod::new(0, "Start"),
        ObjectMethod::new(1, "Stop"),
        ObjectMethod::with(3, "CancelNext", &[Parameter::new("count", ValueKind::Number, "")]),
    ],
    events: &[
        ObjectEvent::new(0, "OnCalendar"),
        ObjectEvent::new(1, "OnStart"),
        ObjectEvent::new(2, "OnStop"),
        ObjectEvent::new(3, "OnCancel"),
    ],
    create: |context| {
        let now = context.now();
        Box::new(Calendar {
            rule: None,
            text: String::new(),
            is_active: true,
            n_cancelled: 0,
            last_run: None,
            checked_minute: minute_of(context.world.clock.utc(now)),
            next_check: context.world.clock.next_minute(now),
        })
    },
};

/// It is active from the start, since Object Manager has no initial value for its state.
struct Calendar {
    rule: Option<CronRule>,
    /// The rule, or `ERROR` for an invalid one.
    text: String,
    is_active: bool,
    /// How many of the next runs are skipped.
    n_cancelled: u32,
    last_run: Option<Timestamp>,
    /// The last minute, counted from 1970, that was compared with the rule.
    checked_minute: i64,
    next_check: Instant,
}

impl Calendar {
    fn run(&mut self, at: Timestamp, context: &mut ObjectContext<'_>) {
        if self.n_cancelled > 0 {
            self.n_cancelled -= 1;
            return;
        }
        self.last_run = Some(at);
        context.fire(0);
    }
}

impl CluObject for Calendar {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        let now = context.world.clock.utc(context.now());
        let minutes_to = |at: Timestamp| LuaValue::Number((minute_of(at) - minute_of(now)).abs() as f64);
        match index {
            0 => self.text.as_str().into(),
            1 => self.last_run.map_or(LuaValue::Nil, minutes_to),
            2 => {
                let rule = self.rule.as_ref().filter(|_| self.is_active);
                let next = rule.and_then(|rule| rule.next_after(&context.world.clock, now, self.n_cancelled));
                next.map_or(LuaValue::Nil, minutes_to)
            }
            _ => flag(self.is_active),
        }
    }

    /// An invalid rule is refused; `Rule` then reads `ERROR`, as on a device.
    fn set(&mut self, _index: u16, value: LuaValue, _context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let text = value.to_text(Default::default());
        self.n_cancelled = 0;
        if text.trim().is_empty() {
            (self.rule, self.text) = (None, String::new());
            return Ok(());
        }
        self.rule = CronRule::parse(&text);
        if self.rule.is_none() {
            self.text = "ERROR".into();
            let reason = format!("\"{text}\" is not a rule of five fields, such as \"30 6 * * 1-5\"");
            return Err(ObjectError::Failed { reason });
        }
        self.text = text;
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        if index == 3 {
            let n_more = number_or(arguments, 0, 1.0);
            if !(1.0..=1000.0).contains(&n_more) {
                return Err(ObjectError::Failed { reason: "count must be between 1 and 1000".into() });
            }
            self.n_cancelled = (self.n_cancelled + n_more as u32).min(1000);
            context.fire(3);
        } else if (index == 0) != self.is_active {
            self.is_active = index == 0;
            context.fire(if self.is_active { 1 } else { 2 });
        }
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next_check)
    }

    /// Compares each minute since the last check with the rule.
    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now();
        self.next_check = context.world.clock.next_minute(now);
        let minute = minute_of(context.world.clock.utc(now));
        let last = self.checked_minute;
        self.checked_minute = minute;
        let Some(rule) = self.rule.filter(|_| self.is_active) else { return };
        let first = if (last..=last + CATCH_UP_MINUTES).contains(&minute) { last + 1 } else { minute };
        for minute in first..=minute {
            let Ok(at) = Timestamp::from_second(minute * 60) else { return };
            if rule.matches(&at.to_zoned(context.world.clock.zone().clone())) {
                self.run(at, context);
            }
        }
    }
}

fn minute_of(time: Timestamp) -> i64 {
    time.as_second().div_euclid(60)
}

/// A rule: minutes, hours, days of the month, months and days of the week, each as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CronRule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days of the month and of the week are restricted: one of them is sufficient, as for cron.
    is_either_day: bool,
}

impl CronRule {
    fn parse(text: &str) -> Option<CronRule> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let mut weekday_bits = bits_of(weekdays, 0, 7)?;
        // Sunday is 0 and 7.
        if weekday_bits & 1 << 7 != 0 {
            weekday_bits = (weekday_bits | 1) & !(1 << 7);
        }
        Some(CronRule {
            minutes: bits_of(minutes, 0, 59)?,
            hours: bits_of(hours, 0, 23)?,
            days: bits_of(days, 1, 31)?,
            months: bits_of(months, 1, 12)?,
            weekdays: weekday_bits,
            is_either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    fn matches(&self, local: &Zoned) -> bool {
        let (hour, minute) = (local.hour() as u32, local.minute() as u32);
        self.matches_date(local.date()) && self.hours >> hour & 1 == 1 && self.minutes >> minute & 1 == 1
    }

    fn matches_date(&self, date: Date) -> bool {
        let is_day = self.days >> (date.day() as u32) & 1 == 1;
        let is_weekday = self.weekdays >> (date.weekday().to_sunday_zero_offset() as u32) & 1 == 1;
        let is_date = if self.is_either_day { is_day || is_weekday } else { is_day && is_weekday };
        self.months >> (date.month() as u32) & 1 == 1 && is_date
    }

    /// The first run after a time, not counting the first `n_skipped`.
    fn next_after(&self, clock: &LocalClock, now: Timestamp, mut n_skipped: u32) -> Option<Timestamp> {
        let zone = clock.zone();
        let today = now.to_zoned(zone.clone()).date();
        for offset in 0..SEARCH_DAYS {
            let date = today.checked_add(offset.days()).ok()?;
            if !self.matches_date(date) {
                continue;
            }
            for minute in 0..24 * 60 {
                if self.hours >> (minute / 60) & 1 == 0 || self.minutes >> (minute % 60) & 1 == 0 {
                    continue;
                }
                let civil: DateTime = date.at((minute / 60) as i8, (minute % 60) as i8, 0, 0);
                let at = civil.to_zoned(zone.clone()).ok()?.timestamp();
                if at <= now {
                    continue;
                }
                match n_skipped.checked_sub(1) {
                    Some(left) => n_skipped = left,
                    None => return Some(at),
                }
            }
        }
        None
    }
}

/// The bits of a field: `*`, numbers, ranges and steps, separated by commas.
fn bits_of(field: &str, min: u32, max: u32) -> Option<u64> {
    let mut bits = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (min, max),
            (_, Some((first, last))) => (first.parse().ok()?, last.parse().ok()?),
            (number, None) => {
                let number = number.parse().ok()?;
                (number, if part.contains('/') { max } else { number })
            }
        };
        if first < min || last > max || first > last {
            return None;
        }
        for number in (first..=last).step_by(step) {
            bits |= 1 << number;
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(rule: &str, zone: &str, now: &str) -> String {
        let clock = LocalClock::new(zone).unwrap();
        let next = CronRule::parse(rule).unwrap().next_after(&clock, now.parse().unwrap(), 0);
        next.map_or("never".into(), |at| at.to_zoned(clock.zone().clone()).strftime("%F %H:%M").to_string())
    }

    #[test]
    fn the_next_run_follows_the_rule() {
        let now = "2027-01-15T08:00:30Z";

        assert_eq!(next("* * * * *", "UTC", now), "2027-01-15 08:01");
        assert_eq!(next("*/15 * * * *", "UTC", now), "2027-01-15 08:15");
        assert_eq!(next("0 8 * * *", "UTC", now), "2027-01-16 08:00");
        assert_eq!(next("30 6 * * 1-5", "UTC", now), "2027-01-18 06:30");
        assert_eq!(next("0 0 29 2 *", "UTC", now), "2028-02-29 00:00");
        assert_eq!(next("0 0 13 * 7", "UTC", now), "2027-01-17 00:00");
        assert_eq!(next("0 0 31 2 *", "UTC", now), "never");
        assert_eq!(next("0 9 * * *", "Europe/Warsaw", now), "2027-01-16 09:00");
    }

    #[test]
    fn a_time_that_the_start_of_summer_time_skips_runs_after_it() {
        assert_eq!(next("30 2 * * *", "Europe/Warsaw", "2027-03-27T12:00:00Z"), "2027-03-28 03:30");
    }

    #[test]
    fn invalid_rules_are_refused() {
        for rule in ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "a * * * *"]
        {
            assert_eq!(CronRule::parse(rule), None, "{rule}");
        }
    }
}
