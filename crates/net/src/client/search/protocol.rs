//! What a search and its name servers need to know of a protocol; implemented in `ca::search` and `pva::search`.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use fodo_data::Now;
use fodo_engine::Cid;
use fodo_engine::search::{Anomaly, Claim, ClaimedServer, NameSearcher, Transport};

use crate::address_list::{AddressFamilies, AddressList};
use crate::config::{ClientConfig, Host};
use crate::reactor::{Reactor, Registration};
use crate::stream::Outgoing;

/// What datagrams contained.
#[derive(Default)]
pub(crate) struct DatagramContents {
    pub(crate) claims: Vec<Claim>,
    pub(crate) anomalies: Vec<Anomaly>,
}

/// Whether the replies that have arrived were processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchReplies {
    /// All: a server that has not replied does not have the names.
    Processed,
    /// Some may wait in the socket.
    Waiting,
}

/// The part of a search that knows its protocol: the names and their packets, and the beacons.
///
/// `N`: the owner of a name.
pub(crate) trait SearchProtocol<N>: Send + Sized + 'static {
    /// The names.
    type Searcher: NameSearcher<N, Datagram = Self::Datagram>;
    /// Searches that are sent to every address of the search list, and to the name servers.
    type Datagram: Send;
    /// A circuit to a name server.
    type NameServerCircuit: NameServerCircuit<Datagram = Self::Datagram>;

    /// The families of the addresses of its servers.
    const FAMILIES: AddressFamilies;

    /// A search without names. `reply_port`: the UDP port of the socket that sends the searches.
    fn new(config: &ClientConfig, seed: u64, reply_port: u16, now: Now) -> Self;

    /// The configuration without what a search of this protocol does not use, beside the settings that no search uses.
    fn used(config: ClientConfig) -> ClientConfig;

    /// The search list.
    fn addresses(config: &ClientConfig, now: Instant) -> AddressList;

    /// Whether host names of the search list must be resolved, or beacons are received.
    fn has_early_work(config: &ClientConfig) -> bool;

    /// The name servers that are connected by this transport.
    fn name_servers(config: &ClientConfig, over: Transport) -> &[Host];

    fn searcher(&self) -> &Self::Searcher;

    fn searcher_mut(&mut self) -> &mut Self::Searcher;

    /// Processes a datagram that the search socket received.
    fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, received: &mut DatagramContents);

    /// Appends the searches that are due.
    fn due_searches(&mut self, replies: SearchReplies, now: Now, out: &mut Vec<Self::Datagram>) {
        match replies {
            SearchReplies::Processed => self.searcher_mut().tick(now, out),
            SearchReplies::Waiting => self.searcher_mut().send_due_searches(now, out),
        }
    }

    /// The bytes of a datagram to this address.
    fn bytes_to(datagram: &mut Self::Datagram, address: SocketAddr) -> &[u8];

    /// Whether one server claimed names from both addresses, as far as the protocol shows it.
    fn is_one_server(&self, _one: SocketAddr, _other: SocketAddr) -> bool {
        false
    }

    /// Does what is due to receive beacons. `socket` and `registration`: those of the search.
    fn refresh_beacons(&mut self, socket: &UdpSocket, reactor: &Reactor, registration: &Registration, now: Now);

    /// Processes beacons that arrive at other sockets than that of the search. Returns whether there may be more.
    fn receive_beacons(&mut self, _now: Now, _received: &mut DatagramContents) -> bool {
        false
    }

    /// The latest time for [`SearchProtocol::due_searches`] and [`SearchProtocol::refresh_beacons`].
    fn deadline(&self) -> Option<Instant>;
}

/// A circuit to a name server, without IO.
pub(crate) trait NameServerCircuit: Outgoing + Send + Sized + 'static {
    /// Searches of the protocol.
    type Datagram;
    /// What a circuit needs to begin.
    type Config: Send + Sync;

    fn config(config: &ClientConfig) -> Self::Config;

    /// A circuit on a connection that has just been established.
    fn start(config: &Self::Config, now: Now) -> Self;

    /// The connection uses TLS, and this client has presented a certificate. Called before the first bytes.
    fn use_certificate(&mut self) {}

    /// Whether the name server accepts searches. Before, they are not sent.
    fn is_ready(&self) -> bool;

    /// The number of bytes that wait to be sent.
    fn pending_bytes(&self) -> usize;

    /// Sends the searches of a datagram.
    fn send_searches(&mut self, datagram: &Self::Datagram);

    /// Processes received bytes.
    fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<NameServerEvent>);

    /// Performs actions that are due.
    fn tick(&mut self, now: Now, events: &mut Vec<NameServerEvent>);

    /// The latest time for [`NameServerCircuit::tick`].
    fn deadline(&self) -> Option<Instant>;
}

/// An event on a circuit to a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameServerEvent {
    /// A server has this name.
    Claimed(Cid, ClaimedServer),
    /// The name server does not respond, or the circuit cannot be used any more.
    Failed,
    /// Anything else; this circuit has no channels.
    Other,
}
