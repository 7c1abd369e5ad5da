//! The example `examples/lua/house`, over minutes of a clock of the test.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::time::Duration;

use fodo_vclu::CluState;

use support::House;

const FILES: [(&str, &str); 3] = [
    ("MAIN.LUA", include_str!("../../../examples/lua/house/MAIN.LUA")),
    ("OM.LUA", include_str!("../../../examples/lua/house/OM.LUA")),
    ("USER.LUA", include_str!("../../../examples/lua/house/USER.LUA")),
];

fn number(house: &mut House, expression: &str) -> f64 {
    let text = house.eval(expression);
    text.parse().unwrap_or_else(|_| panic!("{expression} has the value {text}: {}", house.log_text()))
}

#[test]
fn the_example_runs_without_an_error_and_heats_its_room() {
    let mut house = House::with_files(&FILES);

    house.advance(Duration::from_secs(120));

    assert_eq!(house.engine.state(), CluState::Running, "{}", house.log_text());
    assert_eq!(house.eval("checkAlive()"), "0d0a1b2c");
    let counts = house.engine.counts();
    assert_eq!((counts.scripts_failed, counts.calls_refused), (0, 0), "{}", house.log_text());
    let temperature = number(&mut house, "THE1001:get(14)");
    assert!((20.5..21.5).contains(&temperature), "{temperature}");
    assert_eq!(number(&mut house, "THE1001:get(12)"), 21.0);
}

#[test]
fn the_hall_light_of_the_example_follows_presence() {
    let mut house = House::with_files(&FILES);
    assert_eq!(house.eval("getVar(\"hall_light\")"), "false");

    house.eval("PRE1001:execute(2)");
    house.advance(Duration::from_secs(1));
    assert_eq!(house.eval("getVar(\"hall_light\")"), "true");

    house.advance(Duration::from_secs(60));
    assert_eq!(house.eval("{PRE1001:get(2), getVar(\"hall_light\")}"), "{0,true}");
    house.advance(Duration::from_secs(120));
    assert_eq!(house.eval("getVar(\"hall_light\")"), "false");
}

#[test]
fn the_example_counts_its_starts_and_has_the_targets_of_its_settings() {
    let mut house = House::with_files(&FILES);
    house.advance(Duration::from_secs(5));
    assert_eq!(number(&mut house, "n_starts"), 1.0);

    house.restart();
    house.advance(Duration::from_secs(5));

    assert_eq!(number(&mut house, "n_starts"), 2.0);
    assert_eq!(house.eval("leave_house()"), "{false,false}");
    house.advance(Duration::from_secs(2));
    assert_eq!(number(&mut house, "THE1001:get(12)"), 16.0);
    assert_eq!(house.eval("setVar(\"outdoor\", \"-10\")"), "nil");
    assert_eq!(number(&mut house, "outdoor"), -10.0);
}
