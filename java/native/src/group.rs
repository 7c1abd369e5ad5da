//! Monitor groups, whose rows a thread of Java takes in batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::{EventMask, GroupChange, GroupCounts, GroupOptions, GroupRow, GroupRows, MonitorGroup};

use crate::codec::{ReplyTag, ReplyWriter};
use crate::context::{JavaChannel, JavaContext};
use crate::error::JavaFailure;
use crate::monitor::write_change;

/// A group whose rows wait, or which was closed.
pub struct JavaGroup {
    /// `None` after it was closed.
    group: Mutex<Option<Arc<MonitorGroup>>>,
    /// By the index of the PV.
    targets: Mutex<Vec<Option<Arc<JavaChannel>>>>,
    /// Whether a thread takes rows.
    is_taken: AtomicBool,
    left: Mutex<LeftRows>,
    /// How many rows were passed on.
    n_passed: AtomicU64,
    /// While the group is closed.
    last_counts: Mutex<GroupCounts>,
}

/// What was taken from the group and has not been passed on.
#[derive(Default)]
struct LeftRows {
    rows: Vec<GroupRow>,
    /// How many of the rows were passed on.
    n_passed: usize,
    changes: VecDeque<GroupChange>,
}

/// Permits the next take when it is dropped, also by a panic.
struct Taking<'a>(&'a JavaGroup);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.release_channels();
    }
}

impl LeftRows {
    fn is_empty(&self) -> bool {
        self.n_passed == self.rows.len() && self.changes.is_empty()
    }
}

impl JavaGroup {
    pub fn create(context: &JavaContext, mask: i32, rows_max: i64, window: i32) -> JavaGroup {
        let rows_max = usize::try_from(rows_max).unwrap_or(0);
        let options = GroupOptions { mask: EventMask(mask as u8), rows_max, window: u32::try_from(window).ok() };
        let group = Mutex::new(Some(Arc::new(context.context.monitor_group(options))));
        JavaGroup {
            group,
            targets: Mutex::default(),
            is_taken: AtomicBool::new(false),
            left: Mutex::default(),
            n_passed: AtomicU64::new(0),
            last_counts: Mutex::default(),
        }
    }

    fn current(&self) -> Option<Arc<MonitorGroup>> {
        self.group.lock().clone()
    }

    pub fn add(&self, target: &Arc<JavaChannel>) -> Result<u32, JavaFailure> {
        let group = self.current().ok_or_else(closed)?;
        let index = group.add_channel(&target.channel)?;
        let mut targets = self.targets.lock();
        let at = index as usize;
        // The index of a PV that was removed is used again.
        if targets.len() <= at {
            targets.resize(at + 1, None);
        }
        targets[at] = Some(target.clone());
        drop(targets);
        // If the group was closed meanwhile, its channels may have been released before this one was stored.
        self.release_channels();
        Ok(index)
    }

    pub fn remove(&self, index: i32) {
        if let (Some(group), Ok(index)) = (self.current(), u32::try_from(index)) {
            // Before the group may use the index again; dropped without a lock held, since that takes those of the client.
            let target = self.targets.lock().get_mut(index as usize).and_then(Option::take);
            group.remove(index);
            drop(target);
        }
    }

    pub fn close(&self) {
        // Also before the group is closed, so that there are counts at any time.
        let Some(group) = self.current() else { return };
        *self.last_counts.lock() = group.counts();
        // Dropped without a lock held, since that takes those of the client.
        let closed = self.group.lock().take();
        drop(closed);
        *self.last_counts.lock() = group.counts();
        drop(group);
        self.release_channels();
    }

    /// Closes the channels of a group that was closed, as soon as no change of them is left to pass on. A take passes
    /// changes on and calls this at its end.
    fn release_channels(&self) {
        if self.current().is_some() {
            return;
        }
        let has_changes = {
            // A take begins before it removes the changes from here.
            let left = self.left.lock();
            self.is_taken.load(Ordering::Acquire) || !left.changes.is_empty()
        };
        if !has_changes {
            // Dropped without a lock held, since that takes those of the client.
            let targets = std::mem::take(&mut *self.targets.lock());
            drop(targets);
        }
    }

    pub fn write_counts(&self, out: &mut ReplyWriter) {
        // Read first, so that the group has delivered at least these. What it has delivered beyond them waits here.
        let n_passed = self.n_passed.load(Ordering::Acquire);
        let counts = self.current().map_or_else(|| *self.last_counts.lock(), |group| group.counts());
        // The counts of a group that is being closed may be older than `n_passed`.
        let n_passed = n_passed.min(counts.delivered);
        let n_waiting = counts.waiting + (counts.delivered - n_passed);
        out.reply(ReplyTag::Counts);
        for count in [counts.received, counts.merged, counts.removed, n_passed, n_waiting] {
            out.u64(count);
        }
    }

    /// Waits for rows for at most `pause`, passes on as many as fit, and writes their number and the changes among them.
    pub fn take(&self, pause: Duration, to: &mut [GroupRow], out: &mut ReplyWriter) -> Result<(), JavaFailure> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return Err(JavaFailure::misuse("", "another thread takes rows of the group"));
        }
        let _taking = Taking(self);
        self.take_alone(pause, to, out)
    }

    fn take_alone(&self, pause: Duration, to: &mut [GroupRow], out: &mut ReplyWriter) -> Result<(), JavaFailure> {
        let mut left = std::mem::take(&mut *self.left.lock());
        let mut is_closed = false;
        if left.is_empty() {
            let group = self.current().ok_or_else(closed)?;
            let mut taken = GroupRows { rows: std::mem::take(&mut left.rows), changes: Vec::new() };
            if !group.take(&mut taken, pause) {
                // Nothing in time, or closed.
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                is_closed = group.poll_take(&mut cx, &mut taken) == std::task::Poll::Ready(false);
            }
            left = LeftRows { rows: taken.rows, n_passed: 0, changes: taken.changes.into() };
        }
        let rows = &left.rows[left.n_passed..];
        let n = rows.len().min(to.len());
        to[..n].copy_from_slice(&rows[..n]);
        let start = left.n_passed;
        left.n_passed += n;
        self.n_passed.fetch_add(n as u64, Ordering::Release);
        let is_all = left.n_passed == left.rows.len();
        let n_changes = match is_all {
            true => left.changes.len(),
            false => left.changes.iter().take_while(|change| change.at_row < left.n_passed).count(),
        };
        let changes: Vec<GroupChange> = left.changes.drain(..n_changes).collect();
        *self.left.lock() = left;
        out.reply(ReplyTag::List);
        out.u32(n as u32);
        out.u8((is_closed && is_all).into());
        self.write_changes(out, start, &changes);
        Ok(())
    }

    fn write_changes(&self, out: &mut ReplyWriter, start: usize, changes: &[GroupChange]) {
        let count = out.reserve_u32();
        let mut n = 0;
        for change in changes {
            let target = self.targets.lock().get(change.index as usize).cloned().flatten();
            let Some(target) = target else { continue };
            n += 1;
            out.u32(change.index);
            out.u32(change.at_row.saturating_sub(start) as u32);
            out.u32(change.merged);
            out.sized(|out| write_change(out, &target, &change.event));
        }
        out.set_u32(count, n);
    }
}

fn closed() -> JavaFailure {
    JavaFailure::closed("", "the group of monitors is closed; create a new one")
}
