//! The UDP sockets from which a client searches: one for each family of addresses, both with the port that the searches
//! name for replies.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;

use crate::socket;

/// The sockets.
#[derive(Debug)]
pub struct SearchUdp {
    ipv4: UdpSocket,
    /// Opened for the first address of IPv6.
    ipv6: OnceLock<UdpSocket>,
    /// Why that failed at first. It is tried again for each datagram.
    failure: OnceLock<String>,
    port: u16,
    multicast_ttl: u32,
}

impl SearchUdp {
    /// Binds the socket for IPv4 to any free port. `multicast_ttl`: maximum number of routers that a multicast passes.
    pub fn bind(multicast_ttl: u32) -> io::Result<SearchUdp> {
        let ipv4 = socket::search_udp(multicast_ttl)?;
        let port = ipv4.local_addr()?.port();
        Ok(SearchUdp { ipv4, ipv6: OnceLock::new(), failure: OnceLock::new(), port, multicast_ttl })
    }

    /// The port of all sockets.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket for IPv4.
    pub fn ipv4(&self) -> &UdpSocket {
        &self.ipv4
    }

    /// The open sockets.
    pub fn all(&self) -> impl Iterator<Item = &UdpSocket> {
        [Some(&self.ipv4), self.ipv6.get()].into_iter().flatten()
    }

    /// Why no datagram can be sent over IPv6; `None` if that is not known.
    pub fn ipv6_failure(&self) -> Option<&str> {
        self.failure.get().filter(|_| self.ipv6.get().is_none()).map(String::as_str)
    }

    /// The next datagram; `None` if none has arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        for socket in self.all() {
            loop {
                match socket.recv_from(buffer) {
                    Ok(datagram) => return Ok(Some(datagram)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The system reports that one of the hosts does not receive searches.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }

    /// Sends a datagram. `opened`: called with a socket that is opened for it. Fails also if that cannot be opened.
    pub fn send_to(
        &self,
        bytes: &[u8],
        to: SocketAddr,
        opened: impl FnOnce(&UdpSocket) -> io::Result<()>,
    ) -> io::Result<usize> {
        if to.is_ipv4() {
            return self.ipv4.send_to(bytes, to);
        }
        let socket = match self.ipv6.get() {
            Some(socket) => socket,
            None => {
                let new = socket::search_udp_ipv6(self.port, self.multicast_ttl).and_then(|new| {
                    opened(&new)?;
                    Ok(new)
                });
                let new = new.inspect_err(|error| {
                    self.failure.get_or_init(|| self.reason(error));
                })?;
                self.ipv6.get_or_init(|| new)
            }
        };
        socket::send_to(socket, bytes, to)
    }

    /// Why a socket for IPv6 cannot be opened, and what to do.
    fn reason(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("another program uses UDP port {} of IPv6; stop it, or start this program again", self.port)
            }
            _ => format!("{error}; enable IPv6 on this host, or remove its addresses from the search list"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::interfaces;

    #[test]
    fn searches_of_both_families_come_from_one_port() {
        if !interfaces::has_ipv6() {
            eprintln!("skipped: this host has no IPv6 on loopback");
            return;
        }
        let receivers =
            [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap()];
        let sockets = SearchUdp::bind(1).unwrap();
        let mut n_opened = 0;

        let sources = receivers.each_ref().map(|receiver| {
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let to = receiver.local_addr().unwrap();
            for bytes in [b"first".as_slice(), b"second"] {
                let opened = |_: &UdpSocket| {
                    n_opened += 1;
                    Ok(())
                };
                sockets.send_to(bytes, to, opened).unwrap();
            }
            receiver.recv_from(&mut [0; 8]).unwrap().1
        });

        assert_eq!(sources.map(|source| source.port()), [sockets.port(); 2]);
        assert_eq!((n_opened, sockets.all().count()), (1, 2));
        receivers[1].send_to(b"reply", sources[1]).unwrap();
        let start = Instant::now();
        while sockets.all().all(|socket| socket.recv_from(&mut [0; 8]).is_err()) {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_port_that_is_in_use_with_ipv6_is_reported_and_used_as_soon_as_it_is_free() {
        if !interfaces::has_ipv6() {
            eprintln!("skipped: this host has no IPv6 on loopback");
            return;
        }
        let receivers =
            [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap()];
        let [ipv4, ipv6] = receivers.each_ref().map(|receiver| receiver.local_addr().unwrap());
        let sockets = SearchUdp::bind(1).unwrap();
        let other = socket::search_udp_ipv6(sockets.port(), 1).unwrap();

        let refused = sockets.send_to(b"first", ipv6, |_| Ok(())).unwrap_err();
        let reported = sockets.ipv6_failure().unwrap().to_owned();
        sockets.send_to(b"first", ipv4, |_| Ok(())).unwrap();
        drop(other);
        sockets.send_to(b"second", ipv6, |_| Ok(())).unwrap();

        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let expected = format!("another program uses UDP port {} of IPv6; stop it", sockets.port());
        assert!(reported.contains(&expected), "{reported}");
        assert_eq!(sockets.ipv6_failure(), None);
        for receiver in receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            receiver.recv_from(&mut [0; 8]).unwrap();
        }
    }
}
