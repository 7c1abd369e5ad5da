//! state: the name of a state. Base calls this type deprecated, and recommends stringin instead.

use crate::common::Common;
use crate::field::record_fields;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::{CHANGED, Record, is_changed, record_type};

record_fields! {
    /// The name of a state.
    State
    fields {
        "VAL" value: String(20), ASL0 PP INTEREST0;
        "OVAL" old_value: String(20), NOMOD INTEREST3;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(State, "state", [], VAL);

impl Record for State {
    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        step.lock().common.undefined = 0;
        step.stamp(None);
        step.post(State::monitor);
        ProcessOutcome::Done
    }
}

impl State {
    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = posts.alarms(self) | CHANGED;
        if is_changed(&mut self.old_value, &self.value) {
            posts.post(self, VAL, mask);
        }
    }
}
