//! seq: writes up to sixteen values one after another, each after its own delay.

use fodo_data::{EventMask, Limits, Meta};

use crate::common::{Common, row};
use crate::field::{names, record_fields};
use crate::link::Target;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::selection::{N_LINKS, Selection, fetch_selected, indices, or_alarm, with_links};
use crate::record::simulation::set_constant;
use crate::record::{CHANGED, Record, is_changed, post_value, record_type};

record_fields! {
    /// Values for up to sixteen fields, one after another.
    Seq
    fields {
        "VAL" value: Long, ASL0 PP INTEREST0;
        ..selection();
        "OFFS" offset: Short;
        "SHFT" shift: Short = -1;
        "OLDN" old_selection: UShort, INTEREST4;
        "PREC" precision: Short;
    }
    arrays {
        delays: [Double(); 16] [] "DLY" ZERO_TO_F;
        desired: [InLink(); 16] [] "DOL" ZERO_TO_F;
        values: [Double(); 16] [] "DO" ZERO_TO_F;
        links: [OutLink(); 16] [] "LNK" ZERO_TO_F;
    }
    private {
        common: Common;
        remaining: u16;
    }
}

record_type!(Seq, "seq", [], SELN DO0);

/// The names of the links, for messages.
const INPUTS: [&str; N_LINKS] = names(Seq::ROWS, "DOL0");
const OUTPUTS: [&str; N_LINKS] = names(Seq::ROWS, "LNK0");

impl Record for Seq {
    fn init(&mut self) {
        set_constant(&mut self.selection, &self.selection_link);
        for (value, link) in self.values.iter_mut().zip(&self.desired) {
            set_constant(value, link);
        }
        self.old_selection = self.selection;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Seq::ROWS, field)?;
        crate::meta::ranges(row, meta);
        meta.precision = crate::meta::precision(row, self.precision);
        if row.name.starts_with("DLY") {
            meta.units = "s".into();
            meta.precision = 2;
            // Base sets the lower display limit twice, and never the upper one.
            meta.display = Limits { low: 10.0, high: 0.0 };
            meta.control = Limits { low: 0.0, high: 100_000.0 };
        }
        let link = self.desired.get(usize::from(field.checked_sub(DO0)?))?;
        meta.display = Limits::default();
        Some(link.target())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if step.is_completion {
            write_next(step);
        } else {
            let selected = select(step);
            let seq = step.lock();
            seq.remaining = with_links(selected, &seq.desired, &seq.links);
        }
        let seq = step.lock();
        let delay_s = indices(seq.remaining).next().map(|index| seq.delays[index]);
        match delay_s {
            Some(delay_s) if delay_s > 0.0 => step.complete_after(delay_s),
            Some(_) => step.complete_next(),
            None => {
                step.lock().common.undefined = 0;
                step.stamp(None);
                step.post(Seq::monitor);
                ProcessOutcome::Done
            }
        }
    }
}

/// One bit for each group that SELM and SELN select.
fn select(step: &mut Step<'_, '_, Seq>) -> u16 {
    fetch_selected(step, |seq| (seq.select_mode, &seq.selection_link), |seq, selection| seq.selection = selection);
    let seq = step.lock();
    let selected = seq.selection().links();
    or_alarm(seq, selected)
}

/// Fetches and writes the first remaining group.
fn write_next(step: &mut Step<'_, '_, Seq>) {
    let Some(index) = indices(step.lock().remaining).next() else { return };
    let before = step.lock().values[index];
    // A broken link has already raised its alarm; the previous value is written nevertheless.
    if let Ok(Some(value)) = step.read_link(INPUTS[index], |seq| &seq.desired[index]) {
        step.lock().values[index] = value;
    }
    step.stamp(None);
    let value = step.lock().values[index];
    let _ = step.write_link(OUTPUTS[index], |seq| &seq.links[index], value);
    step.post(|seq, posts| {
        if before != value {
            posts.post(seq, DO0 + index as u16, CHANGED);
        }
        seq.remaining &= !(1 << index);
    });
}

impl Seq {
    fn selection(&self) -> Selection {
        Selection { mode: self.select_mode, number: self.selection, offset: self.offset, shift: self.shift }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = post_value(self, EventMask::NONE, posts);
        if is_changed(&mut self.old_selection, &self.selection) {
            posts.post(self, SELN, mask | CHANGED);
        }
    }
}
