//! A TFTP client: reads or writes one file of a CLU.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use fodo_data::Now;

use super::message::{TftpErrorCode, TftpMode, TftpPacket};
use super::transfer::{Acknowledged, BlockOutcome, BlockReceiver, BlockSender, Retransmission};
use crate::OutgoingDatagrams;

/// Why a transfer has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TftpFailure {
    /// The server refused the request or ended the transfer.
    Refused {
        /// Why.
        code: TftpErrorCode,
        /// Why in words of the server.
        text: String,
    },
    /// The server did not reply to a packet that was sent several times; a locked CLU does not reply.
    NoReply,
    /// The file has more bytes than the limit of the caller.
    TooLarge,
}

impl fmt::Display for TftpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TftpFailure::Refused { code, text } => write!(f, "the TFTP server refuses: {text} (error {})", code.0),
            TftpFailure::NoReply => {
                f.write_str("the TFTP server does not reply; is the TFTP server of the CLU started?")
            }
            TftpFailure::TooLarge => f.write_str("the file is too large"),
        }
    }
}

impl std::error::Error for TftpFailure {}

/// One transfer of a file.
///
/// ```
/// use fodo_clu::OutgoingDatagrams;
/// use fodo_clu::tftp::{TftpClient, TftpMode};
/// use fodo_data::Now;
///
/// let (now, mut out) = (Now::for_test(), OutgoingDatagrams::default());
/// let server = ([10, 0, 0, 2], 69).into();
/// let mut client = TftpClient::read(server, "a:\\MAIN.LUA", TftpMode::Octet, 1024, now, &mut out);
/// assert_eq!(out.iter().next(), Some((server, &b"\0\x01a:\\MAIN.LUA\0octet\0"[..])));
///
/// // The server replies from another port.
/// client.received(([10, 0, 0, 2], 40000).into(), b"\0\x03\0\x01SYSTEM.Init()", now, &mut out);
/// assert_eq!(client.outcome(), Some(&Ok(b"SYSTEM.Init()".to_vec())));
/// ```
pub struct TftpClient {
    /// Where requests are sent.
    server: SocketAddr,
    /// From where the server sends, after its first packet.
    peer: Option<SocketAddr>,
    stage: ClientStage,
    /// `None` when the transfer needs no other packet.
    retransmission: Option<Retransmission>,
    request: Vec<u8>,
    outcome: Option<Result<Vec<u8>, TftpFailure>>,
}

/// What a client waits for.
enum ClientStage {
    /// For the next block. `file` contains the blocks up to now.
    Reading { blocks: BlockReceiver, file: Vec<u8>, n_bytes_max: usize },
    /// For the reply to its request to write.
    Requesting { blocks: BlockSender },
    /// For the acknowledgement of a block.
    Writing { blocks: BlockSender },
    /// For the repeated last block of a file that was read, whose acknowledgement was lost.
    ReadAll { blocks: BlockReceiver },
    /// For nothing.
    Ended,
}

impl TftpClient {
    /// Begins to read a file. `server`: usually with the port 69. `n_bytes_max`: a larger file is not read.
    pub fn read(
        server: SocketAddr,
        path: &str,
        mode: TftpMode,
        n_bytes_max: usize,
        now: Now,
        out: &mut OutgoingDatagrams,
    ) -> TftpClient {
        let stage = ClientStage::Reading { blocks: BlockReceiver::new(mode), file: Vec::new(), n_bytes_max };
        let request = TftpPacket::Read { path: path.as_bytes(), mode: Some(mode) };
        TftpClient::start(server, &request, stage, now, out)
    }

    /// Begins to write a file.
    pub fn write(
        server: SocketAddr,
        path: &str,
        mode: TftpMode,
        file: &[u8],
        now: Now,
        out: &mut OutgoingDatagrams,
    ) -> TftpClient {
        let stage = ClientStage::Requesting { blocks: BlockSender::new(file, mode) };
        let request = TftpPacket::Write { path: path.as_bytes(), mode: Some(mode) };
        TftpClient::start(server, &request, stage, now, out)
    }

    fn start(
        server: SocketAddr,
        request: &TftpPacket<'_>,
        stage: ClientStage,
        now: Now,
        out: &mut OutgoingDatagrams,
    ) -> TftpClient {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        out.push(server, |datagram| datagram.extend_from_slice(&bytes));
        let retransmission = Some(Retransmission::start(now.monotonic));
        TftpClient { server, peer: None, stage, retransmission, request: bytes, outcome: None }
    }

