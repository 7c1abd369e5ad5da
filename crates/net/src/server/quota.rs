//! Limits per client host, so that no host uses up the memory or the descriptors of the server. A host is a [`counted_address`]:
//! all clients of a network of IPv6 count as one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fodo_engine::shares::counted_address;
use fodo_lock::Mutex;

use crate::config::Quotas;
use crate::limit;
use crate::process;

/// The hosts that have clients here.
#[derive(Debug)]
pub(super) struct ClientHosts {
    quotas: Quotas,
    descriptors: Descriptors,
    clients: Mutex<Clients>,
    n_refused: AtomicU64,
    n_flawed: AtomicU64,
    n_evicted: AtomicU64,
    n_searches: AtomicU64,
}

#[derive(Debug, Default)]
struct Clients {
    hosts: HashMap<IpAddr, ClientHost>,
    n_circuits: usize,
    /// Next number for a circuit that has lost its last channel; orders them by age.
    unused_next: u64,
    /// Circuits closed to make room whose threads have not yet noticed.
    n_evicting: usize,
}

#[derive(Debug, Default)]
struct ClientHost {
    n_circuits: usize,
    resources: Arc<ResourceUse>,
    /// Circuits without a channel, the oldest first.
    unused: BTreeMap<u64, (SocketAddr, Arc<TcpStream>)>,
}

/// The resources that the circuits of one host use.
#[derive(Debug, Default)]
struct ResourceUse {
    /// For state: sockets, channels, subscriptions, puts.
    held_bytes: AtomicUsize,
    /// For unsent data: replies, updates.
    queued_bytes: AtomicUsize,
}

/// How many descriptors clients may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    /// Maximum number of circuits of all clients. Beyond it, each new circuit closes one without a channel.
    circuits_max: usize,
    /// From this descriptor on no client is accepted. The system assigns the lowest free number, so a new descriptor's
    /// number shows how many are in use. If it is reached, the process itself has used half of its reserve.
    none_from: usize,
    /// Maximum number of circuits being closed at once: a quarter of the reserve.
    evicting_max: usize,
}

/// The part of its host's resources that one circuit uses; returned when dropped.
#[derive(Debug)]
pub(super) struct CircuitQuota {
    hosts: Arc<ClientHosts>,
    peer: SocketAddr,
    /// Its key among the hosts.
    host: IpAddr,
    stream: Arc<TcpStream>,
    resources: Arc<ResourceUse>,
    held_bytes: usize,
    queued_bytes: usize,
    /// Its number among the host's circuits without a channel.
    unused: Option<u64>,
    is_evicted: bool,
}

/// Why a client gets no circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// Its host has the maximum number, each with a channel.
    Host,
    /// Too few descriptors are left.
    Descriptors,
}

/// The result of admitting a new client.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) quota: Result<CircuitQuota, AdmissionError>,
    /// A client without a channel that was closed to make room.
    pub(super) evicted: Option<SocketAddr>,
}

impl Descriptors {
    /// For a process with `n_open` of at most `limit` descriptors open. An eighth of the limit is reserved for what the
    /// process itself opens; half of that stays free even while circuits are being closed.
    pub(super) fn of(limit: usize, n_open: usize) -> Descriptors {
        let (least, most) = limit::RESERVED_DESCRIPTORS;
        let n_reserved = (limit / 8).clamp(least, most);
        Descriptors {
            circuits_max: limit.saturating_sub(n_reserved + n_open),
            none_from: limit.saturating_sub(n_reserved / 2),
            evicting_max: (n_reserved / 4).max(1),
        }
    }

    /// For this process in its current state.
    pub(super) fn of_process() -> Descriptors {
        let number = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
        // If the system does not report the number of open descriptors, assume none.
        Descriptors::of(
            number(process::n_descriptors_max()).unwrap_or(usize::MAX),
            number(process::n_descriptors()).unwrap_or(0),
        )
    }
}

impl Clients {
    /// Closes the oldest circuit without a channel of the given host, or of the host with the most of them. The thread
    /// that serves the circuit sees the connection end.
    fn evict(&mut self, of: Option<IpAddr>) -> Option<SocketAddr> {
        let host = match of {
            Some(ip) => self.hosts.get_mut(&ip)?,
            None => self.hosts.values_mut().max_by_key(|host| host.unused.len())?,
        };
        let (_, (peer, stream)) = host.unused.pop_first()?;
        // It fails if the client is closing the circuit at this moment; the circuit ends anyway.
        let _ = stream.shutdown(Shutdown::Both);
        self.n_evicting += 1;
        Some(peer)
    }

