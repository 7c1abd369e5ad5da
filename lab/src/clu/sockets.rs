//! A client without Fodo: a UDP socket that keeps a number of requests in flight.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use super::closed::RequestLoop;
use super::tally::{RequestEnd, RequestTally};
use super::wire::{ReceivedReply, RequestBook, ServedReply};

/// How a socket's client makes its requests and reads its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherWork {
    /// All datagrams are prepared, and compared byte by byte.
    Prepared,
    /// Each request is encrypted, each reply decrypted.
    Encrypting,
}

/// What a socket's client sends, and where.
#[derive(Clone, Copy, Debug)]
pub struct SocketTask {
    /// The server.
    pub server: SocketAddrV4,
    /// Whether the server may reply from another port. If not, the socket is connected.
    pub from_any_port: bool,
    /// How requests are made.
    pub work: CipherWork,
    /// What the server returns.
    pub kind: ServedReply,
    /// How long a request waits for its reply.
    pub timeout: Duration,
}

/// Requests in a book for each one in flight, so that a late reply to a request of long ago is not taken for another.
const BOOK_PER_IN_FLIGHT: usize = 64;

/// How long a receive waits before timeouts are looked for.
const RECEIVE_MAX: Duration = Duration::from_millis(20);

/// Size of the receive buffer: more than any reply.
const BUFFER_BYTES: usize = 2048;

/// The state of a request of the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// Can be sent.
    Free,
    /// Waits for its reply since then.
    InFlight(Instant),
    /// Timed out. It is not sent again, because its late reply would be taken for that of the new request.
    Retired,
}

/// The client.
#[derive(Debug)]
pub struct SocketClient {
    socket: UdpSocket,
    task: SocketTask,
    book: RequestBook,
    slots: Vec<SlotState>,
    /// The requests in flight, the oldest first; some of them have ended.
    order: VecDeque<(usize, Instant)>,
    n_in_flight: usize,
    next: usize,
    datagram: Vec<u8>,
    received: Vec<u8>,
}

impl SocketClient {
    /// A client for up to `n_in_flight` requests.
    pub fn open(task: SocketTask, n_in_flight: usize) -> io::Result<SocketClient> {
        let server = *task.server.ip();
        let own = if server.is_loopback() { server } else { Ipv4Addr::UNSPECIFIED };
        let socket = UdpSocket::bind((own, 0))?;
        if !task.from_any_port {
            socket.connect(task.server)?;
        }
        socket.set_read_timeout(Some(RECEIVE_MAX.min(task.timeout)))?;
        let n_requests = BOOK_PER_IN_FLIGHT * n_in_flight.max(1);
        Ok(SocketClient {
            socket,
            task,
            book: RequestBook::new(n_requests, server, task.kind),
            slots: vec![SlotState::Free; n_requests],
            order: VecDeque::new(),
            n_in_flight: 0,
            next: 0,
            datagram: Vec::new(),
            received: vec![0; BUFFER_BYTES],
        })
    }

    /// Sends the next request; `false` if none of the book is free.
    fn send(&mut self, now: Instant, tally: &mut RequestTally) -> io::Result<bool> {
        let n = self.slots.len();
        let free = (0..n).map(|step| (self.next + step) % n).find(|index| self.slots[*index] == SlotState::Free);
        let Some(index) = free else { return Ok(false) };
        self.next = (index + 1) % n;
        if self.task.work == CipherWork::Encrypting {
            self.book.encrypt(index, &mut self.datagram);
        } else {
            self.datagram.clear();
            self.datagram.extend_from_slice(self.book.request(index));
        }
        let sent = match self.task.from_any_port {
            true => self.socket.send_to(&self.datagram, self.task.server),
            false => self.socket.send(&self.datagram),
        };
        // A server that is not there: the request was sent, and has no reply.
        sent.or_else(|failure| if is_refusal(&failure) { Ok(0) } else { Err(failure) })?;
        tally.account.sent += 1;
        self.slots[index] = SlotState::InFlight(now);
        self.order.push_back((index, now));
        self.n_in_flight += 1;
        Ok(true)
    }

