//! Runs lines and scripts, and handles their errors.

use std::io::Write;
use std::time::Duration;

use fodo_db::LoadError;

use super::check::{CheckFinding, FindingLevel};
use super::words::{self, ParsedLine, Redirect, RedirectedStream, Word};
use super::{CommandError, CommandLine, IocStage, Shell, table};
use crate::limit::SCRIPT_DEPTH_MAX;

/// The result of a command.
pub(super) type CommandResult = Result<Flow, CommandError>;

/// How execution continues after a line or script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next line.
    Next,
    /// `on error break` ended the script.
    Broken,
    /// `on error halt`: no further lines are read; a running IOC continues to serve.
    Halted,
    /// `exit`, with its exit code.
    Exit(u8),
}

/// The effect of an error on a script.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OnError {
    Continue,
    Break,
    Halt,
    Wait(Duration),
}

/// The destination of a stream.
type OutputWriter = Box<dyn Write + Send>;

/// A running script.
pub(super) struct RunningScript {
    name: String,
    number: usize,
    source: String,
    on_error: OnError,
}

impl Shell {
    /// Runs a script and echoes each line with its macros expanded. Returns `Broken` also if the script cannot be read.
    ///
    /// As in EPICS Base, sets the variable IOCSH_STARTUP_SCRIPT to the name of the script.
    pub fn run_script(&mut self, name: &str) -> Flow {
        self.define("IOCSH_STARTUP_SCRIPT", name);
        match self.script(name) {
            Ok(flow) => flow,
            Err(failure) => {
                self.tell(failure, &[]);
                Flow::Broken
            }
        }
    }

    /// Runs one typed line.
    pub fn run_line(&mut self, line: &str) -> Flow {
        match self.line(line, false) {
            Ok(flow) => flow,
            Err((failure, columns)) => {
                self.tell(failure, &columns);
                Flow::Next
            }
        }
    }

    /// Runs one command given as words, and returns its errors instead of printing them.
    pub fn attempt(&mut self, words: &[&str]) -> Result<(), Vec<LoadError>> {
        let word = |text: &&str| Word { text: (*text).to_owned(), column: 1 };
        let line = ParsedLine { words: words.iter().map(word).collect(), redirects: Vec::new() };
        match self.command(&line) {
            Ok(_) => Ok(()),
            Err(CommandError::Word(_, message)) => Err(vec![self.at(0, message)]),
            Err(CommandError::Files(errors)) => Err(errors),
        }
    }

    /// Runs a script to its end, or until an error or `exit` ends it.
    pub(super) fn script(&mut self, name: &str) -> Result<Flow, CommandError> {
        if self.within.len() >= SCRIPT_DEPTH_MAX {
            return Err(format!("scripts are nested too deeply; the limit is {SCRIPT_DEPTH_MAX}").into());
        }
        let bytes =
            crate::file::read(self.path(name)).map_err(|error| format!("\"{name}\" cannot be read: {error}"))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let first = if self.is_strict { OnError::Break } else { OnError::Continue };
        let on_error = self.within.last().map_or(first, |within| within.on_error);
        self.within.push(RunningScript { name: name.to_owned(), number: 0, source: String::new(), on_error });
        let flow = self.lines(text.strip_prefix('\u{feff}').unwrap_or(&text));
        self.within.pop();
        Ok(flow)
    }

    fn lines(&mut self, text: &str) -> Flow {
        for line in text.lines() {
            if let Some(within) = self.within.last_mut() {
                within.number += 1;
                line.clone_into(&mut within.source);
            }
            let is_shown = !line.trim_start().starts_with("#-") && !self.is_check();
            match self.line(line, is_shown) {
                Ok(Flow::Next) => {}
                Ok(flow) => return flow,
                Err((failure, columns)) => {
                    self.tell(failure, &columns);
                    match self.within.last().map_or(OnError::Continue, |within| within.on_error) {
                        // A check continues to find further errors.
                        _ if self.is_check() => {}
                        OnError::Continue => {}
                        OnError::Break => return Flow::Broken,
                        OnError::Halt => return Flow::Halted,
                        OnError::Wait(pause) => std::thread::sleep(pause),
                    }
                }
            }
        }
        Flow::Next
    }

