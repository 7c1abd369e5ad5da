//! Requests, keys and replies.

use std::time::Duration;

use fodo_clu::cipher::{self, CipherKey, Pin};
use fodo_clu::command::{MacAddress, Reply, Request, SecretKey, Serial, Session};
use fodo_clu::limit;
use fodo_clu::server::{DropReason, ServerEvent, ServerSocket};

use super::world::*;

const CHALLENGE: cipher::Challenge = [5; 30];

/// Discovers the CLU and returns its temporary key, and whether it has the key of the project.
fn discover(world: &mut World, socket: ServerSocket, project: &CipherKey) -> Option<(CipherKey, bool)> {
    let broadcast = CipherKey::broadcast();
    let request = Request::Discover { challenge: &project.seal(&CHALLENGE), iv: project.iv(), client: None };
    let sent = world.deliver(socket, client(1), &encrypted(&broadcast, &request));
    let [reply] = &sent[..] else { return None };
    assert_eq!((reply.socket, reply.to), (socket, client(1)));
    let reply = plain(&broadcast.with_iv(*project.iv()), reply).unwrap();
    let Some(Reply::Discovered { proof, iv, serial, mac }) = Reply::decode(&reply) else { panic!("not a discovery") };
    assert_eq!((serial, mac), (SERIAL, MacAddress([2, 0, 0x0d, 0x0a, 0x1b, 0x2c])));
    let temporary = CipherKey::initial(&Pin::new(PIN).unwrap(), *iv);
    let has_project_key = temporary.open(proof) == Some(cipher::hash(&CHALLENGE));
    Some((temporary, has_project_key))
}

fn set_key(world: &mut World, with: &CipherKey, key: &CipherKey) -> Vec<Sent> {
    let request = Request::SetKey { challenge: &key.seal(&CHALLENGE), iv: key.iv(), key: SecretKey(key.key()) };
    world.request(client(1), with, &request)
}

fn dropped(world: &World, reason: DropReason) -> u64 {
    world.assert_accounted().n_dropped_for(reason)
}

#[test]
fn requests_have_the_forms_that_real_clus_accept() {
    let mut world = World::new(config());
    let key = project_key();
    let forms = [
        ("req:127.0.0.1:0000abcd:checkAlive()\r\n", "resp:10.0.0.2:0000abcd:0d0a1b2c"),
        ("req::a:checkAlive()", "resp:10.0.0.2:0000000a:0d0a1b2c"),
        ("req:not an address:ABCDEF01:checkAlive()\n", "resp:10.0.0.2:abcdef01:0d0a1b2c"),
        ("\r\n req:1.2.3.4:0:echo a:b", "resp:10.0.0.2:00000000:a:b"),
        ("req_reset:10.0.1.1", "resp_reset:10.0.0.2"),
        ("req_reset", "resp_reset:10.0.0.2"),
        ("req_start_ftp\r\n", "resp:OK"),
        ("req_start_ftp now", "resp:OK"),
        ("req_stop_ftp", "resp:OK"),
        ("req_tftp_stop", "resp:OK"),
        ("req_gen_measurements:10.0.1.1:00000007:1345\r\n", "meas_file_download:10.0.0.2:00000007:ok"),
        ("meas_file_download:10.0.1.1:00000007:ok", "meas_file_download:10.0.0.2:00000007:ok"),
        ("req_set_clu_ip:0d0a1b2c:10.0.0.2:10.0.0.1", "resp_set_clu_ip:0d0a1b2c:10.0.0.2"),
        ("req_set_clu_ip:0d0a1b2c:10.0.0.3:10.0.0.1", "resp:ERROR"),
        ("req_check_alive", "resp:ERROR"),
        ("req_reset_modules", "resp:ERROR"),
        ("req_start_ftpd", "resp:ERROR"),
        ("req:1.2.3.4:no session:checkAlive()", "resp:ERROR"),
    ];

    for (request, reply) in forms {
        let mut datagram = Vec::new();
        key.encrypt(request.as_bytes(), &mut datagram);
        let sent = world.deliver(ServerSocket::Unicast, client(1), &datagram);
        let replies: Vec<_> = sent.iter().map(|sent| String::from_utf8(plain(&key, sent).unwrap()).unwrap()).collect();
        assert_eq!(replies, [reply], "{request}");
        assert_eq!((sent[0].socket, sent[0].to), (ServerSocket::Unicast, client(1)));
    }
    assert_eq!(world.assert_accounted().answered, forms.len() as u64);
    assert_eq!(world.server.counts().refused, 5);
}

