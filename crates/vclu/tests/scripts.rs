//! Scripts of a project: what they can use, what limits them, and what clients receive.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::time::Duration;

use fodo_vclu::limit::{EVENTS_MAX, FETCH_BYTES_MAX, WAITING_MAX};
use fodo_vclu::{
    CluState, FetchItem, LuaEngine, LuaValue, NumberFormat, ObjectError, ReportReceiver, SubscriptionChange,
    VcluConfig, VcluRequest,
};

use support::{House, MAIN, om};

#[test]
fn a_generated_project_runs_and_answers() {
    let objects = r#"
-- NAME_PERIPHERY Pump timer=TIM0001
TIM0001 = OBJECT:new(6, "TIM0001")
title = "\z"
_type.Enabled = toboolean
CLU0001:add_event(0, function() TIM0001:set(0, 5000) setVar("Enabled", "1") end)
"#;
    let mut house = House::with_objects(objects);
    house.advance(Duration::from_millis(200));

    assert_eq!(house.engine.state(), CluState::Running);
    assert_eq!(house.eval("checkAlive()"), "0d0a1b2c");
    assert_eq!(house.eval("TIM0001:get(0)"), "5000");
    assert_eq!(house.eval("CLU0001:get(2)"), "1");
    assert_eq!(house.eval("getVar(\"Enabled\")"), "true");
    assert_eq!(house.eval("TIM0001.name"), "TIM0001");
    let listed = house.request(|reply| VcluRequest::List { reply });
    let names: Vec<(&str, Option<&str>)> =
        listed.iter().map(|object| (object.name.as_str(), object.label.as_deref())).collect();
    assert_eq!(names, [("CLU0001", Some("Cellar")), ("TIM0001", Some("Pump timer"))]);
    assert_eq!(listed[1].class.unwrap().features[0].unit, "ms");
}

#[test]
fn values_are_printed_as_a_client_expects_them() {
    let mut house = House::with_objects("");

    for (script, text) in [
        ("1 + 1", "2"),
        (" 7 / 2 \r\n", "3.5"),
        ("1234567.891", "1234567.891"),
        ("\"text\"", "text"),
        ("nil", "nil"),
        ("true", "true"),
        ("{27, nil, 1, true, \"2023-12-05\"}", "{27,nil,1,true,\"2023-12-05\"}"),
        ("{b = 2, a = {1, 2}}", "{a={1,2},b=2}"),
        ("CLU0001", "CLU0001"),
        ("print", "function"),
        ("1, 2", "1"),
        ("x -- a comment", "nil"),
        ("(function() local y = 3; return y * 2 end)()", "6"),
        ("load(\"return 5\")()", "5"),
        ("unpack({4, 5})", "4"),
    ] {
        assert_eq!(house.eval(script), text, "{script}");
    }
    assert_eq!(house.engine.counts().scripts_failed, 0);
}

#[test]
fn numbers_have_two_decimals_on_request() {
    let mut house = House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om("")), ("USER.LUA", "")], |config| {
        config.number_format = NumberFormat::TwoDecimals;
    });

    assert_eq!(house.eval("{24.091, 0.5, 27}"), "{24.09,0.50,27}");
}

#[test]
fn statements_are_accepted_and_answer_nil() {
    let mut house = House::with_objects("");

    let answer = house.answer("x = 5");

    assert_eq!((answer.text.as_str(), answer.is_error), ("nil", false));
    assert_eq!(house.eval("x"), "5");
}

#[test]
fn an_error_is_answered_with_nil_and_the_log_has_its_kind_without_the_request() {
    let mut house = House::with_objects("");

    for (script, kind) in [
        ("error(\"the secret\")", "an error of Lua in line 1 of request"),
        ("error(\"the secret\", 0)", "an error of Lua"),
        ("the secret \"the secret", "it is not Lua"),
        ("nothing.field", "an error of Lua in line 1 of request"),
        ("error({\"the secret\"})", "an error"),
        ("((\"a\"):rep(40)):find((\"a?\"):rep(40) .. (\"a\"):rep(40) .. \"the secret\")", "needs too many steps"),
    ] {
        let answer = house.answer(script);
        assert_eq!((answer.text.as_str(), answer.is_error), ("nil", true), "{script}");
        let (log, start) = (house.log_text(), format!("a request of {} bytes failed: ", script.len()));
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains(&start) && last.contains(kind), "{script}\n{log}");
        assert!(!log.contains("secret"), "{script}\n{log}");
    }
    assert_eq!(house.engine.counts().scripts_failed, 6);
}

