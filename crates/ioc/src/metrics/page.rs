//! One text page over HTTP/1.1, for programs that poll it.
//!
//! It is our own and not a library's: it serves one path, keeps no connection open, reads no body and needs no thread.
//! Any library would need more configuration to leave out its features. Records and Channel Access clients are not
//! affected: a slow or hostile peer only uses one of a few connections here, and the oldest connection is closed to
//! make room.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use fodo_data::Now;
use fodo_lock::Rank;
use fodo_net::reactor::{NextCall, Reactor, Readiness, Registration, WriteOutcome, flush, read};

use crate::limit;
use crate::service::{RunningService, Service};

/// A page that is served until this is dropped.
///
/// ```
/// use std::net::TcpListener;
///
/// use fodo_ioc::{Page, PageConfig};
/// use fodo_net::reactor::Reactor;
///
/// # fn main() -> std::io::Result<()> {
/// let reactor = Reactor::start("page")?;
/// let text = Box::new(|| "beam_current_amperes 0.4\n".to_owned());
/// let config = PageConfig { path: "/metrics", content_type: "text/plain", text };
/// let page = Page::serve(TcpListener::bind("127.0.0.1:0")?, config, &reactor)?;
/// println!("http://{}/metrics", page.address());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    _service: RunningService<PageServer>,
}

/// The page to serve; see [`Page`].
pub struct PageConfig {
    /// The path of its URL: `/metrics`.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Generates the current page. Called on the thread of the reactor, at most a few times a second regardless of the
    /// number of requests.
    pub text: Box<dyn FnMut() -> String + Send>,
}

impl std::fmt::Debug for PageConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Page {
    /// Starts to serve on the thread of a reactor; `text` may delay the other objects of that reactor. Fails if the
    /// system refuses to watch the listener.
    pub fn serve(listener: TcpListener, config: PageConfig, reactor: &Reactor) -> io::Result<Page> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let create = |registration| PageServer::new(listener, config, registration);
        Ok(Page { address, _service: RunningService::start(reactor, Rank::MetricsPage, create)? })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The open connections, and the page that they are sent.
struct PageServer {
    listener: TcpListener,
    config: PageConfig,
    registration: Registration,
    /// The page, and when it was generated.
    made: Option<(Instant, String)>,
    /// The oldest first.
    open: VecDeque<PageConnection>,
}

/// One connection.
struct PageConnection {
    stream: TcpStream,
    since: Instant,
    phase: ConnectionPhase,
}

/// The state of a connection; the comment of each says what it waits for.
enum ConnectionPhase {
    /// For the end of the request's header. Holds the bytes received so far.
    Receiving(Vec<u8>),
    /// For the peer to read the rest of this reply.
    Sending(VecDeque<u8>),
    /// For the peer to close the connection. If it were closed here while the peer still sends, the peer could lose the
    /// end of the page.
    Done,
}

impl Service for PageServer {
    fn watch(&self) -> io::Result<()> {
        self.registration.add_socket(&self.listener, Readiness::Readable)
    }

    fn turn(&mut self, now: Now) -> NextCall {
        let now = now.monotonic;
        let has_more = self.accept(now);
        let PageServer { open, config, made, .. } = self;
        open.retain_mut(|connection| connection.turn(|request| answer(request, config, made, now)).is_ok());
        self.close_expired(now);
        match (has_more, self.open.front()) {
            (true, _) => NextCall::Soon,
            (false, Some(oldest)) => NextCall::At(oldest.since + limit::PAGE_CONNECTION_TIME),
            (false, None) => NextCall::OnReady,
        }
    }
}

impl PageServer {
    fn new(listener: TcpListener, config: PageConfig, registration: Registration) -> PageServer {
        PageServer { listener, config, registration, made: None, open: VecDeque::new() }
    }

    /// Closes connections that have lasted too long, whatever their state.
    fn close_expired(&mut self, now: Instant) {
        while self.open.front().is_some_and(|connection| connection.since + limit::PAGE_CONNECTION_TIME <= now) {
            self.open.pop_front();
        }
    }

    /// Accepts waiting connections, and closes the oldest if there are too many. Returns true if there may be more.
    fn accept(&mut self, now: Instant) -> bool {
        for _ in 0..limit::PAGE_ACCEPTS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // No connection waits, or no descriptors are left; then waiting ones are accepted with the next one.
                Err(_) => return false,
            };
            let is_added = stream.set_nonblocking(true).is_ok()
                && self.registration.add_socket(&stream, Readiness::ReadableOrWritable).is_ok();
            if is_added {
                let phase = ConnectionPhase::Receiving(Vec::new());
                self.open.push_back(PageConnection { stream, since: now, phase });
            }
            if self.open.len() > limit::PAGE_CONNECTIONS {
                self.open.pop_front();
            }
        }
        true
    }
}

impl PageConnection {
    /// Continues as far as possible without blocking. Fails if the connection has ended.
    fn turn(&mut self, mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            match &mut self.phase {
                ConnectionPhase::Receiving(request) => {
                    let Some(n) = read(&self.stream, &mut buffer)? else { return Ok(()) };
                    request.extend(buffer.iter().take(n));
                    if let Some(answer) = answer(request) {
                        self.phase = ConnectionPhase::Sending(answer.into());
                    }
                }
                ConnectionPhase::Sending(bytes) => {
                    if flush(&self.stream, bytes)? != WriteOutcome::All {
                        return Ok(());
                    }
                    self.stream.shutdown(Shutdown::Write)?;
                    self.phase = ConnectionPhase::Done;
                }
                ConnectionPhase::Done => {
                    return match read(&self.stream, &mut buffer)? {
                        None => Ok(()),
                        // Whatever else it sends is not a reason to stay open.
                        Some(_) => Err(io::ErrorKind::InvalidData.into()),
                    };
                }
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
    let requested_path = target.split('?').next().unwrap_or_default();
    Some(if requested_path == path { ParsedRequest::Page } else { ParsedRequest::NotFound })
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::service::ServiceHandler;

    #[test]
    fn a_page_request_matches_by_path_and_ignores_the_query() {
        let parsed = |request: &str| parsed(request.as_bytes(), "/metrics");

        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("GET /metrics?name=x HTTP/1.0\r\n\r\n"), Some(ParsedRequest::Page));
        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost: x\r\n"), None, "its end has not come");
    }

    #[test]
    fn a_page_connection_closes_on_expiry_or_when_there_are_too_many() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = PageConfig { path: "/", content_type: "", text: Box::new(String::new) };
        listener.set_nonblocking(true).unwrap();
        let reactor = Reactor::start("page").unwrap();
        let mut server = PageServer::new(listener, config, reactor.add(Weak::<ServiceHandler<PageServer>>::new()));
        let start = Instant::now();
        let silent: Vec<_> = (0..=limit::PAGE_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();

        // It accepts a limited number each time.
        assert!(server.accept(start) && !server.accept(start));
        let open = server.open.iter().map(|connection| connection.stream.peer_addr().unwrap());
        let expected = silent[1..].iter().map(|stream| stream.local_addr().unwrap());
        assert!(open.eq(expected), "the oldest has made room");

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
