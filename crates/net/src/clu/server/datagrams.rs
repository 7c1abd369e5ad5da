//! Many datagrams with one system call, where the system can.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use fodo_clu::OutgoingDatagrams;
use rustix::event::{PollFd, PollFlags};

use super::CluServerSocketCounts;
use crate::{limit, socket};

/// Passes the datagrams that a socket has received to `handle`, up to a limit; the others follow in the next turn.
pub(super) fn receive_from(
    socket: &UdpSocket,
    counts: &mut CluServerSocketCounts,
    handle: impl FnMut(SocketAddr, &[u8]),
) {
    match receive_batch(socket, handle) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => counts.receive_errors += 1,
        Ok(()) | Err(_) => {}
    }
}

#[cfg(target_os = "linux")]
fn receive_batch(socket: &UdpSocket, handle: impl FnMut(SocketAddr, &[u8])) -> io::Result<()> {
    many::receive(socket, handle)
}

#[cfg(not(target_os = "linux"))]
fn receive_batch(socket: &UdpSocket, mut handle: impl FnMut(SocketAddr, &[u8])) -> io::Result<()> {
    let mut buffer = [0; limit::CLU_DATAGRAM_BYTES];
    for _ in 0..limit::CLU_BATCH_DATAGRAMS {
        let (n_bytes, from) = socket.recv_from(&mut buffer)?;
        handle(from, buffer.get(..n_bytes).unwrap_or_default());
    }
    Ok(())
}

/// Sends datagrams and removes them.
pub(super) fn send_all(socket: &UdpSocket, datagrams: &mut OutgoingDatagrams, counts: &mut CluServerSocketCounts) {
    let mut unsent = datagrams.iter().peekable();
    while unsent.peek().is_some() {
        #[cfg(target_os = "linux")]
        if let Some(n_sent) = many::send(socket, unsent.clone()) {
            unsent.by_ref().take(n_sent).for_each(drop);
            continue;
        }
        if let Some((to, datagram)) = unsent.next() {
            counts.unsent += u64::from(!is_sent(socket, to, datagram));
        }
    }
    drop(unsent);
    datagrams.clear();
}

/// Sends a datagram; waits for a short time while the system has no space for it.
fn is_sent(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) -> bool {
    loop {
        match socket.send_to(datagram, to) {
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut descriptor = [PollFd::new(socket, PollFlags::OUT)];
                if !socket::wait(&mut descriptor, limit::CLU_SEND_WAIT).is_ok_and(|n_ready| n_ready > 0) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// How many datagrams the system has dropped because the buffers of these sockets were full; 0 on systems that do not report
/// it. It reads a list of all sockets.
pub(super) fn n_system_drops<'a>(sockets: impl Iterator<Item = &'a UdpSocket>) -> u64 {
    let inode = |socket: &UdpSocket| {
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        std::fs::metadata(descriptor).ok().map(|socket| socket.ino().to_string())
    };
    let inodes: Vec<String> = sockets.filter_map(inode).collect();
    let drops = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, _, _, _, _, _, inode, _, _, drops] = fields[..] else { return None };
        inodes.iter().any(|own| own == inode).then(|| drops.parse::<u64>().ok())?
    };
    let list = |path| std::fs::read_to_string(path).unwrap_or_default();
    ["/proc/self/net/udp", "/proc/self/net/udp6"]
        .map(|path| list(path).lines().filter_map(drops).sum::<u64>())
        .iter()
        .sum()
}

