//! Packets from arbitrary clients to the TFTP server of a CLU, on the socket for requests and on those of transfers.
//!
//! The input is a series of packets, each after three bytes: the socket with the client, the time since the previous one,
//! and the length.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::tftp::{
    FilePath, FileStore, StoreFault, TftpOutput, TftpServer, TftpServerConfig, TftpSocket, TransferId,
};
use fodo_data::Now;

/// Small, so that an input reaches it.
const FILE_BYTES_MAX: usize = 1500;

/// Files of a drive that checks how it is used.
#[derive(Default)]
struct CheckedFiles {
    open: BTreeSet<TransferId>,
}

impl FileStore for CheckedFiles {
    fn read(&mut self, path: &FilePath, n_bytes_max: usize) -> Result<Vec<u8>, StoreFault> {
        check_path(path);
        match path.names().last().unwrap_or_default().len() % 3 {
            0 => Err(StoreFault::NotFound),
            1 => Ok(vec![b'\n'; n_bytes_max]),
            _ => Ok(b"a\r".to_vec()),
        }
    }

    fn begin(&mut self, transfer: TransferId, path: &FilePath) -> Result<(), StoreFault> {
        check_path(path);
        assert!(self.open.insert(transfer), "a transfer begins once");
        Ok(())
    }

    fn write(&mut self, transfer: TransferId, content: &[u8]) -> Result<(), StoreFault> {
        assert!(self.open.contains(&transfer) && content.len() <= 513);
        Ok(())
    }

    fn commit(&mut self, transfer: TransferId) -> Result<(), StoreFault> {
        assert!(self.open.remove(&transfer), "a transfer ends once");
        Ok(())
    }

    fn abort(&mut self, transfer: TransferId) {
        assert!(self.open.remove(&transfer), "a transfer ends once");
    }
}

fn check_path(path: &FilePath) {
    assert!(path.drive().is_ascii_lowercase());
    assert!(
        path.names().all(|name| !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':']))
    );
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let config = TftpServerConfig { file_bytes_max: FILE_BYTES_MAX, ..TftpServerConfig::default() };
    let (mut server, mut files, mut now) = (TftpServer::new(config), CheckedFiles::default(), Now::for_test());
    let mut out = TftpOutput::default();
    let mut sockets: Vec<TransferId> = Vec::new();
    let mut rest = bytes;
    while let [first, time, length, after @ ..] = rest {
        let (packet, next) = after.split_at(after.len().min(usize::from(*length) * 3));
        rest = next;
        let client = SocketAddr::from(([10, 0, 0, first & 1], 5000 + u16::from(first >> 1 & 1)));
        now = now + Duration::from_millis(u64::from(*time) * 40);
        if first & 4 > 0 {
            server.unlock(client.ip(), now);
        }
        let socket = match sockets.get(usize::from(first >> 3) % (sockets.len() + 1)) {
            Some(id) => TftpSocket::Transfer(*id),
            None => TftpSocket::Requests,
        };
        server.received(socket, client, packet, &mut files, now, &mut out);
        server.tick(&mut files, now, &mut out);
        assert!(server.deadline().is_none_or(|due| due > now.monotonic), "an action that was due was not performed");
        settle(&mut out, &mut sockets);
        assert!(sockets.len() <= fodo_clu::limit::TFTP_TRANSFERS_MAX);
    }
    server.lock(&mut files, &mut out);
    settle(&mut out, &mut sockets);
    assert!(files.open.is_empty() && sockets.is_empty(), "all transfers have ended");
}

/// Opens and closes the sockets of transfers.
fn settle(out: &mut TftpOutput, sockets: &mut Vec<TransferId>) {
    sockets.append(&mut out.opened);
    for (_, _, packet) in out.datagrams.drain(..) {
        assert!(packet.len() <= 516);
    }
    for id in out.closed.drain(..) {
        let index = sockets.iter().position(|other| *other == id);
        sockets.remove(index.expect("an open socket"));
    }
}
