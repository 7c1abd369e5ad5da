//! sseq, of synApps calc: a seq of numbers and texts that can wait for its writes to complete, and can be aborted.

use fodo_data::{EventMask, Kind, Meta, Text, Value, format_f64, parse_f64};

use crate::common::{Common, row};
use crate::field::{names, record_fields};
use crate::link::{Link, Target, Trigger};
use crate::menu;
use crate::process::deferred::Deferred;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::links::state_of;
use crate::record::long_text::cut;
use crate::record::selection::{fetch_selected, indices, or_alarm, selected_from_one, with_links};
use crate::record::simulation::{constant, set_constant};
use crate::record::{CHANGED, Record, index_in, is_changed, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// Values and texts for up to ten fields, one after another.
    SSeq
    fields {
        "VAL" value: Long, ASL0 PP INTEREST0;
        ..selection();
        "PREC" precision: Short;
        "ABORT" is_aborted: Short, SPECIAL;
        "ABORTING" is_aborting: Short, NOMOD;
        "BUSY" is_busy: Short, NOMOD INTEREST0;
    }
    arrays {
        delays: [Double(); 10] [] "DLY" ONE_TO_A;
        desired: [InLink(); 10] [SPECIAL] "DOL" ONE_TO_A;
        values: [Double(); 10] [SPECIAL] "DO" ONE_TO_A;
        links: [OutLink(); 10] [SPECIAL] "LNK" ONE_TO_A;
        texts: [String(40); 10] [SPECIAL] "STR" ONE_TO_A;
        waits: [Menu(menu::SSEQ_WAIT); 10] [SPECIAL] "WAIT" ONE_TO_A;
        wait_errors: [Short(); 10] [NOMOD] "WERR" ONE_TO_A;
        waiting: [Short(); 10] [NOMOD] "WTG" ONE_TO_A;
        desired_states: [Menu(menu::CALCOUT_INAV); 10] [NOMOD] "DOL" ONE_TO_A "V";
        link_states: [Menu(menu::CALCOUT_INAV); 10] [NOMOD] "LNK" ONE_TO_A "V";
    }
    private {
        common: Common;
        remaining: u16;
        progress: SequenceState;
    }
}

record_type!(SSeq, "sseq", [], VAL BUSY ABORT ABORTING DO1 DOL1 DOL1V LNK1 LNK1V STR1 WAIT1 WERR1 WTG1);

/// The state of a sequence; the comment says what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SequenceState {
    /// For the record to be processed.
    #[default]
    Idle,
    /// For the delay of the next group to pass.
    Delayed,
    /// For a write to complete.
    WaitingForWrite,
}

const N_GROUPS: usize = 10;
/// The first choices of WAIT.
const NO_WAIT: u16 = 0;
const WAIT: u16 = 1;
/// One bit for each group.
const GROUPS: u16 = (1 << N_GROUPS) - 1;
/// The names of the links, for messages.
const INPUTS: [&str; N_GROUPS] = names(SSeq::ROWS, "DOL1");
const OUTPUTS: [&str; N_GROUPS] = names(SSeq::ROWS, "LNK1");

impl Record for SSeq {
    fn init(&mut self) {
        set_constant(&mut self.selection, &self.selection_link);
        for index in 0..N_GROUPS {
            set_constant(&mut self.values[index], &self.desired[index]);
            if let Some(text) = constant(&self.desired[index]) {
                self.texts[index] = cut(text);
            }
            self.desired_states[index] = state_of(&self.desired[index]);
            self.link_states[index] = state_of(&self.links[index]);
            self.wait_errors[index] = i16::from(self.is_wait_wrong(index));
            if self.texts[index].is_empty() {
                self.texts[index] = self.text_of(index);
            } else {
                self.values[index] = number_of(&self.texts[index]);
            }
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        meta.precision = crate::meta::precision(row(SSeq::ROWS, field)?, self.precision);
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == ABORT {
            return self.abort(posts);
        }
        let index = |first: u16| index_in(field, first, N_GROUPS);
        if let Some(index) = index(DO1) {
            let text = self.text_of(index);
            self.set_text(index, text, EventMask::VALUE, posts);
        } else if let Some(index) = index(STR1) {
            self.set_number(index, number_of(&self.texts[index]), EventMask::VALUE, posts);
        } else if let Some(index) = index(DOL1) {
            self.desired_states[index] = state_of(&self.desired[index]);
            posts.post(self, DOL1V + index as u16, EventMask::VALUE);
        } else if let Some(index) = index(LNK1) {
            self.link_states[index] = state_of(&self.links[index]);
            posts.post(self, LNK1V + index as u16, EventMask::VALUE);
            self.check_wait(index, posts);
        } else if let Some(index) = index(WAIT1) {
            self.check_wait(index, posts);
        }
        Ok(())
    }

    fn writes_completed(&mut self, number: u8, posts: &mut RecordPosts) -> bool {
        self.set_waiting(number.into(), 0, posts);
        self.progress == SequenceState::WaitingForWrite
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        // A put to a link is never rejected.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if !step.is_completion {
            let selected = begin(step);
            let sseq = step.lock();
            sseq.remaining = with_links(selected, &sseq.desired, &sseq.links);
        } else if step.lock().is_aborted != 0 {
            return if step.lock().must_wait_to_abort() { ProcessOutcome::Waiting } else { finish(step) };
        } else if step.lock().progress == SequenceState::Delayed {
            write_next(step);
        }
        go_on(step)
    }
}

