//! Reads lines typed at a terminal, with history and completion.

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

/// Whether a user can type to this program. A background program would be stopped when it reads from the terminal.
pub fn is_interactive() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp())
}

/// The terminal settings; restores them when dropped, because a signal may end the program while a line is edited.
pub struct TerminalSettings(Option<Termios>);

impl TerminalSettings {
    /// Stores the current settings.
    pub fn later() -> TerminalSettings {
        TerminalSettings(tcgetattr(io::stdin()).ok())
    }
}

impl Drop for TerminalSettings {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // It fails if the terminal no longer exists; then there is nothing to restore.
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
pub struct LineEditor {
    editor: Editor<Completing, MemHistory>,
}

impl LineEditor {
    /// Creates a line editor.
    pub fn new(completer: Completer) -> io::Result<LineEditor> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map(|builder| builder.auto_add_history(true).completion_type(CompletionType::List).build())
            .map_err(io::Error::other)?;
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(io::Error::other)?;
        editor.set_helper(Some(Completing(completer)));
        Ok(LineEditor { editor })
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
