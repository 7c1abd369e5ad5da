//! A way that is longer than it is: what comes is passed on later, in order and unchanged.
//!
//! Datagrams and circuits of one port go to the same port of the server. The kernel that has no queue with a delay
//! is common, and this one works without any right.

use std::collections::HashMap;
use std::io::{Read, Write, stdout};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::limit::{DELAYED_CLIENTS_MAX, DELAYED_PIECE_BYTES, DELAYED_PIECES_MAX, DELAYED_SEARCHER_MAX};

/// What it says when it listens.
pub const READY: &str = "delay listens";

/// The sockets of searching clients' searches, by their addresses.
type Searchers = Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>;

/// Listens `at` an address, passes everything on `to` the server and what it answers back, each `one_way` later, for
/// ever.
pub fn run(at: SocketAddr, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    let (listener, socket) = (TcpListener::bind(at)?, UdpSocket::bind(at)?);
    println!("{READY}");
    stdout().flush()?;
    thread::spawn(move || {
        // Without it searches are not answered, which their clients tell.
        let _ = pass_datagrams(&socket, to, one_way);
    });
    pass_circuits(&listener, to, one_way)
}

/// Keeps each piece until its moment, then has `pass` take it, one after the other; ends when `pass` fails or when
/// nothing is put in any more.
fn line<T: Send + 'static>(
    mut pass: impl FnMut(T) -> std::io::Result<()> + Send + 'static,
) -> SyncSender<(Instant, T)> {
    let (sender, pieces) = sync_channel::<(Instant, T)>(DELAYED_PIECES_MAX);
    thread::spawn(move || {
        be_punctual();
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if pass(piece).is_err() {
                return;
            }
        }
    });
    sender
}

