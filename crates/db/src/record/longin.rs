//! longin: an integer input. int64in is the same with 64 bits.

/// Defines a record that reads an integer. The arguments are its name, the EPICS type and the Rust type of its numbers,
/// its device supports, and whether its severities are properties.
macro_rules! integer_input {
    ($record:ident, $name:literal, $dbf:ident, $number:ty, [$($device:literal),*], severities { $($severity:ident)? }) => {
        use fodo_data::{Meta, TimeStamp};

        use crate::common::{Common, row};
        use crate::field::{Dbf, record_fields};
        use crate::link::Target;
        use crate::process::post::RecordPosts;
        use crate::record::device::{self, DeviceSupport, InputRecord, ReadResult, input_fields};
        use crate::record::levels::{self, HasAlarmLimits, alarm_limits};
        use crate::record::simulation::{self, set_constant, simulated};
        use crate::record::{Record, record_type};
        use crate::process::step::{ProcessOutcome, Step};

        record_fields! {
            /// An integer input.
            $record
            fields {
                "VAL" value: $dbf, ASL0 PP INTEREST0;
                "INP" input: InLink, DEVICE;
                ..limits($dbf; PROP; $($severity)?);
                ..alarm_filter();
                ..simulation(InLink, YES_NO);
                "SVAL" simulation_value: $dbf, INTEREST0;
            }
            arrays {
            }
            private {
                common: Common;
            }
        }

        record_type!($record, $name, [$($device),*]);
        alarm_limits!($record, $number, filtered);
        simulated!($record, has_raw: false);
        input_fields!($record, $number, simulated: $number);

        impl Record for $record {
            fn init(&mut self) {
                simulation::init(self);
                set_constant(&mut self.simulation_value, &self.simulation_value_link);
                if set_constant(&mut self.value, &self.input) {
                    self.common.undefined = 0;
                }
                self.forget_changes();
            }

            fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
                levels::meta(self, row($record::ROWS, field)?, Dbf::$dbf, None, meta);
                None
            }

            fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
                simulation::mode_was_put(self)
            }

            fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
                device::process(step)
            }
        }

        impl InputRecord for $record {
            fn store(&mut self, value: Option<$number>, _device: DeviceSupport) {
                self.value = value.unwrap_or(self.value);
            }

            fn simulate(&mut self, value: Option<$number>, _is_raw: bool) {
                self.simulation_value = value.unwrap_or(self.simulation_value);
                self.value = self.simulation_value;
            }

            fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, before: TimeStamp) {
                let elapsed_s = step.elapsed_s(before);
                step.post(|record, posts| {
                    if read != ReadResult::Failed {
                        record.common.undefined = 0;
                    }
                    levels::check_filtered(record, elapsed_s);
                    levels::monitor(record, posts);
                });
            }
        }
    };
}

pub(super) use integer_input;

integer_input!(
    LongIn,
    "longin",
    Long,
    i32,
    ["Soft Channel", "Async Soft Channel", "General Time", "Program"],
    severities { PROP }
);
