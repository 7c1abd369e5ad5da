//! CLUs under test: folders with their keys and scripts, the program `fodo clu`, and scripts that are driven by lines of
//! JSON.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value as Json;

use crate::process::{Process, restrict_to_loopback};
use crate::{TestFailure, place};

/// Maximum time of a step.
pub const STEP_DURATION_MAX: Duration = Duration::from_secs(30);

/// Counts the folders of this process.
static N_FOLDERS: AtomicU32 = AtomicU32::new(0);

/// What every CLU under test runs.
const MAIN: &str = r#"require "om"
require "user"
function checkAlive() return "0d0a1b2c" end
SYSTEM.Init()
repeat SYSTEM.Loop() until false
"#;

/// A thermostat, which measures the set point of a controller, and a variable.
const OBJECTS: &str = r#"-- NAME_PERIPHERY Bath=THE1
THE1 = OBJECT:new(18, "THE1")
PID1 = OBJECT:new(14, "PID1")
PID1:set(2, 19.25)
THE1:set(0, {PID1, 2})
THE1:set(3, 21)
THE1:set(6, 1)
greeting = "hello" -- string
function getVar(name) return _G[name] end
function setVar(name, value) _G[name] = value end
"#;

/// A folder for one test, with the scripts of a CLU in `scripts` and its keys in `clu.json`; removed when this is dropped.
#[derive(Debug)]
pub struct CluTestFolder(PathBuf);

/// The end of `fodo clu`.
#[derive(Debug)]
pub struct CluCommandEnd {
    /// The exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub printed: String,
    /// Standard error.
    pub complaints: String,
}

impl CluCommandEnd {
    /// The only line of JSON.
    pub fn json(&self) -> Result<Json, TestFailure> {
        serde_json::from_str(self.printed.trim()).map_err(|error| format!("{error}: {self:?}"))
    }
}

impl CluTestFolder {
    /// Creates the folder; `project.json` contains another key than `clu.json`, and no PIN.
    pub fn new() -> Result<CluTestFolder, TestFailure> {
        let number = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder =
            CluTestFolder(std::env::temp_dir().join(format!("fodo-conformance-clu-{}-{number}", std::process::id())));
        std::fs::create_dir_all(folder.0.join("scripts")).map_err(|error| error.to_string())?;
        for (name, content) in [("MAIN.LUA", MAIN), ("OM.LUA", OBJECTS), ("USER.LUA", "")] {
            folder.write(&format!("scripts/{name}"), content)?;
        }
        for arguments in [&["keys", "create", "clu.json"][..], &["keys", "create", "--no-pin", "project.json"]] {
            let end = folder.clu(arguments)?;
            if end.code != Some(0) {
                return Err(format!("{end:?}"));
            }
        }
        Ok(folder)
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: &str) -> Result<(), TestFailure> {
        std::fs::write(self.path(name), content).map_err(|error| format!("{name}: {error}"))
    }

    /// The program in this folder, without arguments.
    pub fn program(&self) -> Command {
        let mut command = Command::new(place::program());
        command.current_dir(&self.0);
        restrict_to_loopback(&mut command, place::free_port());
        command
    }

    /// Runs `fodo clu` to its end.
    pub fn clu(&self, arguments: &[&str]) -> Result<CluCommandEnd, TestFailure> {
        let output = self.program().arg("clu").args(arguments).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, complaints) = (text(&output.stdout), text(&output.stderr));
        Ok(CluCommandEnd { code: output.status.code(), printed, complaints })
    }

    /// Starts `fodo clu serve` with the scripts and `clu.json`. Returns its line of JSON as well.
    pub fn serve(&self, port: u16, arguments: &[&str]) -> Result<(Process, Json), TestFailure> {
        let mut command = self.program();
        command.args(["clu", "serve", "--json", "--port", &port.to_string(), "--keys", "clu.json"]);
        let mut process = Process::start("fodo clu serve", command.args(arguments).arg("scripts"))?;
        let ready = process.wait_for_line_starting("{", STEP_DURATION_MAX)?;
        Ok((process, serde_json::from_str(&ready).map_err(|error| format!("{ready}: {error}"))?))
    }

    /// Starts the CLU in Python with `clu.json`.
    pub fn serve_python(&self, port: u16) -> Result<Process, TestFailure> {
        self.serve_python_with_files(port, None)
    }

    /// The same; with a port for TFTP it permits transfers of files.
    pub fn serve_python_with_files(&self, port: u16, tftp_port: Option<u16>) -> Result<Process, TestFailure> {
        let mut command = python("clu_server.py");
        command.arg(port.to_string()).arg(self.path("clu.json")).args(tftp_port.map(|port| port.to_string()));
        let mut process = Process::start("clu_server.py", &mut command)?;
        process.wait_for_line_starting("ready", STEP_DURATION_MAX)?;
        Ok(process)
    }

    /// Starts the client in Python, for the CLU at a port.
    pub fn python_client(&self, port: u16) -> Result<LinePeer, TestFailure> {
        let mut command = python("clu_client.py");
        command.args(["127.0.0.1", &port.to_string()]).current_dir(&self.0);
        LinePeer::start("clu_client.py", &mut command)
    }
}

impl Drop for CluTestFolder {
    fn drop(&mut self) {
        // What remains is below the temporary folder of the system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A script of the peers.
pub fn python(script: &str) -> Command {
    let mut command = Command::new(place::python());
    command.arg("-u").arg(place::script(script));
    command
}

/// A script that receives requests and sends answers, one JSON text per line.
#[derive(Debug)]
pub struct LinePeer(Process);

impl LinePeer {
    /// Starts the script.
    pub fn start(name: &str, command: &mut Command) -> Result<LinePeer, TestFailure> {
        Process::start(name, command).map(LinePeer)
    }

    /// Sends a request and returns its answer; an answer with the member `error` is a failure.
    pub fn request(&mut self, request: Json) -> Result<Json, TestFailure> {
        self.0.write_line(&request.to_string())?;
        // Libraries print lines of their own; answers are the JSON lines.
        let line = self.0.wait_for_line_starting("{", STEP_DURATION_MAX)?;
        let answer: Json = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        match answer.get("error") {
            Some(error) => Err(self.0.failure(&format!("{request}: {error}"))),
            None => Ok(answer),
        }
    }
}