    /// Handles a packet.
    pub fn received(&mut self, from: SocketAddr, packet: &[u8], now: Now, out: &mut OutgoingDatagrams) {
        let Some(packet) = TftpPacket::decode(packet).filter(|_| from.ip() == self.server.ip()) else { return };
        if self.peer.is_some_and(|peer| peer != from) {
            // For example the second transfer that a server began for a repeated request.
            if !matches!(packet, TftpPacket::Error { .. }) {
                let text = b"this port belongs to another transfer";
                send(out, from, &TftpPacket::Error { code: TftpErrorCode::UNKNOWN_TRANSFER, text });
            }
            return;
        }
        let now = now.monotonic;
        let stage = std::mem::replace(&mut self.stage, ClientStage::Ended);
        self.stage = match (stage, packet) {
            (ClientStage::Ended, _) => return,
            (stage @ ClientStage::ReadAll { .. }, TftpPacket::Error { .. }) => stage,
            (_, TftpPacket::Error { code, text }) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.end(Err(TftpFailure::Refused { code, text }))
            }
            (ClientStage::Reading { blocks, file, n_bytes_max }, TftpPacket::Block { block, content }) => {
                self.peer = Some(from);
                self.read_block(blocks, file, n_bytes_max, block, content, now, out)
            }
            (ClientStage::ReadAll { blocks }, TftpPacket::Block { block, .. }) => {
                if blocks.packet() == (TftpPacket::Acknowledge { block }) {
                    send(out, from, &blocks.packet());
                }
                ClientStage::ReadAll { blocks }
            }
            (ClientStage::Requesting { blocks }, TftpPacket::Acknowledge { block: 0 }) => {
                self.peer = Some(from);
                self.send_block(blocks, from, now, out)
            }
            (ClientStage::Writing { mut blocks }, TftpPacket::Acknowledge { block }) => {
                match blocks.acknowledged(block) {
                    Acknowledged::Next => self.send_block(blocks, from, now, out),
                    Acknowledged::All => self.end(Ok(Vec::new())),
                    Acknowledged::Ignored => ClientStage::Writing { blocks },
                }
            }
            (stage, _) => stage,
        };
    }

    #[expect(clippy::too_many_arguments, reason = "the state and the parts of a block")]
    fn read_block(
        &mut self,
        mut blocks: BlockReceiver,
        mut file: Vec<u8>,
        n_bytes_max: usize,
        block: u16,
        content: &[u8],
        now: Instant,
        out: &mut OutgoingDatagrams,
    ) -> ClientStage {
        let Some(peer) = self.peer else { return ClientStage::Reading { blocks, file, n_bytes_max } };
        match blocks.received(block, content, &mut file) {
            BlockOutcome::Ignored => ClientStage::Reading { blocks, file, n_bytes_max },
            BlockOutcome::Repeated => {
                send(out, peer, &blocks.packet());
                ClientStage::Reading { blocks, file, n_bytes_max }
            }
            BlockOutcome::Next { .. } if file.len() > n_bytes_max => {
                let text = b"the file is too large";
                send(out, peer, &TftpPacket::Error { code: TftpErrorCode::DISK_FULL, text });
                self.end(Err(TftpFailure::TooLarge))
            }
            BlockOutcome::Next { is_last } => {
                send(out, peer, &blocks.packet());
                self.retransmission = Some(Retransmission::start(now));
                if is_last {
                    self.outcome = Some(Ok(file));
                    ClientStage::ReadAll { blocks }
                } else {
                    ClientStage::Reading { blocks, file, n_bytes_max }
                }
            }
        }
    }

    fn send_block(
        &mut self,
        blocks: BlockSender,
        peer: SocketAddr,
        now: Instant,
        out: &mut OutgoingDatagrams,
    ) -> ClientStage {
        send(out, peer, &blocks.packet());
        self.retransmission = Some(Retransmission::start(now));
        ClientStage::Writing { blocks }
    }

    fn end(&mut self, outcome: Result<Vec<u8>, TftpFailure>) -> ClientStage {
        self.outcome = Some(outcome);
        self.retransmission = None;
        ClientStage::Ended
    }

    /// Sends the last packet again if there is no reply, up to three times.
    pub fn tick(&mut self, now: Now, out: &mut OutgoingDatagrams) {
        let Some(retransmission) = self.retransmission.filter(|retransmission| retransmission.at <= now.monotonic)
        else {
            return;
        };
        if matches!(self.stage, ClientStage::ReadAll { .. }) {
            self.retransmission = None;
            self.stage = ClientStage::Ended;
            return;
        }
        let Some(again) = retransmission.again(now.monotonic) else {
            self.stage = self.end(Err(TftpFailure::NoReply));
            return;
        };
        self.retransmission = Some(again);
        let packet = match &self.stage {
            ClientStage::Writing { blocks } => blocks.packet(),
            ClientStage::Reading { blocks, .. } if self.peer.is_some() => blocks.packet(),
            ClientStage::Reading { .. } | ClientStage::Requesting { .. } => {
                return out.push(self.server, |datagram| datagram.extend_from_slice(&self.request));
            }
            ClientStage::ReadAll { .. } | ClientStage::Ended => return,
        };
        send(out, self.peer.unwrap_or(self.server), &packet);
    }

    /// When to call [`TftpClient::tick`] at the latest. After the outcome of a read, the client waits 5 s more for a
    /// repeated last block, so that the server also knows that the file was read; the caller may drop it earlier.
    pub fn deadline(&self) -> Option<Instant> {
        self.retransmission.map(|retransmission| retransmission.at)
    }

    /// The file that was read, or nothing after a write; `None` while the transfer continues.
    pub fn outcome(&self) -> Option<&Result<Vec<u8>, TftpFailure>> {
        self.outcome.as_ref()
    }

    /// As [`TftpClient::outcome`], which is `None` afterwards.
    pub fn take_outcome(&mut self) -> Option<Result<Vec<u8>, TftpFailure>> {
        self.outcome.take()
    }
}

