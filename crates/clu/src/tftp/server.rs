//! The TFTP server of a CLU.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fodo_data::Now;

use super::message::{TftpErrorCode, TftpMode, TftpPacket};
use super::path::FilePath;
use super::transfer::{Acknowledged, BlockOutcome, BlockReceiver, BlockSender, Retransmission};
use crate::limit;

/// The files of a CLU. A path never leaves its drive; find its names without regard to case.
///
/// Each successful [`FileStore::begin`] is followed by exactly one [`FileStore::commit`] or [`FileStore::abort`].
pub trait FileStore {
    /// Reads a file. Return [`StoreFault::TooLarge`] instead of a file of more than `n_bytes_max` bytes.
    fn read(&mut self, path: &FilePath, n_bytes_max: usize) -> Result<Vec<u8>, StoreFault>;

    /// Begins to write a file. The present file must not change before the commit.
    fn begin(&mut self, transfer: TransferId, path: &FilePath) -> Result<(), StoreFault>;

    /// Appends to the file that is being written.
    fn write(&mut self, transfer: TransferId, content: &[u8]) -> Result<(), StoreFault>;

    /// Replaces the present file with the written one, or fails and keeps the present file.
    fn commit(&mut self, transfer: TransferId) -> Result<(), StoreFault>;

    /// Drops what was written.
    fn abort(&mut self, transfer: TransferId);
}

/// Why a file cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// The file does not exist.
    NotFound,
    /// The file must not be read, or must not be written.
    NotPermitted,
    /// The file is too large.
    TooLarge,
    /// The file system reports an error.
    Failed,
}

impl StoreFault {
    fn code(self) -> TftpErrorCode {
        match self {
            StoreFault::NotFound => TftpErrorCode::NOT_FOUND,
            StoreFault::NotPermitted => TftpErrorCode::ACCESS_VIOLATION,
            StoreFault::TooLarge => TftpErrorCode::DISK_FULL,
            StoreFault::Failed => TftpErrorCode::NOT_DEFINED,
        }
    }

    fn text(self) -> &'static str {
        match self {
            StoreFault::NotFound => "the file does not exist",
            StoreFault::NotPermitted => "access to the file is not permitted",
            StoreFault::TooLarge => "the file is too large",
            StoreFault::Failed => "the file cannot be read or written",
        }
    }
}

/// The number of a transfer, which has a socket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(u64);

/// A socket of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TftpSocket {
    /// Receives requests, usually on port 69.
    Requests,
    /// Of one transfer, on a port that the caller's system chooses.
    Transfer(TransferId),
}

/// The outputs of a server, which the caller carries out in the order of the fields, and empties.
#[derive(Debug, Default)]
pub struct TftpOutput {
    /// Transfers for which a socket must be opened. Without a socket, call [`TftpServer::lock`].
    pub opened: Vec<TransferId>,
    /// What to send: from which socket, to which address.
    pub datagrams: Vec<(TftpSocket, SocketAddr, Vec<u8>)>,
    /// Transfers whose sockets must be closed.
    pub closed: Vec<TransferId>,
}

impl TftpOutput {
    fn send(&mut self, from: TftpSocket, to: SocketAddr, packet: &TftpPacket<'_>) {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        self.datagrams.push((from, to, bytes));
    }

    fn refuse(&mut self, from: TftpSocket, to: SocketAddr, code: TftpErrorCode, text: &str) {
        self.send(from, to, &TftpPacket::Error { code, text: text.as_bytes() });
    }
}

/// What a server permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TftpServerConfig {
    /// Maximum size of a file.
    pub file_bytes_max: usize,
    /// How long an address may wait with its first transfer after [`TftpServer::unlock`].
    pub unlocked_time: Duration,
    /// How long after a transfer the same address may begin another one. Zero locks the server with the first transfer;
    /// Object Manager transfers several files after one request.
    pub next_transfer_time: Duration,
}

impl Default for TftpServerConfig {
    fn default() -> TftpServerConfig {
        TftpServerConfig {
            file_bytes_max: limit::TFTP_FILE_BYTES_MAX,
            unlocked_time: limit::TFTP_UNLOCKED_TIME,
            next_transfer_time: limit::TFTP_NEXT_TRANSFER_TIME,
        }
    }
}

