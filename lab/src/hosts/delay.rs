//! A delay: forwards data later, in order and unchanged.
//!
//! Datagrams and circuits of one port go to the same port of the server. Many kernels lack a queue with a delay; this
//! one works without privileges. Only the addresses in searches of pvAccess and in their replies change.

use std::collections::HashMap;
use std::io::{Read, Write, stdout};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use fodo_lock::Mutex;

use crate::limit::{DELAYED_CLIENTS_MAX, DELAYED_PIECE_BYTES, DELAYED_PIECES_MAX, DELAYED_SEARCHER_MAX};

/// The line it prints when it listens.
pub const READY: &str = "delay listens";

/// A socket per searching client, by the client's address.
type Searchers = Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>;

/// Listens at `at` and forwards everything to the server at `to` and back, each `one_way` later. Never returns unless
/// it fails.
pub fn run(at: SocketAddr, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    let (listener, socket) = (TcpListener::bind(at)?, shared_socket(at)?);
    println!("{READY}");
    stdout().flush()?;
    thread::spawn(move || {
        // Without this thread searches get no reply, which the clients report.
        let _ = pass_datagrams(&socket, to, one_way);
    });
    pass_circuits(&listener, to, one_way)
}

/// A socket beside which clients of pvAccess can receive beacons at the same port of any address. Searches are received
/// here, because the kernel prefers the socket with the address of the datagram.
#[cfg(target_os = "linux")]
fn shared_socket(at: SocketAddr) -> std::io::Result<UdpSocket> {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let shared = socket(family, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseaddr(&shared, true)?;
    bind(&shared, &at)?;
    Ok(UdpSocket::from(shared))
}

/// Namespaces, and therefore delays, exist on Linux only.
#[cfg(not(target_os = "linux"))]
fn shared_socket(at: SocketAddr) -> std::io::Result<UdpSocket> {
    UdpSocket::bind(at)
}

/// Keeps each piece until it is due, then calls `pass` with it, one after the other. Ends when `pass` fails or when the
/// sender is dropped.
fn line<T: Send + 'static>(
    mut pass: impl FnMut(T) -> std::io::Result<()> + Send + 'static,
) -> SyncSender<(Instant, T)> {
    let (sender, pieces) = sync_channel::<(Instant, T)>(DELAYED_PIECES_MAX);
    thread::spawn(move || {
        set_timer_slack();
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if pass(piece).is_err() {
                return;
            }
        }
    });
    sender
}

