//! The memory of large arrays that have arrived, for those that arrive next.
//!
//! An allocator returns a large block to the system when the program drops it, and the system clears each page of the next
//! one at its first use. That takes longer than to receive its elements. So a circuit keeps a reference to each large array for
//! a moment: when the program has dropped the array, the next one arrives in its memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fodo_data::{Array, Kind};

use crate::limit;

/// The large arrays of a circuit that arrived last.
#[derive(Debug, Default)]
pub(super) struct SpareArrays {
    arrays: VecDeque<Array>,
    n_bytes: usize,
    /// When the last array has arrived.
    last: Option<Instant>,
    /// Whether the reactor will release them.
    is_timed: bool,
}

impl SpareArrays {
    /// Keeps an array that has arrived, unless the allocator reuses its memory anyway. The oldest ones are released if there are
    /// too many.
    #[cold]
    pub(super) fn keep(&mut self, array: &Array, now: Instant) {
        let n_bytes = bytes_of(array);
        if !(limit::SPARE_ARRAY_BYTES_MIN..=limit::SPARE_ARRAYS_BYTES).contains(&n_bytes) {
            return;
        }
        while self.n_bytes + n_bytes > limit::SPARE_ARRAYS_BYTES
            && let Some(oldest) = self.arrays.pop_front()
        {
            self.n_bytes -= bytes_of(&oldest);
        }
        self.n_bytes += n_bytes;
        self.arrays.push_back(array.clone());
        self.last = Some(now);
    }

    /// One of the oldest arrays that nothing else refers to, whose memory has place for so many elements and is at most twice as large.
    #[cold]
    pub(super) fn take(&mut self, kind: Kind, n_elements: usize) -> Option<Array> {
        let is_suitable = |array: &Array| {
            array.kind() == kind
                && (n_elements..=n_elements.saturating_mul(2)).contains(&array.capacity())
                && !array.is_shared()
        };
        let at = self.arrays.iter().take(limit::SPARE_ARRAYS_TRIED).position(is_suitable)?;
        let array = self.arrays.remove(at)?;
        self.n_bytes -= bytes_of(&array);
        Some(array)
    }

    /// When the reactor must be called to release them, unless it knows.
    #[inline]
    pub(super) fn untimed_deadline(&mut self) -> Option<Instant> {
        let deadline = self.deadline().filter(|_| !self.is_timed)?;
        self.is_timed = true;
        Some(deadline)
    }

    /// Releases all of them if none has arrived for a while; returns when to call this again.
    pub(super) fn release_unused(&mut self, now: Instant) -> Option<Instant> {
        let deadline = self.deadline()?;
        if now < deadline {
            return Some(deadline);
        }
        *self = SpareArrays::default();
        None
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.last? + SPARE_TIME)
    }
}

const SPARE_TIME: Duration = limit::SPARE_ARRAYS_TIME;

/// The memory of the elements of an array of numbers.
fn bytes_of(array: &Array) -> usize {
    array.kind().n_bytes().unwrap_or(0) * array.capacity()
}

#[cfg(test)]
mod tests {
    use fodo_data::Value;

    use super::*;

    const N: usize = limit::SPARE_ARRAY_BYTES_MIN / 8;

    fn array(n_elements: usize) -> Array {
        Value::from(vec![1.5; n_elements]).into_array()
    }

    #[test]
    fn memory_is_offered_once_and_only_after_the_program_has_dropped_its_array() {
        let mut spares = SpareArrays::default();
        let of_program = array(N);
        spares.keep(&of_program, Instant::now());

        assert_eq!(spares.take(Kind::F64, N), None);
        drop(of_program);

        assert_eq!(spares.take(Kind::F64, N).map(|spare| spare.capacity()), Some(N));
        assert_eq!((spares.take(Kind::F64, N), spares.n_bytes), (None, 0));
    }

    #[test]
    fn memory_of_another_kind_or_size_is_not_offered() {
        let mut spares = SpareArrays::default();
        spares.keep(&array(N), Instant::now());
        spares.keep(&array(N - 1), Instant::now());

        for (kind, n_elements) in [(Kind::I64, N), (Kind::F64, N + 1), (Kind::F64, N / 2 - 1)] {
            assert_eq!(spares.take(kind, n_elements), None, "{kind:?} {n_elements}");
        }
        assert_eq!(spares.arrays.len(), 1, "a small array is not kept");
        assert!(spares.take(Kind::F64, N / 2).is_some());
    }

    #[test]
    fn a_program_that_keeps_its_arrays_does_not_make_the_next_one_slow() {
        let mut spares = SpareArrays::default();
        let of_program: Vec<Array> = (0..limit::SPARE_ARRAYS_TRIED).map(|_| array(N)).collect();
        of_program.iter().for_each(|array| spares.keep(array, Instant::now()));
        spares.keep(&array(N), Instant::now());

        assert_eq!(spares.take(Kind::F64, N), None, "only the oldest are tried");
        drop(of_program);

        assert!(spares.take(Kind::F64, N).is_some());
    }

    #[test]
    fn the_oldest_arrays_are_released_when_there_are_too_many_and_all_after_a_while() {
        let mut spares = SpareArrays::default();
        let now = Instant::now();
        let n_max = limit::SPARE_ARRAYS_BYTES / limit::SPARE_ARRAY_BYTES_MIN;
        let same = array(N);
        assert_eq!((spares.untimed_deadline(), spares.release_unused(now)), (None, None));

        (0..n_max + 3).for_each(|_| spares.keep(&same, now));

        assert_eq!((spares.arrays.len(), spares.n_bytes), (n_max, limit::SPARE_ARRAYS_BYTES));
        let deadline = spares.untimed_deadline().unwrap();
        assert_eq!((spares.untimed_deadline(), deadline), (None, now + limit::SPARE_ARRAYS_TIME));
        assert_eq!(spares.release_unused(now), Some(deadline));
        assert_eq!((spares.release_unused(deadline), spares.arrays.len()), (None, 0));
        assert!(!same.is_shared());
    }
}
