//! A CLU on its thread with the clocks of the computer, and other programs beside it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fodo_vclu::{ReplyTo, VcluConfig, VcluRequest, VirtualClu};

use crate::support::{MAIN, TestFolder, om};

/// The longest time for one step of a test.
pub const STEP_TIME_MAX: Duration = Duration::from_secs(30);

/// A CLU and its folder.
pub struct LiveClu {
    pub clu: VirtualClu,
    pub folder: TestFolder,
}

impl LiveClu {
    /// With the project of `MAIN` and these objects.
    pub fn start(objects: &str, configure: impl FnOnce(&mut VcluConfig, PathBuf)) -> LiveClu {
        let folder = TestFolder::new();
        for (name, text) in [("MAIN.LUA", MAIN), ("OM.LUA", &om(objects)), ("USER.LUA", "")] {
            folder.write(name, text);
        }
        let mut config = VcluConfig::new(folder.scripts());
        config.http = ([127, 0, 0, 1], 0).into();
        configure(&mut config, folder.0.clone());
        LiveClu { clu: VirtualClu::start(config).unwrap(), folder }
    }

    /// The text that a client receives.
    pub fn eval(&self, script: &str) -> String {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
        let request = VcluRequest::Execute { script: script.into(), reply };
        assert!(self.clu.submit(request).is_ok(), "the queue is full");
        receiver.recv_timeout(STEP_TIME_MAX).expect("no reply").expect("the CLU has stopped").text
    }

    /// Waits within the CLU until an expression is true.
    pub fn wait_for(&self, condition: &str) {
        let script = format!(
            "(function() for _ = 1, 1000 do if {condition} then return \"yes\" end SYSTEM.Wait(0, 20) end \
             return \"no\" end)()"
        );
        assert_eq!(self.eval(&script), "yes", "{condition}\n{}", self.log_text());
    }

    /// Waits until the log or the counters of the CLU satisfy a condition.
    pub fn wait_until(&self, condition: impl Fn(&VirtualClu) -> bool) {
        let end = Instant::now() + STEP_TIME_MAX;
        while !condition(&self.clu) {
            assert!(Instant::now() < end, "{:?}\n{}", self.clu.counts(), self.log_text());
            self.eval("SYSTEM.Wait(0, 20)");
        }
    }

    pub fn log_text(&self) -> String {
        self.clu.log().iter().map(|entry| format!("{:?} {}\n", entry.level, entry.text)).collect()
    }

    /// Starts the scripts again.
    pub fn reset(&self) {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |state| {
            let _ = sender.send(state);
        });
        assert!(self.clu.submit(VcluRequest::Reset { reply }).is_ok(), "the queue is full");
        receiver.recv_timeout(STEP_TIME_MAX).expect("no reply");
    }
}

/// Another program, with the lines that it writes. It ends when this is dropped.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Reads the lines of both outputs.
    pub fn start(command: &mut Command) -> Program {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Program { child, lines }
    }

    /// The next line that satisfies a condition; `None` if the program ends before.
    pub fn find_line(&self, condition: impl Fn(&str) -> bool) -> Option<String> {
        let end = Instant::now() + STEP_TIME_MAX;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if condition(&line) => return Some(line),
                Ok(line) => seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the line is missing; there are {seen:#?}"),
            }
        }
    }

    /// Waits for a line.
    pub fn wait_for_line(&self, line: &str) {
        assert!(self.find_line(|found| found == line).is_some(), "the program ended without the line {line:?}");
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program is installed. In CI it must be.
pub fn has_program(name: &str) -> bool {
    let has = Command::new(name).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(has || std::env::var_os("CI").is_none(), "{name} is not installed");
    if !has {
        eprintln!("skipped: {name} is not installed");
    }
    has
}

/// Runs a command to its end, and returns what it writes.
pub fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Certificates by openssl: `ca.crt`, and `server.crt` with `server.key` for 127.0.0.1 and localhost.
pub fn make_certificates(folder: &std::path::Path) {
    std::fs::create_dir_all(folder).unwrap();
    let openssl = |words: &str| {
        output_of(Command::new("openssl").args(words.split(' ')).current_dir(folder));
    };
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=test"));
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names");
}
