//! Each kind of object, over minutes and days of a clock of the test.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::time::Duration;

use fodo_vclu::limit::{ARGUMENT_BYTES_MAX, NAME_BYTES_MAX};
use fodo_vclu::{LuaValue, VcluRequest};

use support::House;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn timer() -> House {
    House::with_objects(
        "T = OBJECT:new(6, \"T\") T:add_event(0, note(\"timer\")) T:add_event(1, note(\"start\")) \
         T:add_event(2, note(\"stop\")) T:add_event(3, note(\"pause\"))",
    )
}

#[test]
fn a_timer_counts_down_once() {
    let mut house = timer();
    house.eval("T:set(0, 90000), T:execute(0)");

    house.advance(MINUTE);
    assert_eq!(house.eval("{T:get(2), T:get(3)}"), "{1,30000}");
    assert_eq!(house.fired(), "start");

    house.advance(MINUTE);
    assert_eq!(house.fired(), "timer");
    assert_eq!(house.eval("{T:get(2), T:get(3)}"), "{0,0}");
    house.advance(5 * MINUTE);
    assert_eq!(house.fired(), "");
}

#[test]
fn an_interval_timer_keeps_its_phase() {
    let mut house = timer();
    house.eval("T:set(0, 1000), T:set(1, 1), T:execute(0)");

    house.advance(Duration::from_millis(3500));

    assert_eq!(house.fired(), "start timer timer timer");
    assert_eq!(house.eval("T:get(3)"), "500");
}

#[test]
fn ticks_of_an_interval_that_are_over_are_skipped_and_counted() {
    let mut house = timer();
    house.eval("T:set(0, 1000), T:set(1, 1), T:execute(0)");

    house.step(1, Duration::from_millis(5300));

    assert_eq!(house.fired(), "start timer");
    assert_eq!(house.engine.counts().ticks_skipped, 4);
    assert_eq!(house.eval("T:get(3)"), "700");
}

#[test]
fn a_paused_timer_continues_with_the_time_that_was_left() {
    let mut house = timer();
    house.eval("T:set(0, 10000), T:execute(0)");
    house.advance(4 * SECOND);
    house.eval("T:execute(2)");

    house.advance(MINUTE);
    assert_eq!(house.eval("{T:get(2), T:get(3)}"), "{2,6000}");
    house.eval("T:execute(2)");
    house.advance(Duration::from_millis(5999));
    assert_eq!(house.fired(), "start pause");
    house.advance(Duration::from_millis(1));
    assert_eq!(house.fired(), "timer");
}

#[test]
fn a_new_time_restarts_a_timer_that_counts() {
    let mut house = timer();
    house.eval("T:set(0, 10000), T:execute(0)");
    house.advance(9 * SECOND);

    house.eval("T:set(0, 2000)");

    assert_eq!(house.eval("T:get(3)"), "2000");
    house.advance(2 * SECOND);
    assert_eq!(house.fired(), "start timer");
    house.eval("T:execute(1)");
    assert_eq!(house.fired(), "");
}

#[test]
fn a_clu_reports_its_local_time_and_a_step_of_the_clock() {
    let mut house = House::with_objects("CLU0001:add_event(13, note(\"step\")) CLU0001:add_event(0, note(\"init\"))");
    house.advance(SECOND);
    assert_eq!(house.fired(), "init");
    // The clock of the test starts at 2027-01-15 08:00:00 UTC, a Friday.
    assert_eq!(house.eval("CLU0001:get(5) .. \" \" .. CLU0001:get(6)"), "2027-01-15 08:00:01");
    assert_eq!(house.eval("CLU0001:set(14, 0)"), "nil");
    let all = "{CLU0001:get(7), CLU0001:get(8), CLU0001:get(9), CLU0001:get(10), CLU0001:get(11), CLU0001:get(12)}";
    assert_eq!(house.eval(all), "{15,1,2027,5,9,0}");
    assert_eq!(house.eval("CLU0001:get(13)"), (1_800_000_001 + 3600).to_string());
    house.advance(2 * SECOND);
    assert_eq!(house.fired(), "step");

    house.eval("CLU0001:execute(2, 1701735652)");
    house.advance(SECOND);
    assert_eq!(house.eval("CLU0001:get(5) .. \" \" .. CLU0001:get(6)"), "2023-12-05 00:20:53");
    assert_eq!(house.fired(), "step");
    house.set_wall_clock(1_900_000_000);
    house.advance(2 * SECOND);
    assert_eq!(house.fired(), "step");
    house.advance(MINUTE);
    assert_eq!(house.fired(), "");
    assert_eq!(house.eval("CLU0001:get(0)"), "66");
}

