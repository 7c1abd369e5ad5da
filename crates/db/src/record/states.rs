//! What mbbi, mbbo and their direct forms share: sixteen states with values, names and severities, and bits of a word.

use fodo_data::Text;

/// Whether any state has a value or a name (SDEF).
pub(crate) fn are_defined(values: &[u32; 16], names: &[Text; 16]) -> bool {
    values.iter().any(|value| *value != 0) || names.iter().any(|name| !name.is_empty())
}

/// The names up to the last that is not empty.
pub(crate) fn labels(names: &[Text; 16]) -> Vec<Text> {
    let n_labels = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    names.iter().take(n_labels).cloned().collect()
}

/// The severity of a state, or `unknown` if the state does not exist.
pub(crate) fn severity(severities: &[u16; 16], unknown: u16, state: u16) -> u16 {
    severities.get(usize::from(state)).copied().unwrap_or(unknown)
}

/// A mask of NOBT bits; `None` for more than 32.
pub(crate) fn mask_of_bits(bits: u16) -> Option<u32> {
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

/// The label that bi and bo report for a value other than 0 and 1.
pub(crate) const UNNAMED: &str = "Illegal_Value";

/// The labels of a bi or bo: two, or one when only the first has a name.
pub(crate) fn binary_labels(zero: &Text, one: &Text) -> Vec<Text> {
    let n_labels = if one.is_empty() && !zero.is_empty() { 1 } else { 2 };
    [zero, one].into_iter().take(n_labels).cloned().collect()
}
