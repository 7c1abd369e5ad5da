//! One text page over HTTP/1.1, for programs that poll it.
//!
//! It is our own and not a library's: it serves one path, keeps no connection open, reads no body and uses one thread.
//! Any library would need more configuration to leave out its features. Records and Channel Access clients are not
//! affected: a slow or hostile peer only uses one of a few connections here, and the oldest connection is closed to
//! make room.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::limit;

/// A page that is served until this is dropped.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// The page to serve.
pub struct PageConfig {
    /// The path of its URL: `/metrics`.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Generates the current page. Called on the page's own thread, at most a few times a second regardless of the
    /// number of requests.
    pub text: Box<dyn FnMut() -> String + Send>,
}

impl std::fmt::Debug for PageConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);

impl Page {
    /// Starts to serve on a separate thread. Fails if the system provides no thread or poller.
    pub fn serve(listener: std::net::TcpListener, config: PageConfig) -> io::Result<Page> {
        let server = PageServer::new(listener, config)?;
        let address = server.listener.local_addr()?;
        let waker = Waker::new(server.poll.registry(), STOP)?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = is_stopped.clone();
        let thread = std::thread::Builder::new().name("fodo-page".into()).spawn(move || server.run(&stopped))?;
        Ok(Page { address, is_stopped, waker, thread: Some(thread) })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // If the thread panicked, the panic hook has already reported it on stderr.
            let _ = thread.join();
        }
    }
}

/// The open connections, and the page that they are sent.
struct PageServer {
    poll: Poll,
    listener: TcpListener,
    config: PageConfig,
    /// The page, and when it was generated.
    made: Option<(Instant, String)>,
    /// The oldest first.
    open: VecDeque<PageConnection>,
    number: usize,
}

/// One connection.
struct PageConnection {
    number: usize,
    stream: TcpStream,
    since: Instant,
    state: ConnectionPhase,
}

/// The state of a connection; the comment of each says what it waits for.
enum ConnectionPhase {
    /// For the end of the request's header. Holds the bytes received so far.
    Receiving(Vec<u8>),
    /// For the peer to read this reply. The number counts the bytes sent.
    Sending(Vec<u8>, usize),
    /// For the peer to close the connection. If it were closed here while the peer still sends, the peer could lose the
    /// end of the page.
    Done,
}

/// Whether a connection stays open after its turn.
#[derive(PartialEq, Eq)]
enum ConnectionState {
    Open,
    Closed,
}

impl PageServer {
    fn new(listener: std::net::TcpListener, config: PageConfig) -> io::Result<PageServer> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(PageServer { poll, listener, config, made: None, open: VecDeque::new(), number: 0 })
    }

    fn run(mut self, is_stopped: &AtomicBool) {
        let mut events = Events::with_capacity(limit::PAGE_CONNECTIONS + 2);
        while !is_stopped.load(Ordering::Acquire) {
            let oldest = self.open.front().map(|connection| connection.since + limit::PAGE_CONNECTION_TIME);
            let timeout = oldest.map(|due| due.saturating_duration_since(Instant::now()));
            // An error such as EINTR does not matter: whatever is due is handled below.
            let _ = self.poll.poll(&mut events, timeout);
            let now = Instant::now();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(now),
                    STOP => {}
                    Token(number) => self.serve(number, now),
                }
            }
            self.close_expired(now);
        }
    }

    /// Closes connections that have lasted too long, whatever their state.
    fn close_expired(&mut self, now: Instant) {
        while self.open.front().is_some_and(|connection| connection.since + limit::PAGE_CONNECTION_TIME <= now) {
            self.open.pop_front();
        }
    }

    /// Accepts all waiting connections; if there are too many, closes the oldest.
    fn accept(&mut self, now: Instant) {
        for _ in 0..limit::PAGE_ACCEPTS {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // No connection waits, or no descriptors are left; then waiting ones are accepted with the next one.
                Err(_) => return,
            };
            let number = self.number;
            self.number = (self.number + 1) % STOP.0;
            if self
                .poll
                .registry()
                .register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)
                .is_ok()
            {
                self.open.push_back(PageConnection {
                    number,
                    stream,
                    since: now,
                    state: ConnectionPhase::Receiving(Vec::new()),
                });
            }
            if self.open.len() > limit::PAGE_CONNECTIONS {
                self.open.pop_front();
            }
        }
        // The poller does not report connections that still wait; registering again makes it report them.
        let registry = self.poll.registry();
        // If it fails they wait for the next connection.
        let _ = registry.reregister(&mut self.listener, LISTENER, Interest::READABLE);
    }

    fn serve(&mut self, number: usize, now: Instant) {
        let Some(index) = self.open.iter().position(|connection| connection.number == number) else { return };
        let (config, made) = (&mut self.config, &mut self.made);
        let Some(connection) = self.open.get_mut(index) else { return };
        if connection.turn(|request| answer(request, config, made, now)) == ConnectionState::Closed {
            self.open.remove(index);
        }
    }
}

