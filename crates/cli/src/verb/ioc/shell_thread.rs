//! The thread that loads the files of an IOC and reads commands.

use super::*;

/// The source of commands after the arguments.
pub(super) enum CommandSource {
    None,
    /// A pipe or a file.
    Lines,
    Person,
}

/// The work of the shell thread.
pub(super) struct ShellThread {
    pub(super) is_verbose: bool,
    pub(super) descriptions: Vec<PathBuf>,
    /// Whether databases with errors are served without their invalid parts.
    pub(super) keeps_going: bool,
    /// The access file and its macros.
    pub(super) access: Option<(PathBuf, String)>,
    /// Whether there are records or other PVs that are not in files.
    pub(super) has_records: bool,
    pub(super) input: CommandSource,
}

impl ShellThread {
    pub(super) fn run(&self, shell: &mut Shell, files: &[(PathBuf, String)]) -> io::Result<IocEvent> {
        if let Some(end) = self.files(shell, files)? {
            return Ok(end);
        }
        let end = match self.input {
            CommandSource::None => IocEvent::Silence,
            CommandSource::Lines => self.lines(shell)?,
            CommandSource::Person => self.person(shell)?,
        };
        if matches!(end, IocEvent::Silence) && !shell.is_running() {
            let hint = if files.is_empty() { "; give a database or a script, see fodo ioc --help" } else { "" };
            return self.refuse(&format!("iocInit was never run, so nothing is served{hint}"));
        }
        Ok(end)
    }

    /// Loads the .dbd files and databases, starts them and runs the scripts; returns the end, if this ends the IOC.
    fn files(&self, shell: &mut Shell, files: &[(PathBuf, String)]) -> io::Result<Option<IocEvent>> {
        if let Some((access, macros)) = &self.access {
            self.command(shell, &["asSetFilename", &access.to_string_lossy()])?;
            if !macros.is_empty() {
                self.command(shell, &["asSetSubstitutions", macros])?;
            }
        }
        for description in &self.descriptions {
            if !self.command(shell, &["dbLoadDatabase", &description.to_string_lossy()])? && !self.keeps_going {
                return Ok(Some(IocEvent::Failed));
            }
        }
        let sorted = files.iter().map(|(file, macros)| (FileType::of(file), file, macros));
        let (scripts, databases): (Vec<_>, Vec<_>) = sorted.partition(|(sort, ..)| *sort == FileType::Script);
        for (sort, file, macros) in &databases {
            let name = file.to_string_lossy();
            let words = match sort {
                FileType::Description => ["dbLoadDatabase", &name, "", macros].to_vec(),
                FileType::Substitutions => ["dbLoadTemplate", &name, macros].to_vec(),
                FileType::Groups => ["dbLoadGroup", &name, macros].to_vec(),
                FileType::Database | FileType::Script => ["dbLoadRecords", &name, macros].to_vec(),
            };
            if !self.command(shell, &words)? && !self.keeps_going {
                return Ok(Some(IocEvent::Failed));
            }
        }
        let has_records = |sort: &FileType| !matches!(sort, FileType::Description | FileType::Groups);
        let has_databases = databases.iter().any(|(sort, ..)| has_records(sort));
        if (has_databases || self.has_records) && !self.command(shell, &["iocInit"])? {
            return Ok(Some(IocEvent::Failed));
        }
        for (_, script, _) in scripts {
            match shell.run_script(&script.to_string_lossy()) {
                Flow::Next => {}
                Flow::Broken => return Ok(Some(IocEvent::Failed)),
                Flow::Halted => return Ok(Some(IocEvent::Silence)),
                Flow::Exit(code) => return Ok(Some(IocEvent::Exit(code))),
            }
        }
        Ok(None)
    }

    fn command(&self, shell: &mut Shell, words: &[&str]) -> io::Result<bool> {
        if self.is_verbose {
            writeln!(io::stdout(), "{}", words.join(" "))?;
        }
        let Err(errors) = shell.attempt(words) else { return Ok(true) };
        for error in errors {
            self.refuse(&error.to_string())?;
        }
        Ok(false)
    }

    /// Reports why it does not serve, one line for each reason.
    fn refuse(&self, reasons: &str) -> io::Result<IocEvent> {
        for reason in printable(reasons).lines() {
            writeln!(io::stderr(), "fodo ioc: {reason}")?;
        }
        Ok(IocEvent::Failed)
    }

    fn lines(&self, shell: &mut Shell) -> io::Result<IocEvent> {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let n_bytes = input.by_ref().take(COMMAND_BYTES_MAX).read_until(b'\n', &mut line)?;
            if n_bytes == 0 {
                return Ok(IocEvent::Silence);
            }
            if n_bytes as u64 == COMMAND_BYTES_MAX && !line.ends_with(b"\n") {
                self.refuse(&format!(
                    "a line of the input has more than {COMMAND_BYTES_MAX} bytes; the rest is not read"
                ))?;
                return Ok(IocEvent::Silence);
            }
            match shell.run_line(String::from_utf8_lossy(&line).trim_end_matches('\n')) {
                Flow::Exit(code) => return Ok(IocEvent::Exit(code)),
                Flow::Halted => return Ok(IocEvent::Silence),
                Flow::Next | Flow::Broken => {}
            }
        }
    }

    fn person(&self, shell: &mut Shell) -> io::Result<IocEvent> {
        let mut lines = terminal::LineEditor::new(shell.completer())?;
        loop {
            let prompt = shell.variable("IOCSH_PS1").unwrap_or("epics> ").to_owned();
            let Some(line) = lines.next(&prompt)? else { return Ok(IocEvent::Exit(0)) };
            if let Flow::Exit(code) = shell.run_line(&line) {
                return Ok(IocEvent::Exit(code));
            }
        }
    }
}
