//! The choices of SCAN and their periods: those of EPICS Base, or those of a site's own `menuScan`.

use std::borrow::Cow;
use std::time::Duration;

use fodo_data::number_at_start;

use crate::field::FieldInfo;
use crate::limit::{DELAY_MAX, DELAY_MIN};
use crate::menu;

/// The choices before the periodic ones in every `menuScan`.
pub(crate) const NOT_PERIODIC: [&str; 3] = ["Passive", "Event", "I/O Intr"];

/// The choices of a `menuScan`, in the order of their indexes.
#[derive(Clone, Debug)]
pub(crate) struct ScanMenu {
    rates: Vec<ScanRate>,
}

/// A choice of SCAN.
#[derive(Clone, Debug)]
pub(crate) struct ScanRate {
    /// `1 second`
    pub(crate) choice: String,
    /// `None` for a choice that is not periodic.
    pub(crate) period: Option<Duration>,
}

impl Default for ScanMenu {
    /// The menu of EPICS Base.
    fn default() -> ScanMenu {
        ScanMenu::new(menu::SCAN.iter().map(|&choice| choice.to_owned()))
    }
}

impl ScanMenu {
    /// Makes a menu of these choices. A text that is not a scan rate has no period.
    pub(crate) fn new(choices: impl Iterator<Item = String>) -> ScanMenu {
        ScanMenu { rates: choices.map(|choice| ScanRate { period: period(&choice), choice }).collect() }
    }

    /// Every choice, in the order of the indexes.
    pub(crate) fn rates(&self) -> &[ScanRate] {
        &self.rates
    }

    /// The choices of a menu field.
    pub(crate) fn choices_of(&self, row: &FieldInfo) -> Cow<'_, [&str]> {
        match is_of_scan(row) {
            true => self.rates.iter().map(|rate| rate.choice.as_str()).collect(),
            false => Cow::Borrowed(row.menu),
        }
    }

    pub(crate) fn has_same_choices(&self, other: &ScanMenu) -> bool {
        self.rates.iter().map(|rate| &rate.choice).eq(other.rates.iter().map(|rate| &rate.choice))
    }
}

/// Whether a field has the choices of `menuScan`: SCAN and SSCN.
pub(crate) fn is_of_scan(row: &FieldInfo) -> bool {
    row.menu == menu::SCAN
}

/// Parses the period in the text of a choice: a number and a unit; the default unit is seconds.
///
/// Source: EPICS Base 7.0, initPeriodic.
pub(crate) fn period(choice: &str) -> Option<Duration> {
    let (number, n_bytes) = number_at_start(choice.trim_start()).ok()?;
    let unit = choice.trim_start().get(n_bytes..)?.trim();
    let seconds = match unit.to_ascii_lowercase().as_str() {
        "" | "second" | "seconds" => number,
        "minute" | "minutes" => number * 60.0,
        "hour" | "hours" => number * 3600.0,
        "hz" | "hertz" => 1.0 / number,
        _ => return None,
    };
    let period = Duration::try_from_secs_f64(seconds).ok()?;
    (DELAY_MIN..=DELAY_MAX).contains(&period).then_some(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_choice_consists_of_a_number_and_a_unit() {
        let ms = |choice: &str| period(choice).map(|period| period.as_millis());

        assert_eq!((ms("60 second"), ms(".1 second"), ms("2 Seconds")), (Some(60_000), Some(100), Some(2_000)));
        assert_eq!((ms("1 minute"), ms("0.5 hours"), ms("5")), (Some(60_000), Some(1_800_000), Some(5_000)));
        assert_eq!((ms("10 Hz"), ms("0.1 hertz")), (Some(100), Some(10_000)));
        for choice in ["", "fast", "0 second", "-1 second", "1 day", "inf second", "1e9 hour", "1e9 Hz", "nan"] {
            assert_eq!(ms(choice), None, "{choice}");
        }
    }

    #[test]
    fn the_default_scan_menu_has_the_periods_of_epics_base() {
        let menu = ScanMenu::default();
        let periods: Vec<f64> = menu.rates().iter().filter_map(|rate| rate.period).map(|p| p.as_secs_f64()).collect();

        assert_eq!(periods, [10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1]);
        assert_eq!(menu.rates().len(), NOT_PERIODIC.len() + periods.len());
    }
}
