//! Captured commands and their output.

/// One captured command.
pub struct Captured {
    /// The command line.
    pub command: String,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
    /// Its exit code, or a note that it has none.
    pub end: String,
}

/// The commands of a file.
pub fn commands(text: &str) -> Vec<Captured> {
    let mut all: Vec<Captured> = Vec::new();
    for line in text.split('\n') {
        let (mark, rest) = line.split_at(line.len().min(2));
        match (mark, all.last_mut()) {
            ("$ ", _) => all.push(Captured {
                command: rest.to_owned(),
                out: String::new(),
                err: String::new(),
                end: String::new(),
            }),
            ("> ", Some(last)) => last.out += &format!("{rest}\n"),
            ("! ", Some(last)) => last.err += &format!("{rest}\n"),
            ("= ", Some(last)) => last.end = rest.to_owned(),
            _ => {}
        }
    }
    all
}

impl Captured {
    /// The words of the command line, split as by a shell.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        let mut characters = self.command.chars().peekable();
        while let Some(character) = characters.next() {
            match (character, quote) {
                ('"' | '\'', None) => quote = Some(character),
                (character, Some(open)) if character == open => quote = None,
                ('\\', Some('"')) if characters.peek() == Some(&'"') => {
                    words.last_mut().unwrap().extend(characters.next())
                }
                (' ', None) => words.push(String::new()),
                (other, _) => words.last_mut().unwrap().push(other),
            }
        }
        words
    }

    /// Its stderr without libca's report about a failed write.
    pub fn err_without_report(&self) -> String {
        let mut is_report = false;
        let mut kept = String::new();
        for line in self.err.split_inclusive('\n') {
            is_report |= line.starts_with("CA.Client.Exception");
            if !is_report {
                kept.push_str(line);
            }
            is_report &= !line.starts_with("......");
        }
        kept
    }
}
