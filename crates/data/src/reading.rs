use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

use crate::{Alarm, Meta, TimeStamp, Value};

/// A value with what belongs to it, as one consistent whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: Value,
    /// Its alarm; none when the request did not ask for it.
    pub alarm: Alarm,
    /// When it was taken; [`TimeStamp::NEVER`] when the request did not ask for it.
    pub time: TimeStamp,
    /// Units, limits and labels, when asked for.
    pub meta: Option<Arc<Meta>>,
}

impl Reading {
    /// A bare value: no alarm, no time, no meta.
    pub fn bare(value: Value) -> Reading {
        Reading { value, alarm: Alarm::default(), time: TimeStamp::NEVER, meta: None }
    }
}

/// Which kinds of change a post stands for, and which a subscription wants to hear of.
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
    /// Nothing.
    pub const NONE: EventMask = EventMask(0);

    /// Whether both have a kind in common.
    pub const fn meets(self, other: EventMask) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether it names nothing at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for EventMask {
    type Output = EventMask;

    fn bitor(self, other: EventMask) -> EventMask {
        EventMask(self.0 | other.0)
    }
}

impl BitOrAssign for EventMask {
    fn bitor_assign(&mut self, other: EventMask) {
        self.0 |= other.0;
    }
}
