//! What limits scripts: time, memory, and what they reach.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::time::Duration;

use fodo_vclu::limit::{FETCH_BYTES_MAX, SCRIPT_BYTES_MAX};
use fodo_vclu::{CluState, FetchItem, LuaValue, SubscriptionChange, VcluConfig, VcluRequest};

use support::{House, MAIN, om};

#[test]
fn an_endless_loop_ends_with_nil_and_the_next_request_is_answered() {
    let mut house = House::with_objects("");
    let scripts = [
        "(function() while true do end end)()",
        "(function() while true do pcall(function() while true do end end) end end)()",
        "(function() while true do xpcall(error, function() while true do end end) end end)()",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "coroutine.wrap(function() while true do end end)()",
        "(function() while true do coroutine.resume(coroutine.create(function() while true do end end)) end end)()",
        "(function() local function f() return f() end return f() end)()",
        "setmetatable({}, {__index = function(t, k) return t[k .. \"\"] end}).x",
    ];

    for script in scripts {
        let answer = house.answer(script);
        assert_eq!((answer.text.as_str(), answer.is_error), ("nil", true), "{script}");
        assert_eq!(house.eval("checkAlive()"), "0d0a1b2c", "{script}");
    }
    // The error without a text and the one that nests too deep end at once.
    let exceeded = house.engine.counts().budgets_exceeded;
    assert!((6..=8).contains(&exceeded), "{exceeded}: {}", house.log_text());
    assert_eq!(house.eval("{xpcall(error, function(text) return text .. \"!\" end, \"no\")}"), "{false,\"no!\"}");
    assert_eq!(house.eval("{xpcall(math.max, print, 1, 2)}"), "{true,2}");
}

#[test]
fn a_search_that_would_not_end_is_an_error_and_others_work() {
    let mut house = House::with_objects("");

    for search in ["find(p)", "match(p)", "gsub(p, \"\")", "gmatch(p)"] {
        let script = format!("(function() local p = (\"a*\"):rep(8) .. \"b\" return (\"a\"):rep(3000):{search} end)()");
        assert!(house.answer(&script).is_error, "{search}");
    }
    assert!(house.log_text().contains("needs too many steps"), "{}", house.log_text());
    for (script, text) in [
        ("{(\"key = 1\"):find(\"(%w+)%s*=%s*(%w+)\")}", "{1,7,\"key\",\"1\"}"),
        ("{(\"a.b\"):find(\".\", 2, true)}", "{2,2}"),
        ("(\"a1b22\"):match(\"%d+\", -2)", "22"),
        ("{(\"a b\"):gsub(\"%a\", string.upper)}", "{\"A B\",2}"),
        ("{(\"aaa\"):gsub(\"a\", \"b\", 2)}", "{\"bba\",2}"),
        ("(function() local n = 0 for w in (\"x yy z\"):gmatch(\"%a+\") do n = n + #w end return n end)()", "4"),
    ] {
        assert_eq!(house.eval(script), text, "{script}");
    }
}

/// A CLU with the clock of the computer and a small budget.
fn hurried(objects: &str) -> House {
    House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om(objects)), ("USER.LUA", "")], |config| {
        config.clock = VcluConfig::new("").clock;
        config.instructions_max = 1_000_000;
    })
}

/// Each script ends with an error, and the next request is answered.
fn each_fails(house: &mut House, scripts: &[&str]) {
    for script in scripts {
        let answer = house.answer(script);
        assert_eq!((answer.text.as_str(), answer.is_error), ("nil", true), "{script}");
        assert_eq!(house.eval("checkAlive()"), "0d0a1b2c", "{script}");
    }
}

#[test]
fn each_search_that_would_take_long_is_an_error() {
    let mut house = hurried("");

    each_fails(
        &mut house,
        &[
            "(\"a\"):rep(40):find((\"a?\"):rep(40) .. (\"a\"):rep(40) .. \"b\")",
            "(\"(\"):rep(4e6):find(\"%b()\")",
            "(\"(\"):rep(4e6):find(\"%b()\", -4e6 - 0.5)",
            "(\"a\"):rep(2e6):find((\"a\"):rep(1e6) .. \"b\")",
            "(\"a\"):rep(2e6):find((\"a\"):rep(1e6) .. \"b\", 1, true)",
            "(\"a\"):rep(4e6):match(\"[\" .. (\"b\"):rep(1e6) .. \"]\")",
            "(\"a\"):rep(4e6):match(\"%f[\" .. (\"b\"):rep(1e6) .. \"]\")",
            "(\"a\"):rep(4e5):match(\"(a*)%1b\")",
            "(\"x\"):rep(1e6):gsub(\"(y?)\", (\"%1\"):rep(1e6))",
        ],
    );

    let refused = house.log_text().matches("needs too many steps").count();
    assert_eq!(refused, 9, "{}", house.log_text());
    // Lua converts such a position to a small one.
    assert_eq!(house.eval("(\"(\"):rep(4e6):find(\"%b()\", 1e300)"), "nil");
    assert_eq!(house.eval("{(\"xxab\"):rep(1e6):find(\"ab\", 3, true)}"), "{3,4}");
    assert_eq!(house.eval("{(\"\"):find(\"\", 1, true)}"), "{1,0}");
    assert_eq!(house.eval("(function() return (select(2, (\"a\"):rep(1e6):gsub(\"a\", \"b\"))) end)()"), "1000000");
}

