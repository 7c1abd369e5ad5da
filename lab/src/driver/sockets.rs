//! TCP sockets of this process, counted independently of any client: whether a circuit still exists.

use std::time::{Duration, Instant};

use super::DriverFailure;

/// Polling interval.
const EVERY: Duration = Duration::from_millis(10);

/// Waits until the number of open TCP sockets of this process satisfies `is_wanted`, and returns it.
pub fn wait_for_sockets(is_expected: impl Fn(usize) -> bool, at_most: Duration) -> Result<usize, DriverFailure> {
    let deadline = Instant::now() + at_most;
    loop {
        let n = n_sockets()?;
        if is_expected(n) {
            return Ok(n);
        }
        if Instant::now() >= deadline {
            return Err(DriverFailure::Operation { what: "waiting for sockets".into(), why: format!("there are {n}") });
        }
        std::thread::sleep(EVERY);
    }
}

/// How many of this process's descriptors are sockets in the kernel's table of TCP connections.
#[cfg(target_os = "linux")]
fn n_sockets() -> Result<usize, DriverFailure> {
    let failed =
        |why: std::io::Error| DriverFailure::Operation { what: "counting sockets".into(), why: why.to_string() };
    let table = std::fs::read_to_string("/proc/self/net/tcp").map_err(failed)?;
    let inodes: std::collections::HashSet<&str> =
        table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    let mut n = 0;
    for descriptor in std::fs::read_dir("/proc/self/fd").map_err(failed)? {
        // A descriptor closed since the directory was read no longer has a link target.
        let Ok(target) = descriptor.and_then(|descriptor| std::fs::read_link(descriptor.path())) else { continue };
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        n += usize::from(inode.is_some_and(|inode| inodes.contains(inode)));
    }
    Ok(n)
}

/// Supported on Linux only.
#[cfg(not(target_os = "linux"))]
fn n_sockets() -> Result<usize, DriverFailure> {
    Err(DriverFailure::Operation { what: "counting sockets".into(), why: "supported on Linux only".into() })
}

/// Number of threads of this process.
#[cfg(target_os = "linux")]
pub fn n_threads() -> Result<usize, DriverFailure> {
    let failed =
        |why: std::io::Error| DriverFailure::Operation { what: "counting threads".into(), why: why.to_string() };
    Ok(std::fs::read_dir("/proc/self/task").map_err(failed)?.count())
}

/// Supported on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn n_threads() -> Result<usize, DriverFailure> {
    Err(DriverFailure::Operation { what: "counting threads".into(), why: "supported on Linux only".into() })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn open_sockets_are_counted() {
        let _listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();

        // Other tests of this process may open and close sockets meanwhile.
        assert!(wait_for_sockets(|n| n >= 1, Duration::ZERO).is_ok());
    }
}
