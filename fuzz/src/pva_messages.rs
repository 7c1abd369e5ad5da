//! The stream of a circuit or a datagram: frames, segments and the fields of every message.
//!
//! The first byte selects the sender and stream or datagram, the second the size of the pieces of a stream.

use fodo_pva::beacon::Beacon;
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::{self, Frame, Framer, Header, Sender};
use fodo_pva::message::{Answer, Request};
use fodo_pva::search::{OriginTag, SearchRequest, SearchResponse};
use fodo_pva::types::TypeCache;
use fodo_pva::validation::Credentials;

/// The largest accepted payload; small, so that inputs can exceed it.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let [which, length, rest @ ..] = bytes else { return };
    if which & 2 != 0 {
        return frame::datagram(rest).flatten().for_each(|(header, payload)| feed_message(&header, payload));
    }
    let from = if which & 1 == 0 { Sender::Client } else { Sender::Server };
    let mut framer = Framer::new(from, PAYLOAD_BYTES_MAX);
    for mut piece in rest.chunks(usize::from(*length).max(1)) {
        loop {
            match framer.next(&mut piece) {
                Ok(Some(Frame::Message(header, payload))) => feed_message(&header, payload),
                Ok(Some(Frame::Control(..) | Frame::Piece(_))) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        // Twice what has arrived, and what is kept for the next message.
        assert!(framer.held_bytes() <= 2 * rest.len() + 2 * fodo_pva::limit::KEPT_BYTES);
    }
}

fn feed_message(header: &Header, payload: &[u8]) {
    let mut reader = ByteReader::new(payload, header.order);
    match header.from {
        Sender::Client => {
            let request = Request::decode(header.command, &mut reader);
            assert!(!request.to_string().is_empty());
            if !reader.has_failed() {
                let body = reader.rest();
                let sent = written(|out| request.encode(header.order, out, |to| to.bytes(body)));
                let mut again = ByteReader::new(sent.get(frame::HEADER_BYTES..).unwrap_or_default(), header.order);
                assert_eq!(Request::decode(header.command, &mut again), request);
                feed_body(header.order, &request, body);
            }
        }
        Sender::Server => {
            let answer = Answer::decode(header.command, &mut reader);
            assert!(!answer.to_string().is_empty());
            if !reader.has_failed() {
                let body = reader.rest();
                let sent = written(|out| answer.encode(header.order, out, |to| to.bytes(body)));
                let mut again = ByteReader::new(sent.get(frame::HEADER_BYTES..).unwrap_or_default(), header.order);
                assert_eq!(Answer::decode(header.command, &mut again), answer);
                feed_answer_body(header.order, &answer, body);
            }
        }
    }
}

fn feed_body(order: ByteOrder, request: &Request, body: &[u8]) {
    let mut reader = ByteReader::new(body, order);
    match request {
        Request::ConnectionValidation { method, .. } => {
            Credentials::decode(method, &mut reader, &mut TypeCache::new());
        }
        Request::Search {} => {
            let search = SearchRequest::decode(&mut reader);
            if reader.finish().is_ok() {
                let mut sent = Vec::new();
                search.encode(&mut ByteWriter::new(&mut sent, order));
                assert_eq!(SearchRequest::decode(&mut ByteReader::new(&sent, order)), search);
            }
        }
        Request::OriginTag {} => {
            OriginTag::decode(&mut reader);
        }
        _ => {}
    }
}

fn feed_answer_body(order: ByteOrder, answer: &Answer, body: &[u8]) {
    let mut reader = ByteReader::new(body, order);
    match answer {
        Answer::SearchResponse {} => {
            let response = SearchResponse::decode(&mut reader);
            if reader.finish().is_ok() {
                let mut sent = Vec::new();
                response.encode(&mut ByteWriter::new(&mut sent, order));
                assert_eq!(SearchResponse::decode(&mut ByteReader::new(&sent, order)), response);
            }
        }
        Answer::Beacon {} => {
            Beacon::decode(&mut reader);
        }
        _ => {}
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}
