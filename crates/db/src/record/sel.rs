//! sel: selects one of twelve inputs, or the highest, lowest or median of them.

use fodo_data::{Meta, Status};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, alarm_limits};
use crate::record::simulation::set_constant;
use crate::record::{CHANGED, Record, is_changed, record_type};

record_fields! {
    /// A selection of inputs.
    Sel
    fields {
        "VAL" value: Double, ASL0 NOMOD INTEREST0;
        "SELM" select_mode: Menu(menu::SEL_SELM), INTEREST0;
        "SELN" selection: UShort, INTEREST0;
        "PREC" precision: Short, PROP;
        "NVL" selection_link: InLink;
        ..limits(Double; PROP; PROP);
        "NLST" old_selection: UShort, NOMOD INTEREST3;
    }
    arrays {
        inputs: [InLink(); 12] [] "INP" A_TO_L;
        args: [Double(); 12] [PP INTEREST0] "" A_TO_L;
        last_args: [Double(); 12] [NOMOD INTEREST3] "L" A_TO_L;
    }
    private {
        common: Common;
    }
}

record_type!(Sel, "sel", [], SELN);
alarm_limits!(Sel, f64);
inputs!(Sel);

const N_INPUTS: usize = 12;
/// The choices of SELM; the others select the median.
const SPECIFIED: u16 = 0;
const HIGH_SIGNAL: u16 = 1;
const LOW_SIGNAL: u16 = 2;

impl Record for Sel {
    fn init(&mut self) {
        set_constant(&mut self.selection, &self.selection_link);
        self.args = [f64::NAN; N_INPUTS];
        inputs::init(self);
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Sel::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta_from_record(self, field, meta);
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if fetch(step).is_ok() {
            step.lock().choose();
        }
        step.stamp(None);
        levels::check(step.lock());
        step.post(Sel::monitor);
        ProcessOutcome::Done
    }
}

/// Fetches the inputs that SELM requires. As in Base, only the last one determines whether fetching succeeded.
fn fetch(step: &mut Step<'_, '_, Sel>) -> Result<(), LinkError> {
    if step.lock().select_mode != SPECIFIED {
        let mut last = Ok(());
        for index in 0..N_INPUTS {
            last = inputs::fetch(step, index);
        }
        return last;
    }
    if let Some(selection) = step.read_link("NVL", |sel| &sel.selection_link)? {
        step.lock().selection = selection;
    }
    let selection = usize::from(step.lock().selection);
    inputs::fetch(step, selection)
}

impl Sel {
    /// Sets the value according to SELM; NaN inputs are ignored.
    fn choose(&mut self) {
        let numbers = || self.args.iter().copied().enumerate().filter(|(_, number)| !number.is_nan());
        let value = match self.select_mode {
            SPECIFIED => self.args.get(usize::from(self.selection)).copied(),
            HIGH_SIGNAL => {
                let first = (usize::from(self.selection), f64::NEG_INFINITY);
                let (index, value) = numbers().fold(first, |best, next| if next.1 > best.1 { next } else { best });
                self.selection = index as u16;
                Some(value)
            }
            LOW_SIGNAL => {
                let first = (usize::from(self.selection), f64::INFINITY);
                let (index, value) = numbers().fold(first, |best, next| if next.1 < best.1 { next } else { best });
                self.selection = index as u16;
                Some(value)
            }
            _ => {
                let mut sorted: Vec<f64> = numbers().map(|(_, number)| number).collect();
                sorted.sort_by(f64::total_cmp);
                self.selection = sorted.len() as u16;
                Some(sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN))
            }
        };
        match value {
            Some(value) => {
                self.value = value;
                self.common.undefined = u8::from(value.is_nan());
            }
            None => {
                self.common.raise(Status::SOFT, INVALID);
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        if is_changed(&mut self.old_selection, &self.selection) {
            posts.post(self, SELN, mask | CHANGED);
        }
        inputs::post(self, posts, mask, false);
    }
}
