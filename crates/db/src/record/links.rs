//! What calcout, scalcout and transform tell of their links.

use crate::link::{Link, Special, Target, Trigger};
use crate::outside::Outside;

/// What INAV, OUTV and their like say of a link: a channel, even to a record that is here, is external.
pub(crate) fn state_of(link: &Link) -> u16 {
    const NOT_CONNECTED: u16 = 0;
    const CONNECTED: u16 = 1;
    const LOCAL: u16 = 2;
    const CONSTANT: u16 = 3;
    if let Some(Special::Json(json)) = link.special().map(|special| &**special) {
        return if json.is_volatile() { CONNECTED } else { LOCAL };
    }
    match link.target() {
        Target::Constant => CONSTANT,
        Target::Outside { .. } if link.outside().is_some_and(Outside::is_connected) => CONNECTED,
        Target::Outside { .. } | Target::Missing => NOT_CONNECTED,
        Target::Field { modifiers, .. } => match modifiers.trigger {
            Trigger::None | Trigger::Passive => LOCAL,
            Trigger::Channel | Trigger::Change | Trigger::ChangeIfPassive => CONNECTED,
            Trigger::ChangeIfInterrupt => CONNECTED,
        },
    }
}
