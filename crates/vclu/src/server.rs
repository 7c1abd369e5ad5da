//! A virtual CLU on the network.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fodo_clu::script::ReportTarget;
use fodo_clu::server::{CluServerConfig, CluServerCounts, RegistrationChange, UnansweredRequest};
use fodo_clu::tftp::{TftpServerConfig, TftpServerCounts};
use fodo_net::clu::{
    CluHandler, CluOutcome, CluOutcomes, CluServerSocketCounts, CluServerSockets, CluSocketsConfig, CluTask,
    CluTaskPoll,
};

mod files;
mod stored;

use files::ServedFiles;

use crate::actor::{ActorState, RequestSource, VirtualClu};
use crate::engine::request::{ReplyTo, ScriptAnswer, VcluConfig, VcluRequest};
use crate::engine::subscription::{FetchItem, ReportReceiver, SubscriptionChange};
use crate::limit::{FETCH_BYTES_MAX, FILE_BYTES_MAX};
use crate::value::{LuaValue, NumberFormat};

/// What a virtual CLU on the network needs to start.
#[derive(Clone)]
pub struct VcluServerConfig {
    /// Its scripts.
    pub clu: VcluConfig,
    /// What it is, and what it permits.
    pub server: CluServerConfig,
    /// Where it receives requests; port 0 is any free port.
    pub listen: SocketAddr,
    /// The interface whose broadcasts it receives, by its address or by its broadcast address; port 0 is the port of
    /// `listen`.
    pub broadcast: Option<SocketAddr>,
    /// Where it receives TFTP requests after a client has started TFTP; port 0 is any free port. Without it, clients cannot
    /// start TFTP.
    pub tftp: Option<SocketAddr>,
    /// The file `keys.json` that a new key replaces. Without it, clients cannot set a key, because it would be lost with the
    /// process.
    pub keys: Option<PathBuf>,
}

impl VcluServerConfig {
    /// A CLU that listens at the address and the port of the protocol, without broadcasts, TFTP and a file for keys.
    pub fn new(clu: VcluConfig, server: CluServerConfig) -> VcluServerConfig {
        let listen = (server.address, fodo_clu::PORT).into();
        VcluServerConfig { clu, server, listen, broadcast: None, tftp: None, keys: None }
    }
}

/// Why a virtual CLU cannot start.
#[derive(Debug)]
pub enum VcluServerError {
    /// Its scripts cannot start.
    Scripts(io::Error),
    /// An address cannot be used.
    Sockets(io::Error),
    /// It must not listen on all addresses, because a broadcast would then also be received as a request to this CLU alone.
    ListensOnAllAddresses,
}

impl fmt::Display for VcluServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VcluServerError::Scripts(error) => write!(f, "{error}"),
            VcluServerError::Sockets(error) => write!(f, "the virtual CLU cannot open its sockets: {error}"),
            VcluServerError::ListensOnAllAddresses => {
                f.write_str("to receive broadcasts, the virtual CLU must listen on the address of one interface")
            }
        }
    }
}

impl std::error::Error for VcluServerError {}

