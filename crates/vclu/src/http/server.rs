//! The HTTP server of a CLU: passes each request to the listener of its path, and sends the response.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use fodo_lock::Mutex;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::{Headers, HttpExchange, HttpResponse};
use crate::limit::{
    HTTP_ACCEPT_PAUSE, HTTP_ANSWER_TIME_MAX, HTTP_BODY_BYTES_MAX, HTTP_CONNECTION_TIME_MAX, HTTP_CONNECTIONS_MAX,
    HTTP_HEAD_BYTES_MAX, HTTP_HEAD_TIME_MAX, HTTP_HEADERS_MAX, HTTP_QUEUED_MAX,
};
use crate::log::{LogSeverity, count};
use crate::network::Reporter;

/// Which requests a listener receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RoutePath {
    /// None, until its path is set.
    #[default]
    Unset,
    /// Those that no other listener receives.
    Any,
    /// Those with this path.
    Exact(String),
}

/// Another listener has this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathTaken;

/// The listeners by the order of their creation.
#[derive(Default)]
pub(super) struct Routes {
    listeners: Mutex<BTreeMap<u64, RouteState>>,
}

/// The requests for one listener.
struct RouteState {
    path: RoutePath,
    queue: VecDeque<HttpExchange>,
    waker: Waker,
}

/// A listener of the server; it ends when this is dropped.
pub(crate) struct HttpRoute {
    routes: Arc<Routes>,
    number: u64,
}

impl Routes {
    pub fn add(routes: &Arc<Routes>, waker: Waker) -> HttpRoute {
        let mut listeners = routes.listeners.lock();
        let number = listeners.last_key_value().map_or(0, |(last, _)| last + 1);
        listeners.insert(number, RouteState { path: RoutePath::Unset, queue: VecDeque::new(), waker });
        drop(listeners);
        HttpRoute { routes: Arc::clone(routes), number }
    }

    /// Queues a request for its listener. Returns the status of a request that is refused.
    fn pass(&self, exchange: HttpExchange) -> Result<(), StatusCode> {
        let mut listeners = self.listeners.lock();
        let is_exact =
            |listener: &RouteState| matches!(&listener.path, RoutePath::Exact(path) if *path == exchange.path);
        let number = listeners.iter().find(|(_, listener)| is_exact(listener));
        let number = number.or_else(|| listeners.iter().find(|(_, listener)| listener.path == RoutePath::Any));
        let number = *number.ok_or(StatusCode::NOT_FOUND)?.0;
        let listener = listeners.get_mut(&number).ok_or(StatusCode::NOT_FOUND)?;
        if listener.queue.len() == HTTP_QUEUED_MAX {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        listener.queue.push_back(exchange);
        let waker = listener.waker.clone();
        drop(listeners);
        waker.wake();
        Ok(())
    }
}

impl HttpRoute {
    /// Fails if another listener has this path, and would get all requests. Several may have none for a moment, until their
    /// paths are set ([`HttpRoute::is_shadowed`]).
    pub fn set_path(&self, path: RoutePath) -> Result<(), PathTaken> {
        let mut listeners = self.routes.listeners.lock();
        let is_same = |(number, other): (&u64, &RouteState)| *number != self.number && other.path == path;
        if matches!(path, RoutePath::Exact(_)) && listeners.iter().any(is_same) {
            return Err(PathTaken);
        }
        if let Some(listener) = listeners.get_mut(&self.number) {
            listener.path = path;
        }
        Ok(())
    }

    /// Whether an earlier listener without a path receives all requests that this one without a path would.
    pub fn is_shadowed(&self) -> bool {
        let listeners = self.routes.listeners.lock();
        let is_any = listeners.get(&self.number).is_some_and(|listener| listener.path == RoutePath::Any);
        is_any && listeners.range(..self.number).any(|(_, other)| other.path == RoutePath::Any)
    }

    /// The next request.
    pub fn take(&self) -> Option<HttpExchange> {
        self.routes.listeners.lock().get_mut(&self.number)?.queue.pop_front()
    }
}

impl Drop for HttpRoute {
    fn drop(&mut self) {
        // The requests that wait are answered when they are dropped, without the lock.
        let removed = self.routes.listeners.lock().remove(&self.number);
        drop(removed);
    }
}

/// Accepts connections until the thread ends.
pub(super) async fn serve(listener: TcpListener, routes: Arc<Routes>, reporter: Reporter) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return reporter.write(LogSeverity::Error, format!("the HTTP server cannot start: {error}")),
    };
    let connections = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                reporter.write(LogSeverity::Warning, format!("the HTTP server cannot accept: {error}"));
                sleep(HTTP_ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            count(&reporter.log.counters.http_refused);
            continue;
        };
        let (routes, reporter) = (Arc::clone(&routes), reporter.clone());
        tokio::spawn(async move {
            serve_connection(stream, &routes, &reporter).await;
            drop(permit);
        });
    }
}

/// Serves one request: a connection that stays open would only occupy a place.
async fn serve_connection(stream: TcpStream, routes: &Arc<Routes>, reporter: &Reporter) {
    let service = service_fn(|request| async {
        count(&reporter.log.counters.http_requests);
        Ok::<_, Infallible>(answer(request, routes, reporter).await)
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEAD_TIME_MAX)
        .max_headers(HTTP_HEADERS_MAX)
        .max_buf_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // What a client does wrong concerns only its connection.
    if !matches!(timeout(HTTP_CONNECTION_TIME_MAX, connection).await, Ok(Ok(()))) {
        count(&reporter.log.counters.http_broken);
    }
}

async fn answer(request: Request<Incoming>, routes: &Routes, reporter: &Reporter) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let collected = Limited::new(body, HTTP_BODY_BYTES_MAX).collect().await;
    let body = match collected {
        Ok(body) => body.to_bytes().to_vec(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            count(&reporter.log.counters.http_refused);
            return plain(StatusCode::PAYLOAD_TOO_LARGE);
        }
        Err(_) => return plain(StatusCode::BAD_REQUEST),
    };
    let (reply, replied) = oneshot::channel();
    let exchange = HttpExchange {
        method: parts.method.to_string(),
        path: parts.uri.path().to_string(),
        query: parts.uri.query().unwrap_or_default().to_string(),
        headers: headers_of_message(&parts.headers),
        body,
        arrived: Instant::now(),
        reply,
    };
    if let Err(status) = routes.pass(exchange) {
        count(&reporter.log.counters.http_refused);
        return plain(status);
    }
    // The listener itself ends the time; this is for a CLU that is busy with something else.
    match timeout(2 * HTTP_ANSWER_TIME_MAX, replied).await {
        Ok(Ok(response)) => response_of(response),
        // The object was removed, or the CLU stops.
        Ok(Err(_)) => plain(StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => {
            count(&reporter.log.counters.http_late);
            plain(StatusCode::GATEWAY_TIMEOUT)
        }
    }
}

/// Status, headers and body have been checked by the object.
fn response_of(response: HttpResponse) -> Response<Full<Bytes>> {
    let mut built = Response::builder().status(response.status);
    for (name, value) in &response.headers {
        built = built.header(name, value);
    }
    built.body(Full::new(Bytes::from(response.body))).unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))
}

/// A response whose body is the name of its status.
fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// Headers that are not UTF-8 are converted lossily.
pub(super) fn headers_of_message(headers: &HeaderMap) -> Headers {
    let pair = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.as_str().to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    headers.iter().map(pair).collect()
}