/// Batches, as Linux has them.
#[cfg(target_os = "linux")]
mod many {
    use std::cell::RefCell;
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg};
    use rustix::net::addr::SocketAddrArg;
    use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

    use crate::limit::{CLU_BATCH_DATAGRAMS, CLU_DATAGRAM_BYTES};

    /// The memory of a batch, one for each thread.
    struct ReceiveBatch {
        headers: MultiHeaders<SockaddrIn>,
        bytes: Vec<u8>,
    }

    thread_local! {
        static BATCH: RefCell<ReceiveBatch> = RefCell::new(ReceiveBatch {
            headers: MultiHeaders::preallocate(CLU_BATCH_DATAGRAMS, None),
            bytes: vec![0; CLU_BATCH_DATAGRAMS * CLU_DATAGRAM_BYTES],
        });
    }

    /// `socket`: of IPv4.
    pub(super) fn receive(socket: &UdpSocket, mut handle: impl FnMut(SocketAddr, &[u8])) -> io::Result<()> {
        BATCH.with_borrow_mut(|ReceiveBatch { headers, bytes }| {
            let mut parts = bytes.chunks_exact_mut(CLU_DATAGRAM_BYTES);
            let mut slices: [[IoSliceMut<'_>; 1]; CLU_BATCH_DATAGRAMS] =
                std::array::from_fn(|_| [IoSliceMut::new(parts.next().unwrap_or_default())]);
            let received = recvmmsg(socket.as_raw_fd(), headers, &mut slices, MsgFlags::MSG_DONTWAIT, None)?;
            for message in received {
                let Some(from) = message.address.map(SocketAddrV4::from) else { continue };
                handle(from.into(), message.iovs().next().unwrap_or_default());
            }
            Ok(())
        })
    }

    /// Sends the first datagrams at once, and returns how many; `None` if there is only one, or the first cannot be sent.
    pub(super) fn send<'a>(
        socket: &UdpSocket,
        datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>,
    ) -> Option<usize> {
        let (addresses, parts): (Vec<SocketAddrAny>, Vec<[IoSlice<'a>; 1]>) =
            datagrams.take(CLU_BATCH_DATAGRAMS).map(|(to, datagram)| (to.as_any(), [IoSlice::new(datagram)])).unzip();
        if addresses.len() < 2 {
            return None;
        }
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            addresses.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> = addresses
            .iter()
            .zip(&parts)
            .zip(&mut controls)
            .map(|((to, part), control)| MMsgHdr::new_with_addr(to, part, control))
            .collect();
        sendmmsg(socket, &mut messages, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok().filter(|n_sent| *n_sent > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn bound() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// Datagrams of different lengths, more than a batch.
    fn some(to: &[&UdpSocket]) -> OutgoingDatagrams {
        let mut out = OutgoingDatagrams::default();
        for index in 0..limit::CLU_BATCH_DATAGRAMS + 10 {
            let to = to[index % to.len()].local_addr().unwrap();
            out.push(to, |bytes| bytes.extend(std::iter::repeat_n(index as u8, index + 1)));
        }
        out
    }

    #[test]
    fn a_batch_reaches_each_receiver_in_order() {
        let (sender, receivers) = (bound(), [bound(), bound()]);
        let (mut out, mut counts) = (some(&[&receivers[0], &receivers[1]]), CluServerSocketCounts::default());

        send_all(&sender, &mut out, &mut counts);

        assert!(out.is_empty());
        assert_eq!(counts.unsent, 0);
        for index in 0..limit::CLU_BATCH_DATAGRAMS + 10 {
            let mut buffer = [0; 2048];
            let n_bytes = receivers[index % 2].recv(&mut buffer).unwrap();
            assert_eq!(buffer[..n_bytes], vec![index as u8; index + 1]);
        }
    }

    #[test]
    fn a_batch_is_received_with_its_senders_and_the_rest_with_the_next() {
        let (sender, receiver) = (bound(), bound());
        let mut counts = CluServerSocketCounts::default();
        send_all(&sender, &mut some(&[&receiver]), &mut counts);
        sender.send_to(&[], receiver.local_addr().unwrap()).unwrap();
        sender.send_to(&[7; 4000], receiver.local_addr().unwrap()).unwrap();

        let mut batches = Vec::new();
        for _ in 0..2 {
            let mut received = Vec::new();
            receive_from(&receiver, &mut counts, |from, datagram| {
                assert_eq!(from, sender.local_addr().unwrap());
                received.push(datagram.to_vec());
            });
            batches.push(received);
        }

        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [limit::CLU_BATCH_DATAGRAMS, 12]);
        let [.., empty, long] = &batches[1][..] else { panic!("fewer than sent") };
        assert_eq!((empty.len(), long.len()), (0, limit::CLU_DATAGRAM_BYTES));
        for (index, datagram) in batches.concat()[..limit::CLU_BATCH_DATAGRAMS + 10].iter().enumerate() {
            assert_eq!(*datagram, vec![index as u8; index + 1]);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn datagrams_for_which_a_buffer_has_no_space_are_counted() {
        let (sender, receiver, other) = (bound(), bound(), bound());
        socket2::SockRef::from(&receiver).set_recv_buffer_size(4096).unwrap();
        for _ in 0..100 {
            sender.send_to(&[1; 1000], receiver.local_addr().unwrap()).unwrap();
        }

        let mut n_received = 0;
        receive_from(&receiver, &mut CluServerSocketCounts::default(), |_, _| n_received += 1);

        assert!(n_received < 100);
        assert_eq!(n_system_drops([&receiver, &other].into_iter()), 100 - n_received);
        assert_eq!(n_system_drops([&other].into_iter()), 0);
    }

    #[test]
    fn a_datagram_that_cannot_be_sent_is_counted_and_does_not_stop_the_others() {
        let (sender, receiver) = (bound(), bound());
        let (mut out, mut counts) = (OutgoingDatagrams::default(), CluServerSocketCounts::default());
        let unreachable = ([240, 0, 0, 1], 9).into();
        for to in [receiver.local_addr().unwrap(), unreachable, receiver.local_addr().unwrap()] {
            out.push(to, |bytes| bytes.push(1));
        }

        send_all(&sender, &mut out, &mut counts);

        assert_eq!(counts.unsent, 1);
        for _ in 0..2 {
            assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 1);
        }
    }
}
