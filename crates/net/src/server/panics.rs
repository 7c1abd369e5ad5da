//! Panics in the code of the program: a source, a PV or a closure. Each is logged, and ends the request or the circuit
//! that caused it, but not the server's thread.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fodo_data::Now;

use super::Source;
use crate::log::{Level, Log};
use crate::protocol::Protocol;

/// Runs code of the program; returns the text of its panic, which the panic hook has also reported.
///
/// Locks are released and not poisoned, so the caller must not continue with state that a panic may leave half changed.
pub fn catch_panic<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "without a text".to_owned(), |text| (*text).to_owned()),
    })
}

/// Logs a panic. `what`: what failed with it; `panic`: its text.
pub fn log_panic(log: &Log, what: &str, panic: &str, peer: SocketAddr, pv: Option<&str>, now: Now) {
    let what = format!("{what}, because the code of the program panicked: {panic}");
    log.write(Level::Error, &what, Some(peer), pv, now);
}

/// Whether the source serves a name over a protocol; not if it panics.
pub fn serves(source: &dyn Source, name: &str, over: Protocol, log: &Log, peer: SocketAddr, now: Now) -> bool {
    let serves = || match over {
        Protocol::Ca => source.serves_flat(name),
        Protocol::Pva => source.serves(name),
    };
    catch_panic(serves).unwrap_or_else(|panic| {
        log_panic(log, "a search is ignored", &panic, peer, Some(name), now);
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_returned() {
        let number = std::hint::black_box(7);

        assert_eq!(catch_panic(|| number), Ok(7));
        assert_eq!(catch_panic::<()>(|| panic!("a fixed text")), Err("a fixed text".to_owned()));
        assert_eq!(catch_panic::<()>(|| panic!("number {number}")), Err("number 7".to_owned()));
        assert_eq!(catch_panic::<()>(|| std::panic::panic_any(number)), Err("without a text".to_owned()));
    }
}
