//! The status that a server publishes of itself and its clients, with real sockets on loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{Context, MonitorOptions, PvTable, Server, ServerConfig, Value};

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use served::cell;

const PATIENCE: Duration = Duration::from_secs(10);

/// Serves only the status.
fn serve() -> Result<(Server, Context), fodo_net::ServerError> {
    serve_with(PvTable::new())
}

fn serve_with(table: PvTable) -> Result<(Server, Context), fodo_net::ServerError> {
    let config = ServerConfig { status_prefix: Some("s".to_owned()), ..ServerConfig::isolated() };
    let server = Server::start(config, Arc::new(table))?;
    let context = Context::new(server.client_config());
    Ok((server, context))
}

/// Reads a status PV, which is refreshed periodically, until it is as expected.
fn read_until(context: &Context, name: &str, is_expected: impl Fn(&Value) -> bool) -> Option<Value> {
    let start = Instant::now();
    let channel = context.channel(name).ok()?;
    while start.elapsed() < PATIENCE {
        let value = channel.get_timeout(PATIENCE).ok()?.value;
        if is_expected(&value) {
            return Some(value);
        }
    }
    None
}

fn text(value: &Value) -> String {
    let Value::Array(array) = value else { return String::new() };
    let scalars = (0..array.len()).filter_map(|index| array.scalar(index));
    scalars.map(|scalar| char::from(scalar.to_f64().unwrap_or(0.0) as u8)).collect()
}

/// The number with this key of the first client in the list; `None` for null.
fn first_number(status: &str, key: &str) -> Option<f64> {
    let (_, list) = status.split_once("\"list\":[")?;
    let (_, rest) = list.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

#[test]
fn a_server_counts_its_clients_and_their_channels() {
    let (_server, context) = serve().unwrap();

    assert!(read_until(&context, "s:CLIENTS", |value| *value == Value::from(1.0)).is_some());
    assert!(read_until(&context, "s:CHANNELS", |value| *value == Value::from(1.0)).is_some());
    assert!(read_until(&context, "s:SEARCHES", |value| *value != Value::from(0.0)).is_some());
    assert!(read_until(&context, "s:MEM_RSS", |value| *value != Value::from(0.0)).is_some());
}

#[test]
fn the_status_lists_a_non_reading_client_first_with_its_queued_bytes() {
    let (server, context) = serve().unwrap();
    let mut guilty = TcpStream::connect((Ipv4Addr::LOCALHOST, server.tcp_port())).unwrap();
    let create = [0, 18, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 13];
    guilty.write_all(&[0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    guilty.write_all(&[create.as_slice(), b"s:STATUS\0\0\0\0\0\0\0\0"].concat()).unwrap();
    let mut created = [0; 48];
    guilty.read_exact(&mut created).unwrap();
    // READ_NOTIFY of 60 000 chars: more replies than the socket buffers can hold.
    let read = [&[0, 15, 0, 0, 0, 4, 0xea, 0x60], &created[44..48], &[0, 0, 0, 1]].concat();
    guilty.write_all(&read.repeat(500)).unwrap();

    let waits = |value: &Value| first_number(&text(value), "waiting_s").is_some();
    let status = read_until(&context, "s:STATUS", waits).map(|value| text(&value)).unwrap();

    let (_, list) = status.split_once("\"list\":[").unwrap();
    let address = guilty.local_addr().unwrap().to_string();
    assert!(list.starts_with(&format!("{{\"address\":\"{address}\"")), "{status}");
    assert!(first_number(&status, "queued_bytes").is_some_and(|queued| queued >= 60_000.0), "{status}");
}

#[test]
fn the_status_counts_every_posted_update_as_sent_merged_or_dropped() {
    let served = cell(0i32);
    let (_server, context) = serve_with(PvTable::from([("n", served.clone())])).unwrap();
    let n = context.channel("n").unwrap();
    let (stays, goes) = (n.monitor(MonitorOptions::default()), n.monitor(MonitorOptions::default()));
    let is_subscribed = |value: &Value| *value == Value::from(2.0);
    read_until(&context, "s:SUBSCRIPTIONS", is_subscribed).unwrap();

    (1..=500).for_each(|value| served.post(value));
    drop(goes);
    read_until(&context, "s:SUBSCRIPTIONS", |value| *value == Value::from(1.0)).unwrap();
    (1..=300).for_each(|value| served.post(-value));

    let number = |status: &str, key: &str| {
        let (_, rest) = status.split_once(&format!("\"{key}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()
    };
    let nothing_waits = |value: &Value| {
        let status = text(value);
        number(&status, "updates_posted") == 2 * 500 + 300 && number(&status, "pvs_waiting") == 0
    };
    let status = text(&read_until(&context, "s:STATUS", nothing_waits).unwrap());
    let n_accounted = ["sent", "merged", "dropped"].map(|what| number(&status, &format!("updates_{what}")));
    assert_eq!(n_accounted.iter().sum::<u64>(), 1300, "{status}");
    assert!(stays.counts().received > 0);
}
