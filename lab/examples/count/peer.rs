//! The other end of a socket: this program again, as a process that callgrind does not follow.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use fodo_net::Protocol;

use crate::{client, server};

/// A server that is not counted; it ends when dropped.
pub struct Server {
    process: Child,
    /// The port for searches of its protocol.
    pub udp_port: u16,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start(protocol: Protocol) -> Server {
        let mut process =
            this(&["server", &protocol.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
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
pub fn run_client(what: &str, protocol: Protocol, udp_port: u16, n_rounds: u32) {
    let numbers = [udp_port.to_string(), n_rounds.to_string()];
    let status = this(&[what, &protocol.to_string(), &numbers[0], &numbers[1]]).status().unwrap();
    assert!(status.success(), "{status}");
}

fn this(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("peer").args(words);
    command
}

/// Runs the peer in its own process.
pub fn run(words: &[&str]) {
    let [what, protocol, numbers @ ..] = words else { panic!("unknown peer: {words:?}") };
    let protocol = if *protocol == "pva" { Protocol::Pva } else { Protocol::Ca };
    let numbers: Vec<u32> = numbers.iter().map(|word| word.parse().unwrap()).collect();
    match (*what, numbers.as_slice()) {
        ("server", []) => {
            let server = server::start();
            println!("{}", server::udp_port(&server, protocol));
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        ("get", &[udp_port, n_rounds]) => client::get_rounds(protocol, udp_port as u16, n_rounds),
        ("monitor", &[udp_port, n_rounds]) => client::monitor_rounds(protocol, udp_port as u16, n_rounds),
        _ => panic!("unknown peer: {words:?}"),
    }
}
