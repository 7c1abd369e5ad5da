//! A text page over HTTP, with real sockets on loopback.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fodo_ioc::{Page, PageConfig};
use fodo_net::reactor::Reactor;

const PATIENCE: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

/// A page, and the reactor that serves it.
fn serve(text: impl FnMut() -> String + Send + 'static) -> (Page, Reactor) {
    let reactor = Reactor::start("page").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (content_type, text) = ("text/plain; version=0.0.4", Box::new(text));
    let page = Page::serve(listener, PageConfig { path: "/metrics", content_type, text }, &reactor).unwrap();
    (page, reactor)
}

fn connect(page: &Page) -> TcpStream {
    let stream = TcpStream::connect(page.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Everything received until the other end closes.
fn answer(page: &Page, request: &[u8]) -> String {
    let mut stream = connect(page);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_page_is_served_complete_with_its_type_and_length() {
    let (page, _reactor) = serve(|| "a 1\n".repeat(100_000));

    let answer = answer(&page, REQUEST);

    let (header, text) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(text.len(), 400_000);
    assert_eq!(
        header,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: 400000\r\nConnection: close"
    );
}

#[test]
fn a_head_request_gets_no_body_and_other_requests_are_rejected() {
    let (page, _reactor) = serve(|| "a 1\n".to_owned());

    let begins = |request: &str, status: &str| {
        let answer = answer(&page, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        answer
    };

    assert!(
        begins("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK").ends_with("Content-Length: 4\r\nConnection: close\r\n\r\n")
    );
    begins("GET /secret HTTP/1.1\r\n\r\n", "404 Not Found");
    begins("DELETE /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed");
    begins("nonsense\r\n\r\n", "400 Bad Request");
    begins(&"x".repeat(9 * 1024), "431 Request Header Fields Too Large");
}

#[test]
fn silent_or_non_reading_peers_do_not_block_other_page_requests() {
    let (page, _reactor) = serve(|| "a 1\n".repeat(2_000_000));
    let silent: Vec<TcpStream> = (0..40).map(|_| connect(&page)).collect();
    let mut deaf: Vec<TcpStream> = (0..20).map(|_| connect(&page)).collect();
    // Connections that were already closed to make room may fail here.
    deaf.iter_mut().for_each(|stream| drop(stream.write_all(REQUEST)));

    let answer = answer(&page, REQUEST);

    assert!(answer.ends_with("a 1\n") && answer.len() > 8_000_000);
    drop((silent, deaf));
}

#[test]
fn frequent_page_requests_are_served_from_a_cache() {
    let n_made = Arc::new(AtomicU32::new(0));
    let made = n_made.clone();
    let (page, _reactor) = serve(move || format!("a {}\n", made.fetch_add(1, Ordering::Relaxed)));
    let start = Instant::now();

    (0..200).for_each(|_| assert!(answer(&page, REQUEST).contains("\r\n\r\na ")));

    let n_periods = start.elapsed().as_millis() / 200;
    assert!(u128::from(n_made.load(Ordering::Relaxed)) <= n_periods + 1);
}

#[test]
fn debug_output_of_a_page_contains_its_address_and_that_of_its_configuration_its_path() {
    let (page, _reactor) = serve(String::new);
    let config = PageConfig { path: "/metrics", content_type: "text/plain", text: Box::new(String::new) };

    let (page_shown, config_shown) = (format!("{page:?}"), format!("{config:?}"));

    let address = page.address().to_string();
    assert!(page_shown.contains(&address) && page_shown.contains("RunningService"), "{page_shown}");
    assert!(config_shown.contains("/metrics"), "{config_shown}");
}

#[test]
fn dropping_a_page_server_closes_its_port() {
    let (page, _reactor) = serve(String::new);
    let address = page.address();

    drop(page);

    assert!(TcpStream::connect(address).is_err());
}
