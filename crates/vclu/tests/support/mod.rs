//! A CLU with a clock of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fodo_data::Now;
use fodo_vclu::{LuaEngine, ReplyTo, ScriptAnswer, VcluConfig, VcluRequest};

/// MAIN.LUA in the form that Object Manager generates.
pub const MAIN: &str = r#"
require "om"
require "user"
function checkAlive()
  return "0d0a1b2c"
end
SYSTEM.Init()
repeat
  SYSTEM.Loop()
until 1 == 2
"#;

/// OM.LUA in the form that Object Manager generates, with a place for objects and their events.
pub fn om(objects: &str) -> String {
    format!(
        r#"-- NAME_CLU Cellar=CLU0001
CLU0001 = OBJECT:new(0, 0x7f000001, "CLU0001")
_type = {{}}
function toboolean(value)
  return value == true or value == 1 or value == "1" or value == "true"
end
function setVar(name, value)
  if _type[name] then value = _type[name](value) end
  _G[name] = value
end
function getVar(name)
  return _G[name]
end
fired = ""
function note(text)
  return function() fired = fired .. text .. " " end
end
{objects}
"#
    )
}

static N_FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// A folder that is removed when it is dropped.
pub struct TestFolder(pub PathBuf);

impl TestFolder {
    pub fn new() -> TestFolder {
        let number = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fodo-vclu-test-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("a")).unwrap();
        TestFolder(path)
    }

    pub fn scripts(&self) -> PathBuf {
        self.0.join("a")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.scripts().join(name), text).unwrap();
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A CLU and the clock that it sees.
pub struct House {
    pub engine: LuaEngine,
    pub folder: TestFolder,
    config: VcluConfig,
    now: Arc<Mutex<Now>>,
}

impl House {
    /// With the project of [`MAIN`] and these objects.
    pub fn with_objects(objects: &str) -> House {
        House::with_files(&[("MAIN.LUA", MAIN), ("OM.LUA", &om(objects)), ("USER.LUA", "")])
    }

    pub fn with_files(files: &[(&str, &str)]) -> House {
        House::configured(files, |_| {})
    }

    pub fn configured(files: &[(&str, &str)], configure: impl FnOnce(&mut VcluConfig)) -> House {
        let folder = TestFolder::new();
        for (name, text) in files {
            folder.write(name, text);
        }
        let now = Arc::new(Mutex::new(Now::for_test()));
        let seen = Arc::clone(&now);
        let mut config = VcluConfig::new(folder.scripts());
        config.clock = Arc::new(move || *seen.lock().unwrap());
        config.storage = Some(folder.0.join("storage"));
        configure(&mut config);
        let engine = LuaEngine::start(config.clone()).unwrap();
        House { engine, folder, config, now }
    }

    /// Stops the CLU and starts it again.
    pub fn restart(&mut self) {
        let empty = TestFolder::new();
        // The first engine saves its values before the second one starts.
        self.engine = LuaEngine::start(VcluConfig::new(empty.scripts())).unwrap();
        self.engine = LuaEngine::start(self.config.clone()).unwrap();
    }

    pub fn storage(&self) -> PathBuf {
        self.folder.0.join("storage")
    }

    /// Starts a script. The receiver gets its answer.
    pub fn start(&mut self, script: &str) -> mpsc::Receiver<Option<ScriptAnswer>> {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
        self.engine.handle(VcluRequest::Execute { script: script.into(), reply });
        receiver
    }

    pub fn answer(&mut self, script: &str) -> ScriptAnswer {
        self.start(script).try_recv().expect("the script waits").expect("the CLU has stopped")
    }

    /// The text that a client receives.
    pub fn eval(&mut self, script: &str) -> String {
        self.answer(script).text
    }

    /// Handles a request whose reply arrives at once.
    pub fn request<T: Send + 'static>(&mut self, request: impl FnOnce(ReplyTo<T>) -> VcluRequest) -> T {
        let (sender, receiver) = mpsc::channel();
        self.engine.handle(request(ReplyTo::new(move |reply| drop(sender.send(reply)))));
        receiver.try_recv().expect("the reply is late").expect("the CLU has stopped")
    }

    /// The events noted by handlers made by `note`, since the last call.
    pub fn fired(&mut self) -> String {
        let fired = self.eval("(function() local all = fired; fired = \"\"; return all end)()");
        fired.trim_end().to_string()
    }

    /// Advances the clock, with a turn at each deadline on the way.
    pub fn advance(&mut self, by: Duration) {
        let end = *self.now.lock().unwrap() + by;
        while let Some(deadline) = self.engine.deadline().filter(|deadline| *deadline <= end.monotonic) {
            let now = *self.now.lock().unwrap();
            *self.now.lock().unwrap() = now + deadline.saturating_duration_since(now.monotonic);
            self.engine.turn();
        }
        *self.now.lock().unwrap() = end;
        self.engine.turn();
    }

    /// Advances the clock in steps, with a turn after each.
    pub fn step(&mut self, n_steps: usize, by: Duration) {
        for _ in 0..n_steps {
            let now = *self.now.lock().unwrap();
            *self.now.lock().unwrap() = now + by;
            self.engine.turn();
        }
        // Handlers of the last step may have caused events.
        self.engine.turn();
    }

    /// Sets the wall clock, as a person or NTP does.
    pub fn set_wall_clock(&mut self, unix_s: i64) {
        self.now.lock().unwrap().wall.unix_s = unix_s;
    }

    pub fn log_text(&self) -> String {
        self.engine.log().iter().map(|entry| format!("{:?} {}\n", entry.level, entry.text)).collect()
    }
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}