#[test]
fn the_log_of_a_clu_keeps_its_newest_lines() {
    let mut house = House::with_objects("");

    house.eval("(function() for i = 1, 20 do CLU0001:execute(0, \"line \" .. i) end end)()");

    assert!(house.eval("CLU0001:get(1)").starts_with("line 5\nline 6\n"));
    house.eval("CLU0001:execute(1)");
    assert_eq!(house.eval("CLU0001:get(1)"), "");
}

#[test]
fn names_and_texts_of_objects_are_limited() {
    let mut house = House::with_objects("S = OBJECT:new(44, \"S\")");
    let name = "n".repeat(NAME_BYTES_MAX);
    let mut call = |object: &str, method: u16, text: String| {
        let (object, arguments) = (object.to_string(), vec![text.into()]);
        house.request(|reply| VcluRequest::Call { object, method, arguments, reply }).is_ok()
    };

    assert!(call("S", 4, name.clone()));
    assert!(!call("S", 4, format!("{name}n")));
    assert!(call("CLU0001", 0, "x".repeat(ARGUMENT_BYTES_MAX)));
    assert!(!call("CLU0001", 0, "x".repeat(ARGUMENT_BYTES_MAX + 1)));
    assert_eq!(house.eval(&format!("OBJECT:new(6, \"{name}\")")), name);
    assert!(house.answer(&format!("OBJECT:new(6, \"{name}n\")")).is_error);

    house.eval("(function() C = OBJECT:new(15, \"C\") end)()");
    let value = format!("* * * * *{}", " ".repeat(ARGUMENT_BYTES_MAX)).into();
    let set = house.request(|reply| VcluRequest::Set { object: "C".into(), feature: 0, value, reply });
    assert!(set.is_err_and(|error| error.to_string().starts_with("Rule has at most")));
    assert_eq!(house.eval("C:get(0)"), "");
}

/// A thermostat whose sensor and heater are timers: their feature 0 is a number that can be set.
fn thermostat(more: &str) -> House {
    let mut house = House::with_objects(&format!(
        "SENSOR = OBJECT:new(6, \"SENSOR\") HEATER = OBJECT:new(6, \"HEATER\") H = OBJECT:new(18, \"H\") \
         for i, name in ipairs({{\"start\", \"stop\", \"on\", \"off\", \"holiday\", \"home\"}}) do \
           H:add_event(i, note(name)) end \
         H:add_event(0, note(\"change\")) H:set(0, {{SENSOR, 0}}) H:set(1, {{HEATER, 0}}) SENSOR:set(0, 20) {more}"
    ));
    house.eval("H:execute(0)");
    house
}

fn heater_at(house: &mut House, temperature: f64) -> String {
    house.eval(&format!("SENSOR:set(0, {temperature})"));
    house.advance(2 * SECOND);
    house.eval("HEATER:get(0)")
}

#[test]
fn a_thermostat_switches_at_the_ends_of_its_hysteresis() {
    let mut house = thermostat("");

    assert_eq!(heater_at(&mut house, 19.5), "0");
    assert_eq!(heater_at(&mut house, 18.9), "1");
    assert_eq!(heater_at(&mut house, 20.9), "1");
    assert_eq!(heater_at(&mut house, 21.1), "0");
    assert_eq!(heater_at(&mut house, 19.1), "0");
    assert_eq!(house.fired(), "start on off");
    assert_eq!(house.eval("{H:get(6), H:get(12), H:get(13), H:get(14)}"), "{1,20,0,19.1}");
}

