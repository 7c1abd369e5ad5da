//! Processes of a run: pinned, restricted to loopback, and ended with their handle.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::driver::DriverFailure;
use crate::limit::{EXIT_MAX, OUTPUT_LINES_KEPT};
use crate::protocol::LabProtocol;

/// The ports for programs: below those that the system gives to sockets without a port.
const PORTS: Range<u16> = 12_000..32_000;

/// Distance between the first ports of two processes with consecutive numbers.
const PORT_STEP: u32 = 397;

/// The ports of one server and its clients, chosen so that they do not reach other programs on this host.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Port of Channel Access for searches and, if it is free, circuits.
    pub server: u16,
    /// Port of pvAccess for searches and circuits.
    pub pva: u16,
    /// Port for beacons.
    pub repeater: u16,
    /// Address of the server.
    pub host: Ipv4Addr,
    /// A process in whose network namespace these programs are started; `None` for the laboratory's own.
    pub network_of: Option<u32>,
}

impl Ports {
    /// Chooses ports that are free at the moment, for TCP and UDP.
    pub fn free() -> std::io::Result<Ports> {
        let (server, pva, repeater) = (free_port()?, free_port()?, free_port()?);
        Ok(Ports { server, pva, repeater, host: Ipv4Addr::LOCALHOST, network_of: None })
    }

    /// Port for circuits of a protocol.
    pub fn port_of(self, protocol: LabProtocol) -> u16 {
        match protocol {
            LabProtocol::Ca => self.server,
            LabProtocol::Pva => self.pva,
        }
    }

    /// The environment variables that restrict Channel Access and pvAccess to this host and these ports.
    fn environment(self) -> Vec<(&'static str, String)> {
        let host = self.host.to_string();
        let server = self.server.to_string();
        vec![
            ("EPICS_CA_ADDR_LIST", host.clone()),
            ("EPICS_CA_AUTO_ADDR_LIST", "NO".into()),
            ("EPICS_CA_SERVER_PORT", server.clone()),
            ("EPICS_CA_REPEATER_PORT", self.repeater.to_string()),
            ("EPICS_CA_MAX_ARRAY_BYTES", "1000000000".into()),
            ("EPICS_CAS_INTF_ADDR_LIST", host.clone()),
            ("EPICS_CAS_SERVER_PORT", server),
            ("EPICS_CAS_BEACON_ADDR_LIST", host.clone()),
            ("EPICS_CAS_BEACON_PORT", self.repeater.to_string()),
            ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO".into()),
            ("EPICS_PVA_ADDR_LIST", host.clone()),
            ("EPICS_PVA_AUTO_ADDR_LIST", "NO".into()),
            ("EPICS_PVA_BROADCAST_PORT", self.pva.to_string()),
            ("EPICS_PVA_SERVER_PORT", self.pva.to_string()),
            ("EPICS_PVA_MAX_ARRAY_BYTES", "1000000000".into()),
            ("EPICS_PVAS_INTF_ADDR_LIST", host.clone()),
            ("EPICS_PVAS_SERVER_PORT", self.pva.to_string()),
            ("EPICS_PVAS_BROADCAST_PORT", self.pva.to_string()),
            ("EPICS_PVAS_BEACON_ADDR_LIST", host),
            ("EPICS_PVAS_AUTO_BEACON_ADDR_LIST", "NO".into()),
        ]
    }
}

