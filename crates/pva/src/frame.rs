//! Headers, segments, and the splitting of a byte stream into messages.

use std::fmt;
use std::ops::Range;

use crate::cursor::{ByteOrder, ByteWriter};
use crate::{PROTOCOL_VERSION, limit};

/// Size of every header.
pub const HEADER_BYTES: usize = 8;

/// The first byte of every header.
pub const MAGIC: u8 = 0xca;

const FLAG_CONTROL: u8 = 0x01;
const SEGMENT_BITS: u8 = 0x30;
const SEGMENT_FIRST: u8 = 0x10;
const SEGMENT_LAST: u8 = 0x20;
const FLAG_SERVER: u8 = 0x40;
const FLAG_BIG: u8 = 0x80;

/// Which end sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// Which part of a message a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Portion {
    /// All of it.
    Whole,
    /// The first segment.
    First,
    /// A segment between the first and the last.
    Middle,
    /// The last segment.
    Last,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The protocol version of the sender.
    pub version: u8,
    /// Whether this is a control message, which has no payload.
    pub is_control: bool,
    /// Which part of a message follows.
    pub portion: Portion,
    /// Which end sent it.
    pub from: Sender,
    /// The byte order of this header's number and of the payload.
    pub order: ByteOrder,
    /// The command.
    pub command: u8,
    /// The size of the payload in bytes; of a control message its data.
    pub word: u32,
}

impl Header {
    /// The header of an application message in one piece.
    pub fn of(from: Sender, order: ByteOrder, command: u8, payload_bytes: usize) -> Header {
        debug_assert!(u32::try_from(payload_bytes).is_ok(), "a message has less than 4 GB");
        Header {
            version: PROTOCOL_VERSION,
            is_control: false,
            portion: Portion::Whole,
            from,
            order,
            command,
            word: payload_bytes as u32,
        }
    }

    /// Decodes a header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let [magic, version, flags, command, word @ ..] = *bytes;
        if magic != MAGIC {
            return Err(FrameError::NotPvAccess(magic));
        }
        if version == 0 {
            return Err(FrameError::Obsolete);
        }
        let order = if flags & FLAG_BIG == 0 { ByteOrder::Little } else { ByteOrder::Big };
        Ok(Header {
            version,
            is_control: flags & FLAG_CONTROL != 0,
            portion: match flags & SEGMENT_BITS {
                0 => Portion::Whole,
                SEGMENT_FIRST => Portion::First,
                SEGMENT_LAST => Portion::Last,
                _ => Portion::Middle,
            },
            from: if flags & FLAG_SERVER == 0 { Sender::Client } else { Sender::Server },
            order,
            command,
            word: order.u32_from(word),
        })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let portion = match self.portion {
            Portion::Whole => 0,
            Portion::First => SEGMENT_FIRST,
            Portion::Middle => SEGMENT_BITS,
            Portion::Last => SEGMENT_LAST,
        };
        let flags = portion
            | if self.is_control { FLAG_CONTROL } else { 0 }
            | if self.from == Sender::Server { FLAG_SERVER } else { 0 }
            | if self.order == ByteOrder::Big { FLAG_BIG } else { 0 };
        let [w0, w1, w2, w3] = self.order.u32_bytes(self.word);
        [MAGIC, self.version, flags, self.command, w0, w1, w2, w3]
    }
}

