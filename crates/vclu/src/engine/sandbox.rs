//! The environment of the scripts: a Lua state with confined libraries, and the functions that reach the objects.

use std::cell::OnceCell;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::rc::Rc;

use mlua::{Error, Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, Variadic};

use super::budget::Budget;
use super::convert::{from_lua, to_lua};
use super::pattern::{PatternSearch, is_affordable};
use super::subscription::{FetchItem, ReportReceiver, SubscriptionChange};
use crate::folder::{has_script, read_script};
use crate::limit::{
    ARGUMENTS_MAX, FETCH_BYTES_MAX, FETCH_ITEMS_MAX, LOAD_BYTES_MAX, LOG_TEXT_MAX, NAME_BYTES_MAX, PATTERN_STEPS_MAX,
    SCRIPT_BYTES_MAX, SUBSCRIPTION_CHANGES_MAX,
};
use crate::log::LogSeverity;
use crate::object::world::{CallWait, ScriptVariables, SharedWorld, class_of};
use crate::object::{ObjectClass, ObjectError};
use crate::value::{LuaValue, NumberFormat};

/// A Lua state, ready to run scripts.
pub(crate) struct Sandbox {
    pub lua: Lua,
    pub host: Rc<ScriptHost>,
    /// The body of the coroutines in which calls run.
    pub run: Function,
    /// What a coroutine yields after a call, in `SYSTEM.Loop`, in `SYSTEM.Wait`, and where it waits for the result of a method.
    pub done: Table,
    pub looped: Table,
    pub wait: Table,
    pub result: Table,
    pub boot: Function,
    pub dofile: Function,
}

/// What the functions of the environment use.
pub(crate) struct ScriptHost {
    pub world: SharedWorld,
    pub budget: Rc<Budget>,
    pub folder: PathBuf,
    pub format: NumberFormat,
    /// The metatable of objects.
    object: OnceCell<Table>,
}

/// The global variables of a Lua state.
pub(crate) struct Globals<'a> {
    lua: &'a Lua,
    host: &'a ScriptHost,
}

impl Sandbox {
    pub fn new(world: SharedWorld, budget: Rc<Budget>, folder: PathBuf, format: NumberFormat) -> mlua::Result<Sandbox> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::COROUTINE;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let host = Rc::new(ScriptHost { world, budget, folder, format, object: OnceCell::new() });
        let functions = lua.create_table()?;
        add_object_functions(&lua, &host, &functions)?;
        add_system_functions(&lua, &host, &functions)?;
        add_file_functions(&lua, &host, &functions)?;
        let prelude: Table = lua.load(include_str!("prelude.lua")).set_name("=prelude").call(functions)?;
        let object: Table = prelude.get("object")?;
        // The cell is empty: it is filled here only.
        let _ = host.object.set(object);
        Rc::clone(&host.budget).install(&lua)?;
        Ok(Sandbox {
            run: prelude.get("run")?,
            done: prelude.get("done")?,
            looped: prelude.get("loop")?,
            wait: prelude.get("wait")?,
            result: prelude.get("result")?,
            boot: prelude.get("boot")?,
            dofile: prelude.get("dofile")?,
            lua,
            host,
        })
    }

    pub fn globals(&self) -> Globals<'_> {
        Globals { lua: &self.lua, host: &self.host }
    }

    /// The current value of each item.
    pub fn fetch(&self, items: &[FetchItem], bytes_max: usize) -> Vec<LuaValue> {
        fetch_items(&self.lua, &self.host, items, bytes_max)
    }
}

impl ScriptHost {
    pub fn outside(&self, value: &Value) -> mlua::Result<LuaValue> {
        let object = self.object.get().ok_or_else(|| Error::runtime("the prelude has not been loaded"))?;
        from_lua(value, object)
    }

    /// The arguments of a call.
    fn arguments<'a>(&self, values: impl ExactSizeIterator<Item = &'a Value>) -> mlua::Result<Vec<LuaValue>> {
        if values.len() > ARGUMENTS_MAX {
            return Err(Error::runtime(format!("a call has at most {ARGUMENTS_MAX} arguments")));
        }
        values.map(|value| self.outside(value)).collect()
    }

    /// The value of a call of an object; a refused call is logged, and its value is `nil` as on a device.
    fn answer(
        &self,
        lua: &Lua,
        what: std::fmt::Arguments<'_>,
        result: Result<LuaValue, ObjectError>,
    ) -> mlua::Result<Value> {
        self.budget.check()?;
        match result {
            Ok(value) => to_lua(&value, lua),
            Err(error) => {
                self.world.borrow().refuse(format!("{what}: {error}"));
                Ok(Value::Nil)
            }
        }
    }
}

