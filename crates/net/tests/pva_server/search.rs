//! Searches over TCP.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use fodo_engine::Cid;
use fodo_net::{ServedPv, ServerConfig, SharedPv, Source};
use fodo_pva::client::{Event, Task};
use fodo_pva::message::{Answer, NewChannel, Request};
use fodo_pva::search::{SearchFlags, SearchRequest, SearchedChannel};

use crate::hostile::Raw;
use crate::peer::Client;
use crate::{PATIENCE, start, start_with};

/// The names of the search: as many as one message can contain.
const NAMES: usize = 65_535;

/// The lookup by which other clients must have been answered.
const LATE: usize = 20_000;

/// More clients than a server has threads, so that one of them shares the thread of any other client.
const OTHERS: usize = 4;

/// Serves `x`, and every tenth name of the search. It reports the first lookup of the search and waits for the requests of
/// other clients. At a later lookup it waits for their replies.
struct Watched {
    x: SharedPv,
    n_lookups: AtomicUsize,
    has_begun: Mutex<Sender<()>>,
    are_requested: Mutex<Receiver<()>>,
    are_answered: Mutex<Receiver<()>>,
    were_answered: Mutex<Sender<bool>>,
}

impl Source for Watched {
    fn serves(&self, name: &str) -> bool {
        let Some(number) = name.strip_prefix("s:") else { return name == "x" };
        match self.n_lookups.fetch_add(1, Ordering::Relaxed) {
            0 => {
                self.has_begun.lock().unwrap().send(()).unwrap();
                self.are_requested.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            LATE => {
                let answered = self.are_answered.lock().unwrap().recv_timeout(PATIENCE);
                self.were_answered.lock().unwrap().send(answered.is_ok()).unwrap();
            }
            _ => {}
        }
        number.ends_with('0')
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        (name == "x").then(|| self.x.clone().into())
    }
}

// Row 31 of docs/reference/faults.md.
#[test]
fn a_search_for_65535_names_over_tcp_delays_no_other_client_and_finds_all_of_them() {
    let (begins, has_begun) = channel();
    let (requests, are_requested) = channel();
    let (answers, are_answered) = channel();
    let (reports, were_answered) = channel();
    let source = Watched {
        x: SharedPv::new(1.5),
        n_lookups: AtomicUsize::new(0),
        has_begun: Mutex::new(begins),
        are_requested: Mutex::new(are_requested),
        are_answered: Mutex::new(are_answered),
        were_answered: Mutex::new(reports),
    };
    let server = start_with(ServerConfig::isolated(), Arc::new(source));
    let mut others: Vec<_> = (0..OTHERS).map(|_| Client::new(&server)).collect();
    let gets: Vec<_> = others
        .iter_mut()
        .map(|client| {
            let x = client.channel("x");
            client.open(x, Task::Get, "value")
        })
        .collect();
    let mut searching = Client::new(&server);
    searching.channel("x");
    let names: Vec<String> = (0..NAMES).map(|number| format!("s:{number}")).collect();
    let searched: Vec<_> =
        names.iter().zip(0..).map(|(name, cid)| SearchedChannel { cid: Cid(cid), name: name.as_bytes() }).collect();

    searching.machine().search(&searched);
    searching.flush();
    has_begun.recv_timeout(PATIENCE).unwrap();
    for (client, get) in others.iter_mut().zip(&gets) {
        client.machine().get(*get).unwrap();
        client.flush();
    }
    requests.send(()).unwrap();
    others.iter_mut().for_each(|client| drop(client.done().unwrap()));
    answers.send(()).unwrap();

    assert!(were_answered.recv_timeout(2 * PATIENCE).unwrap(), "not before the end of the search");
    let mut found = HashSet::new();
    while found.len() < NAMES.div_ceil(10) {
        match searching.event() {
            Event::Claimed { cid, server } => {
                assert!(server.ip.is_none() && cid.0 % 10 == 0 && found.insert(cid), "{cid}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.observer().counts().searches, NAMES as u64);
}

#[test]
fn a_search_that_demands_a_reply_gets_one_if_none_of_its_many_names_is_found() {
    let server = start([("x", SharedPv::new(1.5))]);
    let mut raw = Raw::new(server.pva_tcp_port().unwrap());
    let names: Vec<String> = (0..10_000).map(|number| format!("s:{number}")).collect();
    let channels = names.iter().zip(0..).map(|(name, cid)| SearchedChannel { cid: Cid(cid), name: name.as_bytes() });
    let search = SearchRequest {
        sequence: 7,
        flags: SearchFlags::MUST_REPLY,
        address: Ipv6Addr::UNSPECIFIED,
        port: 0,
        protocols: vec!["tcp".into()],
        channels: channels.collect(),
    };

    raw.send(&Request::Search {}, |to| search.encode(to));
    let channels = vec![NewChannel { cid: Cid(1), name: "x".into() }];
    raw.send(&Request::CreateChannel { channels }, |_| {});

    let n_replies = Cell::new(0);
    raw.until(|answer| {
        n_replies.set(n_replies.get() + usize::from(matches!(answer, Answer::SearchResponse {})));
        matches!(answer, Answer::CreateChannel { .. })
    });
    assert_eq!(n_replies.get(), 1);
}
