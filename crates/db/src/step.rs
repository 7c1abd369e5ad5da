//! What a record can do while it is processed: lock itself, follow its links, take the time.
//!
//! Each method that follows a link takes the step mutably, as the lock on the record itself does,
//! so the compiler sees to it that never two records are locked at once.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fodo_data::{Kind, Scalar, Status, Text, TimeStamp, Value};

use crate::link::{Link, Target};
use crate::post::Posts;
use crate::record::{Record, lock};
use crate::turn::{Timer, Turn};

/// Whether a record is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Values are posted; the forward link is next.
    Done,
    /// As done, but its input or output could not be reached: a PP link to it counts as broken.
    Failed,
    /// For a timer: the record stays active, and is called again to complete.
    Waiting,
}

impl Outcome {
    /// Done, well or not.
    pub(crate) fn done(is_well: bool) -> Outcome {
        if is_well { Outcome::Done } else { Outcome::Failed }
    }
}

/// A link that could not be read or written. The alarm is already raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// One record's round of processing.
pub(crate) struct Step<'t, 'a, R> {
    turn: &'t mut Turn<'a>,
    cell: &'t Mutex<R>,
    record: u32,
    /// Whether the record waited and this is the second half.
    pub(crate) is_completion: bool,
}

impl<'t, 'a, R: Record> Step<'t, 'a, R> {
    pub(crate) fn new(turn: &'t mut Turn<'a>, cell: &'t Mutex<R>, record: u32, is_completion: bool) -> Self {
        Step { turn, cell, record, is_completion }
    }

    /// The record itself.
    pub(crate) fn lock(&mut self) -> MutexGuard<'_, R> {
        lock(self.cell)
    }

    /// The record itself, with the means to post.
    pub(crate) fn post<T>(&mut self, visit: impl FnOnce(&mut R, &mut Posts) -> T) -> T {
        let mut record = lock(self.cell);
        let mut posts = self.turn.posts(self.record);
        visit(&mut record, &mut posts)
    }

    /// Reads through a link. `Ok(None)`: it is constant or empty, so nothing changes.
    pub(crate) fn fetch<T: Element>(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
    ) -> Result<Option<T>, Broken> {
        let fetched = self.fetch_quietly(link);
        if fetched.is_err() {
            self.blame(name);
        }
        fetched
    }

    /// As [`Step::fetch`], without the alarm.
    pub(crate) fn fetch_quietly<T: Element>(&mut self, link: impl Fn(&R) -> &Link) -> Result<Option<T>, Broken> {
        match self.fetch_value(link, T::KIND)? {
            None => Ok(None),
            Some(value) => value.first().and_then(T::of).map(Some).ok_or(Broken),
        }
    }

    /// All elements that a link leads to.
    pub(crate) fn fetch_array(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
        kind: Kind,
    ) -> Result<Option<Value>, Broken> {
        let fetched = self.fetch_value(link, kind);
        if fetched.is_err() {
            self.blame(name);
        }
        fetched
    }

    fn fetch_value(&mut self, link: impl Fn(&R) -> &Link, kind: Kind) -> Result<Option<Value>, Broken> {
        let path = link(&lock(self.cell)).path();
        self.turn.fetch_along(self.record, &path, kind)
    }

    /// Writes through a link, and processes what it leads to if the link says so.
    pub(crate) fn drive(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
        value: impl Into<Value>,
    ) -> Result<(), Broken> {
        let path = link(&lock(self.cell)).path();
        let driven = self.turn.drive_along(self.record, &path, value.into());
        if driven.is_err() {
            self.blame(name);
        }
        driven
    }

    fn blame(&mut self, name: &'static str) {
        self.lock().common().raise_saying(Status::LINK, 3, format!("field {name}").into());
    }

    /// The record's time becomes what TSE and TSEL say. `simulated`: SIOL, while SIMM is on.
    ///
    /// Source: EPICS Base 7.0, recGblGetTimeStampSimm.
    pub(crate) fn stamp(&mut self, simulated: Option<Target>) {
        let target = self.lock().common().time_link.target();
        match target {
            Target::Constant => {}
            Target::Field { record, modifiers, .. } if modifiers.is_time => {
                let (time, tag) = self.turn.time_of(record);
                let mut own = self.lock();
                own.common().time = time;
                own.common().user_tag = tag;
                return;
            }
            Target::Field { .. } | Target::Missing => match self.turn.fetch(self.record, target, Kind::I16) {
                Ok(value) => {
                    if let Some(Scalar::I16(event)) = value.and_then(|value| value.first()) {
                        self.lock().common().time_event = event;
                    }
                }
                Err(Broken) => self.blame("TSEL"),
            },
        }
        let now = self.turn.now.wall;
        let is_set_by_device = self.lock().common().time_event == -2;
        let time = match (is_set_by_device, simulated) {
            (false, _) => now,
            (true, None) => return,
            (true, Some(Target::Field { record, .. })) => self.turn.time_of(record).0,
            (true, Some(_)) => now,
        };
        self.lock().common().time = time;
    }

    /// With TSE -2 an input takes the time of the record that it reads, as Soft Channel does.
    pub(crate) fn stamp_from(&mut self, link: impl Fn(&R) -> &Link) {
        let is_wanted = {
            let mut own = self.lock();
            let common = own.common();
            common.time_event == -2 && common.time_link.is_constant()
        };
        let target = link(&lock(self.cell)).target();
        if let (true, Target::Field { record, .. }) = (is_wanted, target) {
            let time = self.turn.time_of(record).0;
            self.lock().common().time = time;
        }
    }

    /// Seconds between `before` and the record's time.
    pub(crate) fn elapsed_s(&mut self, before: TimeStamp) -> f64 {
        let now = self.lock().common().time;
        (now.unix_s - before.unix_s) as f64 + (f64::from(now.nanos) - f64::from(before.nanos)) / 1e9
    }

    /// Asks to be completed later.
    pub(crate) fn complete_after(&mut self, delay_s: f64) -> Outcome {
        self.turn.start_timer(delay(delay_s), Timer::Complete(self.record));
        Outcome::Waiting
    }

    /// Asks for the end of a momentary output.
    pub(crate) fn release_after(&mut self, delay_s: f64) {
        self.turn.start_timer(delay(delay_s), Timer::Release(self.record));
    }

    /// SCAN was changed by the record itself.
    pub(crate) fn rescan(&mut self, before: u16) {
        self.turn.rescan(self.record, before);
    }
}

/// A delay of seconds, held to what a timer can count; not a number is at once.
fn delay(seconds: f64) -> Duration {
    const LONGEST_S: f64 = 3e8;
    Duration::from_secs_f64(if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, LONGEST_S) })
}

/// What a link can be read as.
pub(crate) trait Element: Sized {
    const KIND: Kind;

    fn of(scalar: Scalar) -> Option<Self>;
}

macro_rules! element {
    ($($rust:ty, $kind:ident;)*) => {$(
        impl Element for $rust {
            const KIND: Kind = Kind::$kind;

            fn of(scalar: Scalar) -> Option<Self> {
                match scalar {
                    Scalar::$kind(element) => Some(element),
                    _ => None,
                }
            }
        }
    )*};
}

element! { f64, F64; i32, I32; u32, U32; u16, U16; i16, I16; Text, Text; }
