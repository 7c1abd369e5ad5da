//! Name search: one UDP socket and one searcher for all contexts with the same configuration.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fodo_ca::beacon::Anomaly;
use fodo_ca::search::{Claim, Datagram, Searcher};
use fodo_data::Now;
use fodo_engine::{Cid, NumberMap};
use fodo_lock::{Mutex, Rank};

use super::beacon_listener::BeaconListener;
use super::channel::ChannelCore;
use super::name_server::NameServer;
use super::notice::Notice;
use super::{ContextCore, circuit_config};
use crate::address_list::{AddressList, InterfaceSelection};
use crate::config::ClientConfig;
use crate::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration};
use crate::{clock, interfaces, limit, socket};

/// Searches for names with one configuration.
pub(super) struct Search {
    config: ClientConfig,
    socket: UdpSocket,
    reactor: Arc<Reactor>,
    registration: Registration,
    state: Mutex<State>,
}

struct State {
    searcher: Searcher<Arc<ChannelCore>>,
    addresses: AddressList,
    name_server_addresses: AddressList,
    /// Empty before the first turn, which follows soon after the start.
    name_servers: Vec<Arc<NameServer>>,
    /// Name servers that were reported as lost.
    lost: Vec<SocketAddr>,
    beacon_listener: Option<BeaconListener>,
    /// All open channels; each is removed with its last handle.
    channels: NumberMap<Cid, Arc<ChannelCore>>,
    cid_next: u32,
    datagrams: Vec<Datagram>,
    called_at: Option<Instant>,
    /// Searches started before this time share datagrams.
    held_until: Option<Instant>,
    /// The contexts that receive notices that belong to no channel.
    contexts: Vec<Weak<ContextCore>>,
}