impl ScriptVariables for Globals<'_> {
    fn get(&self, name: &str) -> Result<LuaValue, String> {
        let value = self.lua.globals().raw_get::<Value>(name);
        value.and_then(|value| self.host.outside(&value)).map_err(|error| error.to_string())
    }

    fn set(&self, name: &str, value: &LuaValue) -> Result<(), String> {
        let set = to_lua(value, self.lua).and_then(|value| self.lua.globals().raw_set(name, value));
        set.map_err(|error| error.to_string())
    }
}

/// The current value of each item. A value that is too long together with those before it is `nil`.
fn fetch_items(lua: &Lua, host: &ScriptHost, items: &[FetchItem], bytes_max: usize) -> Vec<LuaValue> {
    let mut n_bytes_left = bytes_max;
    let fetch = |item| {
        let value = fetch_item(lua, host, item);
        match n_bytes_left.checked_sub(value.n_bytes()) {
            Some(n_left) => {
                n_bytes_left = n_left;
                value
            }
            None => {
                host.world.borrow().refuse(format!("the fetched values have more than {bytes_max} bytes"));
                LuaValue::Nil
            }
        }
    };
    items.iter().map(fetch).collect()
}

fn fetch_item(lua: &Lua, host: &ScriptHost, item: &FetchItem) -> LuaValue {
    match item {
        FetchItem::Feature { object, index } => {
            host.world.borrow_mut().get(object, *index, &Globals { lua, host }).unwrap_or_default()
        }
        FetchItem::Event { object, address } => {
            let n_fired = host.world.borrow().n_fired(object, *address);
            n_fired.map_or(LuaValue::Nil, |n_fired| LuaValue::Number(n_fired as f64))
        }
        FetchItem::Variable(_) if host.budget.is_exceeded() => LuaValue::Nil,
        FetchItem::Variable(name) => {
            let globals = lua.globals();
            let value = match globals.raw_get::<Value>("getVar") {
                Ok(Value::Function(get_variable)) => get_variable.call::<Value>(name.as_str()),
                _ => globals.raw_get::<Value>(name.as_str()),
            };
            value.and_then(|value| host.outside(&value)).unwrap_or_else(|error| {
                host.world.borrow().refuse(format!("the variable \"{name}\" cannot be read: {error}"));
                LuaValue::Nil
            })
        }
        FetchItem::Unknown => LuaValue::Nil,
    }
}

/// `create`, `get`, `set`, `execute` and `add_event`.
fn add_object_functions(lua: &Lua, host: &Rc<ScriptHost>, functions: &Table) -> mlua::Result<()> {
    let shared = Rc::clone(host);
    let create = lua.create_function(move |lua, arguments: Variadic<Value>| create(lua, &shared, &arguments))?;
    functions.set("create", create)?;

    let shared = Rc::clone(host);
    let get = lua.create_function(move |lua, (name, index): (String, u16)| {
        let value = shared.world.borrow_mut().get(&name, index, &Globals { lua, host: &shared });
        shared.answer(lua, format_args!("{name}:get({index})"), value)
    })?;
    functions.set("get", get)?;

    let shared = Rc::clone(host);
    let set = lua.create_function(move |lua, (name, index, value): (String, u16, Value)| {
        let value = shared.outside(&value)?;
        let result = shared.world.borrow_mut().set(&name, index, value, &Globals { lua, host: &shared });
        shared.answer(lua, format_args!("{name}:set({index}, ..)"), result.map(|()| LuaValue::Nil))
    })?;
    functions.set("set", set)?;

    let shared = Rc::clone(host);
    let execute =
        lua.create_function(move |lua, (is_call, name, index, rest): (bool, String, u16, Variadic<Value>)| {
            let arguments = shared.arguments(rest.iter())?;
            let mut world = shared.world.borrow_mut();
            let outside = world.call_wait;
            if !is_call {
                world.call_wait = CallWait::InCoroutine;
            }
            let result = world.call(&name, index, arguments, &Globals { lua, host: &shared });
            world.call_wait = outside;
            let ticket = world.awaited.take().map(|ticket| ticket.0);
            drop(world);
            Ok((shared.answer(lua, format_args!("{name}:execute({index}, ..)"), result)?, ticket))
        })?;
    functions.set("execute", execute)?;

    let shared = Rc::clone(host);
    let add_event = lua.create_function(move |lua, (name, address, handler): (String, u16, Function)| {
        let result = shared.world.borrow_mut().add_event(&name, address, handler);
        shared.answer(lua, format_args!("{name}:add_event({address}, ..)"), result.map(|()| LuaValue::Nil))
    })?;
    functions.set("add_event", add_event)
}

