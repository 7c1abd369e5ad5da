//! Name search: for each protocol, one UDP socket and one searcher for all contexts with the same configuration.

mod protocol;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::search::{Anomaly, Claim, NameSearcher, Transport};
use fodo_engine::{Cid, NumberMap};
use fodo_lock::{Mutex, Rank};

pub(crate) use self::protocol::{DatagramContents, NameServerCircuit, NameServerEvent, SearchProtocol, SearchReplies};
use super::ContextCore;
use super::channel::ChannelCore;
use super::name_server::{NameServer, NamedServer, TurnResult};
use super::notice::Notice;
use crate::address_list::{AddressList, InterfaceSelection};
use crate::ca::search::CaSearch;
use crate::config::ClientConfig;
use crate::process::PerProcess;
use crate::protocol::Protocol;
use crate::pva::search::PvaSearch;
use crate::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration};
use crate::search_udp::SearchUdp;
use crate::{clock, interfaces, limit};

/// The searches over one protocol with one configuration.
pub(super) enum Search {
    Ca(Arc<ProtocolSearch<CaSearch<Arc<ChannelCore>>>>),
    Pva(Arc<ProtocolSearch<PvaSearch<Arc<ChannelCore>>>>),
}

/// The searches of the process, each with the part of the configuration that it uses.
struct Searches {
    ca: SharedSearches<CaSearch<Arc<ChannelCore>>>,
    pva: SharedSearches<PvaSearch<Arc<ChannelCore>>>,
}

type SharedSearches<P> = Vec<(ClientConfig, Weak<ProtocolSearch<P>>)>;

static SEARCHES: PerProcess<Mutex<Searches>> = PerProcess::new(
    [const { Mutex::ranked(Rank::Searches, Searches { ca: Vec::new(), pva: Vec::new() }) }; limit::FORKS],
);

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Search::Ca(search) => search.fmt(f),
            Search::Pva(search) => search.fmt(f),
        }
    }
}

impl Search {
    /// Returns the process's search over this protocol with this configuration, which is shared with configurations that
    /// differ only in what such a search does not use; opens its socket on first use. `context` receives notices that
    /// belong to no channel.
    pub(super) fn shared(
        protocol: Protocol,
        config: &ClientConfig,
        reactor: &Arc<Reactor>,
        context: Weak<ContextCore>,
    ) -> io::Result<Search> {
        let mut searches = SEARCHES.get()?.lock();
        match protocol {
            Protocol::Ca => ProtocolSearch::shared(&mut searches.ca, config, reactor, context).map(Search::Ca),
            Protocol::Pva => ProtocolSearch::shared(&mut searches.pva, config, reactor, context).map(Search::Pva),
        }
    }

    /// Creates a channel with a new number, and searches for its name. Numbers are reused as late as possible, so that
    /// a late message for one channel does not reach another. Channels of different protocols may have the same number.
    ///
    /// The first datagram is sent at once by this thread. If another one was sent just before, names are instead
    /// collected for a moment, or until a caller waits for one of them.
    pub(super) fn add_channel(&self, make: impl FnOnce(Cid) -> Arc<ChannelCore>) -> Arc<ChannelCore> {
        match self {
            Search::Ca(search) => search.add_channel(make),
            Search::Pva(search) => search.add_channel(make),
        }
    }

    /// All open channels, of every context.
    pub(super) fn channels(&self) -> Vec<Arc<ChannelCore>> {
        match self {
            Search::Ca(search) => search.channels(),
            Search::Pva(search) => search.channels(),
        }
    }

    /// The channel was closed.
    pub(super) fn remove_channel(&self, cid: Cid) {
        match self {
            Search::Ca(search) => search.remove_channel(cid),
            Search::Pva(search) => search.remove_channel(cid),
        }
    }

    /// Searches again, after a pause, for a name whose server could not be used.
    pub(super) fn start(&self, channel: Arc<ChannelCore>, pause: Duration) {
        match self {
            Search::Ca(search) => search.start(channel, pause),
            Search::Pva(search) => search.start(channel, pause),
        }
    }

    /// A caller waits for a name: sends the collected searches now.
    pub(super) fn flush_searches(&self) {
        match self {
            Search::Ca(search) => search.flush_searches(),
            Search::Pva(search) => search.flush_searches(),
        }
    }

    /// Stops the search for a name; its channel stays open.
    pub(super) fn stop(&self, cid: Cid) {
        match self {
            Search::Ca(search) => search.stop(cid),
            Search::Pva(search) => search.stop(cid),
        }
    }

