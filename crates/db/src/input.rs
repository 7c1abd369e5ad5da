//! The inputs of a database.

use fodo_data::{AcknowledgePut, Text, Value};

use crate::external_pv::{ExternalLinkId, ExternalPvEvent};
use crate::program::{OutputId, OutputResult};
use crate::reference::{FieldRef, PutId};

/// Whether a put processes its record.
///
/// ```
/// use fodo_data::{Now, Value};
/// use fodo_db::{Input, Loader, Processing};
///
/// let mut loader = Loader::default();
/// let text = r#"record(calc, c) { field(CALC, "VAL+1") }"#;
/// loader.load("a.db", "", &mut |_| Ok(text.into()))?;
/// let database = loader.finish()?;
/// let field = database.field("c").expect("the record exists");
/// let put = |processing| {
///     let input = Input::PutProcessing { field, value: 10.0.into(), processing, put: None };
///     database.handle(input, Now::for_test(), &mut Vec::new()).map(|()| database.read(field).value)
/// };
///
/// assert_eq!(put(Processing::Passive), Ok(10.0.into()), "a put to VAL does not process a calc");
/// assert_eq!(put(Processing::Always), Ok(11.0.into()));
/// # Ok::<(), Vec<fodo_db::LoadError>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processing {
    /// If the record is passive and the field is PP, or if the field is PROC; the same as [`Input::Put`].
    #[default]
    Passive,
    /// Always, whatever the field and SCAN. A put to a link never processes.
    Always,
    /// Only if the field is PROC.
    Never,
}

/// An input of [`crate::Database::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The IOC starts: initial values, PINI.
    Start,
    /// Time has passed; see [`crate::Database::deadline`].
    Tick,
    /// A client writes a field. With `put`, [`Event::PutDone`] reports the completion. While the record is active, such
    /// a put is queued; if it is rejected later, [`Event::PutRefused`] reports that.
    Put {
        /// The field.
        field: FieldRef,
        /// The new value; it is converted to the field's kind.
        value: Value,
        /// Identifies the put when its completion is reported.
        put: Option<PutId>,
    },
    /// The same; the client decides whether the put processes the record. [`Processing`] has an example.
    PutProcessing {
        /// The field.
        field: FieldRef,
        /// The new value; it is converted to the field's kind.
        value: Value,
        /// Whether the put processes the record.
        processing: Processing,
        /// Identifies the put when its completion is reported.
        put: Option<PutId>,
    },
    /// Restores the value that a field had when the IOC last ran. Must precede [`Input::Start`]. No record is
    /// processed, and nothing is posted.
    Restore {
        /// The field. Links are restored in the loader, see [`crate::Loader::restore`].
        field: FieldRef,
        /// The new value; it is converted to the field's kind.
        value: Value,
    },
    /// The client of a put has disconnected: the put is dropped if it is still queued.
    CancelPut {
        /// The field.
        field: FieldRef,
        /// The put's identifier.
        put: PutId,
    },
    /// The state of a link to another IOC changed.
    ExternalPv {
        /// The link, as in [`Event::ExternalLinkAdded`].
        link: ExternalLinkId,
        /// What changed.
        event: ExternalPvEvent,
    },
    /// The states of several links changed together. All changes are visible before the first record is processed, and
    /// the records are processed in this order.
    ExternalPvs {
        /// Each link with what changed.
        events: Vec<(ExternalLinkId, ExternalPvEvent)>,
    },
    /// Processes the records whose SCAN is Event and whose EVNT names this event.
    PostEvent {
        /// The event's name, as in EVNT. A text that names no event is ignored.
        name: Text,
    },
    /// The program has handled the value of an output; see [`crate::Event::OutputReady`]. Ignored if the record does
    /// not wait for this value.
    CompleteOutput {
        /// The record's VAL.
        record: FieldRef,
        /// The value's identifier.
        output: OutputId,
        /// How it was handled.
        result: OutputResult,
    },
    /// Alarm acknowledgement.
    Acknowledge {
        /// Any field of the record.
        field: FieldRef,
        /// The field to write, and its value.
        put: AcknowledgePut,
    },
}
