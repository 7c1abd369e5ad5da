//! The client of one CLU: [`CluConnection`].
//!
//! One lock guards the machine `CluClient` and everything around it. A datagram is sent by the thread that causes it. The
//! socket is read by one thread at a time: a blocking caller until its own request has ended, otherwise the client's reactor
//! (`reading`). Listeners run on a thread of the connection (`deliveries`).

mod config;
mod core;
mod deliveries;
mod operation;
mod reading;
mod socket;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_clu::client::{Availability, ClientCounts, CluRequest, CluSubscription, RequestOutcome, SubmitError};
use fodo_clu::script::CluItem;

pub use self::config::{CluConnectionConfig, ReportMode};
pub use self::deliveries::{CluDeliveryCounts, CluUpdate};
pub use self::operation::CluOperation;
pub use self::socket::CluSocketCounts;

use self::core::ConnectionCore;

/// A client of one CLU, with one UDP socket. Cheap to clone; the last clone, operation or monitor that is dropped closes it.
///
/// Any number of threads can use it. A blocking call reads the socket itself, so that no other thread has to be woken for
/// its reply. While no call blocks, the client's reactor reads the socket. The number of requests that wait for a reply at
/// the same time is limited ([`CluConnectionConfig::in_flight_max`]); further ones wait in a queue.
///
/// ```
/// # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
/// use std::time::Duration;
///
/// use fodo_net::clu::{Answer, Availability, CluConnection, CluConnectionConfig, CluRequest, RequestOutcome};
///
/// let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
/// let outcome = connection.request(CluRequest::Execute("1+1"))?;
/// assert_eq!(outcome, RequestOutcome::Answered(Answer::Text("2".into())));
///
/// // Several requests without waiting for each other.
/// let first = connection.start(CluRequest::Execute("1+1"))?;
/// let second = connection.start_timeout(CluRequest::CheckAlive, Duration::from_secs(1))?;
/// assert!(matches!(second.wait(), RequestOutcome::Answered(_)));
/// assert!(matches!(first.wait(), RequestOutcome::Answered(_)));
///
/// let counts = connection.counts();
/// assert!(counts.answered >= 3 && counts.is_balanced());
/// println!("{}: {:?}, round trip {:?}", connection.clu(), connection.availability(), connection.round_trip());
/// println!("{:?} {:?}", connection.socket_counts(), connection.delivery_counts());
/// connection.close();
/// assert!(connection.start(CluRequest::CheckAlive).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CluConnection {
    handle: Arc<ConnectionHandle>,
}

/// Closes the connection when the last user drops it.
struct ConnectionHandle {
    core: Arc<ConnectionCore>,
}

impl CluConnection {
    /// Opens a socket, on any free port, and starts to check whether the CLU answers, unless that is configured otherwise.
    /// Does not wait for the CLU. See the example of [`CluConnection`].
    ///
    /// Fails if the system provides no socket, if there is no route to the CLU, or if its address is not one of IPv4.
    pub fn open(config: CluConnectionConfig) -> io::Result<CluConnection> {
        let core = ConnectionCore::open(config)?;
        Ok(CluConnection { handle: Arc::new(ConnectionHandle { core }) })
    }

    /// Starts a request with the timeout of the configuration. It is sent before this returns, unless as many requests as
    /// configured already wait for a reply. See the example of [`CluConnection`].
    pub fn start(&self, request: CluRequest<'_>) -> Result<CluOperation, SubmitError> {
        self.start_timeout(request, self.core().timeout)
    }

    /// As [`CluConnection::start`], with another timeout, at most one day. See the example of [`CluConnection`].
    pub fn start_timeout(&self, request: CluRequest<'_>, timeout: Duration) -> Result<CluOperation, SubmitError> {
        let request = self.core().start(request, timeout)?;
        Ok(CluOperation::new(self.clone(), request))
    }

    /// Sends a request and waits until it ends: one round trip. See the example of [`CluConnection`].
    pub fn request(&self, request: CluRequest<'_>) -> Result<RequestOutcome, SubmitError> {
        self.start(request).map(CluOperation::wait)
    }

