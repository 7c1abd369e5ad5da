//! The environment of a run: machine, time and versions, without which its results are meaningless.

use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The host and the time.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The start of the run, UTC, as in RFC 3339.
    pub date: String,
    /// The operating system and its version.
    pub kernel: String,
    /// The processor's model name.
    pub cpu_model: String,
    /// CPUs this process may use.
    pub n_cpus: usize,
    /// Frequency governor of the first CPU, where known.
    pub cpu_governor: Option<String>,
    /// Memory of the host, in bytes.
    pub memory_bytes: Option<u64>,
    /// Load average of the last minute at the start: nearly zero on a quiet machine.
    pub load_average: Option<f64>,
    /// TCP congestion control algorithm.
    pub tcp_congestion_control: Option<String>,
    /// Receive buffer of a TCP socket in bytes: minimum, default, maximum.
    pub tcp_rmem: Option<String>,
    /// Send buffer of a TCP socket in bytes: minimum, default, maximum.
    pub tcp_wmem: Option<String>,
    /// Maximum receive buffer of any other socket in bytes, including UDP.
    pub rmem_max: Option<String>,
    /// Fodo's version.
    pub fodo_version: String,
    /// Whether this program was compiled with optimizations.
    pub is_optimized: bool,
    /// The commit of the working tree that contains the current directory, with `-dirty` if it has changes.
    pub git_commit: Option<String>,
}

impl Machine {
    /// Describes this machine, now.
    pub fn describe() -> Machine {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Machine {
            date: rfc3339(since_1970.as_secs()),
            kernel: kernel(),
            cpu_model: cpu_model(),
            n_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory_bytes(),
            load_average: first_line("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok()),
            tcp_congestion_control: first_line("/proc/sys/net/ipv4/tcp_congestion_control"),
            tcp_rmem: first_line("/proc/sys/net/ipv4/tcp_rmem").map(|words| words.replace('\t', " ")),
            tcp_wmem: first_line("/proc/sys/net/ipv4/tcp_wmem").map(|words| words.replace('\t', " ")),
            rmem_max: first_line("/proc/sys/net/core/rmem_max"),
            fodo_version: env!("CARGO_PKG_VERSION").into(),
            is_optimized: !cfg!(debug_assertions),
            git_commit: git_commit(),
        }
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

fn kernel() -> String {
    let release = first_line("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {} {release}", std::env::consts::OS, std::env::consts::ARCH).trim_end().to_owned()
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown".into(), |model| model.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn git_commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]).stdin(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Formats seconds since 1970-01-01 UTC as date and time.
///
/// Source of the calendar: Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn rfc3339(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_correct_on_leap_days_and_at_year_ends() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(rfc3339(1_735_689_600), "2025-01-01T00:00:00Z");
    }
}
