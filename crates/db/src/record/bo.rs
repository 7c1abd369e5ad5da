//! bo: a binary output, momentary if HIGH is set.

use fodo_data::{Limits, Meta, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::output::{self, OutputRecord, WriteResult, output_fields};
use crate::record::simulation::{self, constant, simulated};
use crate::record::states::{binary_labels, raise_binary, raw_binary};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, record_type};

record_fields! {
    /// A binary output.
    Bo
    fields {
        ..two_states("", "", PROP);
        "OMSL" output_mode: Menu(menu::OMSL);
        "DOL" desired_output: InLink;
        "OUT" output: OutLink, DEVICE;
        "HIGH" high: Double, DELAY;
        ..readback(ULong);
        ..simulation(OutLink, SIMM);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: UShort, INTEREST2;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(
    Bo, "bo", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "General Time", "Db State", "Program"],
    VAL RVAL RBV HIGH
);
simulated!(Bo, has_raw: true);
output_fields!(Bo);

impl Record for Bo {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u16>(&self.desired_output) {
            self.value = u16::from(value != 0);
            self.common.undefined = 0;
        }
        self.convert();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        match field {
            VAL => {
                binary_labels(&self.zero_name, &self.one_name, meta);
                meta.control = Limits { low: 0.0, high: u16::MAX.into() };
            }
            HIGH => {
                meta.units = "s".into();
                meta.precision = 2;
                meta.control = Limits { low: 0.0, high: 100_000.0 };
            }
            field => {
                if let Some(row) = crate::common::row(Bo::ROWS, field) {
                    let display = meta.display;
                    crate::meta::ranges(row, meta);
                    meta.display = display;
                }
            }
        }
        None
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        simulation::mode_was_put(self)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for Bo {
    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value;
        self.convert();
    }

    fn value(&self) -> Value {
        self.value.into()
    }

    fn raw_value(&self) -> Value {
        self.raw_value.into()
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        let fetched = output::fetch_desired(step);
        let bo = step.lock();
        if let Ok(Some(value)) = fetched {
            bo.value = value;
            bo.common.undefined = 0;
        }
        bo.convert();
        output::stamp(step);
        fetched.is_ok()
    }

    fn check(&mut self) {
        // Base compares UDF with TRUE, but a client may have put 2.
        if self.common.undefined == 1 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
        let severities = [self.zero_severity, self.one_severity];
        raise_binary(&mut self.common, self.value, severities, self.change_severity, &mut self.last_alarmed);
    }

    fn write(step: &mut Step<'_, '_, Self>) -> WriteResult {
        let device = DeviceSupport::of(step.lock());
        match device {
            DeviceSupport::State => {
                let bo = step.lock();
                let (name, is_on) = (bo.output.address(), bo.value != 0);
                step.set_state(&name, is_on);
                WriteResult::Done { is_ok: true }
            }
            // This implementation has no errors of time providers to reset.
            DeviceSupport::GeneralTime => WriteResult::Done { is_ok: true },
            _ => output::write_link(step),
        }
    }

    fn finish(step: &mut Step<'_, '_, Self>) {
        let bo = step.lock();
        let high_s = if bo.value == 1 { bo.high } else { 0.0 };
        if high_s > 0.0 {
            step.release_after(high_s);
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.last_monitored, &self.value);
        let mask = post_value(self, changes, posts) | CHANGED;
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask);
        }
        if is_changed(&mut self.old_readback, &self.readback) {
            posts.post(self, RBV, mask);
        }
    }
}

impl Bo {
    fn convert(&mut self) {
        self.raw_value = raw_binary(self.mask, self.value);
    }
}
