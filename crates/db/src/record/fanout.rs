//! fanout: processes up to sixteen records, all of them or those that SELN selects.

use crate::common::Common;
use crate::field::record_fields;
use crate::menu;
use crate::post::Posts;
use crate::record::selection::{Selection, indices, links};
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// Up to sixteen forward links.
    Fanout
    fields {
        "VAL" value: Long, ASL0 PP;
        "SELM" select_mode: Menu(menu::SELM);
        "SELN" selection: UShort = 1;
        "SELL" selection_link: InLink;
        "OFFS" offset: Short;
        "SHFT" shift: Short = -1;
    }
    arrays {
        links: [FwdLink(); 16] [] {
            "LNK0" 0, "LNK1" 1, "LNK2" 2, "LNK3" 3, "LNK4" 4, "LNK5" 5, "LNK6" 6, "LNK7" 7, "LNK8" 8, "LNK9" 9, "LNKA" 10, "LNKB" 11, "LNKC" 12, "LNKD" 13, "LNKE" 14, "LNKF" 15
        }
    }
    private {
        common: Common;
    }
}

record_type!(Fanout, "fanout", []);

const VAL: u16 = Fanout::at("VAL");
const SELN: u16 = Fanout::at("SELN");

/// The names of the links, for messages.
const LINKS: [&str; 16] = [
    "LNK0", "LNK1", "LNK2", "LNK3", "LNK4", "LNK5", "LNK6", "LNK7", "LNK8", "LNK9", "LNKA", "LNKB", "LNKC", "LNKD",
    "LNKE", "LNKF",
];

impl Record for Fanout {
    fn init(&mut self) {
        if let Some(selection) = constant(&self.selection_link) {
            self.selection = selection;
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let before = step.lock().selection;
        if let Ok(Some(selection)) = step.fetch("SELL", |fanout| &fanout.selection_link) {
            step.lock().selection = selection;
        }
        let selection = step.lock().selection();
        for index in indices(links(step, selection).unwrap_or(0)) {
            step.forward(LINKS[index], |fanout| &fanout.links[index]);
        }
        step.lock().common.undefined = 0;
        step.stamp(None);
        step.post(|fanout, posts| fanout.monitor(before, posts));
        Outcome::Done
    }
}

impl Fanout {
    fn selection(&self) -> Selection {
        Selection { mode: self.select_mode, number: self.selection, offset: self.offset, shift: self.shift }
    }

    fn monitor(&mut self, selection_before: u16, posts: &mut Posts) {
        let mask = posts.alarms(self);
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if self.selection != selection_before {
            posts.post(self, SELN, mask | CHANGED);
        }
    }
}