#[test]
fn a_thermostat_can_cool_and_can_drive_an_analog_output() {
    let mut house = thermostat("H:set(7, 1)");
    assert_eq!(heater_at(&mut house, 21.5), "1");
    assert_eq!(heater_at(&mut house, 18.5), "0");

    let mut house = thermostat("H:set(2, 1)");
    assert_eq!(heater_at(&mut house, 20.5), "0.25");
    assert_eq!(heater_at(&mut house, 30.0), "0");
    assert_eq!(heater_at(&mut house, 10.0), "1");
}

#[test]
fn a_thermostat_has_modes_with_targets_of_their_own() {
    let mut house = thermostat("H:set(9, \"1-7 06:00 22; 1-7 22:00 16\")");

    house.eval("H:execute(5)");
    assert_eq!(house.eval("{H:get(8), H:get(12)}"), "{1,17}");
    house.eval("H:execute(6), H:execute(7)");
    assert_eq!(house.eval("{H:get(8), H:get(12)}"), "{2,22}");
    house.eval("H:execute(4, 3, 30)");
    assert_eq!(house.eval("{H:get(8), H:get(12)}"), "{3,23}");
    house.advance(31 * MINUTE);
    assert_eq!(house.eval("{H:get(8), H:get(12)}"), "{2,22}");
    house.eval("H:execute(8), H:execute(2), H:execute(2), H:execute(3)");
    assert_eq!(house.eval("{H:get(8), H:get(12), H:get(3)}"), "{0,21,21}");
    assert_eq!(house.fired(), "start holiday home on change change change");
}

#[test]
fn a_thermostat_whose_source_is_no_number_is_off() {
    let mut house = thermostat("H:set(2, 1) CLU0001:execute(0, \"nan\") H:set(0, {CLU0001, 1})");
    house.eval("H:execute(0)");

    house.advance(10 * SECOND);

    assert_eq!(house.eval("H:get(13)"), "0");
    assert_eq!(house.eval("H:get(14)"), "nil");
    assert_eq!(house.engine.counts().calls_refused, 0, "{}", house.log_text());
}

#[test]
fn a_connection_of_a_thermostat_names_a_feature() {
    let mut house = thermostat("");
    let name = "n".repeat(NAME_BYTES_MAX);

    for (object, index, is_ok) in [
        (name.clone(), 65535.0, true),
        (name.clone() + "n", 0.0, false),
        (name.clone(), -1.0, false),
        (name, 0.5, false),
    ] {
        let value = LuaValue::list([LuaValue::Object(object), index.into()]);
        let set = house.request(|reply| VcluRequest::Set { object: "H".into(), feature: 0, value, reply });
        assert_eq!(set.is_ok(), is_ok, "{index}");
    }
}

#[test]
fn a_thermostat_without_temperature_is_off() {
    let mut house = thermostat("");
    assert_eq!(heater_at(&mut house, 10.0), "1");

    house.eval("H:set(0, {CLU0001, 77})");

    assert_eq!(house.eval("{HEATER:get(0), H:get(14)}"), "{0}");
    assert!(house.log_text().contains("the temperature cannot be read"), "{}", house.log_text());
    house.eval("H:set(0, {H, 14})");
    assert_eq!(house.eval("HEATER:get(0)"), "0");
    house.eval("H:execute(1)");
    assert_eq!(house.fired(), "start on off stop");
}

#[test]
fn a_pid_controller_switches_its_output_for_the_share_that_it_computes() {
    let mut house = House::with_objects(
        "P = OBJECT:new(14, \"P\") P:set(9, 1) P:set(3, 0.25) P:set(6, 60) P:set(2, 21) P:add_event(1, note(\"start\")) \
         P:add_event(4, note(\"on\")) P:add_event(5, note(\"off\")) P:add_event(2, note(\"stop\"))",
    );

    house.eval("P:execute(0, 19)");
    assert_eq!(house.eval("P:get(0)"), "0");
    house.eval("P:execute(1), P:execute(0, 19)");
    assert_eq!(house.eval("P:get(0)"), "1");
    house.advance(29 * SECOND);
    assert_eq!(house.eval("P:get(0)"), "1");
    house.advance(2 * SECOND);
    assert_eq!(house.eval("P:get(0)"), "0");
    house.advance(30 * SECOND);
    assert_eq!(house.eval("P:get(0)"), "1");
    house.eval("P:execute(2)");
    assert_eq!(house.fired(), "start on off on stop off");
}

