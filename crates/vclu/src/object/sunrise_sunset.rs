//! SunriseSunsetCalendar: events at sunrise and sunset of a place.

use std::time::Instant;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::{CluObject, Feature, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, flag};
use crate::value::LuaValue;

/// What the texts of a time are where the sun does not rise or set.
const NOT_AVAILABLE: &str = "N\\A";

/// Minutes without a check after which the clock has been set: the events between are not made up for.
const CATCH_UP_S: i64 = 30 * 60;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 39,
    name: "SunriseSunsetCalendar",
    version: 3,
    features: &[
        Feature::number(0, "Longitude").range(-180.0, 180.0).settable(),
        Feature::number(1, "Latitude").range(-90.0, 90.0).settable(),
        Feature::number(2, "State").choices(super::OFF_ON).settable(),
        Feature::text(3, "SunriseUTC"),
        Feature::text(4, "SunsetUTC"),
        Feature::text(5, "SunriseLocal"),
        Feature::text(6, "SunsetLocal"),
        Feature::number(7, "SunriseUTCTimestamp").unit("s"),
        Feature::number(8, "SunsetUTCTimestamp").unit("s"),
        Feature::number(9, "SunriseLocalTimestamp").unit("s"),
        Feature::number(10, "SunsetLocalTimestamp").unit("s"),
        Feature::number(11, "IsDayNow").choices(&[(-1.0, "Unknown"), (0.0, "Night"), (1.0, "Day")]),
        Feature::number(12, "SunriseOffset").range(-1439.0, 1439.0).unit("m").settable(),
        Feature::number(13, "SunsetOffset").range(-1439.0, 1439.0).unit("m").settable(),
        Feature::number(14, "NextSunrise").unit("m"),
        Feature::number(15, "NextSunset").unit("m"),
    ],
    methods: &[ObjectMethod::new(0, "Start"), ObjectMethod::new(1, "Stop")],
    events: &[
        ObjectEvent::new(0, "OnStart"),
        ObjectEvent::new(1, "OnStop"),
        ObjectEvent::new(2, "OnSunrise"),
        ObjectEvent::new(3, "OnSunset"),
        ObjectEvent::new(4, "OnSunriseSunsetChange"),
        ObjectEvent::new(5, "OnDay"),
        ObjectEvent::new(6, "OnNight"),
    ],
    create: |context| {
        let now = context.now();
        Box::new(SunriseSunset {
            longitude: 0.0,
            latitude: 0.0,
            is_active: false,
            sunrise_offset_min: 0.0,
            sunset_offset_min: 0.0,
            checked_s: context.world.clock.utc(now).as_second(),
            was_day: None,
            next_check: context.world.clock.next_minute(now),
        })
    },
};

struct SunriseSunset {
    longitude: f64,
    latitude: f64,
    is_active: bool,
    /// Minutes by which the events are later than the sun; the features are not shifted.
    sunrise_offset_min: f64,
    sunset_offset_min: f64,
    /// The time up to which events were fired.
    checked_s: i64,
    was_day: Option<bool>,
    next_check: Instant,
}

#[derive(Clone, Copy, PartialEq)]
enum SunEvent {
    Sunrise,
    Sunset,
}

impl SunriseSunset {
    /// The time of an event on a local date; `None` where the sun does not rise or set.
    fn event_at(&self, event: SunEvent, date: Date) -> Option<i64> {
        let (sunrise, sunset) = sun_times(date, self.latitude, self.longitude)?;
        Some(if event == SunEvent::Sunrise { sunrise } else { sunset })
    }

    /// The events of the days around a date, in seconds since 1970, unshifted.
    fn events_around(&self, event: SunEvent, date: Date) -> impl Iterator<Item = i64> {
        let dates = (-2..=2).filter_map(move |offset: i64| date.checked_add(offset.days()).ok());
        dates.filter_map(move |date| self.event_at(event, date))
    }

    fn is_day(&self, now_s: i64, date: Date) -> Option<bool> {
        self.event_at(SunEvent::Sunrise, date)?;
        let last_sunrise = self.events_around(SunEvent::Sunrise, date).filter(|at| *at <= now_s).max()?;
        let last_sunset = self.events_around(SunEvent::Sunset, date).filter(|at| *at <= now_s).max()?;
        Some(last_sunrise > last_sunset)
    }

