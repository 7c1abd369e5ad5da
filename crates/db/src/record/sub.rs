//! sub: calls a routine of the program by name, with up to 21 inputs.

use std::sync::Arc;

use fodo_data::{Meta, Status};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, HasAlarmLimits, alarm_limits};
use crate::record::{Record, record_type};
use crate::routine::{Routine, Routines, SubCall, call};

record_fields! {
    /// A record that calls a routine with its inputs.
    Sub
    fields {
        "VAL" value: Double, ASL0 PP INTEREST0;
        "INAM" init_routine_name: String(40), NOMOD;
        "SNAM" routine_name: String(40), SPECIAL;
        "PREC" precision: Short, PROP;
        "BRSV" bad_severity: Menu(menu::ALARM_SEVR), PP;
        ..limits(Double; PROP; PROP);
    }
    arrays {
        inputs: [InLink(); 21] [] "INP" A_TO_U;
        args: [Double(); 21] [PP INTEREST0] "" A_TO_U;
        last_args: [Double(); 21] [NOMOD INTEREST3] "L" A_TO_U;
    }
    private {
        common: Common;
        routines: Arc<Routines>;
        found: RoutineLookup;
    }
}

record_type!(Sub, "sub", []);
alarm_limits!(Sub, f64);
inputs!(Sub);

const N_INPUTS: usize = 21;

/// The result of looking up SNAM.
#[derive(Clone, Default)]
pub(super) enum RoutineLookup {
    /// No routine has this name.
    #[default]
    Unknown,
    /// SNAM is empty: the record stays active until SNAM is set, as in Base.
    Unset,
    Routine(Routine),
}

impl std::fmt::Debug for RoutineLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RoutineLookup::Unknown => "Unknown",
            RoutineLookup::Unset => "Unset",
            RoutineLookup::Routine(_) => "Routine",
        })
    }
}

impl Record for Sub {
    fn set_routines(&mut self, routines: &Arc<Routines>) {
        self.routines = Arc::clone(routines);
    }

    fn init(&mut self) {
        inputs::init(self);
        if !self.init_routine_name.is_empty() {
            let Some(routine) = self.routines.find(&self.init_routine_name.to_str()) else { return };
            // Base ignores the result, too.
            let _ = call(&routine, SubCall { args: &mut self.args, value: &mut self.value });
        }
        self.find();
        if let RoutineLookup::Routine(_) = self.found {
            self.forget_changes();
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Sub::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta(self, field, self.precision, meta)
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        if let RoutineLookup::Unset = self.found {
            self.common.is_active = 0;
            self.common.reprocess = 0;
        }
        self.find();
        match self.found {
            RoutineLookup::Unknown => Err("no routine has this name"),
            RoutineLookup::Unset | RoutineLookup::Routine(_) => Ok(()),
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let are_read = (0..N_INPUTS).all(|index| inputs::fetch(step, index).is_ok());
        if are_read {
            step.lock().call();
        }
        step.stamp(None);
        levels::check(step.lock());
        step.post(Sub::monitor);
        ProcessOutcome::done(are_read)
    }
}

impl Sub {
    /// Finds the routine that SNAM names.
    fn find(&mut self) {
        self.found = match self.routines.find(&self.routine_name.to_str()) {
            _ if self.routine_name.is_empty() => RoutineLookup::Unset,
            Some(routine) => RoutineLookup::Routine(routine),
            None => RoutineLookup::Unknown,
        };
        if let RoutineLookup::Unset = self.found {
            self.common.is_active = 1;
        }
    }

    fn call(&mut self) {
        let RoutineLookup::Routine(routine) = self.found.clone() else {
            self.common.raise(Status::BAD_SUB, INVALID);
            return;
        };
        match call(&routine, SubCall { args: &mut self.args, value: &mut self.value }) {
            Ok(()) => self.common.undefined = u8::from(self.value.is_nan()),
            Err(_) => {
                self.common.raise(Status::SOFT, self.bad_severity);
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        inputs::post(self, posts, mask, false);
    }
}
