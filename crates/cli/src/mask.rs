//! Parses event masks in the letters of the EPICS tools.

use fodo_net::EventMask;

/// Parses `v` value, `a` alarm, `l` archive, `p` property, in any order; `None` for any other text.
pub fn parse(letters: &str) -> Option<EventMask> {
    let mut mask = EventMask::NONE;
    for letter in letters.chars() {
        mask |= match letter {
            'v' => EventMask::VALUE,
            'a' => EventMask::ALARM,
            'l' => EventMask::LOG,
            'p' => EventMask::PROPERTY,
            _ => return None,
        };
    }
    (!mask.is_empty()).then_some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_letters_combine_and_unknown_letters_are_rejected() {
        assert_eq!(parse("vlap"), Some(EventMask(15)));
        assert_eq!(parse("av"), Some(EventMask::VALUE | EventMask::ALARM));
        assert_eq!(parse("vx"), None);
        assert_eq!(parse(""), None);
    }
}