/// Runs a house with a heater for some hours, and returns its final temperature. It loses 1 % of its excess over 10 degrees
/// a minute and the heater adds up to 0.3 degrees a minute.
fn heated(settings: &str, hours: usize) -> f64 {
    let mut house = House::with_objects(&format!(
        "P = OBJECT:new(14, \"P\") P:set(6, 10) {settings} P:set(2, 21) \
         temperature = 12 minute_on = 0 P:execute(1) \
         function step() minute_on = minute_on + P:get(0) end \
         function minute() \
           temperature = temperature - 0.01 * (temperature - 10) + 0.3 * minute_on / 60 \
           minute_on = 0 P:execute(0, temperature) end"
    ));
    for _ in 0..hours * 60 {
        for _ in 0..60 {
            house.step(1, SECOND);
            house.eval("step()");
        }
        house.eval("minute()");
    }
    house.eval("temperature").parse().unwrap()
}

#[test]
fn a_pid_controller_reaches_the_set_point_in_both_modes() {
    let by_pid = heated("P:set(9, 1) P:set(3, 0.5) P:set(4, 0.0005)", 6);
    assert!((20.5..21.5).contains(&by_pid), "{by_pid}");

    let by_kaczmarz = heated("P:set(9, 2) P:set(11, 0.5)", 6);
    assert!((20.0..22.0).contains(&by_kaczmarz), "{by_kaczmarz}");
}

#[test]
fn a_pid_controller_whose_settings_have_no_result_is_off() {
    for settings in [
        // 0 * infinity, and infinity - infinity.
        "P:set(9, 1) P:set(4, 1e300) P:set(2, 1e300) P:execute(1) P:execute(0, 0)",
        "P:set(9, 1) P:set(3, 1e300) P:set(5, -1e300) P:set(2, 1e300) P:execute(1) P:execute(0, 0) SYSTEM.Wait(0, 1000) \
         P:execute(0, -1e300)",
        "P:set(9, 2) P:set(8, 2) P:set(10, 1e300) P:set(2, 1) P:execute(1) P:execute(0, 1e300) P:execute(0, -1e300) \
         P:execute(0, 1e300)",
    ] {
        let mut house = House::with_objects("P = OBJECT:new(14, \"P\")");

        house.start(&format!("(function() {settings} end)()"));
        house.advance(3 * SECOND);

        assert_eq!(house.eval("P:get(0)"), "0", "{settings}");
        // It works again with other settings.
        house.eval("(function() P:set(9, 1) P:set(3, 1) P:set(4, 0) P:set(5, 0) P:set(2, 21) P:execute(0, 19) end)()");
        assert_eq!(house.eval("P:get(0)"), "1", "{settings}");
        assert_eq!(house.eval("P:get(10) - P:get(10)"), "0", "{settings}");
        assert_eq!(house.eval("P:get(11) - P:get(11)"), "0", "{settings}");
    }
}

fn calendar(rule: &str) -> House {
    let mut house = House::with_objects(
        "C = OBJECT:new(15, \"C\") C:add_event(0, note(\"run\")) C:add_event(1, note(\"start\")) \
         C:add_event(2, note(\"stop\")) C:add_event(3, note(\"cancel\"))",
    );
    house.eval(&format!("C:set(0, \"{rule}\")"));
    house
}

#[test]
fn a_calendar_runs_at_the_times_of_its_rule() {
    let mut house = calendar("30 8 * * *");
    assert_eq!(house.eval("{C:get(0), C:get(1), C:get(2), C:get(3)}"), "{\"30 8 * * *\",nil,30,1}");

    house.step(29, MINUTE);
    assert_eq!(house.fired(), "");
    house.step(1, MINUTE);
    assert_eq!(house.fired(), "run");
    house.step(10, MINUTE);
    assert_eq!(house.eval("{C:get(1), C:get(2)}"), "{10,1430}");
    house.step(24 * 60, MINUTE);
    assert_eq!(house.fired(), "run");
}

