//! Alarms that travel along links.

use fodo_data::{Status, Text};

use crate::common::Common;
use crate::link::Inherit;

/// An alarm on its way along a link.
pub(crate) struct Raised {
    pub(crate) status: u16,
    pub(crate) severity: u16,
    pub(crate) message: Text,
}

/// Source: EPICS Base 7.0, recGblInheritSevr; that MSS takes the message too was seen with softIoc.
pub(crate) fn inherit(common: &mut Common, how: Inherit, alarm: Raised) {
    match how {
        Inherit::Not => {}
        Inherit::Invalid if alarm.severity < 3 => {}
        Inherit::Invalid | Inherit::Severity => {
            common.raise(Status::LINK, alarm.severity);
        }
        Inherit::Status => {
            common.raise_saying(Status(alarm.status), alarm.severity, alarm.message);
        }
    }
}
