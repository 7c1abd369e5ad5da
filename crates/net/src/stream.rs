//! Reading, writing and connecting TCP streams without blocking.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

/// Bytes that wait to be sent on a stream, in order.
///
/// ```
/// use std::collections::VecDeque;
///
/// use fodo_net::reactor::Outgoing;
///
/// let mut outgoing = VecDeque::from(b"hello".to_vec());
/// assert_eq!(outgoing.ready(), b"hello");
/// outgoing.sent(2);
/// assert_eq!(outgoing.ready(), b"llo");
/// ```
pub trait Outgoing {
    /// The next bytes to send; empty if no bytes wait.
    fn ready(&mut self) -> &[u8];

    /// Removes the first `n` of these bytes, which were sent.
    fn sent(&mut self, n: usize);
}

impl Outgoing for fodo_ca::client::Circuit {
    fn ready(&mut self) -> &[u8] {
        self.ready()
    }

    fn sent(&mut self, n: usize) {
        self.sent(n);
    }
}

impl Outgoing for crate::pva::client::PvaMachine {
    fn ready(&mut self) -> &[u8] {
        self.ready()
    }

    fn sent(&mut self, n: usize) {
        self.sent(n);
    }
}

impl Outgoing for fodo_ca::server::Circuit {
    fn ready(&mut self) -> &[u8] {
        self.ready()
    }

    fn sent(&mut self, n: usize) {
        self.sent(n);
    }
}

impl Outgoing for fodo_pva::client::Circuit {
    fn ready(&mut self) -> &[u8] {
        self.ready()
    }

    fn sent(&mut self, n: usize) {
        self.sent(n);
    }
}

impl Outgoing for fodo_pva::server::Circuit {
    fn ready(&mut self) -> &[u8] {
        self.ready()
    }

    fn sent(&mut self, n: usize) {
        self.sent(n);
    }
}

impl Outgoing for VecDeque<u8> {
    fn ready(&mut self) -> &[u8] {
        self.as_slices().0
    }

    fn sent(&mut self, n: usize) {
        self.drain(..n);
    }
}

/// The result of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// All pending bytes were written.
    All,
    /// The socket accepts no more bytes now.
    SocketIsFull,
    /// The limit of one turn is reached; other streams are next.
    Enough,
}

/// Writes pending bytes until the socket accepts no more. Fails if the connection has ended.
pub fn flush(stream: &TcpStream, outgoing: &mut impl Outgoing) -> io::Result<WriteOutcome> {
    let mut no_limit = usize::MAX;
    flush_up_to(stream, outgoing, &mut no_limit)
}

/// The same as [`flush`], up to about a number of bytes; subtracts those that were written.
#[inline]
pub fn flush_up_to(
    mut stream: &TcpStream,
    outgoing: &mut impl Outgoing,
    n_budget: &mut usize,
) -> io::Result<WriteOutcome> {
    loop {
        let ready = outgoing.ready();
        if ready.is_empty() {
            return Ok(WriteOutcome::All);
        }
        if *n_budget == 0 {
            return Ok(WriteOutcome::Enough);
        }
        match stream.write(ready) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                outgoing.sent(n);
                *n_budget = n_budget.saturating_sub(n);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(WriteOutcome::SocketIsFull),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads received bytes into `buffer`, which is not empty, and returns their number; `None` if there are none now.
///
/// Fails if the connection has ended, with [`io::ErrorKind::UnexpectedEof`] if the peer has shut down its sending side.
#[inline]
pub fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => return Ok(Some(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// How far a connection that was started with [`connect`](crate::socket::connect) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProgress {
    /// The peer has not answered yet.
    Pending,
    /// Bytes can be sent.
    Established,
}

/// Checks whether a connection is established. Fails if it could not be; each failure is reported once.
pub fn connect_progress(stream: &TcpStream) -> io::Result<ConnectProgress> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(ConnectProgress::Established),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(ConnectProgress::Pending),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::socket;

    /// Both ends of a connection; the first does not block.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    /// Repeats until there is a result.
    fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_read_returns_bytes_then_nothing_and_fails_after_the_end() {
        let (ours, mut theirs) = pair();
        let mut buffer = [0; 8];
        assert_eq!(read(&ours, &mut buffer).unwrap(), None);

        theirs.write_all(b"abc").unwrap();
        assert_eq!(eventually(|| read(&ours, &mut buffer).unwrap()), 3);
        assert_eq!(&buffer[..3], b"abc");
        assert_eq!(read(&ours, &mut buffer).unwrap(), None);

        drop(theirs);
        let error = eventually(|| read(&ours, &mut [0; 8]).err());
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_flush_ends_when_all_is_sent_when_the_socket_is_full_or_at_its_limit() {
        let (ours, mut theirs) = pair();
        let mut outgoing = VecDeque::from(vec![7; 10]);
        let mut n_budget = 0;
        assert_eq!(flush_up_to(&ours, &mut outgoing, &mut n_budget).unwrap(), WriteOutcome::Enough);
        n_budget = 100;
        assert_eq!(flush_up_to(&ours, &mut outgoing, &mut n_budget).unwrap(), WriteOutcome::All);
        assert_eq!((outgoing.len(), n_budget), (0, 90));

        outgoing.extend(vec![8; 64 << 20]);
        assert_eq!(flush(&ours, &mut outgoing).unwrap(), WriteOutcome::SocketIsFull);
        let n_sent = 10 + (64 << 20) - outgoing.len();
        let mut received = vec![0; n_sent];
        theirs.read_exact(&mut received).unwrap();
        assert!(received[..10].iter().all(|byte| *byte == 7) && received[10..].iter().all(|byte| *byte == 8));
    }

    #[test]
    fn a_connection_is_established_or_fails_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();

        let stream = socket::connect(address).unwrap();
        eventually(|| (connect_progress(&stream).unwrap() == ConnectProgress::Established).then_some(()));

        drop((listener, stream));
        let stream = socket::connect(address);
        let error = stream.map_or_else(|error| error, |stream| eventually(|| connect_progress(&stream).err()));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