fn send(out: &mut OutgoingDatagrams, to: SocketAddr, packet: &TftpPacket<'_>) {
    out.push(to, |datagram| packet.encode(datagram));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_silent_server_receives_the_request_three_times() {
        let (start, mut out) = (Now::for_test(), OutgoingDatagrams::default());
        let mut client = TftpClient::write(([10, 0, 0, 2], 69).into(), "a:\\x", TftpMode::Octet, b"x", start, &mut out);

        for second in 1..60 {
            client.tick(start + Duration::from_secs(second), &mut out);
        }

        assert_eq!(out.len(), 3);
        assert_eq!(client.outcome(), Some(&Err(TftpFailure::NoReply)));
        assert_eq!(client.deadline(), None);
    }

    #[test]
    fn packets_of_other_addresses_have_no_effect_and_other_ports_get_an_error() {
        let (now, mut out) = (Now::for_test(), OutgoingDatagrams::default());
        let at = |address: u8, port: u16| SocketAddr::from(([10, 0, 0, address], port));
        let mut client = TftpClient::read(at(2, 69), "a:\\x", TftpMode::Octet, 1024, now, &mut out);
        out.clear();

        client.received(at(3, 5000), b"\0\x05\0\x01no", now, &mut out);
        client.received(at(3, 5000), b"\0\x03\0\x01forged", now, &mut out);
        assert_eq!((out.len(), client.outcome()), (0, None));
        client.received(at(2, 5000), &[&b"\0\x03\0\x01"[..], &[7; 512]].concat(), now, &mut out);
        client.received(at(2, 5001), b"\0\x03\0\x01second", now, &mut out);
        client.received(at(2, 5000), b"\0\x03\0\x02end", now, &mut out);

        let kinds: Vec<_> = out.iter().map(|(to, packet)| (to.port(), packet[1], packet[3])).collect();
        assert_eq!(kinds, [(5000, 4, 1), (5001, 5, 5), (5000, 4, 2)]);
        assert_eq!(client.outcome().map(|outcome| outcome.as_ref().map(Vec::len)), Some(Ok(515)));
    }

    #[test]
    fn a_file_above_the_limit_is_not_read() {
        let (now, mut out) = (Now::for_test(), OutgoingDatagrams::default());
        let mut client = TftpClient::read(([10, 0, 0, 2], 69).into(), "a:\\x", TftpMode::Octet, 4, now, &mut out);
        out.clear();

        client.received(([10, 0, 0, 2], 5000).into(), b"\0\x03\0\x0112345", now, &mut out);

        assert_eq!(client.outcome(), Some(&Err(TftpFailure::TooLarge)));
        assert_eq!(out.iter().next().map(|(_, packet)| packet[..4].to_vec()), Some(vec![0, 5, 0, 3]));
    }
}