#[test]
fn emergency_mode_starts_when_the_main_script_cannot_run() {
    for (main, reason) in [
        ("this is not Lua", "syntax error"),
        ("error(\"broken\")", "broken"),
        ("SYSTEM.Init() repeat SYSTEM.Loop() until false", "it does not define checkAlive"),
        ("while true do end", "budget"),
        ("function checkAlive() return \"1\" end SYSTEM.Loop() error(\"later\")", "later"),
        ("NOTHING:add_event(0, print)", "NOTHING"),
    ] {
        let mut house = House::with_files(&[("MAIN.LUA", main)]);
        house.advance(Duration::from_secs(1));

        assert_eq!(house.engine.state(), CluState::Emergency, "{main}");
        assert_eq!(house.eval("checkAlive()"), "emergency", "{main}");
        assert!(house.log_text().contains(reason), "{main}: {}", house.log_text());
    }
    let mut house = House::with_files(&[]);
    assert_eq!(house.eval("checkAlive()"), "emergency");
    assert!(house.log_text().contains("MAIN.LUA: the file does not exist"), "{}", house.log_text());
}

#[test]
fn emergency_mode_runs_the_script_of_the_folder_if_it_works() {
    let own = "CLU0 = OBJECT:new(0, 1, \"CLU0\") function checkAlive() return \"emergency\" end mine = 1 \
               SYSTEM.Init() repeat SYSTEM.Loop() until false";
    let mut house = House::with_files(&[("MAIN.LUA", "error(1)"), ("EMERGNCY.LUA", own)]);
    assert_eq!(house.eval("checkAlive() .. mine .. CLU0:get(2)"), "emergency14");

    let mut house = House::with_files(&[("MAIN.LUA", "error(1)"), ("EMERGNCY.LUA", "error(2)")]);
    assert_eq!(house.eval("checkAlive()"), "emergency");
}

#[test]
fn an_unknown_time_zone_is_named() {
    let mut config = VcluConfig::new("nowhere");
    config.zone = "Europe/Fodo".into();

    let error = LuaEngine::start(config).err().expect("the zone does not exist");

    assert_eq!(error.to_string(), "the virtual CLU cannot start: this computer has no time zone \"Europe/Fodo\"");
}

#[test]
fn init_runs_before_main_and_may_require_it() {
    let mut house = House::with_files(&[
        ("INIT.LUA", "order = \"init\" require \"main\""),
        (
            "MAIN.LUA",
            "order = order .. \" main\" function checkAlive() return \"1\" end repeat SYSTEM.Loop() until false",
        ),
    ]);

    assert_eq!(house.eval("order"), "init main");
    assert_eq!(house.engine.state(), CluState::Running);
}

#[test]
fn a_reset_starts_the_scripts_that_were_uploaded() {
    let mut house = House::with_objects("x = 1");
    house.eval("(function() y = 2 end)()");
    house.folder.write("OM.LUA", &om("x = 3"));

    assert_eq!(house.request(|reply| VcluRequest::Reset { reply }), CluState::Running);

    assert_eq!(house.eval("{x, y}"), "{3}");
}

#[test]
fn a_call_that_waits_does_not_delay_others() {
    let mut house = House::with_objects("");
    let waits = house.start("(function() SYSTEM.Wait(0, 1500) return \"done\" end)()");

    assert!(waits.try_recv().is_err());
    assert_eq!(house.eval("1"), "1");
    house.advance(Duration::from_millis(1400));
    assert!(waits.try_recv().is_err());
    house.advance(Duration::from_millis(100));
    assert_eq!(waits.try_recv().unwrap().unwrap().text, "done");
}

#[test]
fn a_call_can_wait_where_errors_are_caught_and_in_a_handler() {
    let mut house = House::with_objects(
        "T = OBJECT:new(6, \"T\") T:add_event(1, function() SYSTEM.Wait(0, 100) note(\"late\")() end)",
    );
    let caught = house.start("(function() return {pcall(function() SYSTEM.Wait(0, 50) error(\"no\", 0) end)} end)()");

    house.eval("T:execute(0)");
    house.advance(Duration::from_millis(50));
    assert_eq!(caught.try_recv().unwrap().unwrap().text, "{false,\"no\"}");
    assert_eq!(house.fired(), "");
    house.advance(Duration::from_millis(50));
    assert_eq!(house.fired(), "late");
}

#[test]
fn calls_that_wait_are_limited_and_end_with_a_reset() {
    let mut house = House::with_objects("");
    // One place is taken by MAIN.LUA.
    let waiting: Vec<_> = (1..WAITING_MAX).map(|_| house.start("SYSTEM.Wait(0, 1e9)")).collect();

    assert!(house.answer("SYSTEM.Wait(0, 1)").is_error);
    assert!(waiting.iter().all(|receiver| receiver.try_recv().is_err()));

    house.request(|reply| VcluRequest::Reset { reply });
    for receiver in waiting {
        assert_eq!(receiver.try_recv().unwrap().unwrap().text, "nil");
    }
}

