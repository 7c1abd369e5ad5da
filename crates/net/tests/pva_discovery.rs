//! The search for servers of pvAccess, and calls to a server at a known address, against a server of this crate.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::discovery::{self, FoundServers, ServerSearch};
use fodo_net::{
    ClientConfig, ErrorKind, Kind, PvTable, PvaClientConfig, Refusal, Server, ServerConfig, SharedPv, SharedStructure,
    Structure, StructureBuilder, Value,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn result(text: Value) -> Structure {
    let mut build = StructureBuilder::new("");
    let mut result = Structure::new(Arc::new(build.scalar("value", Kind::Text).finish()));
    result.set("value", text).unwrap();
    result
}

/// A server with a number, and procedures that return their argument `a`, return nothing, and refuse.
fn serve() -> (Server, SocketAddr) {
    let nothing = Structure::new(Arc::new(StructureBuilder::new("").finish()));
    let echo = |argument: &Structure| argument.get("query.a").cloned().map(result).ok_or("a is missing".to_owned());
    let pvs = PvTable::from([
        ("x:echo", SharedStructure::procedure(move |argument, _| echo(argument))),
        ("x:nothing", SharedStructure::procedure(move |_, _| Ok(nothing.clone()))),
    ]);
    pvs.insert("x:number", SharedPv::new(1.5));
    let server = Server::start(ServerConfig::isolated(), Arc::new(pvs)).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.pva_tcp_port().unwrap()));
    (server, address)
}

#[test]
fn a_search_without_names_finds_a_server_with_its_address() {
    let (server, address) = serve();
    let mut search = ServerSearch::start(&server.client_config()).unwrap();

    let reply = search.next(Instant::now() + PATIENCE).unwrap().unwrap();

    assert_eq!((reply.address, reply.source.ip(), reply.version), (address, address.ip(), 2));
    assert_eq!(reply.transport, "tcp".into());
    let mut servers = FoundServers::default();
    assert!(servers.add(&reply) && !servers.add(&reply));
    assert_eq!((servers.as_slice()[0].guid, servers.as_slice()[0].addresses.as_slice()), (reply.guid, &[address][..]));
}

#[test]
fn a_search_is_repeated_until_its_end_and_asks_one_host_to_forward_it() {
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let pva = PvaClientConfig::with_addresses(vec![host.local_addr().unwrap()]);
    let mut search = ServerSearch::start(&ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) }).unwrap();
    let start = Instant::now();

    assert_eq!(search.next(start + Duration::from_secs(1)).unwrap(), None);

    assert!(start.elapsed() >= Duration::from_secs(1));
    let mut buffer = [0; 1500];
    let searches: Vec<Vec<u8>> =
        std::iter::from_fn(|| host.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect();
    assert!((2..=3).contains(&searches.len()) && searches.iter().all(|search| *search == searches[0]), "{searches:?}");
    // Must reply, reply to the source, sent to one host.
    assert_eq!(searches[0][12], 0x83);
}

#[test]
fn a_server_at_a_known_address_names_its_pvs_and_itself() {
    let (server, address) = serve();
    let config = server.client_config();

    let names = discovery::names(&config, address, PATIENCE).unwrap();
    let about = discovery::about(&config, address, PATIENCE).unwrap();

    assert_eq!(names, ["x:echo", "x:nothing", "x:number"].map(fodo_net::Text::from));
    assert_eq!(about.get("implLang"), Some(&"rust".into()));
}

#[test]
fn a_procedure_at_a_known_address_returns_its_result_or_refuses() {
    let (server, address) = serve();
    let config = server.client_config();
    let call = |name: &str, arguments: &[(&str, &str)]| {
        discovery::call(&config, address, name, discovery::query(name, arguments), PATIENCE)
    };
    let refusal = |result: Result<Option<Structure>, fodo_net::Error>| match result.unwrap_err().kind() {
        ErrorKind::Refused { server, refusal } if *server == address => refusal.clone(),
        other => panic!("{other:?}"),
    };
    let long = "x".repeat(3_000_000);

    for text in ["two words", &long] {
        let value = call("x:echo", &[("a", text)]).unwrap().unwrap().get("value").cloned();
        assert!(value == Some(text.into()), "{} bytes", text.len());
    }
    assert_eq!(refusal(call("x:echo", &[])), Refusal::Reported { text: "a is missing".into() });
    assert!(call("x:nothing", &[]).unwrap().is_none_or(|nothing| nothing.kind().nodes().len() == 1));
    let absent = refusal(call("x:absent", &[]));
    assert!(matches!(&absent, Refusal::Channel { text } if !text.is_empty()), "{absent:?}");
}

#[test]
fn a_server_that_closes_the_connection_ends_a_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let closing = std::thread::spawn(move || drop(listener.accept()));

    let error = discovery::names(&ClientConfig::with_addresses(Vec::new()), server, PATIENCE).unwrap_err();

    assert_eq!(*error.kind(), ErrorKind::ConnectionClosed { server });
    closing.join().unwrap();
}
