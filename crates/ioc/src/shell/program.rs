//! `system`: programs that a script runs.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use super::script::Flow;
use super::{Call, Failure, Shell};
use crate::limit::{PROGRAM_CHUNK_BYTES, PROGRAM_CHUNKS_WAITING, PROGRAM_LAST_OUTPUT, PROGRAM_PERIOD};

/// Something that a program has printed.
enum Printed {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// A line for the system's own shell, in this one's folder and with its environment. Who may write `st.cmd` may run
/// programs anyway, and nothing from the network comes here.
///
/// What it prints is passed on as it comes, so that it may be more than fits into memory.
pub(super) fn system(shell: &mut Shell, call: &Call<'_>) -> Result<Flow, Failure> {
    let line = call.needed(1, "a line for the system's shell")?;
    let names = shell.macros.names();
    let variables = names.iter().map(|name| (*name, shell.macros.value(name).unwrap_or_default()));
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(&shell.folder).env_clear().envs(variables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the system's shell cannot be started: {error}"))?;
    let printed = printed_by(&mut child).map_err(|error| format!("the operating system gives no thread: {error}"))?;
    let status = shell.pass_on(&mut child, &printed);
    let status = status.map_err(|error| format!("the end of the program is unknown: {error}"))?;
    if status.success() { Ok(Flow::Next) } else { Err(format!("the program ended with {status}").into()) }
}

/// What a program prints, until all that have its streams have ended.
fn printed_by(child: &mut Child) -> io::Result<Receiver<Printed>> {
    let (sender, printed) = sync_channel(PROGRAM_CHUNKS_WAITING);
    read_on(child.stdout.take(), sender.clone(), Printed::Out)?;
    read_on(child.stderr.take(), sender, Printed::Err)?;
    Ok(printed)
}

/// Reads a stream to its end on a thread of its own.
fn read_on(
    stream: Option<impl Read + Send + 'static>,
    sender: SyncSender<Printed>,
    as_printed: fn(Vec<u8>) -> Printed,
) -> io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let read = move || {
        let mut buffer = vec![0; PROGRAM_CHUNK_BYTES];
        // A stream that cannot be read has ended.
        while let Ok(n_bytes) = stream.read(&mut buffer)
            && n_bytes > 0
        {
            // Nobody waits for what a program prints in the background. It is read all the same: the program would be
            // ended by a stream that nobody reads.
            let _ = sender.send(as_printed(buffer.iter().take(n_bytes).copied().collect()));
        }
    };
    std::thread::Builder::new().name("fodo-program".into()).spawn(read).map(drop)
}

impl Shell {
    /// Shows what a program prints until it has ended; one that it leaves in the background is not waited for.
    fn pass_on(&mut self, child: &mut Child, printed: &Receiver<Printed>) -> io::Result<ExitStatus> {
        let mut ended: Option<(ExitStatus, Instant)> = None;
        loop {
            match printed.recv_timeout(PROGRAM_PERIOD) {
                Ok(Printed::Out(bytes)) => self.say_as_it_is(&bytes),
                Ok(Printed::Err(bytes)) => self.complain_as_it_is(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((status, _)) = ended {
                        return Ok(status);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return child.wait(),
            }
            match ended {
                Some((status, at)) if at.elapsed() > PROGRAM_LAST_OUTPUT => return Ok(status),
                Some(_) => {}
                None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
            }
        }
    }
}
