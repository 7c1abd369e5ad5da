//! The searches of Channel Access, and its circuits to name servers.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fodo_ca::client::{Circuit, Config, Event};
use fodo_ca::search::{Datagram, Searcher};
use fodo_data::Now;
use fodo_engine::search::{ClaimedServer, HasName, NameSearcher, Transport};

use super::beacon_listener::BeaconListener;
use crate::address_list::{AddressFamilies, AddressList, InterfaceSelection};
use crate::client::circuit_config;
use crate::client::search::{DatagramContents, NameServerCircuit, NameServerEvent, SearchProtocol};
use crate::config::{ClientConfig, Host, PvaClientConfig};
use crate::interfaces;
use crate::reactor::{Reactor, Registration};

/// The names that are searched for over Channel Access.
pub(crate) struct CaSearch<N> {
    searcher: Searcher<N>,
    beacon_listener: Option<BeaconListener>,
}

impl<N: HasName + Send + 'static> SearchProtocol<N> for CaSearch<N> {
    type Searcher = Searcher<N>;
    type Datagram = Datagram;
    type NameServerCircuit = Circuit;

    const FAMILIES: AddressFamilies = AddressFamilies::Ipv4;

    fn new(config: &ClientConfig, seed: u64, _reply_port: u16, now: Now) -> CaSearch<N> {
        let mut searcher = Searcher::of(seed);
        searcher.set_period_max(config.search_period_max);
        CaSearch { searcher, beacon_listener: config.repeater_port.map(|port| BeaconListener::new(port, now)) }
    }

    fn used(config: ClientConfig) -> ClientConfig {
        let mut used = ClientConfig { pva: PvaClientConfig::with_addresses(Vec::new()), ..config };
        if used.name_servers.is_empty() {
            (used.echo_after, used.payload_bytes_max, used.user) = (Duration::ZERO, 0, None);
        }
        used
    }

    fn addresses(config: &ClientConfig, now: Instant) -> AddressList {
        let automatic = config.interface_search_port.map_or(InterfaceSelection::No, InterfaceSelection::All);
        let addresses = interfaces::with_loopback_broadcast(&config.search_addresses);
        AddressList::new(Self::FAMILIES, &addresses, &config.search_hosts, automatic, now)
    }

    fn has_early_work(config: &ClientConfig) -> bool {
        !config.search_hosts.is_empty() || config.repeater_port.is_some()
    }

    fn name_servers(config: &ClientConfig, over: Transport) -> &[Host] {
        match over {
            Transport::Tcp => &config.name_servers,
            Transport::Tls => &[],
        }
    }

    fn searcher(&self) -> &Searcher<N> {
        &self.searcher
    }

    fn searcher_mut(&mut self) -> &mut Searcher<N> {
        &mut self.searcher
    }

    fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, received: &mut DatagramContents) {
        self.searcher.handle(from, bytes, now, &mut received.claims);
        // The repeater forwards beacons to the search socket.
        if let Some(listener) = &mut self.beacon_listener {
            listener.handle(from, bytes, now, &mut received.anomalies);
        }
    }

    fn bytes_to(datagram: &mut Datagram, _address: SocketAddr) -> &[u8] {
        &datagram.bytes
    }

    fn refresh_beacons(&mut self, socket: &UdpSocket, reactor: &Reactor, _registration: &Registration, now: Now) {
        if let Some(listener) = &mut self.beacon_listener {
            listener.tick(socket, reactor, now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let beacons = self.beacon_listener.as_ref().map(BeaconListener::deadline);
        [self.searcher.deadline(), beacons].into_iter().flatten().min()
    }
}

impl NameServerCircuit for Circuit {
    type Datagram = Datagram;
    type Config = Config;

    fn config(config: &ClientConfig) -> Config {
        circuit_config(config, 0)
    }

    fn start(config: &Config, now: Now) -> Circuit {
        Circuit::new(config, now)
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes()
    }

    fn send_searches(&mut self, datagram: &Datagram) {
        self.search(datagram.searches());
    }

    fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<NameServerEvent>) {
        let mut received = Vec::new();
        self.received(bytes, now, &mut received);
        events.extend(received.into_iter().map(of_name_server));
    }

    fn tick(&mut self, now: Now, events: &mut Vec<NameServerEvent>) {
        let mut due = Vec::new();
        self.tick(now, &mut due);
        events.extend(due.into_iter().map(of_name_server));
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }
}

fn of_name_server(event: Event) -> NameServerEvent {
    match event {
        Event::Claimed { cid, server } => {
            let (ip, port) = (server.map(|server| server.ip()), server.map_or(0, |server| server.port()));
            NameServerEvent::Claimed(cid, ClaimedServer { ip, port, transport: Transport::Tcp })
        }
        Event::Unresponsive | Event::Closed(_) => NameServerEvent::Failed,
        _ => NameServerEvent::Other,
    }
}
