//! The client's end, including sockets and threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_net::{Channel, ClientConfig, Context, Monitor, MonitorEvent, MonitorOptions, Request, many};

use crate::{N_PVS, peer};

/// Timeout; generous because callgrind is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects to all PVs of the server at a loopback port.
fn connect(udp_port: u16) -> Vec<Channel> {
    let config = ClientConfig::with_addresses(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, udp_port))]);
    let context = Context::new(config);
    let names: Vec<String> = (0..N_PVS).map(|number| format!("pv:{number}")).collect();
    many::connect_timeout(&context, &names, PATIENCE).into_iter().map(Result::unwrap).collect()
}

/// Blocking gets, one after the other.
pub fn get(n_rounds: u32) {
    let server = peer::Server::start();
    let channels = connect(server.udp_port);
    for _ in 0..n_rounds {
        channels.iter().for_each(|channel| assert!(channel.get_timeout(PATIENCE).is_ok()));
    }
}

/// Gets from all channels by one call.
pub fn get_many(n_rounds: u32) {
    let server = peer::Server::start();
    get_rounds(server.udp_port, n_rounds);
}

/// Rounds of gets from all channels, from the server at a port.
pub fn get_rounds(udp_port: u16, n_rounds: u32) {
    let channels = connect(udp_port);
    for _ in 0..n_rounds {
        let readings = many::get_timeout(&channels, Request::default(), PATIENCE);
        assert!(readings.iter().all(Result::is_ok));
    }
}

/// Updates from the socket to the queues of their monitors, and out of the queues.
pub fn dispatch_updates(n_rounds: u32) {
    let server = peer::Server::start();
    monitor_rounds(server.udp_port, n_rounds);
}

/// Rounds of changes at the server at a port, each received by its monitor.
pub fn monitor_rounds(udp_port: u16, n_rounds: u32) {
    let channels = connect(udp_port);
    let monitors: Vec<Monitor> = channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
    monitors.iter().for_each(take_update);
    for _ in 0..n_rounds {
        channels[0].put_timeout(0.0, PATIENCE).unwrap();
        // The update of the last monitor arrives last: after it no other one blocks.
        monitors.iter().rev().for_each(take_update);
    }
    assert!(monitors.iter().all(|monitor| monitor.counts().merged == 0));
}

fn take_update(monitor: &Monitor) {
    loop {
        match monitor.next_timeout(PATIENCE).unwrap() {
            MonitorEvent::Update(_) => return,
            MonitorEvent::Connected(_) => {}
            event => panic!("{event:?}"),
        }
    }
}
