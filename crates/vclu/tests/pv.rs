//! Pv objects with a server of this process, over Channel Access and pvAccess.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{
    Alarm, ChannelState, ClientConfig, Context, Meta, PutRefusal, PvTable, Reading, Scalar, Server, ServerConfig,
    Severity, SharedPv, Status, Value,
};
use fodo_vclu::limit::{PV_PUTS_MAX, PV_UPDATES_MAX};
use fodo_vclu::{ReplyTo, VcluConfig, VcluRequest, VirtualClu};

use support::{House, MAIN, TestFolder, om};

const LIMIT: Duration = Duration::from_secs(30);
const SCHEMES: [&str; 2] = ["ca://", "pva://"];

/// A server, and a CLU whose Pv objects are clients of it.
struct Site {
    server: Option<Server>,
    clu: VirtualClu,
    _folder: TestFolder,
}

impl Site {
    fn new(pvs: &[(&str, &SharedPv)], objects: &str) -> Site {
        let table: PvTable = pvs.iter().map(|(name, pv)| (*name, (*pv).clone())).collect();
        let server = Server::start(ServerConfig::isolated(), Arc::new(table)).unwrap();
        let folder = TestFolder::new();
        folder.write("MAIN.LUA", MAIN);
        folder.write("OM.LUA", &om(objects));
        folder.write("USER.LUA", "");
        let config = VcluConfig { pv_client: Some(server.client_config()), ..VcluConfig::new(folder.scripts()) };
        let site = Site { server: Some(server), clu: VirtualClu::start(config).unwrap(), _folder: folder };
        site.until("P:get(0) ~= \"\"");
        site
    }

    fn eval(&self, script: &str) -> String {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
        assert!(self.clu.submit(VcluRequest::Execute { script: script.into(), reply }).is_ok());
        receiver.recv_timeout(LIMIT).expect("no answer").expect("the CLU has stopped").text
    }

    /// Waits until an expression is true.
    fn until(&self, condition: &str) {
        let script = format!(
            "(function() for i = 1, 4000 do if {condition} then return \"yes\" end SYSTEM.Wait(0, 5) end end)()"
        );
        assert_eq!(self.eval(&script), "yes", "{condition}: {}, {:#?}", self.eval("P:get(8)"), self.clu.log());
    }

    /// Occupies the CLU until the sender is dropped.
    fn occupy(&self) -> mpsc::Sender<()> {
        let (release, wait) = mpsc::channel::<()>();
        let (entered, is_entered) = mpsc::channel();
        let reply = ReplyTo::new(move |_| {
            entered.send(()).unwrap();
            let _ = wait.recv();
        });
        assert!(self.clu.submit(VcluRequest::Execute { script: "1".into(), reply }).is_ok());
        is_entered.recv_timeout(LIMIT).unwrap();
        release
    }
}

/// A Pv object `P` that notes its events, and counts its changes in `n`.
fn pv_object(name: &str) -> String {
    format!(
        "P = OBJECT:new(998, \"P\") n = 0 seen = \"\" \
         P:add_event(0, function() P:set(0, \"{name}\") end) \
         P:add_event(1, function() n = n + 1 seen = seen .. tostring(P:get(1)) .. \" \" end) \
         P:add_event(2, note(\"connect\")) P:add_event(3, note(\"disconnect\")) \
         P:add_event(4, note(\"put\")) P:add_event(5, note(\"error\"))"
    )
}

fn writable(value: impl Into<Value>) -> SharedPv {
    SharedPv::builder(value).on_put(|value, _client| Ok(value)).build()
}