    fn forget_host_without_circuits(&mut self, ip: IpAddr) {
        if self.hosts.get(&ip).is_some_and(|host| host.n_circuits == 0) {
            self.hosts.remove(&ip);
        }
    }
}

impl ClientHosts {
    pub(super) fn new(quotas: Quotas, descriptors: Descriptors) -> ClientHosts {
        ClientHosts {
            quotas,
            descriptors,
            clients: Mutex::default(),
            n_refused: AtomicU64::new(0),
            n_flawed: AtomicU64::new(0),
            n_evicted: AtomicU64::new(0),
            n_searches: AtomicU64::new(0),
        }
    }

    /// Admits a new client, or refuses it. If its host, or the process, is at its limit, a circuit without a channel is
    /// closed first. `descriptor`: the descriptor of `stream`.
    pub(super) fn admit(
        self: &Arc<ClientHosts>,
        peer: SocketAddr,
        stream: &Arc<TcpStream>,
        descriptor: usize,
    ) -> Admission {
        let host = counted_address(peer.ip());
        let mut clients = self.clients.lock();
        let known = clients.hosts.entry(host).or_default();
        let is_full = known.n_circuits >= self.host_circuits_max();
        let is_none_left = descriptor >= self.descriptors.none_from;
        let n_staying = clients.n_circuits.saturating_sub(clients.n_evicting);
        let is_short = is_none_left || n_staying >= self.descriptors.circuits_max;
        let evicted = match (is_full, is_short) {
            (true, _) => clients.evict(Some(host)),
            (false, true) => clients.evict(None),
            (false, false) => None,
        };
        self.n_evicted.fetch_add(u64::from(evicted.is_some()), Ordering::Relaxed);
        let refusal = match evicted {
            _ if is_none_left => Some(AdmissionError::Descriptors),
            None if is_full => Some(AdmissionError::Host),
            None if is_short => Some(AdmissionError::Descriptors),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.count_refused();
            clients.forget_host_without_circuits(host);
            return Admission { quota: Err(refusal), evicted };
        }
        clients.n_circuits += 1;
        let known = clients.hosts.entry(host).or_default();
        known.n_circuits += 1;
        let resources = known.resources.clone();
        drop(clients);
        let (hosts, stream) = (self.clone(), stream.clone());
        let mut quota = CircuitQuota {
            hosts,
            peer,
            host,
            stream,
            resources,
            held_bytes: 0,
            queued_bytes: 0,
            unused: None,
            is_evicted: false,
        };
        quota.set_has_channel(false);
        Admission { quota: Ok(quota), evicted }
    }

    /// Whether a client may be accepted now. If not, wait until circuits that were closed to make room have released
    /// their descriptors.
    pub(super) fn can_admit(&self) -> bool {
        self.clients.lock().n_evicting < self.descriptors.evicting_max
    }

    /// Maximum number of circuits of one host: its quota, and at most half of the descriptors for clients.
    fn host_circuits_max(&self) -> usize {
        self.quotas.host_circuits.min(self.descriptors.circuits_max / 2)
    }