/// Why a stream cannot be split into messages any further. All of these are the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A frame does not start with 0xca.
    NotPvAccess(u8),
    /// The peer has version 0, which every implementation rejects.
    Obsolete,
    /// The peer sent a message of the other direction.
    WrongDirection,
    /// A segment without its predecessor, of another message, or missing at the end.
    Segment,
    /// The payload is larger than the receiver accepts.
    TooLarge {
        /// Size of the payload as declared so far.
        bytes: usize,
        /// What the receiver accepts.
        max: usize,
    },
    /// A datagram ends within a message.
    CutShort,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NotPvAccess(byte) => write!(f, "the frame starts with 0x{byte:02x}, not with 0xca"),
            FrameError::Obsolete => write!(f, "the peer has protocol version 0"),
            FrameError::WrongDirection => write!(f, "the message has the direction of the receiver"),
            FrameError::Segment => write!(f, "a segment is out of place"),
            FrameError::TooLarge { bytes, max } => write!(f, "the message has {bytes} bytes, more than {max}"),
            FrameError::CutShort => write!(f, "the datagram ends within a message"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The sender has sent this many bytes in total; unused.
    MarkTotalBytes(u32),
    /// The sender has received this many bytes in total; unused.
    AckTotalBytes(u32),
    /// The first message of a server: the client must send in the byte order of this header. 0: the server sends in
    /// that order as well; 0xffffffff: each message has its own order. Implementations ignore the number.
    SetByteOrder(u32),
    /// Requests an echo; implementations ignore it.
    EchoRequest(u32),
    /// Replies to a request for an echo.
    EchoResponse(u32),
    /// Any other.
    Unknown(u8, u32),
}

impl Control {
    /// The control message in a header.
    pub fn from_header(header: &Header) -> Control {
        match header.command {
            0 => Control::MarkTotalBytes(header.word),
            1 => Control::AckTotalBytes(header.word),
            2 => Control::SetByteOrder(header.word),
            3 => Control::EchoRequest(header.word),
            4 => Control::EchoResponse(header.word),
            command => Control::Unknown(command, header.word),
        }
    }

    /// The header that is this message.
    pub fn header(&self, from: Sender, order: ByteOrder) -> Header {
        let (command, word) = match *self {
            Control::MarkTotalBytes(word) => (0, word),
            Control::AckTotalBytes(word) => (1, word),
            Control::SetByteOrder(word) => (2, word),
            Control::EchoRequest(word) => (3, word),
            Control::EchoResponse(word) => (4, word),
            Control::Unknown(command, word) => (command, word),
        };
        Header { is_control: true, word, ..Header::of(from, order, command, 0) }
    }
}

/// What a [`Framer`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A control message, and the byte order of its header.
    Control(Control, ByteOrder),
    /// A complete message. The header is that of its first segment.
    Message(Header, &'a [u8]),
    /// Bytes of an incomplete message that are passed on ([`Framer::pass_on`]).
    Piece(&'a [u8]),
}

/// Splits a byte stream into messages and joins segments.
///
/// It stores only bytes that have arrived: the size in a header causes no allocation. A message that arrives in one
/// piece is not copied.
#[derive(Debug)]
pub struct Framer {
    from: Sender,
    payload_bytes_max: usize,
    /// The start of a header.
    partial: Vec<u8>,
    /// The payload of an incomplete message.
    payload: Vec<u8>,
    state: FramerState,
    /// The header of the first segment of an incomplete message in segments.
    segmented: Option<Header>,
    /// How many bytes of the payload of the incomplete message have arrived.
    n_arrived: usize,
    /// How many of the next bytes of the payload are passed on.
    n_to_pass_on: usize,
    /// The payload of the incomplete message is dropped.
    is_skipping: bool,
}

/// A message whose payload is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete<'a> {
    /// The header of its first segment.
    pub header: Header,
    /// The payload that has arrived, without what was passed on.
    pub arrived: &'a [u8],
    /// The size of the payload as declared so far.
    pub declared_bytes: usize,
    /// The most bytes that the payload can have: more than declared while further segments may follow.
    pub bytes_max: usize,
}

/// The comment says what the framer waits for.
#[derive(Clone, Copy, Debug)]
enum FramerState {
    /// A header.
    Header,
    /// This many bytes of the payload of a frame.
    Payload(Header, usize),
    /// The caller, who has received the message in `payload`.
    Delivered,
}