    /// Waits for one datagram, but not long; returns whether there was one.
    fn receive(&mut self, until: Instant, tally: &mut RequestTally) -> io::Result<bool> {
        let received = match self.task.from_any_port {
            true => self.socket.recv_from(&mut self.received).map(|(n, from)| (n, Some(from.ip()))),
            false => self.socket.recv(&mut self.received).map(|n| (n, None)),
        };
        let (n, from) = match received {
            Ok(received) => received,
            Err(failure) if is_timeout(&failure) || is_refusal(&failure) => return Ok(false),
            Err(failure) => return Err(failure),
        };
        if from.is_some_and(|from| from != IpAddr::V4(*self.task.server.ip())) {
            return Ok(true);
        }
        let datagram = self.received.get(..n).unwrap_or_default();
        let reply = match self.task.work {
            CipherWork::Prepared => self.book.compare(datagram),
            CipherWork::Encrypting => self.book.decrypt(datagram),
        };
        let (index, end) = match reply {
            ReceivedReply::Expected(index) => (index, RequestEnd::Answered),
            ReceivedReply::Wrong(index) => (index, RequestEnd::Wrong),
            ReceivedReply::Refused => match self.oldest() {
                Some((index, _)) => (index, RequestEnd::Refused),
                None => return Ok(true),
            },
            ReceivedReply::Unknown => return Ok(true),
        };
        match self.slots.get(index).copied() {
            Some(SlotState::InFlight(sent_at)) => {
                let now = Instant::now();
                self.slots[index] = SlotState::Free;
                self.n_in_flight -= 1;
                tally.ended(end, now - sent_at, now < until);
            }
            _ => tally.account.late += 1,
        }
        Ok(true)
    }

    /// The oldest request in flight.
    fn oldest(&mut self) -> Option<(usize, Instant)> {
        while let Some(&(index, sent_at)) = self.order.front() {
            if self.slots[index] == SlotState::InFlight(sent_at) {
                return Some((index, sent_at));
            }
            self.order.pop_front();
        }
        None
    }

    /// Ends the requests whose time is over. Replies that wait in the socket are read before: this process may not have run.
    fn expire(&mut self, now: Instant, until: Instant, tally: &mut RequestTally) -> io::Result<()> {
        let timeout = self.task.timeout;
        let is_over = |(_, sent_at): &(usize, Instant)| now.saturating_duration_since(*sent_at) >= timeout;
        if !self.oldest().is_some_and(|oldest| is_over(&oldest)) {
            return Ok(());
        }
        self.socket.set_nonblocking(true)?;
        while self.receive(until, tally)? {}
        self.socket.set_nonblocking(false)?;
        while let Some((index, sent_at)) = self.oldest().filter(is_over) {
            self.slots[index] = SlotState::Retired;
            self.order.pop_front();
            self.n_in_flight -= 1;
            tally.ended(RequestEnd::TimedOut, now - sent_at, now < until);
        }
        Ok(())
    }
}

impl RequestLoop for SocketClient {
    fn run(&mut self, n_in_flight: usize, until: Instant, tally: &mut RequestTally) -> io::Result<()> {
        loop {
            let now = Instant::now();
            self.expire(now, until, tally)?;
            while self.n_in_flight < n_in_flight && now < until && self.send(now, tally)? {}
            if self.n_in_flight == 0 {
                return Ok(());
            }
            self.receive(until, tally)?;
        }
    }
}