    fn minutes_to_next(&self, event: SunEvent, now_s: i64, date: Date) -> f64 {
        let next = self.events_around(event, date).filter(|at| *at > now_s).min();
        next.map_or(-1.0, |at| ((at - now_s) as f64 / 60.0).ceil())
    }

    /// Fires the events since the last check.
    fn check(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now();
        self.next_check = context.world.clock.next_minute(now);
        let local = context.world.clock.local(now);
        let (now_s, date) = (local.timestamp().as_second(), local.date());
        let last_s = std::mem::replace(&mut self.checked_s, now_s);
        if !self.is_active {
            return;
        }
        if (last_s..=last_s + CATCH_UP_S).contains(&now_s) {
            let offsets =
                [(SunEvent::Sunrise, self.sunrise_offset_min, 2), (SunEvent::Sunset, self.sunset_offset_min, 3)];
            for (event, offset_min, address) in offsets {
                let offset_s = (offset_min * 60.0) as i64;
                let is_over = |at: i64| last_s < at + offset_s && at + offset_s <= now_s;
                if self.events_around(event, date).any(is_over) {
                    context.fire(address);
                    context.fire(4);
                }
            }
        }
        let is_day = self.is_day(now_s, date);
        match (self.was_day, is_day) {
            (Some(false), Some(true)) => context.fire(5),
            (Some(true), Some(false)) => context.fire(6),
            _ => {}
        }
        self.was_day = is_day;
    }

    fn set_active(&mut self, is_active: bool, context: &mut ObjectContext<'_>) {
        if is_active != self.is_active {
            self.is_active = is_active;
            context.fire(if is_active { 0 } else { 1 });
            let local = context.world.clock.local(context.now());
            self.was_day = self.is_day(local.timestamp().as_second(), local.date());
            self.checked_s = local.timestamp().as_second();
        }
    }
}

impl CluObject for SunriseSunset {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        let local = context.world.clock.local(context.now());
        let (now_s, date) = (local.timestamp().as_second(), local.date());
        let event = if index % 2 == 1 { SunEvent::Sunrise } else { SunEvent::Sunset };
        let at = self.event_at(event, date).and_then(|at| Timestamp::from_second(at).ok());
        let text_in = |zone: TimeZone| match at {
            Some(at) => at.to_zoned(zone).strftime("%H:%M").to_string().into(),
            None => LuaValue::from(NOT_AVAILABLE),
        };
        match index {
            0 => self.longitude.into(),
            1 => self.latitude.into(),
            2 => flag(self.is_active),
            3 | 4 => text_in(TimeZone::UTC),
            5 | 6 => text_in(context.world.clock.zone().clone()),
            7 | 8 => at.map_or(-1.0, |at| at.as_second() as f64).into(),
            9 | 10 => match at {
                Some(at) => {
                    let offset = context.world.clock.zone().to_offset(at);
                    ((at.as_second() + i64::from(offset.seconds())) as f64).into()
                }
                None => (-1.0).into(),
            },
            11 => self.is_day(now_s, date).map_or((-1.0).into(), flag),
            12 => self.sunrise_offset_min.into(),
            13 => self.sunset_offset_min.into(),
            14 => self.minutes_to_next(SunEvent::Sunrise, now_s, date).into(),
            _ => self.minutes_to_next(SunEvent::Sunset, now_s, date).into(),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let number = value.as_number().unwrap_or_default();
        match index {
            0 => self.longitude = number,
            1 => self.latitude = number,
            2 => self.set_active(number == 1.0, context),
            12 => self.sunrise_offset_min = number,
            _ => self.sunset_offset_min = number,
        }
        if index < 2 {
            // At another place it may be night, but neither a sunset nor a change to night has happened.
            let local = context.world.clock.local(context.now());
            self.was_day = self.is_day(local.timestamp().as_second(), local.date());
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        self.set_active(index == 0, context);
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next_check)
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.check(context);
    }
}

