//! The shell of an IOC: the output of each command, as a user at a terminal sees it.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

mod access;
mod checks;
mod programs;
mod records;
mod scripts;
mod values;
mod values_kept;
mod words;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_ioc::Policy;
use fodo_ioc::shell::{Purpose, RunConfig, Shell};
use fodo_net::ServerConfig;

const PATIENCE: Duration = Duration::from_secs(10);

/// The output of a shell since it was last read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A shell in its own folder, which is removed at the end.
struct Terminal {
    shell: Shell,
    out: Written,
    err: Written,
    folder: PathBuf,
}

impl Terminal {
    fn new() -> Terminal {
        Terminal::with_policy(Policy::default(), false)
    }

    fn with_policy(policy: Policy, has_put_log: bool) -> Terminal {
        static N_TERMINALS: AtomicUsize = AtomicUsize::new(0);
        let number = N_TERMINALS.fetch_add(1, Ordering::Relaxed);
        let name = format!("terminal-{}-{number}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        // The shell shows folders without symbolic links.
        let folder = folder.canonicalize().unwrap();
        let (out, err) = (Written::default(), Written::default());
        let start = RunConfig {
            configure: Box::new(|_| Ok(ServerConfig::isolated())),
            policy,
            has_put_log,
            ready: Box::new(|running| format!("serving {} records\n", running.n_records())),
            complete: Box::new(String::new),
            date: Box::new(|format| format!("the date as {format}")),
            log: None,
            metrics: None,
            reccaster: None,
        };
        // Its links search where there is no IOC, and receive no beacons of other programs.
        let variables = [
            ("EPICS_CA_ADDR_LIST", format!("127.0.0.1:{}", fodo_testing::free_port())),
            ("EPICS_CA_AUTO_ADDR_LIST", "NO".to_owned()),
            ("EPICS_CA_REPEATER_PORT", fodo_testing::free_port().to_string()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        let (to_out, to_err) = (Box::new(out.clone()), Box::new(err.clone()));
        let shell = Shell::new(Purpose::Run(Box::new(start)), &folder, variables, to_out, to_err);
        Terminal { shell, out, err, folder }
    }

    /// A terminal whose IOC serves these records.
    fn serving(database: &str) -> Terminal {
        let mut terminal = Terminal::new();
        terminal.file("a.db", database);
        terminal.run("dbLoadRecords a.db");
        terminal.run("iocInit");
        terminal
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn held(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// The output of a line; every line of stderr begins with `! `.
    fn run(&mut self, line: &str) -> String {
        self.shell.run_line(line);
        let complaints: String = self.err.take().lines().map(|line| format!("! {line}\n")).collect();
        self.out.take() + &complaints
    }

    /// Runs the lines that begin with `> ` and compares the complete output with the text.
    #[track_caller]
    fn assert_goes(&mut self, text: &str) {
        let commands = text.lines().filter_map(|line| line.strip_prefix("> "));
        let seen: String = commands.map(|line| format!("> {line}\n{}", self.run(line))).collect();
        let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trimmed(&seen).replace(&self.folder.display().to_string(), "FOLDER"), trimmed(text).trim_start());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A leftover folder does not affect other tests.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
