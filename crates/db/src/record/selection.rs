//! What fanout, seq, dfanout and sseq share: SELM, and the links that SELN selects.

use fodo_data::Status;

use crate::link::Link;
use crate::menu::INVALID;
use crate::process::step::Step;
use crate::record::Record;

/// The choices of SELM.
const ALL: u16 = 0;
const SPECIFIED: u16 = 1;
const MASK: u16 = 2;

/// The maximum number of links to select from.
pub(crate) const N_LINKS: usize = 16;

/// The fields of a selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    pub(crate) mode: u16,
    pub(crate) number: u16,
    /// OFFS, which is added to the number.
    pub(crate) offset: i16,
    /// SHFT: the number of bits by which the mask is shifted right.
    pub(crate) shift: i16,
}

impl Selection {
    /// One bit for each selected link. `None`: the combination of fields is invalid.
    ///
    /// Source: EPICS Base 7.0, process of fanoutRecord and seqRecord.
    pub(crate) fn links(self) -> Option<u16> {
        match self.mode {
            ALL => Some(u16::MAX),
            SPECIFIED => {
                let index = i32::from(self.number) + i32::from(self.offset);
                let index = u32::try_from(index).ok().filter(|index| *index < N_LINKS as u32)?;
                Some(1 << index)
            }
            MASK => match self.shift {
                0..=15 => Some(self.number >> self.shift),
                -15..=-1 => Some(self.number << -self.shift),
                _ => None,
            },
            _ => None,
        }
    }
}

/// One bit for each selected link of `n_links`, where the number of the first link is 1 and 0 selects none. `None`: the
/// selection is invalid.
pub(crate) fn selected_from_one(mode: u16, number: u16, n_links: usize) -> Option<u16> {
    match (mode, usize::from(number)) {
        (ALL, _) => Some(u16::MAX),
        (SPECIFIED, 0) => Some(0),
        (SPECIFIED, index) if index <= n_links => Some(1 << (index - 1)),
        (MASK, _) => Some(number),
        _ => None,
    }
}

/// Raises the alarm of an invalid selection, of which no link is selected.
pub(crate) fn or_alarm<R: Record>(record: &mut R, selected: Option<u16>) -> u16 {
    if selected.is_none() {
        record.common().raise(Status::SOFT, INVALID);
    }
    selected.unwrap_or(0)
}

/// Reads SELL unless SELM is All, and passes what was read to `store`.
pub(crate) fn fetch_selected<R: Record>(
    step: &mut Step<'_, '_, R>,
    mode_and_link: impl Fn(&R) -> (u16, &Link),
    store: impl FnOnce(&mut R, u16),
) {
    if mode_and_link(step.lock()).0 != ALL
        && let Ok(Some(selection)) = step.read_link("SELL", |record| mode_and_link(record).1)
    {
        store(step.lock(), selection);
    }
}

/// Those of the selected groups that have a link.
pub(crate) fn with_links(selected: u16, desired: &[Link], links: &[Link]) -> u16 {
    let has_link = |index: &usize| [desired, links].iter().any(|links| !links[*index].is_constant());
    indices(selected).filter(has_link).fold(0, |selected, index| selected | 1 << index)
}

/// The indices of the bits that are set.
pub(crate) fn indices(links: u16) -> impl Iterator<Item = usize> {
    (0..N_LINKS).filter(move |index| links >> index & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shft_shifts_the_mask_either_way_and_offs_offsets_the_specified_number() {
        let selection = Selection { mode: MASK, number: 0b110, offset: 0, shift: 1 };
        assert_eq!(selection.links(), Some(0b11));
        assert_eq!(Selection { shift: -14, ..selection }.links(), Some(1 << 15));
        assert_eq!(Selection { shift: 16, ..selection }.links(), None);

        let selection = Selection { mode: SPECIFIED, number: 3, offset: -2, shift: 0 };
        assert_eq!(selection.links(), Some(0b10));
        assert_eq!(Selection { offset: -4, ..selection }.links(), None);
        assert_eq!(Selection { number: 16, offset: 0, ..selection }.links(), None);
    }

    #[test]
    fn the_first_and_the_last_link_can_be_selected_and_none_beyond_them() {
        let specified = |number, offset| Selection { mode: SPECIFIED, number, offset, shift: 0 }.links();
        let masked = |shift| Selection { mode: MASK, number: 0x8001, offset: 0, shift }.links();

        assert_eq!([specified(0, 0), specified(15, 0), specified(16, -1)], [Some(1), Some(1 << 15), Some(1 << 15)]);
        assert_eq!([specified(0, -1), specified(15, 1)], [None, None]);
        assert_eq!([masked(0), masked(15), masked(-15)], [Some(0x8001), Some(1), Some(0x8000)]);
        assert_eq!([masked(16), masked(-16)], [None, None]);
        assert_eq!(Selection { mode: ALL, number: 99, offset: 0, shift: 99 }.links(), Some(u16::MAX));
        assert_eq!(Selection { mode: 3, number: 0, offset: 0, shift: 0 }.links(), None);
        assert_eq!(indices(0x8005).collect::<Vec<usize>>(), [0, 2, 15]);
    }

    #[test]
    fn a_selection_from_one_selects_no_link_for_zero() {
        let numbers = [0, 1, 8, 9];

        assert_eq!(
            numbers.map(|number| selected_from_one(SPECIFIED, number, 8)),
            [Some(0), Some(1), Some(1 << 7), None]
        );
        assert_eq!(selected_from_one(ALL, 9, 8), Some(u16::MAX));
        assert_eq!(selected_from_one(MASK, 9, 8), Some(9));
        assert_eq!(selected_from_one(3, 1, 8), None);
    }
}
