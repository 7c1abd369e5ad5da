//! Requests of clients, and datagrams that are none.

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{Request, Session};
use fodo_clu::server::DropReason;

use crate::world::{Client, World, bytes};

#[test]
fn a_script_is_evaluated_and_answered_from_the_port_of_the_request() {
    let world = World::with_objects("");
    let mut client = world.client();

    assert_eq!(client.eval("checkAlive()"), "0d0a1b2c");
    assert_eq!(client.eval("1 + 1"), "2");
    assert_eq!(client.eval("no_such_function()"), "nil");
    let counts = world.server.counts();
    assert_eq!((counts.received, counts.answered, counts.n_dropped()), (3, 3, 0));
}

// The datagrams are those of OpenGr8ton, version of October 2025.
#[test]
fn the_requests_of_the_reference_get_the_replies_of_the_reference() {
    let world = World::with_objects("");
    let mut client = world.client();
    client.eval("(function() checkAlive = function() return \"00000000\" end end)()");

    for (request, reply) in [
        (
            "044082004566077f7eba12064b89bb5a8fdd0eb11b77133074d6a6f80e479da57c53d39e667f13c5fa0cb86f263f313a",
            "3448436b7c96dd39de4dbfdbb1febde6351ade1302fcfbece9d8a74afa7b2506db8ee1cf3ebd72647800a31cb32d4f59",
        ),
        ("3679fcc9f69d232232751392facd8f02", "49e4e63a06698af92a64a980c471033d"),
    ] {
        client.send(&bytes(request));
        assert_eq!(client.receive(), bytes(reply));
    }
    client.send_text(b"req_refresh_modules");
    assert_eq!(client.receive(), bytes("241a4b663d5f2a7ce10e18c50ceb5116"));
}

#[test]
fn requests_are_accepted_as_by_a_real_clu() {
    let world = World::with_objects("");
    let client = world.client();

    for (request, reply) in [
        ("req::1:1+1", "resp:127.0.0.1:00000001:2"),
        ("req:anything:0xAB:1+1\r\n", "resp:127.0.0.1:000000ab:2"),
        (" req:127.0.0.1:FFFFFFFF:(function() return 'a:b' end)()\n", "resp:127.0.0.1:ffffffff:a:b"),
        ("req_start_ftp:1", "resp:OK"),
        ("req_tftp_stop", "resp:OK"),
        ("req_stop_ftp\r\n", "resp:OK"),
        ("meas_file_download:127.0.0.1:0000abcd:ok", "meas_file_download:127.0.0.1:0000abcd:ok"),
        ("req_set_clu_ip:0d0a1b2c:127.0.0.1:127.0.0.1", "resp_set_clu_ip:0d0a1b2c:127.0.0.1"),
        ("req_set_clu_ip:0d0a1b2c:10.0.0.9:127.0.0.1", "resp:ERROR"),
    ] {
        client.send_text(request.as_bytes());
        assert_eq!(client.receive_text(), reply, "{request}");
    }
}

#[test]
fn a_value_that_is_too_long_is_replaced_by_an_error() {
    let world = World::with_objects("");
    let mut client = world.client();

    assert_eq!(client.eval("string.rep('x', 2000)").len(), 2000);
    assert!(client.eval("string.rep('x', 3000)").starts_with("error: the value has 3000 bytes"));
}

#[test]
fn datagrams_that_are_no_requests_get_no_reply_and_are_counted() {
    let world = World::with_objects("");
    let mut client = world.client();
    let stranger = Client::new(world.server.address(), CipherKey::new([9; 16], [9; 16]));

    for n_bytes in [0, 1, 15, 2050] {
        client.send(&vec![7; n_bytes]);
    }
    client.send(&[7; 2064]);
    client.send(&[7; 4000]);
    stranger.send_text(b"req::1:checkAlive()");
    let not_text = Request::Execute { client: None, session: Session(7), script: b"\xff\xfe" };
    client.send(&client.encrypted(&not_text));
    client.settle();

    let counts = world.server.counts();
    for (reason, expected) in [
        (DropReason::NotWholeBlocks, 4),
        (DropReason::TooLong, 2),
        (DropReason::NoKeyFits, 1),
        (DropReason::NotText, 1),
    ] {
        assert_eq!(counts.n_dropped_for(reason), expected, "{}", reason.text());
    }
    assert_eq!((counts.received, counts.answered), (9, 1));
    stranger.socket.set_nonblocking(true).unwrap();
    assert!(stranger.socket.recv(&mut [0; 64]).is_err(), "a wrong key gets no reply");
}