/// A complete frame; the payload is in the input or in the framer.
enum Arrived<'a> {
    Control(Control, ByteOrder),
    InInput(Header, &'a [u8]),
    Stored(Header),
    Piece(&'a [u8]),
}

impl Framer {
    /// A framer for the messages from `from`, which rejects payloads above `payload_bytes_max`, over all segments.
    pub fn new(from: Sender, payload_bytes_max: usize) -> Framer {
        Framer {
            from,
            payload_bytes_max,
            partial: Vec::new(),
            payload: Vec::new(),
            state: FramerState::Header,
            segmented: None,
            n_arrived: 0,
            n_to_pass_on: 0,
            is_skipping: false,
        }
    }

    /// Takes bytes from the front of `input` up to the end of the next message; `None` if it is not complete. The stream
    /// cannot be used after an error.
    #[inline]
    pub fn next<'f, 'i: 'f>(&'f mut self, input: &mut &'i [u8]) -> Result<Option<Frame<'f>>, FrameError> {
        if matches!(self.state, FramerState::Header)
            && self.partial.is_empty()
            && self.segmented.is_none()
            && let Some((header, payload, rest)) = whole_message(self.from, input)
            && payload.len() <= self.payload_bytes_max
        {
            *input = rest;
            return Ok(Some(Frame::Message(header, payload)));
        }
        self.next_portion(input)
    }

    #[inline(never)]
    fn next_portion<'f, 'i: 'f>(&'f mut self, input: &mut &'i [u8]) -> Result<Option<Frame<'f>>, FrameError> {
        Ok(match self.advance(input)? {
            None => None,
            Some(Arrived::Control(control, order)) => Some(Frame::Control(control, order)),
            Some(Arrived::InInput(header, payload)) => Some(Frame::Message(header, payload)),
            Some(Arrived::Stored(header)) => Some(Frame::Message(header, &self.payload)),
            Some(Arrived::Piece(bytes)) => Some(Frame::Piece(bytes)),
        })
    }

    /// Whether a message is incomplete.
    pub fn is_within_message(&self) -> bool {
        !self.partial.is_empty() || matches!(self.state, FramerState::Payload(..)) || self.segmented.is_some()
    }

    /// The memory of the incomplete message.
    pub fn held_bytes(&self) -> usize {
        self.payload.capacity()
    }

    /// How many bytes of the payload of the incomplete message have arrived; 0 between messages.
    pub fn n_arrived(&self) -> usize {
        self.n_arrived
    }

    /// The message whose payload is incomplete; `None` if there is none, or if it is dropped.
    pub fn incomplete(&self) -> Option<Incomplete<'_>> {
        let (header, n_left) = match (self.segmented, self.state) {
            _ if self.is_skipping => return None,
            (None, FramerState::Payload(header, n_left)) => (header, n_left),
            (Some(first), FramerState::Payload(_, n_left)) => (first, n_left),
            (Some(first), _) => (first, 0),
            (None, _) => return None,
        };
        let declared_bytes = self.n_arrived + n_left;
        let bytes_max = if header.portion == Portion::Whole { declared_bytes } else { self.payload_bytes_max };
        Some(Incomplete { header, arrived: &self.payload, declared_bytes, bytes_max })
    }

    /// Takes what has arrived of the incomplete payload from `offset` on out of the message, and the `n_bytes` after it:
    /// these are not stored but passed on as [`Frame::Piece`].
    pub fn pass_on(&mut self, offset: usize, n_bytes: usize) {
        self.payload.truncate(offset);
        self.payload.shrink_to(limit::KEPT_BYTES);
        self.n_to_pass_on = n_bytes;
    }

    /// Abandons the message whose payload is incomplete: frees what has arrived, and drops the rest as it arrives.
    pub fn skip(&mut self) {
        self.is_skipping = self.incomplete().is_some();
        self.payload = Vec::new();
        self.n_to_pass_on = 0;
    }

    fn advance<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Arrived<'a>>, FrameError> {
        loop {
            let (header, n_left) = match self.state {
                FramerState::Payload(header, n_left) => (header, n_left),
                FramerState::Header | FramerState::Delivered => {
                    self.release();
                    let Some(header) = self.header(input)? else { return Ok(None) };
                    if header.is_control {
                        return Ok(Some(Arrived::Control(Control::from_header(&header), header.order)));
                    }
                    self.check(&header)?;
                    let n_bytes = header.word as usize;
                    if header.portion == Portion::Whole
                        && let Some((payload, rest)) = input.split_at_checked(n_bytes)
                    {
                        *input = rest;
                        return Ok(Some(Arrived::InInput(header, payload)));
                    }
                    (header, n_bytes)
                }
            };
            let n_here = if self.n_to_pass_on > 0 { n_left.min(self.n_to_pass_on) } else { n_left };
            let (taken, rest) = input.split_at(n_here.min(input.len()));
            *input = rest;
            if self.n_to_pass_on > 0 && !taken.is_empty() {
                self.n_arrived += taken.len();
                self.n_to_pass_on -= taken.len();
                self.state = FramerState::Payload(header, n_left - taken.len());
                return Ok(Some(Arrived::Piece(taken)));
            }
            self.store(taken, n_left);
            if taken.len() < n_left {
                self.state = FramerState::Payload(header, n_left - taken.len());
                return Ok(None);
            }
            self.state = FramerState::Header;
            match header.portion {
                Portion::First => self.segmented = Some(header),
                Portion::Middle => {}
                Portion::Whole | Portion::Last if self.is_skipping => {
                    (self.is_skipping, self.segmented, self.n_arrived) = (false, None, 0);
                }
                Portion::Whole | Portion::Last => {
                    (self.n_arrived, self.n_to_pass_on) = (0, 0);
                    self.state = FramerState::Delivered;
                    return Ok(Some(Arrived::Stored(self.segmented.take().unwrap_or(header))));
                }
            }
        }
    }

    /// Stores a part of the payload, of which `n_left` bytes are declared. Memory at most doubles, and never exceeds
    /// what is declared.
    fn store(&mut self, taken: &[u8], n_left: usize) {
        self.n_arrived += taken.len();
        if self.is_skipping {
            return;
        }
        let free = self.payload.capacity() - self.payload.len();
        if free < taken.len() {
            self.payload.reserve_exact(n_left.min(taken.len().max(self.payload.capacity())));
        }
        self.payload.extend_from_slice(taken);
    }

    /// Frees the memory of a message that the caller has received.
    fn release(&mut self) {
        if matches!(self.state, FramerState::Delivered) {
            self.state = FramerState::Header;
            self.payload.clear();
            self.payload.shrink_to(limit::KEPT_BYTES);
        }
    }

    /// The next header; `None` if it is not complete.
    fn header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, FrameError> {
        let bytes = match (self.partial.is_empty(), input.split_first_chunk::<HEADER_BYTES>()) {
            (true, Some((bytes, rest))) => {
                *input = rest;
                *bytes
            }
            _ => {
                let n_missing = HEADER_BYTES - self.partial.len();
                let (taken, rest) = input.split_at(n_missing.min(input.len()));
                *input = rest;
                self.partial.extend_from_slice(taken);
                match self.partial.first() {
                    Some(&first) if first != MAGIC => return Err(FrameError::NotPvAccess(first)),
                    _ => {}
                }
                let Some(&bytes) = self.partial.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
                self.partial.clear();
                bytes
            }
        };
        let header = Header::decode(&bytes)?;
        if header.from == self.from { Ok(Some(header)) } else { Err(FrameError::WrongDirection) }
    }

    /// Checks that a frame may follow the frames before it.
    fn check(&self, header: &Header) -> Result<(), FrameError> {
        let is_in_place = match (&self.segmented, header.portion) {
            (None, Portion::Whole | Portion::First) => true,
            (Some(first), Portion::Middle | Portion::Last) => {
                (first.command, first.order) == (header.command, header.order)
            }
            _ => false,
        };
        if !is_in_place {
            return Err(FrameError::Segment);
        }
        let n_before = if self.is_skipping { 0 } else { self.n_arrived };
        let bytes = n_before.saturating_add(header.word as usize);
        if bytes > self.payload_bytes_max {
            return Err(FrameError::TooLarge { bytes, max: self.payload_bytes_max });
        }
        Ok(())
    }
}