/// Sunrise and sunset of a date at a place, in seconds since 1970. `None` where the sun stays above or below the horizon.
///
/// Source: NOAA Solar Calculator (J. Meeus, Astronomical Algorithms), for the upper edge of the sun with the refraction at
/// the horizon; accurate to about a minute between the polar circles.
fn sun_times(date: Date, latitude: f64, longitude: f64) -> Option<(i64, i64)> {
    let midnight_s = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    let noon_days = midnight_s as f64 / 86_400.0 + 0.5 - longitude / 360.0;
    // Centuries since 2000-01-01 12:00.
    let t = (noon_days + 2_440_587.5 - 2_451_545.0) / 36_525.0;
    let mean_longitude = (280.46646 + t * (36000.76983 + t * 0.0003032)).rem_euclid(360.0).to_radians();
    let anomaly = (357.52911 + t * (35999.05029 - t * 0.0001537)).to_radians();
    let eccentricity = 0.016708634 - t * (0.000042037 + t * 0.0000001267);
    let center = anomaly.sin() * (1.914602 - t * (0.004817 + t * 0.000014))
        + (2.0 * anomaly).sin() * (0.019993 - t * 0.000101)
        + (3.0 * anomaly).sin() * 0.000289;
    let node = (125.04 - 1934.136 * t).to_radians();
    let apparent_longitude = mean_longitude + (center - 0.00569 - 0.00478 * node.sin()).to_radians();
    let arc_seconds = 21.448 - t * (46.815 + t * (0.00059 - t * 0.001813));
    let obliquity = (23.0 + (26.0 + arc_seconds / 60.0) / 60.0 + 0.00256 * node.cos()).to_radians();
    let declination = (obliquity.sin() * apparent_longitude.sin()).asin();
    let y = (obliquity / 2.0).tan().powi(2);
    let equation_of_time_min = 4.0
        * (y * (2.0 * mean_longitude).sin() - 2.0 * eccentricity * anomaly.sin()
            + 4.0 * eccentricity * y * anomaly.sin() * (2.0 * mean_longitude).cos()
            - 0.5 * y * y * (4.0 * mean_longitude).sin()
            - 1.25 * eccentricity * eccentricity * (2.0 * anomaly).sin())
        .to_degrees();
    let latitude = latitude.to_radians();
    let horizon = 90.833_f64.to_radians();
    let cosine = horizon.cos() / (latitude.cos() * declination.cos()) - latitude.tan() * declination.tan();
    if !(-1.0..=1.0).contains(&cosine) {
        return None;
    }
    let half_day_min = 4.0 * cosine.acos().to_degrees();
    let noon_min = 720.0 - 4.0 * longitude - equation_of_time_min;
    let at = |minutes: f64| midnight_s + (minutes * 60.0).round() as i64;
    Some((at(noon_min - half_day_min), at(noon_min + half_day_min)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(date: &str, latitude: f64, longitude: f64) -> Option<(i64, i64)> {
        let date: Date = date.parse().unwrap();
        let midnight = date.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
        let (sunrise, sunset) = sun_times(date, latitude, longitude)?;
        Some(((sunrise - midnight).div_euclid(60), (sunset - midnight).div_euclid(60)))
    }

    /// Whether two times differ by at most five minutes.
    fn agree(found: Option<(i64, i64)>, sunrise: (i64, i64), sunset: (i64, i64)) -> bool {
        let near = |found: i64, (hour, minute): (i64, i64)| (found - (hour * 60 + minute)).abs() <= 5;
        found.is_some_and(|(first, last)| near(first, sunrise) && near(last, sunset))
    }

    #[test]
    fn the_times_agree_with_almanacs() {
        // Warsaw at both solstices, London at the equinox, Sydney on a summer day; UTC.
        assert!(agree(minutes("2024-06-21", 52.23, 21.01), (2, 14), (19, 1)));
        assert!(agree(minutes("2024-12-21", 52.23, 21.01), (6, 43), (14, 25)));
        assert!(agree(minutes("2024-03-20", 51.51, -0.13), (6, 3), (18, 14)));
        assert!(agree(minutes("2024-01-15", -33.87, 151.21), (-5, 0), (9, 9)));
    }

    #[test]
    fn there_is_no_sunrise_in_a_polar_night() {
        assert_eq!(minutes("2024-12-21", 78.2, 15.6), None);
        assert_eq!(minutes("2024-06-21", 78.2, 15.6), None);
    }
}