impl PageConnection {
    /// Continues as far as possible without blocking.
    fn turn(&mut self, mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> ConnectionState {
        loop {
            match &mut self.state {
                ConnectionPhase::Receiving(request) => {
                    let mut buffer = [0; 1024];
                    match self.stream.read(&mut buffer) {
                        Ok(0) => return ConnectionState::Closed,
                        Ok(n) => request.extend(buffer.iter().take(n)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ConnectionState::Open,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(_) => return ConnectionState::Closed,
                    }
                    if let Some(answer) = answer(request) {
                        self.state = ConnectionPhase::Sending(answer, 0);
                    }
                }
                ConnectionPhase::Sending(bytes, n_sent) => {
                    match self.stream.write(bytes.get(*n_sent..).unwrap_or_default()) {
                        Ok(n) => {
                            *n_sent += n;
                            if *n_sent >= bytes.len() {
                                if self.stream.shutdown(std::net::Shutdown::Write).is_err() {
                                    return ConnectionState::Closed;
                                }
                                self.state = ConnectionPhase::Done;
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ConnectionState::Open,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => return ConnectionState::Closed,
                    }
                }
                ConnectionPhase::Done => match self.stream.read(&mut [0; 1024]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ConnectionState::Open,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Whatever else it sends is not a reason to stay open.
                    _ => return ConnectionState::Closed,
                },
            }
        }
    }
}

/// The reply to a request of which these bytes were received; `None` while it is incomplete.
fn answer(
    request: &[u8],
    config: &mut PageConfig,
    made: &mut Option<(Instant, String)>,
    now: Instant,
) -> Option<Vec<u8>> {
    let plain = "text/plain; charset=utf-8";
    let is_head = request.starts_with(b"HEAD ");
    let (status, content_type, text) = match parsed(request, config.path)? {
        ParsedRequest::Page => {
            if made.as_ref().is_none_or(|(at, _)| *at + limit::PAGE_KEPT <= now) {
                *made = Some((now, (config.text)()));
            }
            ("200 OK", config.content_type, made.as_ref().map_or("", |(_, text)| text).to_owned())
        }
        ParsedRequest::NotFound => ("404 Not Found", plain, format!("not found; the page is {}\n", config.path)),
        ParsedRequest::MethodNotAllowed => ("405 Method Not Allowed\r\nAllow: GET, HEAD", plain, String::new()),
        ParsedRequest::TooLong => ("431 Request Header Fields Too Large", plain, String::new()),
        ParsedRequest::Invalid => ("400 Bad Request", plain, String::new()),
    };
    let header = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    Some((if is_head { header } else { header + &text }).into_bytes())
}

/// The result of parsing a request.
#[derive(Debug, PartialEq, Eq)]
enum ParsedRequest {
    Page,
    /// A path that does not exist.
    NotFound,
    /// A method other than GET or HEAD.
    MethodNotAllowed,
    TooLong,
    Invalid,
}

/// Parses a request; `None` while its header is incomplete.
fn parsed(request: &[u8], path: &str) -> Option<ParsedRequest> {
    let is_whole =
        request.windows(4).any(|bytes| bytes == b"\r\n\r\n") || request.windows(2).any(|bytes| bytes == b"\n\n");
    if !is_whole {
        return (request.len() > limit::PAGE_REQUEST_BYTES).then_some(ParsedRequest::TooLong);
    }
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let [method, target, version] = words[..] else { return Some(ParsedRequest::Invalid) };
    if !version.starts_with("HTTP/1.") {
        return Some(ParsedRequest::Invalid);
    }
    if !matches!(method, "GET" | "HEAD") {
        return Some(ParsedRequest::MethodNotAllowed);
    }
    let asked_path = target.split('?').next().unwrap_or_default();
    Some(if asked_path == path { ParsedRequest::Page } else { ParsedRequest::NotFound })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_request_matches_by_path_and_ignores_the_query() {
        let parsed = |request: &str| parsed(request.as_bytes(), "/metrics");

        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("GET /metrics?name=x HTTP/1.0\r\n\r\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost: x\r\n"), None, "its end has not come");
    }

    #[test]
    fn a_page_connection_closes_on_expiry_or_when_there_are_too_many() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = Box::new(String::new);
        let mut server = PageServer::new(listener, PageConfig { path: "/", content_type: "", text }).unwrap();
        let start = Instant::now();
        let _silent: Vec<_> =
            (0..=limit::PAGE_CONNECTIONS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();

        // It accepts a limited number each time.
        (0..2).for_each(|_| server.accept(start));
        let numbers: Vec<usize> = server.open.iter().map(|connection| connection.number).collect();
        assert_eq!(numbers, Vec::from_iter(1..=limit::PAGE_CONNECTIONS), "the oldest has made room");

        server.close_expired(start + limit::PAGE_CONNECTION_TIME);
        assert!(server.open.is_empty());
    }

    #[test]
    fn invalid_page_requests_are_classified_by_their_error() {
        let parsed = |request: &str| parsed(request.as_bytes(), "/metrics");

        assert_eq!(parsed("GET / HTTP/1.1\r\n\r\n"), Some(ParsedRequest::NotFound));
        assert_eq!(parsed("POST /metrics HTTP/1.1\r\n\r\n"), Some(ParsedRequest::MethodNotAllowed));
        assert_eq!(parsed("\r\n\r\n"), Some(ParsedRequest::Invalid));
        assert_eq!(parsed("GET /metrics SPDY/9\r\n\r\n"), Some(ParsedRequest::Invalid));
        assert_eq!(parsed(&"x".repeat(limit::PAGE_REQUEST_BYTES + 1)), Some(ParsedRequest::TooLong));
    }

    /// The reply to a request at this time, by a page that counts how often it was generated.
    fn answered(request: &str, made: &mut Option<(Instant, String)>, n_made: &mut usize, now: Instant) -> String {
        *n_made += usize::from(made.as_ref().is_none_or(|(at, _)| *at + limit::PAGE_KEPT <= now));
        let text = format!("page {n_made}\n");
        let mut config = PageConfig { path: "/metrics", content_type: "text/x", text: Box::new(move || text.clone()) };
        String::from_utf8(answer(request.as_bytes(), &mut config, made, now).unwrap()).unwrap()
    }

    #[test]
    fn a_page_reply_has_status_type_and_length_and_head_has_no_body() {
        let now = Instant::now();
        let end = "Connection: close\r\n\r\n";
        let plain = "Content-Type: text/plain; charset=utf-8";
        let long = "x".repeat(limit::PAGE_REQUEST_BYTES + 1);
        for (request, expected) in [
            (
                "GET /metrics HTTP/1.1\r\n\r\n",
                format!("200 OK\r\nContent-Type: text/x\r\nContent-Length: 7\r\n{end}page 1\n"),
            ),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", format!("200 OK\r\nContent-Type: text/x\r\nContent-Length: 7\r\n{end}")),
            (
                "GET /other HTTP/1.1\r\n\r\n",
                format!("404 Not Found\r\n{plain}\r\nContent-Length: 32\r\n{end}not found; the page is /metrics\n"),
            ),
            (
                "PUT /metrics HTTP/1.1\r\n\r\n",
                format!("405 Method Not Allowed\r\nAllow: GET, HEAD\r\n{plain}\r\nContent-Length: 0\r\n{end}"),
            ),
            (&*long, format!("431 Request Header Fields Too Large\r\n{plain}\r\nContent-Length: 0\r\n{end}")),
            ("metrics\r\n\r\n", format!("400 Bad Request\r\n{plain}\r\nContent-Length: 0\r\n{end}")),
        ] {
            assert_eq!(answered(request, &mut None, &mut 0, now), format!("HTTP/1.1 {expected}"));
        }
    }

    #[test]
    fn a_page_is_cached_briefly_and_then_generated_again() {
        let (mut made, mut n_made, start) = (None, 0, Instant::now());
        let mut page = |after| {
            let answer = answered("GET /metrics HTTP/1.1\r\n\r\n", &mut made, &mut n_made, start + after);
            answer.lines().last().unwrap_or_default().to_owned()
        };

        assert_eq!(page(std::time::Duration::ZERO), "page 1");
        assert_eq!(page(limit::PAGE_KEPT - std::time::Duration::from_nanos(1)), "page 1");
        assert_eq!(page(limit::PAGE_KEPT), "page 2");
        assert_eq!(page(limit::PAGE_KEPT * 3 / 2), "page 2");
    }

    #[test]
    fn a_page_request_may_reach_the_size_limit_and_use_bare_newlines() {
        let parsed = |request: &str| parsed(request.as_bytes(), "/metrics");

        assert_eq!(parsed(&"x".repeat(limit::PAGE_REQUEST_BYTES)), None);
        assert_eq!(parsed("GET /metrics HTTP/1.1\n\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("HEAD /metrics HTTP/1.1\n\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("GET /metrics\r\n\r\n"), Some(ParsedRequest::Invalid));
        assert_eq!(parsed("GET /metricsandmore HTTP/1.1\r\n\r\n"), Some(ParsedRequest::NotFound));
    }
}
