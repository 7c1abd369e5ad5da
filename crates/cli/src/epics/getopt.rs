//! Parses single-letter flags like POSIX `getopt`, which users of the EPICS tools rely on: `-tc`, `-#10`, `-0x`, `-e5`,
//! `-F ,`. Clap does not support a flag `-0x` with a value.

/// One flag, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flag {
    /// A flag and its value, which is empty if the flag takes none.
    Set(char, String),
    /// A flag that does not exist.
    Unknown(char),
    /// A flag that needs a value and has none.
    ValueMissing(char),
}

/// Separates flags and other arguments, keeping their order.
///
/// `known`: the letters; a colon after a letter means that it takes a value. `flags_first`: the first argument that is
/// not a flag ends the flags, so that `-5` can be a value of caput.
pub fn parse(arguments: &[String], known: &str, flags_first: bool) -> (Vec<Flag>, Vec<String>) {
    let mut flags = Vec::new();
    let mut others = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            others.extend(rest.cloned());
            break;
        }
        let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            others.push(argument.clone());
            if flags_first {
                others.extend(rest.cloned());
                break;
            }
            continue;
        };
        parse_word(letters, known, &mut rest, &mut flags);
    }
    (flags, others)
}

/// One word of flags, without its dash.
fn parse_word<'a>(word: &str, known: &str, rest: &mut impl Iterator<Item = &'a String>, flags: &mut Vec<Flag>) {
    for (at, letter) in word.char_indices() {
        let Some(position) = known.find(letter).filter(|_| letter != ':') else {
            flags.push(Flag::Unknown(letter));
            continue;
        };
        if !known[position + letter.len_utf8()..].starts_with(':') {
            flags.push(Flag::Set(letter, String::new()));
            continue;
        }
        let attached = &word[at + letter.len_utf8()..];
        flags.push(match (attached, rest) {
            ("", rest) => match rest.next() {
                Some(value) => Flag::Set(letter, value.clone()),
                None => Flag::ValueMissing(letter),
            },
            (attached, _) => Flag::Set(letter, attached.to_owned()),
        });
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, flags_first: bool) -> (Vec<Flag>, Vec<String>) {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&arguments, "taicnhsSVe:f:g:l:#:d:0:w:p:F:", flags_first)
    }

    fn set(letter: char, value: &str) -> Flag {
        Flag::Set(letter, value.to_owned())
    }

    #[test]
    fn flag_values_may_be_attached_or_separate() {
        let (flags, others) = parsed("-#10 -0x -lb -e5 -F , -w 2.5 pv", false);

        let expected = [set('#', "10"), set('0', "x"), set('l', "b"), set('e', "5"), set('F', ","), set('w', "2.5")];
        assert_eq!(flags, expected);
        assert_eq!(others, ["pv"]);
    }

    #[test]
    fn combined_short_flags_may_end_with_a_flag_that_takes_a_value() {
        let (flags, _) = parsed("-ac#2 pv", false);

        assert_eq!(flags, [set('a', ""), set('c', ""), set('#', "2")]);
    }

    #[test]
    fn flags_after_a_pv_are_parsed_unless_flags_must_come_first() {
        assert_eq!(parsed("pv -t", false), (vec![set('t', "")], vec!["pv".to_owned()]));
        assert_eq!(parsed("pv -5", true), (vec![], vec!["pv".to_owned(), "-5".to_owned()]));
        assert_eq!(parsed("-- -5", true), (vec![], vec!["-5".to_owned()]));
    }

    #[test]
    fn invalid_flags_are_named_in_the_error() {
        assert_eq!(parsed("-q", false).0, [Flag::Unknown('q')]);
        assert_eq!(parsed("-w", false).0, [Flag::ValueMissing('w')]);
        assert_eq!(parsed("-:", false).0, [Flag::Unknown(':')]);
    }
}
