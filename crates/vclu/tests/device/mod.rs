//! A CLU with objects that the virtual CLU does not have: a supply voltage, a dimmer and an LED. It answers each request and then
//! reports to the last client that has registered.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fodo_clu::cipher::CipherKey;

/// Its objects. `last` has what was called last.
const DEVICE: &str = r##"
local function object(values)
  local new = { values = values, last = "" }
  function new:get(index) return self.values[index] end
  function new:set(index, value) self.values[index] = value end
  return new
end
local function list(items)
  local values = {}
  for number, item in ipairs(items) do
    local value = item[1]:get(item[2])
    values[number] = type(value) == "string" and string.format("%q", value) or tostring(value)
  end
  return "{" .. table.concat(values, ",") .. "}"
end
local registered
function report() return registered and "clientReport:" .. registered.id .. ":" .. list(registered.items) end
SYSTEM = {}
function SYSTEM:clientRegister(_, _, id, items)
  registered = { id = id, items = items }
  return report()
end
function SYSTEM:clientDestroy(_, _, id) return id end
function SYSTEM:fetchValues(items) return "values:" .. list(items) end
function checkAlive() return "00000001" end

CLU7 = object({ [27] = 24, [29] = 25, [30] = 23 })
DIM1 = object({ [0] = 0.4, [1] = "Hall" })
LED1 = object({ [3] = 10, [4] = 20, [5] = 30, [15] = 40 })
function LED1:execute(method, value)
  self.last = self.last .. method .. "(" .. value .. ")"
  if method == 12 then self:set(15, value) return end
  for place = 0, 2 do self:set(3 + place, tonumber(value:sub(2 + 2 * place, 3 + 2 * place), 16)) end
end
"##;

/// A CLU that answers requests on a thread.
pub struct Device {
    pub address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    pub fn start(key: CipherKey) -> Device {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // Looks for the end of the test so often.
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (address, is_stopped) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let of_end = is_stopped.clone();
        let thread = std::thread::spawn(move || {
            let lua = mlua::Lua::new();
            lua.load(DEVICE).exec().unwrap();
            let mut receiver = None;
            let (mut buffer, mut plain, mut reply) = (vec![0; 65536], Vec::new(), Vec::new());
            while !of_end.load(Ordering::Relaxed) {
                let Ok((n_bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let request = key.decrypt(&buffer[..n_bytes], &mut plain).unwrap();
                let request = String::from_utf8(request.to_vec()).unwrap();
                let [_, _, id, script] = request.trim().splitn(4, ':').collect::<Vec<_>>()[..] else {
                    panic!("{request}")
                };
                let call = format!("return (function(...) return tostring((...)) end)({script})");
                let value: String = lua.load(call).eval().unwrap_or_else(|error| panic!("{script}: {error}"));
                let mut send = |id: &str, value: &str, to| {
                    reply.clear();
                    key.encrypt(format!("resp:127.0.0.1:{id}:{value}").as_bytes(), &mut reply);
                    socket.send_to(&reply, to).unwrap();
                };
                send(id, &value, from);
                if script.starts_with("SYSTEM:clientRegister") {
                    receiver = Some(from);
                } else if let (Some(to), Some(report)) = (receiver, lua.load("return report()").eval().unwrap()) {
                    let report: String = report;
                    send("00000000", &report, to);
                }
            }
        });
        Device { address, is_stopped, thread: Some(thread) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // A panic of the thread has been reported by the thread.
        let _ = self.thread.take().unwrap().join();
    }
}
