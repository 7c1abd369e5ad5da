//! The laboratory's end of a connection to a worker, on this host or through an agent.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::worker::{bounded_line, unix_ns};
use super::{PlantReply, PlantRequest, RunLimits};
use crate::process::{Launch, Ports, command};

/// Number of round trips to measure the clock offset; the fastest one counts.
const CLOCK_ROUNDS: usize = 9;

/// Starts a worker that talks over `stream`. It inherits the environment variables of this process, except those for
/// addresses.
pub fn start_worker(stream: OwnedFd, search: &[SocketAddr], caps: RunLimits) -> std::io::Result<Child> {
    let mut args = vec!["lab".into(), "worker".into(), "drive-plant".into()];
    for address in search {
        args.extend(["--search".into(), address.to_string().into()]);
    }
    args.extend(["--max-ops-per-second".into(), caps.max_ops_per_second.to_string().into()]);
    args.extend(["--max-channels".into(), caps.max_channels.to_string().into()]);
    let allowed = [(caps.allow_net, "--allow-net"), (caps.allow_puts, "--allow-puts")];
    args.extend(allowed.into_iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, word)| word.into()));
    let of_user = ["EPICS_CA_CONN_TMO", "EPICS_CA_MAX_ARRAY_BYTES", "EPICS_CA_AUTO_ARRAY_BYTES"];
    let variables = of_user.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
    let program = crate::program::path()?;
    let launch = Launch { who: "the worker".into(), program, args, cpu: None, ports: Ports::free()?, variables };
    let other = stream.try_clone()?;
    // Its own process group: Ctrl-C goes to the laboratory only, which then prints its results.
    std::os::unix::process::CommandExt::process_group(
        command(&launch)?.stdin(Stdio::from(stream)).stdout(Stdio::from(other)).stderr(Stdio::inherit()),
        0,
    )
    .spawn()
}

/// A connection to a worker; the worker exits when this is dropped.
#[derive(Debug)]
pub struct WorkerConnection {
    /// `fodo`, or `fodo@HOST:PORT`.
    pub client: String,
    stream: WorkerStream,
    lines: Receiver<String>,
    child: Option<Child>,
}

#[derive(Debug)]
enum WorkerStream {
    Here(UnixStream),
    There(TcpStream),
}

impl WorkerConnection {
    /// Connects to a new worker on this host.
    pub fn here(search: &[SocketAddr], caps: RunLimits) -> std::io::Result<WorkerConnection> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = start_worker(theirs.into(), search, caps)?;
        let lines = lines(ours.try_clone()?);
        Ok(WorkerConnection { client: "fodo".into(), stream: WorkerStream::Here(ours), lines, child: Some(child) })
    }

    /// Connects to a worker through an agent that has accepted us.
    pub fn there(agent: &str, stream: TcpStream) -> std::io::Result<WorkerConnection> {
        let lines = lines(stream.try_clone()?);
        Ok(WorkerConnection {
            client: format!("fodo@{agent}"),
            stream: WorkerStream::There(stream),
            lines,
            child: None,
        })
    }

    /// Sends a request and waits for the answer until `is_over` returns true.
    pub fn exchange(&mut self, request: &PlantRequest, is_over: &dyn Fn() -> bool) -> Result<PlantReply, String> {
        self.send(request)?;
        self.answer(is_over)
    }

    /// Sends a request.
    pub fn send(&mut self, request: &PlantRequest) -> Result<(), String> {
        let line = serde_json::to_string(request).map_err(|why| why.to_string())? + "\n";
        let written = match &mut self.stream {
            WorkerStream::Here(stream) => stream.write_all(line.as_bytes()),
            WorkerStream::There(stream) => stream.write_all(line.as_bytes()),
        };
        written.map_err(|why| format!("{}: {why}", self.client))
    }

    /// Waits for the answer to the last request.
    pub fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<PlantReply, String> {
        loop {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => match serde_json::from_str(&line).map_err(|why| why.to_string())? {
                    PlantReply::Failed { why } => return Err(why),
                    answer => return Ok(answer),
                },
                Err(mpsc::RecvTimeoutError::Timeout) if is_over() => return Err("interrupted".into()),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(format!("{} has ended", self.client)),
            }
        }
    }

    /// Offset of the worker's clock from ours, and the maximum error of the offset, both in nanoseconds.
    pub fn clock_offset(&mut self, is_over: &dyn Fn() -> bool) -> Result<(i64, u64), String> {
        let mut best = (0, u64::MAX);
        for _round in 0..CLOCK_ROUNDS {
            let before = unix_ns();
            let PlantReply::Clock { unix_ns: theirs } = self.exchange(&PlantRequest::Clock {}, is_over)? else {
                return Err("unexpected answer from the worker to a clock request".into());
            };
            let after = unix_ns();
            let error = after.saturating_sub(before) / 2;
            if error < best.1 {
                best = (theirs.wrapping_sub(before + error) as i64, error);
            }
        }
        Ok(best)
    }
}

impl Drop for WorkerConnection {
    fn drop(&mut self) {
        // The worker exits at the end of its input; a worker that has already exited needs nothing.
        let _ = match &self.stream {
            WorkerStream::Here(stream) => stream.shutdown(std::net::Shutdown::Both),
            WorkerStream::There(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(stream);
        while let Ok(Some(line)) = bounded_line(&mut input) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