/// `OBJECT:new` and `GATE:new` in all their forms. Returns the name of the object.
fn create(lua: &Lua, host: &Rc<ScriptHost>, arguments: &[Value]) -> mlua::Result<String> {
    host.budget.check()?;
    let arguments = host.arguments(arguments.iter())?;
    let mut world = host.world.borrow_mut();
    let (name, class) = match constructed(&arguments) {
        Ok(constructed) => constructed,
        Err(reason) => return Err(Error::runtime(reason)),
    };
    if world.has_object(&name) {
        world.log(LogSeverity::Warning, format!("the object {name} is created again and replaces the first"));
    }
    let class = match class {
        Constructed::Class(class) => Some(class),
        Constructed::Peer(class, address) => {
            world.peer_address = Some(address);
            Some(class)
        }
        Constructed::Unavailable { reason } => {
            world.refuse(format!("the object {name} is not available: {reason}"));
            None
        }
    };
    world.create(class, &name, &Globals { lua, host }).map_err(|error| Error::runtime(error.to_string()))?;
    Ok(name)
}

/// What a constructor names.
enum Constructed {
    Class(&'static ObjectClass),
    /// Another CLU, with its address.
    Peer(&'static ObjectClass, Ipv4Addr),
    Unavailable {
        reason: String,
    },
}

/// The forms, each with OBJECT or GATE as its first value: `(0, ip, "CLU")` is the CLU itself; `(1, ip, "CLU")` is another
/// CLU; `(class, "ID")` is an object of the CLU; `(class, module, index, "ID")` is an object of a module; a gate itself has
/// its addresses, `(5000, ip, mask, gateway, "", "")`.
fn constructed(arguments: &[LuaValue]) -> Result<(String, Constructed), String> {
    let [LuaValue::Text(kind), LuaValue::Number(number), rest @ ..] = arguments else {
        return Err("the first argument of new must be the number of a class".into());
    };
    let class = class_of(*number as u32).filter(|_| number.fract() == 0.0 && *number >= 0.0);
    let name_of = |value: Option<&LuaValue>| match value {
        Some(LuaValue::Text(name)) if name.len() > NAME_BYTES_MAX => {
            Err(format!("the name of an object has at most {NAME_BYTES_MAX} bytes"))
        }
        Some(LuaValue::Text(name)) if !name.is_empty() => Ok(name.clone()),
        _ => Err(format!("{kind}:new({number}, ..) has no name")),
    };
    let unavailable = |reason: String| Constructed::Unavailable { reason };
    if kind == "GATE" && rest.len() >= 3 {
        let own = class_of(0).map(Constructed::Class);
        let own = own.unwrap_or_else(|| unavailable("there is no class 0".into()));
        return Ok((name_of(rest.last()).unwrap_or_else(|_| "GATE".into()), own));
    }
    match (*number, rest) {
        (0.0, [LuaValue::Number(_), name]) => {
            let own = class.map(Constructed::Class).unwrap_or_else(|| unavailable("there is no class 0".into()));
            Ok((name_of(Some(name))?, own))
        }
        (1.0, [LuaValue::Number(address), name]) => {
            let peer = class.map(|class| Constructed::Peer(class, Ipv4Addr::from_bits(*address as u32)));
            Ok((name_of(Some(name))?, peer.unwrap_or_else(|| unavailable("there is no class 1".into()))))
        }
        (_, [name]) => {
            let constructed = match class {
                Some(class) => Constructed::Class(class),
                None => unavailable(format!("class {number} is not supported")),
            };
            Ok((name_of(Some(name))?, constructed))
        }
        (_, [_module, .., name]) => {
            Ok((name_of(Some(name))?, unavailable(format!("it belongs to a module of class {number}"))))
        }
        (_, []) => Err(format!("{kind}:new({number}) has no name")),
    }
}

/// `check`, `begin_coroutine`, `error_text`, `log`, `init` and the subscriptions.
fn add_system_functions(lua: &Lua, host: &Rc<ScriptHost>, functions: &Table) -> mlua::Result<()> {
    let shared = Rc::clone(host);
    functions.set("check", lua.create_function(move |_, ()| shared.budget.check())?)?;

    let shared = Rc::clone(host);
    functions.set("begin_coroutine", lua.create_function(move |lua, ()| shared.budget.begin_coroutine(lua))?)?;
    functions.set("load_bytes_max", LOAD_BYTES_MAX)?;
    functions.set("error_text", lua.create_function(|_, error: Value| Ok(error_text(&error)))?)?;

    let shared = Rc::clone(host);
    let check_pattern = lua.create_function(move |_, (search, text, pattern, init, replacement)| {
        check_pattern(&shared, search, &text, &pattern, init, &replacement)
    })?;
    functions.set("check_pattern", check_pattern)?;

    let shared = Rc::clone(host);
    let log = lua.create_function(move |_, (level, text): (String, LuaString)| {
        let level = match level.as_str() {
            "debug" => LogSeverity::Debug,
            "warning" => LogSeverity::Warning,
            "error" => LogSeverity::Error,
            _ => LogSeverity::Info,
        };
        let text = text.as_bytes();
        let start = text.get(..LOG_TEXT_MAX).unwrap_or(&text);
        shared.world.borrow().log(level, String::from_utf8_lossy(start));
        Ok(())
    })?;
    functions.set("log", log)?;

    let shared = Rc::clone(host);
    let init = lua.create_function(move |lua, ()| {
        shared.budget.check()?;
        shared.world.borrow_mut().init(&Globals { lua, host: &shared });
        Ok(())
    })?;
    functions.set("init", init)?;

    let shared = Rc::clone(host);
    let register = lua.create_function(move |lua, arguments: MultiValue| client_register(lua, &shared, arguments))?;
    functions.set("client_register", register)?;

    let shared = Rc::clone(host);
    let destroy = lua.create_function(move |_, arguments: MultiValue| client_destroy(&shared, arguments))?;
    functions.set("client_destroy", destroy)?;

    let shared = Rc::clone(host);
    let fetch = lua.create_function(move |lua, items: Value| {
        let items = items_of(&shared.outside(&items)?)?;
        Ok(format!("values:{}", fetched(lua, &shared, &items)?))
    })?;
    functions.set("fetch_values", fetch)
}

/// `source` and `has_script`.
fn add_file_functions(lua: &Lua, host: &Rc<ScriptHost>, functions: &Table) -> mlua::Result<()> {
    let shared = Rc::clone(host);
    let source = lua.create_function(move |_, name: String| {
        shared.budget.check()?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::runtime("the name of the file is too long"));
        }
        let text = read_script(&shared.folder, &name).map_err(|error| Error::runtime(format!("{name}: {error}")))?;
        if text.len() > SCRIPT_BYTES_MAX {
            let n_bytes = text.len();
            let reason = format!("{name}: the script has {n_bytes} bytes; the maximum is {SCRIPT_BYTES_MAX}");
            return Err(Error::runtime(reason));
        }
        Ok(text)
    })?;
    functions.set("source", source)?;