    /// Runs one line; a failure includes the column of each word in the source line.
    fn line(&mut self, text: &str, is_shown: bool) -> Result<Flow, (CommandError, Vec<usize>)> {
        let is_comment = |text: &str| text.trim().is_empty() || text.trim_start().starts_with('#');
        let column = |position: usize| text.get(..position).map_or(0, |before| before.chars().count()) + 1;
        let expanded = match is_comment(text) {
            true => Ok(text.to_owned()),
            false => self.macros.expand_line(text),
        };
        if is_shown {
            let line = expanded.as_deref().unwrap_or(text);
            self.say(&format!("{line}\n"));
        }
        let expanded = expanded.map_err(|error| (error.message.into(), vec![column(error.position)]))?;
        if is_comment(&expanded) {
            return Ok(Flow::Next);
        }
        let line = words::split(&expanded).map_err(|(column, message)| (message.into(), vec![column]))?;
        let columns = columns(text, &line);
        self.command(&line).map_err(|failure| (failure, columns))
    }

    fn command(&mut self, line: &ParsedLine) -> Result<Flow, CommandError> {
        if let Some(redirect) = line.redirects.iter().find(|redirect| redirect.stream == RedirectedStream::Commands) {
            return self.inner(&redirect.file.text);
        }
        let Some(Word { text: name, .. }) = line.words.first() else { return Ok(Flow::Next) };
        let call = CommandLine { words: &line.words };
        if name == "on" {
            return self.on_error(&call);
        }
        let Some(command) = table::find(name) else { return self.unknown_command(name) };
        if self.is_check() {
            return if command.is_checked { (command.run)(self, &call) } else { Ok(Flow::Next) };
        }
        let before = self.redirect(&line.redirects)?;
        let result = (command.run)(self, &call);
        if let IocStage::Running(driver) = &self.stage {
            // What records print appears before the output of the next command.
            driver.flush_printed();
        }
        for (stream, writer) in before {
            drop(self.exchange(stream, writer));
        }
        result
    }

    /// Runs a script from another script; `exit` in it ends only itself, as in Base.
    pub(super) fn inner(&mut self, name: &str) -> Result<Flow, CommandError> {
        match self.script(name)? {
            Flow::Broken => Err(format!("\"{name}\" was stopped by an error").into()),
            Flow::Exit(_) | Flow::Next => Ok(Flow::Next),
            Flow::Halted => Ok(Flow::Halted),
        }
    }

    /// `on error continue|break|halt|wait SECONDS`
    fn on_error(&mut self, call: &CommandLine<'_>) -> Result<Flow, CommandError> {
        const USAGE: &str = "usage: on error continue|break|halt|wait SECONDS";
        let reaction = match (call.argument(1), call.argument(2)) {
            (Some("error"), Some("continue")) => OnError::Continue,
            (Some("error"), Some("break")) => OnError::Break,
            (Some("error"), Some("halt")) => OnError::Halt,
            (Some("error"), Some("wait")) => {
                let text = call.needed(3, "the number of seconds")?;
                OnError::Wait(seconds(text).map_err(|message| CommandError::Word(3, message))?)
            }
            (Some("error"), Some(_)) => return Err(CommandError::Word(2, USAGE.into())),
            _ => return Err(USAGE.to_owned().into()),
        };
        // Without a script, the user sees the error and decides.
        if let Some(within) = self.within.last_mut() {
            within.on_error = reaction;
        }
        Ok(Flow::Next)
    }

