//! The files of a CLU by TFTP.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Instant, SystemTime};

use fodo_clu::OutgoingDatagrams;
use fodo_clu::command::{Request, Session};
use fodo_clu::tftp::{TftpClient, TftpErrorCode, TftpFailure, TftpMode};
use fodo_data::Now;
use fodo_vclu::limit::FILE_BYTES_MAX;

use crate::support::MAIN;
use crate::world::{Client, LIMIT, World};

type Outcome = Result<Vec<u8>, TftpFailure>;

fn now() -> Now {
    Now { monotonic: Instant::now(), wall: SystemTime::now().into() }
}

/// Transfers a file: reads it, or writes `content`.
fn transfer(world: &World, path: &str, content: Option<&[u8]>) -> Outcome {
    let server = world.server.tftp_address().unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut out = OutgoingDatagrams::default();
    let mut client = match content {
        Some(content) => TftpClient::write(server, path, TftpMode::Octet, content, now(), &mut out),
        None => TftpClient::read(server, path, TftpMode::Octet, usize::MAX, now(), &mut out),
    };
    loop {
        for (to, packet) in out.iter() {
            socket.send_to(packet, to).unwrap();
        }
        out.clear();
        if let Some(outcome) = client.take_outcome() {
            return outcome;
        }
        let mut buffer = [0; 600];
        let (n_bytes, from) = socket.recv_from(&mut buffer).expect("no packet");
        client.received(from, &buffer[..n_bytes], now(), &mut out);
    }
}

fn read(world: &World, path: &str) -> Outcome {
    transfer(world, path, None)
}

fn started(world: &World) -> Client {
    let client = world.client();
    assert_eq!(client.request(&Request::StartTftp {}), "resp:OK");
    client
}

fn refusal(outcome: Outcome) -> TftpErrorCode {
    match outcome {
        Err(TftpFailure::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_uploaded_script_runs_after_a_reset() {
    let world = World::with_objects("");
    let mut client = started(&world);
    let main = format!("uploaded = 'yes'\n{}{MAIN}", "-- a line of a comment\n".repeat(100));

    assert_eq!(transfer(&world, "a:\\main.lua", Some(main.as_bytes())), Ok(Vec::new()));
    assert_eq!(client.eval("tostring(uploaded)"), "nil");
    assert_eq!(client.request(&Request::Reset { client: None }), "resp_reset:127.0.0.1");

    assert_eq!(client.eval("uploaded"), "yes");
    assert_eq!(fs::read_to_string(world.folder.scripts().join("MAIN.LUA")).unwrap(), main);
    let names: Vec<_> = fs::read_dir(world.folder.scripts()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "the file in the other case was replaced: {names:?}");
    assert_eq!(world.server.tftp_counts().files_written, 1);
}

#[test]
fn files_are_read_by_any_form_of_their_names() {
    let world = World::with_objects("");
    started(&world);

    for path in ["a:\\MAIN.LUA", "A:/main.lua", "main.Lua"] {
        assert_eq!(read(&world, path).as_deref(), Ok(MAIN.as_bytes()), "{path}");
    }
    let config = String::from_utf8(read(&world, "a:\\config.txt").unwrap()).unwrap();
    assert_eq!(
        config.split("\r\n").collect::<Vec<_>>(),
        ["00000000", "0d0a1b2c", "02:00:0d:0a:1b:2c", "00000003", "00f0d000", "00000013", "00000001", ""]
    );
    let config = String::from_utf8(read(&world, "a:\\config.json").unwrap()).unwrap();
    for part in ["\"sn\":218766124", "\"mac\":\"02:00:0d:0a:1b:2c\"", "\"hwType\":19", "\"tfbusDevices\":[]"] {
        assert!(config.contains(part), "{config}");
    }
}

#[test]
fn clients_reach_no_other_file() {
    let world = World::with_objects("");
    started(&world);
    fs::write(world.folder.scripts().join("keys.json"), "secret").unwrap();
    fs::write(world.folder.0.join("outside.lua"), "secret").unwrap();
    fs::create_dir(world.folder.scripts().join("sub")).unwrap();
    std::os::unix::fs::symlink(world.folder.0.join("outside.lua"), world.folder.scripts().join("link.lua")).unwrap();
    std::os::unix::fs::symlink(&world.folder.0, world.folder.scripts().join("up")).unwrap();

    for path in ["a:\\keys.json", "a:\\..\\outside.lua", "a:\\link.lua", "a:\\up\\outside.lua", "m:\\..\\MAIN.LUA"] {
        assert_eq!(refusal(read(&world, path)), TftpErrorCode::ACCESS_VIOLATION, "{path}");
        assert_eq!(refusal(transfer(&world, path, Some(b"new"))), TftpErrorCode::ACCESS_VIOLATION, "{path}");
    }
    for path in ["a:\\none.lua", "x:\\MAIN.LUA", "p:\\meas.bin", "m:\\debug.bin"] {
        assert!(
            matches!(refusal(read(&world, path)), TftpErrorCode::NOT_FOUND | TftpErrorCode::ACCESS_VIOLATION),
            "{path}"
        );
    }
    for path in ["a:\\config.txt", "a:\\CONFIG.JSON", "p:\\meas.bin", "m:\\image.fw", "a:\\sub\\..\\x.lua"] {
        assert_eq!(refusal(transfer(&world, path, Some(b"new"))), TftpErrorCode::ACCESS_VIOLATION, "{path}");
    }
    assert_eq!(transfer(&world, "a:\\sub\\part.lua", Some(b"return 1")), Ok(Vec::new()));
    assert_eq!(fs::read_to_string(world.folder.0.join("outside.lua")).unwrap(), "secret");
}

#[test]
fn a_file_that_is_too_large_leaves_the_present_one() {
    let world = World::with_objects("");
    started(&world);

    let large = vec![b' '; FILE_BYTES_MAX as usize + 1];
    assert_eq!(refusal(transfer(&world, "a:\\USER.LUA", Some(&large))), TftpErrorCode::DISK_FULL);

    assert_eq!(read(&world, "a:\\USER.LUA"), Ok(Vec::new()));
}

#[test]
fn requests_to_a_locked_server_get_no_reply_and_are_counted() {
    let world = World::with_objects("");
    let mut client = world.client();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let request = b"\0\x01a:\\MAIN.LUA\0octet\0";
    socket.send_to(request, world.server.tftp_address().unwrap()).unwrap();
    client.settle();
    client.settle();
    assert_eq!(world.server.tftp_counts().locked, 1);

    started(&world);
    assert_eq!(client.request(&Request::StopTftp {}), "resp:OK");
    socket.send_to(request, world.server.tftp_address().unwrap()).unwrap();
    client.settle();
    client.settle();

    assert_eq!(world.server.tftp_counts().locked, 2);
}

#[test]
fn measurements_are_a_file_with_a_header() {
    let world = World::with_objects("");
    let client = world.client();

    let reply = client.request(&Request::Measure { client: None, session: Session(0xab), parameter: b"1345" });

    assert_eq!(reply, "meas_file_download:127.0.0.1:000000ab:ok");
    let file = read(&world, "p:\\meas.bin").unwrap();
    assert_eq!((file.len(), &file[..8]), (12, &b"MEAS05\0\0"[..]));
}

#[test]
fn a_server_without_tftp_refuses_to_start_it() {
    let world = World::configured("", |config| config.tftp = None);
    let client = world.client();

    assert_eq!(client.request(&Request::StartTftp {}), "resp:ERROR");
    let measure = Request::Measure { client: None, session: Session(1), parameter: b"" };
    assert_eq!(client.request(&measure), "resp:ERROR");
}
