//! What the records with states share: bi, bo and busy two of them, mbbi and mbbo sixteen with values, names and
//! severities; and the bits of a word, for these and their direct forms.

use fodo_data::{Meta, Status, Text};

use crate::common::Common;
use crate::record::is_changed;

/// Sets the labels of a bi or bo: two, or one when only the first has a name.
pub(crate) fn binary_labels(zero: &Text, one: &Text, meta: &mut Meta) {
    let n_labels = if one.is_empty() && !zero.is_empty() { 1 } else { 2 };
    meta.labels = [zero, one].into_iter().take(n_labels).cloned().collect();
    meta.label_for_unlabelled = Some("Illegal_Value".into());
}

/// Raises the alarms of two states and of a change. `severities`: those of state 0 and of the others.
pub(crate) fn raise_binary(
    common: &mut Common,
    value: u16,
    severities: [u16; 2],
    change_severity: u16,
    last_alarmed: &mut u16,
) {
    common.raise(Status::STATE, severities[usize::from(value != 0)]);
    if is_changed(last_alarmed, &value) {
        common.raise(Status::COS, change_severity);
    }
}

/// The raw value of a binary output: MASK for 1, if it is set.
pub(crate) fn raw_binary(mask: u32, value: u16) -> u32 {
    match (mask, value) {
        (0, value) => value.into(),
        (_, 0) => 0,
        (mask, _) => mask,
    }
}

/// Whether any state has a value or a name (SDEF).
pub(crate) fn are_defined(values: &[u32; 16], names: &[Text; 16]) -> i16 {
    i16::from(values.iter().any(|value| *value != 0) || names.iter().any(|name| !name.is_empty()))
}

/// Sets the labels: the names up to the last that is not empty.
pub(crate) fn labels(names: &[Text; 16], value: u16, meta: &mut Meta) {
    let n_labels = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    meta.labels = names.iter().take(n_labels).cloned().collect();
    // As in Base, this depends on the current value.
    meta.label_for_unlabelled = Some(if value > 15 { "Illegal Value".into() } else { Text::EMPTY });
}

/// The severity of a state, or `unknown` if the state does not exist.
pub(crate) fn severity(severities: &[u16; 16], unknown: u16, state: u16) -> u16 {
    severities.get(usize::from(state)).copied().unwrap_or(unknown)
}

/// Raises the alarms of a state and of a change.
pub(crate) fn raise_state(
    common: &mut Common,
    value: u16,
    severity: u16,
    change_severity: u16,
    last_alarmed: &mut u16,
) {
    common.raise(Status::STATE, severity);
    if value != *last_alarmed && !common.raise(Status::COS, change_severity) {
        *last_alarmed = value;
    }
}

/// The initial MASK: by default NOBT bits. `shift`: SHFT of a record with a raw device, whose mask is not 0.
pub(crate) fn initial_mask(mask: u32, bits: u16, shift: Option<u16>) -> u32 {
    let mask = if mask == 0 { mask_of_bits(bits).unwrap_or(0) } else { mask };
    match shift {
        Some(shift) => shifted_left(if mask == 0 { u32::MAX } else { mask }, shift),
        None => mask,
    }
}

/// A mask of NOBT bits; `None` for more than 32.
fn mask_of_bits(bits: u16) -> Option<u32> {
    (bits <= 32).then(|| ((1u64 << bits) - 1) as u32)
}

/// A number shifted left by SHFT; 32 or more give 0.
pub(crate) fn shifted_left(value: u32, shift: u16) -> u32 {
    value.checked_shl(u32::from(shift)).unwrap_or(0)
}

/// A number shifted right by SHFT; 32 or more give 0.
pub(crate) fn shifted_right(value: u32, shift: u16) -> u32 {
    value.checked_shr(u32::from(shift)).unwrap_or(0)
}

/// One bit of a word, 0 or 1.
pub(crate) fn bit(word: i32, index: usize) -> u8 {
    u8::from(word.cast_unsigned().checked_shr(index as u32).unwrap_or(0) & 1 != 0)
}
