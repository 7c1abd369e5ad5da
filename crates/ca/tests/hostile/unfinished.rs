//! Incomplete messages.

use super::*;

#[test]
fn row_15_a_message_that_trickles_or_stops_closes_after_its_time() {
    let create = text(Request::CreateChan { cid: Cid(1), minor: 13 }, &[b'x'; 200]);
    for n_bytes in [1, 15, 30] {
        let mut server = Server::new();
        let start = server.now;
        for (n, byte) in create[..n_bytes].iter().enumerate() {
            server.now = start + Duration::from_secs(n as u64);
            server.hear(&[vec![*byte]]);
            server.circuit.tick(server.now, &mut server.events);
            assert_eq!(server.circuit.deadline(), Some((start + limit::MESSAGE_TIMEOUT).monotonic));
        }
        assert!(!server.is_closed());

        server.circuit.tick(start + limit::MESSAGE_TIMEOUT, &mut server.events);

        assert!(server.is_closed(), "{n_bytes}");
    }
}

#[test]
fn row_15_a_whole_message_gives_the_next_one_its_own_time() {
    let mut server = Server::new();
    let start = server.now;
    let echo = bare(Request::Echo {});
    for second in [0, 40, 80] {
        server.now = start + Duration::from_secs(second);
        server.hear(&[echo[..5].to_vec()]);
        server.now = start + Duration::from_secs(second + 30);
        server.hear(&[echo[5..].to_vec()]);
        assert_eq!(server.circuit.deadline(), None);
    }
    assert_eq!(server.drain().len(), 3);
}

#[test]
fn row_15_a_large_value_that_trickles_closes_and_one_on_a_slow_line_does_not() {
    for (bytes_per_minute, is_to_close) in
        [(limit::MESSAGE_PROGRESS_BYTES / 2, true), (limit::MESSAGE_PROGRESS_BYTES, false)]
    {
        let mut server = Server::with_array();
        server.hear(&[put_of(80_000)[..100].to_vec()]);

        for second in 0..300 {
            server.now = server.now + Duration::from_secs(1);
            server.hear(&[vec![0; bytes_per_minute / 60 + 1]]);
            server.circuit.tick(server.now, &mut server.events);
            assert!(is_to_close || !server.is_closed(), "after {second} s");
        }

        assert_eq!(server.is_closed(), is_to_close);
    }
}

#[test]
fn row_15_the_time_of_a_message_begins_anew_when_its_circuit_is_read_again() {
    let mut server = Server::with_array();
    server.hear(&[put_of(80_000)[..100].to_vec()]);
    server.now = server.now + limit::MESSAGE_TIMEOUT;

    server.circuit.resume(server.now);

    assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
}
