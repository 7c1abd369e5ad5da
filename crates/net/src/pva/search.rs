//! The searches of pvAccess, and its circuits to name servers.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::search::{HasName, NameSearcher};
use fodo_pva::client::{Circuit, Config, Event, Listener};
use fodo_pva::searcher::{Datagram, Reach, Searcher, Transport};

use super::beacon_listener::BeaconListener;
use crate::address_list::{AddressFamilies, AddressList, InterfaceSelection};
use crate::client::search::{DatagramContents, NameServerCircuit, NameServerEvent, SearchProtocol};
use crate::client::{host, user};
use crate::config::{ClientConfig, Host, PvaClientConfig};
use crate::interfaces;
use crate::reactor::{Reactor, Registration};
use crate::tls::TlsPolicy;

/// The names that are searched for over pvAccess.
pub(crate) struct PvaSearch<N> {
    searcher: Searcher<N>,
    beacon_listener: Option<BeaconListener>,
}

impl<N: HasName + Send + 'static> SearchProtocol<N> for PvaSearch<N> {
    type Searcher = Searcher<N>;
    type Datagram = Datagram;
    type NameServerCircuit = Circuit;

    const FAMILIES: AddressFamilies = AddressFamilies::Both;

    fn new(config: &ClientConfig, seed: u64, reply_port: u16, now: Now) -> PvaSearch<N> {
        let mut searcher = Searcher::of(seed, reply_port);
        searcher.set_period_max(config.search_period_max);
        let groups = config.pva.search_addresses.iter().filter_map(|address| match address {
            SocketAddr::V6(group) if group.ip().is_multicast() => Some((*group.ip(), group.scope_id())),
            _ => None,
        });
        let groups: Vec<_> = groups.collect();
        let beacon_listener = config.pva.beacon_port.map(|port| BeaconListener::new(port, groups, now));
        searcher.set_transports(transports(&config.pva.tls));
        PvaSearch { searcher, beacon_listener }
    }

    fn used(config: ClientConfig) -> ClientConfig {
        let mut used = ClientConfig {
            search_addresses: Vec::new(),
            search_hosts: Vec::new(),
            interface_search_port: None,
            name_servers: Vec::new(),
            repeater_port: None,
            echo_after: Duration::ZERO,
            ..config
        };
        if used.pva.name_servers.is_empty() && used.pva.tls_name_servers.is_empty() {
            (used.pva.echo_after, used.payload_bytes_max, used.user) = (Duration::ZERO, 0, None);
        }
        used
    }

    fn addresses(config: &ClientConfig, now: Instant) -> AddressList {
        let automatic = config.pva.interface_search_port.map_or(InterfaceSelection::No, InterfaceSelection::All);
        // Of the servers of this host that share a port, one receives what is sent to 127.0.0.1 and forwards it.
        let PvaClientConfig { search_addresses, search_hosts, .. } = &config.pva;
        AddressList::new(Self::FAMILIES, search_addresses, search_hosts, automatic, now)
    }

    fn has_early_work(config: &ClientConfig) -> bool {
        !config.pva.search_hosts.is_empty() || config.pva.beacon_port.is_some()
    }

    fn name_servers(config: &ClientConfig, over: Transport) -> &[Host] {
        name_servers(config, over)
    }

    fn searcher(&self) -> &Searcher<N> {
        &self.searcher
    }

    fn searcher_mut(&mut self) -> &mut Searcher<N> {
        &mut self.searcher
    }

    fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, received: &mut DatagramContents) {
        self.searcher.handle(from, bytes, now, &mut received.claims);
    }

    fn bytes_to(datagram: &mut Datagram, address: SocketAddr) -> &[u8] {
        datagram.bytes_to(reach(address))
    }

    fn is_one_server(&self, one: SocketAddr, other: SocketAddr) -> bool {
        self.searcher.is_one_server(one, other)
    }

    fn refresh_beacons(&mut self, _socket: &UdpSocket, _reactor: &Reactor, registration: &Registration, now: Now) {
        if let Some(listener) = &mut self.beacon_listener {
            listener.tick(registration, now);
        }
    }

    fn receive_beacons(&mut self, now: Now, received: &mut DatagramContents) -> bool {
        self.beacon_listener.as_mut().is_some_and(|listener| listener.receive(now, &mut received.anomalies))
    }

    fn deadline(&self) -> Option<Instant> {
        // While all names are found, the interfaces are not needed.
        let listener = self.beacon_listener.as_ref().filter(|_| self.searcher.n_names() > 0);
        [self.searcher.deadline(), listener.map(BeaconListener::deadline)].into_iter().flatten().min()
    }
}

/// The name servers that a client uses by this transport: none by plain TCP where TLS is the only transport.
pub(super) fn name_servers(config: &ClientConfig, over: Transport) -> &[Host] {
    match over {
        Transport::Tcp if config.pva.tls.is_only() => &[],
        Transport::Tcp => &config.pva.name_servers,
        Transport::Tls => &config.pva.tls_name_servers,
    }
}

/// The transports by which a client can use servers, in the order of preference.
pub(super) fn transports(tls: &TlsPolicy) -> &'static [Transport] {
    match tls {
        TlsPolicy::Off => &[Transport::Tcp],
        TlsPolicy::Preferred(_) => &[Transport::Tls, Transport::Tcp],
        TlsPolicy::Only(_) => &[Transport::Tls],
    }
}

/// Whom a datagram to this address reaches.
pub(super) fn reach(address: SocketAddr) -> Reach {
    if interfaces::is_group(address.ip()) { Reach::Group } else { Reach::Host }
}

impl NameServerCircuit for Circuit {
    type Datagram = Datagram;
    type Config = (Config, &'static [Transport]);

    fn config(config: &ClientConfig) -> Self::Config {
        let of_circuit = Config {
            priority: 0,
            user: user(config),
            host: host(),
            echo_after: config.pva.echo_after,
            payload_bytes_max: config.payload_bytes_max,
        };
        (of_circuit, transports(&config.pva.tls))
    }

    fn start((config, transports): &Self::Config, now: Now) -> Circuit {
        let mut circuit = Circuit::new(config, now);
        circuit.set_transports(transports);
        circuit
    }

    fn use_certificate(&mut self) {
        self.use_certificate();
    }

    fn is_ready(&self) -> bool {
        self.is_accepted()
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes()
    }

    fn send_searches(&mut self, datagram: &Datagram) {
        self.search(&datagram.channels());
    }

    fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<NameServerEvent>) {
        self.received(bytes, now, &mut NameServerListener(events));
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

/// Collects the events of a circuit to a name server.
struct NameServerListener<'a>(&'a mut Vec<NameServerEvent>);

impl Listener for NameServerListener<'_> {
    fn event(&mut self, event: Event) {
        self.0.push(of_name_server(event));
    }
}

fn of_name_server(event: Event) -> NameServerEvent {
    match event {
        Event::Claimed { cid, server } => NameServerEvent::Claimed(cid, server),
        Event::Unresponsive | Event::Closed(_) => NameServerEvent::Failed,
        _ => NameServerEvent::Other,
    }
}
