//! Discovery, new keys and new addresses.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use fodo_clu::cipher::{CHALLENGE_BYTES, CipherKey, Pin, hash};
use fodo_clu::command::{Reply, Request, SecretKey};
use fodo_clu::keys::KeyFile;
use fodo_clu::server::DropReason;

use crate::world::{Client, PIN, SERIAL, World, bytes, project_key};

/// Of OpenGr8ton, version of October 2025: the random bytes are 0 to 29.
const DISCOVERY: &str = "109cbf0c140611bf05da29da089dd189331e5b7677de00dcdfacf3fdf1ae3c8ccccf61b46ab73a7ed99c6681d82b80f98ce87a2508e58\
                         acdcd69442c0c40e4b73ee4517757f4cb048e3178f1f00a471d";

fn commissioned() -> World {
    World::configured("", |config| {
        config.server.is_commissioning = true;
        config.broadcast = Some(([127, 0, 0, 1], 0).into());
    })
}

fn broadcast(world: &World) -> SocketAddr {
    ([127, 255, 255, 255], world.server.address().port()).into()
}

/// Sends the discovery of the reference and returns the temporary key, after a check of the proof.
fn discover(client: &Client, to: SocketAddr) -> CipherKey {
    client.socket.set_broadcast(true).unwrap();
    client.socket.send_to(&bytes(DISCOVERY), to).unwrap();
    let (datagram, mut buffer) = (client.receive(), Vec::new());
    // The reply has the key of all installations, with the initialisation vector of the request.
    let plain = CipherKey::broadcast().with_iv(*project_key().iv()).decrypt(&datagram, &mut buffer).unwrap();
    let Some(Reply::Discovered { proof, iv, serial, .. }) = Reply::decode(plain) else { panic!("not a discovery") };
    let temporary = CipherKey::initial(&Pin::new(PIN).unwrap(), *iv);
    let challenge: [u8; CHALLENGE_BYTES] = std::array::from_fn(|index| index as u8);
    assert_eq!((serial, temporary.open(proof)), (SERIAL, Some(hash(&challenge))));
    temporary
}

fn set_key(client: &Client, new: &CipherKey) {
    let request = Request::SetKey { challenge: &[0; 32], iv: new.iv(), key: SecretKey(new.key()) };
    client.send(&client.encrypted(&request));
}

#[test]
fn a_discovery_by_broadcast_and_by_unicast_finds_the_clu_with_the_key_of_its_project() {
    let world = commissioned();
    let client = world.client();

    let by_broadcast = discover(&client, broadcast(&world));
    let by_unicast = discover(&client, world.server.address());

    assert!(by_broadcast == by_unicast, "one temporary key for both");
}

#[test]
fn the_temporary_key_permits_only_checks_and_a_new_key() {
    let world = commissioned();
    let discovering = world.client();
    let mut client = Client::new(world.server.address(), discover(&discovering, broadcast(&world)));
    let new = CipherKey::new([5; 16], [6; 16]);

    assert_eq!(client.eval("checkAlive()"), "0d0a1b2c");
    for refused in [&b"req::1:1+1"[..], b"req_start_ftp", b"req_reset:127.0.0.1"] {
        client.send_text(refused);
        assert_eq!(client.receive_text(), "resp:ERROR");
    }
    set_key(&client, &new);

    let temporary = std::mem::replace(&mut client.key, new.clone());
    assert_eq!(client.receive_text(), "resp:OK");
    assert_eq!(client.eval("1+1"), "2");
    // The temporary key has ended with the new one, and so has the key before.
    for ended in [temporary, project_key()] {
        Client::new(world.server.address(), ended).send_text(b"req::1:checkAlive()");
    }
    client.settle();
    assert_eq!(world.server.counts().n_dropped_for(DropReason::NoKeyFits), 2);
}

#[test]
fn a_new_key_is_stored_before_it_is_confirmed_and_keeps_the_other_members() {
    let world = commissioned();
    let path = world.folder.0.join("keys.json");
    let old = KeyFile { project: project_key(), initial_iv: Some([3; 16]), pin: Pin::new("87654321") };
    fs::write(&path, old.to_text().as_bytes()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut client = world.client();
    let new = CipherKey::new([5; 16], [6; 16]);

    set_key(&client, &new);
    client.key = new.clone();
    assert_eq!(client.receive_text(), "resp:OK");

    let stored = KeyFile::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(stored, KeyFile { project: new, ..old });
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(&world.folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{names:?}");
    assert_eq!(world.server.counts().keys_set, 1);
}

#[test]
fn the_first_key_is_stored_with_the_pin() {
    let world = commissioned();
    let mut client = world.client();
    let new = CipherKey::new([5; 16], [6; 16]);

    set_key(&client, &new);
    client.key = new.clone();
    assert_eq!(client.receive_text(), "resp:OK");

    let stored = KeyFile::parse(&fs::read_to_string(world.folder.0.join("keys.json")).unwrap()).unwrap();
    assert_eq!(stored, KeyFile { project: new, initial_iv: None, pin: Pin::new(PIN) });
}

#[test]
fn a_key_that_cannot_be_stored_is_refused_and_the_old_one_stays() {
    for keys in [None, Some("missing/keys.json".into())] {
        let world = World::configured("", |config| {
            config.server.is_commissioning = true;
            config.keys = keys.map(|name: std::path::PathBuf| config.clu.folder.join(name));
        });
        let mut client = world.client();

        set_key(&client, &CipherKey::new([5; 16], [6; 16]));

        assert_eq!(client.receive_text(), "resp:ERROR");
        assert_eq!(client.eval("1+1"), "2");
        assert_eq!(world.server.socket_counts().not_stored, 1);
    }
}

#[test]
fn without_commissioning_discoveries_and_new_keys_get_no_reply() {
    let world = World::configured("", |config| config.broadcast = Some(([127, 255, 255, 255], 0).into()));
    let mut client = world.client();
    client.socket.set_broadcast(true).unwrap();

    client.socket.send_to(&bytes(DISCOVERY), world.server.address()).unwrap();
    set_key(&client, &CipherKey::new([5; 16], [6; 16]));

    // The first datagram that is received is the reply to the script.
    assert_eq!(client.eval("1+1"), "2");
    assert_eq!(world.server.counts().n_dropped_for(DropReason::CommissioningOff), 2);
    assert!(!world.folder.0.join("keys.json").exists());
}

#[test]
fn only_an_address_for_this_clu_is_confirmed_by_broadcast() {
    let world = commissioned();
    let mut client = world.client();
    client.socket.set_broadcast(true).unwrap();
    let address = |serial: &str, address: &str| {
        let (text, mut datagram) = (format!("req_set_clu_ip:{serial}:{address}:127.0.0.1"), Vec::new());
        project_key().encrypt(text.as_bytes(), &mut datagram);
        client.socket.send_to(&datagram, broadcast(&world)).unwrap();
    };

    address("0d0a1b2d", "127.0.0.1");
    address("0d0a1b2c", "10.0.0.9");
    address("0d0a1b2c", "127.0.0.1");

    assert_eq!(client.receive_text(), "resp_set_clu_ip:0d0a1b2c:127.0.0.1");
    assert_eq!(client.eval("1"), "1");
    assert_eq!(world.server.counts().n_dropped_for(DropReason::OtherClu), 2);
}
