//! Sockets with the options that client and server need.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use socket2::{Domain, Protocol, Socket, Type};

use crate::limit;

/// Starts a TCP connection; the socket is non-blocking.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket, limit::PROBES * 8)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if is_under_way(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

fn is_under_way(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

/// Lets the system detect, in about this time, hosts that disappeared without closing the connection.
fn keep_alive(socket: &Socket, silence: Duration) -> io::Result<()> {
    // In whole seconds, as the system counts.
    let period = (silence / 8).clamp(Duration::from_secs(1), limit::PROBES);
    let probes = socket2::TcpKeepalive::new().with_time(period).with_interval(period);
    socket.set_tcp_keepalive(&probes)
}

/// Prepares a connection that a listener has accepted.
///
/// `silence`: how long its client may receive none of the data sent to it, or not answer a probe, before the system
/// closes the connection, if the system supports that.
pub fn accepted(stream: TcpStream, silence: Duration) -> io::Result<TcpStream> {
    let socket = Socket::from(stream);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket, silence)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(silence.min(limit::SILENCE_MAX)))?;
    Ok(socket.into())
}

/// A non-blocking listening socket. Port 0 selects any free port.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    set_only_ipv6(&socket, at)?;
    // Otherwise a restarted server would wait for minutes to get its port again.
    socket.set_reuse_address(cfg!(unix))?;
    socket.bind(&at.into())?;
    socket.listen(limit::BACKLOG)?;
    Ok(socket.into())
}

/// A non-blocking UDP socket for a client, on any free port, with broadcasts allowed. `multicast_ttl`: maximum number
/// of routers that a multicast passes.
pub fn search_udp(multicast_ttl: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_broadcast(true)?;
    // Replies to a burst of searches arrive in a burst. A smaller buffer than requested is acceptable.
    let _ = socket.set_recv_buffer_size(1024 * 1024);
    socket.set_multicast_ttl_v4(multicast_ttl)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    Ok(socket.into())
}

/// The same for IPv6, on this port.
pub fn search_udp_ipv6(port: u16, multicast_ttl: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    socket.set_nonblocking(true)?;
    set_only_ipv6(&socket, any)?;
    // As above.
    let _ = socket.set_recv_buffer_size(1024 * 1024);
    socket.set_multicast_hops_v6(multicast_ttl)?;
    socket.bind(&any.into())?;
    Ok(socket.into())
}

/// A socket for all addresses of IPv6 does not receive what is sent to those of IPv4, which have sockets of their own.
fn set_only_ipv6(socket: &Socket, at: SocketAddr) -> io::Result<()> {
    if at.is_ipv6() { socket.set_only_v6(true) } else { Ok(()) }
}

/// Sends a datagram; to a group of IPv6 through the interface in its address.
pub fn send_to(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
    if let SocketAddr::V6(group) = to
        && group.ip().is_multicast()
    {
        // The system uses the number in the address only for groups of one link.
        socket2::SockRef::from(socket).set_multicast_if_v6(group.scope_id())?;
    }
    socket.send_to(bytes, to)
}

/// The only UDP socket of the host with this port: fails if there is another one.
pub fn exclusive_udp(port: u16) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_broadcast(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    Ok(socket.into())
}

/// Waits for one of these sockets; returns how many are ready.
pub fn wait(sockets: &mut [PollFd<'_>], timeout: Duration) -> rustix::io::Result<usize> {
    let tv_sec = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    rustix::event::poll(sockets, Some(&Timespec { tv_sec, tv_nsec: i64::from(timeout.subsec_nanos()) }))
}

/// Whether another socket uses this UDP port.
pub fn is_taken(address: SocketAddr) -> bool {
    // Any other error does not show that the port is free, so it counts as taken.
    UdpSocket::bind(address).is_err()
}

/// A UDP socket that receives datagrams to a multicast group on each of these interfaces.
pub fn multicast_udp(group: Ipv4Addr, interfaces: &[Ipv4Addr], port: u16) -> io::Result<UdpSocket> {
    let socket = shared_udp(group, port)?;
    for interface in interfaces {
        socket.join_multicast_v4(&group, interface)?;
    }
    Ok(socket)
}

/// The same for a group of IPv6, on the interface with this number.
pub fn multicast_udp_ipv6(group: Ipv6Addr, index: u32, port: u16) -> io::Result<UdpSocket> {
    let socket = shared_udp_at(SocketAddrV6::new(group, port, 0, index).into())?;
    socket.join_multicast_v6(&group, index)?;
    Ok(socket)
}

/// A UDP socket that sends datagrams to multicast groups to the servers of this host only.
pub fn loopback_multicast_udp() -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    socket.set_multicast_loop_v4(true)?;
    Ok(socket.into())
}