/// A virtual CLU on the network. Dropping it closes the sockets, and stops the scripts unless another part of the program
/// still uses them.
///
/// The thread of the scripts receives requests itself while it waits, which costs the least time. While a script runs for
/// longer than 5 ms, a second thread receives datagrams: it answers discoveries, stores keys and transfers files, and queues
/// what needs the scripts.
///
/// ```
/// use std::net::UdpSocket;
///
/// use fodo_clu::cipher::CipherKey;
/// use fodo_clu::command::{Reply, Request, Serial, Session};
/// use fodo_clu::server::CluServerConfig;
/// use fodo_vclu::{VcluConfig, VcluServer, VcluServerConfig};
///
/// let folder = std::env::temp_dir().join(format!("fodo-vclu-server-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let key = CipherKey::new([1; 16], [2; 16]);
/// let address = [127, 0, 0, 1].into();
/// let mut config =
///     VcluServerConfig::new(VcluConfig::new(&folder), CluServerConfig::new(Serial(0x0d0a1b2c), address, key.clone()));
/// config.listen = (address, 0).into();
/// let server = VcluServer::start(config)?;
///
/// let client = UdpSocket::bind((address, 0))?;
/// let (mut request, mut datagram) = (Vec::new(), Vec::new());
/// Request::Execute { client: None, session: Session(1), script: b"1 + 1" }.encode(&mut request);
/// key.encrypt(&request, &mut datagram);
/// client.send_to(&datagram, server.address())?;
///
/// let (mut received, mut buffer) = ([0; 2048], Vec::new());
/// let (n_bytes, _) = client.recv_from(&mut received)?;
/// let reply = key.decrypt(&received[..n_bytes], &mut buffer).and_then(Reply::decode);
/// assert!(matches!(reply, Some(Reply::Executed { session: Session(1), value: b"2", .. })));
/// # server.stop();
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VcluServer {
    sockets: CluServerSockets<ScriptHandler>,
    clu: Arc<VirtualClu>,
    address: SocketAddr,
}

impl VcluServer {
    /// Starts the scripts, runs MAIN.LUA up to its first `SYSTEM.Loop`, and opens the sockets.
    pub fn start(config: VcluServerConfig) -> Result<VcluServer, VcluServerError> {
        if config.broadcast.is_some() && config.listen.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            return Err(VcluServerError::ListensOnAllAddresses);
        }
        let outcomes = CluOutcomes::new().map_err(VcluServerError::Sockets)?;
        let files = ServedFiles::new(&config);
        let format = config.clu.number_format;
        let sockets = CluSocketsConfig {
            listen: config.listen,
            broadcast: config.broadcast,
            tftp: config.tftp,
            tftp_limits: TftpServerConfig { file_bytes_max: FILE_BYTES_MAX as usize, ..TftpServerConfig::default() },
            clock: config.clu.clock.clone(),
        };
        let clu = Arc::new(VirtualClu::start(config.clu).map_err(VcluServerError::Scripts)?);
        let requests = TaskRequests { outcomes: outcomes.clone(), format };
        let handler = ScriptHandler { queue: clu.queue(), requests: requests.clone() };
        let waker = outcomes.clone();
        let (sockets, poll) = CluServerSockets::start(sockets, config.server, outcomes, handler, files)
            .map_err(VcluServerError::Sockets)?;
        let address = sockets.address().map_err(VcluServerError::Sockets)?;
        let source = SocketSource { poll, tasks: Vec::new(), requests };
        clu.attach(Box::new(source), Arc::new(move || waker.wake()));
        Ok(VcluServer { sockets, clu, address })
    }

    /// Where it receives requests.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it receives TFTP requests.
    pub fn tftp_address(&self) -> Option<SocketAddr> {
        self.sockets.tftp_address()
    }

    /// Its scripts.
    pub fn clu(&self) -> &Arc<VirtualClu> {
        &self.clu
    }

    /// What happened to the datagrams since the start.
    pub fn counts(&self) -> CluServerCounts {
        self.sockets.counts()
    }

    /// What happened to transfers of files since the start.
    pub fn tftp_counts(&self) -> TftpServerCounts {
        self.sockets.tftp_counts()
    }

    /// What happened on the sockets since the start.
    pub fn socket_counts(&self) -> CluServerSocketCounts {
        self.sockets.socket_counts()
    }

    /// The number of subscriptions.
    pub fn n_subscriptions(&self) -> usize {
        self.sockets.n_subscriptions()
    }

    /// Closes the sockets, and stops the scripts unless another part of the program still uses them. Waits for the end of the
    /// script that runs. Requests without a reply get none.
    pub fn stop(self) {}
}

impl Drop for VcluServer {
    fn drop(&mut self) {
        self.clu.detach();
        self.sockets.stop();
    }
}

/// The thread of the scripts waits for the datagrams of clients.
struct SocketSource {
    poll: CluTaskPoll<ScriptHandler>,
    tasks: Vec<CluTask<FetchItem>>,
    requests: TaskRequests,
}

