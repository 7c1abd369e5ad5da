//! sub: calls a routine of the program by name, with up to 21 inputs.

use std::sync::Arc;

use fodo_data::{EventMask, Meta, Status};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, leveled, moved};
use crate::record::{Record, record_type};
use crate::routine::{Routine, Routines, SubCall, call};
use crate::step::{Outcome, Step};

record_fields! {
    /// A record that calls a routine with its inputs.
    Sub
    fields {
        "VAL" value: Double, ASL0 PP;
        "INAM" init_routine_name: String(40), NOMOD;
        "SNAM" routine_name: String(40), SPECIAL;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "HIHI" hihi: Double, PP PROP;
        "LOLO" lolo: Double, PP PROP;
        "HIGH" high: Double, PP PROP;
        "LOW" low: Double, PP PROP;
        "PREC" precision: Short, PROP;
        "BRSV" bad_severity: Menu(menu::ALARM_SEVR), PP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HYST" hysteresis: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
    }
    arrays {
        inputs: [InLink(); 21] [] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11, "INPM" 12, "INPN" 13, "INPO" 14, "INPP" 15, "INPQ" 16, "INPR" 17, "INPS" 18, "INPT" 19, "INPU" 20
        }
        args: [Double(); 21] [PP] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11, "M" 12, "N" 13, "O" 14, "P" 15, "Q" 16, "R" 17, "S" 18, "T" 19, "U" 20
        }
        last_args: [Double(); 21] [NOMOD] {
            "LA" 0, "LB" 1, "LC" 2, "LD" 3, "LE" 4, "LF" 5, "LG" 6, "LH" 7, "LI" 8, "LJ" 9, "LK" 10, "LL" 11, "LM" 12, "LN" 13, "LO" 14, "LP" 15, "LQ" 16, "LR" 17, "LS" 18, "LT" 19, "LU" 20
        }
    }
    private {
        common: Common;
        routines: Arc<Routines>;
        found: Found;
    }
}

record_type!(Sub, "sub", []);
leveled!(Sub, f64);
inputs!(Sub);

const VAL: u16 = Sub::at("VAL");
const N_INPUTS: usize = 21;

/// The result of looking up SNAM.
#[derive(Clone, Default)]
pub(super) enum Found {
    /// No routine has this name.
    #[default]
    Nothing,
    /// SNAM is empty: the record stays active until SNAM is set, as in Base.
    Unset,
    Routine(Routine),
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Found::Nothing => "Nothing",
            Found::Unset => "Unset",
            Found::Routine(_) => "Routine",
        })
    }
}

impl Record for Sub {
    fn learn(&mut self, routines: &Arc<Routines>) {
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
        if let Found::Routine(_) = self.found {
            self.last_monitored = self.value;
            self.last_archived = self.value;
            self.last_alarmed = self.value;
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Sub::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta(self, field, self.precision, meta)
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if let Found::Unset = self.found {
            self.common.is_active = 0;
            self.common.reprocess = 0;
        }
        self.find();
        match self.found {
            Found::Nothing => Err("no routine has this name"),
            Found::Unset | Found::Routine(_) => Ok(()),
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let are_read = (0..N_INPUTS).all(|index| inputs::fetch(step, index).is_ok());
        if are_read {
            step.lock().call();
        }
        step.stamp(None);
        levels::check(step.lock(), None);
        step.post(Sub::monitor);
        Outcome::done(are_read)
    }
}

impl Sub {
    /// Finds the routine that SNAM names.
    fn find(&mut self) {
        self.found = match self.routines.find(&self.routine_name.to_str()) {
            _ if self.routine_name.is_empty() => Found::Unset,
            Some(routine) => Found::Routine(routine),
            None => Found::Nothing,
        };
        if let Found::Unset = self.found {
            self.common.is_active = 1;
        }
    }

    fn call(&mut self) {
        let Found::Routine(routine) = self.found.clone() else {
            self.common.raise(Status::BAD_SUB, 3);
            return;
        };
        match call(&routine, SubCall { args: &mut self.args, value: &mut self.value }) {
            Ok(()) => self.common.undefined = u8::from(self.value.is_nan()),
            Err(_) => {
                self.common.raise(Status::SOFT, self.bad_severity);
            }
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if moved(&mut self.last_monitored, self.value, self.monitor_deadband) {
            mask |= EventMask::VALUE;
        }
        if moved(&mut self.last_archived, self.value, self.archive_deadband) {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        inputs::post(self, posts, mask, false);
    }
}
