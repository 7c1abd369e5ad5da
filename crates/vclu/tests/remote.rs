//! RemoteCLU objects: virtual CLUs on loopback that call each other.
#![cfg(unix)]

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::Serial;
use fodo_clu::server::CluServerConfig;
use fodo_vclu::limit::{REMOTE_TIMEOUT, RESULT_WAIT_MAX, WAITING_MAX};
use fodo_vclu::{
    LuaValue, PeerClu, PeerClus, ReplyTo, ScriptAnswer, VcluConfig, VcluRequest, VcluServer, VcluServerConfig,
};

use support::{House, MAIN, TestFolder, om};

const LIMIT: Duration = Duration::from_secs(30);
const REMOTE: &str = "CLU2 = OBJECT:new(1, 0x7f000001, \"CLU2\")";

fn key(number: u8) -> CipherKey {
    CipherKey::new([number; 16], [2; 16])
}

/// A virtual CLU on loopback.
struct Clu {
    server: VcluServer,
    peers: PeerClus,
    _folder: TestFolder,
}

impl Clu {
    fn new(objects: &str, key: CipherKey) -> Clu {
        let folder = TestFolder::new();
        folder.write("MAIN.LUA", MAIN);
        folder.write("OM.LUA", &om(objects));
        folder.write("USER.LUA", "");
        let config = VcluConfig::new(folder.scripts());
        let peers = config.peers.clone();
        let mut config = VcluServerConfig::new(config, CluServerConfig::new(Serial(7), Ipv4Addr::LOCALHOST, key));
        config.listen = (Ipv4Addr::LOCALHOST, 0).into();
        Clu { server: VcluServer::start(config).unwrap(), peers, _folder: folder }
    }

    /// A CLU with a RemoteCLU object `CLU2` for `other`.
    fn calling(other: &Clu, objects: &str) -> Clu {
        let clu = Clu::new("", key(1));
        clu.peers.insert("CLU2", PeerClu { address: other.server.address(), key: None });
        clu.eval(&format!("(function() {REMOTE} {objects} end)()"));
        clu
    }

    fn start(&self, script: &str) -> Receiver<Option<ScriptAnswer>> {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
        assert!(self.server.clu().submit(VcluRequest::Execute { script: script.into(), reply }).is_ok());
        receiver
    }

    fn eval(&self, script: &str) -> String {
        text(&self.start(script))
    }
}

fn text(receiver: &Receiver<Option<ScriptAnswer>>) -> String {
    receiver.recv_timeout(LIMIT).expect("no answer").expect("the CLU has stopped").text
}

/// A socket that receives scripts and does not answer.
fn silent() -> (UdpSocket, PeerClu) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, PeerClu { address, key: None })
}

#[test]
fn a_script_of_another_clu_has_its_value_as_the_result() {
    let other = Clu::new("name = \"hall\" list = {1, {2.5}, x = \"a,b\"}", key(1));
    let clu = Clu::calling(&other, "");

    for (script, result) in [
        ("20 + 1.5", "number 21.5"),
        ("name", "string hall"),
        ("checkAlive()", "string 0d0a1b2c"),
        ("list", "table {1,{2.5},x=\"a,b\"}"),
        ("true", "string true"),
        ("no_such_function()", "nil nil"),
        ("(function() name = \"room\" return name end)()", "string room"),
    ] {
        let call = format!("(function() kept = CLU2:execute(0, {script:?}) return type(kept) end)() .. \" \"",);
        assert_eq!(clu.eval(&call).trim_end(), result.split(' ').next().unwrap(), "{script}");
        assert_eq!(clu.eval("kept"), result.split_once(' ').unwrap().1, "{script}");
    }
    assert_eq!(other.eval("name"), "room");
    assert_eq!(clu.server.clu().counts().remote_calls, 7);
    assert_eq!(clu.server.clu().counts().remote_calls_failed, 0);
}

#[test]
fn a_call_that_waits_for_another_clu_delays_nothing() {
    let other = Clu::new("", key(1));
    let clu = Clu::calling(&other, "T = OBJECT:new(6, \"T\") T:add_event(0, note(\"timer\")) T:set(0, 20)");

    let waits =
        clu.start("CLU2:execute(0, \"(function() while not go do SYSTEM.Wait(0, 5) end return go end)()\") + 1");
    assert_eq!(clu.eval("1 + 1"), "2");
    clu.eval("T:execute(0)");
    assert_eq!(clu.eval("(function() while fired == \"\" do SYSTEM.Wait(0, 5) end return fired end)()"), "timer ");
    assert!(waits.try_recv().is_err());
    other.eval("(function() go = 41 end)()");

    assert_eq!(text(&waits), "42");
}

#[test]
fn clus_that_call_each_other_do_not_wait_for_each_other() {
    let other = Clu::new("", key(1));
    let clu = Clu::calling(&other, "");
    other.peers.insert("CLU3", PeerClu { address: clu.server.address(), key: None });
    other.eval("(function() CLU3 = OBJECT:new(1, 0x7f000001, \"CLU3\") end)()");

    assert_eq!(clu.eval("CLU2:execute(0, \"CLU3:execute(0, '40 + 1') + 1\")"), "42");
}

#[test]
fn a_handler_of_an_event_can_call_another_clu() {
    let other = Clu::new("n = 0", key(1));
    let clu = Clu::calling(
        &other,
        "T = OBJECT:new(6, \"T\") T:add_event(0, function() result = CLU2:execute(0, \"n + 5\") end) T:set(0, 10)",
    );

    clu.eval("T:execute(0)");

    assert_eq!(clu.eval("(function() while not result do SYSTEM.Wait(0, 5) end return result end)()"), "5");
}

