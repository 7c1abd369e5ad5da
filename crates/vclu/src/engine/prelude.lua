-- Prepares the environment of the scripts: confines the libraries, and defines SYSTEM, OBJECT and GATE.
-- The argument is a table of functions of the engine. Returns what the engine needs of this file.
local host = ...

local error, select, type, tostring, rawget, rawset = error, select, type, tostring, rawget, rawset
local pcall0, load0, setmetatable0, collect0 = pcall, load, setmetatable, collectgarbage
local yield, running, resume0 = coroutine.yield, coroutine.running, coroutine.resume
local create0, wrap0 = coroutine.create, coroutine.wrap
local rep0, upper, concat, sort0 = string.rep, string.upper, table.concat, table.sort
local find0, match0, gmatch0, gsub0 = string.find, string.match, string.gmatch, string.gsub

-- An error of the engine has its text outside the memory of the scripts, so that scripts receive a copy.
local function error_value(value)
  if type(value) == "userdata" then return host.error_text(value) end
  return value
end

-- A script that has exceeded its budget cannot continue by catching the error.
local function caught(is_ok, ...)
  host.check()
  if is_ok then return true, ... end
  return false, error_value(...)
end

local function checked_pcall(...) return caught(pcall0(...)) end
pcall = checked_pcall

-- Lua calls a message handler without the budget if the budget is the error. Here it is called after the error.
local function failed(_, ...)
  host.check()
  return false, error_value(...)
end

local function handled(handler, is_ok, ...)
  host.check()
  if is_ok then return true, ... end
  return failed(pcall0(handler, error_value(...)))
end

function xpcall(call, handler, ...) return handled(handler, pcall0(call, ...)) end

-- The coroutines in which calls run. The engine alone continues them.
local runners = setmetatable0({}, { __mode = "k" })

function coroutine.resume(thread, ...)
  if runners[thread] then return false, "cannot resume a call of the engine" end
  return caught(resume0(thread, ...))
end

-- Each coroutine counts its own instructions up to the next check of the budget.
function coroutine.create(call)
  host.begin_coroutine()
  return create0(call)
end

function coroutine.wrap(call)
  host.begin_coroutine()
  return wrap0(call)
end

-- Functions that work long in one instruction, in proportion to the length of a text or a table.
local function guarded(call)
  return function(...)
    host.check()
    return call(...)
  end
end
for _, name in ipairs({ "format", "lower", "reverse", "upper" }) do string[name] = guarded(string[name]) end
for _, name in ipairs({ "concat", "pack", "unpack" }) do table[name] = guarded(table[name]) end
tonumber = guarded(tonumber)