/// The kernel extends every sleep by 50 microseconds, to wake several sleepers together, unless a thread requests less.
#[cfg(target_os = "linux")]
fn set_timer_slack() {
    // Without permission for it, the pieces are later by this time.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Supported on Linux only.
#[cfg(not(target_os = "linux"))]
fn set_timer_slack() {}

fn pass_datagrams(socket: &UdpSocket, to: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    let searchers = Searchers::default();
    let there = line(move |(onwards, bytes): (Arc<UdpSocket>, Vec<u8>)| {
        // A server that does not listen needs no search.
        let _ = onwards.send_to(&bytes, to);
        Ok(())
    });
    let back_socket = socket.try_clone()?;
    let back = line(move |(client, bytes): (SocketAddr, Vec<u8>)| {
        // A client that has disconnected needs no reply.
        let _ = back_socket.send_to(&bytes, client);
        Ok(())
    });
    let mut datagram = vec![0; DELAYED_PIECE_BYTES];
    loop {
        let (n, client) = socket.recv_from(&mut datagram)?;
        let due = Instant::now() + one_way;
        let Some(onwards) = socket_of(client, &searchers, &back, one_way)? else { continue };
        let mut bytes = datagram.get(..n).unwrap_or_default().to_vec();
        reply_to(&mut bytes, onwards.local_addr()?.port());
        if there.send((due, (onwards, bytes))).is_err() {
            return Ok(());
        }
    }
}

/// First byte of a message of pvAccess.
const MAGIC: u8 = 0xca;

/// A search of pvAccess contains the address and the port to which the server replies: replaces them by those of the delay,
/// which is the sender (all zeros) at `port`. Channel Access has none.
///
/// Source: pvAccess protocol specification, SEARCH: header 8 with the byte order in bit 7 of its flags, number of the search
/// 4, flags 4, address 16, port 2.
fn reply_to(datagram: &mut [u8], port: u16) {
    const SEARCH: u8 = 3;
    let [MAGIC, _, flags, SEARCH, ..] = *datagram else { return };
    let Some([address @ .., high, low]) = datagram.get_mut(16..34) else { return };
    address.fill(0);
    [*high, *low] = if flags & 0x80 == 0 { port.to_le_bytes() } else { port.to_be_bytes() };
}

/// A reply to a search of pvAccess contains the server's address, to which the client would connect directly. All zeros
/// stand for the sender of the reply, which is the delay. Channel Access sends that by default.
///
/// Source: pvAccess protocol specification, SEARCH_RESPONSE: header 8, GUID 12, number of the search 4, address 16.
fn connect_to_sender(datagram: &mut [u8]) {
    const SEARCH_RESPONSE: u8 = 4;
    if let [MAGIC, _, _, SEARCH_RESPONSE, ..] = *datagram
        && let Some(address) = datagram.get_mut(24..40)
    {
        address.fill(0);
    }
}

/// The socket that forwards a client's datagrams, so that replies can be matched to the client. `None` when there are
/// too many clients; the client then searches again.
fn socket_of(
    client: SocketAddr,
    searchers: &Searchers,
    back: &SyncSender<(Instant, (SocketAddr, Vec<u8>))>,
    one_way: Duration,
) -> std::io::Result<Option<Arc<UdpSocket>>> {
    let mut known = searchers.lock();
    if let Some(onwards) = known.get(&client) {
        return Ok(Some(Arc::clone(onwards)));
    }
    if known.len() >= DELAYED_CLIENTS_MAX {
        return Ok(None);
    }
    let onwards = Arc::new(UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?);
    onwards.set_read_timeout(Some(DELAYED_SEARCHER_MAX))?;
    known.insert(client, Arc::clone(&onwards));
    let (answered, searchers, back) = (Arc::clone(&onwards), Arc::clone(searchers), back.clone());
    thread::spawn(move || {
        let mut datagram = vec![0; DELAYED_PIECE_BYTES];
        // QSRV1 replies from another port.
        while let Ok((n, _server)) = answered.recv_from(&mut datagram) {
            let mut bytes = datagram.get(..n).unwrap_or_default().to_vec();
            connect_to_sender(&mut bytes);
            if back.send((Instant::now() + one_way, (client, bytes))).is_err() {
                break;
            }
        }
        searchers.lock().remove(&client);
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
            // Both ends see the end of the circuit.
            let _ = pass_circuit(client, to, opened, one_way);
            n_open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// The kernel accepted the client at once. On a real link of this length the client could send its first byte only
/// after the handshake's round trip, and the server after a further one-way time: so their first pieces are delayed.
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

/// Forwards until `from` ends; the end is forwarded with the same delay as data.
fn pass_stream(mut from: TcpStream, mut to: TcpStream, open: Instant, one_way: Duration) -> std::io::Result<()> {
    let (closed, is_closed) = sync_channel::<()>(0);
    let closing = from.try_clone()?;
    let onwards = line(move |bytes: Vec<u8>| {
        let _closed = &closed;
        if bytes.is_empty() {
            return to.shutdown(Shutdown::Write);
        }
        // When one end has closed, shut down the other.
        to.write_all(&bytes).or_else(|why| closing.shutdown(Shutdown::Both).and(Err(why)))
    });
    let mut buffer = vec![0; DELAYED_PIECE_BYTES];
    loop {
        // A broken circuit ends like a closed one for the other side.
        let n = from.read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..n).unwrap_or_default().to_vec();
        if onwards.send((Instant::now().max(open) + one_way, bytes)).is_err() || n == 0 {
            break;
        }
    }
    drop(onwards);
    // Disconnected after the last piece has been forwarded.
    let _ = is_closed.recv();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WAY: Duration = Duration::from_millis(20);

    /// The delayed address of a server that echoes what it receives.
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
    fn delayed_bytes_are_returned_unchanged_and_in_order() {
        let mut stream = TcpStream::connect(echo()).unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let start = Instant::now();

        let mut writing = stream.try_clone().unwrap();
        let bytes = sent.clone();
        thread::spawn(move || writing.write_all(&bytes).and_then(|()| writing.shutdown(Shutdown::Write)));
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        let elapsed = start.elapsed();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();

        assert!(elapsed >= 2 * ONE_WAY, "{elapsed:?}");
        assert!([first.to_vec(), rest].concat() == sent);
    }

    #[test]
    fn searches_of_pvaccess_and_their_replies_lead_through_the_delay() {
        let message = |flags: u8, command: u8| [&[0xca, 2, flags, command][..], &[7; 40]].concat();
        let search =
            |flags: u8, port: [u8; 2]| [&[0xca, 2, flags, 3][..], &[7; 12], &[0; 16], &port, &[7; 10]].concat();
        let found = [&[0xca, 2, 0, 4][..], &[7; 20], &[0; 16], &[7; 4]].concat();

        for (sent, passed) in [
            (message(0, 3), search(0, [0x02, 0x01])),
            (message(0x80, 3), search(0x80, [0x01, 0x02])),
            (message(0, 4), found),
            (message(0, 5), message(0, 5)),
            (vec![0xca, 2, 0, 3, 7], vec![0xca, 2, 0, 3, 7]),
            (vec![0, 6, 0, 3], vec![0, 6, 0, 3]),
        ] {
            let mut datagram = sent;
            reply_to(&mut datagram, 0x0102);
            connect_to_sender(&mut datagram);
            assert_eq!(datagram, passed);
        }
    }

    #[test]
    fn a_delayed_datagram_reply_reaches_its_sender() {
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
