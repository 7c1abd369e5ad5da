//! The other end of a socket: this program again, as a process that callgrind does not follow.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::{client, server};

/// A server that is not counted; it ends when dropped.
pub struct Server {
    process: Child,
    /// The port for searches.
    pub udp_port: u16,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start() -> Server {
        let mut process = this(&["server"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { process, udp_port: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends the process, even if this process ends unexpectedly.
        self.process.stdin.take();
        let _ = self.process.wait();
    }
}

/// Runs a client that is not counted, and checks that it succeeds.
pub fn run_client(what: &str, udp_port: u16, n_rounds: u32) {
    let status = this(&[what, &udp_port.to_string(), &n_rounds.to_string()]).status().unwrap();
    assert!(status.success(), "{status}");
}

fn this(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("peer").args(words);
    command
}

/// Runs the peer in its own process.
pub fn run(words: &[&str]) {
    match words {
        ["server"] => {
            let server = server::start();
            println!("{}", server.udp_port());
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        ["get", udp_port, n_rounds] => client::get_rounds(udp_port.parse().unwrap(), n_rounds.parse().unwrap()),
        ["monitor", udp_port, n_rounds] => client::monitor_rounds(udp_port.parse().unwrap(), n_rounds.parse().unwrap()),
        _ => panic!("unknown peer: {words:?}"),
    }
}
