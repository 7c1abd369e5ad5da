//! Type descriptions of pvAccess, one after another on one circuit, with ids.
//!
//! The lowest bit of the first byte selects the byte order.

use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::limit;
use fodo_pva::types::{self, TypeCache, TypeIds};

/// How many types one input may send; a known type costs three bytes, and checking it much more.
const TYPES_MAX: usize = 50;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let order = if first & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let mut reader = ByteReader::new(rest, order);
    let mut cache = TypeCache::new();
    let (mut ids, mut cache_of_ids) = (TypeIds::new(10), TypeCache::new());
    for _ in 0..TYPES_MAX {
        let Some(kind) = types::decode(&mut reader, &mut cache) else {
            if reader.n_left() == 0 {
                return;
            }
            continue;
        };
        assert!(kind.nodes().len() <= limit::TYPE_NODES_MAX);

        // A decoded type is the same after it was sent and received again, also with an id.
        for _ in 0..2 {
            let mut sent = Vec::new();
            ids.encode(&kind, &mut ByteWriter::new(&mut sent, order));
            let mut received = ByteReader::new(&sent, order);
            assert_eq!(types::decode(&mut received, &mut cache_of_ids), Some(kind.clone()));
            assert_eq!((received.n_left(), received.finish()), (0, Ok(())));
        }
    }
}
