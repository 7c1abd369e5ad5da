//! Splits a byte stream into messages, at both ends of a circuit.

use std::time::Instant;

use fodo_data::{Array, Now, Reading};

use crate::body::Incoming;
use crate::dbr::DbrType;
use crate::limit;
use crate::message::Header;

/// How to handle the payload of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Collect it in memory.
    Whole,
    /// It is a value of this type and count: decode it as it arrives, into the memory of an array if one is given.
    Value(DbrType, u32, Option<Array>),
    /// Drop it; the receiver has already replied.
    Skip,
    /// Close the circuit.
    Close(&'static str),
}

/// The state machine that receives the messages.
pub trait MessageHandler {
    /// Whether peers send this command at all; called before waiting for the rest of a message.
    fn knows(&self, command: u16) -> bool;
    /// Called for a header with a large payload, before any of the payload is stored.
    fn plan(&mut self, header: &Header) -> Plan;
    /// Called for a complete message.
    fn message(&mut self, header: &Header, payload: &[u8]);
    /// Called for a payload whose size is not a multiple of 8 bytes; the last call before the stream is abandoned.
    fn misaligned(&mut self, header: &Header);
    /// Called for a complete message planned as [`Plan::Value`].
    fn value(&mut self, header: &Header, reading: Reading);
    /// Whether the circuit was closed during a message.
    fn is_closed(&self) -> bool;
}

/// The state between two messages: nothing, the start of a message, or a payload in progress.
#[derive(Debug, Default)]
pub struct Framer {
    /// The bytes of an incomplete message; at most one, and small.
    partial: Vec<u8>,
    under_way: Option<(Header, PartialPayload)>,
    /// When an incomplete message started, or a large one last made progress.
    waits_since: Option<Instant>,
    /// Bytes of a large message that have arrived since then.
    n_arrived: usize,
}

#[derive(Debug)]
enum PartialPayload {
    Value(Box<Incoming>),
    Skip(usize),
}