    let shared = Rc::clone(host);
    let has = lua.create_function(move |_, name: String| Ok(has_script(&shared.folder, &name)))?;
    functions.set("has_script", has)
}

/// The text of an error of the engine, without its place in the engine.
fn error_text(error: &Value) -> String {
    let text = match error {
        Value::Error(error) => match error.chain().last().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(Error::RuntimeError(text)) => text.clone(),
            Some(cause) => cause.to_string(),
            None => error.to_string(),
        },
        other => other.type_name().to_string(),
    };
    text.chars().take(LOG_TEXT_MAX).collect()
}

/// Fails for a search that would take too long. `init`: the position where it starts; a negative one counts from the end.
/// Returns the position from 1 on.
fn check_pattern(
    host: &ScriptHost,
    search: String,
    text: &LuaString,
    pattern: &LuaString,
    init: Option<f64>,
    replacement: &Value,
) -> mlua::Result<usize> {
    host.budget.check()?;
    let text = text.as_bytes();
    let start = match init.unwrap_or(1.0) {
        init if init < 0.0 => (text.len() as f64 + init.trunc()).max(0.0),
        init => init - 1.0,
    };
    // A start after the end of the text finds nothing.
    let start = (start as usize).min(text.len() + 1);
    let search = match search.as_str() {
        "first" => PatternSearch::First { start },
        "plain" => PatternSearch::Plain { start },
        "all" => PatternSearch::All,
        _ => PatternSearch::Iterate,
    };
    let n_escapes = match replacement {
        Value::String(replacement) => replacement.as_bytes().iter().filter(|byte| **byte == b'%').count(),
        _ => 0,
    };
    let n_replaced = n_escapes.saturating_mul(text.len() + 1) as u64;
    if n_replaced <= PATTERN_STEPS_MAX && is_affordable(&text, &pattern.as_bytes(), search) {
        return Ok(start + 1);
    }
    Err(Error::runtime("the search with this pattern needs too many steps"))
}

