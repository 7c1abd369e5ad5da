//! An IOC sends its records to a RecCeiver. The RecCeiver here follows the receiving code of recsync.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that stops has said enough")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_ioc::{Ioc, RecSyncConfig, RunningIoc, Surroundings};
use fodo_net::log::Log;
use fodo_net::{Context, ServerConfig, Value};

const PATIENCE: Duration = Duration::from_secs(20);

const RECORDS: &str = r#"
record(ao, "r:gap") { field(DESC, "undulator gap") info(archive, "monitor 1") info(empty, "") alias("r:old") alias("r:hidden") }
record(calc, "r:hidden:x") { field(DESC, "for nobody") alias("r:also") }
record(stringin, "r:name") {}
"#;

/// A parsed message of the IOC.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    Greeting(u32),
    Pong(u32),
    Record(u32, String, String),
    Alias(u32, String),
    Info(u32, String, String),
    Done,
}

/// A RecCeiver.
struct RecCeiver {
    listener: TcpListener,
    announcing: UdpSocket,
    announced_to: SocketAddr,
}

impl RecCeiver {
    fn new(announced_to: u16) -> RecCeiver {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(here).unwrap();
        listener.set_nonblocking(true).unwrap();
        let announced_to = SocketAddr::from((Ipv4Addr::LOCALHOST, announced_to));
        RecCeiver { listener, announcing: UdpSocket::bind(here).unwrap(), announced_to }
    }

    /// Announces itself until the IOC connects.
    fn meet(&self) -> Meeting {
        let port = self.listener.local_addr().unwrap().port();
        let datagram = [&b"RC\0\0\xff\xff\xff\xff"[..], &port.to_be_bytes(), b"\0\0\0\0\0\x63"].concat();
        let start = Instant::now();
        loop {
            self.announcing.send_to(&datagram, self.announced_to).unwrap();
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return Meeting(stream);
            }
            assert!(start.elapsed() < PATIENCE, "no IOC connects");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A connection to an IOC.
struct Meeting(TcpStream);

impl Meeting {
    fn greet(&mut self) {
        self.0.write_all(b"RC\x80\x01\0\0\0\x01\0").unwrap();
    }

    fn ping(&mut self, nonce: u32) {
        self.0.write_all(&[b"RC\x80\x02\0\0\0\x04", &nonce.to_be_bytes()[..]].concat()).unwrap();
    }

    fn next(&mut self) -> Message {
        let mut header = [0; 8];
        self.0.read_exact(&mut header).unwrap();
        assert_eq!(&header[..2], b"RC");
        let mut body = vec![0; number(&header[4..8]) as usize];
        self.0.read_exact(&mut body).unwrap();
        let id = || number(&body[..4]);
        let texts = |n: usize| {
            let (first, rest) = body[8..].split_at(n);
            assert_eq!(rest.len(), number(&body[6..8]) as usize);
            (String::from_utf8(first.to_vec()).unwrap(), String::from_utf8(rest.to_vec()).unwrap())
        };
        match number(&header[2..4]) {
            1 => Message::Greeting(number(&body[4..8])),
            2 => Message::Pong(id()),
            3 if body[4] == 0 => Message::Record(id(), texts(body[5].into()).0, texts(body[5].into()).1),
            3 => Message::Alias(id(), texts(0).1),
            5 => Message::Done,
            6 => Message::Info(id(), texts(body[4].into()).0, texts(body[4].into()).1),
            other => panic!("{other} is not a message of an IOC"),
        }
    }

    /// All messages, from the greeting to the end.
    fn all(&mut self) -> Vec<Message> {
        let mut messages = vec![self.next()];
        self.greet();
        while messages.last() != Some(&Message::Done) {
            messages.push(self.next());
        }
        messages
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// An IOC, and a RecCeiver that announces itself to it.
fn ioc(name: &str, records: &str) -> (RunningIoc, RecCeiver) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("reccaster-{name}.db"));
    std::fs::write(&file, records).unwrap();
    let variables =
        [("ENGINEER", "Ann Müller"), ("BUILDING", "hall 3"), ("PATH", "/bin"), ("IOC", ""), ("HOSTNAME", "h")];
    let surroundings = Surroundings {
        folder: PathBuf::new(),
        variables: HashMap::from(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))),
    };
    let config = ServerConfig::isolated();
    let mut ioc = Ioc::load(&[(file, String::new())]).unwrap().with_surroundings(surroundings).serve(config).unwrap();
    let port = fodo_testing::free_port();
    let config = RecSyncConfig {
        port,
        variables: vec!["BUILDING".to_owned(), "ENGINEER".to_owned()],
        kept_back: vec!["*:hidden*".to_owned()],
        hold_off_max: Duration::ZERO,
        answer: Duration::from_secs(20),
    };
    ioc.announce(config, Log::silent()).unwrap();
    (ioc, RecCeiver::new(port))
}

#[test]
fn a_recceiver_receives_the_environment_and_every_record_with_aliases_and_info_items() {
    let (ioc, receiver) = ioc("all", RECORDS);

    let messages = receiver.meet().all();

    let info = |id, name: &str, value: &str| Message::Info(id, name.to_owned(), value.to_owned());
    let record = |id, kind: &str, name: &str| Message::Record(id, kind.to_owned(), name.to_owned());
    let expected = [
        Message::Greeting(0x63),
        info(0, "EPICS_VERSION", concat!("Fodo ", env!("CARGO_PKG_VERSION"))),
        info(0, "HOSTNAME", "h"),
        info(0, "RSRV_SERVER_PORT", &ioc.tcp_port().to_string()),
        info(0, "ENGINEER", "Ann Müller"),
        info(0, "BUILDING", "hall 3"),
        record(1, "ao", "r:gap"),
        Message::Alias(1, "r:old".to_owned()),
        info(1, "archive", "monitor 1"),
        info(1, "recordDesc", "undulator gap"),
        record(2, "stringin", "r:name"),
        Message::Done,
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_recceiver_receives_ping_replies_and_after_a_reconnect_all_records_again() {
    let (_ioc, receiver) = ioc("again", RECORDS);
    let mut meeting = receiver.meet();
    let first = meeting.all();

    meeting.ping(0xdead_beef);
    assert_eq!(meeting.next(), Message::Pong(0xdead_beef));
    drop(meeting);

    assert_eq!(receiver.meet().all(), first);
}

#[test]
fn all_records_are_sent_to_a_recceiver_that_reads_them_slice_by_slice() {
    const N: usize = 3000;
    let many: String = (0..N).map(|n| format!("record(ao, \"m:{n}\") {{}}\n")).collect();
    let (_ioc, receiver) = ioc("slices", &many);

    let messages = receiver.meet().all();

    let is_record = |message: &&Message| matches!(message, Message::Record(..));
    assert_eq!(messages.iter().filter(is_record).count(), N);
}

#[test]
fn a_recceiver_that_reads_nothing_does_not_block_clients_or_shutdown() {
    let many: String =
        (0..20_000).map(|n| format!("record(ao, \"m:{n}\") {{ field(DESC, \"number {n}\") }}\n")).collect();
    let (ioc, receiver) = ioc("deaf", &many);
    let mut meeting = receiver.meet();
    meeting.greet();
    let context = Context::new(ioc.client_config());

    let last = context.channel("m:19999").unwrap();
    last.put_timeout(Value::from(7.0), PATIENCE).unwrap();

    assert_eq!(last.get_timeout(PATIENCE).unwrap().value, Value::from(7.0));
    ioc.stop().unwrap();
    drop(meeting);
}
