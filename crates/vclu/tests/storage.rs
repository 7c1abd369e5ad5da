//! Storage objects: what survives a restart, and what becomes of files that cannot be used.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::time::Duration;

use fodo_vclu::limit::{NAME_BYTES_MAX, STORED_BYTES_MAX, TABLE_BYTES_MAX, TABLE_DEPTH_MAX};
use fodo_vclu::{LuaEngine, VcluConfig, VcluRequest};

use support::{House, MAIN, om, read};

const SECOND: Duration = Duration::from_secs(1);

fn storage() -> House {
    House::with_objects(
        "keep = 5 list = {} S = OBJECT:new(44, \"S\") \
         CLU0001:add_event(0, function() S:execute(4, \"keep\") S:execute(4, \"list\") end)",
    )
}

#[test]
fn stored_variables_survive_a_restart_and_a_reset() {
    let mut house = storage();
    house.advance(SECOND);
    house.eval("(function() keep = 77.25 list = {1, nil, \"a \\\"b\\\"\", x = {y = true}} end)()");
    house.advance(2 * SECOND);

    house.restart();
    assert_eq!(house.eval("{keep, list}"), r#"{77.25,{1,nil,"a \"b\"",x={y=true}}}"#);
    house.advance(10 * SECOND);
    assert_eq!(house.eval("keep"), "77.25");

    house.eval("(function() keep = 78 end)()");
    house.request(|reply| VcluRequest::Reset { reply });
    assert_eq!(house.eval("keep"), "78");
}

#[test]
fn a_second_clu_with_the_same_folder_for_stored_values_is_refused() {
    let mut house = storage();
    let mut config = VcluConfig::new(&house.folder.0);
    config.storage = Some(house.storage());

    let refused = LuaEngine::start(config.clone()).err().unwrap().to_string();
    assert!(refused.contains(&house.storage().display().to_string()), "{refused}");
    house.restart();
    drop(house);

    assert!(LuaEngine::start(config).is_ok(), "the first one has ended");
}

#[test]
fn a_stored_variable_is_written_when_it_changes_and_when_the_clu_stops() {
    let mut house = storage();
    house.advance(10 * SECOND);
    assert_eq!(house.engine.counts().storage_writes, 1);
    assert_eq!(read(&house.storage().join("S.lua")), "{keep=5,list={}}");

    house.eval("(function() keep = 6 end)()");
    house.advance(10 * SECOND);
    assert_eq!(house.engine.counts().storage_writes, 2);

    house.eval("(function() keep = 7 list = print end)()");
    house.restart();
    assert_eq!(house.eval("keep"), "7");
    assert_eq!(house.eval("S:get(1)"), "0");
}

#[test]
fn a_main_script_that_fails_does_not_overwrite_what_is_stored() {
    let mut house = storage();
    house.advance(SECOND);
    house.eval("(function() keep = 77 end)()");
    house.advance(2 * SECOND);
    house.folder.write("MAIN.LUA", "require \"om\" error(\"broken\")");

    house.restart();
    assert_eq!(house.eval("checkAlive()"), "emergency");
    house.folder.write("MAIN.LUA", MAIN);
    house.restart();

    assert_eq!(house.eval("keep"), "77");
}

#[test]
fn erased_variables_are_not_restored() {
    let mut house = storage();
    house.advance(SECOND);
    house.eval("S:execute(3)");
    house.folder.write("OM.LUA", &om("S = OBJECT:new(44, \"S\")"));

    house.restart();

    assert_eq!(house.eval("keep"), "nil");
}

#[test]
fn a_damaged_file_is_kept_aside_and_reported() {
    let mut house = storage();
    fs::create_dir_all(house.storage()).unwrap();
    for damaged in ["{keep=", "while true do end", "(function() while true do end end)()", "5"] {
        let path = house.storage().join("S.lua");
        fs::write(&path, damaged).unwrap();

        house.folder.write("OM.LUA", &om("S = OBJECT:new(44, \"S\")"));
        house.restart();

        assert!(house.log_text().contains("is not a table of values"), "{damaged}: {}", house.log_text());
        assert_eq!(read(&path.with_extension("lua.bad")), damaged);
        assert_eq!(house.engine.counts().storage_errors, 1);
    }
}

#[test]
fn a_file_that_cannot_be_read_stays_as_it_is() {
    let mut house = storage();
    let path = house.storage().join("S.lua");
    let too_long = format!("{{keep=\"{}\"}}", "y".repeat(STORED_BYTES_MAX));
    fs::create_dir_all(house.storage()).unwrap();
    fs::write(&path, &too_long).unwrap();

    house.request(|reply| VcluRequest::Reset { reply });
    house.advance(10 * SECOND);

    assert!(read(&path) == too_long, "the file was written");
    assert!(house.log_text().contains("is not written until the next start"), "{}", house.log_text());
    assert_eq!(house.engine.counts().storage_errors, 1);
    assert_eq!(house.eval("keep"), "5");
}

#[test]
fn values_that_are_too_large_for_the_file_are_reported_and_the_file_stays() {
    for (large, reason) in [
        ("(\"x\"):rep(70000)", "longer than"),
        ("(function() keep = {} for i = 1, 2600 do keep[i] = 1 end return keep end)()", "values"),
    ] {
        let mut house = storage();
        house.advance(2 * SECOND);

        house.eval(&format!("(function() list = {large} end)()"));
        house.advance(10 * SECOND);

        assert_eq!(read(&house.storage().join("S.lua")), "{keep=5,list={}}");
        assert!(house.log_text().contains(reason), "{}", house.log_text());
        assert_eq!(house.engine.counts().storage_errors, 1);

        house.eval("(function() keep = 5 list = {1} end)()");
        house.advance(2 * SECOND);
        assert_eq!(read(&house.storage().join("S.lua")), "{keep=5,list={1}}");
    }
}

#[test]
fn a_table_that_is_too_deep_to_be_read_again_is_not_stored() {
    let mut house = storage();
    let nest =
        |n_deep: usize| format!("(function() keep, list = {}{}, 1 end)()", "{".repeat(n_deep), "}".repeat(n_deep));

    house.eval(&nest(TABLE_DEPTH_MAX));
    house.advance(2 * SECOND);
    house.restart();
    assert_eq!(house.eval("list"), "1", "{}", house.log_text());
    house.eval(&nest(TABLE_DEPTH_MAX + 1));
    house.advance(2 * SECOND);
    assert_eq!(read(&house.storage().join("S.lua")), "{list=1}");
}

#[test]
fn a_file_that_cannot_be_written_is_reported_once() {
    let objects = "keep = 5 S = OBJECT:new(44, \"S\") S:execute(4, \"keep\")";
    let files = [("MAIN.LUA", MAIN), ("OM.LUA", &om(objects)), ("USER.LUA", "")];
    let mut house = House::configured(&files, |config| config.storage = Some("/dev/null/storage".into()));

    house.advance(10 * SECOND);

    let counts = house.engine.counts();
    assert!(counts.storage_errors >= 1 && counts.storage_writes == 0, "{counts:?}");
    assert_eq!(house.log_text().matches("cannot be written").count(), 1, "{}", house.log_text());
}

#[test]
fn a_value_that_is_too_large_to_be_read_is_reported_and_the_file_stays() {
    let mut house = storage();
    house.advance(2 * SECOND);

    house.eval(&format!("(function() list = (\"x\"):rep({}) end)()", TABLE_BYTES_MAX + 1));
    house.advance(10 * SECOND);

    assert_eq!(read(&house.storage().join("S.lua")), "{keep=5,list={}}");
    assert!(house.log_text().contains("cannot be written: the variable list"), "{}", house.log_text());
    assert_eq!(house.engine.counts().storage_errors, 1);
}

#[test]
fn a_variable_that_cannot_be_stored_is_reported_once() {
    let mut house = storage();

    house.eval("(function() list = print end)()");
    house.advance(10 * SECOND);

    assert_eq!(read(&house.storage().join("S.lua")), "{keep=5}");
    assert_eq!(house.log_text().matches("the variable list has a function").count(), 1, "{}", house.log_text());
    assert_eq!(house.engine.counts().storage_errors, 1);
}

#[test]
fn values_that_find_no_memory_stay_in_the_file() {
    let mut house = storage();
    let path = house.storage().join("S.lua");
    let stored = format!("{{keep=\"{}\"}}", "y".repeat(60_000));
    fs::create_dir_all(house.storage()).unwrap();
    fs::write(&path, &stored).unwrap();
    let fills = "S = OBJECT:new(44, \"S\") kept = {} \
        pcall(function() while true do kept[#kept + 1] = (\"x\"):rep(16384) .. #kept end end)";
    house.folder.write("OM.LUA", &om(fills));

    house.restart();
    house.advance(10 * SECOND);

    assert!(read(&path) == stored, "the file was written");
    assert!(house.log_text().contains("the variable keep cannot be restored"), "{}", house.log_text());
}

#[test]
fn a_storage_object_whose_name_is_too_long_for_a_file_is_reported() {
    let mut house = storage();
    let name = "ż".repeat(NAME_BYTES_MAX / 2);

    house.eval(&format!("OBJECT:new(44, \"{name}\"):execute(4, \"keep\")"));
    house.advance(10 * SECOND);

    assert!(house.log_text().contains("its name is too long for the name of a file"), "{}", house.log_text());
    assert_eq!(house.engine.counts().storage_errors, 1);
}
