//! The states of their links that calcout, scalcout and transform report.

use crate::link::external::ExternalPv;
use crate::link::{Link, LinkExtra, Target, Trigger};

/// The state of a link for INAV, OUTV and so on. A channel counts as external, even to a record of the same IOC.
pub(crate) fn state_of(link: &Link) -> u16 {
    const NOT_CONNECTED: u16 = 0;
    const CONNECTED: u16 = 1;
    const LOCAL: u16 = 2;
    const CONSTANT: u16 = 3;
    if let Some(LinkExtra::Json(json)) = link.extra().map(|extra| &**extra) {
        return if json.is_volatile() { CONNECTED } else { LOCAL };
    }
    match link.target() {
        Target::Constant => CONSTANT,
        Target::External { .. } if link.external().is_some_and(ExternalPv::is_connected) => CONNECTED,
        Target::External { .. } | Target::Missing => NOT_CONNECTED,
        Target::Field { modifiers, .. } => match modifiers.trigger {
            Trigger::None | Trigger::Passive => LOCAL,
            Trigger::Channel | Trigger::Change | Trigger::ChangeIfPassive => CONNECTED,
            Trigger::ChangeIfInterrupt => CONNECTED,
        },
    }
}
