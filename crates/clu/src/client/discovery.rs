//! The discovery of CLUs in a network.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use fodo_data::Now;

use crate::cipher::{self, Block, CHALLENGE_BYTES, Challenge, CipherKey, Pin, SealedChallenge};
use crate::command::{MacAddress, Reply, Request, Serial};
use crate::{RandomSource, limit};

/// A CLU that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredClu {
    /// The serial number.
    pub serial: Serial,
    /// The hardware address.
    pub mac: MacAddress,
    /// The address from which the reply was sent. The port may differ from that for requests.
    pub address: SocketAddr,
    /// The initialisation vector that the CLU chose for its first key.
    pub temporary_iv: Block,
    proof: SealedChallenge,
}

impl DiscoveredClu {
    /// The key with which the CLU accepts a first [`CluRequest::SetKey`](super::CluRequest::SetKey).
    pub fn temporary_key(&self, pin: &Pin) -> CipherKey {
        CipherKey::initial(pin, self.temporary_iv)
    }
}

/// Which key a discovered CLU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMatch {
    /// That of the project.
    Project,
    /// Another one.
    Other,
    /// The reply does not match the PIN.
    WrongPin,
}

/// One discovery: the machine of a client that sends the same request to all CLUs several times and collects replies.
pub struct Discovery {
    request: Vec<u8>,
    reply_key: CipherKey,
    hash: Challenge,
    started_at: Instant,
    ends_at: Instant,
    n_sent: usize,
    found: BTreeMap<Serial, SocketAddr>,
    counts: DiscoveryCounts,
}

/// What a discovery received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryCounts {
    /// Datagrams.
    pub received: u64,
    /// CLUs that were found.
    pub found: u64,
    /// Further replies of a CLU that was found.
    pub repeated: u64,
    /// Datagrams that are not a reply to this discovery.
    pub unmatched: u64,
    /// Replies of CLUs after [`limit::DISCOVERED_MAX`] were found.
    pub left_out: u64,
}

impl Discovery {
    /// Prepares a discovery of `duration`. The first request is due immediately ([`Discovery::request_due`]).
    pub fn new(
        project: &CipherKey,
        own_address: Ipv4Addr,
        random: &mut RandomSource,
        duration: Duration,
        now: Now,
    ) -> Discovery {
        let mut challenge = [0; CHALLENGE_BYTES];
        random(&mut challenge);
        Discovery::with_challenge(project, own_address, &challenge, duration, now)
    }

    fn with_challenge(
        project: &CipherKey,
        own_address: Ipv4Addr,
        challenge: &Challenge,
        duration: Duration,
        now: Now,
    ) -> Discovery {
        let sealed = project.seal(challenge);
        let command = Request::Discover { challenge: &sealed, iv: project.iv(), client: Some(own_address) };
        let broadcast = CipherKey::broadcast();
        Discovery {
            request: encrypted(command, &broadcast),
            reply_key: broadcast.with_iv(*project.iv()),
            hash: cipher::hash(challenge),
            started_at: now.monotonic,
            ends_at: now.monotonic + duration,
            n_sent: 0,
            found: BTreeMap::new(),
            counts: DiscoveryCounts::default(),
        }
    }

    /// The request to broadcast now; `None` if nothing is due.
    pub fn request_due(&mut self, now: Now) -> Option<&[u8]> {
        let is_due = self.send_at().is_some_and(|at| at <= now.monotonic) && !self.is_ended(now);
        if !is_due {
            return None;
        }
        // Requests that are due together are sent once.
        while self.send_at().is_some_and(|at| at <= now.monotonic) {
            self.n_sent += 1;
        }
        Some(&self.request)
    }

    fn send_at(&self) -> Option<Instant> {
        match self.n_sent {
            0 => Some(self.started_at),
            n_sent => limit::DISCOVERY_RESENDS.get(n_sent - 1).map(|after| self.started_at + *after),
        }
    }

