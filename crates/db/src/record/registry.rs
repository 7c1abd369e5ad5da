//! The record types by name.

use crate::record::contract::RecordType;
use crate::record::{
    a_sub, aai, aao, acalcout, ai, ao, bi, bo, busy, calc, calcout, compress, dfanout, event, fanout, histogram,
    int64in, int64out, longin, longout, lsi, lso, mbbi, mbbi_direct, mbbo, mbbo_direct, permissive, printf, scalcout,
    sel, seq, sseq, state, stringin, stringout, sub, sub_array, swait, transform, waveform,
};

/// All record types.
pub(crate) static TYPES: &[&RecordType] = &[
    &ai::TYPE,
    &ao::TYPE,
    &bi::TYPE,
    &bo::TYPE,
    &calc::TYPE,
    &longin::TYPE,
    &longout::TYPE,
    &mbbi::TYPE,
    &mbbo::TYPE,
    &stringin::TYPE,
    &stringout::TYPE,
    &waveform::TYPE,
    &fanout::TYPE,
    &dfanout::TYPE,
    &calcout::TYPE,
    &seq::TYPE,
    &event::TYPE,
    &int64in::TYPE,
    &int64out::TYPE,
    &mbbi_direct::TYPE,
    &mbbo_direct::TYPE,
    &lsi::TYPE,
    &lso::TYPE,
    &aai::TYPE,
    &aao::TYPE,
    &sub_array::TYPE,
    &compress::TYPE,
    &printf::TYPE,
    &sel::TYPE,
    &sub::TYPE,
    &busy::TYPE,
    &transform::TYPE,
    &scalcout::TYPE,
    &sseq::TYPE,
    &swait::TYPE,
    &acalcout::TYPE,
    &a_sub::TYPE,
    &histogram::TYPE,
    &permissive::TYPE,
    &state::TYPE,
];

/// The names of all record types, the most common ones first.
pub fn record_types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|kind| kind.name)
}

/// Finds a record type by its name.
pub(crate) fn find(name: &str) -> Option<&'static RecordType> {
    TYPES.iter().find(|kind| kind.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::TYPES;

    #[test]
    fn the_default_device_support_of_every_record_type_is_soft_channel() {
        for record_type in TYPES {
            assert!(matches!(record_type.devices, [] | ["Soft Channel", ..]), "{record_type:?}");
        }
    }
}