    /// Searches for a name whose server was lost: after a moment, together with others.
    pub(super) fn start_lost(&self, channel: Arc<ChannelCore>) {
        match self {
            Search::Ca(search) => search.start_lost(channel),
            Search::Pva(search) => search.start_lost(channel),
        }
    }
}

/// Searches for names over one protocol with one configuration.
pub(super) struct ProtocolSearch<P: SearchProtocol<Arc<ChannelCore>>> {
    config: ClientConfig,
    sockets: SearchUdp,
    reactor: Arc<Reactor>,
    registration: Registration,
    state: Mutex<State<P>>,
}

struct State<P: SearchProtocol<Arc<ChannelCore>>> {
    protocol: P,
    addresses: AddressList,
    name_server_addresses: [(Transport, AddressList); 2],
    /// Empty before the first turn, which follows soon after the start.
    name_servers: Vec<Arc<NameServer<P>>>,
    /// Name servers that were reported as lost.
    lost: Vec<SocketAddr>,
    /// All open channels; each is removed with its last handle.
    channels: NumberMap<Cid, Arc<ChannelCore>>,
    cid_next: u32,
    datagrams: Vec<P::Datagram>,
    called_at: Option<Instant>,
    /// Searches started before this time share datagrams.
    held_until: Option<Instant>,
    /// The contexts that receive notices that belong to no channel.
    contexts: Vec<Weak<ContextCore>>,
}

impl<P: SearchProtocol<Arc<ChannelCore>>> std::fmt::Debug for ProtocolSearch<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<P: SearchProtocol<Arc<ChannelCore>>> ProtocolSearch<P> {
    fn shared(
        searches: &mut SharedSearches<P>,
        config: &ClientConfig,
        reactor: &Arc<Reactor>,
        context: Weak<ContextCore>,
    ) -> io::Result<Arc<ProtocolSearch<P>>> {
        searches.retain(|(_, search)| search.strong_count() > 0);
        let used = used_by_search::<P>(config);
        let known = searches.iter().find(|(of, _)| *of == used).and_then(|(_, search)| search.upgrade());
        if let Some(search) = known {
            let mut state = search.state.lock();
            if let (Some(reason), Some(context)) = (search.sockets.ipv6_failure(), context.upgrade()) {
                context.add_notice(Notice::NoSearchOverIpv6 { reason: reason.to_owned() });
            }
            state.add_context(context);
            drop(state);
            return Ok(search);
        }
        let search = ProtocolSearch::open(config, reactor, context)?;
        searches.push((used, Arc::downgrade(&search)));
        Ok(search)
    }