/// A UDP socket for searches and beacons that several servers of a host can share. The example of
/// [`Reactor`](crate::reactor::Reactor) has one.
pub fn shared_udp(interface: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    shared_udp_at(SocketAddr::from((interface, port)))
}

/// The same at an address of either family.
pub fn shared_udp_at(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    set_only_ipv6(&socket, at)?;
    if at.is_ipv4() {
        socket.set_broadcast(true)?;
    }
    // As above.
    let _ = socket.set_recv_buffer_size(1024 * 1024);
    if at.port() == 0 {
        // With the option, Linux may select a port that another socket shares.
        socket.bind(&at.into())?;
        socket.set_reuse_address(true)?;
    } else {
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
    }
    Ok(socket.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    /// Both ends of a connection; the server's end is prepared.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, accepted(listener.accept().unwrap().0, limit::CLIENT_GONE).unwrap())
    }

    // Row 27 of docs/reference/faults.md.
    #[test]
    fn accepted_sockets_have_keepalive_and_a_user_timeout() {
        let (_client, server) = pair();

        let socket = socket2::SockRef::from(&server);

        assert!(socket.keepalive().unwrap(), "for clients that are sent nothing");
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit::CLIENT_GONE), "for those that are");
    }

    #[test]
    fn an_unlimited_timeout_is_accepted_for_a_socket() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();

        assert!(accepted(listener.accept().unwrap().0, Duration::MAX).is_ok());
    }

    // Row 20 of docs/reference/faults.md.
    #[test]
    fn a_connection_whose_peer_reads_nothing_times_out() {
        let (_client, mut server) = pair();
        socket2::SockRef::from(&server).set_tcp_user_timeout(Some(Duration::from_millis(500))).unwrap();
        let start = Instant::now();

        let error = loop {
            match server.write(&[0; 65536]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                _ => assert!(start.elapsed() < Duration::from_secs(20), "it stays open"),
            }
            std::thread::yield_now();
        };

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn sockets_are_nonblocking_and_search_sockets_may_broadcast() {
        for (name, socket) in [
            ("searching", search_udp(7).unwrap()),
            ("answering", shared_udp(Ipv4Addr::LOCALHOST, 0).unwrap()),
            ("only", exclusive_udp(0).unwrap()),
        ] {
            let error = socket.recv_from(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{name}");
            assert!(socket.broadcast().unwrap(), "{name}");
        }
        assert_eq!(search_udp(7).unwrap().multicast_ttl_v4().unwrap(), 7);
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn servers_share_the_search_port_and_a_repeater_port_is_exclusive() {
        let answers = shared_udp(Ipv4Addr::LOCALHOST, 0).unwrap();
        let address = answers.local_addr().unwrap();
        assert!(shared_udp(Ipv4Addr::LOCALHOST, address.port()).is_ok());
        assert!(is_taken(address));

        // No other test has this port of this address, and the system gives it to no socket.
        assert!(!is_taken(SocketAddr::from(([127, 83, 0, 1], 11_999))));

        let repeater = exclusive_udp(0).unwrap();
        assert!(exclusive_udp(repeater.local_addr().unwrap().port()).is_err());
    }

    #[test]
    fn the_system_selects_ports_that_no_socket_shares() {
        // If the system could select a port twice, some of so many would be equal.
        let sockets: Vec<UdpSocket> = (0..800).map(|_| shared_udp(Ipv4Addr::LOCALHOST, 0).unwrap()).collect();

        let ports: std::collections::BTreeSet<u16> = sockets.iter().map(|s| s.local_addr().unwrap().port()).collect();

        assert_eq!(ports.len(), sockets.len());
    }

    #[test]
    fn sockets_connect_without_blocking_and_disable_nagle() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();

        let stream = connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = super::accepted(accepted, Duration::from_secs(8)).unwrap();

        for stream in [&stream, &accepted] {
            assert!(stream.nodelay().unwrap());
            assert_eq!((&mut &*stream).read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(socket2::SockRef::from(stream).keepalive().unwrap());
        }
        assert_eq!(socket2::SockRef::from(&stream).tcp_keepalive_time().unwrap(), limit::PROBES);
        let short = socket2::SockRef::from(&accepted);
        assert_eq!(short.tcp_keepalive_time().unwrap(), Duration::from_secs(1));
        assert_eq!(short.tcp_user_timeout().unwrap(), Some(Duration::from_secs(8)));
    }

    #[test]
    fn only_a_pending_connect_counts_as_under_way() {
        assert!(is_under_way(&io::ErrorKind::WouldBlock.into()));
        assert!(is_under_way(&rustix::io::Errno::INPROGRESS.into()));
        assert!(!is_under_way(&rustix::io::Errno::CONNREFUSED.into()));
    }
}