/// The message at the front of these bytes and what follows it, if it is complete and in one piece; `None` for everything
/// else.
#[inline]
fn whole_message(from: Sender, bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (&[magic, version, flags, command, ref word @ ..], rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let direction = if from == Sender::Server { FLAG_SERVER } else { 0 };
    if magic != MAGIC || version == 0 || flags & !FLAG_BIG != direction {
        return None;
    }
    let order = if flags & FLAG_BIG == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let word = order.u32_from(*word);
    let (payload, rest) = rest.split_at_checked(word as usize)?;
    let header = Header { version, is_control: false, portion: Portion::Whole, from, order, command, word };
    Some((header, payload, rest))
}

/// The messages of a datagram, up to the first one that is invalid.
pub fn datagram(mut bytes: &[u8]) -> impl Iterator<Item = Result<(Header, &[u8]), FrameError>> {
    let mut next = move || -> Result<Option<(Header, &[u8])>, FrameError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(FrameError::CutShort)?;
        let header = Header::decode(header)?;
        if header.portion != Portion::Whole {
            return Err(FrameError::Segment);
        }
        let n_bytes = if header.is_control { 0 } else { header.word as usize };
        let (payload, rest) = rest.split_at_checked(n_bytes).ok_or(FrameError::CutShort)?;
        bytes = rest;
        Ok(Some((header, payload)))
    };
    let mut has_failed = false;
    std::iter::from_fn(move || {
        if has_failed {
            return None;
        }
        let found = next().transpose();
        has_failed = matches!(found, Some(Err(_)));
        found
    })
}