/// The searches of the process, each with the part of the configuration that it uses.
static SEARCHES: Mutex<Vec<(ClientConfig, Weak<Search>)>> = Mutex::ranked(Rank::Searches, Vec::new());

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Search {
    /// Returns the process's search for this configuration, which is shared with configurations that differ only in what
    /// a search does not use; opens its socket on first use. `context` receives notices that belong to no channel.
    pub(super) fn shared(
        config: &ClientConfig,
        reactor: &Arc<Reactor>,
        context: Weak<ContextCore>,
    ) -> io::Result<Arc<Search>> {
        let mut searches = SEARCHES.lock();
        searches.retain(|(_, search)| search.strong_count() > 0);
        let used = used_by_search(config);
        let known = searches.iter().find(|(of, _)| *of == used).and_then(|(_, search)| search.upgrade());
        if let Some(search) = known {
            let mut state = search.state.lock();
            state.add_context(context);
            drop(state);
            return Ok(search);
        }
        let search = Search::open(config, reactor, context)?;
        searches.push((used, Arc::downgrade(&search)));
        Ok(search)
    }

    fn open(config: &ClientConfig, reactor: &Arc<Reactor>, context: Weak<ContextCore>) -> io::Result<Arc<Search>> {
        let socket = socket::search_udp(config.multicast_ttl)?;
        let now = clock::now();
        let seed = now.wall.nanos as u64 ^ u64::from(std::process::id()) << 32;
        let mut searcher = Searcher::of(seed);
        searcher.set_period_max(config.search_period_max);
        let automatic = config.interface_search_port.map_or(InterfaceSelection::No, InterfaceSelection::All);
        let at = now.monotonic;
        let addresses = interfaces::with_loopback_broadcast(&config.search_addresses);
        let search = Arc::new_cyclic(|search: &Weak<Search>| Search {
            socket,
            reactor: reactor.clone(),
            registration: reactor.add(search.clone()),
            state: Mutex::ranked(
                Rank::Search,
                State {
                    searcher,
                    addresses: AddressList::new(&addresses, &config.search_hosts, automatic, at),
                    name_server_addresses: AddressList::new(&[], &config.name_servers, InterfaceSelection::No, at),
                    name_servers: Vec::new(),
                    lost: Vec::new(),
                    beacon_listener: config.repeater_port.map(|port| BeaconListener::new(port, now)),
                    channels: NumberMap::default(),
                    cid_next: 0,
                    datagrams: Vec::new(),
                    called_at: None,
                    held_until: None,
                    contexts: vec![context],
                },
            ),
            config: config.clone(),
        });
        search.registration.add_socket(&search.socket, Readiness::Readable)?;
        if !config.name_servers.is_empty() || !config.search_hosts.is_empty() || config.repeater_port.is_some() {
            search.registration.call_soon();
        }
        Ok(search)
    }

    /// Creates a channel with a new number, and searches for its name. Numbers are reused as late as possible, so that
    /// a late message for one channel does not reach another.
    ///
    /// The first datagram is sent at once by this thread. If another one was sent just before, names are instead
    /// collected for a moment, or until a caller waits for one of them.
    pub(super) fn add_channel(&self, make: impl FnOnce(Cid) -> Arc<ChannelCore>) -> Arc<ChannelCore> {
        let mut state = self.state.lock();
        while state.channels.contains(Cid(state.cid_next)) {
            state.cid_next = state.cid_next.wrapping_add(1);
        }
        let cid = Cid(state.cid_next);
        state.cid_next = state.cid_next.wrapping_add(1);
        let channel = make(cid);
        state.channels.insert(cid, channel.clone());
        self.start_in(&mut state, channel.clone(), Duration::ZERO);
        channel
    }

    /// All open channels, of every context.
    pub(super) fn channels(&self) -> Vec<Arc<ChannelCore>> {
        self.state.lock().channels.values().cloned().collect()
    }

    /// The channel was closed.
    pub(super) fn remove_channel(&self, cid: Cid) {
        let mut state = self.state.lock();
        state.searcher.remove(cid);
        state.channels.remove(cid);
    }

    /// Searches again, after a pause, for a name whose server could not be used.
    pub(super) fn start(&self, channel: Arc<ChannelCore>, pause: Duration) {
        let mut state = self.state.lock();
        // It may have been closed in between.
        if state.channels.contains(channel.cid()) {
            self.start_in(&mut state, channel, pause);
        }
    }

    fn start_in(&self, state: &mut State, channel: Arc<ChannelCore>, pause: Duration) {
        let (cid, now) = (channel.cid(), Instant::now());
        match state.held_until.filter(|until| pause.is_zero() && now < *until) {
            Some(until) => {
                state.searcher.add_after(cid, channel, until - now, now);
                if state.called_at.is_some_and(|at| at <= until) {
                    return;
                }
            }
            None => {
                state.searcher.add_after(cid, channel, pause, now);
                self.send_searches(state, clock::now());
                state.held_until = pause.is_zero().then(|| now + limit::SEARCH_HOLD);
            }
        }
        self.call_in_time(state);
    }

    /// A caller waits for a name: sends the collected searches now.
    pub(super) fn flush_searches(&self) {
        let mut state = self.state.lock();
        if let Some(until) = state.held_until.take() {
            let now = clock::now();
            self.send_searches(&mut state, Now { monotonic: now.monotonic.max(until), ..now });
            self.call_in_time(&mut state);
        }
    }

    /// Stops the search for a name; its channel stays open.
    pub(super) fn stop(&self, cid: Cid) {
        self.state.lock().searcher.remove(cid);
    }

    /// Searches for a name whose server was lost: after a moment, together with others.
    pub(super) fn start_lost(&self, channel: Arc<ChannelCore>) {
        let mut state = self.state.lock();
        state.searcher.add_lost(channel.cid(), channel, clock::now());
        self.call_in_time(&mut state);
    }

    /// Schedules a call by the reactor for the next due action, if that is earlier than scheduled.
    fn call_in_time(&self, state: &mut State) {
        let due = state.deadline();
        let is_earlier = match (due, state.called_at) {
            (Some(due), Some(called)) => due < called,
            (due, None) => due.is_some(),
            (None, Some(_)) => false,
        };
        if let (true, Some(due)) = (is_earlier, due) {
            state.called_at = Some(due);
            self.registration.call_at(due);
        }
    }

    /// Sends searches from a thread that has not read the socket.
    fn send_searches(&self, state: &mut State, now: Now) {
        let mut datagrams = std::mem::take(&mut state.datagrams);
        state.searcher.send_due_searches(now, &mut datagrams);
        self.send(state, datagrams, now);
    }

    fn send(&self, state: &mut State, mut datagrams: Vec<Datagram>, now: Now) {
        let mut is_in_doubt = false;
        for datagram in datagrams.drain(..) {
            for address in state.addresses.all() {
                // A datagram that cannot be sent now is treated as lost: it is sent again.
                let sent = self.socket.send_to(&datagram.bytes, address);
                is_in_doubt |= sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
            }
            state.name_servers.iter().for_each(|server| server.send_searches(datagram.searches()));
        }
        if is_in_doubt {
            state.addresses.refresh_soon(now.monotonic);
        }
        state.datagrams = datagrams;
    }

    /// Handles received replies and beacons; returns true if there may be more. The socket is read without the lock, so
    /// that channels can be created meanwhile.
    fn receive(&self, now: Now) -> (Vec<(Arc<ChannelCore>, Claim)>, bool) {
        let (mut buffer, mut claimed) = ([0; 4 * limit::DATAGRAM_BYTES], Vec::new());
        let mut n_left = limit::TURN_DATAGRAMS;
        while n_left > 0 {
            let (mut datagrams, mut n_bytes) = (Vec::new(), 0);
            while n_left > 0 && n_bytes + limit::DATAGRAM_BYTES <= buffer.len() {
                match self.socket.recv_from(&mut buffer[n_bytes..]) {
                    Ok((n, from)) => {
                        datagrams.push((from, n_bytes..n_bytes + n));
                        n_bytes += n;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        claimed.append(&mut self.handle(&buffer, datagrams, now));
                        return (claimed, false);
                    }
                    // An ICMP error for an earlier datagram; other servers may have answered.
                    Err(_) => {}
                }
                n_left -= 1;
            }
            claimed.append(&mut self.handle(&buffer, datagrams, now));
        }
        (claimed, true)
    }

    /// Handles datagrams; returns the claimed channels.
    fn handle(
        &self,
        bytes: &[u8],
        datagrams: Vec<(SocketAddr, std::ops::Range<usize>)>,
        now: Now,
    ) -> Vec<(Arc<ChannelCore>, Claim)> {
        if datagrams.is_empty() {
            return Vec::new();
        }
        let (mut claims, mut anomalies) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for (from, range) in datagrams {
            let bytes = &bytes[range];
            state.searcher.handle(from, bytes, now, &mut claims);
            if let Some(listener) = &mut state.beacon_listener {
                listener.handle(from, bytes, now, &mut anomalies);
            }
        }
        if !anomalies.is_empty() {
            state.searcher.boost(now);
        }
        for anomaly in anomalies {
            if let Anomaly::Started(server) = anomaly {
                state.notify_contexts(&Notice::ServerStarted { server });
            }
        }
        state.claimed(&claims)
    }

    /// Updates the address lists, and registers with the repeater.
    fn refresh_addresses(self: &Arc<Self>, state: &mut State, now: Now) {
        if let Some(listener) = &mut state.beacon_listener {
            listener.tick(&self.socket, &self.reactor, now);
        }
        let wake = || {
            let search = Arc::downgrade(self);
            move || {
                if let Some(search) = search.upgrade() {
                    search.registration.call_soon();
                }
            }
        };
        if state.addresses.refresh(now.monotonic, wake()) {
            state.searcher.boost(now);
        }
        let has_changed = state.name_server_addresses.refresh(now.monotonic, wake());
        if has_changed || (state.name_servers.is_empty() && !state.name_server_addresses.all().is_empty()) {
            let State { name_servers, name_server_addresses, .. } = state;
            let configured = name_server_addresses.all();
            name_servers.retain(|server| configured.contains(&server.address()));
            for &address in configured {
                if name_servers.iter().all(|server| server.address() != address) {
                    let config = circuit_config(&self.config, 0);
                    let search = Arc::downgrade(self);
                    name_servers.push(NameServer::start(address, config, &self.reactor, search, now));
                }
            }
        }
        let mut unresolved = state.addresses.take_unresolved();
        unresolved.append(&mut state.name_server_addresses.take_unresolved());
        unresolved.into_iter().for_each(|host| state.notify_contexts(&Notice::UnresolvedHost { host }));
    }

    /// Handles a name server's report: which servers have which names, and the state of its circuit.
    pub(super) fn name_server_report(
        &self,
        server: SocketAddr,
        reported: &[(Cid, SocketAddr)],
        is_reached: bool,
        is_lost: bool,
    ) {
        let now = clock::now();
        let mut state = self.state.lock();
        let mut claims = Vec::new();
        for &(cid, server) in reported {
            state.searcher.claimed(cid, server, &mut claims);
        }
        if is_reached {
            state.lost.retain(|lost| *lost != server);
            // No name was sent to it yet.
            state.searcher.boost(now);
        }
        if is_lost && !state.lost.contains(&server) {
            state.lost.push(server);
            state.notify_contexts(&Notice::NameServerLost { server });
        }
        self.call_in_time(&mut state);
        let claimed = state.claimed(&claims);
        drop(state);
        forward_claims(claimed);
    }
}