impl Framer {
    /// Splits bytes into messages. `Err`: the bytes cannot be parsed any further.
    pub fn feed(&mut self, mut bytes: &[u8], now: Now, receiver: &mut impl MessageHandler) -> Result<(), &'static str> {
        while !bytes.is_empty() && !receiver.is_closed() {
            if self.under_way.is_some() {
                let n_before = bytes.len();
                self.go_on(&mut bytes, receiver)?;
                self.n_arrived += n_before - bytes.len();
            } else if self.partial.is_empty() {
                let n_consumed = self.start(bytes, receiver)?;
                if n_consumed == 0 {
                    self.partial.extend_from_slice(bytes);
                    break;
                }
                bytes = &bytes[n_consumed..];
            } else {
                self.complete(&mut bytes, receiver)?;
            }
        }
        if self.under_way.is_none() && self.partial.is_empty() {
            self.waits_since = None;
        } else if self.n_arrived >= limit::MESSAGE_PROGRESS_BYTES {
            (self.waits_since, self.n_arrived) = (Some(now.monotonic), 0);
        } else {
            // The timeout starts at the first byte, so that a client cannot trickle a message.
            self.waits_since.get_or_insert(now.monotonic);
        }
        Ok(())
    }

    /// The memory of the incomplete message.
    pub fn held_bytes(&self) -> usize {
        let under_way = match &self.under_way {
            Some((_, PartialPayload::Value(incoming))) => incoming.held_bytes(),
            Some((_, PartialPayload::Skip(_))) | None => 0,
        };
        self.partial.len() + under_way
    }

    /// Whether every message that started to arrive is complete.
    pub fn is_between_messages(&self) -> bool {
        self.partial.is_empty() && self.under_way.is_none() && self.waits_since.is_none()
    }

    /// Abandons the value that is arriving: frees what has arrived and drops the rest as it arrives. Returns the header
    /// of its message; `None` if no value is arriving.
    pub fn skip_value(&mut self) -> Option<Header> {
        let Some((header, PartialPayload::Value(incoming))) = &self.under_way else { return None };
        let (header, n_left) = (*header, incoming.bytes_left());
        self.under_way = Some((header, PartialPayload::Skip(n_left)));
        Some(header)
    }

    /// Restarts the timeout of an incomplete message, because nothing was read for a while.
    pub fn resume(&mut self, now: Now) {
        self.waits_since = self.waits_since.map(|_| now.monotonic);
    }

    /// When an incomplete message times out.
    pub fn deadline(&self) -> Option<Instant> {
        self.waits_since.map(|since| since + limit::MESSAGE_TIMEOUT)
    }

    /// Processes one message, or its header if the payload can be planned, from the front of `bytes`. Returns the
    /// number of bytes used; 0 if bytes are missing.
    #[inline(always)]
    fn start(&mut self, bytes: &[u8], receiver: &mut impl MessageHandler) -> Result<usize, &'static str> {
        let Some((header, n_header)) = Header::decode(bytes) else {
            // A peer with another protocol may send only one word, and no known command starts with this byte.
            let is_known = Header::least_command(bytes).is_none_or(|command| receiver.knows(command));
            return if is_known { Ok(0) } else { Err("unknown command") };
        };
        let n_consumed = self.start_with(&header, n_header, bytes, receiver)?;
        if n_consumed == 0 && !receiver.knows(header.command) {
            // A peer with another protocol may never send the rest of this message.
            receiver.message(&header, &[]);
            return Err("unknown command");
        }
        Ok(n_consumed)
    }

    #[inline(always)]
    fn start_with(
        &mut self,
        header: &Header,
        n_header: usize,
        bytes: &[u8],
        receiver: &mut impl MessageHandler,
    ) -> Result<usize, &'static str> {
        if !header.payload_bytes.is_multiple_of(8) {
            receiver.misaligned(header);
            return Err("payload size is not a multiple of 8 bytes");
        }
        let payload_bytes = header.payload_bytes as usize;
        let n_message = n_header + payload_bytes;
        if payload_bytes >= limit::BULK_BYTES {
            let under_way = match receiver.plan(header) {
                Plan::Close(reason) => return Err(reason),
                Plan::Value(dbr, count, room) => {
                    let incoming = Incoming::new(dbr, count, payload_bytes, room);
                    PartialPayload::Value(Box::new(incoming.map_err(|_| "payload is too small for its count")?))
                }
                Plan::Skip => PartialPayload::Skip(payload_bytes),
                Plan::Whole => return Ok(self.whole(header, n_header, n_message, bytes, receiver)),
            };
            self.under_way = Some((*header, under_way));
            (self.waits_since, self.n_arrived) = (None, 0);
            return Ok(n_header);
        }
        Ok(self.whole(header, n_header, n_message, bytes, receiver))
    }

    #[inline(always)]
    fn whole(
        &mut self,
        header: &Header,
        n_header: usize,
        n_message: usize,
        bytes: &[u8],
        receiver: &mut impl MessageHandler,
    ) -> usize {
        match bytes.get(n_header..n_message) {
            Some(payload) => {
                receiver.message(header, payload);
                n_message
            }
            None => 0,
        }
    }

    /// Adds to the partial message exactly the bytes that it lacks.
    #[cold]
    fn complete(&mut self, bytes: &mut &[u8], receiver: &mut impl MessageHandler) -> Result<(), &'static str> {
        let n_required = match Header::decode(&self.partial) {
            Some((header, n_header)) => n_header + header.payload_bytes as usize,
            // The header is incomplete: one byte at a time is cheap enough for at most 24 bytes.
            None => self.partial.len() + 1,
        };
        let n_consumed = bytes.len().min(n_required.saturating_sub(self.partial.len()).max(1));
        self.partial.extend_from_slice(&bytes[..n_consumed]);
        *bytes = &bytes[n_consumed..];
        let partial = std::mem::take(&mut self.partial);
        let n_used = self.start(&partial, receiver)?;
        if n_used > 0 {
            self.waits_since = None;
        }
        self.partial = partial;
        self.partial.drain(..n_used);
        Ok(())
    }

    fn go_on(&mut self, bytes: &mut &[u8], receiver: &mut impl MessageHandler) -> Result<(), &'static str> {
        let Some((header, under_way)) = self.under_way.take() else { return Ok(()) };
        match under_way {
            PartialPayload::Skip(n_left) => {
                let n_skipped = bytes.len().min(n_left);
                *bytes = &bytes[n_skipped..];
                if n_skipped < n_left {
                    self.under_way = Some((header, PartialPayload::Skip(n_left - n_skipped)));
                    return Ok(());
                }
            }
            PartialPayload::Value(mut incoming) => {
                if !incoming.take(bytes) {
                    self.under_way = Some((header, PartialPayload::Value(incoming)));
                    return Ok(());
                }
                let reading = incoming.finish().map_err(|_| "payload does not match its header")?;
                receiver.value(&header, reading);
            }
        }
        self.waits_since = None;
        Ok(())
    }
}