#[test]
fn runs_of_a_calendar_can_be_cancelled_and_stopped() {
    let mut house = calendar("* * * * *");

    house.eval("C:execute(3, 2)");
    assert_eq!(house.eval("C:get(2)"), "3");
    house.step(3, MINUTE);
    assert_eq!(house.fired(), "cancel run");
    house.eval("C:execute(1)");
    house.step(3, MINUTE);
    assert_eq!(house.eval("{C:get(3), C:get(2)}"), "{0}");
    house.eval("C:execute(0)");
    house.step(1, MINUTE);
    assert_eq!(house.fired(), "stop start run");
}

#[test]
fn a_calendar_makes_up_for_missed_minutes_but_not_for_a_step_of_the_clock() {
    let mut house = calendar("* * * * *");

    house.step(1, 5 * MINUTE);
    assert_eq!(house.fired(), "run run run run run");
    house.set_wall_clock(1_900_000_000);
    house.step(1, MINUTE);
    assert_eq!(house.fired(), "run");
}

#[test]
fn a_wrong_rule_of_a_calendar_reads_error() {
    let mut house = calendar("every day");

    assert_eq!(house.eval("{C:get(0), C:get(2)}"), "{\"ERROR\"}");
    assert!(house.log_text().contains("\"every day\" is not a rule"), "{}", house.log_text());
}

#[test]
fn a_scheduler_follows_its_week() {
    let mut house = House::with_objects(
        "S = OBJECT:new(16, \"S\") S:add_event(0, note(\"change\")) S:add_event(1, note(\"start\")) \
         S:add_event(2, note(\"stop\"))",
    );
    house.eval("S:set(0, \"1-7 07:00 1; 1-7 09:00 0.5\")");
    assert_eq!(house.eval("{S:get(1), S:get(2)}"), "{1,1}");

    house.step(59, MINUTE);
    assert_eq!(house.eval("S:get(2)"), "1");
    house.step(1, MINUTE);
    assert_eq!(house.eval("S:get(2)"), "0.5");
    house.eval("S:execute(1)");
    house.step(23 * 60, MINUTE);
    assert_eq!(house.eval("{S:get(1), S:get(2)}"), "{0,0.5}");
    house.eval("S:execute(0)");
    assert_eq!(house.eval("S:get(2)"), "1");
    assert_eq!(house.fired(), "change change stop start change");
    house.eval("S:set(0, \"tomorrow\")");
    assert_eq!(house.eval("S:get(0)"), "1-7 07:00 1; 1-7 09:00 0.5");
}

fn presence(more: &str) -> House {
    let mut house = House::with_objects(&format!(
        "P = OBJECT:new(40, \"P\") P:add_event(0, note(\"start\")) P:add_event(1, note(\"stop\")) \
         P:add_event(2, note(\"on\")) P:add_event(3, note(\"off\")) {more}"
    ));
    house.eval("P:execute(0)");
    house
}

#[test]
fn presence_ends_after_the_last_impulse() {
    let mut house = presence("P:set(0, 60)");

    house.eval("P:execute(2)");
    house.advance(50 * SECOND);
    house.eval("P:execute(2)");
    house.advance(59 * SECOND);
    assert_eq!(house.eval("{P:get(2), P:get(3)}"), "{1,59}");
    house.advance(SECOND);
    assert_eq!(house.eval("P:get(2)"), "0");
    assert_eq!(house.fired(), "start on off");
    house.eval("P:execute(1), P:execute(2)");
    assert_eq!(house.eval("{P:get(1), P:get(2)}"), "{0,0}");
}