/// The configuration without what a search does not use: how long calls wait, and without name servers the settings of
/// their circuits.
fn used_by_search(config: &ClientConfig) -> ClientConfig {
    let mut used = ClientConfig { operation_timeout: Duration::ZERO, spin: Duration::ZERO, ..config.clone() };
    if used.name_servers.is_empty() {
        (used.echo_after, used.payload_bytes_max, used.user) = (Duration::ZERO, 0, None);
    }
    used
}

/// Whether two addresses belong to one server: both are addresses of this host, and the port is the same. A server that
/// listens on all interfaces replies from each interface on which it received the search.
pub(super) fn is_one_server(one: SocketAddr, other: SocketAddr) -> bool {
    let is_here = |ip: IpAddr| interfaces::is_this_host(ip);
    one == other || (one.port() == other.port() && is_here(one.ip()) && is_here(other.ip()))
}

/// Passes claims to their channels; channels on one circuit together.
fn forward_claims(mut claimed: Vec<(Arc<ChannelCore>, Claim)>) {
    claimed.retain(|(channel, claim)| !claim.is_first || channel.accepts_claim(claim.server));
    let is_alike = |(one, claim): &(Arc<ChannelCore>, Claim), (other, with): &(Arc<ChannelCore>, Claim)| {
        (claim.server, claim.is_first) == (with.server, with.is_first) && one.shares_circuits_with(other)
    };
    for alike in claimed.chunk_by(is_alike) {
        match alike {
            [(first, Claim { server, is_first: true, .. }), ..] => first.connect_claimed(*server, alike),
            _ => alike.iter().for_each(|(channel, claim)| channel.report_duplicate(claim.server)),
        }
    }
}

