//! A type of pvAccess, and values of it: first a whole one, then changes.
//!
//! The lowest bit of the first byte selects the byte order.

use fodo_data::{EventMask, NormativeLayout, Structure};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::types::{self, TypeCache};
use fodo_pva::value;

/// How many changes one input may send.
const CHANGES_MAX: usize = 20;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let order = if first & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let mut reader = ByteReader::new(rest, order);
    let mut cache = TypeCache::new();
    let Some(kind) = types::decode(&mut reader, &mut cache) else { return };
    let Some(mut current) = value::decode(&kind, &mut reader, &mut cache) else { return };
    let written = |write: &dyn Fn(&mut ByteWriter)| {
        let mut out = Vec::new();
        write(&mut ByteWriter::new(&mut out, order));
        out
    };

    // Compared as bytes, because NaN is not equal to itself.
    let once = written(&|to| value::encode(&current, to));
    let mut again = ByteReader::new(&once, order);
    let twice =
        value::decode(&kind, &mut again, &mut TypeCache::new()).map(|twice| written(&|to| value::encode(&twice, to)));
    assert_eq!(twice, Some(once));

    let layout = NormativeLayout::of(kind.clone());
    for _ in 0..CHANGES_MAX {
        let mut delta = Structure::new(kind.clone());
        value::decode_changed(&mut delta, &mut reader, &mut cache);
        if reader.has_failed() {
            return;
        }
        assert_eq!(current.apply(&delta), Ok(()));
        let sent = written(&|to| value::encode_bits(&delta, delta.changed(), to));
        let mut same = Structure::new(kind.clone());
        value::decode_changed(&mut same, &mut ByteReader::new(&sent, order), &mut TypeCache::new());
        assert_eq!(written(&|to| value::encode_bits(&same, same.changed(), to)), sent);

        if let Some(layout) = &layout {
            let mut reading = layout.reading(&current);
            reading.meta = Some(layout.meta(&current).into());
            let sent = written(&|to| value::encode_reading(layout, layout.marks(EventMask(15)), &reading, to));
            let mut received = ByteReader::new(&sent, order);
            value::decode_changed(&mut Structure::new(kind.clone()), &mut received, &mut TypeCache::new());
            assert_eq!((received.n_left(), received.finish()), (0, Ok(())));
        }
        if reader.n_left() == 0 {
            return;
        }
    }
}