#[test]
fn presence_of_a_state_input_lasts_until_the_input_ends() {
    let mut house = presence("P:set(6, 1)");

    house.eval("P:execute(2)");
    house.advance(10 * MINUTE);
    assert_eq!(house.eval("{P:get(2), P:get(3)}"), "{1,0}");
    house.eval("P:execute(3)");
    house.advance(59 * SECOND);
    assert_eq!(house.eval("P:get(2)"), "1");
    house.advance(SECOND);
    assert_eq!(house.fired(), "start on off");
}

#[test]
fn a_locked_presence_lasts_and_ignores_detections_for_a_while_after_unlocking() {
    let mut house = presence("P:set(4, 5)");

    house.eval("P:execute(4)");
    house.advance(10 * MINUTE);
    assert_eq!(house.eval("{P:get(2), P:get(5), P:get(3)}"), "{1,1,600}");
    house.eval("P:set(5, 1)");
    assert_eq!(house.eval("P:get(3)"), "0");
    house.eval("P:set(5, 0)");
    assert_eq!(house.eval("{P:get(2), P:get(5)}"), "{0,0}");
    house.advance(4 * SECOND);
    house.eval("P:execute(2)");
    assert_eq!(house.eval("{P:get(2), P:get(3)}"), "{0,0}");
    house.advance(SECOND);
    house.eval("P:execute(2)");
    assert_eq!(house.eval("P:get(2)"), "1");
    assert_eq!(house.fired(), "start on off on");
}

fn sun(place: &str) -> House {
    let mut house = House::with_objects(&format!(
        "S = OBJECT:new(39, \"S\") CLU0001:set(14, 0) \
         for i, name in ipairs({{\"stop\", \"sunrise\", \"sunset\", \"change\", \"day\", \"night\"}}) do \
           S:add_event(i, note(name)) end {place}"
    ));
    house.eval("S:execute(0)");
    house
}

#[test]
fn sunrise_and_sunset_of_a_place_are_known_and_fired() {
    // 2027-01-15 in Warsaw: sunrise 07:38, sunset 15:53 local time; the clock starts at 09:00 local time.
    let mut house = sun("S:set(0, 21.01) S:set(1, 52.23)");
    let minutes = |text: &str| {
        let (hour, minute) = text.split_once(':').unwrap();
        hour.parse::<i32>().unwrap() * 60 + minute.parse::<i32>().unwrap()
    };

    assert!((minutes(&house.eval("S:get(5)")) - (7 * 60 + 38)).abs() <= 5, "{}", house.eval("S:get(5)"));
    assert!((minutes(&house.eval("S:get(4)")) - (14 * 60 + 53)).abs() <= 5, "{}", house.eval("S:get(4)"));
    assert_eq!(house.eval("{S:get(11), S:get(9) - S:get(7)}"), "{1,3600}");
    let to_sunset: usize = house.eval("S:get(15)").parse().unwrap();

    house.step(to_sunset - 1, MINUTE);
    assert_eq!(house.fired(), "");
    house.step(1, MINUTE);
    assert_eq!(house.fired(), "sunset change night");
    assert_eq!(house.eval("S:get(11)"), "0");
    let to_sunrise: usize = house.eval("S:get(14)").parse().unwrap();
    house.step(to_sunrise, MINUTE);
    assert_eq!(house.fired(), "sunrise change day");
}

#[test]
fn the_events_of_the_sun_can_be_shifted() {
    let mut house = sun("S:set(0, 21.01) S:set(1, 52.23) S:set(13, -30)");
    let to_sunset: usize = house.eval("S:get(15)").parse().unwrap();

    house.step(to_sunset - 31, MINUTE);
    assert_eq!(house.fired(), "");
    house.step(1, MINUTE);
    assert_eq!(house.fired(), "sunset change");
    house.step(30, MINUTE);
    assert_eq!(house.fired(), "night");
}

#[test]
fn a_place_without_sunrise_says_so() {
    let mut house = sun("S:set(0, 15.6) S:set(1, 78.2)");

    assert_eq!(house.eval("S:get(3)"), "N\\A");
    assert_eq!(house.eval("{S:get(8), S:get(10), S:get(11), S:get(14)}"), "{-1,-1,-1,-1}");
    house.step(24 * 60, MINUTE);
    assert_eq!(house.fired(), "");
}
