use std::fmt;

/// How bad an alarm is. Ordered: a later variant is worse.
///
/// ```
/// use fodo_data::Severity;
///
/// let worst = [Severity::Minor, Severity::Invalid, Severity::None].into_iter().max();
/// assert_eq!(worst, Some(Severity::Invalid));
/// assert_eq!(Severity::from_code(2).to_string(), "MAJOR");
/// assert_eq!(Severity::Major.code(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// No alarm.
    #[default]
    None = 0,
    /// Needs attention, not urgently.
    Minor = 1,
    /// Needs an operator's action.
    Major = 2,
    /// The value cannot be trusted.
    Invalid = 3,
}

impl Severity {
    /// The standard EPICS names: `NO_ALARM`, `MINOR`, `MAJOR`, `INVALID`.
    pub const NAMES: [&'static str; 4] = ["NO_ALARM", "MINOR", "MAJOR", "INVALID"];

    /// Converts a wire number; numbers above 3 become [`Severity::Invalid`].
    pub const fn from_code(code: u16) -> Severity {
        match code {
            0 => Severity::None,
            1 => Severity::Minor,
            2 => Severity::Major,
            _ => Severity::Invalid,
        }
    }

    /// The wire number, 0 to 3.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES[self.code() as usize])
    }
}

/// The reason for an alarm, as a number with a name. Unknown numbers are kept and printed as numbers.
///
/// ```
/// use fodo_data::Status;
///
/// assert_eq!(Status::HIHI.to_string(), "HIHI");
/// assert_eq!(Status(99).to_string(), "99");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($code:literal $name:ident $text:literal),* $(,)?) => {
        impl Status {
            $(#[doc = concat!("`", $text, "`")] pub const $name: Status = Status($code);)*

            /// The names in numerical order, the same as in the menu `menuAlarmStat`.
            pub const NAMES: &'static [&'static str] = &[$($text),*];
        }
    };
}

statuses! {
    0 NO_ALARM "NO_ALARM",
    1 READ "READ",
    2 WRITE "WRITE",
    3 HIHI "HIHI",
    4 HIGH "HIGH",
    5 LOLO "LOLO",
    6 LOW "LOW",
    7 STATE "STATE",
    8 COS "COS",
    9 COMM "COMM",
    10 TIMEOUT "TIMEOUT",
    11 HW_LIMIT "HWLIMIT",
    12 CALC "CALC",
    13 SCAN "SCAN",
    14 LINK "LINK",
    15 SOFT "SOFT",
    16 BAD_SUB "BAD_SUB",
    17 UDF "UDF",
    18 DISABLE "DISABLE",
    19 SIMM "SIMM",
    20 READ_ACCESS "READ_ACCESS",
    21 WRITE_ACCESS "WRITE_ACCESS",
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.get(self.0 as usize) {
            Some(name) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

/// An alarm severity and its reason.
///
/// ```
/// use fodo_data::{Alarm, Severity, Status};
///
/// let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
/// assert_eq!(format!("{} {}", alarm.severity, alarm.status), "MAJOR HIHI");
/// assert_eq!(Alarm::default().severity, Severity::None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Alarm {
    /// How bad.
    pub severity: Severity,
    /// The reason.
    pub status: Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_prints_as_its_number() {
        assert_eq!(Status(99).to_string(), "99");
        assert_eq!(Status::HIHI.to_string(), "HIHI");
    }
}
