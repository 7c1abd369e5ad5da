//! Address lists for datagrams: fixed addresses, host names that are resolved periodically, and interfaces as they
//! change.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::config::Host;
use crate::sync::lock;
use crate::{interfaces, limit};

/// Which interfaces contribute their addresses to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Automatic {
    /// None.
    No,
    /// All interfaces, with this port.
    All(u16),
    /// The interfaces with these addresses, with this port.
    Of(Vec<Ipv4Addr>, u16),
}

/// A list of addresses that is kept up to date; see [`Places::look`].
#[derive(Debug)]
pub struct Places {
    fixed: Vec<SocketAddr>,
    names: Arc<Names>,
    automatic: Automatic,
    all: Vec<SocketAddr>,
    look_at: Instant,
    names_at: Instant,
}

/// Host names, resolved by a separate thread, since that may take long.
struct Names {
    hosts: Vec<Host>,
    resolve: fn(&Host) -> Option<SocketAddr>,
    found: Mutex<Vec<Found>>,
    is_running: AtomicBool,
    has_news: AtomicBool,
}

/// The result of resolving a name; the comment of each state says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// For the first result.
    Unknown,
    /// For a successful result. `is_told`: the failure was reported to the user.
    Nothing { is_told: bool },
    /// For nothing. The address is kept even if the name cannot be resolved later.
    At(SocketAddr),
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Places {
    /// Creates a list with the addresses that are known without resolving names.
    pub fn new(fixed: &[SocketAddr], hosts: &[Host], automatic: Automatic, now: Instant) -> Places {
        Places::resolved_by(Host::resolved, fixed, hosts, automatic, now)
    }

    fn resolved_by(
        resolve: fn(&Host) -> Option<SocketAddr>,
        fixed: &[SocketAddr],
        hosts: &[Host],
        automatic: Automatic,
        now: Instant,
    ) -> Places {
        let mut fixed = fixed.to_vec();
        fixed.extend(hosts.iter().filter_map(Host::address));
        let hosts: Vec<Host> = hosts.iter().filter(|host| host.address().is_none()).cloned().collect();
        let names = Names {
            found: Mutex::new(vec![Found::Unknown; hosts.len()]),
            hosts,
            resolve,
            is_running: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        };
        let look_at = now + limit::PLACES_LOOK;
        let mut places = Places { fixed, names: Arc::new(names), automatic, all: Vec::new(), look_at, names_at: now };
        places.all = places.put_together();
        places
    }

    /// The currently known addresses.
    pub fn all(&self) -> &[SocketAddr] {
        &self.all
    }

    /// When to look again; `None` if nothing can change.
    pub fn deadline(&self) -> Option<Instant> {
        match (self.names.hosts.is_empty(), &self.automatic) {
            (true, Automatic::No) => None,
            (true, _) => Some(self.look_at),
            (false, _) => Some(self.look_at.min(self.names_at)),
        }
    }

    /// An address could not be reached from here: looks again soon.
    pub fn doubt(&mut self, now: Instant) {
        self.look_at = self.look_at.min(now + limit::PLACES_LOOK_SOONER);
    }

    /// Checks the interfaces if it is due, and has names resolved on another thread, which calls `wake` when it is
    /// done. Returns true if the list has changed.
    pub fn look(&mut self, now: Instant, wake: impl FnOnce() + Send + 'static) -> bool {
        if now >= self.names_at && !self.names.hosts.is_empty() {
            let are_known = lock(&self.names.found).iter().all(|found| matches!(found, Found::At(_)));
            self.names_at = now + if are_known { limit::RESOLVED_LOOK } else { limit::PLACES_LOOK };
            Names::look_up(&self.names, wake);
        }
        let has_news = self.names.has_news.swap(false, Ordering::AcqRel);
        if now < self.look_at && !has_news {
            return false;
        }
        self.look_at = now + limit::PLACES_LOOK;
        let all = self.put_together();
        let has_changed = all != self.all;
        self.all = all;
        has_changed
    }

    /// Names that could not be resolved, each reported once.
    pub fn take_unresolved(&mut self) -> Vec<String> {
        let mut found = lock(&self.names.found);
        let untold = found.iter_mut().zip(&self.names.hosts).filter_map(|(found, host)| {
            let is_untold = *found == Found::Nothing { is_told: false };
            is_untold.then(|| {
                *found = Found::Nothing { is_told: true };
                host.name.clone()
            })
        });
        untold.collect()
    }

    fn put_together(&self) -> Vec<SocketAddr> {
        let mut all = self.fixed.clone();
        all.extend(lock(&self.names.found).iter().filter_map(|found| match found {
            Found::At(address) => Some(*address),
            _ => None,
        }));
        match &self.automatic {
            Automatic::No => {}
            Automatic::All(port) => all.extend(interfaces::search_addresses(*port)),
            Automatic::Of(which, port) => all.extend(which.iter().map(|&ip| {
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

impl Names {
    /// Resolves all names on a separate thread, unless one is already running.
    fn look_up(names: &Arc<Names>, wake: impl FnOnce() + Send + 'static) {
        if names.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let looked_up = names.clone();
        let started = std::thread::Builder::new().name("fodo-names".into()).spawn(move || {
            for (index, host) in looked_up.hosts.iter().enumerate() {
                looked_up.answer(index, (looked_up.resolve)(host));
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
        if let Some(found) = lock(&self.found).get_mut(index) {
            *found = match (address, *found) {
                (Some(address), _) => Found::At(address),
                (None, Found::Unknown) => Found::Nothing { is_told: false },
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

    /// Looks, and waits for the names to be resolved.
    fn look(places: &mut Places, now: Instant) -> bool {
        let (sender, looked_up) = mpsc::channel();
        let has_changed = places.look(now, move || sender.send(()).unwrap());
        looked_up.recv_timeout(Duration::from_secs(10)).unwrap();
        places.look(now, || {}) || has_changed
    }

    #[test]
    fn row_59_a_name_that_cannot_be_resolved_is_told_once_and_found_when_it_can() {
        static N_ASKED: AtomicUsize = AtomicUsize::new(0);
        let resolve = |_: &Host| {
            let is_known = N_ASKED.fetch_add(1, Ordering::Relaxed) >= 2;
            is_known.then(|| "10.0.0.7:5064".parse().unwrap())
        };
        let start = Instant::now();
        let mut places = Places::resolved_by(resolve, &[], &[host("late.example")], Automatic::No, start);

        assert!(!look(&mut places, start));
        assert_eq!(places.take_unresolved(), ["late.example"]);
        assert!(!look(&mut places, start + limit::PLACES_LOOK));
        assert_eq!(places.take_unresolved(), [""; 0]);
        assert!(look(&mut places, start + limit::PLACES_LOOK * 2));
        assert_eq!(places.all(), ["10.0.0.7:5064".parse().unwrap()]);
    }

    #[test]
    fn row_59_a_host_that_moves_is_found_at_its_new_address_and_not_forgotten_while_nobody_knows_it() {
        static N_ASKED: AtomicUsize = AtomicUsize::new(0);
        let resolve = |_: &Host| {
            let address = [Some("10.0.0.7:5064"), None, Some("10.0.0.8:5064")][N_ASKED.fetch_add(1, Ordering::Relaxed)];
            address.map(|text| text.parse().unwrap())
        };
        let start = Instant::now();
        let mut places = Places::resolved_by(resolve, &[], &[host("moves.example")], Automatic::No, start);
        let mut seen = Vec::new();

        for step in 0..3 {
            look(&mut places, start + limit::RESOLVED_LOOK * step);
            seen.push(places.all()[0].to_string());
        }

        assert_eq!(seen, ["10.0.0.7:5064", "10.0.0.7:5064", "10.0.0.8:5064"]);
    }

    #[test]
    fn numbers_need_no_looking_and_stand_once() {
        let start = Instant::now();
        let fixed = ["127.0.0.1:5064".parse().unwrap()];

        let places = Places::new(&fixed, &[host("127.0.0.1"), host("10.0.0.1")], Automatic::No, start);

        assert_eq!(places.all(), [fixed[0], "10.0.0.1:5064".parse().unwrap()]);
        assert_eq!(places.deadline(), None);
    }

    #[test]
    fn interfaces_are_looked_at_again_after_a_while_and_sooner_in_doubt() {
        let start = Instant::now();
        let mut places = Places::new(&[], &[], Automatic::All(5064), start);
        assert_eq!(places.deadline(), Some(start + limit::PLACES_LOOK));

        places.doubt(start);

        assert_eq!(places.deadline(), Some(start + limit::PLACES_LOOK_SOONER));
    }

    #[test]
    fn a_list_changes_only_when_it_is_looked_at_in_time_and_something_is_new() {
        let start = Instant::now();
        let automatic = Automatic::Of(vec![Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 1)], 5064);
        let mut places = Places::new(&["192.0.2.1:5064".parse().unwrap()], &[], automatic, start);
        let known = places.all().to_vec();
        assert_eq!(known.len(), 2, "{known:?}: a double, and what an interface is to be asked at");
        places.all.clear();

        assert!(!places.look(start + limit::PLACES_LOOK - Duration::from_millis(1), || {}));
        assert!(places.all().is_empty());
        assert!(places.look(start + limit::PLACES_LOOK, || {}));
        assert!(!places.look(start + limit::PLACES_LOOK * 2, || {}), "nothing is new");
        assert_eq!((places.all(), places.deadline()), (&known[..], Some(start + limit::PLACES_LOOK * 3)));
    }

    #[test]
    fn doubt_never_puts_a_look_off() {
        let start = Instant::now();
        let mut places = Places::new(&[], &[], Automatic::All(5064), start);

        places.doubt(start + limit::PLACES_LOOK);

        assert_eq!(places.deadline(), Some(start + limit::PLACES_LOOK));
        assert!(places.all().iter().all(|address| address.port() == 5064) && !places.all().is_empty());
    }

    #[test]
    fn names_that_are_known_are_looked_up_less_often() {
        let start = Instant::now();
        let known = |_: &Host| Some("10.0.0.7:5064".parse().unwrap());
        for (resolve, next) in [(known as fn(&Host) -> _, limit::RESOLVED_LOOK), (|_: &Host| None, limit::PLACES_LOOK)]
        {
            let mut places = Places::resolved_by(resolve, &[], &[host("a.example")], Automatic::No, start);
            assert_eq!(places.deadline(), Some(start));
            let again = start + limit::PLACES_LOOK;

            look(&mut places, start);
            look(&mut places, again);

            assert_eq!(places.names_at, again + next);
        }
    }
}
