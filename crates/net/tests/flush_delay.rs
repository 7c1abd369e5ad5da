//! Clients and servers that collect bytes before they send them.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::sync::Arc;
use std::time::Duration;

use fodo_net::{
    ClientConfig, Context, MonitorEvent, MonitorOptions, PvTable, Request, Server, ServerConfig, Value, many,
};

use served::cell;

const PATIENCE: Duration = Duration::from_secs(10);

/// Long enough that a request of the same thread is always in time to be sent with the one before it.
const DELAY: Duration = Duration::from_millis(3);

/// Runs with a delay of the client, of the server and of both.
fn for_each_end(run: impl Fn(&Server, &Context)) {
    for (of_client, of_server) in [(DELAY, Duration::ZERO), (Duration::ZERO, DELAY), (DELAY, DELAY)] {
        let pvs = ["x", "y", "z"].map(|name| (name, cell(1.5)));
        let config = ServerConfig { flush_delay: of_server, ..ServerConfig::isolated() };
        let server = Server::start(config, Arc::new(PvTable::from(pvs))).unwrap();
        let config = ClientConfig { flush_delay: of_client, ..server.client_config() };
        let context = Context::new(config);
        run(&server, &context);
    }
}

#[test]
fn every_operation_ends_although_its_request_and_its_reply_wait_for_more() {
    for_each_end(|_, context| {
        for scheme in ["ca", "pva"] {
            let channels = ["x", "y", "z"].map(|name| context.channel(&format!("{scheme}://{name}")).unwrap());

            channels[0].put(2.5).unwrap();
            let single = channels[0].get().unwrap().value;
            channels[1].put_unconfirmed(3.5).unwrap();
            let after_unconfirmed = channels[1].get().unwrap().value;
            let started: Vec<_> = channels.iter().map(|channel| channel.start_get(Request::default())).collect();
            let waited: Vec<Value> = started.into_iter().map(|get| get.wait_timeout(PATIENCE).unwrap().value).collect();
            let together = many::get(&channels, Request::default());

            assert_eq!((single, after_unconfirmed), (Value::from(2.5), Value::from(3.5)));
            assert_eq!(waited, [2.5, 3.5, 1.5].map(Value::from));
            assert_eq!(together.into_iter().map(|got| got.unwrap().value).collect::<Vec<_>>(), waited);
            channels[0].put(1.5).unwrap();
            channels[1].put(1.5).unwrap();
        }
    });
}

#[test]
fn the_last_update_is_sent_although_no_other_follows() {
    const N: i32 = 100;
    for_each_end(|server, context| {
        for scheme in ["ca", "pva"] {
            let x = context.channel(&format!("{scheme}://x")).unwrap();
            let monitor = x.monitor(MonitorOptions::default());

            for number in 0..N {
                x.put_unconfirmed(f64::from(number)).unwrap();
            }
            let is_last = |event: &MonitorEvent| {
                let value = Value::from(f64::from(N - 1));
                matches!(event, MonitorEvent::Update(reading) if reading.value == value)
            };

            while !is_last(&monitor.next_timeout(PATIENCE).expect("the last update is not received")) {}
        }
        assert!(server.update_counts().sent > 0);
    });
}