    /// Counts a request refused because of a limit.
    pub(super) fn count_refused(&self) {
        self.n_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of refused requests.
    pub(super) fn n_refused(&self) -> u64 {
        self.n_refused.load(Ordering::Relaxed)
    }

    /// Counts a client that was closed because it had no channel.
    pub(super) fn count_evicted(&self) {
        self.n_evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of clients closed because they had no channel.
    pub(super) fn n_evicted(&self) -> u64 {
        self.n_evicted.load(Ordering::Relaxed)
    }

    /// Counts a name that a client searches for.
    pub(super) fn count_search(&self) {
        self.n_searches.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of names searched for.
    pub(super) fn n_searches(&self) -> u64 {
        self.n_searches.load(Ordering::Relaxed)
    }

    /// Counts an invalid datagram.
    pub(super) fn count_flawed(&self) {
        self.n_flawed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of invalid datagrams.
    pub(super) fn n_flawed(&self) -> u64 {
        self.n_flawed.load(Ordering::Relaxed)
    }
}

impl CircuitQuota {
    /// The client's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The limits per client.
    pub(super) fn limits(&self) -> &Quotas {
        &self.hosts.quotas
    }

    /// Records whether the circuit has a channel. Each call restarts the time without one.
    pub(super) fn set_has_channel(&mut self, has_channel: bool) {
        let mut clients = self.hosts.clients.lock();
        let number = clients.unused_next;
        clients.unused_next += 1;
        let Some(host) = clients.hosts.get_mut(&self.host) else { return };
        if let Some(before) = self.unused.take() {
            self.is_evicted |= host.unused.remove(&before).is_none();
        }
        if !has_channel && !self.is_evicted {
            host.unused.insert(number, (self.peer, self.stream.clone()));
            self.unused = Some(number);
        }
    }

    /// Counts that the circuit was closed because it had no channel.
    pub(super) fn count_evicted(&self) {
        self.hosts.count_evicted();
    }

    /// Records the resources that the circuit uses now.
    pub(super) fn set(&mut self, held_bytes: usize, queued_bytes: usize) {
        replace(&self.resources.held_bytes, &mut self.held_bytes, held_bytes);
        replace(&self.resources.queued_bytes, &mut self.queued_bytes, queued_bytes);
    }

    /// Maximum memory for the circuit's state: what its host has left, and at most half of the host's limit, so that a
    /// greedy client leaves something to the others of its host.
    pub(super) fn held_bytes_max(&self) -> usize {
        let others = self.resources.held_bytes.load(Ordering::Relaxed).saturating_sub(self.held_bytes);
        let host_bytes = self.hosts.quotas.host_bytes;
        host_bytes.saturating_sub(others).min(host_bytes / 2)
    }

    /// How many more bytes of values may be received now. Zero once all clients of the host hold half of their limit,
    /// so that clients that send large values leave memory for the channels of others.
    pub(super) fn arriving_bytes_max(&self) -> usize {
        (self.hosts.quotas.host_bytes / 2).saturating_sub(self.resources.held_bytes.load(Ordering::Relaxed))
    }

    /// Whether more data may be queued for clients of this host. Even if not, clients that read what they are sent are
    /// served as before.
    pub(super) fn may_queue(&self) -> bool {
        let ResourceUse { held_bytes, queued_bytes } = &*self.resources;
        let both = held_bytes.load(Ordering::Relaxed).saturating_add(queued_bytes.load(Ordering::Relaxed));
        both < self.hosts.quotas.host_bytes
    }

    /// Counts a name that the client searches for.
    pub(super) fn count_search(&self) {
        self.hosts.count_search();
    }

    /// Counts that the circuit was refused something.
    pub(super) fn count_refused(&self) {
        self.hosts.count_refused();
    }
}

/// Updates a sum by the change of one part of it.
fn replace(sum: &AtomicUsize, part: &mut usize, now: usize) {
    match std::mem::replace(part, now) {
        before if now > before => drop(sum.fetch_add(now - before, Ordering::Relaxed)),
        before if now < before => drop(sum.fetch_sub(before - now, Ordering::Relaxed)),
        _ => {}
    }
}

impl Drop for CircuitQuota {
    fn drop(&mut self) {
        self.set(0, 0);
        let mut clients = self.hosts.clients.lock();
        if let Some(known) = clients.hosts.get_mut(&self.host) {
            known.n_circuits -= 1;
            if let Some(number) = self.unused {
                self.is_evicted |= known.unused.remove(&number).is_none();
            }
        }
        clients.n_circuits -= 1;
        clients.n_evicting -= usize::from(self.is_evicted);
        clients.forget_host_without_circuits(self.host);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);
    const THERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4000);

    fn hosts() -> Arc<ClientHosts> {
        hosts_with(100)
    }

    /// With this limit of circuits for all hosts.
    fn hosts_with(circuits_max: usize) -> Arc<ClientHosts> {
        let quotas = Quotas { host_bytes: 1000, host_circuits: 3, ..Quotas::default() };
        Arc::new(ClientHosts::new(quotas, Descriptors { circuits_max, none_from: 110, evicting_max: 2 }))
    }

    fn stream() -> Arc<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    /// A circuit without a channel, while there are plenty of descriptors.
    fn unused(hosts: &Arc<ClientHosts>, peer: SocketAddr) -> CircuitQuota {
        hosts.admit(peer, &stream(), 0).quota.unwrap()
    }

    /// A circuit with a channel.
    fn used(hosts: &Arc<ClientHosts>, peer: SocketAddr) -> CircuitQuota {
        let mut quota = unused(hosts, peer);
        quota.set_has_channel(true);
        quota
    }

    fn refusal(hosts: &Arc<ClientHosts>, peer: SocketAddr) -> Option<AdmissionError> {
        hosts.admit(peer, &stream(), 0).quota.err()
    }

    // Row 26 of docs/reference/faults.md.
    #[test]
    fn circuits_are_limited_per_host() {
        let hosts = hosts();
        let mut shares: Vec<_> = (0..3).map(|_| used(&hosts, HERE)).collect();

        assert_eq!(refusal(&hosts, HERE), Some(AdmissionError::Host));
        assert_eq!(refusal(&hosts, THERE), None);
        shares.pop();
        assert_eq!(refusal(&hosts, HERE), None, "what was given back can be had again");
        shares.clear();

        let n_known = hosts.clients.lock().hosts.len();
        assert_eq!((hosts.n_refused(), n_known), (1, 0), "hosts that have gone are forgotten");
    }

    #[test]
    fn the_addresses_of_a_network_of_ipv6_count_as_one_host_and_another_network_has_its_own_limit() {
        let hosts = hosts();
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 4000);
        let shares: Vec<_> =
            ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:1"].map(|text| used(&hosts, at(text))).into();

        assert_eq!(refusal(&hosts, at("2001:db8::3")), Some(AdmissionError::Host));
        assert_eq!(refusal(&hosts, at("2001:db8:0:1::3")), None);
        drop(shares);

        assert_eq!(refusal(&hosts, at("2001:db8::3")), None);
        assert_eq!(hosts.clients.lock().hosts.len(), 0, "hosts that have gone are forgotten");
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn a_host_at_its_limit_loses_its_oldest_circuit_without_a_channel() {
        let hosts = hosts();
        let peer = |port| SocketAddr::new(HERE.ip(), port);
        let _used = used(&hosts, peer(1));
        let mut second = unused(&hosts, peer(2));
        let _third = unused(&hosts, peer(3));
        // It had a channel, so its time starts again.
        second.set_has_channel(true);
        second.set_has_channel(false);

        let entry = hosts.admit(peer(4), &stream(), 0);

        assert_eq!((entry.evicted, entry.quota.is_ok(), hosts.n_evicted()), (Some(peer(3)), true, 1));
        assert_eq!(hosts.admit(peer(5), &stream(), 0).evicted, Some(peer(2)));
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn new_clients_wait_until_evicted_circuits_have_ended() {
        let hosts = hosts();
        let peer = |port| SocketAddr::new(HERE.ip(), port);
        let mut ending: Vec<CircuitQuota> = (0..3).map(|port| unused(&hosts, peer(port))).collect();
        let before = hosts.can_admit();

        let _new = [hosts.admit(peer(4), &stream(), 0), hosts.admit(peer(5), &stream(), 0)];
        let while_they_end = hosts.can_admit();
        // It gets a channel at this moment, and ends anyway.
        ending[0].set_has_channel(true);
        ending.clear();

        assert_eq!((before, while_they_end, hosts.can_admit()), (true, false, true));
        assert_eq!(hosts.clients.lock().n_evicting, 0);
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn descriptor_shortage_evicts_from_the_host_with_most_unused_circuits() {
        let hosts = hosts_with(6);
        let peer = |port| SocketAddr::new(HERE.ip(), port);
        let late = SocketAddr::from(([10, 0, 0, 2], 4000));
        let _kept = (used(&hosts, THERE), unused(&hosts, THERE));
        let _greedy = [1, 2, 3].map(|port| unused(&hosts, peer(port)));

        let sixth = hosts.admit(late, &stream(), 0);
        let seventh = hosts.admit(late, &stream(), 0);
        let beyond = hosts.admit(late, &stream(), 110);

        assert_eq!((sixth.quota.is_ok(), sixth.evicted), (true, None), "there is room");
        assert_eq!((seventh.quota.is_ok(), seventh.evicted), (true, Some(peer(1))));
        assert_eq!(beyond.quota.err(), Some(AdmissionError::Descriptors), "the last ones are no client's");
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn descriptor_shortage_rejects_new_circuits_when_all_are_in_use() {
        let hosts = hosts_with(4);
        let late = SocketAddr::from(([10, 0, 0, 2], 4000));
        let _used = [HERE, HERE, THERE, THERE].map(|peer| used(&hosts, peer));

        assert_eq!(refusal(&hosts, late), Some(AdmissionError::Descriptors));
        assert_eq!((hosts.n_refused(), hosts.n_evicted()), (1, 0));
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn repeated_evictions_keep_the_number_of_circuits_constant() {
        let hosts = hosts_with(6);
        let mut all: Vec<CircuitQuota> = Vec::new();
        for n in 0..100_u16 {
            let peer = SocketAddr::from(([10, 0, 0, (n % 3) as u8], n));
            let Admission { quota, evicted } = hosts.admit(peer, &stream(), 0);
            all.retain(|quota| Some(quota.peer()) != evicted);
            all.push(quota.unwrap());
        }

        assert_eq!((all.len(), hosts.clients.lock().n_circuits), (6, 6));
    }

    #[test]
    fn a_bounded_eighth_of_the_descriptors_is_reserved() {
        for (limit, circuits_max, none_from) in [(1024, 876, 960), (64, 36, 60), (16, 0, 12)] {
            let descriptors = Descriptors::of(limit, 20);
            assert_eq!((descriptors.circuits_max, descriptors.none_from), (circuits_max, none_from), "{limit}");
        }
    }

    // Rows 17 and 18 of docs/reference/faults.md.
    #[test]
    fn a_circuit_may_use_half_of_the_host_quota_and_no_more_than_is_free() {
        let hosts = hosts();
        let mut shares: Vec<_> = (0..3).map(|_| used(&hosts, HERE)).collect();
        assert_eq!(shares[0].held_bytes_max(), 500);

        shares[0].set(400, 0);
        shares[1].set(450, 0);

        let may_hold: Vec<usize> = shares.iter().map(CircuitQuota::held_bytes_max).collect();
        assert_eq!(may_hold, [500, 500, 150]);
    }

    // Row 80 of docs/reference/faults.md.
    #[test]
    fn partial_puts_may_use_at_most_half_of_the_host_quota() {
        let hosts = hosts();
        let mut shares: Vec<_> = (0..2).map(|_| used(&hosts, HERE)).collect();

        shares[0].set(400, 0);

        assert_eq!((shares[0].arriving_bytes_max(), shares[1].arriving_bytes_max()), (100, 100));
        shares[1].set(150, 0);
        assert_eq!((shares[0].arriving_bytes_max(), shares[0].held_bytes_max()), (0, 500));
    }

    #[test]
    fn queued_bytes_of_one_circuit_count_for_all_circuits_of_its_host() {
        let hosts = hosts();
        let (mut deaf, other) = (used(&hosts, HERE), used(&hosts, HERE));

        deaf.set(100, 900);
        let while_it_waits = other.may_queue();
        deaf.set(100, 0);

        assert_eq!((while_it_waits, other.may_queue()), (false, true));
    }

    #[test]
    fn queueing_stops_at_the_host_limit_and_resumes_below_it() {
        let hosts = hosts();
        let (mut one, other) = (used(&hosts, HERE), used(&hosts, HERE));

        let may_queue = [(400, 599), (400, 600), (0, 999), (0, 1000), (10, 0)].map(|(held_bytes, queued_bytes)| {
            one.set(held_bytes, queued_bytes);
            other.may_queue()
        });

        assert_eq!(may_queue, [true, false, true, false, true]);
        assert_eq!((one.held_bytes_max(), other.held_bytes_max()), (500, 500));
        one.set(600, 0);
        assert_eq!(other.held_bytes_max(), 400);
        drop(one);
        assert_eq!((other.held_bytes_max(), other.peer()), (500, HERE));
    }

    #[test]
    fn rejected_requests_and_flawed_datagrams_are_counted_separately() {
        let hosts = hosts();
        let quota = used(&hosts, HERE);

        (0..3).for_each(|_| quota.count_refused());
        hosts.count_flawed();

        assert_eq!((hosts.n_refused(), hosts.n_flawed()), (3, 1));
    }
}
