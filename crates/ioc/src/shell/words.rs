//! Splits a line of the shell into words: quotes, escapes, parentheses and redirections.
//!
//! Source: EPICS Base 7.0, iocsh.cpp: spaces, commas and parentheses separate words.

/// A word and the column where it starts, in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) column: usize,
}

/// A stream that can be redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectedStream {
    /// `<`
    Commands,
    /// `>`
    Out,
    /// `2>`
    Err,
}

/// A redirection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) stream: RedirectedStream,
    /// Whether the output is appended, `>>`.
    pub(crate) appends: bool,
    pub(crate) file: Word,
}

/// A parsed line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
}

/// The column and the message of an error.
pub(crate) type LineError = (usize, String);

/// Parses a line whose macros are already expanded.
pub(crate) fn split(text: &str) -> Result<ParsedLine, LineError> {
    let mut line = ParsedLine::default();
    let mut pending: Option<(RedirectedStream, bool, usize)> = None;
    let mut characters = text.chars().enumerate().map(|(index, character)| (index + 1, character)).peekable();
    while let Some(&(column, character)) = characters.peek() {
        if is_separator(character) {
            characters.next();
            continue;
        }
        if let Some(stream) = redirection(character) {
            characters.next();
            let appends =
                stream != RedirectedStream::Commands && characters.next_if(|&(_, next)| next == '>').is_some();
            // A `2` directly before `>` selects stderr; with a space between, it is an argument.
            let is_second = |word: &Word| word.text == "2" && word.column + 1 == column;
            let stream = if stream == RedirectedStream::Out && line.words.last().is_some_and(is_second) {
                line.words.pop();
                RedirectedStream::Err
            } else {
                stream
            };
            if pending.is_some() {
                return Err((column, "a file name is missing before this redirection".into()));
            }
            pending = Some((stream, appends, column));
            continue;
        }
        let word = word(&mut characters, column)?;
        match pending.take() {
            Some((stream, appends, _)) => line.redirects.push(Redirect { stream, appends, file: word }),
            None => line.words.push(word),
        }
    }
    match pending {
        Some((_, _, column)) => Err((column, "a file name is missing after this redirection".into())),
        None => Ok(line),
    }
}

fn is_separator(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | ',' | '(' | ')')
}

fn redirection(character: char) -> Option<RedirectedStream> {
    match character {
        '<' => Some(RedirectedStream::Commands),
        '>' => Some(RedirectedStream::Out),
        _ => None,
    }
}

fn word(
    characters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    start: usize,
) -> Result<Word, LineError> {
    let mut text = String::new();
    let mut quote: Option<(usize, char)> = None;
    while let Some(&(column, character)) = characters.peek() {
        match (character, quote) {
            // Inside quotes a backslash is an ordinary character, as in Base.
            ('\\', None) => {
                characters.next();
                match characters.peek() {
                    Some(&(_, next)) => text.push(next),
                    None => return Err((column, "nothing follows this backslash".into())),
                }
            }
            (character, Some((_, open))) if character == open => quote = None,
            ('"' | '\'', None) => quote = Some((column, character)),
            (character, None) if is_separator(character) || redirection(character).is_some() => break,
            (character, _) => text.push(character),
        }
        characters.next();
    }
    match quote {
        Some((column, open)) => Err((column, format!("the closing {open} is missing"))),
        None => Ok(Word { text, column: start }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(text).unwrap().words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn both_command_syntaxes_parse_to_the_same_words() {
        let expected = ["dbLoadRecords", "a b.db", "P=x:,R=1", ""];

        assert_eq!(words("dbLoadRecords(\"a b.db\", \"P=x:,R=1\", \"\")"), expected);
        assert_eq!(words("  dbLoadRecords 'a b.db' P=x:\\,R=1 ''\r"), expected);
        assert_eq!(words("dbl"), ["dbl"]);
        assert_eq!(words("cmd(a\"b c\"'d,e')"), ["cmd", "ab cd,e"]);
        assert_eq!(words("cmd \"C:\\dir\\\" a\\\"b"), ["cmd", "C:\\dir\\", "a\"b"]);
    }

    #[test]
    fn redirections_are_distinguished_from_arguments() {
        let line = split("dbl ai 2 > all.txt 2>>err.txt").unwrap();

        let words: Vec<_> = line.words.iter().map(|word| word.text.as_str()).collect();
        let redirects: Vec<_> = line
            .redirects
            .iter()
            .map(|redirect| (redirect.stream, redirect.appends, redirect.file.text.as_str()))
            .collect();
        assert_eq!(words, ["dbl", "ai", "2"]);
        assert_eq!(redirects, [(RedirectedStream::Out, false, "all.txt"), (RedirectedStream::Err, true, "err.txt")]);
        assert_eq!(split("< envPaths").unwrap().redirects[0].stream, RedirectedStream::Commands);
    }

    #[test]
    fn unclosed_quotes_and_brackets_are_reported_with_their_column() {
        assert_eq!(split("echo \"a").unwrap_err().0, 6);
        assert_eq!(split("echo a >").unwrap_err().0, 8);
        assert_eq!(split("echo a\\").unwrap_err().0, 7);
    }
}