/// The values of the items as a list. The budget's error is not only the error of an item.
fn fetched(lua: &Lua, host: &ScriptHost, items: &[FetchItem]) -> mlua::Result<String> {
    let values = fetch_items(lua, host, items, FETCH_BYTES_MAX);
    host.budget.check()?;
    Ok(LuaValue::list(values).to_text(host.format))
}

/// `clientRegister("10.0.0.1", 4344, id, items)`, or `clientRegister(0, id, 1, items)` for the source of the request.
fn client_register(lua: &Lua, host: &ScriptHost, arguments: MultiValue) -> mlua::Result<String> {
    let (receiver, client_id, rest) = subscriber(host, arguments)?;
    let items = items_of(rest.last().unwrap_or(&LuaValue::Nil))?;
    let text = format!("clientReport:{client_id}:{}", fetched(lua, host, &items)?);
    change(host, SubscriptionChange::Register { receiver, client_id, items })?;
    Ok(text)
}

fn client_destroy(host: &ScriptHost, arguments: MultiValue) -> mlua::Result<i64> {
    let (receiver, client_id, _) = subscriber(host, arguments)?;
    change(host, SubscriptionChange::Destroy { receiver, client_id })?;
    Ok(client_id)
}

fn change(host: &ScriptHost, change: SubscriptionChange) -> mlua::Result<()> {
    let changes = &mut host.world.borrow_mut().subscriptions;
    if changes.len() == SUBSCRIPTION_CHANGES_MAX {
        return Err(Error::runtime(format!("a request changes at most {SUBSCRIPTION_CHANGES_MAX} subscriptions")));
    }
    changes.push(change);
    Ok(())
}

/// The receiver and the number of a subscription, and the further arguments.
fn subscriber(host: &ScriptHost, arguments: MultiValue) -> mlua::Result<(ReportReceiver, i64, Vec<LuaValue>)> {
    let mut values = host.arguments(arguments.iter())?;
    let wrong = || Error::runtime("the arguments must be (\"address\", port, number, items) or (0, number, 1, items)");
    let [address, second, ..] = values.as_slice() else { return Err(wrong()) };
    if address.n_bytes() > NAME_BYTES_MAX {
        return Err(wrong());
    }
    let receiver = ReportReceiver::from_arguments(address, second).ok_or_else(wrong)?;
    let id_at = if receiver == ReportReceiver::Source { 1 } else { 2 };
    let client_id = values.get(id_at).and_then(LuaValue::as_number).filter(|id| id.fract() == 0.0).ok_or_else(wrong)?;
    Ok((receiver, client_id as i64, values.split_off(id_at + 1)))
}

/// The items `{OBJECT, index}` and `"variable"` of a list.
fn items_of(list: &LuaValue) -> mlua::Result<Vec<FetchItem>> {
    let LuaValue::Table(entries) = list else { return Err(Error::runtime("the items must be a table")) };
    if entries.len() > FETCH_ITEMS_MAX {
        return Err(Error::runtime(format!("a subscription has at most {FETCH_ITEMS_MAX} items")));
    }
    Ok(entries.iter().map(|(_, item)| item_of(item)).collect())
}

fn item_of(item: &LuaValue) -> FetchItem {
    match item {
        LuaValue::Text(name) if name.len() <= NAME_BYTES_MAX => FetchItem::Variable(name.clone()),
        LuaValue::Table(pair) => match pair.as_slice() {
            [(_, LuaValue::Object(object)), (_, LuaValue::Number(index))]
                if object.len() <= NAME_BYTES_MAX && *index == f64::from(*index as u16) =>
            {
                FetchItem::Feature { object: object.clone(), index: *index as u16 }
            }
            _ => FetchItem::Unknown,
        },
        _ => FetchItem::Unknown,
    }
}
