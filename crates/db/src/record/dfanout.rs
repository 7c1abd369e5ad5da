//! dfanout: writes one value to up to sixteen fields.

use fodo_data::Meta;

use crate::common::{Common, row};
use crate::field::{Dbf, names, record_fields};
use crate::link::Target;
use crate::menu;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::levels::{self, alarm_limits};
use crate::record::output::{fetch_desired_from, may_write};
use crate::record::selection::{N_LINKS, indices, or_alarm, selected_from_one};
use crate::record::simulation::{constant, set_constant};
use crate::record::{Record, record_type};

record_fields! {
    /// A value written to up to sixteen fields.
    DFanout
    fields {
        "VAL" value: Double, ASL0 PP INTEREST0;
        ..selection();
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "PREC" precision: Short, PROP;
        ..limits(Double; PROP; PROP);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: Double, INTEREST2;
    }
    arrays {
        outputs: [OutLink(); 16] [] "OUT" A_TO_P;
    }
    private {
        common: Common;
    }
}

record_type!(DFanout, "dfanout", []);
alarm_limits!(DFanout, f64);

/// The names of the links, for messages.
const OUTPUTS: [&str; N_LINKS] = names(DFanout::ROWS, "OUTA");

impl Record for DFanout {
    fn init(&mut self) {
        set_constant(&mut self.selection, &self.selection_link);
        if let Some(value) = constant(&self.desired_output) {
            self.store(value);
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

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let fetched = fetch_desired_from(step, |dfanout| (dfanout.output_mode, &dfanout.desired_output));
        if let Ok(Some(value)) = fetched {
            step.lock().store(value);
        }
        step.stamp(None);
        if let Ok(Some(selection)) = step.read_link("SELL", |dfanout| &dfanout.selection_link) {
            step.lock().selection = selection;
        }
        let dfanout = step.lock();
        levels::check(dfanout);
        let invalid_action = dfanout.invalid_action;
        if may_write(dfanout, invalid_action, |dfanout| dfanout.value = dfanout.invalid_value) {
            write(step);
        }
        step.post(levels::monitor);
        ProcessOutcome::done(fetched.is_ok())
    }
}

/// Writes the value to the fields that SELM and SELN select.
fn write(step: &mut Step<'_, '_, DFanout>) {
    let dfanout = step.lock();
    let selected = selected_from_one(dfanout.select_mode, dfanout.selection, N_LINKS);
    let (selected, value) = (or_alarm(dfanout, selected), dfanout.value);
    for index in indices(selected) {
        // A broken link has already raised its alarm; the other links are still written.
        let _ = step.write_link(OUTPUTS[index], |dfanout| &dfanout.outputs[index], value);
    }
}

impl DFanout {
    fn store(&mut self, value: f64) {
        self.value = value;
        self.common.undefined = u8::from(value.is_nan());
    }
}
