//! permissive: a pair of flags with which one program permits another to act.

use crate::common::Common;
use crate::field::record_fields;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::{CHANGED, Record, is_changed, record_type};

record_fields! {
    /// A pair of flags.
    Permissive
    fields {
        "VAL" value: UShort, ASL0 PP INTEREST0;
        "WFLG" wait_flag: UShort, PP INTEREST0;
        "LABL" label: String(20), PP;
        "OVAL" old_value: UShort, NOMOD INTEREST3;
        "OFLG" old_wait_flag: UShort, NOMOD INTEREST3;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Permissive, "permissive", [], VAL WFLG);

impl Record for Permissive {
    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        step.lock().common.undefined = 0;
        step.stamp(None);
        step.post(Permissive::monitor);
        ProcessOutcome::Done
    }
}

impl Permissive {
    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = posts.alarms(self) | CHANGED;
        if is_changed(&mut self.old_value, &self.value) {
            posts.post(self, VAL, mask);
        }
        if is_changed(&mut self.old_wait_flag, &self.wait_flag) {
            posts.post(self, WFLG, mask);
        }
    }
}