#[test]
fn each_table_function_that_would_take_long_exceeds_the_budget() {
    let mut house = hurried(
        "endless = setmetatable({}, {__len = function() return 2^31 - 2 end}) \
         local text = \"\" for i = 0, 29 do text = text .. \"[2^\" .. i .. \"] = 0,\" end \
         sparse = load(\"return {\" .. text .. \"}\")",
    );
    let scripts = [
        "table.remove(endless, 1)",
        "table.insert(endless, 1, 0)",
        "table.insert(sparse(), 1, 0)",
        "table.remove(sparse(), 1)",
        "(function() local t = {} for i = 1, 1e5 do t[i] = i * 7919 % 1e5 end table.sort(t) end)()",
        "(function() local t = {} for i = 1, 1e5 do t[i] = i % 2 == 0 end table.sort(t, rawequal) end)()",
    ];

    assert_eq!(house.eval("#sparse()"), "536870912");

    each_fails(&mut house, &scripts);

    assert_eq!(house.engine.counts().budgets_exceeded, scripts.len() as u64, "{}", house.log_text());
}

#[test]
fn table_functions_return_what_lua_returns() {
    let mut house = House::with_objects("");

    for (script, text) in [
        ("(function() local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) return t end)()", "{0,1,2,3}"),
        ("(function() local t = {1, 3} table.insert(t, 2.9, 2) return t end)()", "{1,2,3}"),
        ("(function() local t = {1} table.insert(t, 1, nil) return t end)()", "{nil,1}"),
        ("(function() local t = {5, 6, 7} return {table.remove(t, 1), table.remove(t), t} end)()", "{5,7,{6}}"),
        ("{table.remove({}), table.remove({}, 0), table.remove({1, 2}, 3), 4}", "{[4]=4}"),
        ("(function() local t = {3, 1, 2} table.sort(t) return t end)()", "{1,2,3}"),
        ("(function() local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t end)()", "{3,2,1}"),
        ("{pcall(table.insert, {}, 5, 1)}", "{false,\"bad argument #2 to 'insert' (position out of bounds)\"}"),
        ("{(pcall(table.insert, {}))}", "{false}"),
        ("{(pcall(table.remove, {}, 2))}", "{false}"),
        ("{(pcall(table.sort, {}, 5))}", "{false}"),
    ] {
        assert_eq!(house.eval(script), text, "{script}: {}", house.log_text());
    }
}

#[test]
fn no_function_hides_that_the_budget_is_exceeded() {
    let mut house = hurried("function getVar() while true do end end");
    let scripts = [
        "(function() while true do SYSTEM:fetchValues({\"a\"}) end end)()",
        "(function() while true do SYSTEM:clientRegister(0, 7, 1, {\"a\"}) end end)()",
        "(function() while true do load(function() while true do end end) end end)()",
        "(function() while true do load(function() return \" \" end) end end)()",
        "(function() local function nest(depth) for i = 1, 100 do \
           coroutine.wrap(function() if depth > 0 then nest(depth - 1) end end)() end end nest(8) end)()",
        "(function() local function nest(depth) for i = 1, 50 do \
           coroutine.resume(coroutine.create(function() if depth > 0 then nest(depth - 1) end end)) end end \
           nest(8) end)()",
    ];

    each_fails(&mut house, &scripts);

    assert_eq!(house.engine.counts().budgets_exceeded, scripts.len() as u64, "{}", house.log_text());
}

#[test]
fn scripts_set_no_finalizers() {
    let mut house = House::with_objects("");

    house.eval("OBJECT.__gc = function() finalized = true end");

    assert!(house.answer("OBJECT:new(6, \"X\")").is_error);
    assert!(house.answer("GATE:new(6, \"X\")").is_error);
    assert_eq!(house.eval("collectgarbage(), finalized"), "0");
    assert_eq!(house.eval("finalized"), "nil");
}

