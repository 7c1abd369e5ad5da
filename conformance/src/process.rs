//! Child processes that end with their owner.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{TestFailure, place};

/// Number of last output lines of a child that are kept for reports.
const KEPT_LINES_MAX: usize = 60;

/// Maximum time of a script in its own network.
const SCRIPT_DURATION_MAX: Duration = Duration::from_secs(90);

/// Restricts a command to loopback, and gives it its own ports.
pub fn restrict_to_loopback(command: &mut Command, port: u16) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EPICS_") {
            command.env_remove(name);
        }
    }
    let isolated = ["EPICS_CA_REPEATER_PORT", "EPICS_PVA_BROADCAST_PORT", "EPICS_PVA_SERVER_PORT"];
    for name in isolated {
        command.env(name, place::free_port().to_string());
    }
    for name in [
        "EPICS_CA_ADDR_LIST",
        "EPICS_CAS_INTF_ADDR_LIST",
        "EPICS_CAS_BEACON_ADDR_LIST",
        "EPICS_PVA_ADDR_LIST",
        "EPICS_PVAS_INTF_ADDR_LIST",
        "EPICS_PVAS_BEACON_ADDR_LIST",
    ] {
        command.env(name, "127.0.0.1");
    }
    for name in [
        "EPICS_CA_AUTO_ADDR_LIST",
        "EPICS_CAS_AUTO_BEACON_ADDR_LIST",
        "EPICS_PVA_AUTO_ADDR_LIST",
        "EPICS_PVAS_AUTO_BEACON_ADDR_LIST",
    ] {
        command.env(name, "NO");
    }
    command.env("EPICS_CA_SERVER_PORT", port.to_string());
    command.env("EPICS_CAS_SERVER_PORT", port.to_string());
    // Old clients need this for 4 MB; newer ones have no limit.
    command.env("EPICS_CA_MAX_ARRAY_BYTES", "20000000");
}

/// Gives a command that is [restricted to loopback](restrict_to_loopback) these ports of pvAccess.
pub fn set_pva_ports(command: &mut Command, search_port: u16, tcp_port: u16) {
    for (name, port) in [
        ("EPICS_PVA_BROADCAST_PORT", search_port),
        ("EPICS_PVAS_BROADCAST_PORT", search_port),
        ("EPICS_PVA_SERVER_PORT", tcp_port),
        ("EPICS_PVAS_SERVER_PORT", tcp_port),
    ] {
        command.env(name, port.to_string());
    }
}

/// A running child in its own process group; the whole group is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    /// Disconnected after the end of standard error, when all of its lines are kept.
    complaints: Receiver<()>,
    name: String,
}

impl Process {
    /// Starts the command. Standard output is read line by line; standard error is kept for reports.
    pub fn start(name: &str, command: &mut Command) -> Result<Process, TestFailure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{name}: {command:?}: {error}"))?;

        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let (line_out, lines) = channel();
        if let Some(output) = child.stdout.take() {
            let kept = Arc::clone(&last_words);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    keep(&kept, &line);
                    if line_out.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let (until_here, complaints) = channel();
        if let Some(output) = child.stderr.take() {
            let kept = Arc::clone(&last_words);
            std::thread::spawn(move || {
                let _until_here = until_here;
                let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
                lines.for_each(|line| keep(&kept, &String::from_utf8_lossy(&line)));
            });
        }
        let input = child.stdin.take();
        Ok(Process { child, input, lines, last_words, complaints, name: name.to_string() })
    }

