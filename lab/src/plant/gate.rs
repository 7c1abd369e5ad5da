//! The only exit for searches: known names, within the rate limit, to and from allowed addresses.
//!
//! The client under test searches at a socket of this process. The gate does not forward its datagrams: it writes new
//! ones, so that nothing else can leave, whatever the client does.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_lock::Mutex;

use super::limiter::RateLimiter;

/// Channel Access: the fixed part of a message, and the command numbers of a search and its reply.
const HEADER_BYTES: usize = 16;
const SEARCH: u16 = 6;
/// Address in a search reply that means "the sender of this datagram".
const THE_SENDER: u32 = u32::MAX;
/// VERSION, minor 13, the first message of a datagram.
const VERSION: [u8; HEADER_BYTES] = [0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0];
/// Minimum interval between unpaid searches for a name: clients search more often at first.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Names that may be searched, and how many paid searches each has left.
#[derive(Debug, Default)]
struct AllowedNames {
    paid: HashMap<Vec<u8>, usize>,
    searched_at: HashMap<Vec<u8>, Instant>,
    client: Option<SocketAddr>,
}

/// An open gate; lives as long as the process.
#[derive(Clone, Debug)]
pub struct SearchGate {
    /// The address at which the client searches.
    pub address: SocketAddr,
    n_targets: usize,
    names: Arc<Mutex<AllowedNames>>,
}

impl SearchGate {
    /// Opens it. Without `is_net_allowed`, its socket cannot leave loopback, and replies that name a server elsewhere
    /// are dropped.
    pub fn open(targets: Vec<SocketAddr>, is_net_allowed: bool, limiter: RateLimiter) -> std::io::Result<SearchGate> {
        let inner = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let from = if is_net_allowed { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        let outer = UdpSocket::bind((from, 0))?;
        outer.set_broadcast(true)?;
        let gate = SearchGate { address: inner.local_addr()?, n_targets: targets.len(), names: Arc::default() };
        let (names, sockets) = (gate.names.clone(), (inner.try_clone()?, outer.try_clone()?));
        std::thread::spawn(move || forward_searches(&sockets.0, &sockets.1, &targets, &names, &limiter));
        let names = gate.names.clone();
        std::thread::spawn(move || forward_replies(&outer, &inner, &names, is_net_allowed));
        Ok(gate)
    }

    /// Allows one more search for `pv` without waiting; the caller has already waited for [`SearchGate::cost`] operations.
    pub fn allow_search(&self, pv: &str) {
        let mut names = self.names.lock();
        *names.paid.entry(pv.as_bytes().to_vec()).or_default() += 1;
    }

    /// Operations per search: one datagram to each address.
    pub fn cost(&self) -> usize {
        self.n_targets
    }
}

/// Type, header and payload of each message; stops at a truncated message.
fn messages(mut bytes: &[u8]) -> Vec<(u16, &[u8], &[u8])> {
    let mut found = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
        let n_payload = usize::from(u16_at(header, 2));
        let Some((payload, after)) = rest.split_at_checked(n_payload) else { break };
        found.push((u16_at(header, 0), header, payload));
        bytes = after;
    }
    found
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn forward_searches(
    inner: &UdpSocket,
    outer: &UdpSocket,
    targets: &[SocketAddr],
    names: &Mutex<AllowedNames>,
    limiter: &RateLimiter,
) {
    let mut buffer = [0; 65_536];
    // An error is the ICMP message for an earlier reply; ignore it.
    loop {
        let Ok((n, from)) = inner.recv_from(&mut buffer) else { continue };
        for (command, header, payload) in messages(buffer.get(..n).unwrap_or_default()) {
            let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
            if command != SEARCH || !may_search(names, name, from, limiter, targets.len()) {
                continue;
            }
            let datagram = [&VERSION, header, payload].concat();
            for target in targets {
                // A failed send is like a lost datagram: the client searches again.
                let _ = outer.send_to(&datagram, target);
            }
        }
    }
}

fn may_search(names: &Mutex<AllowedNames>, name: &[u8], from: SocketAddr, limiter: &RateLimiter, cost: usize) -> bool {
    {
        let mut names = names.lock();
        let Some(paid) = names.paid.get_mut(name) else { return false };
        let is_paid = *paid > 0;
        *paid = paid.saturating_sub(1);
        names.client = Some(from);
        let last = names.searched_at.insert(name.to_vec(), Instant::now());
        if is_paid {
            return true;
        }
        if let Some(last) = last.filter(|last| last.elapsed() < AGAIN_AFTER) {
            names.searched_at.insert(name.to_vec(), last);
            return false;
        }
    }
    limiter.spend(cost);
    true
}

fn forward_replies(outer: &UdpSocket, inner: &UdpSocket, names: &Mutex<AllowedNames>, is_net_allowed: bool) {
    let mut buffer = [0; 65_536];
    loop {
        let Ok((n, from)) = outer.recv_from(&mut buffer) else { continue };
        let Some(client) = names.lock().client else { continue };
        for (command, header, payload) in messages(buffer.get(..n).unwrap_or_default()) {
            let IpAddr::V4(sender) = from.ip() else { continue };
            let server = match u32_at(header, 8) {
                THE_SENDER | 0 => sender,
                address => Ipv4Addr::from_bits(address),
            };
            if command != SEARCH {
                continue;
            }
            if !is_net_allowed && !server.is_loopback() {
                eprintln!("fodo lab: ignored a reply from a server at {server}: use --allow-net to allow it");
                continue;
            }
            let mut datagram = [&VERSION, header, payload].concat();
            if let Some(address) = datagram.get_mut(HEADER_BYTES + 8..HEADER_BYTES + 12) {
                address.copy_from_slice(&server.octets());
            }
            // The client may have exited.
            let _ = inner.send_to(&datagram, client);
        }
    }
}