#[test]
fn scripts_cannot_continue_a_call_of_the_engine() {
    let mut house = House::with_objects("");

    let waiting = house.start("(function() saved = coroutine.running() SYSTEM:Wait(1000) return \"own\" end)()");

    assert_eq!(house.eval("{coroutine.resume(saved, print)}"), "{false,\"cannot resume a call of the engine\"}");
    house.advance(Duration::from_secs(2));
    assert_eq!(waiting.try_recv().unwrap().unwrap().text, "own");
}

#[test]
fn what_scripts_give_to_the_engine_has_limits() {
    let mut house = House::with_objects(
        "TIM1 = OBJECT:new(6, \"TIM1\") CAL1 = OBJECT:new(7, \"CAL1\") long = (\"x\"):rep(1e5) \
         many = {} for i = 1, 1000 do many[i] = long end",
    );

    each_fails(
        &mut house,
        &[
            "OBJECT:new(6, long)",
            "OBJECT:new(unpack(many))",
            "TIM1:execute(0, unpack(many))",
            "SYSTEM:clientRegister(unpack(many))",
            "SYSTEM:clientRegister(long, 4344, 1, {})",
            "(function() for i = 1, 65 do SYSTEM:clientRegister(0, i, 1, {}) end end)()",
            "(function() for i = 1, 65 do SYSTEM:clientDestroy(0, i, 1) end end)()",
            "dofile(long)",
            "load(long)()",
        ],
    );

    assert_eq!(house.eval("{pcall(dofile, \"NONE.LUA\")}"), "{false,\"NONE.LUA: the file does not exist\"}");
    assert_eq!(house.eval("SYSTEM:fetchValues({\"long\", \"title\"})"), "values:{nil,nil}");
    let values = house.request(|reply| VcluRequest::Fetch {
        items: vec![FetchItem::Variable("long".into())],
        bytes_max: FETCH_BYTES_MAX,
        reply,
    });
    assert_eq!(values, [LuaValue::Nil]);
    for item in ["{TIM1, -1}", "{TIM1, 0.5}", "{TIM1, 65536}", "long"] {
        let answer = house.answer(&format!("SYSTEM:clientRegister(0, 8, 1, {{{item}}})"));
        let [SubscriptionChange::Register { items, .. }] = &answer.subscriptions[..] else { panic!("{answer:?}") };
        assert_eq!(items[..], [FetchItem::Unknown], "{item}");
    }
    let refused = house.engine.counts().calls_refused;
    house.eval("TIM1:set(0, long)");
    assert_eq!(house.engine.counts().calls_refused, refused + 1);
}

#[test]
fn stored_values_are_read_whatever_scripts_have_done() {
    let mut house = House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om("")), ("USER.LUA", "")], |config| {
        config.memory_bytes_max = 4 << 20;
    });
    fs::create_dir_all(house.storage()).unwrap();
    fs::write(house.storage().join("S.lua"), format!("{{a=\"{}\"}}", "x".repeat(500_000))).unwrap();
    fs::write(house.storage().join("T.lua"), "{a=\"x\"-\"y\"}").unwrap();

    house.eval("(function() getmetatable(\"\").__sub = function() return CLU0001:get(0) end end)()");
    house.eval("OBJECT:new(44, \"T\")");
    assert!(house.storage().join("T.lua.bad").exists());
    house
        .eval("(function() pcall(function() while true do kept = {kept} end end) kept = kept[1][1][1][1][1][1] end)()");
    house.eval("OBJECT:new(44, \"S\")");
    assert!(house.storage().join("S.lua").exists(), "{}", house.log_text());
    assert_eq!(house.eval("checkAlive()"), "0d0a1b2c");
}

#[test]
fn a_full_memory_and_many_arguments_do_not_end_the_clu() {
    let mut house = House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om("")), ("USER.LUA", "")], |config| {
        config.memory_bytes_max = 4 << 20;
    });

    for call in ["CLU0001:execute(0, unpack(t))", "SYSTEM:clientDestroy(unpack(t))", "OBJECT:new(unpack(t))"] {
        let script = format!(
            "(function() local t = {{}} for i = 1, 5000 do t[i] = {{}} end \
             local kept = {{}} pcall(function() while true do kept = {{kept}} end end) {call} end)()"
        );
        assert!(house.answer(&script).is_error, "{call}");
        assert_eq!(house.eval("checkAlive()"), "0d0a1b2c", "{call}");
    }
}

