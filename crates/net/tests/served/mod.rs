//! Servers on loopback, for the tests of client and server; each test uses a part of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_net::{
    ClientConfig, Context, DeferredPut, Meta, PvTable, Server, ServerConfig, SharedPv, SharedPvBuilder, Value,
};

/// Large enough for every array of the tests.
const PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// How long a client waits without a timeout of the test: a busy machine may need more than the default.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// A PV whose value is the last one put.
pub fn cell(value: impl Into<Value>) -> SharedPv {
    builder(value).on_put(|value, _| Ok(value)).build()
}

/// The same, and the puts that have not ended: the test completes them.
pub fn slow_cell(value: impl Into<Value>) -> (SharedPv, Arc<Mutex<Vec<DeferredPut>>>) {
    let puts = Arc::new(Mutex::new(Vec::new()));
    let waiting = puts.clone();
    let start = move |put: DeferredPut| {
        put.pv.post(put.value.clone());
        waiting.lock().unwrap().push(put);
    };
    (builder(value).on_put_deferred(start).build(), puts)
}

fn builder(value: impl Into<Value>) -> SharedPvBuilder {
    let value = value.into();
    let count_max = if matches!(value, Value::Array(_)) { 20_000_000 } else { 1 };
    SharedPv::builder(value).count_max(count_max).meta(Meta { units: "mm".into(), precision: 2, ..Meta::default() })
}

/// A server of these PVs, and a client of it.
pub fn serve(pvs: impl Into<PvTable>) -> (Server, Context) {
    let server = start(pvs);
    let context = Context::new(ClientConfig { operation_timeout: OPERATION_TIMEOUT, ..server.client_config() });
    (server, context)
}

/// A server of these PVs.
pub fn start(pvs: impl Into<PvTable>) -> Server {
    start_at(0, pvs)
}

/// A server of these PVs on a port; 0 for any.
pub fn start_at(port: u16, pvs: impl Into<PvTable>) -> Server {
    let config = ServerConfig { port, payload_bytes_max: PAYLOAD_BYTES_MAX, ..ServerConfig::isolated() };
    Server::start(config, Arc::new(pvs.into())).unwrap()
}

/// A client that searches on this port of loopback.
pub fn context(udp_port: u16) -> Context {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, udp_port));
    Context::new(ClientConfig {
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        operation_timeout: OPERATION_TIMEOUT,
        ..ClientConfig::with_addresses(vec![address])
    })
}
