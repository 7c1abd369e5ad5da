//! The files of a CLU, by TFTP.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fodo_clu::OutgoingDatagrams;
use fodo_clu::limit::{REQUEST_TIMEOUT_MAX, TFTP_FILE_BYTES_MAX};
use fodo_clu::tftp::{TftpClient, TftpFailure, TftpMode};
use fodo_data::Now;

use crate::clock;

/// The port of the TFTP server of a CLU.
pub const CLU_TFTP_PORT: u16 = 69;

/// The size of a block.
const BLOCK_BYTES: u64 = 512;

/// Why a file was not transferred. See the example of [`download_file`].
#[derive(Debug)]
pub struct TransferError {
    /// The TFTP server.
    pub server: SocketAddr,
    /// The name of the file.
    pub path: String,
    /// The reason.
    pub reason: TransferFailure,
}

/// The reason why a file was not transferred. See the example of [`download_file`].
#[derive(Debug)]
pub enum TransferFailure {
    /// The server refused the transfer, does not reply, or the file is too large.
    Tftp(TftpFailure),
    /// The time of the caller was over.
    TimedOut(Duration),
    /// The system did not send or receive a datagram.
    Socket(io::Error),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot transfer {:?} with {}: ", self.path, self.server)?;
        match &self.reason {
            TransferFailure::Tftp(TftpFailure::TooLarge) => {
                write!(f, "the file has more than the maximum of {TFTP_FILE_BYTES_MAX} bytes")
            }
            TransferFailure::Tftp(failure) => write!(f, "{failure}"),
            TransferFailure::TimedOut(after) => {
                write!(f, "the transfer did not end within {after:?}; is the TFTP server of the CLU started?")
            }
            TransferFailure::Socket(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TransferError {}

/// Reads a file of a CLU, whose TFTP server must have been started
/// ([`CluRequest::StartTftp`](super::CluRequest::StartTftp)). Blocks until the file is complete or `timeout` has passed.
///
/// `tftp`: the address of the CLU, usually with [`CLU_TFTP_PORT`]. `path`: for example `a:\MAIN.LUA`. A file of more than
/// 16 MiB is not read.
///
/// ```no_run
/// use std::time::Duration;
///
/// use fodo_net::clu::{CLU_TFTP_PORT, TransferFailure, download_file, upload_file};
///
/// let (tftp, timeout) = (([10, 0, 0, 2], CLU_TFTP_PORT).into(), Duration::from_secs(30));
/// match download_file(tftp, "a:\\USER.LUA", timeout) {
///     Ok(script) => upload_file(tftp, "a:\\USER.LUA", &[&script[..], b"\n-- checked\n"].concat(), timeout)?,
///     Err(error) if matches!(error.reason, TransferFailure::TimedOut(_)) => eprintln!("the CLU is slow"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # Ok::<(), fodo_net::clu::TransferError>(())
/// ```
pub fn download_file(tftp: SocketAddr, path: &str, timeout: Duration) -> Result<Vec<u8>, TransferError> {
    download_file_with_progress(tftp, path, timeout, |_| {})
}

/// The same; `progress` is called after each block with about how many bytes were transferred.
///
/// ```no_run
/// use std::time::Duration;
///
/// use fodo_net::clu::{CLU_TFTP_PORT, download_file_with_progress};
///
/// let (tftp, timeout) = (([10, 0, 0, 2], CLU_TFTP_PORT).into(), Duration::from_secs(30));
/// let script = download_file_with_progress(tftp, "a:\\USER.LUA", timeout, |n_bytes| eprint!("\r{n_bytes}"))?;
/// # Ok::<(), fodo_net::clu::TransferError>(())
/// ```
pub fn download_file_with_progress(
    tftp: SocketAddr,
    path: &str,
    timeout: Duration,
    progress: impl FnMut(u64),
) -> Result<Vec<u8>, TransferError> {
    let begin =
        |now, out: &mut OutgoingDatagrams| TftpClient::read(tftp, path, TftpMode::Octet, TFTP_FILE_BYTES_MAX, now, out);
    transfer(tftp, path, timeout, begin, progress)
}

/// Writes a file of a CLU, as [`download_file`] reads one. The CLU replaces its file after the last block. More than 16 MiB
/// are refused.
pub fn upload_file(tftp: SocketAddr, path: &str, content: &[u8], timeout: Duration) -> Result<(), TransferError> {
    upload_file_with_progress(tftp, path, content, timeout, |_| {})
}

/// The same; `progress` is called after each block with about how many bytes were transferred.
///
/// ```no_run
/// use std::time::Duration;
///
/// use fodo_net::clu::{CLU_TFTP_PORT, upload_file_with_progress};
///
/// let (tftp, timeout) = (([10, 0, 0, 2], CLU_TFTP_PORT).into(), Duration::from_secs(30));
/// upload_file_with_progress(tftp, "a:\\USER.LUA", b"-- empty\n", timeout, |n_bytes| eprint!("\r{n_bytes}"))?;
/// # Ok::<(), fodo_net::clu::TransferError>(())
/// ```
pub fn upload_file_with_progress(
    tftp: SocketAddr,
    path: &str,
    content: &[u8],
    timeout: Duration,
    progress: impl FnMut(u64),
) -> Result<(), TransferError> {
    if content.len() > TFTP_FILE_BYTES_MAX {
        let reason = TransferFailure::Tftp(TftpFailure::TooLarge);
        return Err(TransferError { server: tftp, path: path.to_owned(), reason });
    }
    let begin = |now, out: &mut OutgoingDatagrams| TftpClient::write(tftp, path, TftpMode::Octet, content, now, out);
    transfer(tftp, path, timeout, begin, progress).map(|_| ())
}

fn transfer(
    server: SocketAddr,
    path: &str,
    timeout: Duration,
    begin: impl FnOnce(Now, &mut OutgoingDatagrams) -> TftpClient,
    progress: impl FnMut(u64),
) -> Result<Vec<u8>, TransferError> {
    let failed = |reason| TransferError { server, path: path.to_owned(), reason };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| failed(TransferFailure::Socket(error)))?;
    let now = clock::now();
    let mut out = OutgoingDatagrams::default();
    let client = begin(now, &mut out);
    let deadline = now.monotonic + timeout.min(REQUEST_TIMEOUT_MAX);
    match exchange(&socket, client, &mut out, deadline, progress) {
        Ok(Some(outcome)) => outcome.map_err(|failure| failed(TransferFailure::Tftp(failure))),
        Ok(None) => Err(failed(TransferFailure::TimedOut(timeout))),
        Err(error) => Err(failed(TransferFailure::Socket(error))),
    }
}

/// Sends and receives until the transfer ends; `None` at the deadline.
fn exchange(
    socket: &UdpSocket,
    mut client: TftpClient,
    out: &mut OutgoingDatagrams,
    deadline: Instant,
    mut progress: impl FnMut(u64),
) -> io::Result<Option<Result<Vec<u8>, TftpFailure>>> {
    // The largest packet has 516 bytes.
    let mut packet = [0; 1024];
    let mut n_packets = 0;
    loop {
        for (to, packet) in out.iter() {
            socket.send_to(packet, to)?;
        }
        out.clear();
        if let Some(outcome) = client.take_outcome() {
            return Ok(Some(outcome));
        }
        let until = client.deadline().map_or(deadline, |at| at.min(deadline));
        let remaining = until.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(remaining.max(Duration::from_millis(1))))?;
        let received = socket.recv_from(&mut packet);
        let now = clock::now();
        match received {
            Ok((n_bytes, from)) => {
                client.received(from, &packet[..n_bytes], now, out);
                // Each packet is a block or acknowledges one; few are repeated.
                n_packets += 1;
                progress(n_packets * BLOCK_BYTES);
            }
            Err(error) if is_temporary(error.kind()) => {}
            Err(error) => return Err(error),
        }
        client.tick(now, out);
        if now.monotonic >= deadline && client.outcome().is_none() {
            return Ok(None);
        }
    }
}

fn is_temporary(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
