//! The client interface that the tools need: the network, or a simulation in tests.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fodo_net::{
    Channel, ClientConfig, Context, Error, ErrorKind, NodeValue, Operation, Output, Protocol, PvRequest, Refusal,
    Structure, StructureType,
};

use crate::client::Deadline;
use crate::epics::network;
use crate::exit::explain;
use crate::local_time::Clock;
use crate::notices;

/// The TCP port of a server whose address contains none.
const SERVER_PORT: u16 = 5075;

/// A client of structured values.
pub trait StructureClient {
    /// Reads these PVs concurrently. Returns one result each, in order, within `timeout`.
    fn get(&mut self, names: &[String], request: &PvRequest, timeout: Duration) -> Vec<Result<Structure, Error>>;

    /// The servers and types of these PVs.
    fn describe(&mut self, names: &[String], timeout: Duration)
    -> Vec<Result<(SocketAddr, Arc<StructureType>), Error>>;

    /// Writes these fields, given by their paths.
    fn put(
        &mut self,
        name: &str,
        request: &PvRequest,
        fields: Vec<(String, NodeValue)>,
        timeout: Duration,
    ) -> Result<(), Error>;

    /// Calls a procedure.
    fn call(&mut self, name: &str, argument: Structure, timeout: Duration) -> Result<Structure, Error>;
}

/// pvAccess PVs; configured by the EPICS_PVA_* variables.
#[derive(Default)]
pub struct PvaNetwork {
    context: Option<Context>,
}

impl PvaNetwork {
    /// The channel of a PV.
    fn channel(&mut self, name: &str) -> Result<Channel, Error> {
        let context = match &self.context {
            Some(context) => context,
            None => self.context.insert(context()?),
        };
        context.channel(&pv_access(name))
    }

    /// Starts operations on all PVs, then waits for them.
    fn all<T: Output>(
        &mut self,
        names: &[String],
        start: impl Fn(&Channel) -> Operation<T>,
        timeout: Duration,
    ) -> Vec<Result<T, Error>> {
        let deadline = Deadline::after(timeout);
        let mut started = Vec::with_capacity(names.len());
        for name in names {
            started.push(self.channel(name).map(|channel| {
                let operation = start(&channel);
                (channel, operation)
            }));
        }
        // Dropping a channel closes it, so it is kept until its reply.
        started.into_iter().map(|started| started.and_then(|(_channel, operation)| deadline.wait(operation))).collect()
    }
}

/// A context of the environment variables, whose notices are printed on stderr.
pub fn context() -> Result<Context, Error> {
    network::context(|notice: &_| notices::of_epics(notice, &Clock::local(), SystemTime::now()))
        .map_err(|reason| Error::misuse("", reason, ""))
}

/// The name of a PV as a name of pvAccess, because these tools know no schemes.
pub fn pv_access(name: &str) -> String {
    format!("{}://{name}", Protocol::Pva)
}

impl StructureClient for PvaNetwork {
    fn get(&mut self, names: &[String], request: &PvRequest, timeout: Duration) -> Vec<Result<Structure, Error>> {
        self.all(names, |channel| channel.start_get_structure(request.clone()), timeout)
    }

    fn describe(
        &mut self,
        names: &[String],
        timeout: Duration,
    ) -> Vec<Result<(SocketAddr, Arc<StructureType>), Error>> {
        let deadline = Deadline::after(timeout);
        let mut started = Vec::with_capacity(names.len());
        for name in names {
            started.push(self.channel(name).map(|channel| {
                let operations = (channel.start_connect(), channel.start_describe(""));
                (channel, operations)
            }));
        }
        let mut described = Vec::with_capacity(names.len());
        for started in started {
            described.push(started.and_then(|(_channel, (connecting, describing))| {
                let facts = deadline.wait(connecting)?;
                Ok((facts.server, deadline.wait(describing)?))
            }));
        }
        described
    }

    fn put(
        &mut self,
        name: &str,
        request: &PvRequest,
        fields: Vec<(String, NodeValue)>,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.channel(name)?.put_structure_timeout(request, fields, timeout)
    }

    fn call(&mut self, name: &str, argument: Structure, timeout: Duration) -> Result<Structure, Error> {
        self.channel(name)?.call_timeout(argument, timeout)
    }
}

/// Whether no server replied in time.
pub fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound { .. } | ErrorKind::NoReply { .. })
}

/// What a tool prints for an error: the words of the server if there are any.
pub fn message(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Refused { refusal: Refusal::Reported { text }, .. } => text.to_string(),
        ErrorKind::NotFound { .. } | ErrorKind::NoReply { .. } => "Timeout".to_owned(),
        ErrorKind::Misuse { reason, .. } => reason.clone(),
        _ => explain(error),
    }
}

/// The address of a server, such as `10.0.0.1`, `10.0.0.1:5075`, `ioc1:5075`, `::1` or `[::1]:5075`.
pub fn server_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, SERVER_PORT));
    }
    let with_port = match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => text.to_owned(),
        _ => format!("{text}:{SERVER_PORT}"),
    };
    let resolved = with_port.to_socket_addrs().map_err(|error| format!("cannot resolve \"{text}\": {error}"))?;
    let addresses: Vec<SocketAddr> = resolved.collect();
    let preferred = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    preferred.copied().ok_or_else(|| format!("\"{text}\" has no address"))
}

/// The configuration of the environment, for searches and calls without a context.
pub fn config() -> Result<ClientConfig, String> {
    ClientConfig::from_env().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_server_has_the_port_of_pvaccess_unless_it_contains_one() {
        assert_eq!(server_address("127.0.0.1"), Ok("127.0.0.1:5075".parse().unwrap()));
        assert_eq!(server_address("127.0.0.1:99"), Ok("127.0.0.1:99".parse().unwrap()));
        assert_eq!(server_address("::1"), Ok("[::1]:5075".parse().unwrap()));
        assert_eq!(server_address("[::1]:99"), Ok("[::1]:99".parse().unwrap()));
        assert!(server_address("no such host").unwrap_err().contains("no such host"));
    }

    #[test]
    fn an_error_is_the_text_of_the_server_or_a_timeout_or_what_is_wrong() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5075));
        let error = |kind| Error::new("pva://x", kind);
        let reported = Refusal::Reported { text: "not now".into() };
        let refused = error(ErrorKind::Refused { server, refusal: reported });
        let silent = error(ErrorKind::NoReply { server, after: Duration::from_secs(1) });
        let misuse = Error::misuse("pva://x", "no such field", "");
        let closed = error(ErrorKind::ConnectionClosed { server });

        assert_eq!([&refused, &silent, &misuse].map(message), ["not now", "Timeout", "no such field"]);
        assert!(message(&closed).contains("127.0.0.1:5075"), "{}", message(&closed));
        assert_eq!([&refused, &silent, &misuse, &closed].map(is_timeout), [false, true, false, false]);
        assert_eq!(pv_access("x"), "pva://x");
    }
}
