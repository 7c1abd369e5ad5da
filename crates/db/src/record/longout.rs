//! longout: an integer output. int64out is the same with 64 bits, and always writes OUT.

use crate::record::expression::is_output_due;

/// Defines a record that writes an integer. The arguments are its name, the EPICS type and the Rust type of its
/// numbers, additional fields, private members, and whether its severities are properties. Each record implements
/// [`OutputOption`] itself.
macro_rules! integer_output {
    ($record:ident, $name:literal, $dbf:ident, $number:ty, fields { $($extra:tt)* } private { $($private:tt)* } severities { $($severity:ident)? }) => {
        use fodo_data::{Limits, Meta, Value};

        use crate::common::{Common, row};
        use crate::field::{Dbf, record_fields};
        use crate::link::Target;
        use crate::menu;
        use crate::process::post::RecordPosts;
        use crate::record::levels::{self, HasAlarmLimits, LimitNumber, alarm_limits, has_display_limits};
        use crate::record::output::{self, OutputFields, OutputRecord, output_fields};
        use crate::record::simulation::{self, set_constant, simulated};
        use crate::record::{Record, record_type};
        use crate::process::step::{ProcessOutcome, Step};

        record_fields! {
            /// An integer output.
            $record
            fields {
                "VAL" value: $dbf, ASL0 PP INTEREST0;
                "OUT" output: OutLink, SPECIAL DEVICE;
                "DOL" desired_output: InLink;
                "OMSL" output_mode: Menu(menu::OMSL);
                "DRVH" drive_high: $dbf, PP PROP;
                "DRVL" drive_low: $dbf, PP PROP;
                ..limits($dbf; PROP; $($severity)?);
                ..simulation(OutLink, YES_NO);
                "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
                "IVOV" invalid_value: $dbf, INTEREST2;
                $($extra)*
            }
            arrays {
            }
            private {
                common: Common;
                $($private)*
            }
        }

        record_type!($record, $name, ["Soft Channel", "Async Soft Channel", "Program"], SIMM);
        alarm_limits!($record, $number);
        simulated!($record, has_raw: false);
output_fields!($record);

        impl Record for $record {
            fn init(&mut self) {
                simulation::init(self);
                if set_constant(&mut self.value, &self.desired_output) {
                    self.common.undefined = 0;
                }
                self.forget_changes();
                self.begin();
            }

            fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
                let row = row($record::ROWS, field)?;
                levels::meta(self, row, Dbf::$dbf, None, meta);
                if has_display_limits(row) && self.drive_high > self.drive_low {
                    meta.control = Limits { low: self.drive_low.to_f64(), high: self.drive_high.to_f64() };
                }
                None
            }

            fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
                if field == SIMM {
                    return simulation::mode_was_put(self);
                }
                self.output_changed();
                Ok(())
            }

            fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
                output::process(step)
            }
        }

        impl OutputRecord for $record {
            const REPORTS_WRITE_FAILURE: bool = false;
            fn use_invalid_value(&mut self) {
                self.value = self.invalid_value;
            }

            fn value(&self) -> Value {
                self.value.into()
            }

            fn value_to_write(&mut self) -> Option<Value> {
                self.is_output_due().then(|| self.value.into())
            }

            fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
                let fetched = output::fetch_desired(step);
                let record = step.lock();
                let mut value = fetched.ok().flatten();
                if !output::is_closed_loop(record.desired()) {
                    value = Some(record.value);
                } else if fetched.is_ok() {
                    record.common.undefined = 0;
                }
                if let Some(value) = value {
                    let has_range = record.drive_high > record.drive_low;
                    record.value = if has_range { value.clamp(record.drive_low, record.drive_high) } else { value };
                }
                output::stamp(step);
                value.is_some()
            }

            fn check(&mut self) {
                levels::check(self);
            }

            fn monitor(&mut self, posts: &mut RecordPosts) {
                levels::monitor(self, posts);
            }
        }
    };
}

pub(super) use integer_output;

/// Whether processing writes OUT.
pub(super) trait OutputOption {
    /// Called when the record is initialized.
    fn begin(&mut self) {}

    /// Called after a put to OUT.
    fn output_changed(&mut self) {}

    /// Called once each time the record is processed.
    fn is_output_due(&mut self) -> bool {
        true
    }
}

integer_output!(LongOut, "longout", Long, i32,
    fields {
        "PVAL" previous_value: Long, INTEREST0;
        "OOCH" output_on_change: Menu(menu::YES_NO) = menu::YES;
        "OOPT" output_option: Menu(menu::OOPT) = 0;
    }
    private { must_write: bool; }
    severities { PROP });

impl OutputOption for LongOut {
    fn begin(&mut self) {
        self.previous_value = self.value;
        self.must_write = true;
    }

    fn output_changed(&mut self) {
        self.must_write |= self.output_on_change == menu::YES;
    }

    fn is_output_due(&mut self) -> bool {
        let (now, before) = (self.value, self.previous_value);
        let is_first = std::mem::take(&mut self.must_write);
        self.previous_value = now;
        is_output_due(self.output_option, now, before, is_first || now != before)
    }
}