/// Waits for writes that must complete before the next group, then for the delay of that group; or finishes.
fn go_on(step: &mut Step<'_, '_, SSeq>) -> ProcessOutcome {
    let next = indices(step.lock().remaining).next();
    if step.lock().is_held(next) {
        step.lock().progress = SequenceState::WaitingForWrite;
        return ProcessOutcome::Waiting;
    }
    let Some(index) = next else { return finish(step) };
    let delay_s = {
        let sseq = step.lock();
        sseq.progress = SequenceState::Delayed;
        sseq.delays[index]
    };
    if delay_s > 0.0 { step.complete_after(delay_s) } else { step.complete_next() }
}

/// One bit for each group that SELM and SELN select.
fn begin(step: &mut Step<'_, '_, SSeq>) -> u16 {
    step.post(|sseq, posts| {
        if sseq.is_aborted == 0 && sseq.is_busy == 0 {
            sseq.is_busy = 1;
            posts.post(sseq, BUSY, EventMask::VALUE);
        }
        for index in 0..N_GROUPS {
            sseq.set_waiting(index, 0, posts);
        }
    });
    fetch_selected(step, |sseq| (sseq.select_mode, &sseq.selection_link), |sseq, selection| sseq.selection = selection);
    let sseq = step.lock();
    let selected = selected_from_one(sseq.select_mode, sseq.selection, N_GROUPS);
    or_alarm(sseq, selected) & GROUPS
}

/// Fetches and writes the first remaining group.
fn write_next(step: &mut Step<'_, '_, SSeq>) {
    let Some(index) = indices(step.lock().remaining).next() else { return };
    step.lock().remaining &= !(1 << index);
    fetch(step, index);
    let Some(KindAndCount { kind, count_max }) = step.target_facts(|sseq| &sseq.links[index]) else { return };
    let (value, is_waited_for) = {
        let sseq = step.lock();
        let text = &sseq.texts[index];
        let value = match kind {
            Kind::Text | Kind::Enum => Value::from(text.clone()),
            Kind::I8 | Kind::U8 if count_max > 1 => Value::from(text.as_bytes().to_vec()),
            _ => Value::from(sseq.values[index]),
        };
        (value, sseq.waits[index] != NO_WAIT)
    };
    if is_waited_for && step.write_link_with_completion(|sseq| &sseq.links[index], value.clone(), index as u8) {
        step.post(|sseq, posts| sseq.set_waiting(index, 1, posts));
        return;
    }
    // A broken link has already raised its alarm; the following groups are still processed.
    let _ = step.write_link(OUTPUTS[index], |sseq| &sseq.links[index], value);
}

/// Fetches number and text through DOL; a link without a target leaves them unchanged.
fn fetch(step: &mut Step<'_, '_, SSeq>, index: usize) {
    let Some(KindAndCount { kind, count_max }) = step.target_facts(|sseq| &sseq.desired[index]) else { return };
    let is_text = matches!(kind, Kind::Text | Kind::Enum) || matches!(kind, Kind::I8 | Kind::U8) && count_max > 1;
    if is_text {
        let Ok(Some(text)) = step.read_link_text(INPUTS[index], |sseq| &sseq.desired[index]) else { return };
        step.post(|sseq, posts| {
            let number = number_of(&text);
            sseq.set_text(index, cut(text), CHANGED, posts);
            sseq.set_number(index, number, EventMask::VALUE, posts);
        });
    } else if let Ok(Some(number)) = step.read_link(INPUTS[index], |sseq| &sseq.desired[index]) {
        step.post(|sseq, posts| {
            sseq.set_number(index, number, CHANGED, posts);
            let text = sseq.text_of(index);
            sseq.set_text(index, text, EventMask::VALUE, posts);
        });
    }
}

