//! What fanout, seq and dfanout share: SELM, and the links that SELN selects.

use fodo_data::Status;

use crate::record::Record;
use crate::step::Step;

/// The choices of SELM.
pub(crate) const ALL: u16 = 0;
pub(crate) const SPECIFIED: u16 = 1;
pub(crate) const MASK: u16 = 2;

/// The number of links to select from.
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

/// Like [`Selection::links`], and raises the alarm if the combination is invalid.
pub(crate) fn links<R: Record>(step: &mut Step<'_, '_, R>, selection: Selection) -> Option<u16> {
    let links = selection.links();
    if links.is_none() {
        step.lock().common().raise(Status::SOFT, 3);
    }
    links
}

/// The indices of the bits that are set.
pub(crate) fn indices(links: u16) -> impl Iterator<Item = usize> {
    (0..N_LINKS).filter(move |index| links >> index & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_shifted_either_way_and_a_number_is_offset() {
        let selection = Selection { mode: MASK, number: 0b110, offset: 0, shift: 1 };
        assert_eq!(selection.links(), Some(0b11));
        assert_eq!(Selection { shift: -14, ..selection }.links(), Some(1 << 15));
        assert_eq!(Selection { shift: 16, ..selection }.links(), None);

        let selection = Selection { mode: SPECIFIED, number: 3, offset: -2, shift: 0 };
        assert_eq!(selection.links(), Some(0b10));
        assert_eq!(Selection { offset: -4, ..selection }.links(), None);
        assert_eq!(Selection { number: 16, offset: 0, ..selection }.links(), None);
    }
}
