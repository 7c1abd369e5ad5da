//! The part of a channel's type that an operation transfers.

use std::borrow::Cow;

use fodo_data::{BitSet, NodeKind, StructureType};

/// The nodes of a channel's type that the client selected. Values of other nodes are not sent.
///
/// Updates of one channel with equal selections have equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelection(Option<Box<SelectedPart>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SelectedPart {
    bits: BitSet,
    /// The structures of which not all members are selected.
    divided: BitSet,
}

impl FieldSelection {
    /// The selection of these nodes with all of their members, as [`crate::request::PvRequest::selection`] returns them.
    pub(super) fn new(bits: BitSet, kind: &StructureType) -> FieldSelection {
        if bits.contains(0) {
            return FieldSelection::default();
        }
        let is_divided =
            |bit: &usize| matches!(kind.nodes()[*bit].kind, NodeKind::Structure { .. }) && !bits.contains(*bit);
        let divided = (0..kind.nodes().len()).filter(is_divided).collect();
        FieldSelection(Some(Box::new(SelectedPart { bits, divided })))
    }

    /// The selected nodes; the bit of a structure stands for all of its members.
    pub(super) fn bits(&self) -> Cow<'_, BitSet> {
        match &self.0 {
            Some(part) => Cow::Borrowed(&part.bits),
            None => Cow::Owned([0].into_iter().collect()),
        }
    }

    /// The selected ones of the nodes `marks`.
    #[inline]
    pub(super) fn of<'m>(&self, marks: &'m BitSet, kind: &StructureType) -> Cow<'m, BitSet> {
        let Some(part) = &self.0 else { return Cow::Borrowed(marks) };
        Cow::Owned(match self.word(marks) {
            Some(word) => {
                let mut selected = BitSet::new();
                selected.set_word(0, word);
                selected
            }
            None => part.selected(marks, kind),
        })
    }

    /// The selected ones of the nodes `marks`, if they are below 64 and none of them is a structure of which only a part
    /// is selected; otherwise `None`.
    #[inline]
    pub(super) fn word(&self, marks: &BitSet) -> Option<u64> {
        let (word, is_single) = (marks.word(0), marks.n_words() <= 1);
        match &self.0 {
            _ if !is_single => None,
            None => Some(word),
            Some(part) => (word & part.divided.word(0) == 0).then(|| word & part.bits.word(0)),
        }
    }

    /// Memory of the selection, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let words = |bits: &BitSet| bits.n_words() * size_of::<u64>();
        self.0.as_ref().map_or(0, |part| size_of::<SelectedPart>() + words(&part.bits) + words(&part.divided))
    }
}

impl SelectedPart {
    /// The selected ones of the nodes `marks`, of any number.
    #[cold]
    fn selected(&self, marks: &BitSet, kind: &StructureType) -> BitSet {
        let mut divided = self.divided.clone();
        divided.intersect_with(marks);
        if !divided.is_empty() {
            return self.expanded(marks, kind);
        }
        let mut selected = self.bits.clone();
        selected.intersect_with(marks);
        selected
    }

    /// The selected ones of the nodes that `marks` covers.
    fn expanded(&self, marks: &BitSet, kind: &StructureType) -> BitSet {
        let mut selected = BitSet::new();
        for nodes in kind.covered(marks) {
            let mut next = nodes.start;
            while let Some(bit) = self.bits.next_from(next).filter(|bit| *bit < nodes.end) {
                selected.insert(bit);
                next = kind.nodes()[bit].end as usize;
            }
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{Kind, StructureBuilder, normative_type};

    use super::*;
    use crate::request::PvRequest;

    /// The bits that are sent of some marks.
    fn selected(request: &str, marks: &[usize]) -> Vec<usize> {
        let kind = normative_type(Kind::F64, false);
        let bits = PvRequest::parse(request).unwrap().selection("field", &kind).unwrap();
        let marks = marks.iter().copied().collect();
        FieldSelection::new(bits, &kind).of(&marks, &kind).iter().collect()
    }

    #[test]
    fn only_selected_nodes_are_sent_whether_their_structure_is_marked_or_they_are() {
        for (request, marks, expected) in [
            ("", vec![0], vec![0]),
            ("", vec![1, 7, 8, 9], vec![1, 7, 8, 9]),
            ("value", vec![0], vec![1]),
            ("value", vec![7, 8, 9], vec![]),
            ("value,alarm", vec![1, 2, 6], vec![1, 2]),
            ("alarm.severity,timeStamp", vec![2, 6], vec![3, 6]),
            ("alarm.severity,timeStamp", vec![0], vec![3, 6]),
            ("alarm.severity,timeStamp", vec![1, 3, 4, 8], vec![3, 8]),
            ("alarm.severity,timeStamp", vec![2], vec![3]),
        ] {
            assert_eq!(selected(request, &marks), expected, "{request} {marks:?}");
        }
    }

    #[test]
    fn a_type_of_more_than_64_nodes_has_the_same_rules() {
        let mut build = StructureBuilder::new("");
        for structure in ["first", "second"] {
            build.open(structure, "");
            for n in 0..60 {
                build.scalar(&format!("n{n}"), Kind::I32);
            }
            build.close();
        }
        // The nodes 1 to 61 are those of `first`, the nodes 62 to 122 those of `second`.
        let kind = build.finish();
        let n_bytes = |n_words| size_of::<SelectedPart>() + n_words * size_of::<u64>();
        for (request, marks, expected, held_bytes) in [
            ("", vec![0], vec![0], 0),
            ("first", vec![1, 61, 63, 120], vec![1, 61], n_bytes(1 + 1)),
            ("first.n0,second.n10,second.n50", vec![2, 73, 74, 113], vec![2, 73, 113], n_bytes(2 + 1)),
            ("first.n0,second.n10,second.n50", vec![62], vec![73, 113], n_bytes(2 + 1)),
            ("first.n0,second.n10,second.n50", vec![0], vec![2, 73, 113], n_bytes(2 + 1)),
            ("second", vec![0], vec![62], n_bytes(2 + 1)),
        ] {
            let bits = PvRequest::parse(request).unwrap().selection("field", &kind).unwrap();
            let selection = FieldSelection::new(bits, &kind);
            let marks = marks.into_iter().collect();

            assert!(selection.of(&marks, &kind).iter().eq(expected), "{request} {marks:?}");
            assert_eq!(selection.held_bytes(), held_bytes, "{request}");
        }
    }
}