    /// Processes a datagram. Returns a CLU at its first reply.
    pub fn received(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<DiscoveredClu> {
        self.counts.received += 1;
        let mut buffer = Vec::new();
        let command = self.reply_key.decrypt(datagram, &mut buffer);
        let Some(Reply::Discovered { proof, iv, serial, mac }) = command.and_then(Reply::decode) else {
            self.counts.unmatched += 1;
            return None;
        };
        if self.found.contains_key(&serial) {
            self.counts.repeated += 1;
            return None;
        }
        if self.found.len() >= limit::DISCOVERED_MAX {
            self.counts.left_out += 1;
            return None;
        }
        self.counts.found += 1;
        self.found.insert(serial, from);
        Some(DiscoveredClu { serial, mac, address: from, temporary_iv: *iv, proof: *proof })
    }

    /// Which key a CLU has. CLUs prove it with their PIN.
    pub fn key_match(&self, clu: &DiscoveredClu, pin: &Pin) -> KeyMatch {
        match clu.temporary_key(pin).open(&clu.proof) {
            Some(hash) if hash == self.hash => KeyMatch::Project,
            Some(_) => KeyMatch::Other,
            None => KeyMatch::WrongPin,
        }
    }

    /// The next time at which [`Discovery::request_due`] returns the request, or at which the discovery ends.
    pub fn deadline(&self) -> Instant {
        self.send_at().map_or(self.ends_at, |at| at.min(self.ends_at))
    }

    /// Whether the discovery has ended.
    pub fn is_ended(&self, now: Now) -> bool {
        now.monotonic >= self.ends_at
    }

    /// What was received so far, in numbers.
    pub fn counts(&self) -> DiscoveryCounts {
        self.counts
    }
}

/// The datagram that, sent to all CLUs, gives that with this serial number another address, also if it is in another
/// network.
pub fn broadcast_address_request(serial: Serial, address: Ipv4Addr, gateway: Ipv4Addr) -> Vec<u8> {
    encrypted(Request::SetAddress { serial, address, gateway }, &CipherKey::broadcast())
}

fn encrypted(command: Request<'_>, key: &CipherKey) -> Vec<u8> {
    let mut datagram = Vec::new();
    command.encode(&mut datagram);
    key.encrypt_from(0, &mut datagram);
    datagram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::tests::{PROJECT_IV, PROJECT_KEY, bytes};

    fn project() -> CipherKey {
        CipherKey::new(PROJECT_KEY, PROJECT_IV)
    }

    fn discovery(now: Now) -> Discovery {
        let challenge = std::array::from_fn(|index| index as u8);
        Discovery::with_challenge(&project(), Ipv4Addr::LOCALHOST, &challenge, Duration::from_secs(3), now)
    }

    /// The reply of a CLU to the request of `discovery`, whose key is `own`.
    fn reply(discovery: &mut Discovery, own: &CipherKey, pin: &str, now: Now) -> Vec<u8> {
        let mut buffer = Vec::new();
        let request = discovery.request_due(now).expect("a request").to_vec();
        let command = CipherKey::broadcast().decrypt(&request, &mut buffer).and_then(Request::decode);
        let Some(Request::Discover { challenge, iv, .. }) = command else { panic!("no request to discover") };
        let hash = cipher::hash(&own.open(challenge).unwrap_or([9; CHALLENGE_BYTES]));
        let temporary = CipherKey::initial(&Pin::new(pin).unwrap(), [3; 16]);
        let proof = temporary.seal(&hash);
        let mac = MacAddress([0x80, 1, 2, 3, 4, 5]);
        let command = Reply::Discovered { proof: &proof, iv: temporary.iv(), serial: Serial(0x0d0a1b2c), mac };
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        command.encode(&mut plain);
        CipherKey::broadcast().with_iv(*iv).encrypt(&plain, &mut datagram);
        assert_eq!((plain.len(), datagram.len()), (90, 96));
        datagram
    }

    #[test]
    fn the_request_is_that_of_the_reference() {
        let expected = bytes(
            "109cbf0c140611bf05da29da089dd189331e5b7677de00dcdfacf3fdf1ae3c8ccccf61b46ab73a7ed99c6681d82b80f9\
             8ce87a2508e58acdcd69442c0c40e4b73ee4517757f4cb048e3178f1f00a471d",
        );
        let now = Now::for_test();

        assert_eq!(discovery(now).request_due(now), Some(&expected[..]));
    }

    #[test]
    fn a_clu_with_the_key_of_the_project_is_recognised_by_its_pin() {
        let (now, from) = (Now::for_test(), ([10, 0, 0, 2], 1234).into());
        for (own, pin, expected) in [
            (project(), "12345678", KeyMatch::Project),
            (CipherKey::new([5; 16], [6; 16]), "12345678", KeyMatch::Other),
            (project(), "87654321", KeyMatch::WrongPin),
        ] {
            let mut discovery = discovery(now);
            let datagram = reply(&mut discovery, &own, "12345678", now);

            let clu = discovery.received(from, &datagram).expect("a CLU");

            assert_eq!((clu.serial, clu.address), (Serial(0x0d0a1b2c), from));
            assert_eq!(clu.mac.to_string(), "80:01:02:03:04:05");
            assert_eq!(discovery.key_match(&clu, &Pin::new(pin).unwrap()), expected);
        }
    }

    #[test]
    fn repeated_and_foreign_datagrams_are_counted() {
        let (now, from) = (Now::for_test(), ([10, 0, 0, 2], 1234).into());
        let mut discovery = discovery(now);
        let datagram = reply(&mut discovery, &project(), "12345678", now);

        assert!(discovery.received(from, &datagram).is_some());
        assert!(discovery.received(from, &datagram).is_none());
        assert!(discovery.received(from, b"").is_none());
        assert!(discovery.received(from, &[0; 96]).is_none());

        let expected = DiscoveryCounts { received: 4, found: 1, repeated: 1, unmatched: 2, left_out: 0 };
        assert_eq!(discovery.counts(), expected);
    }

    #[test]
    fn the_request_is_sent_three_times_and_then_the_discovery_ends() {
        let start = Now::for_test();
        let mut discovery = discovery(start);
        let (mut now, mut sent_ms) = (start, Vec::new());
        while !discovery.is_ended(now) {
            if discovery.request_due(now).is_some() {
                sent_ms.push((now.monotonic - start.monotonic).as_millis());
            }
            assert!(discovery.deadline() > now.monotonic);
            now = now + (discovery.deadline() - now.monotonic);
        }

        assert_eq!(sent_ms, [0, 500, 1500]);
        assert_eq!(now.monotonic - start.monotonic, Duration::from_secs(3));
        assert_eq!(discovery.request_due(now), None);
    }
}
