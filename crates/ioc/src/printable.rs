//! Makes text from files, scripts and clients safe to print.

use std::borrow::Cow;

/// Escapes control characters, for example as `\u{1b}`, so that a terminal does not interpret them. Tabs and line ends
/// are kept.
///
/// ```
/// assert_eq!(fodo_ioc::printable("red: \u{1b}[31m\n"), "red: \\u{1b}[31m\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_safe = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    if text.chars().all(is_safe) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_safe(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_debug()),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\tb\nGrüße"), "a\tb\nGrüße");
        assert_eq!(printable("\u{1b}[2J\r\u{7f}\u{9b}x"), "\\u{1b}[2J\\r\\u{7f}\\u{9b}x");
    }
}