impl State {
    /// The claimed channels.
    fn claimed(&self, claims: &[Claim]) -> Vec<(Arc<ChannelCore>, Claim)> {
        claims.iter().filter_map(|claim| Some((self.channels.get(claim.cid)?.clone(), *claim))).collect()
    }

    /// Removes dropped contexts only when the list is full, so that the cost per context does not grow with their
    /// number.
    fn add_context(&mut self, context: Weak<ContextCore>) {
        if self.contexts.len() == self.contexts.capacity() {
            self.contexts.retain(|context| context.strong_count() > 0);
            self.contexts.reserve(self.contexts.len() + 1);
        }
        self.contexts.push(context);
    }

    fn notify_contexts(&self, notice: &Notice) {
        self.contexts.iter().filter_map(Weak::upgrade).for_each(|context| context.add_notice(notice.clone()));
    }

    /// The time of the next due action.
    fn deadline(&self) -> Option<Instant> {
        // While all names are found, the addresses are not needed.
        let addresses = [self.addresses.deadline(), self.name_server_addresses.deadline()].into_iter().flatten().min();
        let addresses = addresses.filter(|_| self.searcher.n_names() > 0);
        [self.searcher.deadline(), addresses, self.beacon_listener.as_ref().map(BeaconListener::deadline)]
            .into_iter()
            .flatten()
            .min()
    }
}

impl EventHandler for Search {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let (claimed, is_more) = self.receive(now);
        let mut state = self.state.lock();
        self.refresh_addresses(&mut state, now);
        let mut datagrams = std::mem::take(&mut state.datagrams);
        match is_more {
            true => state.searcher.send_due_searches(now, &mut datagrams),
            false => state.searcher.tick(now, &mut datagrams),
        }
        self.send(&mut state, datagrams, now);
        state.called_at = state.deadline();
        let turn = match (is_more, state.called_at) {
            (true, _) => NextCall::Soon,
            (false, Some(due)) => NextCall::At(due),
            (false, None) => NextCall::OnReady,
        };
        drop(state);
        forward_claims(claimed);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Host;

    #[test]
    fn configurations_share_a_search_unless_they_differ_in_what_it_uses() {
        let reactor = Reactor::shared().unwrap();
        let open = |config: &ClientConfig| Search::shared(config, &reactor, Weak::new()).unwrap();
        let plain = ClientConfig::with_addresses(vec!["127.0.0.1:9".parse().unwrap()]);
        let with_server =
            ClientConfig { name_servers: vec![Host { name: "127.0.0.1".into(), port: 9 }], ..plain.clone() };

        for config in [&plain, &with_server] {
            let first = open(config);
            let waits = ClientConfig { operation_timeout: Duration::MAX, spin: Duration::MAX, ..config.clone() };
            assert!(Arc::ptr_eq(&first, &open(&waits)));
            assert!(!Arc::ptr_eq(&first, &open(&ClientConfig { multicast_ttl: 2, ..config.clone() })));
            let echoes = open(&ClientConfig { echo_after: Duration::from_secs(1), ..config.clone() });
            let as_ann = open(&ClientConfig { user: Some("ann".into()), ..config.clone() });
            let are_shared = [&echoes, &as_ann].map(|other| Arc::ptr_eq(&first, other));
            assert_eq!(are_shared, [config.name_servers.is_empty(); 2]);
        }
    }

    #[test]
    fn two_local_addresses_with_one_port_count_as_one_server() {
        let is_one = |one: &str, other: &str| is_one_server(one.parse().unwrap(), other.parse().unwrap());

        assert!(is_one("192.0.2.1:5064", "192.0.2.1:5064"));
        assert!(is_one("127.0.0.1:5064", "127.0.0.2:5064"));
        assert!(!is_one("127.0.0.1:5064", "127.0.0.1:5065"));
        assert!(!is_one("127.0.0.1:5064", "192.0.2.1:5064") && !is_one("192.0.2.1:5064", "127.0.0.1:5064"));
        assert!(!is_one("192.0.2.1:5064", "192.0.2.2:5064"));
    }
}
