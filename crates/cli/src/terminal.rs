//! Lines from a person at a terminal, with history and completion.

use std::io::{self, IsTerminal as _};

use fodo_ioc::shell::Completer;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use rustyline::completion::{Completer as Complete, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use crate::limit::HISTORY_LINES_MAX;

/// Whether a person can type to this program: a program in the background would be stopped when it reads.
pub fn has_person() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp())
}

/// How the terminal was set; puts it back when dropped, since a signal may end the program while a line is edited.
pub struct Restore(Option<Termios>);

impl Restore {
    /// As it is now.
    pub fn later() -> Restore {
        Restore(tcgetattr(io::stdin()).ok())
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // The terminal may be gone; then there is nothing to put back.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, settings);
        }
    }
}

struct Completing(Completer);

impl Helper for Completing {}
impl Highlighter for Completing {}
impl Validator for Completing {}

impl Hinter for Completing {
    type Hint = String;
}

impl Complete for Completing {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.0.complete(line, position);
        let pair = |word: String| Pair { display: word.clone(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

/// Reads lines until the end of the input or Ctrl-C.
pub struct Lines {
    editor: Editor<Completing, MemHistory>,
}

impl Lines {
    /// Takes hold of the terminal.
    pub fn new(completer: Completer) -> io::Result<Lines> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map(|builder| builder.auto_add_history(true).completion_type(CompletionType::List).build())
            .map_err(io::Error::other)?;
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(io::Error::other)?;
        editor.set_helper(Some(Completing(completer)));
        Ok(Lines { editor })
    }

    /// The next line; `None` at the end.
    pub fn next(&mut self, prompt: &str) -> io::Result<Option<String>> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(ReadlineError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
