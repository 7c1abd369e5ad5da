//! Clients on a network that loses, repeats, delays and reorders datagrams, among hostile ones. A seed repeats a run:
//! `SIM_SEED=7 cargo test -p fodo-clu --test server`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{Request, SecretKey, Session};
use fodo_clu::limit;
use fodo_clu::server::ServerSocket;
use fodo_data::Now;

use super::world::*;

const N_CLIENTS: u8 = 4;
const STEPS: usize = 400;

#[test]
fn every_datagram_is_accounted_for_and_every_subscriber_gets_the_last_values() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..40).collect(),
    };
    for seed in seeds {
        println!("SIM_SEED={seed}");
        run(seed);
    }
}

struct Simulation {
    random: fastrand::Rng,
    world: World,
    key: CipherKey,
    /// Datagrams on their way to the server.
    wire: Vec<(SocketAddr, Vec<u8>)>,
    /// The last report or reply that each registration received, with its time.
    last: HashMap<(SocketAddr, String), (Now, String)>,
    n_sent_keys: u8,
}

fn run(seed: u64) {
    let mut simulation = Simulation {
        random: fastrand::Rng::with_seed(seed),
        world: World::new(config()),
        key: project_key(),
        wire: Vec::new(),
        last: HashMap::new(),
        n_sent_keys: 10,
    };
    for _ in 0..STEPS {
        simulation.step();
    }
    simulation.finish();
}

impl Simulation {
    fn step(&mut self) {
        let client = client(self.random.u8(1..=N_CLIENTS));
        let id = self.random.u8(0..3);
        match self.random.u8(0..12) {
            0..=2 => self.send(client, &format!("echo {}", self.random.clone().u32(..))),
            3 | 4 => self.send(client, &format!("register {id} {} {}", id * 2, id * 2 + 1)),
            5 => self.send(client, &format!("destroy {id}")),
            6 => {
                let length = self.random.usize(0..2200);
                let bytes = std::iter::repeat_with(|| self.random.u8(..)).take(length).collect();
                self.wire.push((client, bytes));
            }
            7 => {
                // Cut, or with a changed byte.
                if let Some((_, datagram)) = self.wire.last_mut() {
                    let at = self.random.usize(0..=datagram.len());
                    if self.random.bool() {
                        datagram.truncate(at);
                    } else if let Some(byte) = datagram.get_mut(at) {
                        *byte ^= self.random.u8(1..);
                    }
                }
            }
            8 => {
                let item = self.random.usize(0..8);
                self.world.values[item] = i64::from(self.random.u8(0..4));
                self.world.server.values_changed(self.world.now, &mut self.world.out);
                let sent = self.world.carry_out();
                self.check(sent);
            }
            9 if self.random.u8(0..8) == 0 => self.set_key(),
            _ => self.pass_time(),
        }
        while !self.wire.is_empty() && self.random.u8(0..3) > 0 {
            self.deliver_one();
        }
        self.world.assert_accounted();
    }

    fn send(&mut self, from: SocketAddr, script: &str) {
        let request =
            Request::Execute { client: None, session: Session(self.random.u32(..)), script: script.as_bytes() };
        self.wire.push((from, encrypted(&self.key, &request)));
    }

    /// Delivers any datagram that is on its way, which reorders them; or loses it, or leaves a copy on the way.
    fn deliver_one(&mut self) {
        let index = self.random.usize(..self.wire.len());
        let (from, datagram) = match self.random.u8(0..8) {
            0 => {
                self.wire.swap_remove(index);
                return;
            }
            1 => self.wire[index].clone(),
            _ => self.wire.swap_remove(index),
        };
        let sent = self.world.deliver(ServerSocket::Unicast, from, &datagram);
        self.check(sent);
    }

    /// The new key is set without loss; datagrams with the old one are still on their way.
    fn set_key(&mut self) {
        self.n_sent_keys += 1;
        let new = CipherKey::new([self.n_sent_keys; 16], [2; 16]);
        let request = Request::SetKey { challenge: &new.seal(&[0; 30]), iv: new.iv(), key: SecretKey(new.key()) };
        let sent = self.world.request(client(1), &self.key, &request);
        if let [reply] = &sent[..] {
            assert_eq!(text(&new, reply).as_deref(), Some("resp:OK"));
            self.key = new;
        }
    }

    fn pass_time(&mut self) {
        let by = Duration::from_millis(self.random.u64(1..5000));
        let start = self.world.now;
        for (at, sent) in self.world.advance(by) {
            let end = std::mem::replace(&mut self.world.now, start + at);
            self.check(vec![sent]);
            self.world.now = end;
        }
    }

    /// Replies and reports are encrypted with the present key, have an accepted size, and respect the interval.
    fn check(&mut self, sent: Vec<Sent>) {
        for sent in sent {
            assert!(sent.bytes.len() <= limit::DATAGRAM_BYTES_MAX);
            let plain = plain(&self.key, &sent).expect("the present key");
            let text = text(&self.key, &sent).unwrap_or_default();
            let Some(rest) = text.strip_prefix("clientReport:") else { continue };
            let (id, list) = rest.split_once(':').unwrap();
            let receiver = (sent.to, id.to_string());
            let is_report = plain.starts_with(b"resp:10.0.0.2:00000000:");
            if let Some((at, _)) = self.last.get(&receiver).filter(|_| is_report) {
                let interval = self.world.now.monotonic - at.monotonic;
                assert!(interval >= limit::REPORT_INTERVAL_DEFAULT, "{interval:?} between two reports");
            }
            self.last.insert(receiver, (self.world.now, list.to_string()));
        }
    }

    /// Without loss, each subscriber gets the values that hold at the end; then all subscriptions expire.
    fn finish(&mut self) {
        self.wire.clear();
        self.pass_time();
        let mut expected = Vec::new();
        for number in 1..=N_CLIENTS {
            let script = format!("register 1 2 {}", number + 2);
            let reply = self.world.execute(client(number), &self.key.clone(), &script);
            let list = reply.and_then(|reply| Some(reply.strip_prefix("clientReport:1:")?.to_string()));
            self.last.insert((client(number), "1".to_string()), (self.world.now, list.expect("a reply")));
            expected.push((client(number), [2, usize::from(number) + 2]));
        }
        self.world.values.fill(9);
        let start = self.world.now;
        for (at, sent) in self.world.advance(Duration::from_secs(12)) {
            let end = std::mem::replace(&mut self.world.now, start + at);
            self.check(vec![sent]);
            self.world.now = end;
        }
        for (receiver, items) in expected {
            let (_, list) = &self.last[&(receiver, "1".to_string())];
            assert_eq!(list, &self.world.list(&items), "{receiver}");
        }
        self.world.advance(limit::SUBSCRIPTION_TIME);
        assert_eq!(self.world.server.n_subscriptions(), 0);
        assert_eq!(self.world.server.deadline(), None);
        assert_eq!(self.world.assert_accounted().waiting, 0);
    }
}
