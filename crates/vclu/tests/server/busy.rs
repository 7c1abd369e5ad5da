//! Scripts that run for long, and floods.

use std::time::{Duration, Instant};

use fodo_clu::command::Request;
use fodo_clu::server::{DropReason, FloodLimits};
use fodo_vclu::limit::QUEUE_REQUESTS_MAX;

use crate::world::{Client, LIMIT, World};

const ENDLESS: &str = "(function() while true do end end)()";

/// Longer than a test needs: a script ends when the clock of the CLU advances.
const CALL_TIME: Duration = Duration::from_secs(100);

fn slow() -> World {
    World::configured("", |config| {
        config.clu.instructions_max = u64::MAX;
        config.clu.call_time_max = CALL_TIME;
        config.server.is_commissioning = true;
    })
}

/// Starts an endless script and waits until it is taken from the queue, which is then empty.
fn start_endless(world: &World, client: &mut Client) -> u32 {
    let n_requests = || world.server.clu().counts().requests;
    let (n_before, end) = (n_requests(), Instant::now() + LIMIT);
    let endless = client.start(ENDLESS);
    while n_requests() == n_before {
        assert!(Instant::now() < end, "the script has not started");
        std::thread::sleep(Duration::from_millis(1));
    }
    endless
}

/// Ends the endless script of this client, also one that has not started yet.
fn end_script(world: &World, client: &Client) {
    client.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let has_ended = (0..20).any(|_| {
        world.advance(CALL_TIME);
        client.socket.peek(&mut [0; 1]).is_ok()
    });
    assert!(has_ended, "the script still runs");
    client.socket.set_read_timeout(Some(LIMIT)).unwrap();
}

#[test]
fn an_endless_script_delays_neither_keys_nor_files_and_then_ends() {
    let world = slow();
    let (mut busy, mut client) = (world.client(), world.client());
    busy.settle();

    let endless = busy.start(ENDLESS);
    let queued = client.start("1+1");
    assert_eq!(client.request(&Request::StartTftp {}), "resp:OK");
    let key = fodo_clu::cipher::CipherKey::new([5; 16], [6; 16]);
    let set = Request::SetKey { challenge: &[0; 32], iv: key.iv(), key: fodo_clu::command::SecretKey(key.key()) };
    client.send(&client.encrypted(&set));
    let old = std::mem::replace(&mut client.key, key);
    assert_eq!(client.receive_text(), "resp:OK");
    let counts = world.server.counts();
    assert_eq!((counts.waiting, counts.keys_set), (2, 1), "the scripts have not been answered");

    end_script(&world, &busy);
    assert_eq!(busy.value(), (endless, "nil".to_string()));
    // Its request had the old key.
    client.key = old;
    assert_eq!(client.value(), (queued, "2".to_string()));
    assert_eq!(world.server.clu().counts().budgets_exceeded, 1);
}

#[test]
fn the_replies_of_scripts_before_a_slow_one_are_not_delayed() {
    let world = slow();
    let mut client = world.client();
    // The others are then handled together.
    let first = client.start("(function() local n = 0 for i = 1, 3000000 do n = n + i end return n > 0 end)()");

    let fast: Vec<u32> = (0..5).map(|_| client.start("1+1")).collect();
    let endless = client.start(ENDLESS);

    assert_eq!(client.value(), (first, "true".to_string()));
    for number in fast {
        assert_eq!(client.value(), (number, "2".to_string()));
    }
    assert_eq!(world.server.clu().counts().budgets_exceeded, 0, "the endless script still runs");
    end_script(&world, &client);
    assert_eq!(client.value(), (endless, "nil".to_string()));
}

/// Whether the next reply is the refusal of a script.
fn is_refused(client: &Client) -> bool {
    client.value().1.as_bytes() == fodo_clu::value::REFUSED
}

#[test]
fn requests_for_which_the_queue_has_no_space_are_refused() {
    let world = slow();
    let (mut busy, mut client, mut settling) = (world.client(), world.client(), world.client());
    busy.settle();
    let endless = start_endless(&world, &mut busy);

    for index in 0..QUEUE_REQUESTS_MAX + 500 {
        client.start("1");
        if index % 64 == 0 {
            // The server has received what was sent before, so that the system drops nothing.
            assert_eq!(settling.request(&Request::StopTftp {}), "resp:OK");
        }
    }

    while !is_refused(&client) {}
    end_script(&world, &busy);
    assert_eq!(busy.value(), (endless, "nil".to_string()));
    // Refused until the queue has space again.
    loop {
        settling.start("1");
        if !is_refused(&settling) {
            break;
        }
    }
    let counts = world.server.counts();
    assert!(counts.refused > 0, "{counts:?}");
    assert_eq!(counts.refused, world.server.clu().counts().requests_refused);
    assert_eq!((counts.waiting, counts.received), (0, counts.answered + counts.n_dropped()));
}

#[test]
fn a_flood_is_limited_counted_and_stops_no_other_address() {
    let world = World::configured("", |config| {
        config.server.flood_limits = FloodLimits { requests_per_s: 20, strangers_per_s: 5 };
    });
    let mut client = world.client();

    for _ in 0..100 {
        client.start("1");
    }
    world.client_at([127, 0, 0, 2].into()).settle();

    let counts = world.server.counts();
    assert!(counts.n_dropped_for(DropReason::RequestFlood) > 0, "{counts:?}");
    assert_eq!((counts.received, counts.answered + counts.n_dropped()), (101, 101));
}
