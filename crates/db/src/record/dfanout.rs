//! dfanout: writes one value to up to sixteen fields.

use fodo_data::{EventMask, Meta, Status};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::levels::{self, leveled, moved};
use crate::record::selection::{ALL, MASK, N_LINKS, SPECIFIED, indices};
use crate::record::simulation::constant;
use crate::record::{Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A value written to up to sixteen fields.
    DFanout
    fields {
        "VAL" value: Double, ASL0 PP;
        "SELM" select_mode: Menu(menu::SELM);
        "SELN" selection: UShort = 1;
        "SELL" selection_link: InLink;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "EGU" units: String(16), PROP;
        "PREC" precision: Short, PROP;
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
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Double;
    }
    arrays {
        outputs: [OutLink(); 16] [] {
            "OUTA" 0, "OUTB" 1, "OUTC" 2, "OUTD" 3, "OUTE" 4, "OUTF" 5, "OUTG" 6, "OUTH" 7, "OUTI" 8, "OUTJ" 9, "OUTK" 10, "OUTL" 11, "OUTM" 12, "OUTN" 13, "OUTO" 14, "OUTP" 15
        }
    }
    private {
        common: Common;
    }
}

record_type!(DFanout, "dfanout", []);
leveled!(DFanout, f64);

const VAL: u16 = DFanout::at("VAL");

/// The names of the links, for messages.
const OUTPUTS: [&str; N_LINKS] = [
    "OUTA", "OUTB", "OUTC", "OUTD", "OUTE", "OUTF", "OUTG", "OUTH", "OUTI", "OUTJ", "OUTK", "OUTL", "OUTM", "OUTN",
    "OUTO", "OUTP",
];

impl Record for DFanout {
    fn init(&mut self) {
        if let Some(selection) = constant(&self.selection_link) {
            self.selection = selection;
        }
        if let Some(value) = constant::<f64>(&self.desired_output) {
            self.value = value;
            self.common.undefined = u8::from(value.is_nan());
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(DFanout::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        if ["HIHI", "HIGH", "LOW", "LOLO"].contains(&row.name) {
            let display = meta.display;
            crate::meta::ranges(row, meta);
            meta.display = display;
        }
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let is_closed_loop = {
            let dfanout = step.lock();
            dfanout.output_mode == 1 && !dfanout.desired_output.is_constant()
        };
        let mut is_well = true;
        if is_closed_loop {
            match step.fetch::<f64>("DOL", |dfanout| &dfanout.desired_output) {
                Ok(Some(value)) => {
                    let dfanout = step.lock();
                    dfanout.value = value;
                    dfanout.common.undefined = u8::from(value.is_nan());
                }
                Ok(None) => {}
                Err(Broken) => is_well = false,
            }
        }
        step.stamp(None);
        if let Ok(Some(selection)) = step.fetch("SELL", |dfanout| &dfanout.selection_link) {
            step.lock().selection = selection;
        }
        levels::check(step.lock(), None);
        if step.lock().may_drive() {
            drive(step);
        }
        step.post(DFanout::monitor);
        Outcome::done(is_well)
    }
}

/// Writes the value to the fields that SELM and SELN select.
fn drive(step: &mut Step<'_, '_, DFanout>) {
    let (links, value) = {
        let dfanout = step.lock();
        let links = dfanout.links();
        if links.is_none() {
            dfanout.common.raise(Status::SOFT, 3);
        }
        (links.unwrap_or(0), dfanout.value)
    };
    for index in indices(links) {
        // A broken link has already raised its alarm; the other links are still written.
        let _ = step.drive(OUTPUTS[index], |dfanout| &dfanout.outputs[index], value);
    }
}

impl DFanout {
    /// One bit for each selected link. With Specified, the first link is number 1, and 0 selects none.
    fn links(&self) -> Option<u16> {
        match self.select_mode {
            ALL => Some(u16::MAX),
            SPECIFIED => match usize::from(self.selection) {
                0 => Some(0),
                number @ 1..=N_LINKS => Some(1 << (number - 1)),
                _ => None,
            },
            MASK => Some(self.selection),
            _ => None,
        }
    }

    /// Whether IVOA allows the output; sets the value to IVOV if IVOA requests that.
    fn may_drive(&mut self) -> bool {
        if self.common.new_severity < 3 {
            return true;
        }
        match self.invalid_action {
            0 => true,
            2 => {
                self.value = self.invalid_value;
                true
            }
            _ => false,
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
    }
}
