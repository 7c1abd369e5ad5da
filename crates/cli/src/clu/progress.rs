//! A progress bar for transfers that take long.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A transfer that ends earlier has no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// The shortest time between two changes on the screen.
const REDRAWN_AFTER: Duration = Duration::from_millis(100);

/// How many characters the bar has.
const BAR_CHARS: usize = 30;

/// A bar in the last line of a terminal, on stderr. It disappears when dropped.
pub struct ProgressBar {
    title: String,
    is_terminal: bool,
    next_draw: Instant,
    is_drawn: bool,
}

impl ProgressBar {
    /// A bar that appears after two seconds, if stderr is a terminal.
    pub fn new(title: String) -> ProgressBar {
        let next_draw = Instant::now() + SHOWN_AFTER;
        ProgressBar { title, is_terminal: io::stderr().is_terminal(), next_draw, is_drawn: false }
    }

    /// Shows that `n_bytes` are transferred; `n_total` is `None` if the length is unknown.
    pub fn set(&mut self, n_bytes: u64, n_total: Option<u64>) {
        let now = Instant::now();
        if !self.is_terminal || now < self.next_draw {
            return;
        }
        self.next_draw = now + REDRAWN_AFTER;
        self.is_drawn = true;
        // There is no other place to report that stderr failed.
        let _ = write!(io::stderr(), "\r{}\x1b[K", line(&self.title, n_bytes, n_total));
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.is_drawn {
            // As above.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(title: &str, n_bytes: u64, n_total: Option<u64>) -> String {
    let kib = |n_bytes: u64| n_bytes as f64 / 1024.0;
    let Some(n_total) = n_total.filter(|n_total| *n_total > 0) else {
        return format!("{title}  {:.1} KiB", kib(n_bytes));
    };
    let n_filled = (n_bytes.min(n_total) as usize * BAR_CHARS) / n_total as usize;
    let bar = "#".repeat(n_filled) + &"-".repeat(BAR_CHARS - n_filled);
    format!("{title}  [{bar}]  {:.1} of {:.1} KiB", kib(n_bytes), kib(n_total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_in_proportion_and_never_beyond_its_end() {
        assert_eq!(line("a", 512, Some(1024)), format!("a  [{}{}]  0.5 of 1.0 KiB", "#".repeat(15), "-".repeat(15)));
        assert_eq!(line("a", 4096, Some(2048)), format!("a  [{}]  4.0 of 2.0 KiB", "#".repeat(30)));
        assert_eq!(line("a", 1536, None), "a  1.5 KiB");
        assert_eq!(line("a", 0, Some(0)), "a  0.0 KiB");
    }
}
