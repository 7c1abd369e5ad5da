//! `system`: runs programs.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use super::script::Flow;
use super::{CommandError, CommandLine, Shell};
use crate::limit::{PROGRAM_CHUNK_BYTES, PROGRAM_CHUNKS_WAITING, PROGRAM_LAST_OUTPUT, PROGRAM_PERIOD};

/// A piece of output of a program.
enum Printed {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// Runs a line in the system's shell, with the folder and environment of this shell.
///
/// This is no additional risk: a user who can write `st.cmd` can run programs anyway, and no network input gets here.
/// Output is forwarded in chunks, so it may be larger than memory.
pub(super) fn system(shell: &mut Shell, call: &CommandLine<'_>) -> Result<Flow, CommandError> {
    let line = call.needed(1, "a line for the system's shell")?;
    let names = shell.macros.names();
    let variables = names.iter().map(|name| (*name, shell.macros.value(name).unwrap_or_default()));
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(&shell.folder).env_clear().envs(variables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start the system's shell: {error}"))?;
    let printed = printed_by(&mut child).map_err(|error| format!("cannot create a thread: {error}"))?;
    let status = shell.pass_on(&mut child, &printed);
    let status = status.map_err(|error| format!("cannot wait for the end of the program: {error}"))?;
    if status.success() { Ok(Flow::Next) } else { Err(format!("the program ended with {status}").into()) }
}

/// Receives the output of a program until all processes that hold its streams have ended.
fn printed_by(child: &mut Child) -> io::Result<Receiver<Printed>> {
    let (sender, printed) = sync_channel(PROGRAM_CHUNKS_WAITING);
    read_on(child.stdout.take(), sender.clone(), Printed::Out)?;
    read_on(child.stderr.take(), sender, Printed::Err)?;
    Ok(printed)
}

/// Reads a stream to its end on a separate thread.
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
            // After the shell has stopped receiving, output of a background program is still read: a closed stream
            // would end the program.
            let _ = sender.send(as_printed(buffer.iter().take(n_bytes).copied().collect()));
        }
    };
    std::thread::Builder::new().name("fodo-program".into()).spawn(read).map(drop)
}

impl Shell {
    /// Prints the output of a program until it has ended; does not wait for its background processes.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shell::{Purpose, Shell};

    #[derive(Clone, Default)]
    struct Written(Arc<fodo_lock::Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_output_that_waits_is_printed_after_a_program_has_ended() {
        let (out, err) = (Written::default(), Written::default());
        let folder = std::env::temp_dir();
        let mut shell =
            Shell::new(Purpose::Check, &folder, std::iter::empty(), Box::new(out.clone()), Box::new(err.clone()));
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        child.wait().unwrap();
        let (sender, printed) = sync_channel(8);
        for number in 0..4 {
            sender.send(Printed::Out(vec![b'0' + number])).unwrap();
            sender.send(Printed::Err(vec![b'a' + number])).unwrap();
        }

        // While a background process keeps the streams open, and after it has closed them.
        let with_background = shell.pass_on(&mut child, &printed).unwrap();
        drop(sender);
        let without = shell.pass_on(&mut child, &printed).unwrap();

        assert_eq!(out.0.lock().as_slice(), b"0123");
        assert_eq!(err.0.lock().as_slice(), b"abcd");
        assert_eq!((with_background.code(), without.code()), (Some(3), Some(3)));
    }
}
