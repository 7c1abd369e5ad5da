//! A pvRequest as text, or, after a first byte of 0 or 1, as it is received: a type and a value.

use fodo_data::{Kind, normative_type};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::request::PvRequest;
use fodo_pva::types::TypeCache;
use fodo_pva::value;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let request = match bytes {
        [order @ 0..=1, rest @ ..] => {
            let order = if *order == 0 { ByteOrder::Little } else { ByteOrder::Big };
            let received = value::decode_any(&mut ByteReader::new(rest, order), &mut TypeCache::new());
            let Some(received) = received else { return };
            PvRequest::from_structure(&received)
        }
        text => {
            let Ok(request) = PvRequest::parse(&String::from_utf8_lossy(text)) else { return };
            assert_eq!(PvRequest::parse(&request.to_string()), Ok(request.clone()));
            let sent = PvRequest::from_structure(&request.to_structure());
            assert!(request.groups.is_empty() || sent.groups.len() == request.groups.len());
            request
        }
    };
    let kind = normative_type(Kind::F64, false);
    if let Ok(selection) = request.selection("field", &kind) {
        assert!(selection.iter().all(|bit| bit < kind.nodes().len()));
    }
}
