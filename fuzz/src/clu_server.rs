//! Datagrams from arbitrary senders to the server of a CLU, before and after decryption, in sequences, between its scripts.
//!
//! The input is a series of steps of three bytes and more: what happens, the time since the previous step, and the length
//! of the datagram that follows.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::cipher::{CipherKey, Pin};
use fodo_clu::command::Serial;
use fodo_clu::limit;
use fodo_clu::script::ReportTarget;
use fodo_clu::server::{
    CluServer, CluServerConfig, FetchId, FloodLimits, RegistrationChange, ServerEvent, ServerOutput, ServerSocket,
    UnansweredRequest,
};
use fodo_data::Now;

/// Maximum number of steps, so that a long input takes no longer than others.
const STEPS: usize = 256;

/// What the server waits for.
enum OpenTask {
    Value(UnansweredRequest),
    Confirmation(UnansweredRequest),
    Fetch(FetchId),
}

struct Conversation {
    now: Now,
    server: CluServer<u8>,
    out: ServerOutput<u8>,
    project: CipherKey,
    open: VecDeque<OpenTask>,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let project = CipherKey::new([1; 16], [2; 16]);
    let mut config = CluServerConfig::new(Serial(0x0d0a_1b2c), [10, 0, 0, 2].into(), project.clone());
    let [options, rest @ ..] = bytes else { return };
    config.is_commissioning = options & 1 > 0;
    config.pin = Pin::new("12345678").filter(|_| options & 2 > 0);
    if options & 4 > 0 {
        config.flood_limits = FloodLimits { requests_per_s: 8, strangers_per_s: 2 };
    }
    let mut conversation = Conversation {
        now: Now::for_test(),
        server: CluServer::new(config, Box::new(|bytes| bytes.fill(7))),
        out: ServerOutput::default(),
        project,
        open: VecDeque::new(),
    };
    let mut rest = rest;
    for _ in 0..STEPS {
        let [what, pause, length, behind @ ..] = rest else { break };
        let (datagram, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        conversation.now = conversation.now + Duration::from_millis(u64::from(*pause).pow(3) / 200);
        conversation.step(*what, datagram);
        conversation.settle();
    }
    while let Some(open) = conversation.open.pop_front() {
        conversation.end(open, 1, b"nil");
        conversation.settle();
    }
    let counts = conversation.server.counts();
    assert_eq!(counts.waiting, 0);
    assert_eq!(counts.received, counts.n_dropped() + counts.answered);
}

impl Conversation {
    fn step(&mut self, what: u8, bytes: &[u8]) {
        let socket = if what & 1 > 0 { ServerSocket::Broadcast } else { ServerSocket::Unicast };
        let from = SocketAddr::from(([10, 0, 1, what >> 1 & 1], 5000));
        let mut datagram = Vec::new();
        match what >> 4 {
            0 => datagram.extend_from_slice(bytes),
            1..=7 => self.project.encrypt(bytes, &mut datagram),
            8 => CipherKey::broadcast().encrypt(bytes, &mut datagram),
            9 => {
                let pin = Pin::new("12345678").expect("a valid PIN");
                CipherKey::initial(&pin, [7; 16]).encrypt(bytes, &mut datagram);
            }
            10 => return self.server.values_changed(self.now, &mut self.out),
            11 => return,
            choice => {
                if let Some(open) = self.open.pop_front() {
                    self.end(open, choice & 3, bytes);
                }
                return;
            }
        }
        self.server.received(socket, from, &datagram, self.now, &mut self.out);
    }

    /// Ends what the server waits for; `choice` 0 refuses.
    fn end(&mut self, open: OpenTask, choice: u8, bytes: &[u8]) {
        let Conversation { now, server, out, .. } = self;
        match open {
            OpenTask::Fetch(fetch) => server.fetched(fetch, bytes, *now, out),
            OpenTask::Value(reply) | OpenTask::Confirmation(reply) if choice == 0 => server.refuse(reply, out),
            OpenTask::Confirmation(reply) => server.confirm(reply, *now, out),
            OpenTask::Value(reply) => server.answer(reply, bytes, registrations(bytes), *now, out),
        }
    }

    /// Does what is due and takes what the server sends.
    fn settle(&mut self) {
        self.server.tick(self.now, &mut self.out);
        assert!(
            self.server.deadline().is_none_or(|due| due > self.now.monotonic),
            "an action that was due was not performed"
        );
        for datagrams in [&mut self.out.datagrams, &mut self.out.broadcast_replies] {
            for (to, datagram) in datagrams.iter() {
                assert!(datagram.len() <= limit::DATAGRAM_BYTES_MAX && datagram.len().is_multiple_of(16));
                assert!(to.port() != 0 && !to.ip().is_unspecified() && !to.ip().is_multicast());
            }
            datagrams.clear();
        }
        for event in self.out.events.drain(..) {
            self.open.push_back(match event {
                ServerEvent::Fetch { fetch, .. } => OpenTask::Fetch(fetch),
                ServerEvent::Execute { reply, .. } => OpenTask::Value(reply),
                ServerEvent::Reset { reply }
                | ServerEvent::StartTftp { reply }
                | ServerEvent::StopTftp { reply }
                | ServerEvent::Measure { reply, .. }
                | ServerEvent::SetKey { reply, .. } => OpenTask::Confirmation(reply),
            });
        }
        let counts = self.server.counts();
        assert_eq!(counts.received, counts.n_dropped() + counts.answered + counts.waiting);
        assert!(self.server.n_subscriptions() <= limit::SUBSCRIPTIONS_MAX);
        assert!(self.server.n_sources() <= limit::FLOOD_SOURCES_MAX);
    }
}

/// The registrations of a script, from its value: each of four bytes, with an address and a number that other ones may have.
fn registrations(value: &[u8]) -> Vec<RegistrationChange<u8>> {
    let registration = |part: &[u8; 4]| {
        let [kind, address, client_id, n_items] = *part;
        let client_id = u32::from(client_id & 3);
        let target = match kind & 2 {
            0 => ReportTarget::Sender,
            _ => ReportTarget::Address([address, 0, 0, address].into(), u16::from(kind)),
        };
        match kind & 1 {
            0 => RegistrationChange::Register { target, client_id, items: vec![0; usize::from(n_items) * 2] },
            _ => RegistrationChange::Destroy { target, client_id },
        }
    };
    value.as_chunks().0.iter().map(registration).collect()
}
