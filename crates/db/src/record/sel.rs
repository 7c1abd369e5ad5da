//! sel: selects one of twelve inputs, or the highest, lowest or median of them.

use fodo_data::{EventMask, Meta, Status};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::inputs::{self, Inputs, inputs};
use crate::record::levels::{self, Leveled, leveled, moved};
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A selection of inputs.
    Sel
    fields {
        "VAL" value: Double, ASL0 NOMOD;
        "SELM" select_mode: Menu(menu::SEL_SELM);
        "SELN" selection: UShort;
        "PREC" precision: Short, PROP;
        "NVL" selection_link: InLink;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "HIHI" hihi: Double, PP PROP;
        "LOLO" lolo: Double, PP PROP;
        "HIGH" high: Double, PP PROP;
        "LOW" low: Double, PP PROP;
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
        "NLST" old_selection: UShort, NOMOD;
    }
    arrays {
        inputs: [InLink(); 12] [] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11
        }
        args: [Double(); 12] [PP] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11
        }
        last_args: [Double(); 12] [NOMOD] {
            "LA" 0, "LB" 1, "LC" 2, "LD" 3, "LE" 4, "LF" 5, "LG" 6, "LH" 7, "LI" 8, "LJ" 9, "LK" 10, "LL" 11
        }
    }
    private {
        common: Common;
    }
}

record_type!(Sel, "sel", []);
leveled!(Sel, f64);
inputs!(Sel);

const VAL: u16 = Sel::at("VAL");
const SELN: u16 = Sel::at("SELN");
const N_INPUTS: usize = 12;
const SPECIFIED: u16 = 0;

impl Record for Sel {
    fn init(&mut self) {
        if let Some(selection) = constant(&self.selection_link) {
            self.selection = selection;
        }
        self.args = [f64::NAN; N_INPUTS];
        inputs::init(self);
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Sel::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        let n_fields = N_INPUTS as u16;
        let is_input = [Sel::FIRST, Sel::FIRST_LAST].iter().any(|first| (*first..first + n_fields).contains(&field));
        if is_input {
            meta.display = self.levels().display;
            meta.control = meta.display;
        }
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if fetch(step).is_ok() {
            step.lock().choose();
        }
        step.stamp(None);
        levels::check(step.lock(), None);
        step.post(Sel::monitor);
        Outcome::Done
    }
}

/// Fetches the inputs that SELM requires. As in Base, only the last one determines whether fetching succeeded.
fn fetch(step: &mut Step<'_, '_, Sel>) -> Result<(), Broken> {
    if step.lock().select_mode != SPECIFIED {
        let mut last = Ok(());
        for index in 0..N_INPUTS {
            last = inputs::fetch(step, index);
        }
        return last;
    }
    if let Some(selection) = step.fetch("NVL", |sel| &sel.selection_link)? {
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
            1 => {
                let first = (usize::from(self.selection), f64::NEG_INFINITY);
                let (index, value) = numbers().fold(first, |best, next| if next.1 > best.1 { next } else { best });
                self.selection = index as u16;
                Some(value)
            }
            2 => {
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
                self.common.raise(Status::SOFT, 3);
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
        if self.old_selection != self.selection {
            self.old_selection = self.selection;
            posts.post(self, SELN, mask | CHANGED);
        }
        inputs::post(self, posts, mask, false);
    }
}
