//! The servers beside a CLU: they return each datagram, as it is or decrypted and encrypted again.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use super::wire;

/// Prefix of the line in which an echo prints its port.
pub const ECHO_READY: &str = "echo on port ";

/// Size of the receive buffer: more than any request.
const BUFFER_BYTES: usize = 2048;

/// Serves at a free port of `host`, which `announce` receives, until the process ends.
///
/// `encrypts`: decrypts and encrypts each datagram; drops what the key does not decrypt. `lose_every`: drops each datagram
/// whose number is a multiple of it, to test that clients notice.
pub fn serve(
    host: Ipv4Addr,
    encrypts: bool,
    lose_every: Option<u64>,
    announce: impl FnOnce(u16) -> io::Result<()>,
) -> io::Result<()> {
    let socket = UdpSocket::bind((host, 0))?;
    announce(socket.local_addr()?.port())?;
    let key = encrypts.then(wire::key);
    let (mut received, mut message, mut reply) = ([0; BUFFER_BYTES], Vec::new(), Vec::new());
    let mut number = 0_u64;
    loop {
        let (n, from) = match socket.recv_from(&mut received) {
            Ok(received) => received,
            // A client that has ended: the next one is not concerned.
            Err(failure) if failure.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(failure) => return Err(failure),
        };
        number += 1;
        if lose_every.is_some_and(|every| number.is_multiple_of(every.max(1))) {
            continue;
        }
        let datagram = received.get(..n).unwrap_or_default();
        let sent = match &key {
            None => socket.send_to(datagram, from),
            Some(key) => {
                let Some(plain) = key.decrypt(datagram, &mut message) else { continue };
                reply.clear();
                key.encrypt(plain, &mut reply);
                socket.send_to(&reply, from)
            }
        };
        // A client that has ended receives nothing; a full buffer is a lost datagram, which the client counts.
        let _ = sent;
    }
}
