//! The client with pvAccess, against a server that reads no request while it has a reply to send.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{
    BitSet, ClientConfig, Context, EventMask, Host, Kind, MonitorEvent, MonitorOptions, Now, PvRequest,
    PvaClientConfig, Reading, Value,
};
use fodo_pva::guid::Guid;
use fodo_pva::server::{ChannelType, Circuit, Config, Contents, Event};

const PATIENCE: Duration = Duration::from_secs(20);

/// Monitors of one channel.
const MONITORS: usize = 2000;

/// Bytes of an option in each request: all requests together are more than the buffers of the system take.
const OPTION_BYTES: usize = 4096;

/// Elements of the value: all updates together are more, too.
const ELEMENTS: usize = 2560;

/// Bytes of the server's own buffers, as far as the system permits so few.
const BUFFER_BYTES: usize = 64 * 1024;

/// Serves every name to one client: reads only after all replies were sent.
fn serve(mut stream: TcpStream) {
    let port = stream.local_addr().unwrap().port();
    let kind = Arc::new(fodo_data::normative_type(Kind::F64, true));
    let layout = Arc::new(fodo_data::NormativeLayout::of(kind).unwrap());
    let reading = Reading::bare(vec![1.5; ELEMENTS].into());
    let mut circuit = Circuit::new(&Config { payload_bytes_max: 1 << 20, guid: Guid::from_bits(1, 1) });
    let (mut buffer, mut events) = (vec![0; BUFFER_BYTES], Vec::new());
    loop {
        while !circuit.ready().is_empty() {
            let n_ready = circuit.ready().len();
            if stream.write_all(circuit.ready()).is_err() {
                return;
            }
            circuit.sent(n_ready);
        }
        let Ok(n @ 1..) = stream.read(&mut buffer) else { return };
        let now = Now { monotonic: Instant::now(), wall: SystemTime::now().into() };
        circuit.received(&buffer[..n], now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Search { search, names } => {
                    let found: Vec<_> = names.iter().map(|(cid, _)| *cid).collect();
                    circuit.searched(search, port, &found);
                }
                Event::Create { cid, .. } => {
                    circuit.created(cid, ChannelType::Flat(layout.clone()));
                }
                Event::Reply(reply) => circuit.reply(reply),
                Event::Start { request } => {
                    let marks = layout.marks(EventMask::VALUE);
                    assert!(circuit.update(request, Contents::Reading(&reading), marks, &BitSet::new()));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn monitors_start_although_requests_and_updates_fill_the_buffers_of_both_directions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = socket2::SockRef::from(&listener);
    own.set_recv_buffer_size(BUFFER_BYTES).unwrap();
    own.set_send_buffer_size(BUFFER_BYTES).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    let name_servers = vec![Host { name: "127.0.0.1".into(), port }];
    let pva = PvaClientConfig { name_servers, ..PvaClientConfig::with_addresses(Vec::new()) };
    let context = Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) });
    let x = context.channel("pva://x").unwrap();
    x.connect_timeout(PATIENCE).unwrap();
    let mut request = PvRequest::default();
    request.set_option("note", "n".repeat(OPTION_BYTES));

    let monitors: Vec<_> =
        (0..MONITORS).map(|_| x.monitor_structure(request.clone(), MonitorOptions::default())).collect();

    for (number, monitor) in monitors.iter().enumerate() {
        let update = loop {
            match monitor.next_timeout(PATIENCE) {
                Some(MonitorEvent::Update(structure)) => break structure,
                Some(MonitorEvent::Connected(_)) => {}
                other => panic!("{other:?} for monitor {number}"),
            }
        };
        assert_eq!(update.get("value"), Some(&Value::from(vec![1.5; ELEMENTS])));
    }
}
