//! Traffic between server and clients, from the kernel's counters for each socket or network card.

use std::process::{Command, Stdio};

use crate::hosts::CARD;

/// Sums over one end of the open circuits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBytes {
    /// TCP segments, including acknowledgements. On loopback a segment may carry 64 KiB; a network card's carry 1448
    /// bytes.
    pub packets: u64,
    /// Bytes of the protocol.
    pub bytes: u64,
}

impl SentBytes {
    /// The difference from `before`.
    pub fn since(self, before: SentBytes) -> SentBytes {
        SentBytes {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

impl SentBytes {
    /// What a card has sent, from the kernel's table of all cards.
    fn of_card(table: &str, card: &str) -> Option<SentBytes> {
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(card)?.strip_prefix(':'))?;
        // Eight numbers of what was received, then bytes and packets sent.
        let mut sent = line.split_whitespace().skip(8).map(str::parse);
        let (bytes, packets) = (sent.next()?.ok()?, sent.next()?.ok()?);
        Some(SentBytes { packets, bytes })
    }
}

/// Traffic of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitTraffic {
    /// Sent by the server.
    pub server: SentBytes,
    /// Sent by its clients.
    pub client: SentBytes,
}

/// Which counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficCounters {
    /// Those of the circuits to this port on loopback.
    Circuits(u16),
    /// Those of the cards of two hosts, by the number of a process on each: frames, with their headers.
    Cards {
        /// On the server's host.
        server: u32,
        /// On the clients' host.
        client: u32,
    },
}

impl TrafficCounters {
    /// The current values; `None` where they cannot be read.
    pub fn read(self) -> Option<CircuitTraffic> {
        match self {
            TrafficCounters::Circuits(port) => CircuitTraffic::of_port(port),
            TrafficCounters::Cards { server, client } => {
                let sent_on_host_of = |process: u32| {
                    let text = std::fs::read_to_string(format!("/proc/{process}/net/dev")).ok()?;
                    SentBytes::of_card(&text, CARD)
                };
                Some(CircuitTraffic { server: sent_on_host_of(server)?, client: sent_on_host_of(client)? })
            }
        }
    }
}

impl CircuitTraffic {
    /// Traffic of the circuits to this port on loopback; `None` without the program `ss` of iproute2.
    pub fn of_port(port: u16) -> Option<CircuitTraffic> {
        let mut command = Command::new("ss");
        command.args(["-HOtin", &format!("sport = :{port} or dport = :{port}")]);
        let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        Some(CircuitTraffic::of_lines(&String::from_utf8_lossy(&output.stdout), port))
    }

    /// The difference from `before`.
    pub fn since(self, before: CircuitTraffic) -> CircuitTraffic {
        CircuitTraffic { server: self.server.since(before.server), client: self.client.since(before.client) }
    }

    fn of_lines(text: &str, port: u16) -> CircuitTraffic {
        let mut traffic = CircuitTraffic::default();
        for line in text.lines() {
            let ours = line.split_whitespace().nth(3).and_then(|address| address.rsplit_once(':')?.1.parse().ok());
            let end = if ours == Some(port) { &mut traffic.server } else { &mut traffic.client };
            let count = |name: &str| -> u64 {
                let word = line.split_whitespace().find_map(|word| word.strip_prefix(name));
                word.and_then(|digits| digits.parse().ok()).unwrap_or(0)
            };
            end.packets += count("segs_out:");
            end.bytes += count("bytes_sent:");
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sent_packets_and_bytes_are_parsed_for_each_end() {
        let text = "ESTAB 0 0 127.0.0.1:5064 127.0.0.1:40000 cubic bytes_sent:900 bytes_acked:900 segs_out:12 segs_in:7\n\
                    ESTAB 0 0 127.0.0.1:40000 127.0.0.1:5064 cubic bytes_sent:80 segs_out:7 segs_in:12 data_segs_out:3\n";

        let traffic = CircuitTraffic::of_lines(text, 5064);

        assert_eq!(traffic.server, SentBytes { packets: 12, bytes: 900 });
        assert_eq!(traffic.client, SentBytes { packets: 7, bytes: 80 });
    }

    #[test]
    fn the_counters_of_a_card_are_parsed_from_the_table_of_all_cards() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n    \
                     lo:     100       2    0    0    0     0          0         0      100       2    0    0\n \
                     fodo0: 5000      40    0    0    0     0          0         0    70000      60    0    0\n";

        assert_eq!(SentBytes::of_card(table, "fodo0"), Some(SentBytes { packets: 60, bytes: 70_000 }));
        assert_eq!(SentBytes::of_card(table, "eth0"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn kernel_counters_report_the_bytes_sent_on_a_circuit() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let Some(before) = CircuitTraffic::of_port(port) else {
            return println!("not tested: the program `ss` is missing");
        };

        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();

        let sent = CircuitTraffic::of_port(port).unwrap().since(before);
        assert_eq!((sent.client.bytes, sent.server.bytes), (1000, 0));
        assert!(sent.client.packets > 0);
    }
}
