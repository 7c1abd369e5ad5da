//! The values that a client sends.

use fodo_data::{Reading, Structure, Value};

use super::event::{ChannelType, PutValue};
use crate::cursor::ByteReader;
use crate::types::TypeCache;
use crate::value;

/// Decodes the nodes of a put and their values. After a fault the value is incomplete.
pub(super) fn decode(kind: &ChannelType, reader: &mut ByteReader, types: &mut TypeCache) -> PutValue {
    match kind {
        ChannelType::Flat(layout) => {
            let mut reading = Reading::bare(Value::from(0));
            let bits = value::decode_reading(layout, &mut reading, reader, types);
            let has_value = layout.kind().covered(&bits).any(|nodes| nodes.contains(&layout.value_bit()));
            PutValue::Flat(has_value.then_some(reading.value))
        }
        ChannelType::Structured(kind) => {
            let mut structure = Structure::new(kind.clone());
            value::decode_changed(&mut structure, reader, types);
            PutValue::Structured(structure)
        }
    }
}
