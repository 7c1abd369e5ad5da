//! fanout: processes up to sixteen records, all of them or those that SELN selects.

use fodo_data::EventMask;

use crate::common::Common;
use crate::field::{names, record_fields};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::selection::{Selection, indices, or_alarm};
use crate::record::simulation::set_constant;
use crate::record::{CHANGED, Record, post_value, record_type};

record_fields! {
    /// Up to sixteen forward links.
    Fanout
    fields {
        "VAL" value: Long, ASL0 PP INTEREST0;
        ..selection();
        "OFFS" offset: Short;
        "SHFT" shift: Short = -1;
    }
    arrays {
        links: [FwdLink(); 16] [] "LNK" ZERO_TO_F;
    }
    private {
        common: Common;
    }
}

record_type!(Fanout, "fanout", [], SELN);

/// The names of the links, for messages.
const LINKS: [&str; 16] = names(Fanout::ROWS, "LNK0");

impl Record for Fanout {
    fn init(&mut self) {
        set_constant(&mut self.selection, &self.selection_link);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let before = step.lock().selection;
        if let Ok(Some(selection)) = step.read_link("SELL", |fanout| &fanout.selection_link) {
            step.lock().selection = selection;
        }
        let fanout = step.lock();
        let selected = fanout.selection().links();
        for index in indices(or_alarm(fanout, selected)) {
            step.process_forward_link(LINKS[index], |fanout| &fanout.links[index]);
        }
        step.lock().common.undefined = 0;
        step.stamp(None);
        step.post(|fanout, posts| fanout.monitor(before, posts));
        ProcessOutcome::Done
    }
}

impl Fanout {
    fn selection(&self) -> Selection {
        Selection { mode: self.select_mode, number: self.selection, offset: self.offset, shift: self.shift }
    }

    fn monitor(&mut self, selection_before: u16, posts: &mut RecordPosts) {
        let mask = post_value(self, EventMask::NONE, posts);
        if self.selection != selection_before {
            posts.post(self, SELN, mask | CHANGED);
        }
    }
}