#[test]
fn a_pv_is_monitored_with_its_alarm_and_units() {
    for scheme in SCHEMES {
        let temperature = SharedPv::builder(21.5).meta(Meta { units: "C".into(), ..Meta::default() }).build();
        let site = Site::new(&[("room:temperature", &temperature)], &pv_object(&format!("{scheme}room:temperature")));
        site.until("P:get(4) == 1");
        assert_eq!(site.eval("{P:get(0), P:get(1), P:get(2)}"), format!("{{\"{scheme}room:temperature\",nil,3}}"));

        site.eval("P:execute(2)");
        site.until("P:get(1) == 21.5");
        assert_eq!(site.eval("{P:get(2), P:get(5), P:get(6), P:get(7), P:get(8)}"), r#"{0,"","C","NO_ALARM",""}"#);
        let (alarm, time) = (Alarm { severity: Severity::Major, status: Status::HIHI }, SystemTime::now().into());
        temperature.post_reading(Reading { alarm, time, ..Reading::bare(99.0.into()) });
        site.until("P:get(1) == 99");
        assert_eq!(site.eval("{P:get(2), P:get(7)}"), r#"{2,"HIHI"}"#);
        let age: f64 = site.eval(&format!("P:get(3) - {}", time.unix_s)).parse().unwrap();
        assert!((0.0..1.0).contains(&age), "{age}");
        assert_eq!(site.eval("{fired, seen}"), r#"{"connect ","21.5 99 "}"#);
    }
}

#[test]
fn a_put_and_a_get_end_with_an_event() {
    for scheme in SCHEMES {
        let setpoint = writable(20.0);
        let site = Site::new(&[("room:setpoint", &setpoint)], &pv_object(&format!("{scheme}room:setpoint")));

        // They wait until the channel is connected.
        site.eval("P:execute(0, 21.25)");
        site.until("fired:find(\"put\")");
        assert_eq!(setpoint.value(), Value::from(21.25));
        assert_eq!(site.eval("P:get(1)"), "nil");
        site.eval("P:execute(1)");
        site.until("P:get(1) == 21.25");

        site.eval("P:set(1, 23)");
        site.until("select(2, fired:gsub(\"put\", \"\")) == 2");
        assert_eq!(setpoint.value(), Value::from(23.0));
        assert_eq!(site.eval("{fired, seen}"), r#"{"connect put put ","21.25 "}"#);
    }
}

/// The CLU is busy while the put ends and the server stops.
#[test]
fn a_put_that_ended_before_the_connection_was_lost_leaves_the_pv_disconnected() {
    for scheme in SCHEMES {
        let setpoint = writable(20.0);
        let mut site = Site::new(&[("room:setpoint", &setpoint)], &pv_object(&format!("{scheme}room:setpoint")));
        site.until("P:get(4) == 1");
        let context = Context::new(site.server.as_ref().unwrap().client_config());
        let other = context.channel(&format!("{scheme}room:setpoint")).unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let reply = ReplyTo::new(move |_| {
            let _ = wait.recv();
        });
        let script = "P:execute(0, 21)".into();
        assert!(site.clu.submit(VcluRequest::Execute { script, reply }).is_ok());

        while other.get_timeout(LIMIT).unwrap().value != 21.0.into() {}
        site.server = None;
        while other.state() == ChannelState::Active {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(release);

        site.until("fired:find(\"put\") or fired:find(\"error\")");
        site.until("P:get(4) == 0 and P:get(2) == 3");
    }
}

#[test]
fn an_enum_is_written_by_number_and_by_label() {
    for scheme in SCHEMES {
        let meta = Meta { labels: vec!["Closed".into(), "Open".into(), "Moving".into()], ..Meta::default() };
        let valve =
            SharedPv::builder(Value::Scalar(Scalar::Enum(0))).meta(meta).on_put(|value, _client| Ok(value)).build();
        let site = Site::new(&[("valve", &valve)], &pv_object(&format!("{scheme}valve")));
        site.eval("P:execute(2)");

        site.until("P:get(5) == \"Closed\" and P:get(1) == 0");
        site.eval("P:execute(0, 1)");
        site.until("P:get(5) == \"Open\" and P:get(1) == 1");
        site.eval("P:execute(0, \"Moving\")");
        site.until("P:get(5) == \"Moving\" and P:get(1) == 2");
    }
}

#[test]
fn arrays_are_lists_and_characters_are_texts() {
    for scheme in SCHEMES {
        let curve = SharedPv::builder(vec![1.0, 2.5]).count_max(5).on_put(|value, _client| Ok(value)).build();
        let name = writable("east");
        let path =
            SharedPv::builder(Value::characters("/run/1")).count_max(64).on_put(|value, _client| Ok(value)).build();
        let site =
            Site::new(&[("curve", &curve), ("name", &name), ("path$", &path)], &pv_object(&format!("{scheme}curve")));
        site.eval("P:execute(2)");
        site.until("P:get(1)");
        assert_eq!(site.eval("P:get(1)"), "{1,2.5}");
        site.eval("P:execute(0, {3, 4, 5.5})");
        site.until("#P:get(1) == 3");
        assert_eq!(site.eval("P:get(1)"), "{3,4,5.5}");

        site.eval(&format!("P:set(0, \"{scheme}name\")"));
        assert_eq!(site.eval("P:get(1)"), "nil");
        site.eval("P:execute(0, \"west\")");
        site.until("fired:find(\"put\")");
        site.eval("P:execute(1)");
        site.until("P:get(1) == \"west\"");

        site.eval(&format!("P:set(0, \"{scheme}path$\")"));
        site.until("P:get(4) == 1");
        let long = "/a/long/path/with/more/than/forty/characters/run/2";
        site.eval(&format!("(function() fired = \"\" P:execute(0, \"{long}\") end)()"));
        site.until("fired:find(\"put\")");
        assert_eq!(path.value().long_text(), Some(long.into()));
        site.eval("P:execute(1)");
        site.until(&format!("P:get(1) == \"{long}\""));
    }
}

#[test]
fn each_update_has_its_own_call_of_the_handler() {
    let counter = SharedPv::new(0);
    let site = Site::new(&[("counter", &counter)], &pv_object("pva://counter"));
    site.eval("P:execute(2)");
    site.until("n == 1");

    let release = site.occupy();
    for number in 1..=5 {
        counter.post(number);
    }
    drop(release);

    site.until("n == 6");
    assert_eq!(site.eval("seen"), "0 1 2 3 4 5 ");
    assert_eq!(site.clu.counts().pv_updates, 6);
}

#[test]
fn updates_that_the_clu_does_not_take_are_merged_and_counted() {
    let counter = SharedPv::new(0);
    let site = Site::new(&[("counter", &counter)], &pv_object("pva://counter"));
    site.eval("P:execute(2)");
    site.until("n == 1");
    let server = site.server.as_ref().unwrap().observer();
    let (start, mut last) = (Instant::now(), 0);

    // The client receives the updates on a thread of its own, which may be late.
    while site.clu.counts().pv_updates_merged == 0 {
        assert!(start.elapsed() < LIMIT, "no update was merged");
        let release = site.occupy();
        for _ in 0..2 * PV_UPDATES_MAX {
            let before = server.counts().updates.sent;
            last += 1;
            counter.post(last);
            while server.counts().updates.sent == before {
                assert!(start.elapsed() < LIMIT, "the update was not sent");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(release);
        site.until(&format!("P:get(1) == {last}"));
    }

    let (n_taken, n_merged) = (site.clu.counts().pv_updates, site.clu.counts().pv_updates_merged);
    // All posts, and the first value.
    assert_eq!(n_taken + n_merged, last as u64 + 1);
    assert_eq!(site.eval("P:get(9)"), n_merged.to_string());
    site.until(&format!("n == {n_taken}"));
}

#[test]
fn a_cancelled_monitor_receives_nothing_more() {
    for scheme in SCHEMES {
        let counter = SharedPv::new(0);
        let site = Site::new(&[("counter", &counter)], &pv_object(&format!("{scheme}counter")));
        site.eval("P:execute(2)");
        site.until("n == 1");

        site.eval("P:execute(3)");
        site.until("P:get(4) == 1");
        counter.post(7);
        site.eval("P:execute(1)");
        site.until("P:get(1) == 7");

        assert_eq!(site.eval("{n, fired}"), r#"{2,"connect "}"#);
    }
}

#[test]
fn a_lost_server_makes_the_value_invalid() {
    for scheme in SCHEMES {
        let temperature = SharedPv::new(21.5);
        let mut site = Site::new(&[("temperature", &temperature)], &pv_object(&format!("{scheme}temperature")));
        site.eval("P:execute(2)");
        site.until("P:get(1) == 21.5 and P:get(2) == 0");

        drop(site.server.take());

        site.until("P:get(4) == 0");
        assert_eq!(
            site.eval("{P:get(1), P:get(2), P:get(7), fired}"),
            r#"{21.5,3,"disconnected","connect disconnect "}"#
        );
        assert!(site.eval("P:get(8)").contains("\"temperature\""), "{}", site.eval("P:get(8)"));
    }
}

#[test]
fn a_refused_put_is_an_error_of_the_object_and_in_the_log() {
    for scheme in SCHEMES {
        let gap =
            SharedPv::builder(1.0).on_put(|_, _client| Err(PutRefusal::Rejected("the motor is locked".into()))).build();
        let site = Site::new(&[("gap", &gap)], &pv_object(&format!("{scheme}gap")));

        site.eval("P:execute(0, 5)");

        site.until("fired:find(\"error\")");
        assert!(site.eval("P:get(8)").starts_with("put: \"gap\":"), "{}", site.eval("P:get(8)"));
        assert!(site.clu.log().iter().any(|entry| entry.text.starts_with("P: put: \"gap\":")), "{:?}", site.clu.log());
        assert_eq!(site.clu.counts().pv_errors, 1);
        site.eval("P:execute(1)");
        assert_eq!(site.eval("P:get(8)"), "");
    }
}

#[test]
fn a_reset_closes_the_channels_and_opens_those_of_the_new_scripts() {
    let counter = SharedPv::new(3);
    let site = Site::new(&[("counter", &counter)], &pv_object("pva://counter"));
    site.eval("P:execute(2)");
    site.until("n == 1");

    let (sender, receiver) = mpsc::channel();
    let reply = ReplyTo::new(move |state| sender.send(state).unwrap_or_default());
    assert!(site.clu.submit(VcluRequest::Reset { reply }).is_ok());
    assert!(receiver.recv_timeout(LIMIT).unwrap().is_some());

    site.until("P:get(0) ~= \"\"");
    assert_eq!(site.eval("P:get(1)"), "nil");
    site.eval("P:execute(1)");
    site.until("P:get(1) == 3");
    let clients = site.server.as_ref().unwrap().observer().clients();
    assert_eq!(clients.iter().map(|client| client.n_channels).sum::<usize>(), 1, "{clients:?}");
}

/// A CLU with a clock of the test, and no server.
fn lonely() -> House {
    let files = [("MAIN.LUA", MAIN), ("OM.LUA", &*om(&pv_object("ca://absent"))), ("USER.LUA", "")];
    let mut house =
        House::configured(&files, |config| config.pv_client = Some(ClientConfig::with_addresses(Vec::new())));
    house.advance(Duration::from_millis(1));
    house
}

#[test]
fn an_operation_without_server_ends_after_its_timeout() {
    let mut house = lonely();
    let assert_last_error = |house: &mut House, expected: &str| {
        let error = house.eval("P:get(8)");
        assert!(error.starts_with(expected) && error.contains("EPICS_CA_ADDR_LIST"), "{error}");
    };
    assert_last_error(&mut house, "\"absent\": no server claimed the name within 0.001 s; ");
    house.eval("P:execute(1)");
    house.advance(Duration::from_millis(4990));
    assert_eq!(house.fired(), "");

    house.advance(Duration::from_millis(10));
    assert_eq!(house.fired(), "error");
    assert_last_error(&mut house, "get: \"absent\": no server claimed the name within 5 s; ");

    house.eval("P:set(10, 60000), P:execute(0, 5)");
    house.advance(Duration::from_secs(59));
    assert_eq!(house.fired(), "");
    house.advance(Duration::from_secs(1));
    assert_eq!(house.fired(), "error");
    assert_last_error(&mut house, "put: \"absent\": no server claimed the name within 60 s; ");
    assert_eq!(house.engine.counts().pv_errors, 2);
}

#[test]
fn a_cancelled_operation_has_no_result() {
    let mut house = lonely();
    house.eval("P:execute(0, 5), P:execute(1), P:execute(3)");

    house.advance(Duration::from_secs(60));

    assert_eq!(house.fired(), "");
}

#[test]
fn what_a_pv_cannot_do_is_refused_with_a_reason() {
    let mut house = lonely();
    for (script, reason) in [
        ("P:execute(0)", "the value must be a number"),
        ("P:execute(0, {1, \"b\"})", "the value must be a number"),
        ("P:set(1, print)", "Value must be a value of type str"),
        ("P:set(0, (\"x\"):rep(600))", "a server accepts at most 511"),
        ("P:execute(1)", "set Name first"),
        ("P:set(0, \"\")", ""),
        ("P:execute(2)", "set Name first"),
        ("P:set(10, 1)", "Timeout must be between 100 and 3600000"),
    ] {
        house.eval(script);
        assert!(house.log_text().lines().last().unwrap_or_default().contains(reason), "{script}: {}", house.log_text());
    }

    house.eval("(function() P:set(0, \"ca://absent\") for i = 1, 17 do P:execute(0, i) end end)()");
    assert!(house.log_text().contains(&format!("{PV_PUTS_MAX} puts already wait")), "{}", house.log_text());
}
