//! The client's end, including sockets and threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_net::{
    Channel, ClientConfig, Context, GroupOptions, GroupRows, Monitor, MonitorEvent, MonitorGroup, MonitorOptions,
    Protocol, PvaClientConfig, Request, many,
};

use crate::{N_PVS, peer};

/// Timeout; generous because callgrind is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the server that receives searches of a protocol at a loopback port, and the names of all its PVs.
fn client_of(protocol: Protocol, udp_port: u16) -> (Context, Vec<String>) {
    let addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, udp_port))];
    let config = match protocol {
        Protocol::Pva => ClientConfig {
            default_protocol: Protocol::Pva,
            pva: PvaClientConfig::with_addresses(addresses),
            ..ClientConfig::with_addresses(Vec::new())
        },
        _ => ClientConfig::with_addresses(addresses),
    };
    (Context::new(config), (0..N_PVS).map(|number| format!("pv:{number}")).collect())
}

fn connect_all(context: &Context, names: &[String]) -> Vec<Channel> {
    many::connect_timeout(context, names, PATIENCE).into_iter().map(Result::unwrap).collect()
}

/// Connects to all PVs of the server that receives searches of a protocol at a loopback port.
fn connect(protocol: Protocol, udp_port: u16) -> Vec<Channel> {
    let (context, names) = client_of(protocol, udp_port);
    connect_all(&context, &names)
}

/// Blocking gets, one after the other.
pub fn get(n_rounds: u32) {
    let server = peer::Server::start(Protocol::Ca);
    let channels = connect(Protocol::Ca, server.udp_port);
    for _ in 0..n_rounds {
        channels.iter().for_each(|channel| assert!(channel.get_timeout(PATIENCE).is_ok()));
    }
}

/// Gets from all channels by one call.
pub fn get_many(protocol: Protocol, n_rounds: u32) {
    let server = peer::Server::start(protocol);
    get_rounds(protocol, server.udp_port, n_rounds);
}

/// Rounds of gets from all channels, from the server at a port.
pub fn get_rounds(protocol: Protocol, udp_port: u16, n_rounds: u32) {
    let channels = connect(protocol, udp_port);
    for _ in 0..n_rounds {
        let readings = many::get_timeout(&channels, Request::default(), PATIENCE);
        assert!(readings.iter().all(Result::is_ok));
    }
}

/// Updates from the socket to the queues of their monitors, and out of the queues.
pub fn dispatch_updates(protocol: Protocol, n_rounds: u32) {
    let server = peer::Server::start(protocol);
    monitor_rounds(protocol, server.udp_port, n_rounds);
}

/// Rounds of changes at the server at a port, each received by its monitor.
pub fn monitor_rounds(protocol: Protocol, udp_port: u16, n_rounds: u32) {
    let channels = connect(protocol, udp_port);
    let monitors: Vec<Monitor> = channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
    monitors.iter().for_each(take_update);
    for _ in 0..n_rounds {
        channels[0].put_timeout(0.0, PATIENCE).unwrap();
        // The update of the last monitor arrives last: after it no other one blocks.
        monitors.iter().rev().for_each(take_update);
    }
    assert!(monitors.iter().all(|monitor| monitor.counts().merged == 0));
}

/// Updates from the socket to the rows of a group, and out of the group.
pub fn dispatch_rows(protocol: Protocol, n_rounds: u32) {
    let server = peer::Server::start(protocol);
    let (context, names) = client_of(protocol, server.udp_port);
    let channels = connect_all(&context, &names);
    let group = context.monitor_group(GroupOptions::default());
    channels.iter().for_each(|channel| assert!(group.add_channel(channel).is_ok()));
    let mut taken = GroupRows::default();
    take_rows(&group, &mut taken);
    for _ in 0..n_rounds {
        channels[0].put_timeout(0.0, PATIENCE).unwrap();
        take_rows(&group, &mut taken);
    }
    assert_eq!(group.counts().merged, 0);
}

/// Takes one row of each PV.
fn take_rows(group: &MonitorGroup, taken: &mut GroupRows) {
    let mut n_left = N_PVS as usize;
    while n_left > 0 {
        assert!(group.take(taken, PATIENCE));
        n_left -= taken.rows.len();
    }
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
