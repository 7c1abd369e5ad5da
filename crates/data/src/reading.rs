use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

use crate::{Alarm, Meta, Text, TimeStamp, Value};

/// A value with its alarm, time stamp and metadata, consistent with each other.
///
/// ```
/// use std::time::SystemTime;
///
/// use fodo_data::{Alarm, Reading, TimeStamp, Value};
///
/// let reading = Reading { time: SystemTime::now().into(), ..Reading::bare(Value::from(12.5)) };
/// assert_eq!(reading.alarm, Alarm::default());
/// assert!(reading.time > TimeStamp::NEVER && reading.meta.is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: Value,
    /// The alarm; no alarm if the request did not include it.
    pub alarm: Alarm,
    /// The time stamp that the server gave the value; [`TimeStamp::NEVER`] if the request did not include it.
    pub time: TimeStamp,
    /// The user tag of the time stamp; 0 unless the source sets one.
    pub user_tag: i32,
    /// The text of the alarm, where it differs from the name of its status.
    pub message: Option<Arc<Text>>,
    /// Units, limits and labels; `None` unless requested.
    pub meta: Option<Arc<Meta>>,
}

impl Reading {
    /// A value with no alarm, no time stamp ([`TimeStamp::NEVER`]) and no metadata.
    #[inline]
    pub fn bare(value: Value) -> Reading {
        Reading { value, alarm: Alarm::default(), time: TimeStamp::NEVER, user_tag: 0, message: None, meta: None }
    }
}

/// The kinds of change that an update reports, or that a subscription selects.
///
/// ```
/// use fodo_data::EventMask;
///
/// let subscribed = EventMask::VALUE | EventMask::ALARM;
/// assert_eq!(EventMask::VALUE.with(EventMask::ALARM), subscribed);
/// assert!(subscribed.meets(EventMask::ALARM));
/// assert!(!subscribed.meets(EventMask::PROPERTY));
/// assert!(EventMask::NONE.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventMask(pub u8);

impl EventMask {
    /// The value moved by more than the monitor deadband.
    pub const VALUE: EventMask = EventMask(1);
    /// The value moved by more than the archive deadband.
    pub const LOG: EventMask = EventMask(2);
    /// Alarm status or severity changed.
    pub const ALARM: EventMask = EventMask(4);
    /// Units, limits, precision or labels changed.
    pub const PROPERTY: EventMask = EventMask(8);
    /// No kind of change.
    pub const NONE: EventMask = EventMask(0);

    /// The kinds of both masks; for constants, which cannot use `|`.
    pub const fn with(self, other: EventMask) -> EventMask {
        EventMask(self.0 | other.0)
    }

    /// Whether the two masks have at least one kind in common.
    pub const fn meets(self, other: EventMask) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the mask contains no kind.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for EventMask {
    type Output = EventMask;

    fn bitor(self, other: EventMask) -> EventMask {
        self.with(other)
    }
}

impl BitOrAssign for EventMask {
    fn bitor_assign(&mut self, other: EventMask) {
        *self = self.with(other);
    }
}
