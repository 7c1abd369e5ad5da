//! Resource usage of a process.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Sums since the process started; zeros where the system does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all threads, in seconds.
    pub cpu_s: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of context switches, voluntary and involuntary.
    pub ctx_switches: u64,
}

impl Usage {
    /// Usage of this process.
    pub fn of_this_process() -> Usage {
        Usage::of_process("self")
    }

    /// Usage of another process of this user, by its number as text.
    pub fn of_process(process: &str) -> Usage {
        let process = Path::new("/proc").join(process);
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let number = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        Usage {
            cpu_s: cpu_s(&process).unwrap_or(0.0),
            rss_bytes: number("VmRSS:") * 1024,
            threads: number("Threads:"),
            ctx_switches: all_switches(&process),
        }
    }

    /// The difference from `before`; memory and threads are the current values.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_s: self.cpu_s - before.cpu_s,
            ctx_switches: self.ctx_switches.saturating_sub(before.ctx_switches),
            ..self
        }
    }
}

/// CPU time of all threads: the first number in `schedstat`, in nanoseconds.
fn cpu_s(process: &Path) -> Option<f64> {
    let mut nanos = 0_u64;
    for task in std::fs::read_dir(process.join("task")).ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(nanos as f64 / 1e9)
}

fn all_switches(process: &Path) -> u64 {
    let Ok(tasks) = std::fs::read_dir(process.join("task")) else { return 0 };
    let switches_of = |path: std::path::PathBuf| -> u64 {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    tasks.flatten().map(|task| switches_of(task.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_busy_process_uses_cpu_time_and_memory() {
        let before = Usage::of_this_process();
        let mut number = 1_u64;
        for step in 0..20_000_000_u64 {
            number = std::hint::black_box(number.wrapping_mul(31) ^ step);
        }

        let used = Usage::of_this_process().since(before);

        assert!(used.cpu_s > 0.0, "{number}");
        assert!(used.rss_bytes > 0 && used.threads > 0);
    }
}
