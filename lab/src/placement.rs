//! Placement of processes: whether client and server share a core affects the time of a round trip more than any code
//! (a wake-up across cores costs more than the calls), so both cases are measured separately.

use std::io;

use serde::Serialize;

/// Placement of client and server in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Both on the same CPU.
    OneCore,
    /// Each on its own CPU.
    TwoCores,
    /// Each on its own CPU and in its own network, see [`crate::hosts`].
    TwoHosts,
    /// The same with a delay between them.
    TwoHostsDelayed,
    /// The server on one CPU, the client on all: shows what pinning costs a client with many threads.
    ClientNotPinned,
    /// On any CPU; only if pinning is not possible.
    Unpinned,
}

impl Placement {
    /// The placements on two hosts.
    pub const APART: [Placement; 2] = [Placement::TwoHosts, Placement::TwoHostsDelayed];

    /// The connection between client and server.
    pub fn link(self) -> HostLink {
        match self {
            Placement::OneCore | Placement::TwoCores | Placement::ClientNotPinned | Placement::Unpinned => {
                HostLink::Loopback
            }
            Placement::TwoHosts => HostLink::Cards,
            Placement::TwoHostsDelayed => HostLink::Delayed,
        }
    }

    /// The name in tables.
    pub fn text(self) -> &'static str {
        match self {
            Placement::OneCore => "one core",
            Placement::TwoCores => "two cores",
            Placement::TwoHosts => "two hosts",
            Placement::TwoHostsDelayed => "two hosts, 2 ms",
            Placement::ClientNotPinned => "client not pinned",
            Placement::Unpinned => "unpinned",
        }
    }
}

/// The connection between a server and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostLink {
    /// Loopback: both are on the laboratory's host.
    Loopback,
    /// Two network cards.
    Cards,
    /// Two network cards and a delay.
    Delayed,
}

/// The CPUs a run uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuChoice {
    /// CPU of every server, and of the client when they share a core.
    pub server_cpu: Option<usize>,
    /// CPU of the client otherwise; `None` if there is only one CPU.
    pub other_cpu: Option<usize>,
    /// Whether the two CPUs are threads of one core, which affects "two cores".
    pub are_siblings: bool,
}

impl CpuChoice {
    /// Chooses from the CPUs that this process may use.
    pub fn find() -> CpuChoice {
        choose(&allowed_cpus(), siblings_of)
    }

    /// The placements that these CPUs permit.
    pub fn placements(&self) -> Vec<Placement> {
        match (self.server_cpu, self.other_cpu) {
            (Some(_), Some(_)) => vec![Placement::OneCore, Placement::TwoCores, Placement::ClientNotPinned],
            (Some(_), None) => vec![Placement::OneCore],
            (None, _) => vec![Placement::Unpinned],
        }
    }

    /// Placement of loads: client and server each on its own CPU if there are two.
    pub fn apart(&self) -> Placement {
        match (self.server_cpu, self.other_cpu) {
            (Some(_), Some(_)) => Placement::TwoCores,
            (Some(_), None) => Placement::OneCore,
            (None, _) => Placement::Unpinned,
        }
    }

    /// CPU of the client at a placement; `None` for any.
    pub fn client_cpu(&self, placement: Placement) -> Option<usize> {
        match placement {
            Placement::OneCore => self.server_cpu,
            Placement::TwoCores | Placement::TwoHosts | Placement::TwoHostsDelayed => self.other_cpu,
            Placement::ClientNotPinned | Placement::Unpinned => None,
        }
    }
}

fn choose(allowed: &[usize], siblings_of: impl Fn(usize) -> Vec<usize>) -> CpuChoice {
    let Some((&first, rest)) = allowed.split_first() else {
        return CpuChoice { server_cpu: None, other_cpu: None, are_siblings: false };
    };
    let siblings = siblings_of(first);
    let apart = rest.iter().find(|cpu| !siblings.contains(cpu));
    CpuChoice {
        server_cpu: Some(first),
        other_cpu: apart.or(rest.first()).copied(),
        are_siblings: apart.is_none() && !rest.is_empty(),
    }
}

#[cfg(target_os = "linux")]
fn allowed_cpus() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

fn siblings_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_cpu_list(&std::fs::read_to_string(path).unwrap_or_default())
}

/// The kernel's notation of CPU sets: `0-2,8`.
fn parse_cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first + 1024));
        }
    }
    cpus
}

/// Pins the calling thread, and every thread and process it starts from now on, to one CPU.
#[cfg(target_os = "linux")]
pub fn pin(cpu: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "CPU number out of range"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Pinning is supported on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn pin(_cpu: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "pinning to a CPU is supported on Linux only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_cpu_is_on_another_core_if_available() {
        let cpus = choose(&[0, 1, 2, 3], |cpu| if cpu < 2 { vec![0, 1] } else { vec![2, 3] });

        assert_eq!(cpus, CpuChoice { server_cpu: Some(0), other_cpu: Some(2), are_siblings: false });
    }

    #[test]
    fn a_sibling_cpu_is_used_as_second_cpu_and_reported() {
        let cpus = choose(&[4, 5], |_| vec![4, 5]);

        assert_eq!(cpus, CpuChoice { server_cpu: Some(4), other_cpu: Some(5), are_siblings: true });
    }

    #[test]
    fn one_cpu_allows_one_placement_and_no_cpu_leaves_processes_unpinned() {
        assert_eq!(choose(&[3], |_| vec![3]).placements(), [Placement::OneCore]);
        assert_eq!(choose(&[], |_| vec![]).placements(), [Placement::Unpinned]);
    }

    #[test]
    fn cpu_lists_are_parsed_in_kernel_format() {
        assert_eq!(parse_cpu_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_cpu_list(""), [] as [usize; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_thread_runs_only_on_its_cpu() {
        let cpu = *allowed_cpus().first().unwrap();

        let allowed = std::thread::spawn(move || pin(cpu).map(|()| allowed_cpus())).join().unwrap();

        assert_eq!(allowed.unwrap(), [cpu]);
    }
}
