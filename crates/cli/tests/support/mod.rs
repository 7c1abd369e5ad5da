//! Runs the built program as processes, on loopback only and with timeouts.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use fodo_testing::free_port;

/// The timeout after which a process counts as hung and the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The line on stderr at the end of iocInit.
pub const COMPLETE: &str = "iocRun: All initialization complete\n";

/// A file in the test folder.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The program, searching only at `port` of loopback, without environment variables that would change its output.
pub fn fodo(port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fodo"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("EPICS_")) {
        command.env_remove(name);
    }
    command
        .env("EPICS_CA_ADDR_LIST", format!("127.0.0.1:{port}"))
        .env("EPICS_CA_AUTO_ADDR_LIST", "NO")
        .env("EPICS_CA_REPEATER_PORT", free_port().to_string())
        .env("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO")
        .env("EPICS_CAS_BEACON_ADDR_LIST", format!("127.0.0.1:{port}"))
        .env("EPICS_PVA_ADDR_LIST", format!("127.0.0.1:{port}"))
        .env("EPICS_PVA_AUTO_ADDR_LIST", "NO")
        .env("EPICS_PVA_BROADCAST_PORT", free_port().to_string())
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

/// Runs to the end, with a timeout.
pub fn run(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    end_of(child)
}

/// Runs what waits for something absent until its timeout, in seconds, and must find something else before: again with a
/// longer timeout if the first was too short for a busy machine.
pub fn with_patience(run: impl Fn(&str) -> Output, is_complete: impl Fn(&Output) -> bool) -> Output {
    let output = run("1");
    if is_complete(&output) { output } else { run("20") }
}

/// Waits for the end of a process whose streams are pipes.
pub fn end_of(mut child: Child) -> Output {
    let mut out = child.stdout.take().unwrap();
    let mut err = child.stderr.take().unwrap();
    let reading = thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        sender.send(bytes).unwrap();
    });
    let Ok(stdout) = receiver.recv_timeout(PATIENCE) else {
        child.kill().unwrap();
        panic!("the process hangs");
    };
    Output { status: wait(&mut child), stdout, stderr: reading.join().unwrap() }
}

/// Waits for a process that is about to end.
pub fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the process does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The lines of a running process, each with a timeout.
pub struct Lines(mpsc::Receiver<String>);

impl Lines {
    pub fn of(stdout: ChildStdout) -> Lines {
        Lines::of_stream(stdout)
    }

    pub fn of_stream(stream: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines(receiver)
    }

    pub fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("a line arrives in time")
    }
}

/// The UDP port for searches in a ready line.
pub fn search_port(ready: &str) -> u16 {
    let (circuits, details) = ready.split_once(" (CA").unwrap();
    let port = match details.split_once("searches on UDP ") {
        Some((_, searches)) => searches.split([',', ')']).next(),
        None => circuits.split(':').next_back(),
    };
    port.unwrap().parse().unwrap()
}

/// A running `fodo ioc`, killed when dropped.
pub struct Ioc {
    pub child: Child,
    pub ready: String,
    /// Its UDP port for searches.
    pub port: u16,
}

impl Ioc {
    /// Serves golden.db on free ports of loopback.
    pub fn golden() -> Ioc {
        let database = golden("golden.db");
        Ioc::with(|command| command.arg("-d").arg(&database))
    }

    /// The same with additional arguments.
    pub fn with(arguments: impl FnOnce(&mut Command) -> &mut Command) -> Ioc {
        let mut command = fodo(free_port());
        command.args(["ioc", "--interface", "127.0.0.1", "--port", "0"]);
        let mut child = arguments(&mut command).stdout(Stdio::piped()).spawn().unwrap();
        let ready = Lines::of(child.stdout.take().unwrap()).next();
        let port = search_port(&ready);
        Ioc { child, ready, port }
    }

    /// Its TCP port, from the ready line.
    pub fn tcp_port(&self) -> u16 {
        let (_, rest) = self.ready.split_once("127.0.0.1:").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    }

    /// A command that uses this IOC.
    pub fn fodo(&self, arguments: &[&str]) -> Output {
        run(fodo(self.port).args(arguments))
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        // It may already have ended, as some tests intend.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a stream as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An IOC on loopback, in a folder.
pub fn ioc(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = fodo(free_port());
    command.current_dir(folder).args(["ioc", "--interface", "127.0.0.1", "--port", "0"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end with these lines as input.
pub fn fed(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = ioc(folder, arguments).stdin(Stdio::piped()).spawn().unwrap();
    match child.stdin.take().unwrap().write_all(input.as_bytes()) {
        // The program may end before it has read everything.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    end_of(child)
}
