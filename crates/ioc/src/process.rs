//! Resources of this process and host, as the system reports them. Values that a system does not report are `None`.
//!
//! ```
//! use fodo_ioc::process::{HostFacts, ProcessFacts, kernel};
//!
//! let (process, host) = (ProcessFacts::now(), HostFacts::now());
//! println!("{}, {} processors, {:?} bytes", kernel(), host.n_processors, host.memory_bytes);
//! println!("{:?} of CPU time, {:?} threads", process.cpu_used, process.n_threads);
//! ```

use std::time::Duration;

use fodo_net::process::{cpu_used, n_descriptors, n_descriptors_max, resident_bytes};

/// The resources that a process uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    /// CPU time used so far.
    pub cpu_used: Duration,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Number of threads.
    pub n_threads: Option<u64>,
    /// Number of open descriptors: files, sockets and others.
    pub n_descriptors: Option<u64>,
    /// Maximum number of open descriptors.
    pub n_descriptors_max: Option<u64>,
}

/// The state of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Processors that this process may use.
    pub n_processors: usize,
    /// Total memory.
    pub memory_bytes: Option<u64>,
    /// Memory available to programs.
    pub free_bytes: Option<u64>,
    /// Busy time of all processors together since the host started, and their total time, both in clock ticks.
    pub worked: Option<(u64, u64)>,
}

impl ProcessFacts {
    /// The current values; reads a few small files.
    pub fn now() -> ProcessFacts {
        ProcessFacts {
            cpu_used: cpu_used(),
            resident_bytes: resident_bytes(),
            n_threads: number_after(&text("/proc/self/status"), "Threads:"),
            n_descriptors: n_descriptors(),
            n_descriptors_max: n_descriptors_max(),
        }
    }
}

impl HostFacts {
    /// The current values; reads two small files.
    pub fn now() -> HostFacts {
        let memory = text("/proc/meminfo");
        let kib = |name: &str| number_after(&memory, name).map(|kib| kib.saturating_mul(1024));
        HostFacts {
            n_processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: kib("MemTotal:"),
            free_bytes: kib("MemAvailable:"),
            worked: worked(&text("/proc/stat")),
        }
    }
}

/// Name and release of the kernel: `Linux 6.8.0`.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// The content of a file; empty if the system has no such file.
fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number after a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, I/O wait, interrupts. Guest time is included in the
/// first two.
fn worked(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = times.iter().sum();
    let idle = times.get(3)?.saturating_add(*times.get(4)?);
    Some((all.saturating_sub(idle), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_after_its_label() {
        let text = "VmPeak:\t  9 kB\nVmRSS:\t  3180 kB\nThreads:\t4\n";

        assert_eq!(number_after(text, "VmRSS:"), Some(3180));
        assert_eq!(number_after(text, "Threads:"), Some(4));
        assert_eq!(number_after(text, "VmSwap:"), None);
    }

    #[test]
    fn cpu_time_used_excludes_idle_and_io_wait() {
        assert_eq!(worked("cpu  10 1 5 80 4 0 1 0 7 0\ncpu0 1 2 3\n"), Some((17, 101)));
        assert_eq!(worked(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_reports_all_process_and_host_facts() {
        let (process, host) = (ProcessFacts::now(), HostFacts::now());

        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{process:?}");
        assert!(process.n_threads.is_some_and(|n| n >= 1) && process.n_descriptors.is_some_and(|n| n >= 3));
        assert!(process.n_descriptors_max > process.n_descriptors, "{process:?}");
        assert!(host.memory_bytes > host.free_bytes && host.worked.is_some(), "{host:?}");
        assert!(host.memory_bytes.is_some_and(|bytes| (64 << 20..64 << 40).contains(&bytes)), "{host:?}");
    }

    #[test]
    fn the_kernel_has_a_name_and_a_release() {
        assert!(kernel().contains(' ') && kernel().contains('.'));
    }
}
