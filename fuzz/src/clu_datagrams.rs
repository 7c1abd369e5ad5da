//! Datagrams from arbitrary senders to a client of a CLU, before and after decryption, between requests of the client.
//!
//! The input is a series of steps of three bytes and more: what happens, the time since the previous step, and the length
//! of the datagram that follows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{ClientEvent, ClientOutput, CluClient, CluClientConfig, CluRequest, CluSubscription, RequestId};
use fodo_clu::script::CluItem;
use fodo_clu::{RandomSource, limit};
use fodo_data::{Now, Scalar};

/// Maximum number of requests, so that a long input takes no longer than others.
const REQUESTS: usize = 64;

struct Conversation {
    now: Now,
    client: CluClient,
    key: CipherKey,
    out: ClientOutput,
    /// The requests, and whether each has ended.
    requests: BTreeMap<RequestId, bool>,
    subscription: Option<CluSubscription>,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let (now, key) = (Now::for_test(), CipherKey::new([1; 16], [2; 16]));
    let config = CluClientConfig::new(key.clone(), clu(), [10, 0, 0, 1].into(), 4344);
    let mut conversation = Conversation {
        now,
        client: CluClient::new(config, counting(), now),
        key,
        out: ClientOutput::default(),
        requests: BTreeMap::new(),
        subscription: None,
    };
    conversation.check();
    let mut rest = bytes;
    while let [what, pause, length, behind @ ..] = rest {
        let (datagram, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        conversation.now = conversation.now + Duration::from_millis(u64::from(*pause).pow(3) / 100);
        conversation.step(*what, datagram);
        conversation.check();
    }
    let Conversation { now, client, out, .. } = &mut conversation;
    client.close(*now, out);
    conversation.check();
    assert!(conversation.requests.values().all(|has_ended| *has_ended), "a request has not ended");
    assert_eq!(conversation.client.deadline(), None);
}

/// The numbers 1, 2 and so on, for requests and registrations, so that inputs can contain them.
fn counting() -> RandomSource {
    let mut number = 0_u32;
    Box::new(move |bytes| {
        number += 1;
        bytes.chunks_mut(4).for_each(|chunk| chunk.copy_from_slice(&number.to_be_bytes()[..chunk.len()]));
    })
}

fn clu() -> SocketAddr {
    ([10, 0, 0, 2], 1234).into()
}

impl Conversation {
    fn step(&mut self, what: u8, bytes: &[u8]) {
        let Conversation { now, client, key, out, .. } = self;
        let item = CluItem::feature("DOU1", 0).expect("a valid name");
        let new_key = CipherKey::new([3; 16], [4; 16]);
        let text = String::from_utf8_lossy(bytes);
        let mut encrypted = Vec::new();
        let request = match what % 16 {
            0 => return client.received(clu(), bytes, *now, out),
            1 | 2 => {
                key.encrypt(bytes, &mut encrypted);
                return client.received(clu(), &encrypted, *now, out);
            }
            3 => {
                new_key.encrypt(bytes, &mut encrypted);
                return client.received(clu(), &encrypted, *now, out);
            }
            4 => return client.received(([10, 0, 0, 3], 1234).into(), bytes, *now, out),
            5 => {
                let items = (0..u32::from(what)).filter_map(|index| CluItem::feature("PAN1", index)).collect();
                if self.subscription.is_none() {
                    self.subscription = client.subscribe(items, *now, out).ok();
                }
                return;
            }
            6 => {
                if let Some(subscription) = self.subscription.take() {
                    client.unsubscribe(subscription, *now, out);
                }
                return;
            }
            7 => {
                if let Some(request) = self.requests.keys().nth(usize::from(what / 16)) {
                    client.cancel(*request, *now, out);
                }
                return;
            }
            8 => CluRequest::SetKey(&new_key),
            9 => CluRequest::Reset,
            10 => CluRequest::Fetch(std::slice::from_ref(&item)),
            11 => CluRequest::Get(&item),
            12 => CluRequest::Set(&item, &Scalar::F64(1.5)),
            13 => CluRequest::Call { object: &text, method: 1, arguments: &[] },
            14 => CluRequest::StartTftp,
            _ => CluRequest::Execute(&text),
        };
        if self.requests.len() < REQUESTS
            && let Ok(request) = client.submit(request, *now, out)
        {
            self.requests.insert(request, false);
        }
    }

    /// Calls the client until nothing is due, and checks its outputs.
    fn check(&mut self) {
        for _ in 0..3 {
            self.client.tick(self.now, &mut self.out);
        }
        assert!(self.client.deadline().is_none_or(|at| at > self.now.monotonic), "something is still due");
        for event in self.out.events.drain(..) {
            match event {
                ClientEvent::Ended { request, .. } => {
                    let has_ended = self.requests.entry(request).or_default();
                    assert!(!std::mem::replace(has_ended, true), "a request ended twice");
                }
                ClientEvent::Update { first, values, .. } => assert!(!values.is_empty() && first + values.len() <= 256),
                ClientEvent::Missing { index, .. } => assert!(index < 256),
                ClientEvent::Availability(_) => {}
            }
        }
        for (to, datagram) in self.out.datagrams.iter() {
            assert!(datagram.len() <= limit::DATAGRAM_BYTES_MAX && datagram.len().is_multiple_of(16));
            assert_eq!(to.port(), clu().port());
        }
        self.out.datagrams.clear();
        let counts = self.client.counts();
        assert!(counts.is_balanced(), "{counts:?}");
    }
}