    /// The next line of its standard output.
    pub fn line(&mut self, timeout: Duration) -> Result<String, TestFailure> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.failure(&format!("printed nothing for {timeout:?}"))),
            Err(RecvTimeoutError::Disconnected) => {
                // Its last lines may still be in the pipe; its own children may keep the pipe open.
                let _ = self.complaints.recv_timeout(Duration::from_secs(1));
                Err(self.failure("has ended"))
            }
        }
    }

    /// Waits for a line that starts with `beginning`, and returns it.
    pub fn wait_for_line_starting(&mut self, beginning: &str, timeout: Duration) -> Result<String, TestFailure> {
        let deadline = Instant::now() + timeout;
        loop {
            let line = self.line(deadline.saturating_duration_since(Instant::now()))?;
            if line.starts_with(beginning) {
                return Ok(line);
            }
        }
    }

    /// Writes a line to its standard input.
    pub fn write_line(&mut self, line: &str) -> Result<(), TestFailure> {
        let written = match &mut self.input {
            Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
            None => return Err(self.failure("has closed its input")),
        };
        written.map_err(|error| self.failure(&error.to_string()))
    }

    /// Its folder in `/proc`. `/proc` may belong to another PID namespace than ours, where the process has another
    /// number.
    pub fn proc_folder(&self) -> Option<PathBuf> {
        let namespace = |of: &Path| std::fs::read_link(of.join("ns/pid")).ok();
        let (ours, id) = (namespace(Path::new("/proc/self")), self.child.id().to_string());
        let is_child = |of: &PathBuf| {
            let status = std::fs::read_to_string(of.join("status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            numbers.split_whitespace().last() == Some(id.as_str()) && namespace(of) == ours
        };
        let mut all = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
        all.find(is_child)
    }

    /// Sends a signal to the process only, not to its group.
    pub fn signal(&self, signal: Signal) -> Result<(), TestFailure> {
        let id = Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).map_err(|error| self.failure(&error.to_string()))
    }

    /// Sends a signal and waits for the exit.
    pub fn stop(mut self, signal: Signal, timeout: Duration) -> Result<std::process::ExitStatus, TestFailure> {
        self.signal(signal)?;
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.failure(&format!("did not exit within {timeout:?} after {signal:?}")))
    }

    /// Kills the process and its group.
    pub fn kill(&mut self) {
        // An error means that it has already exited.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// A failure message with the child's last output lines.
    pub fn failure(&self, what: &str) -> TestFailure {
        let words = self.last_words.lock().map(|words| words.iter().cloned().collect::<Vec<_>>()).unwrap_or_default();
        format!("{} {what}; its last output:\n{}", self.name, words.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keep(kept: &Mutex<VecDeque<String>>, line: &str) {
    if let Ok(mut kept) = kept.lock() {
        if kept.len() == KEPT_LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(line.chars().take(300).collect());
    }
}

/// Runs a command to its end and returns its standard output, or an error if it fails or takes longer than `timeout`.
pub fn printed_by(name: &str, command: &mut Command, timeout: Duration) -> Result<String, TestFailure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{name}: {command:?}: {error}"))?;
    let readers = (read_all(child.stdout.take()), read_all(child.stderr.take()));

    let deadline = Instant::now() + timeout;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            _ => break None,
        }
    };
    if status.is_none() {
        // It may have exited at this very moment.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
    }
    let printed = readers.0.join().unwrap_or_default();
    let complaints = readers.1.join().unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(printed),
        Some(status) => Err(format!("{name}: {status}\n{printed}{complaints}")),
        None => Err(format!("{name}: not finished after {timeout:?}\n{printed}{complaints}")),
    }
}

/// Runs a script with an empty environment in a network with loopback only. `None`, with a message, where that is not
/// permitted.
pub fn printed_alone(script: &str) -> Result<Option<String>, TestFailure> {
    let folder = place::program().parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    let search_path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(place::own_folder().join("alone.sh"));
    command.args(["bash", "-c"]).arg(format!("set -euo pipefail\n{script}"));
    command.env_clear().env("PATH", search_path);
    match printed_by("script", &mut command, SCRIPT_DURATION_MAX) {
        Err(failure) if failure.contains("exit status: 77") => {
            eprintln!("skipped: network namespaces are not permitted on this host");
            Ok(None)
        }
        printed => printed.map(Some),
    }
}

fn read_all(output: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut output) = output {
            // Data read before an error is still worth showing.
            let _ = output.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_process_ends_its_child_and_grandchildren() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]);
        let mut process = Process::start("sh", &mut shell).unwrap();
        let grandchild: i32 = process.line(Duration::from_secs(5)).unwrap().trim().parse().unwrap();

        drop(process);

        // The kernel may take a moment to remove killed processes.
        let deadline = Instant::now() + Duration::from_secs(5);
        while is_running(grandchild) {
            assert!(Instant::now() < deadline, "the grandchild is still running");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_running(id: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }

    #[test]
    fn waiting_for_a_line_of_an_ended_child_is_an_error() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo complaint >&2; exit 1"]);
        let mut process = Process::start("sh", &mut shell).unwrap();

        let failure = process.wait_for_line_starting("ready", Duration::from_secs(5)).unwrap_err();
        assert!(failure.contains("has ended"), "{failure}");
    }
}
