//! The client's process of study 004. It exchanges one JSON object per line with the laboratory.
//!
//! | request | answer |
//! |---|---|
//! | `{"await_answer":{"patience_ms":10000}}` | `{"answering":{}}`, once the server answers |
//! | `{"closed":{"n_threads":64,"n_in_flight":1,"warm_up_ms":100,"duration_ms":6000}}` | `{"requests":{..}}` |
//! | `{"open":{"rate_hz":1000.0,"duration_ms":1000}}` | `{"requests":{..}}` |
//! | `{"subscribe":{"n_subscriptions":1000,"n_changes":5,"period_ms":1000}}` | `{"subscribed":{..}}` |

use std::io::{BufRead, Write, stdin, stdout};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use fodo_clu::limit::{IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX};
use serde::{Deserialize, Serialize};

use super::closed::{ClosedLoop, RequestLoop};
use super::connection;
use super::open_loop::OpenLoop;
use super::script;
use super::sockets::{CipherWork, SocketClient, SocketTask};
use super::subscribe::{SubscriptionLoad, SubscriptionSums};
use super::tally::{RequestAccount, RequestTally};
use super::wire::ServedReply;
use crate::load::usage::Usage;

/// The line that the process prints when it is ready for requests.
pub const READY: &str = "clu client ready";

/// How long a request waits for its answer while a server starts.
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);

/// Arguments of the process.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DriveCluArguments {
    /// Address of the server.
    #[arg(long)]
    server: SocketAddrV4,
    /// The client.
    #[arg(long)]
    client: RequestClient,
    /// What the server returns.
    #[arg(long)]
    reply: ServedReply,
    /// Whether the server may reply from another port.
    #[arg(long)]
    from_any_port: bool,
    /// How long a request waits for its reply.
    #[arg(long)]
    timeout_ms: u64,
}

/// The clients of study 004.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RequestClient {
    /// A raw socket with prepared requests.
    Raw,
    /// A raw socket that encrypts its requests and decrypts its replies.
    Aes,
    /// A raw socket with prepared requests, which measures the server.
    Generator,
    /// Fodo's client.
    Fodo,
}

impl RequestClient {
    /// The name in tables, files and arguments.
    pub fn text(self) -> &'static str {
        match self {
            RequestClient::Raw => "raw",
            RequestClient::Aes => "aes",
            RequestClient::Generator => "generator",
            RequestClient::Fodo => "fodo",
        }
    }
}

/// A request of the laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CluWorkRequest {
    /// Wait until the server answers.
    AwaitAnswer {
        /// Maximum time to wait.
        patience_ms: u64,
    },
    /// Repeat requests in a closed loop.
    Closed {
        /// Threads, each with a client of its own.
        n_threads: usize,
        /// Requests in flight of each client.
        n_in_flight: usize,
        /// Time before the requests that count.
        warm_up_ms: u64,
        /// Time of the requests that count.
        duration_ms: u64,
    },
    /// Start requests on schedule.
    Open {
        /// Requests per second.
        rate_hz: f64,
        /// Time for which requests are started.
        duration_ms: u64,
    },
    /// Subscribe to features that change on schedule.
    Subscribe {
        /// Number of subscriptions.
        n_subscriptions: usize,
        /// How often all features change.
        n_changes: u64,
        /// Time between two changes.
        period_ms: u64,
    },
}

/// An answer of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CluWorkReply {
    /// The server answers.
    Answering {},
    /// The requests of a loop.
    Requests(RequestSums),
    /// The updates of the subscriptions.
    Subscribed(SubscriptionSums),
    /// The request failed.
    Failed {
        /// The reason.
        why: String,
    },
}

/// The requests of a loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestSums {
    /// How each of them ended.
    pub account: RequestAccount,
    /// Those that were answered before the time was over.
    pub in_time: u64,
    /// Requests of the warm-up, which `account` does not contain.
    pub n_warm_up: u64,
    /// Pairs of nanoseconds and count.
    pub latencies: Vec<(u64, u64)>,
    /// What the process used for all requests, with those of the warm-up.
    pub usage: Usage,
    /// Maximum delay of a request after its scheduled time.
    pub late_max_ns: u64,
}