fn finish(step: &mut Step<'_, '_, SSeq>) -> ProcessOutcome {
    step.lock().common.undefined = 0;
    step.stamp(None);
    step.post(|sseq, posts| {
        sseq.progress = SequenceState::Idle;
        let mask = posts.alarms(sseq) | EventMask::VALUE;
        posts.post(sseq, VAL, mask);
        if std::mem::take(&mut sseq.is_aborted) != 0 {
            sseq.is_aborting = 0;
            posts.post(sseq, ABORT, mask);
            posts.post(sseq, ABORTING, mask);
            // Requests to process the record during the abort were meant to end the sequence, not to restart it.
            sseq.common.reprocess = 0;
        }
        sseq.is_busy = 0;
        posts.post(sseq, BUSY, mask);
    });
    ProcessOutcome::Done
}

fn number_of(text: &Text) -> f64 {
    parse_f64(text).unwrap_or(0.0)
}

impl SSeq {
    /// Whether a write has to complete before the next group; at the end, all writes have to.
    fn is_held(&self, next: Option<usize>) -> bool {
        (0..N_GROUPS).filter(|index| self.waiting[*index] != 0).any(|index| match (self.waits[index], next) {
            (_, None) | (NO_WAIT | WAIT, _) => true,
            // "After3" is choice 4: it holds the fourth group, whose index is 3.
            (after, Some(next)) => next > usize::from(after) - 2,
        })
    }

    /// The first ABORT stops a sequence, but waits for writes that have not completed; the second does not wait for
    /// these either.
    fn abort(&mut self, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if self.is_busy == 0 {
            self.is_aborted = 0;
            posts.post(self, BUSY, EventMask::VALUE);
            return Err("no sequence is running");
        }
        let abort = Deferred::Abort { record: posts.record };
        if self.is_aborting != 0 {
            for index in 0..N_GROUPS {
                self.set_waiting(index, 0, posts);
            }
            posts.deferred.push(abort);
            return Ok(());
        }
        self.is_aborting = 1;
        posts.post(self, ABORTING, EventMask::VALUE);
        if self.progress == SequenceState::Delayed {
            posts.deferred.push(abort);
        }
        Ok(())
    }

    /// Whether an abort has to wait for a write to complete.
    fn must_wait_to_abort(&self) -> bool {
        self.progress == SequenceState::WaitingForWrite && self.waiting.iter().any(|waiting| *waiting != 0)
    }

    fn is_wait_wrong(&self, index: usize) -> bool {
        is_local(&self.links[index]) && self.waits[index] != NO_WAIT
    }

    /// Updates WERR: only writes through a channel can be waited for.
    fn check_wait(&mut self, index: usize, posts: &mut RecordPosts) {
        let error = i16::from(self.is_wait_wrong(index));
        if is_changed(&mut self.wait_errors[index], &error) {
            posts.post(self, WERR1 + index as u16, EventMask::VALUE);
        }
    }

    fn set_waiting(&mut self, index: usize, waiting: i16, posts: &mut RecordPosts) {
        let Some(place) = self.waiting.get_mut(index) else { return };
        if is_changed(place, &waiting) {
            posts.post(self, WTG1 + index as u16, EventMask::VALUE);
        }
    }

    fn set_number(&mut self, index: usize, number: f64, mask: EventMask, posts: &mut RecordPosts) {
        if is_changed(&mut self.values[index], &number) {
            posts.post(self, DO1 + index as u16, mask);
        }
    }

    fn set_text(&mut self, index: usize, text: Text, mask: EventMask, posts: &mut RecordPosts) {
        if is_changed(&mut self.texts[index], &text) {
            posts.post(self, STR1 + index as u16, mask);
        }
    }

    /// The number of a group as a text with PREC decimals.
    fn text_of(&self, index: usize) -> Text {
        cut(format_f64(self.values[index], self.precision).into())
    }
}

/// Whether a link points directly to a record of this IOC, not through a channel.
fn is_local(link: &Link) -> bool {
    matches!(link.target(), Target::Field { modifiers, .. } if modifiers.trigger != Trigger::Channel)
}
