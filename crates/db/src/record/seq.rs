//! seq: writes up to sixteen values one after another, each after its own delay.

use fodo_data::{Limits, Meta};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::selection::{ALL, N_LINKS, Selection, indices, links};
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// Values for up to sixteen fields, one after another.
    Seq
    fields {
        "VAL" value: Long, ASL0 PP;
        "SELM" select_mode: Menu(menu::SELM);
        "SELN" selection: UShort = 1;
        "SELL" selection_link: InLink;
        "OFFS" offset: Short;
        "SHFT" shift: Short = -1;
        "OLDN" old_selection: UShort;
        "PREC" precision: Short;
    }
    arrays {
        delays: [Double(); 16] [] {
            "DLY0" 0, "DLY1" 1, "DLY2" 2, "DLY3" 3, "DLY4" 4, "DLY5" 5, "DLY6" 6, "DLY7" 7, "DLY8" 8, "DLY9" 9, "DLYA" 10, "DLYB" 11, "DLYC" 12, "DLYD" 13, "DLYE" 14, "DLYF" 15
        }
        desired: [InLink(); 16] [] {
            "DOL0" 0, "DOL1" 1, "DOL2" 2, "DOL3" 3, "DOL4" 4, "DOL5" 5, "DOL6" 6, "DOL7" 7, "DOL8" 8, "DOL9" 9, "DOLA" 10, "DOLB" 11, "DOLC" 12, "DOLD" 13, "DOLE" 14, "DOLF" 15
        }
        values: [Double(); 16] [] {
            "DO0" 0, "DO1" 1, "DO2" 2, "DO3" 3, "DO4" 4, "DO5" 5, "DO6" 6, "DO7" 7, "DO8" 8, "DO9" 9, "DOA" 10, "DOB" 11, "DOC" 12, "DOD" 13, "DOE" 14, "DOF" 15
        }
        links: [OutLink(); 16] [] {
            "LNK0" 0, "LNK1" 1, "LNK2" 2, "LNK3" 3, "LNK4" 4, "LNK5" 5, "LNK6" 6, "LNK7" 7, "LNK8" 8, "LNK9" 9, "LNKA" 10, "LNKB" 11, "LNKC" 12, "LNKD" 13, "LNKE" 14, "LNKF" 15
        }
    }
    private {
        common: Common;
        remaining: u16;
    }
}

record_type!(Seq, "seq", []);

const VAL: u16 = Seq::at("VAL");
const SELN: u16 = Seq::at("SELN");
const DO0: u16 = Seq::at("DO0");

/// The names of the links, for messages.
const INPUTS: [&str; N_LINKS] = [
    "DOL0", "DOL1", "DOL2", "DOL3", "DOL4", "DOL5", "DOL6", "DOL7", "DOL8", "DOL9", "DOLA", "DOLB", "DOLC", "DOLD",
    "DOLE", "DOLF",
];
const OUTPUTS: [&str; N_LINKS] = [
    "LNK0", "LNK1", "LNK2", "LNK3", "LNK4", "LNK5", "LNK6", "LNK7", "LNK8", "LNK9", "LNKA", "LNKB", "LNKC", "LNKD",
    "LNKE", "LNKF",
];

impl Record for Seq {
    fn init(&mut self) {
        if let Some(selection) = constant(&self.selection_link) {
            self.selection = selection;
        }
        for (value, link) in self.values.iter_mut().zip(&self.desired) {
            if let Some(constant) = constant(link) {
                *value = constant;
            }
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

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if step.is_completion {
            write_next(step);
        } else {
            let selected = select(step);
            step.lock().begin(selected);
        }
        let delay_s = {
            let seq = step.lock();
            indices(seq.remaining).next().map(|index| seq.delays[index])
        };
        match delay_s {
            Some(delay_s) if delay_s > 0.0 => step.complete_after(delay_s),
            Some(_) => step.complete_next(),
            None => {
                step.lock().common.undefined = 0;
                step.stamp(None);
                step.post(Seq::monitor);
                Outcome::Done
            }
        }
    }
}

/// One bit for each group that SELM and SELN select.
fn select(step: &mut Step<'_, '_, Seq>) -> u16 {
    if step.lock().select_mode != ALL
        && let Ok(Some(selection)) = step.fetch("SELL", |seq| &seq.selection_link)
    {
        step.lock().selection = selection;
    }
    let selection = step.lock().selection();
    links(step, selection).unwrap_or(0)
}

/// Fetches and writes the first remaining group.
fn write_next(step: &mut Step<'_, '_, Seq>) {
    let Some(index) = indices(step.lock().remaining).next() else { return };
    let before = step.lock().values[index];
    // A broken link has already raised its alarm; the previous value is written nevertheless.
    if let Ok(Some(value)) = step.fetch(INPUTS[index], |seq| &seq.desired[index]) {
        step.lock().values[index] = value;
    }
    step.stamp(None);
    let value = step.lock().values[index];
    let _ = step.drive(OUTPUTS[index], |seq| &seq.links[index], value);
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

    /// Starts with those of the selected groups that have a link.
    fn begin(&mut self, selected: u16) {
        self.remaining = 0;
        for index in indices(selected) {
            if !self.links[index].is_constant() || !self.desired[index].is_constant() {
                self.remaining |= 1 << index;
            }
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mask = posts.alarms(self);
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if self.selection != self.old_selection {
            posts.post(self, SELN, mask | CHANGED);
            self.old_selection = self.selection;
        }
    }
}