    /// Redirects outputs to files; returns the previous writers.
    fn redirect(&mut self, redirects: &[Redirect]) -> Result<Vec<(RedirectedStream, OutputWriter)>, CommandError> {
        let mut before = Vec::new();
        for redirect in redirects {
            let path = self.path(&redirect.file.text);
            match crate::file::open_to_write(&path, redirect.appends) {
                Ok(file) => before.push((redirect.stream, self.exchange(redirect.stream, Box::new(file)))),
                Err(error) => {
                    for (stream, writer) in before {
                        drop(self.exchange(stream, writer));
                    }
                    return Err(format!("\"{}\" cannot be written: {error}", redirect.file.text).into());
                }
            }
        }
        Ok(before)
    }

    fn exchange(&mut self, stream: RedirectedStream, writer: OutputWriter) -> OutputWriter {
        let place = if stream == RedirectedStream::Err { &mut self.err } else { &mut self.out };
        std::mem::replace(place, writer)
    }

    /// Handles a name that is not a command.
    fn unknown_command(&mut self, name: &str) -> Result<Flow, CommandError> {
        if table::is_accepted_without_effect(name) {
            return Ok(Flow::Next);
        }
        let Some(why) = table::not_supported(name) else {
            return Err(format!("there is no command \"{name}\"{}", table::hint(name)).into());
        };
        // In a script, once for all commands missing for the same reason; for a typed command, each time.
        if self.reported.insert(why.to_owned()) || self.within.is_empty() {
            self.remark(format!("{name}: {why}"));
        }
        Ok(Flow::Next)
    }

    /// A remark that is printed once, even if a script repeats its cause.
    pub(super) fn remark_reason(&mut self, why: &str) {
        if self.reported.insert(why.to_owned()) || self.within.is_empty() {
            self.remark(why.to_owned());
        }
    }

    /// Reports a warning with the position of the current line.
    pub(super) fn remark(&mut self, message: String) {
        let error = self.at(0, message);
        self.deliver(FindingLevel::Warning, error);
    }

    pub(super) fn tell(&mut self, failure: CommandError, columns: &[usize]) {
        match failure {
            CommandError::Word(index, message) => {
                let column = columns.get(index).or(columns.first()).copied().unwrap_or(1);
                let error = self.at(column, message);
                self.deliver(FindingLevel::Error, error);
            }
            CommandError::Files(errors) => {
                let places = self.places();
                for mut error in errors {
                    error.from.extend_from_slice(&places);
                    self.deliver(FindingLevel::Error, error);
                }
            }
        }
    }

    /// The current line of each running script, innermost first.
    pub(super) fn places(&self) -> Vec<String> {
        self.within.iter().rev().map(|within| format!("{}:{}", within.name, within.number)).collect()
    }

    /// Makes an error at a column of the current line; 0 means the whole line.
    fn at(&self, column: usize, message: String) -> LoadError {
        match self.within.last() {
            Some(innermost) => LoadError {
                file: innermost.name.clone(),
                line: innermost.number,
                column: column.max(1),
                message,
                source: innermost.source.clone(),
                from: self.places().split_off(1),
            },
            None => LoadError { message, ..LoadError::default() },
        }
    }

    pub(super) fn deliver(&mut self, weight: FindingLevel, error: LoadError) {
        if self.is_check() {
            self.findings.push(CheckFinding { weight, error });
            return;
        }
        self.complain(&error.to_string());
    }

    /// The findings of a check, in the order of the lines. Records of a script without `iocInit` are checked now.
    pub fn into_findings(mut self) -> Vec<CheckFinding> {
        self.look_at_records();
        self.findings
    }
}

/// The columns of the words in the source line, unless macro expansion changed the number of words.
fn columns(text: &str, line: &ParsedLine) -> Vec<usize> {
    let of = |line: &ParsedLine| line.words.iter().map(|word| word.column).collect::<Vec<_>>();
    match words::split(&text.replace("$(", "__").replace("${", "__").replace('}', "_")) {
        Ok(written) if written.words.len() == line.words.len() => of(&written),
        _ => of(line),
    }
}

/// Parses a duration in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.ok_or_else(|| format!("\"{text}\" is not a valid number of seconds"))
}
