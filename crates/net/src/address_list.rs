//! Address lists for datagrams: fixed addresses, host names that are resolved periodically, and interfaces as they
//! change.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fodo_lock::Mutex;

use crate::config::Host;
use crate::{interfaces, limit};

/// Which interfaces contribute their addresses to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceSelection {
    /// None.
    No,
    /// All interfaces, with this port.
    All(u16),
    /// The interfaces with these addresses, with this port.
    Of(Vec<Ipv4Addr>, u16),
}

/// Which families of addresses a list may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamilies {
    /// Channel Access.
    Ipv4,
    /// pvAccess.
    Both,
}

impl AddressFamilies {
    fn has(self, address: &SocketAddr) -> bool {
        self == AddressFamilies::Both || address.is_ipv4()
    }
}

/// A list of addresses that is kept up to date; see [`AddressList::refresh`].
#[derive(Debug)]
pub struct AddressList {
    fixed: Vec<SocketAddr>,
    names: Arc<ResolvedNames>,
    automatic: InterfaceSelection,
    all: Vec<SocketAddr>,
    refresh_at: Instant,
    names_at: Instant,
}

/// Host names, resolved by a separate thread, since that may take long.
struct ResolvedNames {
    hosts: Vec<Host>,
    families: AddressFamilies,
    resolve: fn(&Host) -> Option<SocketAddr>,
    found: Mutex<Vec<HostState>>,
    is_running: AtomicBool,
    has_news: AtomicBool,
}

/// The result of resolving a name; the comment of each state says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostState {
    /// For the first result.
    Unknown,
    /// For a successful result. `is_reported`: the failure was reported to the user.
    Failed { is_reported: bool },
    /// For nothing. The address is kept even if the name cannot be resolved later.
    At(SocketAddr),
}

impl std::fmt::Debug for ResolvedNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolvedNames").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl AddressList {
    /// Creates a list with the addresses that are known without resolving names.
    pub fn new(
        families: AddressFamilies,
        fixed: &[SocketAddr],
        hosts: &[Host],
        automatic: InterfaceSelection,
        now: Instant,
    ) -> AddressList {
        AddressList::resolved_by((families, Host::resolved), fixed, hosts, automatic, now)
    }

    fn resolved_by(
        (families, resolve): (AddressFamilies, fn(&Host) -> Option<SocketAddr>),
        fixed: &[SocketAddr],
        hosts: &[Host],
        automatic: InterfaceSelection,
        now: Instant,
    ) -> AddressList {
        let numeric = |host: &Host| host.address().filter(|address| families.has(address));
        let mut fixed: Vec<SocketAddr> = fixed.iter().copied().filter(|address| families.has(address)).collect();
        fixed.extend(hosts.iter().filter_map(numeric));
        let hosts: Vec<Host> = hosts.iter().filter(|host| numeric(host).is_none()).cloned().collect();
        let names = ResolvedNames {
            found: Mutex::new(vec![HostState::Unknown; hosts.len()]),
            hosts,
            families,
            resolve,
            is_running: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        };
        let refresh_at = now + limit::ADDRESS_REFRESH;
        let mut list =
            AddressList { fixed, names: Arc::new(names), automatic, all: Vec::new(), refresh_at, names_at: now };
        list.all = list.collect_addresses();
        list
    }

    /// The currently known addresses.
    pub fn all(&self) -> &[SocketAddr] {
        &self.all
    }

    /// When to look again; `None` if nothing can change.
    pub fn deadline(&self) -> Option<Instant> {
        match (self.names.hosts.is_empty(), &self.automatic) {
            (true, InterfaceSelection::No) => None,
            (true, _) => Some(self.refresh_at),
            (false, _) => Some(self.refresh_at.min(self.names_at)),
        }
    }

    /// An address could not be reached from here: looks again soon.
    pub fn refresh_soon(&mut self, now: Instant) {
        self.refresh_at = self.refresh_at.min(now + limit::ADDRESS_REFRESH_SOON);
    }

    /// Checks the interfaces if it is due, and has names resolved on another thread, which calls `wake` when it is
    /// done. Returns true if the list has changed.
    pub fn refresh(&mut self, now: Instant, wake: impl FnOnce() + Send + 'static) -> bool {
        if now >= self.names_at && !self.names.hosts.is_empty() {
            let are_known = self.names.found.lock().iter().all(|found| matches!(found, HostState::At(_)));
            self.names_at = now + if are_known { limit::NAME_REFRESH } else { limit::ADDRESS_REFRESH };
            ResolvedNames::resolve_all(&self.names, wake);
        }
        let has_news = self.names.has_news.swap(false, Ordering::AcqRel);
        if now < self.refresh_at && !has_news {
            return false;
        }
        self.refresh_at = now + limit::ADDRESS_REFRESH;
        let all = self.collect_addresses();
        let has_changed = all != self.all;
        self.all = all;
        has_changed
    }

    /// Names that could not be resolved, each reported once.
    pub fn take_unresolved(&mut self) -> Vec<String> {
        let mut found = self.names.found.lock();
        let unreported = found.iter_mut().zip(&self.names.hosts).filter_map(|(found, host)| {
            let is_unreported = *found == HostState::Failed { is_reported: false };
            is_unreported.then(|| {
                *found = HostState::Failed { is_reported: true };
                host.name.clone()
            })
        });
        unreported.collect()
    }

    fn collect_addresses(&self) -> Vec<SocketAddr> {
        let mut all = self.fixed.clone();
        all.extend(self.names.found.lock().iter().filter_map(|found| match found {
            HostState::At(address) => Some(*address),
            _ => None,
        }));
        match &self.automatic {
            InterfaceSelection::No => {}
            InterfaceSelection::All(port) => all.extend(interfaces::search_addresses(*port)),
            InterfaceSelection::Of(which, port) => all.extend(which.iter().map(|&ip| {
                let broadcast = interfaces::broadcast_of(ip).unwrap_or(ip);
                SocketAddr::from((broadcast, *port))
            })),
        }
        let mut once = Vec::with_capacity(all.len());
        for address in all {
            if !once.contains(&address) {
                once.push(address);
            }
        }
        once
    }
}