/// The kernel adds 50 microseconds to every sleep, to wake several sleepers at once, save who asks for less.
#[cfg(target_os = "linux")]
fn be_punctual() {
    // Who may not is later by these.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Only known on Linux.
#[cfg(not(target_os = "linux"))]
fn be_punctual() {}

fn pass_datagrams(socket: &UdpSocket, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    let searchers = Searchers::default();
    let there = line(|(onwards, bytes): (Arc<UdpSocket>, Vec<u8>)| {
        // Of a server that does not listen the kernel tells with the next datagram, which is then sent again.
        let _ = onwards.send(&bytes).or_else(|_| onwards.send(&bytes));
        Ok(())
    });
    let back_socket = socket.try_clone()?;
    let back = line(move |(client, bytes): (SocketAddr, Vec<u8>)| {
        // A client that has gone misses nothing.
        let _ = back_socket.send_to(&bytes, client);
        Ok(())
    });
    let mut datagram = vec![0; DELAYED_PIECE_BYTES];
    loop {
        let (n, client) = socket.recv_from(&mut datagram)?;
        let due = Instant::now() + one_way;
        let Some(onwards) = socket_of(client, to, &searchers, &back, one_way)? else { continue };
        let bytes = datagram.get(..n).unwrap_or_default().to_vec();
        if there.send((due, (onwards, bytes))).is_err() {
            return Ok(());
        }
    }
}

/// The socket from which a client's datagrams go on, so that the answers to them are known to be his; `None` when there
/// are too many, and he has to search again.
fn socket_of(
    client: SocketAddr,
    to: SocketAddr,
    searchers: &Searchers,
    back: &SyncSender<(Instant, (SocketAddr, Vec<u8>))>,
    one_way: Duration,
) -> std::io::Result<Option<Arc<UdpSocket>>> {
    let mut known = searchers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(onwards) = known.get(&client) {
        return Ok(Some(Arc::clone(onwards)));
    }
    if known.len() >= DELAYED_CLIENTS_MAX {
        return Ok(None);
    }
    let onwards = Arc::new(UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?);
    onwards.connect(to)?;
    onwards.set_read_timeout(Some(DELAYED_SEARCHER_MAX))?;
    known.insert(client, Arc::clone(&onwards));
    let (answered, searchers, back) = (Arc::clone(&onwards), Arc::clone(searchers), back.clone());
    thread::spawn(move || {
        let mut datagram = vec![0; DELAYED_PIECE_BYTES];
        while let Ok(n) = answered.recv(&mut datagram) {
            let bytes = datagram.get(..n).unwrap_or_default().to_vec();
            if back.send((Instant::now() + one_way, (client, bytes))).is_err() {
                break;
            }
        }
        searchers.lock().unwrap_or_else(PoisonError::into_inner).remove(&client);
    });
    Ok(Some(onwards))
}

fn pass_circuits(listener: &TcpListener, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    let n_open = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let (client, opened) = (client?, Instant::now());
        if n_open.load(Ordering::Relaxed) >= DELAYED_CLIENTS_MAX {
            continue;
        }
        n_open.fetch_add(1, Ordering::Relaxed);
        let n_open = Arc::clone(&n_open);
        thread::spawn(move || {
            // A circuit that ends is told by its end, which both see.
            let _ = pass_circuit(client, to, opened, one_way);
            n_open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// The client was let in at once, while on a way as long as this the first byte could leave only when the greeting had
/// gone there and back, and the server could say something when it had gone three times: so they are taken to.
fn pass_circuit(client: TcpStream, to: SocketAddr, opened: Instant, one_way: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || pass_stream(from_server, to_client, opened + 3 * one_way, one_way));
    let there = pass_stream(client, server, opened + 2 * one_way, one_way);
    let back = back.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread of the delay has ended")));
    there.and(back)
}

/// Until `from` ends, which `to` is then told as late as any byte.
fn pass_stream(mut from: TcpStream, mut to: TcpStream, open: Instant, one_way: Duration) -> std::io::Result<()> {
    let (gone, is_gone) = sync_channel::<()>(0);
    let closing = from.try_clone()?;
    let onwards = line(move |bytes: Vec<u8>| {
        let _held = &gone;
        if bytes.is_empty() {
            return to.shutdown(Shutdown::Write);
        }
        // When one end is gone nobody reads the other any more.
        to.write_all(&bytes).or_else(|why| closing.shutdown(Shutdown::Both).and(Err(why)))
    });
    let mut buffer = vec![0; DELAYED_PIECE_BYTES];
    loop {
        // A circuit that is broken ends for the other side as one that is closed.
        let n = from.read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..n).unwrap_or_default().to_vec();
        if onwards.send((Instant::now().max(open) + one_way, bytes)).is_err() || n == 0 {
            break;
        }
    }
    drop(onwards);
    // Disconnected when the last piece has been passed on.
    let _ = is_gone.recv();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WAY: Duration = Duration::from_millis(20);

    /// The delayed address of a server that sends back what it gets.
    fn echo() -> SocketAddr {
        let (server, at) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (to, delayed) = (server.local_addr().unwrap(), at.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
            stream.shutdown(Shutdown::Write)
        });
        thread::spawn(move || pass_circuits(&at, to, ONE_WAY));
        delayed
    }

    #[test]
    fn bytes_come_back_unchanged_in_order_and_as_late_as_the_way_is_long() {
        let mut stream = TcpStream::connect(echo()).unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let start = Instant::now();

        let mut writing = stream.try_clone().unwrap();
        let bytes = sent.clone();
        thread::spawn(move || writing.write_all(&bytes).and_then(|()| writing.shutdown(Shutdown::Write)));
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        let took = start.elapsed();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();

        assert!(took >= 2 * ONE_WAY, "{took:?}");
        assert!([first.to_vec(), rest].concat() == sent);
    }

    #[test]
    fn an_answer_to_a_datagram_comes_to_who_asked_as_late_as_the_way_is_long() {
        let (server, at) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (to, delayed) = (server.local_addr().unwrap(), at.local_addr().unwrap());
        thread::spawn(move || pass_datagrams(&at, to, ONE_WAY));
        let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let start = Instant::now();

        for (client, name) in clients.iter().zip([b"a", b"b"]) {
            client.send_to(name, delayed).unwrap();
        }
        for _ in &clients {
            let mut datagram = [0; 10];
            let (n, from) = server.recv_from(&mut datagram).unwrap();
            server.send_to(&datagram[..n], from).unwrap();
        }

        let answers = clients.map(|client| {
            let mut datagram = [0; 10];
            let n = client.recv(&mut datagram).unwrap();
            datagram[..n].to_vec()
        });
        assert_eq!(answers, [b"a", b"b"]);
        assert!(start.elapsed() >= 2 * ONE_WAY);
    }
}
