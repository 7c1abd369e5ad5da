//! Commands of a CLU after decryption: what is decoded is encoded to the same, and values are read as they were written.

use fodo_clu::command::{Reply, Request};
use fodo_clu::om_lua::OmLua;
use fodo_clu::value::{self, ClientReport};

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    if let Some(request) = Request::decode(bytes) {
        let mut command = Vec::new();
        request.encode(&mut command);
        assert_eq!(Request::decode(&command), Some(request));
    }
    if let Some(reply) = Reply::decode(bytes) {
        let mut command = Vec::new();
        reply.encode(&mut command);
        assert_eq!(Reply::decode(&command), Some(reply));
        if let Reply::Executed { value, .. } = reply {
            feed_value(value);
        }
    }
    feed_value(bytes);
    let text = String::from_utf8_lossy(bytes);
    let file = OmLua::parse(&text);
    assert!(file.objects.len() + file.variables.len() <= text.lines().count());
}

fn feed_value(text: &[u8]) {
    let list = ClientReport::parse(text).map_or(text, |report| report.list);
    if let Some(values) = value::parse_list(list) {
        assert!(values.len() <= list.len());
        let mut written = Vec::new();
        value::write_list(&values, &mut written);
        let again = value::parse_list(&written).expect("a written list is a list");
        // Not a number is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{values:?}"));
    }
    if let Some(scalar) = value::parse_value(text) {
        value::write_expression(&scalar, &mut Vec::new());
    }
}