/// The vectors were computed with another implementation.
#[test]
fn the_datagrams_of_other_implementations_are_understood_and_answered_with_the_same_bytes() {
    let block = |hex: &str| cipher::Block::try_from(bytes(hex)).unwrap();
    let key = CipherKey::new(block("7897b8669ee82890de3f25fa0769425e"), block("9bff07ff7f737e3ef107195fdbd5f9dc"));
    let mut config = config();
    config.project_key = key;
    config.address = [127, 0, 0, 1].into();
    config.serial = Serial(0);
    let mut world = World::new(config);

    let check_alive =
        bytes("044082004566077f7eba12064b89bb5a8fdd0eb11b77133074d6a6f80e479da57c53d39e667f13c5fa0cb86f263f313a");
    world.server.received(ServerSocket::Unicast, client(1), &check_alive, world.now, &mut world.out);
    let Some(ServerEvent::Execute { reply, script }) = world.out.events.pop() else { panic!("not a script") };
    assert_eq!((script.as_str(), reply.session(), reply.client()), ("checkAlive()", Session(0xabcd), client(1)));
    world.server.answer(reply, b"00000000", Vec::new(), world.now, &mut world.out);
    let expected = "3448436b7c96dd39de4dbfdbb1febde6351ade1302fcfbece9d8a74afa7b2506db8ee1cf3ebd72647800a31cb32d4f59";
    assert_eq!(world.take_sent()[0].bytes, bytes(expected));

    let start_tftp = world.deliver(ServerSocket::Unicast, client(1), &bytes("3679fcc9f69d232232751392facd8f02"));
    assert_eq!(start_tftp[0].bytes, bytes("49e4e63a06698af92a64a980c471033d"));

    let discovery = bytes(
        "109cbf0c140611bf05da29da089dd189331e5b7677de00dcdfacf3fdf1ae3c8ccccf61b46ab73a7ed99c6681d82b80f98ce87a2508e58acdcd\
         69442c0c40e4b73ee4517757f4cb048e3178f1f00a471d",
    );
    let discovered = world.deliver(ServerSocket::Broadcast, client(1), &discovery);
    let reply = plain(&CipherKey::broadcast().with_iv(block("9bff07ff7f737e3ef107195fdbd5f9dc")), &discovered[0]);
    let reply = reply.unwrap();
    assert_eq!((reply.len(), discovered[0].bytes.len()), (90, 96));
    let Some(Reply::Discovered { proof, iv, .. }) = Reply::decode(&reply) else { panic!("not a discovery") };
    let temporary = CipherKey::initial(&Pin::new(PIN).unwrap(), *iv);
    let hash = bytes("1d081b082d2a1c186c3284b8b20e1e5033ea6801040f0c41063158635a8f");
    assert_eq!(temporary.open(proof).unwrap().to_vec(), hash);
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|character| character.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn a_clu_without_project_is_discovered_and_receives_a_key() {
    let mut world = World::new(config());
    let other = CipherKey::new([7; 16], [8; 16]);

    let (temporary, has_key) = discover(&mut world, ServerSocket::Broadcast, &other).expect("a reply");
    assert!(!has_key);
    assert_eq!(world.execute(client(1), &temporary, "CHECKALIVE()").as_deref(), Some("0d0a1b2c"));
    assert_eq!(world.execute(client(1), &temporary, "echo secret").as_deref(), Some("resp:ERROR"));
    for refused in ["req_start_ftp", "req_reset:1.1.1.1", "req_gen_measurements::1:x", "req_unknown"] {
        let mut datagram = Vec::new();
        temporary.encrypt(refused.as_bytes(), &mut datagram);
        let sent = world.deliver(ServerSocket::Unicast, client(1), &datagram);
        assert_eq!(text(&temporary, &sent[0]).as_deref(), Some("resp:ERROR"), "{refused}");
    }
    assert_eq!(world.executed, ["checkAlive()"]);

    let sent = set_key(&mut world, &temporary, &other);
    assert_eq!(text(&other, &sent[0]).as_deref(), Some("resp:OK"));
    assert_eq!(world.execute(client(1), &other, "echo new").as_deref(), Some("new"));
    assert_eq!(world.execute(client(1), &temporary, "checkAlive()"), None);
    assert_eq!(world.execute(client(1), &project_key(), "checkAlive()"), None);
    assert_eq!(dropped(&world, DropReason::NoKeyFits), 2);
    assert_eq!(discover(&mut world, ServerSocket::Unicast, &other).map(|(_, has_key)| has_key), Some(true));
    assert!(world.server.project_key() == &other);
}

#[test]
fn the_first_datagram_with_a_temporary_key_is_answered_however_early() {
    let mut world = World::new(config());

    let (temporary, _) = discover(&mut world, ServerSocket::Broadcast, &project_key()).expect("a reply");

    assert_eq!(world.execute(client(1), &temporary, "checkAlive()").as_deref(), Some("0d0a1b2c"));
}

#[test]
fn a_temporary_key_ends_after_5_minutes_or_with_a_reset_and_no_discovery_prolongs_it() {
    let mut world = World::new(config());
    let (first, _) = discover(&mut world, ServerSocket::Broadcast, &project_key()).expect("a reply");

    world.advance(limit::TEMPORARY_KEY_TIME - Duration::from_secs(1));
    let (again, _) = discover(&mut world, ServerSocket::Broadcast, &project_key()).expect("a reply");
    assert!(first == again);
    assert!(world.execute(client(1), &first, "checkAlive()").is_some());
    world.advance(Duration::from_secs(1));
    assert_eq!(world.execute(client(1), &first, "checkAlive()"), None);
    assert_eq!(world.server.deadline(), None);

    let (second, _) = discover(&mut world, ServerSocket::Broadcast, &project_key()).expect("a reply");
    assert!(first != second);
    world.request(client(1), &project_key(), &Request::Reset { client: None });
    assert_eq!(world.execute(client(1), &second, "checkAlive()"), None);
}

#[test]
fn without_commissioning_discoveries_and_new_keys_get_no_reply() {
    let mut config = config();
    config.is_commissioning = false;
    let mut world = World::new(config);

    assert!(discover(&mut world, ServerSocket::Broadcast, &project_key()).is_none());
    assert_eq!(set_key(&mut world, &project_key(), &CipherKey::new([7; 16], [8; 16])), []);
    let request = Request::SetAddress { serial: SERIAL, address: ADDRESS, gateway: ADDRESS };
    assert_eq!(world.request(client(1), &CipherKey::broadcast(), &request), []);

    assert_eq!(dropped(&world, DropReason::CommissioningOff), 3);
    assert!(world.server.project_key() == &project_key());
}

#[test]
fn a_key_that_cannot_be_stored_is_refused_and_the_old_one_stays_valid() {
    let mut world = World::new(config());
    world.can_store = false;

    let sent = set_key(&mut world, &project_key(), &CipherKey::new([7; 16], [8; 16]));

    assert_eq!(text(&project_key(), &sent[0]).as_deref(), Some("resp:ERROR"));
    assert!(world.execute(client(1), &project_key(), "checkAlive()").is_some());
    assert_eq!(world.assert_accounted().keys_set, 0);
}

#[test]
fn a_script_that_is_refused_is_answered_with_its_session() {
    let mut world = World::new(config());
    let request = Request::Execute { client: None, session: Session(9), script: b"echo" };
    world.server.received(
        ServerSocket::Unicast,
        client(1),
        &encrypted(&project_key(), &request),
        world.now,
        &mut world.out,
    );
    let Some(ServerEvent::Execute { reply, .. }) = world.out.events.pop() else { panic!("not a script") };

    world.server.refuse(reply, &mut world.out);

    let refused = plain(&project_key(), &world.take_sent()[0]).unwrap();
    let expected = Reply::Executed { clu: Some(ADDRESS), session: Session(9), value: fodo_clu::value::REFUSED };
    assert_eq!(Reply::decode(&refused), Some(expected));
    assert_eq!(world.assert_accounted().refused, 1);
}

#[test]
fn broadcasts_are_answered_only_for_discoveries_and_the_own_address() {
    let mut world = World::new(config());
    let set_address = |serial: u64| Request::SetAddress { serial: Serial(serial), address: ADDRESS, gateway: ADDRESS };

    for request in [
        Request::Execute { client: None, session: Session(1), script: b"checkAlive()" },
        Request::Reset { client: None },
        Request::StartTftp {},
        set_address(5),
    ] {
        let datagram = encrypted(&project_key(), &request);
        assert_eq!(world.deliver(ServerSocket::Broadcast, client(1), &datagram), [], "{request:?}");
    }
    assert_eq!(dropped(&world, DropReason::NotForBroadcast), 3);
    assert_eq!(dropped(&world, DropReason::OtherClu), 1);

    let datagram = encrypted(&project_key(), &set_address(SERIAL.0));
    let sent = world.deliver(ServerSocket::Broadcast, client(1), &datagram);
    assert_eq!(text(&project_key(), &sent[0]).as_deref(), Some("resp_set_clu_ip:0d0a1b2c:10.0.0.2"));
    assert_eq!(sent[0].socket, ServerSocket::Broadcast);
    // The key of all installations opens nothing else.
    let request = Request::Execute { client: None, session: Session(1), script: b"checkAlive()" };
    assert_eq!(world.request(client(1), &CipherKey::broadcast(), &request), []);
    assert_eq!(world.executed, [""; 0]);
}

#[test]
fn one_reset_is_in_progress_at_a_time() {
    let mut world = World::new(config());
    let reset = encrypted(&project_key(), &Request::Reset { client: None });

    for _ in 0..3 {
        world.server.received(ServerSocket::Unicast, client(1), &reset, world.now, &mut world.out);
    }
    assert_eq!(world.out.events.len(), 1);
    assert_eq!(dropped(&world, DropReason::ResetInProgress), 2);
    assert_eq!(world.assert_accounted().waiting, 1);

    assert_eq!(text(&project_key(), &world.carry_out()[0]).as_deref(), Some("resp_reset:10.0.0.2"));
    assert_eq!(world.deliver(ServerSocket::Unicast, client(1), &reset).len(), 1);
}

#[test]
fn a_reply_has_at_most_2032_bytes_and_a_longer_value_becomes_an_error() {
    let mut world = World::new(config());
    let key = project_key();
    let longest = limit::COMMAND_BYTES_MAX - "resp:10.0.0.2:0000abcd:".len();

    let fits = world.execute(client(1), &key, &format!("long {longest}")).unwrap();
    let too_long = world.execute(client(1), &key, &format!("long {}", longest + 1)).unwrap();

    assert_eq!(fits.len(), longest);
    assert_eq!(too_long, format!("error: the value has {} bytes, and a reply has space for {longest}", longest + 1));
    assert_eq!(world.server.counts().values_too_long, 1);
}

#[test]
fn a_request_is_answered_with_its_own_key_if_the_key_changes_meanwhile() {
    let mut world = World::new(config());
    let (old, new) = (project_key(), CipherKey::new([7; 16], [8; 16]));
    let request = Request::Execute { client: None, session: Session(9), script: b"echo slow" };
    world.server.received(ServerSocket::Unicast, client(2), &encrypted(&old, &request), world.now, &mut world.out);
    let Some(ServerEvent::Execute { reply, .. }) = world.out.events.pop() else { panic!("not a script") };

    set_key(&mut world, &old, &new);
    world.server.answer(reply, b"late", Vec::new(), world.now, &mut world.out);

    assert_eq!(text(&old, &world.take_sent()[0]).as_deref(), Some("late"));
    world.assert_accounted();
}
