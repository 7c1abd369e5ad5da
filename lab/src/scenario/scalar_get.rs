//! Q17: what is the cost of a synchronous get on many channels of the same PV?

use crate::driver::{Answer, Ask, Conversation, Failure, Opened, Scalars};

/// Channels to the one PV, as in the study; each get uses the next.
const N_CHANNELS: usize = 1000;

/// Timed gets of one repetition, as many as channels.
pub const N_GETS: usize = 1000;

/// Gets before them, so that caches, branch predictors and the server's buffers are as in long use.
const N_WARM_UP: usize = 200;

/// A counter that goes up ten times a second.
const PV: &str = "ca:test:counter01";

/// For `fodo lab list`.
pub const TEACHES: &str = "\
What does a blocking get of one double with its time cost? 1000 channels to one counter are connected
and warm; then 1000 gets, one after another, each on the next channel and each timed by itself. The
studies asked for text and timed the sum in whole milliseconds. Proof: every channel is connected, every
value is a number with a time, and the counter never goes back.";

/// One repetition. Returns what was connected and the times.
pub fn measure(conversation: &mut Conversation) -> Result<(Opened, Scalars), Failure> {
    let opened = match conversation.ask(&Ask::Open { pv: PV.into(), n_channels: N_CHANNELS })? {
        Answer::Opened(opened) => opened,
        other => return Err(Failure::Protocol { line: format!("{other:?}") }),
    };
    if opened.n_channels != N_CHANNELS {
        return Err(Failure::WrongCount { n: opened.n_channels, expected: N_CHANNELS });
    }
    match conversation.ask(&Ask::GetScalars { n: N_GETS, n_warm_up: N_WARM_UP })? {
        Answer::Scalars(scalars) if scalars.latencies_ns.len() == N_GETS => Ok((opened, scalars)),
        Answer::Scalars(scalars) => Err(Failure::WrongCount { n: scalars.latencies_ns.len(), expected: N_GETS }),
        other => Err(Failure::Protocol { line: format!("{other:?}") }),
    }
}
