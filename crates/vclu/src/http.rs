//! HTTP: the requests of HttpRequest objects, and the server of HttpListener objects, on a thread of their own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use fodo_lock::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;

mod client;
mod content;
mod server;

pub(crate) use client::{HttpCall, HttpReply};
pub(crate) use content::{BodyKind, decode_query, encode_query, header_table, headers_of};
pub(crate) use server::{HttpRoute, PathTaken, RoutePath};

use server::Routes;

use crate::limit::HTTP_REQUESTS_MAX;
use crate::network::{CertificateFolder, NetworkThread, Reporter};

/// Headers with their names in lower case, in the order of the message.
pub(crate) type Headers = Vec<(String, String)>;

/// A request that an HttpListener answers.
pub(crate) struct HttpExchange {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    pub arrived: Instant,
    /// Receives the response. The client is gone if it is closed.
    pub reply: oneshot::Sender<HttpResponse>,
}

/// The response of an HttpListener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// The HTTP client and server of a CLU.
pub(crate) struct HttpService {
    listen: SocketAddr,
    certificates: CertificateFolder,
    reporter: Reporter,
    state: Mutex<ServiceState>,
    routes: Arc<Routes>,
    requests: Arc<Semaphore>,
    is_closing: Arc<Notify>,
}

#[derive(Default)]
struct ServiceState {
    thread: Option<Arc<NetworkThread>>,
    address: Option<SocketAddr>,
}

/// The result of a request: written once by the thread of HTTP.
pub(crate) type HttpResult = Arc<Mutex<Option<Result<HttpReply, String>>>>;

impl HttpService {
    pub fn new(listen: SocketAddr, certificates: CertificateFolder, reporter: Reporter) -> Arc<HttpService> {
        Arc::new(HttpService {
            listen,
            certificates,
            reporter,
            state: Mutex::default(),
            routes: Arc::default(),
            requests: Arc::new(Semaphore::new(HTTP_REQUESTS_MAX)),
            is_closing: Arc::new(Notify::new()),
        })
    }

    /// The address of the server, once an HttpListener was created.
    pub fn address(&self) -> Option<SocketAddr> {
        self.state.lock().address
    }

    fn thread(&self) -> io::Result<Arc<NetworkThread>> {
        let mut state = self.state.lock();
        if let Some(thread) = &state.thread {
            return Ok(Arc::clone(thread));
        }
        let is_closing = Arc::clone(&self.is_closing);
        let thread = NetworkThread::start("fodo-vclu-http", async move { is_closing.notified().await })?;
        let thread = Arc::new(thread);
        state.thread = Some(Arc::clone(&thread));
        Ok(thread)
    }

    /// Starts a request. The waker is called when the result is there.
    pub fn send(&self, call: HttpCall, waker: Waker) -> io::Result<(HttpResult, AbortHandle)> {
        let thread = self.thread()?;
        let result = HttpResult::default();
        let of_task = Arc::clone(&result);
        let (certificates, requests) = (self.certificates.clone(), Arc::clone(&self.requests));
        let task = thread.handle().spawn(async move {
            let reply = client::request(call, certificates, requests).await;
            *of_task.lock() = Some(reply);
            waker.wake();
        });
        Ok((result, task.abort_handle()))
    }

    /// Adds a route, and starts the server with the first one. The waker is called when a request has arrived.
    pub fn route(&self, waker: Waker) -> io::Result<HttpRoute> {
        if self.address().is_none() {
            let listener = TcpListener::bind(self.listen)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let thread = self.thread()?;
            let (routes, reporter) = (Arc::clone(&self.routes), self.reporter.clone());
            thread.handle().spawn(server::serve(listener, routes, reporter));
            self.state.lock().address = Some(address);
        }
        Ok(Routes::add(&self.routes, waker))
    }

    /// Ends all connections and the thread.
    pub fn close(&self) {
        self.is_closing.notify_one();
        let thread = self.state.lock().thread.take();
        drop(thread);
    }
}
