//! What each call of a script has for itself: its time, its count, and what it may leave outside the memory of scripts.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fodo_data::Now;
use fodo_vclu::limit::{FETCH_BYTES_MAX, LARGE_MEMORY_BYTES, SUBSCRIPTION_CHANGES_MAX, TABLE_BYTES_MAX};
use fodo_vclu::{CluState, FetchItem, VcluRequest};

use support::House;

#[test]
fn the_reply_to_a_reset_has_the_state_after_a_main_script_that_fails() {
    let mut house = House::with_objects("");
    house.folder.write("MAIN.LUA", "error(\"broken\")");

    assert_eq!(house.request(|reply| VcluRequest::Reset { reply }), CluState::Emergency);
}

/// A clock that advances by 10 ms each time that it is read, and a house whose function `work` spends 1.2 s of it: it is read
/// each thousand instructions.
fn busy_house(main: &str) -> (House, Arc<AtomicU64>) {
    let ms = Arc::new(AtomicU64::new(0));
    let (start, read) = (Now::for_test(), Arc::clone(&ms));
    let main = format!(
        "function checkAlive() return \"alive\" end \
         function work() for i = 1, 120000 do end end SYSTEM.Init() repeat {main} SYSTEM.Loop() until false"
    );
    let house = House::configured(&[("MAIN.LUA", &main)], |config| {
        config.clock = Arc::new(move || start + Duration::from_millis(read.fetch_add(10, Ordering::Relaxed)));
        config.call_time_max = Duration::from_secs(2);
    });
    (house, ms)
}

#[test]
fn the_time_of_a_call_counts_from_its_own_start() {
    let (mut house, ms) = busy_house("work()");
    let waits = house.start("(function() SYSTEM.Wait(0, 1) work() return \"done\" end)()");

    // Both continue in this turn, the request before MAIN.LUA.
    ms.fetch_add(60_000, Ordering::Relaxed);
    house.engine.turn();

    assert_eq!(waits.try_recv().unwrap().unwrap().text, "done");
    assert_eq!(house.engine.state(), CluState::Running, "{}", house.log_text());
    assert_eq!(house.engine.counts().budgets_exceeded, 0);
}

#[test]
fn a_wait_counts_from_its_own_start() {
    let (mut house, ms) = busy_house("");
    let waits = house.start("(function() work() SYSTEM.Wait(0, 5000) return \"done\" end)()");

    ms.fetch_add(4500, Ordering::Relaxed);
    house.engine.turn();
    assert!(waits.try_recv().is_err());
    ms.fetch_add(1000, Ordering::Relaxed);
    house.engine.turn();
    assert_eq!(waits.try_recv().unwrap().unwrap().text, "done");
}

#[test]
fn each_failed_call_is_counted_by_its_own_cause() {
    let mut house = House::with_files(&[(
        "MAIN.LUA",
        "function checkAlive() return \"1\" end SYSTEM.Init() SYSTEM.Loop() while true do end",
    )]);
    let counts = |house: &House| (house.engine.counts().scripts_failed, house.engine.counts().budgets_exceeded);

    assert!(house.answer("(function() while true do end end)()").is_error);
    assert_eq!(counts(&house), (1, 1));
    assert!(house.answer("this is not Lua").is_error);
    assert_eq!(counts(&house), (2, 1));

    house.eval("(function() function getVar() while true do end end end)()");
    let items = vec![FetchItem::Variable("x".into())];
    house.request(|reply| VcluRequest::Fetch { items, bytes_max: FETCH_BYTES_MAX, reply });
    assert_eq!(counts(&house), (3, 2));

    let waits = house.start("SYSTEM.Wait(0, 1e9)");
    // MAIN.LUA exceeds its budget, and the call that waits ends because emergency mode starts.
    house.advance(Duration::from_secs(1));
    assert_eq!(waits.try_recv().unwrap().unwrap().text, "nil");
    assert_eq!(house.engine.state(), CluState::Emergency);
    assert_eq!(counts(&house), (5, 3));
}

