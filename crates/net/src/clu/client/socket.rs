//! The socket of a connection. It blocks, so that a caller that waits for its reply needs one system call; all other reads
//! and all writes are made without blocking.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use crate::socket;

/// The datagrams of a connection that the system did not send or dropped. See the example of
/// [`CluConnection`](super::CluConnection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CluSocketCounts {
    /// Datagrams that the system did not accept for sending.
    pub unsent: u64,
    /// Why the last of them was not accepted.
    pub last_failure: Option<io::ErrorKind>,
    /// Received datagrams that the system dropped because the buffer of the socket was full; `None` if the system does
    /// not report it.
    pub overflowed: Option<u64>,
}

pub(super) struct CluSocket {
    socket: UdpSocket,
    port: u16,
}

impl CluSocket {
    /// A socket on any free port. It is not connected, because a CLU may reply from another port than that of the request.
    pub(super) fn open() -> io::Result<CluSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Replies to many requests in flight arrive together. A smaller buffer than requested is acceptable.
        let _ = socket.set_recv_buffer_size(1024 * 1024);
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr()?.port();
        Ok(CluSocket { socket, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sends a datagram unless the system cannot accept it now.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        sendto(&self.socket, datagram, SendFlags::DONTWAIT, &to)?;
        Ok(())
    }

    /// The next datagram that has already been received; `None` if there is none.
    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.receive(buffer, RecvFlags::DONTWAIT)
    }

    /// Waits for a datagram for at most the time of [`CluSocket::set_timeout`].
    pub(super) fn receive_blocking(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.receive(buffer, RecvFlags::empty())
    }

    fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> Option<(usize, SocketAddr)> {
        let (_, n_bytes, from) = recvfrom(&self.socket, buffer, flags).ok()?;
        Some((n_bytes, from?.try_into().ok()?))
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        // Fails only for an invalid time.
        let is_set = set_socket_timeout(&self.socket, Timeout::Recv, Some(timeout)).is_ok();
        debug_assert!(is_set, "{timeout:?} is a valid timeout");
    }

    /// Waits until a datagram has been received, at most for this time. Unlike the timeout of the socket, the time is not
    /// rounded up to the period of the system's timer.
    pub(super) fn wait(&self, timeout: Duration) {
        // The caller checks the time and the socket again.
        let _ = socket::wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout);
    }

    /// Ends a call of [`CluSocket::receive_blocking`] or [`CluSocket::wait`], by an empty datagram to itself.
    pub(super) fn wake(&self) {
        // If it cannot be sent, the call ends after its timeout.
        let _ = self.send(&[], (Ipv4Addr::LOCALHOST, self.port).into());
    }

    /// The number of received datagrams for which the buffer had no space, on Linux.
    pub(super) fn n_overflowed(&self) -> Option<u64> {
        n_dropped(&std::fs::read_to_string("/proc/net/udp").ok()?, self.port)
    }
}

/// The last column of the row of this port.
fn n_dropped(table: &str, port: u16) -> Option<u64> {
    let local = format!(":{port:04X}");
    let mut rows = table.lines().skip(1).map(str::split_whitespace);
    let mut row = rows.find(|row| row.clone().nth(1).is_some_and(|address| address.ends_with(&local)))?;
    row.next_back()?.parse().ok()
}

impl AsRawFd for CluSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for CluSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address of this host on the route to another one.
pub(super) fn own_address_towards(to: SocketAddr) -> io::Result<Ipv4Addr> {
    // No datagram is sent: to connect a UDP socket only selects the route.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    match socket.local_addr()? {
        SocketAddr::V4(own) => Ok(*own.ip()),
        SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dropped_datagrams_are_read_from_the_row_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             100: 00000000:14E8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 100 2 0 5\n\
             200: 0100007F:04D2 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 200 2 0 17\n";

        assert_eq!(n_dropped(table, 1234), Some(17));
        assert_eq!(n_dropped(table, 5352), Some(5));
        assert_eq!(n_dropped(table, 1235), None);
    }

    #[test]
    fn a_blocked_reader_is_woken() {
        let socket = CluSocket::open().unwrap();
        socket.set_timeout(Duration::from_secs(60));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| socket.receive_blocking(&mut [0; 16]));
            socket.wake();
            let woken = reader.join().unwrap().map(|(n_bytes, _)| n_bytes);
            assert_eq!(woken, Some(0));
        });
        assert_eq!(socket.receive_now(&mut [0; 16]), None);
    }

    #[test]
    fn the_own_address_is_that_of_the_route() {
        assert_eq!(own_address_towards(([127, 0, 0, 1], 9).into()).unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn datagrams_that_a_full_buffer_drops_are_counted() {
        let (socket, sender) = (CluSocket::open().unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, socket.port()));
        assert_eq!(socket.n_overflowed(), Some(0));

        // 60 MB are more than the greatest buffer.
        (0..1000).for_each(|_| drop(sender.send_to(&[0; 60_000], to)));

        assert!(socket.n_overflowed() > Some(0));
    }
}