/// Appends a message in one piece, whose payload `body` writes.
#[inline]
pub fn encode(out: &mut Vec<u8>, from: Sender, order: ByteOrder, command: u8, body: impl FnOnce(&mut ByteWriter)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    body(&mut ByteWriter::new(out, order));
    let header = Header::of(from, order, command, out.len() - start - HEADER_BYTES);
    out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
}

/// Splits the payload of a message into frames of at most `segment_bytes`, usually [`limit::SEGMENT_BYTES`]: for each
/// frame its header, and the range of the payload that follows it. Control messages may be sent between the frames, other
/// messages may not.
pub fn segments(
    header: Header,
    payload_bytes: usize,
    segment_bytes: usize,
) -> impl Iterator<Item = ([u8; HEADER_BYTES], Range<usize>)> {
    let segment_bytes = segment_bytes.max(1);
    let n_segments = payload_bytes.div_ceil(segment_bytes).max(1);
    (0..n_segments).map(move |index| {
        let range = index * segment_bytes..((index + 1) * segment_bytes).min(payload_bytes);
        let portion = match index {
            0 if n_segments == 1 => Portion::Whole,
            0 => Portion::First,
            _ if index + 1 == n_segments => Portion::Last,
            _ => Portion::Middle,
        };
        (Header { portion, word: range.len() as u32, ..header }.encode(), range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn message(command: u8, payload: &[u8], order: ByteOrder) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, Sender::Client, order, command, |to| to.bytes(payload));
        out
    }

    /// Everything that a framer finds in a stream that arrives in pieces.
    fn found(stream: &[u8], piece: usize) -> Result<Vec<(u8, Vec<u8>)>, FrameError> {
        let mut framer = Framer::new(Sender::Client, 1000);
        let mut found = Vec::new();
        for mut piece in stream.chunks(piece) {
            while let Some(frame) = framer.next(&mut piece)? {
                found.push(match frame {
                    Frame::Message(header, payload) => (header.command, payload.to_vec()),
                    Frame::Control(control, order) => {
                        (0xff, control.header(Sender::Client, order).word.to_string().into())
                    }
                    Frame::Piece(_) => unreachable!("nothing is passed on"),
                });
            }
        }
        assert!(!framer.is_within_message());
        Ok(found)
    }

    #[test]
    fn a_stream_is_split_into_the_same_messages_for_any_size_of_its_pieces() {
        for order in ORDERS {
            let control = Control::SetByteOrder(0).header(Sender::Client, order).encode();
            let stream = [message(10, b"first", order), control.to_vec(), message(2, b"", order)].concat();

            for piece in [1, 2, 7, 8, 9, 13, 100] {
                let expected = vec![(10, b"first".to_vec()), (0xff, b"0".to_vec()), (2, Vec::new())];
                assert_eq!(found(&stream, piece), Ok(expected), "{piece}");
            }
        }
    }

    #[test]
    fn segments_are_joined_with_control_messages_between_them() {
        let payload: Vec<u8> = (0..100).collect();
        for order in ORDERS {
            for segment_bytes in [1, 33, 50, 99, 100, 1000] {
                let mut stream = Vec::new();
                for (header, range) in segments(Header::of(Sender::Client, order, 11, 0), 100, segment_bytes) {
                    stream.extend_from_slice(&header);
                    stream.extend_from_slice(&payload[range]);
                    stream.extend_from_slice(&Control::EchoRequest(7).header(Sender::Client, order).encode());
                }

                for piece in [1, 9, 10_000] {
                    let mut found = found(&stream, piece).unwrap();
                    found.retain(|(command, _)| *command != 0xff);
                    assert_eq!(found, [(11, payload.clone())], "{segment_bytes} {piece}");
                }
            }
        }
    }

    #[test]
    fn a_segment_out_of_place_is_an_error() {
        let frames: Vec<Vec<u8>> = segments(Header::of(Sender::Client, ByteOrder::Little, 11, 0), 3, 1)
            .map(|(header, _)| [header.as_slice(), b"x"].concat())
            .collect();
        let other = message(10, b"", ByteOrder::Little);
        let [first, middle, last] = &frames[..] else { unreachable!("three segments") };

        assert_eq!(found(last, 100), Err(FrameError::Segment));
        assert_eq!(found(middle, 100), Err(FrameError::Segment));
        assert_eq!(found(&[first.clone(), first.clone()].concat(), 100), Err(FrameError::Segment));
        assert_eq!(found(&[first.clone(), other].concat(), 100), Err(FrameError::Segment));
        let mut renamed = last.clone();
        renamed[3] = 10;
        assert_eq!(found(&[first.clone(), renamed].concat(), 100), Err(FrameError::Segment));
    }

    #[test]
    fn a_large_size_is_rejected_or_takes_no_memory_before_its_bytes_arrive() {
        let too_large = Header::of(Sender::Client, ByteOrder::Little, 10, 1001).encode();
        assert_eq!(found(&too_large, 8), Err(FrameError::TooLarge { bytes: 1001, max: 1000 }));

        let mut framer = Framer::new(Sender::Client, usize::MAX);
        let claimed = Header::of(Sender::Client, ByteOrder::Little, 10, 0xffff_ffff).encode();
        let mut input = &[claimed.as_slice(), b"abc"].concat()[..];
        assert_eq!(framer.next(&mut input), Ok(None));
        assert!((3..100).contains(&framer.held_bytes()) && framer.is_within_message());

        let mut framer = Framer::new(Sender::Client, 100);
        let mut first = Header::of(Sender::Client, ByteOrder::Little, 10, 60);
        first.portion = Portion::First;
        let mut last = first;
        last.portion = Portion::Last;
        let stream = [first.encode().as_slice(), &[0; 60], &last.encode()].concat();
        assert_eq!(framer.next(&mut &stream[..]), Err(FrameError::TooLarge { bytes: 120, max: 100 }));
    }

    #[test]
    fn an_abandoned_message_is_dropped_as_it_arrives_and_the_next_one_is_found() {
        let next = message(10, b"next", ByteOrder::Little);
        for segment_bytes in [7, 100] {
            let mut stream = Vec::new();
            for (header, range) in segments(Header::of(Sender::Client, ByteOrder::Little, 11, 0), 100, segment_bytes) {
                stream.extend_from_slice(&header);
                stream.extend(range.map(|byte| byte as u8));
            }
            let mut framer = Framer::new(Sender::Client, 1000);
            assert_eq!(framer.next(&mut &stream[..20]), Ok(None));
            let incomplete = framer.incomplete().unwrap();
            let declared_bytes = if segment_bytes == 100 { 100 } else { 7 };
            assert_eq!((incomplete.header.command, incomplete.declared_bytes), (11, declared_bytes));
            assert_eq!(incomplete.arrived[..4], [0, 1, 2, 3]);

            framer.skip();

            assert_eq!((framer.held_bytes(), framer.incomplete()), (0, None));
            assert!(framer.is_within_message());
            stream.extend_from_slice(&next);
            let mut rest = &stream[20..];
            let found = framer.next(&mut rest);
            assert!(
                matches!(found, Ok(Some(Frame::Message(header, b"next"))) if header.command == 10),
                "{segment_bytes}"
            );
            assert_eq!((rest.len(), framer.held_bytes(), framer.n_arrived()), (0, 0, 0));
        }
    }

    #[test]
    fn a_part_of_a_message_is_passed_on_and_not_stored() {
        let payload: Vec<u8> = (0..100).collect();
        let next = message(10, b"next", ByteOrder::Little);
        for segment_bytes in [1, 7, 30, 70, 90, 100] {
            let mut stream = Vec::new();
            for (header, range) in segments(Header::of(Sender::Client, ByteOrder::Little, 11, 0), 100, segment_bytes) {
                stream.extend_from_slice(&header);
                stream.extend_from_slice(&payload[range]);
            }
            stream.extend_from_slice(&next);
            for piece in [1, 10, 1000] {
                let mut framer = Framer::new(Sender::Client, 100);
                let (mut passed_on, mut messages) = (Vec::new(), Vec::new());
                let mut is_passed_on = false;
                let (start, rest) = stream.split_at(HEADER_BYTES + 1);
                for mut piece in std::iter::once(start).chain(rest.chunks(piece)) {
                    while let Some(frame) = framer.next(&mut piece).unwrap() {
                        match frame {
                            Frame::Message(_, payload) => messages.push(payload.to_vec()),
                            Frame::Piece(bytes) => passed_on.extend_from_slice(bytes),
                            Frame::Control(..) => unreachable!("the stream has none"),
                        }
                    }
                    if let Some(incomplete) = framer.incomplete().filter(|_| !is_passed_on) {
                        assert_eq!(incomplete.arrived, [0]);
                        assert_eq!(incomplete.bytes_max, 100);
                        framer.pass_on(1, 89);
                        is_passed_on = true;
                    }
                }

                assert_eq!(passed_on, payload[1..90], "{segment_bytes} {piece}");
                let lacking = [&payload[..1], &payload[90..]].concat();
                assert_eq!(messages, [lacking, b"next".to_vec()], "{segment_bytes} {piece}");
                assert!(framer.held_bytes() < 100 && framer.n_arrived() == 0);
            }
        }
    }

    #[test]
    fn an_incomplete_message_in_segments_declares_the_sizes_of_the_segments_so_far() {
        let mut stream = Vec::new();
        for (header, range) in segments(Header::of(Sender::Client, ByteOrder::Little, 11, 0), 20, 10) {
            stream.extend_from_slice(&header);
            stream.extend(range.map(|byte| byte as u8));
        }
        let first_end = HEADER_BYTES + 10;
        // Within the first payload, after it, within the second header, within the second payload.
        for (n_bytes, n_arrived, declared_bytes) in
            [(first_end - 4, 6, 10), (first_end, 10, 10), (first_end + 3, 10, 10), (stream.len() - 4, 16, 20)]
        {
            let mut framer = Framer::new(Sender::Client, 1000);
            assert_eq!(framer.incomplete(), None);

            assert_eq!(framer.next(&mut &stream[..n_bytes]), Ok(None));

            let incomplete = framer.incomplete().unwrap();
            assert_eq!((incomplete.header.portion, incomplete.arrived.len()), (Portion::First, n_arrived), "{n_bytes}");
            assert_eq!(incomplete.declared_bytes, declared_bytes, "{n_bytes}");
        }
    }

    #[test]
    fn the_memory_of_an_incomplete_message_never_exceeds_its_declared_size() {
        let stream = message(11, &[7; 100_000], ByteOrder::Little);
        let mut framer = Framer::new(Sender::Client, 1 << 20);
        let (last, most) = stream.split_last().unwrap();
        for mut piece in most.chunks(1000) {
            let n_arrived = framer.n_arrived();
            assert_eq!(framer.next(&mut piece), Ok(None));
            assert!(framer.n_arrived() > n_arrived && framer.held_bytes() <= 100_000);
        }

        assert!(
            matches!(framer.next(&mut &[*last][..]), Ok(Some(Frame::Message(_, payload))) if payload == [7; 100_000])
        );
    }

    #[test]
    fn another_protocol_or_direction_is_an_error() {
        assert_eq!(found(b"GET / HTTP/1.1", 100), Err(FrameError::NotPvAccess(b'G')));
        assert_eq!(found(b"GE", 1), Err(FrameError::NotPvAccess(b'G')), "before a header is complete");
        assert_eq!(found(&[0xcb, 2, 0, 2, 0, 0, 0, 0], 100), Err(FrameError::NotPvAccess(0xcb)));
        assert_eq!(found(&[0xca, 0, 0, 1, 0, 0, 0, 0], 100), Err(FrameError::Obsolete));
        let from_server = Header::of(Sender::Server, ByteOrder::Big, 1, 0).encode();
        assert_eq!(found(&from_server, 100), Err(FrameError::WrongDirection));
        let later = Header { version: 99, ..Header::of(Sender::Client, ByteOrder::Big, 2, 0) }.encode();
        assert_eq!(found(&later, 100), Ok(vec![(2, Vec::new())]));
    }

    #[test]
    fn every_control_message_has_its_command() {
        for (command, control) in [
            (0, Control::MarkTotalBytes(7)),
            (1, Control::AckTotalBytes(7)),
            (2, Control::SetByteOrder(7)),
            (3, Control::EchoRequest(7)),
            (4, Control::EchoResponse(7)),
            (5, Control::Unknown(5, 7)),
        ] {
            let bytes = control.header(Sender::Server, ByteOrder::Big).encode();

            assert_eq!(bytes, [0xca, 2, 0xc1, command, 0, 0, 0, 7]);
            assert_eq!(Control::from_header(&Header::decode(&bytes).unwrap()), control);
        }
    }

    #[test]
    fn a_payload_of_the_maximum_size_is_accepted_in_any_pieces_and_a_larger_one_in_none() {
        for piece in [1, 1007, 2000] {
            let received = |n_bytes| found(&message(10, &vec![7; n_bytes], ByteOrder::Little), piece);

            assert_eq!(received(1000), Ok(vec![(10, vec![7; 1000])]));
            assert_eq!(received(1001), Err(FrameError::TooLarge { bytes: 1001, max: 1000 }));
        }
    }

    #[test]
    fn messages_are_appended_to_what_the_buffer_contains() {
        let mut out = Vec::new();
        for payload in [b"one".as_slice(), b"three"] {
            encode(&mut out, Sender::Client, ByteOrder::Big, 2, |to| to.bytes(payload));
        }

        assert_eq!(found(&out, 100), Ok(vec![(2, b"one".to_vec()), (2, b"three".to_vec())]));
    }

    #[test]
    fn an_error_says_what_the_peer_did() {
        for (error, text) in [
            (FrameError::NotPvAccess(b'G'), "the frame starts with 0x47, not with 0xca"),
            (FrameError::Obsolete, "the peer has protocol version 0"),
            (FrameError::WrongDirection, "the message has the direction of the receiver"),
            (FrameError::Segment, "a segment is out of place"),
            (FrameError::TooLarge { bytes: 9, max: 8 }, "the message has 9 bytes, more than 8"),
            (FrameError::CutShort, "the datagram ends within a message"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_datagram_may_contain_several_messages() {
        let two = [message(22, b"0123456789abcdef", ByteOrder::Big), message(3, b"x", ByteOrder::Little)].concat();

        let commands: Vec<_> =
            datagram(&two).map(|found| found.map(|(header, payload)| (header.command, payload))).collect();
        assert_eq!(commands, [Ok((22, b"0123456789abcdef".as_slice())), Ok((3, b"x".as_slice()))]);
        let cut: Vec<_> =
            datagram(&two[..two.len() - 1]).map(|found| found.map(|(header, _)| header.command)).collect();
        assert_eq!(cut, [Ok(22), Err(FrameError::CutShort)]);
    }
}
