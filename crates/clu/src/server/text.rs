//! Replies as datagrams, and requests that only real CLUs understand.

use std::net::{Ipv4Addr, SocketAddr};

use crate::OutgoingDatagrams;
use crate::cipher::{BLOCK_BYTES, CipherKey};
use crate::command::{Reply, Request, Session};

/// Size of `resp:<address>:<session>:`.
pub(super) fn executed_bytes(address: Ipv4Addr) -> usize {
    let mut reply = Vec::with_capacity(2 * BLOCK_BYTES);
    Reply::Executed { clu: Some(address), session: Session::UPDATE, value: b"" }.encode(&mut reply);
    reply.len()
}

pub(super) fn send(datagrams: &mut OutgoingDatagrams, to: SocketAddr, key: &CipherKey, reply: &Reply<'_>) {
    datagrams.push(to, |bytes| {
        let start = bytes.len();
        reply.encode(bytes);
        key.encrypt_from(start, bytes);
    });
}

/// Keywords of requests without arguments that real CLUs accept with any text after them, and the other name of one. A
/// longer word, such as `req_reset_modules`, is a different request.
pub(super) fn tolerated<'a>(message: &[u8]) -> Option<Request<'a>> {
    let message = message.trim_ascii_start();
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let n_keyword = message.iter().take_while(|byte| is_name_byte(byte)).count();
    match message.get(..n_keyword)? {
        b"req_reset" => Some(Request::Reset { client: None }),
        b"req_start_ftp" => Some(Request::StartTftp {}),
        b"req_stop_ftp" | b"req_tftp_stop" => Some(Request::StopTftp {}),
        _ => None,
    }
}