/// What happened since the start of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TftpServerCounts {
    /// Datagrams that are not valid packets.
    pub malformed: u64,
    /// Requests from addresses for which the server is locked; they get no reply.
    pub locked: u64,
    /// Requests that were refused, for example because a file does not exist.
    pub refused: u64,
    /// Packets on the socket of a transfer from an address or a port that does not take part in it.
    pub foreign: u64,
    /// Valid packets without effect: repeated ones, and those that their receiver does not expect.
    pub ignored: u64,
    /// Packets that were sent again because no reply was received.
    pub retransmitted: u64,
    /// Files that were read completely.
    pub files_read: u64,
    /// Files that were written and replaced.
    pub files_written: u64,
    /// Transfers that ended before the file was complete.
    pub failed: u64,
}

/// The TFTP server of a CLU. It is locked until [`TftpServer::unlock`].
///
/// ```
/// use fodo_clu::tftp::{FilePath, FileStore, StoreFault, TftpMode, TftpOutput, TftpPacket, TftpServer, TftpServerConfig};
/// use fodo_clu::tftp::{TftpSocket, TransferId};
/// use fodo_data::Now;
///
/// struct OneFile;
/// impl FileStore for OneFile {
///     fn read(&mut self, path: &FilePath, _n_bytes_max: usize) -> Result<Vec<u8>, StoreFault> {
///         let is_known = Some(path) == FilePath::parse(b"a:\\MAIN.LUA").as_ref();
///         if is_known { Ok(b"SYSTEM.Init()".to_vec()) } else { Err(StoreFault::NotFound) }
///     }
///     fn begin(&mut self, _: TransferId, _: &FilePath) -> Result<(), StoreFault> { Err(StoreFault::NotPermitted) }
///     fn write(&mut self, _: TransferId, _: &[u8]) -> Result<(), StoreFault> { Ok(()) }
///     fn commit(&mut self, _: TransferId) -> Result<(), StoreFault> { Ok(()) }
///     fn abort(&mut self, _: TransferId) {}
/// }
///
/// let client = ([10, 0, 0, 1], 5000).into();
/// let (mut server, now, mut out) = (TftpServer::new(TftpServerConfig::default()), Now::for_test(), TftpOutput::default());
/// let mut request = Vec::new();
/// TftpPacket::Read { path: b"a:\\main.lua", mode: Some(TftpMode::Octet) }.encode(&mut request);
///
/// server.received(TftpSocket::Requests, client, &request, &mut OneFile, now, &mut out);
/// assert!(out.datagrams.is_empty(), "the server is locked");
///
/// server.unlock([10, 0, 0, 1].into(), now);
/// server.received(TftpSocket::Requests, client, &request, &mut OneFile, now, &mut out);
/// let transfer = TftpSocket::Transfer(out.opened[0]);
/// assert_eq!(out.datagrams, [(transfer, client, b"\0\x03\0\x01SYSTEM.Init()".to_vec())]);
/// ```
pub struct TftpServer {
    config: TftpServerConfig,
    /// Until when each address may begin a transfer.
    unlocked: HashMap<IpAddr, Instant>,
    transfers: BTreeMap<TransferId, ServedTransfer>,
    next_transfer: u64,
    counts: TftpServerCounts,
}

struct ServedTransfer {
    client: SocketAddr,
    path: FilePath,
    stage: TransferStage,
    retransmission: Retransmission,
}

/// What a transfer waits for.
enum TransferStage {
    /// For the acknowledgement of a block.
    Sending(BlockSender),
    /// For the next block.
    Receiving { blocks: BlockReceiver, n_bytes: usize },
    /// For the repeated last block of a written file, whose acknowledgement was lost, until its time is over.
    Written(BlockReceiver),
}