#[test]
fn a_text_that_is_in_a_table_many_times_is_not_copied_without_limit() {
    let mut house = House::with_objects("");
    let repeated = |n_bytes: usize, n_times: usize| {
        format!(
            "(function() local s, t = (\"x\"):rep({n_bytes}), {{}} for i = 1, {n_times} do t[i] = s end return t end)()"
        )
    };

    let answer = house.answer(&repeated(TABLE_BYTES_MAX / 10, 10));
    assert_eq!((answer.text.len() / (TABLE_BYTES_MAX / 10), answer.is_error), (10, false));
    assert!(house.answer(&repeated(TABLE_BYTES_MAX / 10, 11)).is_error);
    assert!(house.answer(&format!("(\"x\"):rep({})", TABLE_BYTES_MAX + 1)).is_error);
    assert!(house.answer(&format!("{{[(\"x\"):rep({})] = 1}}", TABLE_BYTES_MAX + 1)).is_error);
    assert!(house.answer(&format!("setmetatable({{name = (\"x\"):rep({})}}, OBJECT)", TABLE_BYTES_MAX + 1)).is_error);
    assert!(house.log_text().contains("the value has texts of more than"), "{}", house.log_text());
}

#[test]
fn the_changes_of_subscriptions_of_a_request_are_limited() {
    let mut house = House::with_objects("");
    let registers = |n_changes: usize| {
        format!(
            "(function() for i = 1, {n_changes} do SYSTEM:clientDestroy(\"10.0.0.1\", 4344, i) SYSTEM.Wait(0, 1) end end)()"
        )
    };

    for (n_changes, is_error) in [(SUBSCRIPTION_CHANGES_MAX, false), (SUBSCRIPTION_CHANGES_MAX + 1, true)] {
        let waits = house.start(&registers(n_changes));
        house.advance(Duration::from_secs(1));
        let answer = waits.try_recv().unwrap().unwrap();
        let n_changed = if is_error { 0 } else { n_changes };
        assert_eq!((answer.subscriptions.len(), answer.is_error), (n_changed, is_error));
    }
}

#[test]
fn handlers_and_calls_that_have_waited_leave_time_for_requests() {
    let (mut house, ms) = busy_house("");
    house.eval(
        "(function() T = OBJECT:new(6, \"T\") n = 0 \
         for i = 1, 3 do T:add_event(1, function() work() n = n + 1 end) end end)()",
    );

    // Each handler takes longer than a turn may.
    house.eval("T:execute(0)");
    assert_eq!(house.eval("n"), "1");
    assert_eq!(house.eval("n"), "2");
    house.engine.turn();
    house.engine.turn();
    assert_eq!(house.eval("n"), "3");

    let waits: Vec<_> =
        (0..3).map(|_| house.start("(function() SYSTEM.Wait(0, 1) work() return \"done\" end)()")).collect();
    ms.fetch_add(1000, Ordering::Relaxed);
    for n_done in 1..=3 {
        house.engine.turn();
        assert_eq!(waits.iter().filter(|receiver| receiver.try_recv().is_ok()).count(), 1, "turn {n_done}");
    }
}

#[test]
fn the_time_is_checked_more_often_while_texts_are_long() {
    let (mut house, ms) = busy_house("");
    let n_checks = |house: &mut House, script: &str| {
        let before = ms.load(Ordering::Relaxed);
        assert!(!house.answer(script).is_error, "{}", house.log_text());
        (ms.load(Ordering::Relaxed) - before) / 10
    };
    let counts = "(function() for i = 1, 5000 do end end)()";
    let in_coroutine = "coroutine.wrap(function() for i = 1, 5000 do end end)()";
    let usual = n_checks(&mut house, counts);

    house.eval(&format!("(function() long = (\"x\"):rep({LARGE_MEMORY_BYTES}) end)()"));
    for script in [counts, in_coroutine] {
        let n_checks = n_checks(&mut house, script);
        assert!(n_checks > 4 * usual, "{script}: {n_checks} checks, usually {usual}");
    }

    assert!(house.answer("coroutine.wrap(function() while true do end end)()").is_error);
    assert!(house.log_text().contains("exceeded its budget"), "{}", house.log_text());
    house.eval("(function() long = nil collectgarbage() for i = 1, 2000 do end end)()");
    assert!(n_checks(&mut house, counts) < 2 * usual);
}
