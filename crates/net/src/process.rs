//! Resources of this process and host, as the system reports them. Values that a system does not report are `None`.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

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
        let status = text("/proc/self/status");
        let kib = |name: &str| number_after(&status, name).map(|kib| kib.saturating_mul(1024));
        ProcessFacts {
            cpu_used: cpu_used(),
            resident_bytes: kib("VmRSS:"),
            n_threads: number_after(&status, "Threads:"),
            n_descriptors: n_descriptors(),
            n_descriptors_max: n_descriptors_max(),
        }
    }
}

/// Number of open descriptors of this process.
pub(crate) fn n_descriptors() -> Option<u64> {
    // One of them is the directory itself, which is open while it is read.
    std::fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1))
}

/// Maximum number of open descriptors of this process.
pub(crate) fn n_descriptors_max() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
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

/// The host name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The id of the process that started this one.
pub fn parent() -> Option<u32> {
    rustix::process::getppid().and_then(|parent| u32::try_from(parent.as_raw_pid()).ok())
}

/// Whether an operation failed because this process, or the host, has no file descriptor left.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    let errors = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    errors.into_iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Raises the limit of open file descriptors of this process to the maximum that the system allows. If that fails, the
/// limit stays as it is.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // The smaller limit is sufficient.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

pub(crate) fn cpu_used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap_or(0), used.tv_nsec.try_into().unwrap_or(0))
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
        assert!(host.memory_bytes > host.free_bytes && host.worked.is_some(), "{host:?}");
    }

    #[test]
    fn process_and_host_information_is_plausible() {
        let before = cpu_used();
        let mut sum = 0_u64;
        while cpu_used() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }

        assert!(cpu_used() > before && before > Duration::ZERO);
        assert!(!host_name().is_empty() && kernel().contains(' ') && kernel().contains('.'));
        assert_ne!(parent(), Some(std::process::id()));
        assert!(parent().is_some_and(|parent| parent > 1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_files_are_counted_and_memory_is_in_bytes() {
        let before = ProcessFacts::now();
        let _open: Vec<_> = (0..100).map(|_| std::fs::File::open("/proc/self/status").unwrap()).collect();
        let after = ProcessFacts::now();

        // Concurrent tests open and close some of their own.
        assert!(after.n_descriptors > before.n_descriptors.map(|n| n + 50), "{before:?} {after:?}");
        assert!(after.n_descriptors_max > after.n_descriptors);
        let memory = HostFacts::now().memory_bytes.unwrap();
        assert!((64 << 20..64 << 40).contains(&memory), "{memory}");
    }
}
