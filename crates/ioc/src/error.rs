//! Why an IOC cannot start, and what was not saved when it ended.

use std::fmt;
use std::net::SocketAddr;

use fodo_db::LoadError;
use fodo_net::ServerError;

/// Why an IOC cannot start.
///
/// The text does not contain the system's error, which is the [`source`](std::error::Error::source).
///
/// ```
/// use fodo_ioc::{Ioc, IocError};
///
/// match Ioc::load(&[("absent.db".into(), String::new())]) {
///     Ok(_) => {}
///     Err(IocError::Load(errors)) => errors.iter().for_each(|error| eprintln!("{error}")),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub enum IocError {
    /// A file contains errors; nothing was loaded.
    Load(Vec<LoadError>),
    /// A file cannot be opened because the process or the host has no free file descriptor; a retry may succeed.
    NoDescriptors(Vec<LoadError>),
    /// The network cannot be served.
    Server(ServerError),
    /// The metrics page cannot be served.
    Metrics {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The UDP port for RecCeiver announcements cannot be opened.
    RecCaster {
        /// The UDP port.
        port: u16,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The system cannot create a thread.
    System(std::io::Error),
}

impl fmt::Display for IocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IocError::Load(errors) | IocError::NoDescriptors(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    let end = if index + 1 < errors.len() { "\n" } else { "" };
                    write!(f, "{error}{end}")?;
                }
                Ok(())
            }
            IocError::Server(error) => error.fmt(f),
            IocError::Metrics { address, .. } => write!(f, "metrics cannot be served on {address}"),
            IocError::RecCaster { port, .. } => {
                write!(f, "cannot listen for RecCeiver announcements on UDP port {port}")
            }
            IocError::System(_) => write!(f, "the operating system provided no thread"),
        }
    }
}

impl std::error::Error for IocError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IocError::Load(_) | IocError::NoDescriptors(_) => None,
            IocError::Server(error) => std::error::Error::source(error),
            IocError::Metrics { error, .. } | IocError::RecCaster { error, .. } | IocError::System(error) => {
                Some(error)
            }
        }
    }
}

/// Autosave could not save some values when the IOC ended; the log contains the reasons. Returned by
/// [`RunningIoc::stop`](crate::RunningIoc::stop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsavedSets {
    /// The number of sets that were not saved.
    pub n_sets: usize,
}

impl fmt::Display for UnsavedSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autosave sets that could not be saved at the end: {}", self.n_sets)
    }
}

impl std::error::Error for UnsavedSets {}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_says_what_cannot_be_done_and_leaves_the_reason_to_its_source() {
        let failed = || std::io::Error::other("no luck");
        let of_files = ["a.db", "b.db"].map(|file| LoadError::of_file(file, "it cannot be read".into())).to_vec();
        for (error, text, has_source) in [
            (IocError::Load(of_files.clone()), "a.db: it cannot be read\nb.db: it cannot be read", false),
            (IocError::NoDescriptors(of_files[..1].to_vec()), "a.db: it cannot be read", false),
            (
                IocError::Metrics { address: ([127, 0, 0, 1], 80).into(), error: failed() },
                "metrics cannot be served on 127.0.0.1:80",
                true,
            ),
            (
                IocError::RecCaster { port: 5049, error: failed() },
                "cannot listen for RecCeiver announcements on UDP port 5049",
                true,
            ),
            (IocError::System(failed()), "the operating system provided no thread", true),
        ] {
            assert_eq!((error.to_string().as_str(), error.source().is_some()), (text, has_source));
        }
        let unsaved = UnsavedSets { n_sets: 3 };
        assert_eq!(unsaved.to_string(), "autosave sets that could not be saved at the end: 3");
    }
}