#[test]
fn a_reset_is_confirmed_after_the_scripts_have_started() {
    let world = World::with_objects("");
    let mut client = world.client();
    client.eval("setVar('kept', 1)");

    world.folder.write("USER.LUA", "started = 'yes'");
    assert_eq!(client.request(&Request::Reset { client: None }), "resp_reset:127.0.0.1");
    assert_eq!(client.eval("started .. tostring(kept)"), "yesnil");

    world.folder.write("MAIN.LUA", "this is not Lua");
    assert_eq!(client.request(&Request::Reset { client: None }), "resp_reset:127.0.0.1");
    assert_eq!(client.eval("checkAlive()"), "emergency");
}

#[test]
fn a_script_that_waits_does_not_delay_others() {
    let world = World::with_objects("");
    let (mut client, mut other) = (world.client(), world.client());

    let waiting = client.start("(function() while not released do SYSTEM.Wait(0, 10) end return 'end' end)()");
    assert_eq!(other.eval("1"), "1");
    assert_eq!(other.eval("(function() released = true return 2 end)()"), "2");

    assert_eq!(client.value(), (waiting, "end".to_string()));
}

#[test]
fn requests_of_other_threads_of_the_program_are_handled_while_the_server_waits() {
    let world = World::with_objects("");
    let mut client = world.client();
    client.eval("(function() from_network = 5 end)()");

    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = fodo_vclu::ReplyTo::new(move |answer| drop(sender.send(answer)));
    let request = fodo_vclu::VcluRequest::Execute { script: "from_network".into(), reply };
    assert!(world.server.clu().submit(request).is_ok());

    let answer: Option<fodo_vclu::ScriptAnswer> = receiver.recv_timeout(crate::world::LIMIT).unwrap();
    assert_eq!(answer.unwrap().text, "5");
}

#[test]
fn a_server_that_stops_releases_its_sockets_and_keeps_scripts_that_others_use() {
    let world = World::with_objects("");
    let mut client = world.client();
    client.eval("(function() x = 3 end)()");
    let clu = std::sync::Arc::clone(world.server.clu());
    let address = world.server.address();

    world.server.stop();

    assert!(std::net::UdpSocket::bind(address).is_ok());
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = fodo_vclu::ReplyTo::new(move |answer| drop(sender.send(answer)));
    assert!(clu.submit(fodo_vclu::VcluRequest::Execute { script: "x".into(), reply }).is_ok());
    let answer: Option<fodo_vclu::ScriptAnswer> = receiver.recv_timeout(crate::world::LIMIT).unwrap();
    assert_eq!(answer.unwrap().text, "3");
}

#[test]
fn a_server_that_cannot_start_names_the_address() {
    let world = World::with_objects("");
    let taken = world.server.address();

    let config = |change: &dyn Fn(&mut fodo_vclu::VcluServerConfig)| {
        let mut config = world.config();
        // The first server uses the folder.
        config.clu.storage = None;
        change(&mut config);
        fodo_vclu::VcluServer::start(config).err().map(|error| error.to_string()).unwrap_or_default()
    };

    let error = config(&|config| config.listen = taken);
    assert!(error.contains(&taken.to_string()), "{error}");
    let error = config(&|config| {
        config.listen = ([0, 0, 0, 0], 0).into();
        config.broadcast = Some(([127, 0, 0, 1], 0).into());
    });
    assert!(error.contains("address of one interface"), "{error}");
    let error = config(&|config| config.clu.zone = "Nowhere/None".into());
    assert!(error.contains("Nowhere/None"), "{error}");
}