-- Text only: bytecode is not verified by Lua.
local function read_all(reader)
  local parts, n_bytes = {}, 0
  while true do
    local part = reader()
    if part == nil or part == "" then return concat(parts) end
    if type(part) ~= "string" then error("the reader function must return a text", 0) end
    n_bytes = n_bytes + #part
    if n_bytes > host.load_bytes_max then error("the chunk is too long", 0) end
    parts[#parts + 1] = part
  end
end

function load(chunk, name, _, ...)
  if type(chunk) == "function" then
    local is_ok, text = checked_pcall(read_all, chunk)
    if not is_ok then return nil, text end
    chunk, name = text, name or "=(load)"
  end
  host.check()
  if type(chunk) == "string" and #chunk > host.load_bytes_max then return nil, "the chunk is too long" end
  return load0(chunk, name, "t", ...)
end
string.dump = nil
loadfile = nil
unpack = table.unpack

-- Finalizers run without the budget.
local function checked_setmetatable(object, metatable)
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("__gc is not supported", 2)
  end
  return setmetatable0(object, metatable)
end
setmetatable = checked_setmetatable

-- Lua repeats an empty text one by one.
function string.rep(text, n, separator)
  if text == "" and (separator == nil or separator == "") then return "" end
  host.check()
  return rep0(text, n, separator)
end

-- A search is one instruction, and the number of its steps grows with each repetition in the pattern. The check returns
-- the position where the search starts.
function string.find(text, pattern, init, plain)
  return find0(text, pattern, host.check_pattern(plain and "plain" or "first", text, pattern, init), plain)
end

function string.match(text, pattern, init)
  return match0(text, pattern, host.check_pattern("first", text, pattern, init))
end

function string.gmatch(text, pattern)
  host.check_pattern("iterate", text, pattern)
  return gmatch0(text, pattern)
end

function string.gsub(text, pattern, replacement, n_max)
  host.check_pattern("all", text, pattern, nil, replacement)
  return gsub0(text, pattern, replacement, n_max)
end

-- These move up to 2^31 elements in one instruction, as the length of a table need not be the number of its elements.
function table.insert(list, ...)
  local n_arguments, place = select("#", ...), #list + 1
  if n_arguments == 1 then
    rawset(list, place, (...))
    return
  end
  if n_arguments ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  local position, value = ...
  position = position - position % 1
  if not (1 <= position and position <= place) then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
  for index = place, position + 1, -1 do rawset(list, index, rawget(list, index - 1)) end
  rawset(list, position, value)
end

function table.remove(list, position)
  local size = #list
  position = position or size
  position = position - position % 1
  if position ~= size and not (1 <= position and position <= size + 1) then
    error("bad argument #1 to 'remove' (position out of bounds)", 2)
  end
  local removed = rawget(list, position)
  for index = position, size - 1 do rawset(list, index, rawget(list, index + 1)) end
  rawset(list, position < size and size or position, nil)
  return removed
end

-- Comparisons in Lua count as instructions.
function table.sort(list, is_less)
  if is_less == nil then return sort0(list, function(left, right) return left < right end) end
  if type(is_less) ~= "function" then error("bad argument #2 to 'sort' (function expected)", 2) end
  sort0(list, function(left, right) return is_less(left, right) end)
end

function collectgarbage(option)
  if option == "count" then return collect0("count") end
  if option == nil or option == "collect" then
    -- It takes as long as many thousand instructions.
    host.check()
    return collect0("collect")
  end
  return 0
end

local function compile_file(name)
  local chunk, message = load0(host.source(name), "@" .. name, "t")
  if not chunk then error(message, 0) end
  return chunk
end

function dofile(name) return compile_file(name)() end

local loaded = {}
function require(name)
  local key = gsub0(upper(name), "%.LUA$", "")
  if loaded[key] == nil then
    local chunk = compile_file(key .. ".LUA")
    loaded[key] = true
    local value = chunk(name)
    if value ~= nil then loaded[key] = value end
  end
  return loaded[key]
end

local function logger(level)
  return function(...)
    local parts = {}
    for index = 1, select("#", ...) do parts[index] = tostring((select(index, ...))) end
    host.log(level, concat(parts))
  end
end
print, log, logInfo = logger("info"), logger("info"), logger("info")
logDebug, logWarning, logError = logger("debug"), logger("warning"), logger("error")

-- Calls run in coroutines, so that they can wait. The engine compares these values, which scripts cannot reach.
local DONE, LOOP, WAIT, RESULT = {}, {}, {}, {}

local function run(call, argument)
  runners[running()] = true
  while true do
    call, argument = yield(DONE, (call(argument)))
  end
end

local function pause(kind, name, ms)
  if not runners[running()] then error(name .. " cannot be called within a coroutine", 3) end
  yield(kind, ms)
end

SYSTEM = {}
function SYSTEM.Init() host.init() end
function SYSTEM.Loop() pause(LOOP, "SYSTEM.Loop") end
function SYSTEM.Wait(_, ms) pause(WAIT, "SYSTEM.Wait", ms) end
function SYSTEM:clientRegister(...) return host.client_register(...) end
function SYSTEM:clientDestroy(...) return host.client_destroy(...) end
function SYSTEM:fetchValues(items) return host.fetch_values(items) end
function SYSTEM:mqttRegister() host.log("warning", "SYSTEM:mqttRegister is not supported") end
function SYSTEM:mqttDestroy() host.log("warning", "SYSTEM:mqttDestroy is not supported") end

-- An object is a table with the field `name`; its state is in the engine.
OBJECT = {}
OBJECT.__index = OBJECT
function OBJECT:new(...) return checked_setmetatable({ name = host.create("OBJECT", ...) }, OBJECT) end
function OBJECT:get(index) return host.get(self.name, index) end
function OBJECT:set(index, value) return host.set(self.name, index, value) end
-- A method may end later: then the call waits for the result with this ticket.
function OBJECT:execute(index, ...)
  local value, ticket = host.execute(runners[running()] ~= nil, self.name, index, ...)
  if ticket then return yield(RESULT, ticket) end
  return value
end
function OBJECT:add_event(address, handler) return host.add_event(self.name, address, handler) end

GATE = setmetatable0({}, { __index = OBJECT })
function GATE:new(...) return checked_setmetatable({ name = host.create("GATE", ...) }, OBJECT) end

local function boot()
  if host.has_script("INIT.LUA") then dofile("INIT.LUA") end
  require("MAIN")
end

return { run = run, done = DONE, loop = LOOP, wait = WAIT, result = RESULT, boot = boot, object = OBJECT, dofile = dofile }