impl ResolvedNames {
    /// Resolves all names on a separate thread, unless one is already running.
    fn resolve_all(names: &Arc<ResolvedNames>, wake: impl FnOnce() + Send + 'static) {
        if names.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let looked_up = names.clone();
        let started = std::thread::Builder::new().name("fodo-names".into()).spawn(move || {
            for (index, host) in looked_up.hosts.iter().enumerate() {
                let found = (looked_up.resolve)(host).filter(|address| looked_up.families.has(address));
                looked_up.answer(index, found);
            }
            looked_up.has_news.store(true, Ordering::Release);
            looked_up.is_running.store(false, Ordering::Release);
            wake();
        });
        if started.is_err() {
            // No thread is available now; the next look tries again.
            names.is_running.store(false, Ordering::Release);
        }
    }

    fn answer(&self, index: usize, address: Option<SocketAddr>) {
        if let Some(found) = self.found.lock().get_mut(index) {
            *found = match (address, *found) {
                (Some(address), _) => HostState::At(address),
                (None, HostState::Unknown) => HostState::Failed { is_reported: false },
                (None, known) => known,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn host(name: &str) -> Host {
        Host { name: name.into(), port: 5064 }
    }

    /// Refreshes the list, and waits for the names to be resolved.
    fn refreshed(list: &mut AddressList, now: Instant) -> bool {
        let (sender, looked_up) = mpsc::channel();
        let has_changed = list.refresh(now, move || sender.send(()).unwrap());
        looked_up.recv_timeout(Duration::from_secs(10)).unwrap();
        list.refresh(now, || {}) || has_changed
    }

    // Row 59 of docs/reference/faults.md.
    #[test]
    fn an_unresolved_host_is_reported_once_and_added_when_it_resolves() {
        static N_ASKED: AtomicUsize = AtomicUsize::new(0);
        let resolve = |_: &Host| {
            let is_known = N_ASKED.fetch_add(1, Ordering::Relaxed) >= 2;
            is_known.then(|| "10.0.0.7:5064".parse().unwrap())
        };
        let start = Instant::now();
        let mut list = AddressList::resolved_by(
            (AddressFamilies::Ipv4, resolve),
            &[],
            &[host("late.example")],
            InterfaceSelection::No,
            start,
        );

        assert!(!refreshed(&mut list, start));
        assert_eq!(list.take_unresolved(), ["late.example"]);
        assert!(!refreshed(&mut list, start + limit::ADDRESS_REFRESH));
        assert_eq!(list.take_unresolved(), [""; 0]);
        assert!(refreshed(&mut list, start + limit::ADDRESS_REFRESH * 2));
        assert_eq!(list.all(), ["10.0.0.7:5064".parse().unwrap()]);
    }

    // Row 59 of docs/reference/faults.md.
    #[test]
    fn a_host_keeps_its_last_address_until_a_new_one_resolves() {
        static N_ASKED: AtomicUsize = AtomicUsize::new(0);
        let resolve = |_: &Host| {
            let address = [Some("10.0.0.7:5064"), None, Some("10.0.0.8:5064")][N_ASKED.fetch_add(1, Ordering::Relaxed)];
            address.map(|text| text.parse().unwrap())
        };
        let start = Instant::now();
        let mut list = AddressList::resolved_by(
            (AddressFamilies::Ipv4, resolve),
            &[],
            &[host("moves.example")],
            InterfaceSelection::No,
            start,
        );
        let mut seen = Vec::new();

        for step in 0..3 {
            refreshed(&mut list, start + limit::NAME_REFRESH * step);
            seen.push(list.all()[0].to_string());
        }

        assert_eq!(seen, ["10.0.0.7:5064", "10.0.0.7:5064", "10.0.0.8:5064"]);
    }

    #[test]
    fn numeric_addresses_need_no_lookup_and_are_listed_once() {
        let start = Instant::now();
        let fixed = ["127.0.0.1:5064".parse().unwrap()];

        let list = AddressList::new(
            AddressFamilies::Ipv4,
            &fixed,
            &[host("127.0.0.1"), host("10.0.0.1")],
            InterfaceSelection::No,
            start,
        );

        assert_eq!(list.all(), [fixed[0], "10.0.0.1:5064".parse().unwrap()]);
        assert_eq!(list.deadline(), None);
    }

    #[test]
    fn addresses_of_ipv6_are_used_only_where_the_protocol_has_them() {
        let start = Instant::now();
        let (fixed, hosts) = (["[::1]:5076".parse().unwrap()], [host("2001:db8::1"), host("127.0.0.1")]);

        let [of_ca, of_pva] = [AddressFamilies::Ipv4, AddressFamilies::Both]
            .map(|families| AddressList::new(families, &fixed, &hosts, InterfaceSelection::No, start));

        assert_eq!(of_ca.all(), ["127.0.0.1:5064".parse().unwrap()]);
        let all = ["[::1]:5076", "[2001:db8::1]:5064", "127.0.0.1:5064"];
        assert_eq!(of_pva.all(), all.map(|text| text.parse::<SocketAddr>().unwrap()));
    }

    #[test]
    fn interfaces_are_refreshed_periodically_and_sooner_on_request() {
        let start = Instant::now();
        let mut list = AddressList::new(AddressFamilies::Ipv4, &[], &[], InterfaceSelection::All(5064), start);
        assert_eq!(list.deadline(), Some(start + limit::ADDRESS_REFRESH));

        list.refresh_soon(start);

        assert_eq!(list.deadline(), Some(start + limit::ADDRESS_REFRESH_SOON));
    }

    #[test]
    fn a_refresh_reports_a_change_only_when_due_and_addresses_differ() {
        let start = Instant::now();
        let automatic = InterfaceSelection::Of(vec![Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 1)], 5064);
        let mut list =
            AddressList::new(AddressFamilies::Ipv4, &["192.0.2.1:5064".parse().unwrap()], &[], automatic, start);
        let known = list.all().to_vec();
        assert_eq!(known.len(), 2, "{known:?}: a double, and what an interface is to be asked at");
        list.all.clear();

        assert!(!list.refresh(start + limit::ADDRESS_REFRESH - Duration::from_millis(1), || {}));
        assert!(list.all().is_empty());
        assert!(list.refresh(start + limit::ADDRESS_REFRESH, || {}));
        assert!(!list.refresh(start + limit::ADDRESS_REFRESH * 2, || {}), "nothing is new");
        assert_eq!((list.all(), list.deadline()), (&known[..], Some(start + limit::ADDRESS_REFRESH * 3)));
    }

    #[test]
    fn an_early_refresh_request_never_delays_the_next_refresh() {
        let start = Instant::now();
        let mut list = AddressList::new(AddressFamilies::Ipv4, &[], &[], InterfaceSelection::All(5064), start);

        list.refresh_soon(start + limit::ADDRESS_REFRESH);

        assert_eq!(list.deadline(), Some(start + limit::ADDRESS_REFRESH));
        assert!(list.all().iter().all(|address| address.port() == 5064) && !list.all().is_empty());
    }

    #[test]
    fn resolved_host_names_are_looked_up_less_often() {
        let start = Instant::now();
        let known = |_: &Host| Some("10.0.0.7:5064".parse().unwrap());
        for (resolve, next) in
            [(known as fn(&Host) -> _, limit::NAME_REFRESH), (|_: &Host| None, limit::ADDRESS_REFRESH)]
        {
            let mut list = AddressList::resolved_by(
                (AddressFamilies::Ipv4, resolve),
                &[],
                &[host("a.example")],
                InterfaceSelection::No,
                start,
            );
            assert_eq!(list.deadline(), Some(start));
            let again = start + limit::ADDRESS_REFRESH;

            refreshed(&mut list, start);
            refreshed(&mut list, again);

            assert_eq!(list.names_at, again + next);
        }
    }
}