#[test]
fn a_script_that_eats_memory_ends_with_nil_and_the_next_request_is_answered() {
    let mut house = House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om("")), ("USER.LUA", "")], |config| {
        config.memory_bytes_max = 4 << 20;
    });
    let scripts = [
        "(function() local t = {} while true do t[#t + 1] = {t} end end)()",
        "(function() local s = \"x\" while true do s = s .. s end end)()",
        "string.rep(\"x\", 1e9)",
    ];

    for script in scripts {
        let answer = house.answer(script);
        assert_eq!((answer.text.as_str(), answer.is_error), ("nil", true), "{script}");
        assert_eq!(house.eval("checkAlive()"), "0d0a1b2c", "{script}");
    }
    assert_eq!(house.engine.counts().memory_errors, 3, "{}", house.log_text());
}

#[test]
fn a_memory_that_stays_full_does_not_stop_the_engine_and_a_reset_frees_it() {
    let mut house = House::configured(&[("MAIN.LUA", MAIN), ("OM.LUA", &om("")), ("USER.LUA", "")], |config| {
        config.memory_bytes_max = 4 << 20;
    });

    assert!(house.answer("(function() kept = {} while true do kept[#kept + 1] = {} end end)()").is_error);
    for _ in 0..20 {
        house.eval("(\"x\"):rep(2^20)");
    }
    let values = house.request(|reply| VcluRequest::Fetch {
        items: vec![FetchItem::Feature { object: "CLU0001".into(), index: 2 }],
        bytes_max: FETCH_BYTES_MAX,
        reply,
    });
    assert_eq!(values, [LuaValue::Number(1.0)]);

    assert_eq!(house.request(|reply| VcluRequest::Reset { reply }), CluState::Running);
    assert_eq!(house.eval("checkAlive()"), "0d0a1b2c");
    assert_eq!(house.eval("kept"), "nil");
}

#[test]
fn scripts_reach_neither_the_computer_nor_bytecode() {
    let mut house = House::with_objects("");

    for script in ["os", "io", "debug", "package", "loadfile", "string.dump", "jit", "bit32"] {
        assert_eq!(house.eval(script), "nil", "{script}");
    }
    assert_eq!(house.eval("(load(\"\\27Lua\", \"x\", \"b\"))"), "nil");
    assert_eq!(house.eval("(load(function() return nil end, \"x\", \"b\")) ~= nil"), "true");
    assert!(house.answer("setmetatable({}, {__gc = print})").is_error);
    assert_eq!(house.eval("collectgarbage(\"stop\")"), "0");
    assert_eq!(house.eval("math.floor(2.5) .. string.upper(\"a\") .. table.concat({1, 2})"), "2A12");
}

#[test]
fn scripts_load_files_of_their_folder_only() {
    let mut house = House::with_files(&[
        ("MAIN.LUA", MAIN),
        ("OM.LUA", &om("")),
        ("USER.LUA", "n_loaded = (n_loaded or 0) + 1"),
        ("PART.LUA", "return ... or \"no name\""),
    ]);

    assert_eq!(house.eval("n_loaded"), "1");
    assert_eq!(house.eval("require(\"USER\")"), "true");
    assert_eq!(house.eval("n_loaded"), "1");
    assert_eq!(house.eval("require \"part\""), "part");
    assert_eq!(house.eval("dofile(\"a:\\\\part.lua\")"), "no name");
    for script in ["dofile(\"../storage/x.lua\")", "dofile(\"/etc/passwd\")", "dofile(\"p:\\\\meas.bin\")"] {
        assert!(house.answer(script).is_error, "{script}");
    }
    assert!(house.log_text().contains("only files of the folder a: can be read"), "{}", house.log_text());
}

#[test]
fn a_script_file_that_is_too_long_to_be_compiled_is_an_error() {
    let mut house = House::with_objects("");
    let padded = |n_bytes: usize| format!("loaded = 1{}", " ".repeat(n_bytes - "loaded = 1".len()));
    house.folder.write("LONG.LUA", &padded(SCRIPT_BYTES_MAX));
    assert_eq!(house.eval("(function() dofile(\"LONG.LUA\") return loaded end)()"), "1");

    house.folder.write("LONG.LUA", &padded(SCRIPT_BYTES_MAX + 1));
    for script in ["dofile(\"LONG.LUA\")", "require(\"long\")"] {
        assert!(house.answer(script).is_error, "{script}");
    }
    let reason = format!("the script has {} bytes; the maximum is {SCRIPT_BYTES_MAX}", SCRIPT_BYTES_MAX + 1);
    assert!(house.log_text().contains(&reason), "{}", house.log_text());
}