    fn open(
        config: &ClientConfig,
        reactor: &Arc<Reactor>,
        context: Weak<ContextCore>,
    ) -> io::Result<Arc<ProtocolSearch<P>>> {
        let sockets = SearchUdp::bind(config.multicast_ttl)?;
        let port = sockets.port();
        let now = clock::now();
        let seed = now.wall.nanos as u64 ^ u64::from(std::process::id()) << 32;
        let name_servers = [Transport::Tcp, Transport::Tls].map(|over| (over, P::name_servers(config, over)));
        let has_name_servers = name_servers.iter().any(|(_, hosts)| !hosts.is_empty());
        let search = Arc::new_cyclic(|search: &Weak<ProtocolSearch<P>>| ProtocolSearch {
            sockets,
            reactor: reactor.clone(),
            registration: reactor.add(search.clone()),
            state: Mutex::ranked(
                Rank::Search,
                State {
                    protocol: P::new(config, seed, port, now),
                    addresses: P::addresses(config, now.monotonic),
                    name_server_addresses: name_servers.map(|(over, hosts)| {
                        (over, AddressList::new(P::FAMILIES, &[], hosts, InterfaceSelection::No, now.monotonic))
                    }),
                    name_servers: Vec::new(),
                    lost: Vec::new(),
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
        search.registration.add_socket(search.sockets.ipv4(), Readiness::Readable)?;
        if has_name_servers || P::has_early_work(config) {
            search.registration.call_soon();
        }
        Ok(search)
    }

    fn add_channel(&self, make: impl FnOnce(Cid) -> Arc<ChannelCore>) -> Arc<ChannelCore> {
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

    fn channels(&self) -> Vec<Arc<ChannelCore>> {
        self.state.lock().channels.values().cloned().collect()
    }

    fn remove_channel(&self, cid: Cid) {
        let mut state = self.state.lock();
        state.protocol.searcher_mut().remove(cid);
        state.channels.remove(cid);
    }

    fn start(&self, channel: Arc<ChannelCore>, pause: Duration) {
        let mut state = self.state.lock();
        // It may have been closed in between.
        if state.channels.contains(channel.cid()) {
            self.start_in(&mut state, channel, pause);
        }
    }

    fn start_in(&self, state: &mut State<P>, channel: Arc<ChannelCore>, pause: Duration) {
        let (cid, now) = (channel.cid(), Instant::now());
        match state.held_until.filter(|until| pause.is_zero() && now < *until) {
            Some(until) => {
                state.protocol.searcher_mut().add_after(cid, channel, until - now, now);
                if state.called_at.is_some_and(|at| at <= until) {
                    return;
                }
            }
            None => {
                state.protocol.searcher_mut().add_after(cid, channel, pause, now);
                self.send_searches(state, clock::now());
                state.held_until = pause.is_zero().then(|| now + limit::SEARCH_HOLD);
            }
        }
        self.call_in_time(state);
    }

    fn flush_searches(&self) {
        let mut state = self.state.lock();
        if let Some(until) = state.held_until.take() {
            let now = clock::now();
            self.send_searches(&mut state, Now { monotonic: now.monotonic.max(until), ..now });
            self.call_in_time(&mut state);
        }
    }

    fn stop(&self, cid: Cid) {
        self.state.lock().protocol.searcher_mut().remove(cid);
    }

    fn start_lost(&self, channel: Arc<ChannelCore>) {
        let mut state = self.state.lock();
        state.protocol.searcher_mut().add_lost(channel.cid(), channel, clock::now());
        self.call_in_time(&mut state);
    }

    /// Schedules a call by the reactor for the next due action, if that is earlier than scheduled.
    fn call_in_time(&self, state: &mut State<P>) {
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
    fn send_searches(&self, state: &mut State<P>, now: Now) {
        let mut datagrams = std::mem::take(&mut state.datagrams);
        state.protocol.due_searches(SearchReplies::Waiting, now, &mut datagrams);
        self.send(state, datagrams, now);
    }

    fn send(&self, state: &mut State<P>, mut datagrams: Vec<P::Datagram>, now: Now) {
        let mut is_in_doubt = false;
        let had_failed = self.sockets.ipv6_failure().is_some();
        for mut datagram in datagrams.drain(..) {
            for address in state.addresses.all() {
                // A datagram that cannot be sent now is treated as lost: it is sent again.
                let opened = |socket: &UdpSocket| self.registration.add_socket(socket, Readiness::Readable);
                let sent = self.sockets.send_to(P::bytes_to(&mut datagram, *address), *address, opened);
                is_in_doubt |= sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
            }
            state.name_servers.iter().for_each(|server| server.send_searches(&datagram));
        }
        if is_in_doubt {
            state.addresses.refresh_soon(now.monotonic);
        }
        if let (false, Some(reason)) = (had_failed, self.sockets.ipv6_failure()) {
            state.notify_contexts(&Notice::NoSearchOverIpv6 { reason: reason.to_owned() });
        }
        state.datagrams = datagrams;
    }

    /// Handles received replies and beacons; returns true if there may be more. The socket is read without the lock, so
    /// that channels can be created meanwhile.
    fn receive(&self, now: Now) -> (Vec<(Arc<ChannelCore>, Claim)>, bool) {
        let (mut claimed, mut is_more) = (Vec::new(), false);
        for socket in self.sockets.all() {
            let (mut here, is_more_here) = self.receive_from(socket, now);
            claimed.append(&mut here);
            is_more |= is_more_here;
        }
        (claimed, is_more)
    }

    fn receive_from(&self, socket: &UdpSocket, now: Now) -> (Vec<(Arc<ChannelCore>, Claim)>, bool) {
        let (mut buffer, mut claimed) = ([0; 4 * limit::DATAGRAM_BYTES], Vec::new());
        let mut n_left = limit::TURN_DATAGRAMS;
        while n_left > 0 {
            let (mut datagrams, mut n_bytes) = (Vec::new(), 0);
            while n_left > 0 && n_bytes + limit::DATAGRAM_BYTES <= buffer.len() {
                match socket.recv_from(&mut buffer[n_bytes..]) {
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
        let mut received = DatagramContents::default();
        let mut state = self.state.lock();
        for (from, range) in datagrams {
            state.protocol.handle(from, &bytes[range], now, &mut received);
        }
        state.notice_anomalies(&received.anomalies, now);
        state.claimed(&received.claims)
    }

    /// Updates the address lists, and what receives beacons.
    fn refresh_addresses(self: &Arc<Self>, state: &mut State<P>, now: Now) {
        state.protocol.refresh_beacons(self.sockets.ipv4(), &self.reactor, &self.registration, now);
        let wake = || {
            let search = Arc::downgrade(self);
            move || {
                if let Some(search) = search.upgrade() {
                    search.registration.call_soon();
                }
            }
        };
        if state.addresses.refresh(now.monotonic, wake()) {
            state.protocol.searcher_mut().boost(now);
        }
        let mut unresolved = state.addresses.take_unresolved();
        let State { name_servers, name_server_addresses, .. } = state;
        for (over, addresses) in name_server_addresses {
            let is_alike = |server: &NameServer<P>| server.address().1 == *over;
            let has_changed = addresses.refresh(now.monotonic, wake());
            unresolved.append(&mut addresses.take_unresolved());
            if !has_changed && name_servers.iter().any(|server| is_alike(server)) {
                continue;
            }
            let configured = addresses.all();
            name_servers.retain(|server| !is_alike(server) || configured.contains(&server.address().0));
            for address in configured.iter().map(|&address| (address, *over)) {
                if name_servers.iter().all(|server| server.address() != address) {
                    let config = P::NameServerCircuit::config(&self.config);
                    let keychain = self.config.pva.tls.keychain().cloned();
                    let search = Arc::downgrade(self);
                    name_servers.push(NameServer::start(address, keychain, config, &self.reactor, search, now));
                }
            }
        }
        unresolved.into_iter().for_each(|host| state.notify_contexts(&Notice::UnresolvedHost { host }));
    }

    /// Handles what a turn of a name server's circuit has resulted in: which servers have which names, and its state.
    pub(super) fn name_server_report(&self, server: SocketAddr, turn: &TurnResult) {
        let now = clock::now();
        let mut state = self.state.lock();
        let mut claims = Vec::new();
        for &NamedServer { cid, address, transport, plain } in &turn.claims {
            let n_before = claims.len();
            state.protocol.searcher_mut().claimed(cid, address, &mut claims);
            claims.iter_mut().skip(n_before).for_each(|claim| (claim.transport, claim.plain) = (transport, plain));
        }
        if let Some(reason) = &turn.tls_failure {
            state.notify_contexts(&Notice::HandshakeFailed { server, reason: reason.clone() });
        }
        if turn.is_reached {
            state.lost.retain(|lost| *lost != server);
            // No name was sent to it yet.
            state.protocol.searcher_mut().boost(now);
        }
        if turn.is_lost && !state.lost.contains(&server) {
            state.lost.push(server);
            state.notify_contexts(&Notice::NameServerLost { server });
        }
        self.call_in_time(&mut state);
        let claimed = state.claimed(&claims);
        drop(state);
        self.forward_claims(claimed);
    }

    /// Passes claims to their channels; channels on one circuit together.
    fn forward_claims(&self, mut claimed: Vec<(Arc<ChannelCore>, Claim)>) {
        claimed.retain_mut(|(channel, claim)| !claim.is_first || channel.accepts_claim(claim));
        let is_alike = |(one, claim): &(Arc<ChannelCore>, Claim), (other, with): &(Arc<ChannelCore>, Claim)| {
            (claim.server, claim.transport, claim.is_first) == (with.server, with.transport, with.is_first)
                && one.shares_circuits_with(other)
        };
        for alike in claimed.chunk_by(is_alike) {
            match alike {
                [(first, Claim { server, transport, is_first: true, .. }), ..] => {
                    first.connect_claimed(*server, *transport, alike);
                }
                _ => alike.iter().for_each(|(channel, claim)| {
                    channel.report_duplicate(claim.server, |used| {
                        claim.plain == Some(used) || self.is_one_server(used, claim.server)
                    });
                }),
            }
        }
    }

    /// Whether two addresses belong to one server.
    fn is_one_server(&self, one: SocketAddr, other: SocketAddr) -> bool {
        is_one_server(one, other) || self.state.lock().protocol.is_one_server(one, other)
    }
}

/// The configuration without what a search over this protocol does not use, such as how long calls wait.
fn used_by_search<P: SearchProtocol<Arc<ChannelCore>>>(config: &ClientConfig) -> ClientConfig {
    let (operation_timeout, spin, flush_delay) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let default_protocol = Protocol::default();
    P::used(ClientConfig { operation_timeout, spin, flush_delay, default_protocol, ..config.clone() })
}

/// Whether two addresses belong to one server: both are addresses of this host, and the port is the same. A server that
/// listens on all interfaces replies from each interface on which it received the search.
fn is_one_server(one: SocketAddr, other: SocketAddr) -> bool {
    let is_here = |ip: IpAddr| interfaces::is_this_host(ip);
    one == other || (one.port() == other.port() && is_here(one.ip()) && is_here(other.ip()))
}

impl<P: SearchProtocol<Arc<ChannelCore>>> State<P> {
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

    /// Searches for all names if beacons show that servers have started or appeared, and reports starts.
    fn notice_anomalies(&mut self, anomalies: &[Anomaly], now: Now) {
        if !anomalies.is_empty() {
            self.protocol.searcher_mut().boost(now);
        }
        for anomaly in anomalies {
            if let Anomaly::Started(server) = *anomaly {
                self.notify_contexts(&Notice::ServerStarted { server });
            }
        }
    }

    /// The time of the next due action.
    fn deadline(&self) -> Option<Instant> {
        // While all names are found, the addresses are not needed.
        let of_name_servers = self.name_server_addresses.iter().filter_map(|(_, addresses)| addresses.deadline());
        let addresses = self.addresses.deadline().into_iter().chain(of_name_servers).min();
        let addresses = addresses.filter(|_| self.protocol.searcher().n_names() > 0);
        [self.protocol.deadline(), addresses].into_iter().flatten().min()
    }
}

impl<P: SearchProtocol<Arc<ChannelCore>>> EventHandler for ProtocolSearch<P> {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let (claimed, is_more) = self.receive(now);
        let mut state = self.state.lock();
        self.refresh_addresses(&mut state, now);
        let mut of_beacons = DatagramContents::default();
        let has_more_beacons = state.protocol.receive_beacons(now, &mut of_beacons);
        state.notice_anomalies(&of_beacons.anomalies, now);
        let mut datagrams = std::mem::take(&mut state.datagrams);
        let replies = if is_more { SearchReplies::Waiting } else { SearchReplies::Processed };
        state.protocol.due_searches(replies, now, &mut datagrams);
        self.send(&mut state, datagrams, now);
        state.called_at = state.deadline();
        let turn = match (is_more || has_more_beacons, state.called_at) {
            (true, _) => NextCall::Soon,
            (false, Some(due)) => NextCall::At(due),
            (false, None) => NextCall::OnReady,
        };
        drop(state);
        self.forward_claims(claimed);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ChannelState, Context};
    use crate::config::{Host, PvaClientConfig};

    #[test]
    fn configurations_share_a_search_unless_they_differ_in_what_it_uses() {
        let reactor = Reactor::shared().unwrap();
        let open = |config: &ClientConfig| match Search::shared(Protocol::Ca, config, &reactor, Weak::new()).unwrap() {
            Search::Ca(search) => search,
            Search::Pva(_) => unreachable!("another protocol"),
        };
        let plain = ClientConfig::with_addresses(vec!["127.0.0.1:9".parse().unwrap()]);
        let with_server =
            ClientConfig { name_servers: vec![Host { name: "127.0.0.1".into(), port: 9 }], ..plain.clone() };

        for config in [&plain, &with_server] {
            let first = open(config);
            let waits = ClientConfig {
                operation_timeout: Duration::MAX,
                spin: Duration::MAX,
                flush_delay: Duration::MAX,
                ..config.clone()
            };
            assert!(Arc::ptr_eq(&first, &open(&waits)));
            assert!(!Arc::ptr_eq(&first, &open(&ClientConfig { multicast_ttl: 2, ..config.clone() })));
            let echoes = open(&ClientConfig { echo_after: Duration::from_secs(1), ..config.clone() });
            let as_ann = open(&ClientConfig { user: Some("ann".into()), ..config.clone() });
            let are_shared = [&echoes, &as_ann].map(|other| Arc::ptr_eq(&first, other));
            assert_eq!(are_shared, [config.name_servers.is_empty(); 2]);
        }
    }

    #[test]
    fn names_that_wait_for_others_are_searched_for_when_the_wait_ends() {
        let config = ClientConfig::with_addresses(Vec::new());
        let x = Context::new(config.clone()).channel("x").unwrap();
        let search =
            ProtocolSearch::<CaSearch<Arc<ChannelCore>>>::open(&config, &Reactor::shared().unwrap(), Weak::new())
                .unwrap();
        let mut state = search.state.lock();
        let until = Instant::now() + Duration::from_secs(60);
        let (earlier, later) = (until - Duration::from_secs(1), until + Duration::from_secs(1));

        for (called_at, expected) in [(None, until), (Some(later), until), (Some(earlier), earlier)] {
            (state.held_until, state.called_at) = (Some(until), called_at);
            search.start_in(&mut state, x.core().clone(), Duration::ZERO);
            assert_eq!(state.called_at, Some(expected));
        }
    }

    #[test]
    fn configurations_share_a_search_over_pvaccess_unless_they_differ_in_what_it_uses() {
        let reactor = Reactor::shared().unwrap();
        let open = |config: &ClientConfig| match Search::shared(Protocol::Pva, config, &reactor, Weak::new()).unwrap() {
            Search::Pva(search) => search,
            Search::Ca(_) => unreachable!("another protocol"),
        };
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let plain = ClientConfig {
            pva: PvaClientConfig::with_addresses(vec![address]),
            ..ClientConfig::with_addresses(Vec::new())
        };
        let with_pva = |pva| ClientConfig { pva, ..plain.clone() };
        let with_server = with_pva(PvaClientConfig {
            name_servers: vec![Host { name: "127.0.0.1".into(), port: 9 }],
            ..plain.pva.clone()
        });

        for config in [&plain, &with_server] {
            let first = open(config);
            let of_ca =
                ClientConfig { search_addresses: vec![address], default_protocol: Protocol::Pva, ..config.clone() };
            assert!(Arc::ptr_eq(&first, &open(&of_ca)));
            assert!(!Arc::ptr_eq(&first, &open(&ClientConfig { multicast_ttl: 2, ..config.clone() })));
            let echoes = PvaClientConfig { echo_after: Duration::from_secs(1), ..config.pva.clone() };
            let are_shared = Arc::ptr_eq(&first, &open(&with_pva(echoes)));
            assert_eq!(are_shared, config.pva.name_servers.is_empty());
        }
    }

    #[test]
    fn a_port_of_ipv6_that_is_in_use_is_reported_once_to_each_context_and_ipv4_is_searched() {
        if !interfaces::has_ipv6() {
            eprintln!("skipped: this host has no IPv6 on loopback");
            return;
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let addresses = vec![receiver.local_addr().unwrap(), "[::1]:9".parse().unwrap()];
        let pva = PvaClientConfig::with_addresses(addresses);
        let config = ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) };
        let reactor = Reactor::shared().unwrap();
        let Search::Pva(search) = Search::shared(Protocol::Pva, &config, &reactor, Weak::new()).unwrap() else {
            unreachable!("another protocol")
        };
        let _other = crate::socket::search_udp_ipv6(search.sockets.port(), 1).unwrap();
        let is_report = |notice| matches!(notice, Some(Notice::NoSearchOverIpv6 { .. }));

        let context = Context::new(config.clone());
        let _channels = ["pva://x", "pva://y"].map(|name| context.channel(name).unwrap());
        // The first search, and the next one for the same names.
        for _ in 0..3 {
            receiver.recv_from(&mut [0; 2048]).unwrap();
        }
        let late = Context::new(config);
        let _late = late.channel("pva://z").unwrap();

        for context in [context, late] {
            assert!(is_report(context.next_notice(Duration::from_secs(10))));
            assert_eq!(context.next_notice(Duration::ZERO), None);
        }
    }

    #[test]
    fn a_context_opens_the_search_of_a_protocol_with_its_first_channel() {
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let is_open = |protocol| {
            let network = context.core.network.get();
            network.is_some_and(|network| network.search(protocol).get().is_some())
        };
        assert!(!is_open(Protocol::Ca) && !is_open(Protocol::Pva));

        let ours = context.channel("pva://x").unwrap();
        assert!(!is_open(Protocol::Ca) && is_open(Protocol::Pva));
        let other = context.channel("ca://x").unwrap();
        assert!(is_open(Protocol::Ca));

        let n_channels = |protocol| {
            let channels = context.core.search(protocol).channels();
            channels.iter().filter(|channel| channel.is_of(&context.core)).count()
        };
        drop(ours);
        assert_eq!((n_channels(Protocol::Ca), n_channels(Protocol::Pva)), (1, 0), "even if they have the same number");
        context.close();
        assert_eq!((n_channels(Protocol::Ca), other.state()), (0, ChannelState::Closed));
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