/// Answers requests until the end of the input.
pub fn drive(arguments: DriveCluArguments) -> std::io::Result<()> {
    println!("{READY}");
    for line in stdin().lock().lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(request) => arguments.answer(&request).unwrap_or_else(|why| failed(&why)),
            Err(why) => CluWorkReply::Failed { why: format!("invalid request: {why}") },
        };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn failed(why: &std::io::Error) -> CluWorkReply {
    CluWorkReply::Failed { why: why.to_string() }
}

impl DriveCluArguments {
    fn answer(self, request: &CluWorkRequest) -> std::io::Result<CluWorkReply> {
        match *request {
            CluWorkRequest::AwaitAnswer { patience_ms } => self.await_answer(Duration::from_millis(patience_ms)),
            CluWorkRequest::Closed { n_threads, n_in_flight, warm_up_ms, duration_ms } => {
                let (warm_up, duration) = (Duration::from_millis(warm_up_ms), Duration::from_millis(duration_ms));
                self.closed(ClosedLoop { n_threads, n_in_flight, warm_up, duration })
            }
            CluWorkRequest::Open { rate_hz, duration_ms } => {
                let connection = connection::open(self.server, IN_FLIGHT_MAX, self.timeout())?;
                let open_loop = OpenLoop { rate_hz, duration: Duration::from_millis(duration_ms) };
                let done = open_loop.run(&connection)?;
                connection.verify(&done.tally.account)?;
                let mut sums = sums(&done.tally, 0, done.usage);
                sums.late_max_ns = done.late_max.as_nanos() as u64;
                Ok(CluWorkReply::Requests(sums))
            }
            CluWorkRequest::Subscribe { n_subscriptions, n_changes, period_ms } => {
                let connection = connection::open(self.server, IN_FLIGHT_DEFAULT, self.timeout())?;
                let load = SubscriptionLoad { n_subscriptions, n_changes, period: Duration::from_millis(period_ms) };
                load.run(&connection, &script::objects(), script::change).map(CluWorkReply::Subscribed)
            }
        }
    }

    fn timeout(self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    fn closed(self, size: ClosedLoop) -> std::io::Result<CluWorkReply> {
        let done = match self.client {
            RequestClient::Fodo => size.run(|| connection::open(self.server, size.n_in_flight, self.timeout()))?,
            _ => size.run(|| SocketClient::open(self.socket_task(), size.n_in_flight))?,
        };
        Ok(CluWorkReply::Requests(sums(&done.tally, done.n_warm_up, done.usage)))
    }

    fn socket_task(self) -> SocketTask {
        let work = match self.client {
            RequestClient::Aes => CipherWork::Encrypting,
            RequestClient::Raw | RequestClient::Generator | RequestClient::Fodo => CipherWork::Prepared,
        };
        let DriveCluArguments { server, from_any_port, reply: kind, .. } = self;
        SocketTask { server, from_any_port, work, kind, timeout: self.timeout() }
    }

    /// Sends one request after another. A virtual machine may need seconds until its server receives the first.
    fn await_answer(self, patience: Duration) -> std::io::Result<CluWorkReply> {
        let deadline = Instant::now() + patience;
        let task = SocketTask { timeout: PROBE_TIMEOUT, ..self.socket_task() };
        let mut tally = RequestTally::default();
        while tally.account.answered == 0 {
            // A new socket has a request for each probe.
            SocketClient::open(task, 1)?.run(1, Instant::now() + Duration::from_millis(1), &mut tally)?;
            let RequestAccount { wrong, refused, .. } = tally.account;
            if wrong + refused > 0 {
                return Err(std::io::Error::other("the CLU does not answer checkAlive() with its serial number"));
            }
            if Instant::now() > deadline {
                return Err(std::io::Error::other(format!("no answer within {} s", patience.as_secs_f64())));
            }
        }
        Ok(CluWorkReply::Answering {})
    }
}

fn sums(tally: &RequestTally, n_warm_up: u64, usage: Usage) -> RequestSums {
    let latencies = tally.latencies.counts();
    RequestSums { account: tally.account, in_time: tally.in_time, n_warm_up, latencies, usage, late_max_ns: 0 }
}