impl RequestSource for SocketSource {
    fn turn(&mut self, until: Option<Instant>, has_changed: bool, requests: &mut VecDeque<VcluRequest>) {
        if has_changed {
            self.requests.outcomes.push(CluOutcome::ValuesChanged);
        }
        self.poll.turn(until, &mut self.tasks);
        requests.extend(self.tasks.drain(..).map(|task| self.requests.of(task)));
    }
}

/// Queues what clients request while the scripts are busy.
struct ScriptHandler {
    queue: Arc<ActorState>,
    requests: TaskRequests,
}

impl CluHandler for ScriptHandler {
    type Item = FetchItem;
    type Files = ServedFiles;

    fn start(&self, tasks: &mut Vec<CluTask<FetchItem>>) {
        let mut requests = tasks.drain(..).map(|task| self.requests.of(task)).collect();
        self.queue.submit_all(&mut requests);
        // The queue has no space for the rest: each that is dropped ends as refused, or its values are fetched again later.
    }
}

/// Makes requests to the scripts.
#[derive(Clone)]
struct TaskRequests {
    outcomes: CluOutcomes<FetchItem>,
    format: NumberFormat,
}

impl TaskRequests {
    /// The request of a task, whose reply is its outcome.
    fn of(&self, task: CluTask<FetchItem>) -> VcluRequest {
        let outcomes = self.outcomes.clone();
        match task {
            CluTask::Execute { reply, script } => {
                let reply = ReplyTo::new(move |answer| outcomes.push(executed(reply, answer)));
                VcluRequest::Execute { script, reply }
            }
            CluTask::Fetch { fetch, items } => {
                let format = self.format;
                let reply = ReplyTo::new(move |values: Option<Vec<LuaValue>>| {
                    outcomes.push(match values {
                        Some(values) => CluOutcome::Fetched { fetch, list: LuaValue::list(values).to_text(format) },
                        None => CluOutcome::NotFetched { fetch },
                    });
                });
                VcluRequest::Fetch { items: items.to_vec(), bytes_max: FETCH_BYTES_MAX, reply }
            }
            CluTask::Reset { reply } => {
                let reply = ReplyTo::new(move |state| {
                    outcomes.push(match state {
                        Some(_) => CluOutcome::Reset { reply },
                        None => CluOutcome::Refused { reply },
                    });
                });
                VcluRequest::Reset { reply }
            }
        }
    }
}

fn executed(reply: UnansweredRequest, answer: Option<ScriptAnswer>) -> CluOutcome<FetchItem> {
    let Some(answer) = answer else { return CluOutcome::Refused { reply } };
    match changes(answer.subscriptions) {
        Ok(changes) => CluOutcome::Executed { reply, value: answer.text, changes },
        Err(reason) => CluOutcome::Executed { reply, value: format!("error: {reason}"), changes: Vec::new() },
    }
}

/// The changes of subscriptions in the form of the server; an error is the reason that the client receives.
fn changes(changes: Vec<SubscriptionChange>) -> Result<Vec<RegistrationChange<FetchItem>>, String> {
    let change = |change| {
        Ok(match change {
            SubscriptionChange::Register { receiver, client_id, items } => {
                RegistrationChange::Register { target: target(receiver)?, client_id: number(client_id)?, items }
            }
            SubscriptionChange::Destroy { receiver, client_id } => {
                RegistrationChange::Destroy { target: target(receiver)?, client_id: number(client_id)? }
            }
        })
    };
    changes.into_iter().map(change).collect()
}

fn target(receiver: ReportReceiver) -> Result<ReportTarget, String> {
    match receiver {
        ReportReceiver::Source => Ok(ReportTarget::Sender),
        ReportReceiver::Address { address, port } => match address.parse() {
            Ok(address) => Ok(ReportTarget::Address(address, port)),
            Err(_) => Err(format!("\"{address}\" is not an IPv4 address")),
        },
    }
}

fn number(client_id: i64) -> Result<u32, String> {
    u32::try_from(client_id).map_err(|_| format!("the client id {client_id} must be between 0 and {}", u32::MAX))
}