#[test]
fn a_wait_where_it_is_impossible_is_an_error() {
    let mut house = House::with_objects("");

    for script in ["coroutine.wrap(function() SYSTEM.Wait(0, 1) end)()", "coroutine.yield({})", "coroutine.yield(0)"] {
        assert!(house.answer(script).is_error, "{script}");
        assert_eq!(house.eval("1"), "1", "{script}");
    }
}

#[test]
fn objects_that_this_clu_does_not_have_are_reported_and_the_project_runs() {
    let objects = r#"
MOD1 = OBJECT:new(2, 123, 1, "MOD1")
DOU1 = OBJECT:new(4, MOD1, 2, "DOU1")
DIN1 = OBJECT:new(3, UNDEFINED, 3, "DIN1")
CLU2 = OBJECT:new(1, 0x7f000002, "CLU2")
MBU1 = OBJECT:new(200, "MBU1")
DOU1:add_event(0, function() end)
DOU1:set(0, 1)
"#;
    let mut house = House::with_objects(objects);

    assert_eq!(house.engine.state(), CluState::Running, "{}", house.log_text());
    assert_eq!(house.eval("DOU1:get(0)"), "nil");
    let log = house.log_text();
    assert!(log.contains("the object DOU1 is not available: it belongs to a module of class 4"), "{log}");
    assert!(log.contains("the object DIN1 is not available: it belongs to a module of class 3"), "{log}");
    assert!(log.contains("the object MBU1 is not available: class 200 is not supported"), "{log}");
    let listed = house.request(|reply| VcluRequest::List { reply });
    assert_eq!(listed.iter().filter(|object| object.class.is_none()).count(), 4);
}

#[test]
fn a_gate_has_objects_too() {
    let main = r#"
GATE1 = GATE:new(5000, 1, 2, 3, "", "")
TIM1 = GATE:new(6, "TIM1")
function checkAlive() return true end
SYSTEM.Init()
repeat SYSTEM.Loop() until false
"#;
    let mut house = House::with_files(&[("MAIN.LUA", main)]);

    assert_eq!(house.eval("checkAlive()"), "true", "{}", house.log_text());
    assert_eq!(house.eval("{GATE1:get(2), TIM1:get(2)}"), "{1,0}");
}

#[test]
fn refused_calls_answer_nil_in_a_script_and_a_reason_to_the_program() {
    let mut house = House::with_objects("TIM1 = OBJECT:new(6, \"TIM1\")");

    for script in ["TIM1:get(77)", "TIM1:set(3, 1)", "TIM1:set(1, 5)", "TIM1:set(0, -1)", "TIM1:execute(9)"] {
        assert_eq!(house.eval(script), "nil", "{script}");
    }
    assert_eq!(house.engine.counts().calls_refused, 5);
    let mut set = |object: &str, feature, value: LuaValue| {
        let object = object.to_string();
        house.request(|reply| VcluRequest::Set { object, feature, value, reply })
    };
    assert_eq!(set("TIM1", 0, 250.0.into()), Ok(()));
    assert_eq!(set("TIM2", 0, 250.0.into()), Err(ObjectError::UnknownObject));
    assert_eq!(set("TIM1", 3, 250.0.into()), Err(ObjectError::ReadOnly { feature: "Value" }));
    assert_eq!(set("TIM1", 1, 5.0.into()), Err(ObjectError::UnknownChoice { feature: "Mode" }));
    assert!(matches!(set("TIM1", 0, (-1.0).into()), Err(ObjectError::OutOfRange { feature: "Time", .. })));
    assert!(matches!(set("TIM1", 0, "soon".into()), Err(ObjectError::WrongKind { name: "Time", .. })));
    let called = house.request(|reply| VcluRequest::Call {
        object: "TIM1".into(),
        method: 0,
        arguments: vec![1.0.into()],
        reply,
    });
    assert_eq!(called, Err(ObjectError::TooManyArguments { method: "Start", n_max: 0 }));
    assert_eq!(house.eval("TIM1:get(0)"), "250");
}

