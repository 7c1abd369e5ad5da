//! Incomplete messages.

use super::*;

// Row 15 of docs/reference/faults.md.
#[test]
fn an_incomplete_message_closes_the_circuit_after_the_timeout() {
    let create = text(Request::CreateChan { cid: Cid(1), minor: 13 }, &[b'x'; 200]);
    for n_bytes in [1, 15, 30] {
        let mut server = Server::new();
        let start = server.now;
        for (n, byte) in create[..n_bytes].iter().enumerate() {
            server.now = start + Duration::from_secs(n as u64);
            server.receive(&[vec![*byte]]);
            server.circuit.tick(server.now, &mut server.events);
            assert_eq!(server.circuit.deadline(), Some((start + limit::MESSAGE_TIMEOUT).monotonic));
        }
        assert!(!server.is_closed());

        server.circuit.tick(start + limit::MESSAGE_TIMEOUT, &mut server.events);

        assert!(server.is_closed(), "{n_bytes}");
    }
}

// Row 15 of docs/reference/faults.md.
#[test]
fn each_message_has_its_own_timeout() {
    let mut server = Server::new();
    let start = server.now;
    let echo = bare(Request::Echo {});
    for second in [0, 40, 80] {
        server.now = start + Duration::from_secs(second);
        server.receive(&[echo[..5].to_vec()]);
        server.now = start + Duration::from_secs(second + 30);
        server.receive(&[echo[5..].to_vec()]);
        assert_eq!(server.circuit.deadline(), None);
    }
    assert_eq!(server.drain().len(), 3);
}

// Row 15 of docs/reference/faults.md.
#[test]
fn a_large_value_below_the_minimum_transfer_rate_closes_the_circuit() {
    for (bytes_per_minute, is_to_close) in
        [(limit::MESSAGE_PROGRESS_BYTES / 2, true), (limit::MESSAGE_PROGRESS_BYTES, false)]
    {
        let mut server = Server::with_array();
        server.receive(&[put_of(80_000)[..100].to_vec()]);

        for second in 0..300 {
            server.now = server.now + Duration::from_secs(1);
            server.receive(&[vec![0; bytes_per_minute / 60 + 1]]);
            server.circuit.tick(server.now, &mut server.events);
            assert!(is_to_close || !server.is_closed(), "after {second} s");
        }

        assert_eq!(server.is_closed(), is_to_close);
    }
}

// Row 15 of docs/reference/faults.md.
#[test]
fn resuming_a_circuit_restarts_the_message_timeout() {
    let mut server = Server::with_array();
    server.receive(&[put_of(80_000)[..100].to_vec()]);
    server.now = server.now + limit::MESSAGE_TIMEOUT;

    server.circuit.resume(server.now);

    assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
}
