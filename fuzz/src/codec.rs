//! Both codecs: a decoded value must survive encoding and decoding again.
//!
//! The first byte selects a header or a value of a type.

use fodo_ca::dbr::{self, DbrType};
use fodo_ca::message::{Answer, Header, Request};
use fodo_data::Reading;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 2 {
        0 => feed_header(rest),
        _ => feed_value(rest),
    }
}

fn feed_header(bytes: &[u8]) {
    let Some((header, n_taken)) = Header::decode(bytes) else { return };
    assert!(n_taken <= bytes.len());
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(Header::decode(&again), Some((header, again.len())));

    // A decoded message keeps its meaning, whatever else the header contains.
    let (request, answer) = (Request::from_header(&header), Answer::from_header(&header));
    let payload_bytes = header.payload_bytes as usize;
    assert_eq!(Request::from_header(&request.header(payload_bytes)), request);
    assert_eq!(Answer::from_header(&answer.header(payload_bytes)), answer);
    assert!(!request.to_string().is_empty() && !answer.to_string().is_empty());
}

fn feed_value(bytes: &[u8]) {
    let [high, low, count, payload @ ..] = bytes else { return };
    let dbr = DbrType(u16::from_be_bytes([*high, *low]) % 40);
    let count = u32::from(*count);
    let Ok(reading) = dbr::decode(dbr, count, payload) else { return };
    let Some((again, n_bytes)) = encoded(dbr, &reading) else { return };
    assert!(n_bytes <= payload.len().max(dbr.payload_bytes(1).unwrap_or(0)) + 8, "no larger than the input");
    // Compared as text, because NaN is not equal to itself.
    let Some((twice, _)) = encoded(dbr, &again) else { unreachable!("what was encoded once can be encoded again") };
    assert_eq!(format!("{again:?}"), format!("{twice:?}"));
}

/// A reading after encoding and decoding, and its encoded size; `None` for write-only types.
fn encoded(dbr: DbrType, reading: &Reading) -> Option<(Reading, usize)> {
    let mut payload = Vec::new();
    let count = dbr::encode(dbr, 0, reading, &mut payload).ok()?;
    dbr::decode(dbr, count, &payload).ok().map(|reading| (reading, payload.len()))
}