#[test]
fn a_call_can_wait_where_errors_are_caught_but_not_in_a_coroutine_of_the_script() {
    let other = Clu::new("", key(1));
    let clu = Clu::calling(&other, "");

    assert_eq!(clu.eval("select(2, pcall(function() return CLU2:execute(0, \"6 * 7\") end))"), "42");
    let in_coroutine = "coroutine.wrap(function() return tostring(CLU2:execute(0, \"1\")) end)()";
    assert_eq!(clu.eval(in_coroutine), "nil");
    let log = clu.server.clu().log();
    assert!(log.iter().any(|entry| entry.text.contains("impossible within a coroutine")), "{log:?}");
    assert_eq!(clu.server.clu().counts().remote_calls, 1);
}

#[test]
fn the_program_can_call_another_clu_too() {
    let other = Clu::new("", key(1));
    let clu = Clu::calling(&other, "");
    let (sender, receiver) = mpsc::channel();
    let reply = ReplyTo::new(move |result| drop(sender.send(result)));

    let (object, arguments) = ("CLU2".to_string(), vec![LuaValue::from("{1, 2}")]);
    assert!(clu.server.clu().submit(VcluRequest::Call { object, method: 0, arguments, reply }).is_ok());

    let expected = LuaValue::list([1.0.into(), 2.0.into()]);
    assert_eq!(receiver.recv_timeout(LIMIT).unwrap(), Some(Ok(expected)));
}

#[test]
fn a_clu_that_does_not_reply_gives_nil_and_a_reason_in_the_log() {
    let (_socket, peer) = silent();
    let clu = Clu::new("", key(1));
    clu.peers.insert("CLU2", peer);
    clu.eval(&format!("(function() {REMOTE} end)()"));

    assert_eq!(clu.eval("CLU2:execute(0, \"1\")"), "nil");

    let log = clu.server.clu().log();
    let reason = format!("did not reply within {REMOTE_TIMEOUT:?}");
    assert!(
        log.iter().any(|entry| entry.text.starts_with("CLU2: 127.0.0.1:") && entry.text.ends_with(&reason)),
        "{log:?}"
    );
    assert_eq!(clu.server.clu().counts().remote_calls_failed, 1);
}

#[test]
fn a_new_key_of_the_project_is_used_at_once() {
    let other = Clu::new("", key(9));
    let clu = Clu::calling(&other, "");
    let cannot_decrypt = clu.start("CLU2:execute(0, \"1\")");
    assert_eq!(clu.eval("checkAlive()"), "0d0a1b2c");

    clu.peers.set_project_key(key(9));

    assert_eq!(clu.eval("CLU2:execute(0, \"2\")"), "2");
    assert_eq!(text(&cannot_decrypt), "nil");
}

#[test]
fn a_clu_can_have_a_key_of_its_own() {
    let other = Clu::new("", key(9));
    let clu = Clu::new("", key(1));
    clu.peers.insert("CLU2", PeerClu { address: other.server.address(), key: Some(key(9)) });
    clu.eval(&format!("(function() {REMOTE} end)()"));

    assert_eq!(clu.eval("CLU2:execute(0, \"2\")"), "2");
}

/// A CLU with a clock of the test, and a RemoteCLU that does not answer.
fn calling_house() -> (House, UdpSocket) {
    let (socket, peer) = silent();
    let files = [("MAIN.LUA", MAIN), ("OM.LUA", &*om(REMOTE)), ("USER.LUA", "")];
    let house = House::configured(&files, |config| {
        config.peers.set_project_key(key(1));
        config.peers.insert("CLU2", peer);
    });
    (house, socket)
}

#[test]
fn calls_that_wait_are_limited_and_end_with_a_reset() {
    let (mut house, _socket) = calling_house();
    let waiting: Vec<_> = (1..WAITING_MAX).map(|_| house.start("CLU2:execute(0, \"1\")")).collect();

    // MAIN.LUA waits too.
    assert_eq!(house.eval("CLU2:execute(0, \"1\")"), "nil");
    assert!(house.log_text().contains(&format!("{WAITING_MAX} calls already wait")), "{}", house.log_text());
    assert_eq!(house.engine.counts().remote_calls, WAITING_MAX as u64 - 1);

    house.request(|reply| VcluRequest::Reset { reply });
    for receiver in waiting {
        assert_eq!(receiver.try_recv().unwrap().unwrap().text, "nil");
    }
}

#[test]
fn a_call_of_an_object_that_was_replaced_ends() {
    let (mut house, _socket) = calling_house();
    let waits = house.start("CLU2:execute(0, \"1\")");
    house.eval(&format!("(function() {REMOTE} end)()"));

    house.advance(RESULT_WAIT_MAX - Duration::from_millis(1));
    assert!(waits.try_recv().is_err());
    house.advance(Duration::from_millis(1));

    assert_eq!(waits.try_recv().unwrap().unwrap().text, "nil");
    assert!(house.log_text().contains("a method has not ended in time"), "{}", house.log_text());
}

#[test]
fn what_a_remote_clu_cannot_do_is_refused_with_a_reason() {
    let mut house = House::with_objects(REMOTE);
    for (script, reason) in [
        ("CLU2:execute(0, \"1\")", "this CLU has no key for it"),
        ("CLU2:execute(0)", "execute needs a script"),
        ("CLU2:execute(0, {})", "Script must be a value of type str"),
        ("CLU2:get(0)", "there is no feature 0"),
    ] {
        assert_eq!(house.eval(script), "nil");
        assert!(house.log_text().lines().last().unwrap_or_default().contains(reason), "{script}: {}", house.log_text());
    }
    let (mut house, _socket) = calling_house();
    assert_eq!(house.eval("CLU2:execute(0, (\"x\"):rep(3000))"), "nil");
    assert!(house.log_text().contains("a CLU accepts at most"), "{}", house.log_text());
}