    /// Subscribes to values. The CLU reports their changes, and all of them from time to time; the first report is the
    /// reply to the registration. While the CLU is unavailable, nothing is reported; afterwards the client registers again.
    ///
    /// `listener` runs on a thread of the connection, in the order of the reports, and delays other listeners of the
    /// connection until it returns. A listener that is too slow receives the newest values only ([`CluDeliveryCounts`]).
    /// A listener may use the connection; one that owns a clone keeps it open until the monitor is dropped.
    ///
    /// ```
    /// # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
    /// use std::sync::mpsc;
    ///
    /// use fodo_net::clu::{CluConnection, CluConnectionConfig, CluItem, CluUpdate, Scalar};
    ///
    /// let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
    /// let lamp = CluItem::feature("DOU8306", 0).ok_or("the name of an object is a name in Lua")?;
    /// let (sender, updates) = mpsc::channel();
    /// let monitor = connection.subscribe(vec![lamp], move |update| drop(sender.send(update)))?;
    ///
    /// let update = updates.recv()?;
    /// assert_eq!(update, CluUpdate::Values { first: 0, values: vec![Some(Scalar::F64(1.0))] });
    /// drop(monitor);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn subscribe(
        &self,
        items: Vec<CluItem>,
        listener: impl FnMut(CluUpdate) + Send + 'static,
    ) -> Result<CluMonitor, SubmitError> {
        let subscription = self.core().subscribe(items, Box::new(listener))?;
        Ok(CluMonitor { connection: self.clone(), subscription })
    }

    /// Calls `listener` with each change of [`CluConnection::availability`] from now on, on a thread of the connection.
    ///
    /// ```
    /// # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
    /// use std::sync::mpsc;
    ///
    /// use fodo_net::clu::{Availability, CluConnection, CluConnectionConfig};
    ///
    /// let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
    /// let (sender, changes) = mpsc::channel();
    /// connection.on_availability(move |availability| sender.send(availability).unwrap_or_default());
    /// if connection.availability() != Availability::Available {
    ///     assert_eq!(changes.recv()?, Availability::Available);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_availability(&self, listener: impl FnMut(Availability) + Send + 'static) {
        self.core().on_availability(Box::new(listener));
    }

    /// Whether the CLU answers checkAlive; [`Availability::Unknown`] before the first reply, and without these checks. See
    /// the example of [`CluConnection::on_availability`].
    pub fn availability(&self) -> Availability {
        self.core().with_client(|client| client.availability())
    }

    /// The time from the last checkAlive of the connection itself to its reply; `None` before the first one. See the
    /// example of [`CluConnection`].
    pub fn round_trip(&self) -> Option<Duration> {
        self.core().with_client(|client| client.round_trip())
    }

    /// The requests, replies and datagrams so far. See the example of [`CluConnection`].
    pub fn counts(&self) -> ClientCounts {
        self.core().with_client(|client| client.counts())
    }

    /// The datagrams that the system did not send or dropped. See the example of [`CluConnection`].
    pub fn socket_counts(&self) -> CluSocketCounts {
        self.core().socket_counts()
    }

    /// The calls of listeners so far. See the example of [`CluConnection`].
    pub fn delivery_counts(&self) -> CluDeliveryCounts {
        self.core().delivery_counts()
    }

    /// The address of the CLU. See the example of [`CluConnection`].
    pub fn clu(&self) -> SocketAddr {
        self.core().with_client(|client| client.clu())
    }

    /// Ends all requests as cancelled and all subscriptions, also in the CLU as far as the datagrams reach it. Afterwards no
    /// listener is called, except for a call that already runs. See the example of [`CluConnection`].
    pub fn close(&self) {
        self.core().close();
    }

    fn core(&self) -> &Arc<ConnectionCore> {
        &self.handle.core
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl fmt::Debug for CluConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CluConnection").field("clu", &self.clu()).finish_non_exhaustive()
    }
}

/// A subscription. When it is dropped, the subscription ends, also in the CLU. See the example of
/// [`CluConnection::subscribe`].
#[derive(Debug)]
#[must_use = "a monitor that is dropped ends its subscription"]
pub struct CluMonitor {
    connection: CluConnection,
    subscription: CluSubscription,
}

impl Drop for CluMonitor {
    fn drop(&mut self) {
        self.connection.core().unsubscribe(self.subscription);
    }
}