#[test]
fn a_subscription_names_features_and_user_variables() {
    let mut house = House::with_objects("TIM1 = OBJECT:new(6, \"TIM1\") Temp = 24.09 Title = \"a \\\"b\\\"\"");
    let feature = |index| FetchItem::Feature { object: "TIM1".into(), index };

    let list = "{{TIM1, 0}, \"Temp\", {TIM9, 0}, \"Title\", \"none\"}";
    let answer = house.answer(&format!("SYSTEM:clientRegister(\"10.0.0.9\", 4344, 7, {list})"));

    assert_eq!(answer.text, r#"clientReport:7:{0,24.09,nil,"a \"b\"",nil}"#);
    let items = vec![
        feature(0),
        FetchItem::Variable("Temp".into()),
        FetchItem::Unknown,
        FetchItem::Variable("Title".into()),
        FetchItem::Variable("none".into()),
    ];
    let receiver = ReportReceiver::Address { address: "10.0.0.9".into(), port: 4344 };
    assert_eq!(answer.subscriptions, [SubscriptionChange::Register { receiver, client_id: 7, items: items.clone() }]);

    let answer = house.answer("SYSTEM:clientRegister(0, 8, 1, {{TIM1, 2}})");
    assert_eq!(answer.text, "clientReport:8:{0}");
    let registered =
        SubscriptionChange::Register { receiver: ReportReceiver::Source, client_id: 8, items: vec![feature(2)] };
    assert_eq!(answer.subscriptions, [registered]);

    let answer = house.answer("SYSTEM:clientDestroy(\"10.0.0.9\", 4344, 7)");
    assert_eq!(answer.text, "7");
    assert!(matches!(answer.subscriptions[..], [SubscriptionChange::Destroy { client_id: 7, .. }]));

    assert_eq!(house.eval("SYSTEM:fetchValues({\"Temp\", {TIM1, 1}})"), "values:{24.09,0}");
    let values = house.request(|reply| VcluRequest::Fetch { items, bytes_max: FETCH_BYTES_MAX, reply });
    assert_eq!(values, [0.0.into(), 24.09.into(), LuaValue::Nil, "a \"b\"".into(), LuaValue::Nil]);
}

#[test]
fn a_wrong_subscription_is_an_error_and_changes_nothing() {
    let mut house = House::with_objects("");

    for script in [
        "SYSTEM:clientRegister()",
        "SYSTEM:clientRegister(\"10.0.0.9\", 0, 7, {})",
        "SYSTEM:clientRegister(0, 7, 1, 5)",
        "(function() SYSTEM:clientRegister(0, 7, 1, {}) error(1) end)()",
    ] {
        let answer = house.answer(script);
        assert!(answer.is_error && answer.subscriptions.is_empty(), "{script}: {answer:?}");
    }
}

#[test]
fn get_var_of_a_project_is_used_and_may_fail() {
    let mut house = House::with_objects(
        "function getVar(name) if name == \"loop\" then while true do end end return \"got \" .. name end",
    );
    let items = vec![FetchItem::Variable("a".into()), FetchItem::Variable("loop".into())];

    let values = house.request(|reply| VcluRequest::Fetch { items, bytes_max: FETCH_BYTES_MAX, reply });

    assert_eq!(values, ["got a".into(), LuaValue::Nil]);
    assert_eq!(house.eval("1"), "1");
}

#[test]
fn handlers_run_in_order_and_a_failing_one_stops_no_other() {
    let mut house = House::with_objects(
        "TIM1 = OBJECT:new(6, \"TIM1\") TIM1:add_event(1, note(\"first\")) \
         TIM1:add_event(1, function() error(\"no\") end) TIM1:add_event(1, note(\"third\")) \
         TIM1:add_event(2, note(\"stopped\"))",
    );

    house.eval("TIM1:execute(0), TIM1:execute(1)");

    assert_eq!(house.fired(), "first third stopped");
    assert!(house.log_text().contains("event 1 of TIM1"), "{}", house.log_text());
}

#[test]
fn events_that_cause_each_other_delay_no_request() {
    let mut house = House::with_objects(
        "TIM1 = OBJECT:new(6, \"TIM1\") n = 0 \
         TIM1:add_event(1, function() n = n + 1 TIM1:execute(1) TIM1:execute(0) end)",
    );

    house.eval("TIM1:execute(0)");

    assert_eq!(house.eval("n"), "1");
    assert_eq!(house.eval("n"), "2");
    house.engine.turn();
    assert_eq!(house.eval("n"), "4");
}

#[test]
fn events_that_do_not_find_a_place_are_counted() {
    let mut house =
        House::with_objects("TIM1 = OBJECT:new(6, \"TIM1\") n = 0 TIM1:add_event(1, function() n = n + 1 end)");
    let n_starts = EVENTS_MAX + 10;

    house.eval(&format!("(function() for i = 1, {n_starts} do TIM1:execute(0) end end)()"));

    assert_eq!(house.eval("n"), EVENTS_MAX.to_string());
    assert_eq!(house.engine.counts().events_dropped, 10);
}

#[test]
fn repeated_scripts_are_compiled_once() {
    let mut house = House::with_objects("");

    for _ in 0..10 {
        house.eval("checkAlive()");
    }

    assert_eq!(house.engine.counts().chunks_compiled, 1);
    assert_eq!(house.engine.counts().requests, 10);
}

#[test]
fn what_scripts_print_is_in_the_log() {
    let mut house = House::with_objects("");

    house.eval("(function() print(\"a\", 1, nil) logError(\"b\") logDebug({} ~= nil) end)()");

    assert_eq!(house.log_text(), "Info a1nil\nError b\nDebug true\n");
}
