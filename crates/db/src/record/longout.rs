//! longout: an integer output. int64out is the same with 64 bits, and always writes OUT.

/// Defines a record that writes an integer. The arguments are its name, the EPICS type and the Rust type of its
/// numbers, additional fields, private members, and whether its severities are properties. Each record implements
/// [`Choice`] itself.
macro_rules! whole_output {
    ($record:ident, $name:literal, $dbf:ident, $number:ty, fields { $($extra:tt)* } private { $($private:tt)* } severities { $($severity:ident)? }) => {
        use fodo_data::{EventMask, Limits, Meta, Value};

        use crate::common::{Common, row};
        use crate::field::{Dbf, record_fields};
        use crate::link::{Link, Target};
        use crate::menu;
        use crate::post::Posts;
        use crate::record::levels::{self, Number, is_spanned, leveled, moved_whole};
        use crate::record::output::{self, Driven, Output};
        use crate::record::simulation::{self, constant, simulated, time_source};
        use crate::record::{Record, record_type};
        use crate::step::{Broken, Outcome, Step};

        record_fields! {
            /// An integer output.
            $record
            fields {
                "VAL" value: $dbf, ASL0 PP;
                "OUT" output: OutLink, SPECIAL;
                "DOL" desired_output: InLink;
                "OMSL" output_mode: Menu(menu::OMSL);
                "EGU" units: String(16), PROP;
                "DRVH" drive_high: $dbf, PP PROP;
                "DRVL" drive_low: $dbf, PP PROP;
                "HOPR" display_high: $dbf, PROP;
                "LOPR" display_low: $dbf, PROP;
                "HIHI" hihi: $dbf, PP PROP;
                "LOLO" lolo: $dbf, PP PROP;
                "HIGH" high: $dbf, PP PROP;
                "LOW" low: $dbf, PP PROP;
                "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP $($severity)?;
                "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP $($severity)?;
                "HSV" high_severity: Menu(menu::ALARM_SEVR), PP $($severity)?;
                "LSV" low_severity: Menu(menu::ALARM_SEVR), PP $($severity)?;
                "HYST" hysteresis: $dbf;
                "ADEL" archive_deadband: $dbf;
                "MDEL" monitor_deadband: $dbf;
                "LALM" last_alarmed: $dbf, NOMOD;
                "ALST" last_archived: $dbf, NOMOD;
                "MLST" last_monitored: $dbf, NOMOD;
                "SIOL" simulation_value_link: OutLink;
                "SIML" simulation_mode_link: InLink;
                "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
                "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
                "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
                "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
                "SDLY" simulation_delay: Double = -1.0;
                "IVOA" invalid_action: Menu(menu::IVOA);
                "IVOV" invalid_value: $dbf;
                $($extra)*
            }
            arrays {
            }
            private {
                common: Common;
                $($private)*
            }
        }

        record_type!($record, $name, ["Soft Channel", "Async Soft Channel"]);
        leveled!($record, $number);
        simulated!($record, has_raw: false);

        const VAL: u16 = $record::at("VAL");
        const SIMM: u16 = $record::at("SIMM");

        impl Record for $record {
            fn init(&mut self) {
                simulation::init(self);
                if let Some(value) = constant(&self.desired_output) {
                    self.value = value;
                    self.common.undefined = 0;
                }
                self.last_monitored = self.value;
                self.last_archived = self.value;
                self.last_alarmed = self.value;
                self.begin();
            }

            fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
                let row = row($record::ROWS, field)?;
                levels::meta(self, row, Dbf::$dbf, None, meta);
                if is_spanned(row) && self.drive_high > self.drive_low {
                    meta.control = Limits { low: self.drive_low.to_f64(), high: self.drive_high.to_f64() };
                }
                None
            }

            fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
                match field {
                    SIMM => {
                        simulation::swap_scan(self);
                    }
                    _ => self.output_changed(),
                }
                Ok(())
            }

            fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
                let mut is_well = true;
                if !step.is_completion {
                    let value = desired(step);
                    is_well = value.is_some();
                    if let Some(value) = value {
                        step.lock().limit(value);
                    }
                    let simulated = time_source(step).map(|_| Target::Constant);
                    step.stamp(simulated);
                }
                levels::check(step.lock(), None);
                match output::drive(step) {
                    Driven::Not => {}
                    Driven::Done(is_written) => is_well = is_written,
                    Driven::Waiting(outcome) => return outcome,
                }
                if step.is_completion {
                    step.stamp(Some(Target::Constant));
                }
                step.post($record::monitor);
                Outcome::done(is_well)
            }
        }

        /// The value to drive: that of DOL in closed loop mode, else VAL. `None` if DOL cannot be read.
        fn desired(step: &mut Step<'_, '_, $record>) -> Option<$number> {
            {
                let record = step.lock();
                if record.output_mode == 0 || record.desired_output.is_constant() {
                    return Some(record.value);
                }
            }
            match step.fetch("DOL", |record| &record.desired_output) {
                Ok(value) => {
                    step.lock().common.undefined = 0;
                    value
                }
                Err(Broken) => None,
            }
        }

        impl Output for $record {
            const TELLS_FAILURE: bool = false;

            fn output(&self) -> &Link {
                &self.output
            }

            fn invalid_action(&self) -> u16 {
                self.invalid_action
            }

            fn use_invalid_value(&mut self) {
                self.value = self.invalid_value;
            }

            fn simulated_value(&self) -> Value {
                self.value.into()
            }

            fn value_to_write(&mut self) -> Option<Value> {
                self.is_wanted().then(|| self.value.into())
            }
        }

        impl $record {
            fn limit(&mut self, value: $number) {
                self.value = value;
                if self.drive_high > self.drive_low {
                    self.value = value.clamp(self.drive_low, self.drive_high);
                }
            }

            fn monitor(&mut self, posts: &mut Posts) {
                let mut mask = posts.alarms(self);
                if moved_whole(&mut self.last_monitored, self.value, self.monitor_deadband) {
                    mask |= EventMask::VALUE;
                }
                if moved_whole(&mut self.last_archived, self.value, self.archive_deadband) {
                    mask |= EventMask::LOG;
                }
                if !mask.is_empty() {
                    posts.post(self, VAL, mask);
                }
            }
        }
    };
}

pub(super) use whole_output;

/// Whether processing writes OUT.
pub(super) trait Choice {
    /// Called when the record is initialized.
    fn begin(&mut self) {}

    /// Called after a put to OUT.
    fn output_changed(&mut self) {}

    /// Called once each time the record is processed.
    fn is_wanted(&mut self) -> bool {
        true
    }
}

whole_output!(LongOut, "longout", Long, i32,
    fields {
        "PVAL" previous_value: Long;
        "OOCH" output_on_change: Menu(menu::YES_NO) = 1;
        "OOPT" output_option: Menu(menu::OOPT) = 0;
    }
    private { must_write: bool; }
    severities { PROP });

impl Choice for LongOut {
    fn begin(&mut self) {
        self.previous_value = self.value;
        self.must_write = true;
    }

    fn output_changed(&mut self) {
        self.must_write |= self.output_on_change == 1;
    }

    fn is_wanted(&mut self) -> bool {
        let (now, before) = (self.value, self.previous_value);
        let is_first = std::mem::take(&mut self.must_write);
        self.previous_value = now;
        match self.output_option {
            0 => true,
            1 => is_first || now != before,
            2 => now == 0,
            3 => now != 0,
            4 => now == 0 && before != 0,
            5 => now != 0 && before == 0,
            _ => false,
        }
    }
}