fn is_timeout(failure: &io::Error) -> bool {
    matches!(failure.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A previous datagram had no receiver.
fn is_refusal(failure: &io::Error) -> bool {
    failure.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::thread;

    use super::*;
    use crate::clu::echo;
    use crate::clu::tally::RequestAccount;

    /// An echo on a thread, which lasts as long as the process.
    fn echo(encrypts: bool, lose_every: Option<u64>) -> SocketAddrV4 {
        let (sender, port) = std::sync::mpsc::channel();
        thread::spawn(move || {
            echo::serve(Ipv4Addr::LOCALHOST, encrypts, lose_every, |port| sender.send(port).map_err(io::Error::other))
        });
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.recv_timeout(Duration::from_secs(20)).unwrap())
    }

    fn run(task: SocketTask, n_in_flight: usize) -> RequestTally {
        let mut tally = RequestTally::default();
        let mut client = SocketClient::open(task, n_in_flight).unwrap();
        client.run(n_in_flight, Instant::now() + Duration::from_millis(300), &mut tally).unwrap();
        tally
    }

    fn task(server: SocketAddrV4, work: CipherWork) -> SocketTask {
        let timeout = Duration::from_secs(20);
        SocketTask { server, from_any_port: false, work, kind: ServedReply::Same, timeout }
    }

    #[test]
    fn every_request_of_either_echo_is_answered() {
        for (encrypts, work) in
            [(false, CipherWork::Prepared), (true, CipherWork::Prepared), (true, CipherWork::Encrypting)]
        {
            let server = echo(encrypts, None);
            for (n_in_flight, from_any_port) in [(1, false), (64, false), (64, true)] {
                let tally = run(SocketTask { from_any_port, ..task(server, work) }, n_in_flight);

                let sent = tally.account.sent;
                assert!(sent > 0);
                assert_eq!(tally.account, RequestAccount { sent, answered: sent, ..RequestAccount::default() });
                assert!(tally.in_time > 0 && tally.in_time <= sent);
                assert_eq!(tally.latencies.counts().iter().map(|(_, n)| n).sum::<u64>(), sent);
            }
        }
    }

    #[test]
    fn each_lost_datagram_is_a_timeout_and_is_accounted_for() {
        let server = echo(true, Some(7));

        let tally = run(SocketTask { timeout: Duration::from_millis(50), ..task(server, CipherWork::Encrypting) }, 4);

        let RequestAccount { sent, answered, timed_out, .. } = tally.account;
        assert!(timed_out > 0, "{tally:?}");
        assert_eq!((tally.account.unexplained(), answered + timed_out), (0, sent));
        // Each seventh datagram was lost; those on the way to a slow thread may have timed out too.
        assert!(timed_out >= sent / 7, "{timed_out} of {sent}");
    }

    #[test]
    fn without_a_server_every_request_times_out() {
        // The port of a socket that receives and does not reply.
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(server) = silent.local_addr().unwrap() else { panic!("an address of IPv4") };
        let timeout = Duration::from_millis(20);

        let tally = run(SocketTask { timeout, ..task(server, CipherWork::Prepared) }, 2);

        let sent = tally.account.sent;
        assert_eq!(tally.account, RequestAccount { sent, timed_out: sent, ..RequestAccount::default() });
        assert!(sent > 0);
    }

    #[test]
    fn replies_that_wait_in_the_socket_are_no_timeouts_after_a_pause_of_the_client() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = server.local_addr().unwrap() else { panic!("an address of IPv4") };
        let mut client = SocketClient::open(task(address, CipherWork::Prepared), 8).unwrap();
        let (sent_at, mut tally, mut buffer) = (Instant::now(), RequestTally::default(), [0; 64]);
        for _ in 0..8 {
            assert!(client.send(sent_at, &mut tally).unwrap());
            let (n, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..n], from).unwrap();
        }

        client.expire(sent_at + Duration::from_secs(60), sent_at, &mut tally).unwrap();

        assert_eq!(tally.account, RequestAccount { sent: 8, answered: 8, ..RequestAccount::default() });
    }

    #[test]
    fn a_refused_request_a_wrong_answer_and_a_late_reply_are_counted_apart() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = server.local_addr().unwrap() else { panic!("an address of IPv4") };
        let key = crate::clu::wire::key();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            let texts = ["resp:ERROR", "resp:127.0.0.1:00010001:nil", "resp:127.0.0.1:00010001:0d0a1b2c"];
            let mut number = 0_usize;
            while let Ok((_, from)) = server.recv_from(&mut buffer) {
                // The second request has two replies; others have none.
                let replies: &[&str] = [&texts[..1], &texts[1..]].get(number).copied().unwrap_or_default();
                for text in replies {
                    let mut reply = Vec::new();
                    key.encrypt(text.as_bytes(), &mut reply);
                    server.send_to(&reply, from).unwrap();
                }
                number += 1;
            }
        });

        let timeout = Duration::from_millis(100);
        let task = SocketTask { kind: ServedReply::Clu, timeout, ..task(address, CipherWork::Prepared) };
        let tally = run(task, 1);

        let RequestAccount { sent, refused, wrong, timed_out, late, .. } = tally.account;
        assert_eq!((refused, wrong, late, tally.account.unexplained()), (1, 1, 1, 0), "{tally:?}");
        assert_eq!(timed_out, sent - 2);
    }
}
