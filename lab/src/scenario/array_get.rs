//! Q21: what is the cost of transferring large arrays?

use crate::driver::{Answer, Ask, Conversation, Failure};
use crate::limit::ELEMENTS_MAX;

/// A waveform of ten million 32-bit integers.
const PV: &str = "ca:test:rawdata";

/// Lengths in elements, every decade of the study, and how often each is moved in one repetition: small
/// ones take so little time that one would be mostly noise.
const SIZES: [(usize, usize); 4] = [(10_000, 20), (100_000, 10), (1_000_000, 5), (10_000_000, 1)];

/// Those of at most so many elements, with how often each is moved.
pub fn sizes(elements_max: usize) -> impl Iterator<Item = (usize, usize)> {
    SIZES.into_iter().filter(move |(n_elements, _)| *n_elements <= elements_max)
}

/// For `fodo lab list`.
pub const TEACHES: &str = "\
How fast do large arrays of 32-bit integers come? An array is put, untimed, and when the server has it,
it is got once, timed. Small ones are moved several times per repetition. 1 MB is 10^6 bytes of elements.
The studies timed one get in whole milliseconds. Proof: as many elements come as were put, and every one
is what was put; the pattern depends on index, repetition and round.";

/// Connects. Call once before [`measure`].
pub fn open(conversation: &mut Conversation) -> Result<(), Failure> {
    match conversation.ask(&Ask::Open { pv: PV.into(), n_channels: 1 })? {
        Answer::Opened(opened) if opened.element_count_max >= ELEMENTS_MAX => Ok(()),
        Answer::Opened(opened) => Err(Failure::WrongCount { n: opened.element_count_max, expected: ELEMENTS_MAX }),
        other => Err(Failure::Protocol { line: format!("{other:?}") }),
    }
}

/// One size of one repetition. Returns the time of each get in nanoseconds.
pub fn measure(
    conversation: &mut Conversation,
    n_elements: usize,
    n_gets: usize,
    salt: u32,
) -> Result<Vec<u64>, Failure> {
    match conversation.ask(&Ask::MoveArray { n_elements, salt, n_gets })? {
        Answer::Array(moved) if moved.n_elements != n_elements => {
            Err(Failure::WrongCount { n: moved.n_elements, expected: n_elements })
        }
        Answer::Array(moved) if moved.latencies_ns.len() != n_gets => {
            Err(Failure::WrongCount { n: moved.latencies_ns.len(), expected: n_gets })
        }
        Answer::Array(moved) => Ok(moved.latencies_ns),
        other => Err(Failure::Protocol { line: format!("{other:?}") }),
    }
}