/// How a transfer continues after a packet.
enum TransferStep {
    Continue,
    /// The file was read completely.
    Read,
    /// It ends; the client receives an error, if there is one.
    Failed(Option<(TftpErrorCode, &'static str)>),
}

impl From<StoreFault> for TransferStep {
    fn from(fault: StoreFault) -> TransferStep {
        TransferStep::Failed(Some((fault.code(), fault.text())))
    }
}

impl TftpServer {
    /// Creates a locked server.
    pub fn new(config: TftpServerConfig) -> TftpServer {
        TftpServer {
            config,
            unlocked: HashMap::new(),
            transfers: BTreeMap::new(),
            next_transfer: 0,
            counts: TftpServerCounts::default(),
        }
    }

    /// Permits an address to begin a transfer; false if too many other addresses have this permission.
    pub fn unlock(&mut self, client: IpAddr, now: Now) -> bool {
        self.unlocked.retain(|_, until| *until > now.monotonic);
        if self.unlocked.len() >= limit::TFTP_UNLOCKED_MAX && !self.unlocked.contains_key(&client) {
            return false;
        }
        self.unlocked.insert(client, now.monotonic + self.config.unlocked_time);
        true
    }

    /// Ends all transfers and all permissions.
    pub fn lock(&mut self, files: &mut impl FileStore, out: &mut TftpOutput) {
        self.unlocked.clear();
        let text = "the server was stopped";
        let failed: Vec<TransferId> = self.transfers.keys().copied().collect();
        for id in failed {
            self.fail(id, Some((TftpErrorCode::NOT_DEFINED, text)), None, files, out);
        }
    }

    /// Whether any address may begin a transfer, or has one.
    pub fn is_unlocked(&self, now: Now) -> bool {
        !self.transfers.is_empty() || self.unlocked.values().any(|until| *until > now.monotonic)
    }

    /// Handles a packet.
    pub fn received(
        &mut self,
        socket: TftpSocket,
        from: SocketAddr,
        packet: &[u8],
        files: &mut impl FileStore,
        now: Now,
        out: &mut TftpOutput,
    ) {
        let Some(packet) = TftpPacket::decode(packet) else {
            self.counts.malformed += 1;
            return;
        };
        match socket {
            TftpSocket::Requests => self.requested(from, packet, files, now.monotonic, out),
            TftpSocket::Transfer(id) => self.continued(id, from, packet, files, now.monotonic, out),
        }
    }

    fn requested(
        &mut self,
        from: SocketAddr,
        packet: TftpPacket<'_>,
        files: &mut impl FileStore,
        now: Instant,
        out: &mut TftpOutput,
    ) {
        let (TftpPacket::Read { path, mode } | TftpPacket::Write { path, mode }) = packet else {
            self.counts.ignored += 1;
            return;
        };
        if self.unlocked.get(&from.ip()).is_none_or(|until| *until <= now) {
            self.counts.locked += 1;
            return;
        }
        let is_repeated =
            |transfer: &ServedTransfer| transfer.client == from && !matches!(transfer.stage, TransferStage::Written(_));
        if self.transfers.values().any(is_repeated) {
            self.counts.ignored += 1;
            return;
        }
        let is_write = matches!(packet, TftpPacket::Write { .. });
        if let Err((code, text)) = self.begin(from, path, mode, is_write, files, now, out) {
            self.counts.refused += 1;
            out.refuse(TftpSocket::Requests, from, code, text);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    fn begin(
        &mut self,
        client: SocketAddr,
        path: &[u8],
        mode: Option<TftpMode>,
        is_write: bool,
        files: &mut impl FileStore,
        now: Instant,
        out: &mut TftpOutput,
    ) -> Result<(), (TftpErrorCode, &'static str)> {
        let mode = mode.ok_or((TftpErrorCode::ILLEGAL, "the mode must be octet or netascii"))?;
        let path = FilePath::parse(path).ok_or((TftpErrorCode::ACCESS_VIOLATION, "the path is not valid"))?;
        let refusal = |fault: StoreFault| (fault.code(), fault.text());
        if is_write {
            self.replace_writer(client, &path, files, out)?;
        }
        self.reserve(out)?;
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let stage = if is_write {
            files.begin(id, &path).map_err(refusal)?;
            TransferStage::Receiving { blocks: BlockReceiver::new(mode), n_bytes: 0 }
        } else {
            let file = files.read(&path, self.config.file_bytes_max).map_err(refusal)?;
            if file.len() > self.config.file_bytes_max {
                return Err(refusal(StoreFault::TooLarge));
            }
            TransferStage::Sending(BlockSender::new(&file, mode))
        };
        let transfer = ServedTransfer { client, path, stage, retransmission: Retransmission::start(now) };
        out.opened.push(id);
        out.send(TftpSocket::Transfer(id), client, &transfer.packet());
        self.transfers.insert(id, transfer);
        Ok(())
    }

    /// Permits one writer of a file. A client that has started again replaces its own transfer.
    fn replace_writer(
        &mut self,
        client: SocketAddr,
        path: &FilePath,
        files: &mut impl FileStore,
        out: &mut TftpOutput,
    ) -> Result<(), (TftpErrorCode, &'static str)> {
        let writes = |transfer: &ServedTransfer| {
            transfer.path == *path && matches!(transfer.stage, TransferStage::Receiving { .. })
        };
        let Some((id, other)) = self.transfers.iter().find(|(_, transfer)| writes(transfer)) else { return Ok(()) };
        if other.client.ip() != client.ip() {
            return Err((TftpErrorCode::ACCESS_VIOLATION, "another client writes the file"));
        }
        let id = *id;
        self.fail(id, Some((TftpErrorCode::NOT_DEFINED, "the transfer was started again")), None, files, out);
        Ok(())
    }

    /// Ensures that there is space for a transfer.
    fn reserve(&mut self, out: &mut TftpOutput) -> Result<(), (TftpErrorCode, &'static str)> {
        if self.transfers.len() < limit::TFTP_TRANSFERS_MAX {
            return Ok(());
        }
        let is_over = |transfer: &ServedTransfer| matches!(transfer.stage, TransferStage::Written(_));
        let Some(id) = self.transfers.iter().find(|(_, transfer)| is_over(transfer)).map(|(id, _)| *id) else {
            return Err((TftpErrorCode::NOT_DEFINED, "too many transfers"));
        };
        self.transfers.remove(&id);
        out.closed.push(id);
        Ok(())
    }

    /// Whether the sender of a packet is the client of the transfer. Another one receives an error.
    fn takes_part(&mut self, id: TransferId, from: SocketAddr, packet: TftpPacket<'_>, out: &mut TftpOutput) -> bool {
        match self.transfers.get(&id) {
            None => self.counts.ignored += 1,
            Some(transfer) if transfer.client == from => return true,
            Some(_) => {
                self.counts.foreign += 1;
                if !matches!(packet, TftpPacket::Error { .. }) {
                    let text = "this port belongs to another transfer";
                    out.refuse(TftpSocket::Transfer(id), from, TftpErrorCode::UNKNOWN_TRANSFER, text);
                }
            }
        }
        false
    }

    fn continued(
        &mut self,
        id: TransferId,
        from: SocketAddr,
        packet: TftpPacket<'_>,
        files: &mut impl FileStore,
        now: Instant,
        out: &mut TftpOutput,
    ) {
        let socket = TftpSocket::Transfer(id);
        if !self.takes_part(id, from, packet, out) {
            return;
        }
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let step = match (&mut transfer.stage, packet) {
            (_, TftpPacket::Error { .. }) => TransferStep::Failed(None),
            (TransferStage::Sending(blocks), TftpPacket::Acknowledge { block }) => match blocks.acknowledged(block) {
                Acknowledged::All => TransferStep::Read,
                Acknowledged::Next => {
                    out.send(socket, from, &blocks.packet());
                    transfer.retransmission = Retransmission::start(now);
                    TransferStep::Continue
                }
                Acknowledged::Ignored => {
                    self.counts.ignored += 1;
                    TransferStep::Continue
                }
            },
            (TransferStage::Receiving { blocks, n_bytes }, TftpPacket::Block { block, content }) => {
                let mut file = Vec::new();
                match blocks.received(block, content, &mut file) {
                    BlockOutcome::Next { is_last } => {
                        *n_bytes += file.len();
                        let is_too_large = *n_bytes > self.config.file_bytes_max;
                        let written = if is_too_large { Err(StoreFault::TooLarge) } else { files.write(id, &file) };
                        match written {
                            Err(fault) => fault.into(),
                            Ok(()) if is_last => return self.commit(id, files, now, out),
                            Ok(()) => {
                                out.send(socket, from, &blocks.packet());
                                transfer.retransmission = Retransmission::start(now);
                                TransferStep::Continue
                            }
                        }
                    }
                    other => {
                        self.counts.ignored += 1;
                        if other == BlockOutcome::Repeated {
                            out.send(socket, from, &blocks.packet());
                        }
                        TransferStep::Continue
                    }
                }
            }
            (TransferStage::Written(blocks), TftpPacket::Block { block, .. }) => {
                self.counts.ignored += 1;
                if blocks.packet() == (TftpPacket::Acknowledge { block }) {
                    out.send(socket, from, &blocks.packet());
                }
                TransferStep::Continue
            }
            _ => {
                self.counts.ignored += 1;
                TransferStep::Continue
            }
        };
        self.finish_step(id, from, step, files, now, out);
    }

    fn finish_step(
        &mut self,
        id: TransferId,
        client: SocketAddr,
        step: TransferStep,
        files: &mut impl FileStore,
        now: Instant,
        out: &mut TftpOutput,
    ) {
        match step {
            TransferStep::Continue => {}
            TransferStep::Read => {
                self.counts.files_read += 1;
                self.transfers.remove(&id);
                out.closed.push(id);
                self.permit_next(client.ip(), now);
            }
            TransferStep::Failed(error) => self.fail(id, error, Some(now), files, out),
        }
    }

    /// Replaces the file, then acknowledges the last block, so that the client knows that the file was written.
    fn commit(&mut self, id: TransferId, files: &mut impl FileStore, now: Instant, out: &mut TftpOutput) {
        let Some(mut transfer) = self.transfers.remove(&id) else { return };
        let (client, socket) = (transfer.client, TftpSocket::Transfer(id));
        self.permit_next(client.ip(), now);
        let TransferStage::Receiving { blocks, .. } = transfer.stage else { return };
        match files.commit(id) {
            Ok(()) => {
                self.counts.files_written += 1;
                out.send(socket, client, &blocks.packet());
                transfer.stage = TransferStage::Written(blocks);
                transfer.retransmission = Retransmission::start(now);
                self.transfers.insert(id, transfer);
            }
            Err(fault) => {
                self.counts.failed += 1;
                out.refuse(socket, client, fault.code(), fault.text());
                out.closed.push(id);
            }
        }
    }

    fn fail(
        &mut self,
        id: TransferId,
        error: Option<(TftpErrorCode, &'static str)>,
        now: Option<Instant>,
        files: &mut impl FileStore,
        out: &mut TftpOutput,
    ) {
        let Some(transfer) = self.transfers.remove(&id) else { return };
        out.closed.push(id);
        match transfer.stage {
            TransferStage::Written(_) => return,
            TransferStage::Receiving { .. } => files.abort(id),
            TransferStage::Sending(_) => {}
        }
        self.counts.failed += 1;
        if let Some((code, text)) = error {
            out.refuse(TftpSocket::Transfer(id), transfer.client, code, text);
        }
        if let Some(now) = now {
            self.permit_next(transfer.client.ip(), now);
        }
    }

    /// After a transfer, an address has a short time for the next one.
    fn permit_next(&mut self, client: IpAddr, now: Instant) {
        if self.config.next_transfer_time.is_zero() {
            self.unlocked.remove(&client);
        } else if self.unlocked.len() < limit::TFTP_UNLOCKED_MAX || self.unlocked.contains_key(&client) {
            self.unlocked.insert(client, now + self.config.next_transfer_time);
        }
    }

    /// Sends packets again that have no reply, and ends transfers whose client is silent.
    pub fn tick(&mut self, files: &mut impl FileStore, now: Now, out: &mut TftpOutput) {
        let now = now.monotonic;
        self.unlocked.retain(|_, until| *until > now);
        let due: Vec<TransferId> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.retransmission.at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(transfer) = self.transfers.get_mut(&id) else { continue };
            let is_written = matches!(transfer.stage, TransferStage::Written(_));
            match transfer.retransmission.again(now) {
                // The last acknowledgement is sent again only if the client repeats its last block.
                Some(again) if is_written => transfer.retransmission = again,
                Some(again) => {
                    transfer.retransmission = again;
                    self.counts.retransmitted += 1;
                    out.send(TftpSocket::Transfer(id), transfer.client, &transfer.packet());
                }
                // Silence gives no time for another transfer: the address may be forged.
                None => self.fail(id, Some((TftpErrorCode::NOT_DEFINED, "timeout")), None, files, out),
            }
        }
    }

    /// When to call [`TftpServer::tick`] at the latest; also when a permission ends, so that the caller can then close the
    /// socket for requests ([`TftpServer::is_unlocked`]).
    pub fn deadline(&self) -> Option<Instant> {
        let transfers = self.transfers.values().map(|transfer| transfer.retransmission.at);
        transfers.chain(self.unlocked.values().copied()).min()
    }

    /// What happened since the start.
    pub fn counts(&self) -> TftpServerCounts {
        self.counts
    }
}

impl ServedTransfer {
    /// The last packet that was sent.
    fn packet(&self) -> TftpPacket<'_> {
        match &self.stage {
            TransferStage::Sending(blocks) => blocks.packet(),
            TransferStage::Receiving { blocks, .. } | TransferStage::Written(blocks) => blocks.packet(),
        }
    }
}
