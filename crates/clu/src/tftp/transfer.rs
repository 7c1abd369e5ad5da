//! What both ends of a transfer share: sending and receiving blocks, and the time until a packet is sent again.

use std::time::Instant;

use super::message::{BLOCK_BYTES, TftpMode, TftpPacket};
use super::netascii::{NetasciiReader, to_netascii};
use crate::limit;

/// Sends a file, one block at a time.
#[derive(Debug)]
pub(super) struct BlockSender {
    content: Vec<u8>,
    /// Where the block in flight starts.
    offset: usize,
    /// The number of the block in flight.
    block: u16,
}

/// What an acknowledgement means for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// The next block must be sent.
    Next,
    /// All blocks were received.
    All,
    /// It is a repeated one, or for a block that was not sent. It must have no effect: two answers to repeated
    /// acknowledgements would double all packets until the end (the Sorcerer's Apprentice bug).
    Ignored,
}

impl BlockSender {
    pub(super) fn new(file: &[u8], mode: TftpMode) -> BlockSender {
        let content = match mode {
            TftpMode::Octet => file.to_vec(),
            TftpMode::Netascii => to_netascii(file),
        };
        BlockSender { content, offset: 0, block: 1 }
    }

    /// The block in flight.
    pub(super) fn packet(&self) -> TftpPacket<'_> {
        TftpPacket::Block { block: self.block, content: &self.content[self.offset..self.end()] }
    }

    fn end(&self) -> usize {
        self.content.len().min(self.offset + BLOCK_BYTES)
    }

    pub(super) fn acknowledged(&mut self, block: u16) -> Acknowledged {
        if block != self.block {
            return Acknowledged::Ignored;
        }
        let end = self.end();
        if end - self.offset < BLOCK_BYTES {
            return Acknowledged::All;
        }
        self.offset = end;
        self.block = self.block.wrapping_add(1);
        Acknowledged::Next
    }
}

/// Receives a file, one block at a time.
#[derive(Debug)]
pub(super) struct BlockReceiver {
    /// The number of the last block that was received, at first 0.
    last: u16,
    text: Option<NetasciiReader>,
}

/// What a block means for the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOutcome {
    /// It is the next block; `is_last` if the file ends with it.
    Next { is_last: bool },
    /// It was received before, so its acknowledgement was lost.
    Repeated,
    /// It is neither of them.
    Ignored,
}

impl BlockReceiver {
    pub(super) fn new(mode: TftpMode) -> BlockReceiver {
        let text = (mode == TftpMode::Netascii).then(NetasciiReader::default);
        BlockReceiver { last: 0, text }
    }

    /// Accepts a block and appends its content to `file`, if it is the next one.
    pub(super) fn received(&mut self, block: u16, content: &[u8], file: &mut Vec<u8>) -> BlockOutcome {
        if block == self.last {
            return BlockOutcome::Repeated;
        }
        if block != self.last.wrapping_add(1) {
            return BlockOutcome::Ignored;
        }
        self.last = block;
        let is_last = content.len() < BLOCK_BYTES;
        match &mut self.text {
            Some(text) => {
                text.read(content, file);
                if is_last {
                    text.end(file);
                }
            }
            None => file.extend_from_slice(content),
        }
        BlockOutcome::Next { is_last }
    }

    /// The acknowledgement of the last block that was received.
    pub(super) fn packet(&self) -> TftpPacket<'static> {
        TftpPacket::Acknowledge { block: self.last }
    }
}

/// When the last packet is sent again, and how often it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retransmission {
    n_sent: u32,
    pub(super) at: Instant,
}

impl Retransmission {
    /// A packet was sent for the first time.
    pub(super) fn start(now: Instant) -> Retransmission {
        Retransmission { n_sent: 1, at: now + limit::TFTP_RETRANSMIT_AFTER }
    }

    /// The packet is sent again, unless it was sent often enough; then the transfer has failed.
    pub(super) fn again(self, now: Instant) -> Option<Retransmission> {
        let n_sent = self.n_sent + 1;
        (n_sent <= limit::TFTP_TRIES).then_some(Retransmission { n_sent, at: now + limit::TFTP_RETRANSMIT_AFTER })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_whole_blocks_ends_with_an_empty_one() {
        let mut sender = BlockSender::new(&[1; 1024], TftpMode::Octet);
        let mut sizes = Vec::new();
        loop {
            let TftpPacket::Block { block, content } = sender.packet() else { panic!("not a block") };
            sizes.push((block, content.len()));
            match sender.acknowledged(block) {
                Acknowledged::Next => {}
                other => break assert_eq!(other, Acknowledged::All),
            }
        }
        assert_eq!(sizes, [(1, 512), (2, 512), (3, 0)]);
    }

    /// 65536 blocks of 512 bytes are 32 MiB.
    #[test]
    fn block_numbers_wrap_on_both_sides_and_block_0_is_written_once() {
        let file: Vec<u8> = (0..66_000_u32 * 512 + 5).map(|index| (index / 512) as u8).collect();
        let (mut sender, mut receiver) =
            (BlockSender::new(&file, TftpMode::Octet), BlockReceiver::new(TftpMode::Octet));
        let mut copy = Vec::with_capacity(file.len());
        loop {
            let TftpPacket::Block { block, content } = sender.packet() else { panic!("not a block") };
            assert!(matches!(receiver.received(block, content, &mut copy), BlockOutcome::Next { .. }));
            assert_eq!(receiver.received(block, content, &mut copy), BlockOutcome::Repeated);
            if sender.acknowledged(block) == Acknowledged::All {
                break;
            }
            assert_eq!(sender.acknowledged(block), Acknowledged::Ignored);
        }
        assert!(copy == file);
    }
}