/// A port that this process has not chosen before. Sockets without a port of their own do not get it either, while its
/// program starts or restarts.
fn free_port() -> std::io::Result<u16> {
    static N_CHOSEN: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let first = std::process::id().wrapping_mul(PORT_STEP);
    let mut failure = std::io::ErrorKind::AddrInUse.into();
    for _attempt in 0..100 {
        let number = first.wrapping_add(N_CHOSEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (number % PORTS.len() as u32) as u16;
        let address = (Ipv4Addr::LOCALHOST, port);
        match UdpSocket::bind(address).and_then(|_udp| TcpListener::bind(address)) {
            Ok(_tcp) => return Ok(port),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its name, for messages.
    pub who: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The CPU to pin it to; `None` for any.
    pub cpu: Option<usize>,
    /// The ports it may use.
    pub ports: Ports,
    /// Variables in addition to those that restrict it to loopback.
    pub variables: Vec<(&'static str, OsString)>,
}

/// The command of a launch, with its restricted environment.
pub fn command(launch: &Launch) -> std::io::Result<Command> {
    let mut command = wrapped(launch)?;
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_epics(name)) {
        command.env_remove(name);
    }
    // A backtrace would push the panic message out of the lines that are kept.
    command.env("RUST_BACKTRACE", "0");
    command.envs(launch.ports.environment());
    command.envs(launch.variables.iter().map(|(name, text)| (name, text)));
    Ok(command)
}

/// A running process; it ends when dropped.
#[derive(Debug)]
pub struct ChildProcess {
    who: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: Receiver<String>,
    last: VecDeque<String>,
}

impl ChildProcess {
    /// Starts the process. Its standard input stays open until the handle is dropped.
    pub fn start(launch: &Launch) -> Result<ChildProcess, DriverFailure> {
        let unavailable =
            |why: std::io::Error| DriverFailure::Unavailable { who: launch.who.clone(), why: why.to_string() };
        let mut command = command(launch).map_err(unavailable)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(unavailable)?;
        let (sender, output) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            forward_lines(stdout, sender.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            forward_lines(stderr, sender);
        }
        let stdin = child.stdin.take();
        Ok(ChildProcess { who: launch.who.clone(), child, stdin, output, last: VecDeque::new() })
    }

    /// Its process id, while it runs; the launcher has become the program.
    #[cfg(unix)]
    pub fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Its process id as text, for /proc.
    pub fn number(&self) -> String {
        self.child.id().to_string()
    }

    /// Writes one line to its standard input.
    pub fn write_line(&mut self, line: &str) -> Result<(), DriverFailure> {
        let written = match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe)),
        };
        match written {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended()),
        }
    }

    /// Waits for an output line that `accept` converts; other lines are kept to explain an exit.
    pub fn wait_for<T>(
        &mut self,
        timeout: Duration,
        mut accept: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, DriverFailure> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match accept(&line) {
                    Some(found) => return Ok(found),
                    None => self.keep(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(DriverFailure::Silent { who: self.who.clone(), after_s: timeout.as_secs_f64() });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    /// The last line of its output, other than answers, that contains this text.
    pub fn printed(&self, text: &str) -> Option<String> {
        self.last.iter().rev().find(|line| line.contains(text)).cloned()
    }

    fn keep(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        if self.last.len() == OUTPUT_LINES_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    fn ended(&mut self) -> DriverFailure {
        while let Ok(line) = self.output.recv_timeout(EXIT_MAX) {
            self.keep(line);
        }
        let status = wait_a_moment(&mut self.child).unwrap_or_else(|| "it closed its output".into());
        let last_lines = self.last.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        DriverFailure::Ended { who: self.who.clone(), status, last_lines }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_a_moment(child: &mut Child) -> Option<String> {
    let deadline = Instant::now() + EXIT_MAX;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.to_string());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn is_of_epics(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("EPICS_"))
}

fn forward_lines(stream: impl Read + Send + 'static, lines: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
}

/// The command through `fodo lab worker launch`, which pins itself, asks the kernel to kill it when its parent exits,
/// and becomes the program: all threads of a peer inherit the pinning, and no unsafe code is needed.
#[cfg(target_os = "linux")]
fn wrapped(launch: &Launch) -> std::io::Result<Command> {
    let this = crate::program::path()?;
    let mut command = crate::hosts::command_within(launch.ports.network_of, &this.to_string_lossy());
    command.args(["lab", "worker", "launch"]);
    if let Some(cpu) = launch.cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    command.args(["--parent", &std::process::id().to_string(), "--"]).arg(&launch.program).args(&launch.args);
    Ok(command)
}

#[cfg(not(target_os = "linux"))]
fn wrapped(launch: &Launch) -> std::io::Result<Command> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args);
    Ok(command)
}

/// Becomes `words` on `cpu`, to be killed when `parent` ends. Returns only on failure.
#[cfg(target_os = "linux")]
pub fn become_program(cpu: Option<usize>, parent: u32, words: &[OsString]) -> std::io::Error {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt;
    let Some((program, args)) = words.split_first() else {
        return std::io::Error::new(std::io::ErrorKind::InvalidInput, "missing program");
    };
    if let Err(failure) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return failure.into();
    }
    // If the parent ended before the call above, nothing would end this process.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get().unsigned_abs() != parent) {
        return std::io::Error::other("the laboratory has already ended");
    }
    if let Some(Err(failure)) = cpu.map(crate::placement::pin) {
        return failure;
    }
    Command::new(program).args(args).exec()
}

/// Supported on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn become_program(_cpu: Option<usize>, _parent: u32, _words: &[OsString]) -> std::io::Error {
    std::io::Error::from(std::io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_processes_use_loopback_addresses_and_no_automatic_address_lists() {
        let environment =
            Ports { server: 1, pva: 3, repeater: 2, host: Ipv4Addr::LOCALHOST, network_of: None }.environment();

        for (name, text) in environment {
            if name.ends_with("AUTO_ADDR_LIST") || name.ends_with("AUTO_BEACON_ADDR_LIST") {
                assert_eq!(text, "NO", "{name}");
            } else if name.ends_with("_ADDR_LIST") {
                assert_eq!(text, "127.0.0.1", "{name}");
            }
        }
    }

    #[test]
    fn free_ports_are_distinct_and_not_standard_epics_ports() {
        let ports = Ports::free().unwrap();

        assert!(ports.server != ports.repeater && ports.pva != ports.repeater && ports.server != ports.pva);
        assert!([ports.server, ports.pva].iter().all(|port| ![5064, 5065, 5075, 5076].contains(port)));
    }
}
