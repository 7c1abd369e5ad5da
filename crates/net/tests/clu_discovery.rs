//! The discovery of CLUs, with real sockets.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod clu_server;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use clu_server::{PIN, SERIAL, TestClu, project_key};
use fodo_net::clu::{
    CipherKey, CluConnection, CluConnectionConfig, CluDiscoveryConfig, CluRequest, KeyMatch, Pin, RequestOutcome,
    discover_clus,
};

/// Longer than anything here takes; a search ends early when the test has what it needs.
const PATIENCE: Duration = Duration::from_secs(30);

fn config(clu: &TestClu, project_key: CipherKey) -> CluDiscoveryConfig {
    let config = CluDiscoveryConfig::new(Ipv4Addr::LOCALHOST, project_key);
    CluDiscoveryConfig { targets: vec![clu.address], timeout: PATIENCE, ..config }
}

#[test]
fn a_clu_proves_which_key_it_has() {
    let clu = TestClu::start();
    let (pin, wrong_pin) = (Pin::new(PIN).unwrap(), Pin::new("87654321").unwrap());

    let mut search = discover_clus(config(&clu, project_key())).unwrap();
    let found = search.next().unwrap();
    assert_eq!((found.serial, found.address), (SERIAL, clu.address));
    assert_eq!(search.key_match(&found, &pin), KeyMatch::Project);
    assert_eq!(search.key_match(&found, &wrong_pin), KeyMatch::WrongPin);

    let mut search = discover_clus(config(&clu, CipherKey::new([8; 16], [9; 16]))).unwrap();
    let found = search.next().unwrap();
    assert_eq!(search.key_match(&found, &pin), KeyMatch::Other);
}

#[test]
fn a_discovered_clu_accepts_a_new_key_under_its_temporary_one() {
    let clu = TestClu::start();
    let new_key = CipherKey::new([8; 16], [9; 16]);
    let found = discover_clus(config(&clu, new_key.clone())).unwrap().next().unwrap();
    let temporary_key = found.temporary_key(&Pin::new(PIN).unwrap());
    let connect = |key| {
        let config = CluConnectionConfig::new(found.address, key);
        CluConnection::open(CluConnectionConfig { checks_availability: false, ..config }).unwrap()
    };

    let connection = connect(temporary_key);
    assert_eq!(connection.request(CluRequest::Execute("value(1)")), Ok(RequestOutcome::Refused));
    assert!(matches!(connection.request(CluRequest::SetKey(&new_key)), Ok(RequestOutcome::Answered(_))));

    let outcome = connect(new_key).request(CluRequest::Execute("value(1)"));
    assert!(matches!(outcome, Ok(RequestOutcome::Answered(_))), "{outcome:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_broadcast_finds_all_clus_of_the_network() {
    let first = TestClu::start_at([127, 255, 255, 255].into());

    let mut search = discover_clus(config(&first, project_key())).unwrap();

    assert_eq!(search.next().map(|clu| clu.serial), Some(SERIAL));
}

#[test]
fn requests_are_sent_again_and_other_datagrams_are_counted() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let key = project_key();
    let config = CluDiscoveryConfig {
        targets: vec![silent.local_addr().unwrap()],
        timeout: Duration::from_millis(700),
        ..CluDiscoveryConfig::new(Ipv4Addr::LOCALHOST, key)
    };
    let mut search = discover_clus(config).unwrap();
    let mut request = [0; 256];
    let (n_bytes, client) = silent.recv_from(&mut request).unwrap();
    assert!(n_bytes.is_multiple_of(16));
    silent.send_to(&[7; 48], client).unwrap();

    assert_eq!(search.next(), None);

    let mut again = [0; 256];
    assert_eq!(silent.recv_from(&mut again).unwrap(), (n_bytes, client));
    assert_eq!(again, request);
    let counts = search.counts();
    assert_eq!((counts.received, counts.unmatched, counts.found), (1, 1, 0));
}
