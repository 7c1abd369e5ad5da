//! What client and server use of this process and its host.
//!
//! ```
//! use fodo_net::process;
//!
//! process::raise_descriptor_limit();
//! println!("{} of {:?} descriptors", process::n_descriptors().unwrap_or(0), process::n_descriptors_max());
//! println!("{:?} bytes, {:?} of CPU time on {}", process::resident_bytes(), process::cpu_used(), process::host_name());
//!
//! if let Err(error) = std::net::UdpSocket::bind("127.0.0.1:0")
//!     && process::lacks_descriptors(&error)
//! {
//!     eprintln!("close some connections and try again");
//! }
//! ```

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use crate::limit;

/// How many forks lie between this process and the one that was started as a program.
static N_FORKS: AtomicUsize = AtomicUsize::new(0);

/// How often this process, or one that it descends from, was forked without starting another program. It changes only in
/// [`after_fork`]: what was created under another number belongs to a parent. See the example of [`after_fork`].
pub fn n_forks() -> usize {
    N_FORKS.load(Ordering::Relaxed)
}

/// To be called in the child after a fork that does not start another program, as `os.fork` of Python, before the child
/// uses anything of this crate.
///
/// The threads of the parent do not exist in the child. So the child must neither use nor drop contexts, channels,
/// monitors and servers of the parent; it creates its own. That is possible up to 63 forks deep.
///
/// # Examples
///
/// ```
/// use fodo_net::process;
///
/// let created_under = process::n_forks();
/// // In the child:
/// process::after_fork();
/// let is_of_a_parent = created_under != process::n_forks();
/// assert!(is_of_a_parent);
/// ```
pub fn after_fork() {
    N_FORKS.fetch_add(1, Ordering::Relaxed);
}

/// What the contexts of a process share. After a fork the child has its own: the threads of the parent do not exist there,
/// and its locks may be held for ever.
pub(crate) struct PerProcess<T>([T; limit::FORKS]);

impl<T> PerProcess<T> {
    pub(crate) const fn new(of_each: [T; limit::FORKS]) -> PerProcess<T> {
        PerProcess(of_each)
    }

    /// That of this process. Fails if the process was forked too often.
    pub(crate) fn get(&self) -> io::Result<&T> {
        let too_many = || io::Error::new(io::ErrorKind::Unsupported, "this process was forked too often");
        self.0.get(n_forks()).ok_or_else(too_many)
    }
}

/// Number of open descriptors of this process: files, sockets and others. `None` if the system does not report it.
pub fn n_descriptors() -> Option<u64> {
    // One of them is the directory itself, which is open while it is read.
    std::fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1))
}

/// Maximum number of open descriptors of this process; `None` if there is no limit.
pub fn n_descriptors_max() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// CPU time that this process has used so far.
pub fn cpu_used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap_or(0), used.tv_nsec.try_into().unwrap_or(0))
}

/// Resident memory of this process. `None` if the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The host name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_increases_with_work_and_the_host_has_a_name() {
        let before = cpu_used();
        let mut sum = 0_u64;
        while cpu_used() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }

        assert!(cpu_used() > before && before > Duration::ZERO);
        assert!(!host_name().is_empty());
    }

    #[test]
    fn only_a_full_descriptor_table_counts_as_a_lack_of_descriptors() {
        let of = |errno: rustix::io::Errno| lacks_descriptors(&errno.into());

        assert!(of(rustix::io::Errno::MFILE) && of(rustix::io::Errno::NFILE));
        assert!(!of(rustix::io::Errno::NOENT) && !lacks_descriptors(&io::ErrorKind::NotFound.into()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_descriptor_limit_is_raised_to_the_maximum() {
        let of_process = || rustix::process::getrlimit(Resource::Nofile);
        let maximum = of_process().maximum;
        let below = Rlimit { current: maximum.map(|n| n - 1), maximum };
        rustix::process::setrlimit(Resource::Nofile, below).unwrap();

        raise_descriptor_limit();

        assert_eq!(of_process().current, maximum);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_files_are_counted_and_memory_is_in_bytes() {
        let before = n_descriptors();
        let _open: Vec<_> = (0..100).map(|_| std::fs::File::open("/proc/self/status").unwrap()).collect();
        let after = n_descriptors();

        // Concurrent tests open and close some of their own.
        assert!(after > before.map(|n| n + 50), "{before:?} {after:?}");
        assert!(n_descriptors_max() > after);
        let resident = resident_bytes().unwrap();
        assert!((100_000..1 << 40).contains(&resident), "{resident}");
    }
}
