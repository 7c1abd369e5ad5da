//! longin: an integer input. int64in is the same with 64 bits.

/// Defines a record that reads an integer. The arguments are its name, the EPICS type and the Rust type of its numbers,
/// its device supports, and whether its severities are properties.
macro_rules! whole_input {
    ($record:ident, $name:literal, $dbf:ident, $number:ty, [$($device:literal),*], severities { $($severity:ident)? }) => {
        use fodo_data::{EventMask, Meta};

        use crate::common::{Common, row};
        use crate::field::{Dbf, record_fields};
        use crate::link::{Link, Target};
        use crate::menu;
        use crate::post::Posts;
        use crate::record::device::{self, Fetched, Input};
        use crate::record::levels::{self, Filter, leveled, moved_whole};
        use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
        use crate::record::{Record, record_type};
        use crate::step::{Outcome, Step};

        record_fields! {
            /// An integer input.
            $record
            fields {
                "VAL" value: $dbf, ASL0 PP;
                "INP" input: InLink;
                "EGU" units: String(16), PROP;
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
                "AFTC" alarm_filter_time: Double;
                "AFVL" alarm_filter_value: Double, NOMOD;
                "ADEL" archive_deadband: $dbf;
                "MDEL" monitor_deadband: $dbf;
                "LALM" last_alarmed: $dbf, NOMOD;
                "ALST" last_archived: $dbf, NOMOD;
                "MLST" last_monitored: $dbf, NOMOD;
                "SIOL" simulation_value_link: InLink;
                "SVAL" simulation_value: $dbf;
                "SIML" simulation_mode_link: InLink;
                "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
                "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
                "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
                "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
                "SDLY" simulation_delay: Double = -1.0;
            }
            arrays {
            }
            private {
                common: Common;
            }
        }

        record_type!($record, $name, [$($device),*]);
        leveled!($record, $number);
        simulated!($record, has_raw: false);

        const VAL: u16 = $record::at("VAL");

        impl Record for $record {
            fn init(&mut self) {
                simulation::init(self);
                if let Some(value) = constant(&self.simulation_value_link) {
                    self.simulation_value = value;
                }
                if let Some(value) = constant(&self.input) {
                    self.value = value;
                    self.common.undefined = 0;
                }
                self.last_monitored = self.value;
                self.last_archived = self.value;
                self.last_alarmed = self.value;
            }

            fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
                let row = row($record::ROWS, field)?;
                levels::meta(self, row, Dbf::$dbf, None, meta);
                None
            }

            fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
                simulation::swap_scan(self);
                Ok(())
            }

            fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
                let before = step.lock().common.time;
                let is_read = match source(step) {
                    Source::Device => match device::fetch(step) {
                        Fetched::Nothing => true,
                        Fetched::Value(value) => {
                            step.lock().value = value;
                            true
                        }
                        Fetched::Failed => false,
                        Fetched::Waiting => return Outcome::Waiting,
                    },
                    Source::Simulation(value, _) => {
                        let record = step.lock();
                        record.simulation_value = value.unwrap_or(record.simulation_value);
                        record.value = record.simulation_value;
                        true
                    }
                    Source::Failed => false,
                    Source::Waiting(delay_s) => return step.complete_after(delay_s),
                };
                let simulated = time_source(step);
                step.stamp(simulated);
                let elapsed_s = step.elapsed_s(before);
                step.post(|record, posts| {
                    if is_read {
                        record.common.undefined = 0;
                    }
                    let mut state = record.alarm_filter_value;
                    let time_s = record.alarm_filter_time;
                    levels::check(record, Some(Filter { time_s, state: &mut state, elapsed_s }));
                    record.alarm_filter_value = state;
                    record.monitor(posts);
                });
                Outcome::done(is_read)
            }
        }

        impl Input for $record {
            fn input(&self) -> &Link {
                &self.input
            }
        }

        impl $record {
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

pub(super) use whole_input;

whole_input!(LongIn, "longin", Long, i32, ["Soft Channel", "Async Soft Channel", "General Time"], severities { PROP });
