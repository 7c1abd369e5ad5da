//! Structures, procedures and the processing of records: what only pvAccess has.

use std::sync::Arc;
use std::time::Duration;

use fodo_data::{NodeValue, Structure, StructureType};
use fodo_pva::request::PvRequest;

use super::Channel;
use crate::client::monitor::{Delivery, Monitor, MonitorCore, MonitorOptions};
use crate::client::operation::{Operation, OperationTask, Output, StructuredTask};
use crate::client::{Error, Refusal};
use crate::protocol::Protocol;
use crate::pva::client::of_structure_monitor;

/// Why a request for structures fails with Channel Access.
pub(in crate::client) const ONLY_PVA: &str = "structures, calls and processing require pvAccess";

/// What to do then.
pub(in crate::client) const REQUEST_WITH_PVA: &str = "request the PV with \"pva://\"";

/// Structures, calls and processing. With Channel Access these operations fail at once with
/// [`ErrorKind::Misuse`](crate::ErrorKind::Misuse).
impl Channel {
    /// Starts to read the type of the PV, or of the field at a path such as `alarm.severity`; one round trip when connected.
    /// The empty path is the whole type.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// let temperature = context.channel("pva://demo:temperature")?;
    ///
    /// let severity = temperature.start_describe("alarm.severity").wait()?;
    ///
    /// assert_eq!(severity.to_string(), "I32");
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_describe(&self, sub_field: &str) -> Operation<Arc<StructureType>> {
        self.start_structured(StructuredTask::Describe(sub_field.to_owned()), false)
    }

    /// Reads the type of the PV; one round trip when connected. Blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// let kind = context.channel("pva://demo:temperature")?.describe()?;
    ///
    /// assert_eq!(kind.id().to_str(), "epics:nt/NTScalar:1.0");
    /// for bit in kind.members(0) {
    ///     println!("{}", kind.nodes()[bit].name);
    /// }
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn describe(&self) -> Result<Arc<StructureType>, Error> {
        self.describe_timeout(self.timeout())
    }

    /// Like [`Channel::describe`], with its own timeout.
    pub fn describe_timeout(&self, timeout: Duration) -> Result<Arc<StructureType>, Error> {
        self.start_structured(StructuredTask::Describe(String::new()), true).wait_timeout(timeout)
    }

    /// Starts to read the fields that a pvRequest selects, as a structure of the server's type. Does not block.
    ///
    /// [`Structure::changed`] of the result contains the nodes that the server has sent. The first get with a pvRequest costs
    /// two round trips, later ones with the same pvRequest one. A channel keeps 16 different pvRequests, for gets and puts
    /// together; the one that was not used for the longest time is given up for another.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::PvRequest;
    ///
    /// let temperature = context.channel("pva://demo:temperature")?;
    /// let request = PvRequest::parse("field(value,display.units)").expect("a valid pvRequest");
    ///
    /// let structure = temperature.start_get_structure(request).wait()?;
    ///
    /// assert_eq!(structure.get("display.units"), Some(&"K".into()));
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_get_structure(&self, request: PvRequest) -> Operation<Structure> {
        self.start_structured(StructuredTask::Get(request), false)
    }

    /// Reads the fields that a pvRequest selects; the default pvRequest selects all. Blocks; the calling thread itself reads
    /// the circuit. [`Channel::start_get_structure`] has the details.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{PvRequest, Value};
    ///
    /// let temperature = context.channel("pva://demo:temperature")?;
    ///
    /// let structure = temperature.get_structure(&PvRequest::default())?;
    ///
    /// assert_eq!(structure.get("value"), Some(&Value::from(21.5)));
    /// println!("{:?}", structure.get("timeStamp.secondsPastEpoch"));
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn get_structure(&self, request: &PvRequest) -> Result<Structure, Error> {
        self.get_structure_timeout(request, self.timeout())
    }

    /// Like [`Channel::get_structure`], with its own timeout.
    pub fn get_structure_timeout(&self, request: &PvRequest, timeout: Duration) -> Result<Structure, Error> {
        self.start_structured(StructuredTask::Get(request.clone()), true).wait_timeout(timeout)
    }

    /// Starts to write the fields at these paths, such as `value` or `display.units`, and only these. Does not block.
    ///
    /// The values are converted to the types of the server's fields. A number for an enum is its index, and a variant union
    /// accepts a value of any type. Fails with [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) if a field does not exist or a
    /// value cannot be converted. The pvRequest selects what may be written, all by default, and it can contain options:
    /// `record[block=true]` waits until the server has completed processing.
    ///
    /// A put with a pvRequest that is used first costs two round trips, later ones cost one. The puts of a channel with one
    /// pvRequest are sent one after the other.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{NodeValue, PvRequest};
    ///
    /// let gap = context.channel("pva://demo:gap")?;
    /// let request = PvRequest::parse("field(value)record[block=true]").expect("a valid pvRequest");
    ///
    /// let moving = gap.start_put_structure(request, vec![("value".into(), NodeValue::Value(20.into()))]);
    /// // Other work, while the gap opens.
    /// moving.wait()?;
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_put_structure(&self, request: PvRequest, fields: Vec<(String, NodeValue)>) -> Operation<()> {
        self.start_structured(StructuredTask::Put(request, fields), false)
    }

    /// Writes the fields at these paths, and only these. Blocks; [`Channel::start_put_structure`] has the details.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{NodeValue, PvRequest};
    ///
    /// let gap = context.channel("pva://demo:gap")?;
    ///
    /// gap.put_structure(&PvRequest::default(), vec![("value".into(), NodeValue::Value(20.0.into()))])?;
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn put_structure(&self, request: &PvRequest, fields: Vec<(String, NodeValue)>) -> Result<(), Error> {
        self.put_structure_timeout(request, fields, self.timeout())
    }

    /// Like [`Channel::put_structure`], with its own timeout.
    pub fn put_structure_timeout(
        &self,
        request: &PvRequest,
        fields: Vec<(String, NodeValue)>,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.start_structured(StructuredTask::Put(request.clone(), fields), true).wait_timeout(timeout)
    }

    /// Starts to call a procedure (RPC) with this argument; the operation ends with its result. Does not block.
    ///
    /// The first call of a channel costs two round trips, later ones one. Sixteen calls of a channel can be in progress at one
    /// time; others wait for them. A call that is dropped, or times out, is interrupted if the server supports that.
    /// The result is an empty structure if the procedure returns nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use fodo_net::{Context, Kind, Structure, StructureBuilder};
    ///
    /// // The arguments of a procedure are usually the member `query` of this type.
    /// let mut build = StructureBuilder::new("epics:nt/NTURI:1.0");
    /// build.scalar("scheme", Kind::Text).scalar("path", Kind::Text);
    /// build.open("query", "").scalar("lhs", Kind::F64).scalar("rhs", Kind::F64).close();
    /// let mut argument = Structure::new(Arc::new(build.finish()));
    /// argument.set("query.lhs", 1.5)?;
    /// argument.set("query.rhs", 2.0)?;
    ///
    /// let sum = Context::from_env()?.channel("pva://machine:sum")?.start_call(argument);
    /// // Other work.
    /// println!("{:?}", sum.wait()?.get("value"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_call(&self, argument: Structure) -> Operation<Structure> {
        self.start_structured(StructuredTask::Call(argument), false)
    }

    /// Calls a procedure (RPC) and waits for its result. Blocks; [`Channel::start_call`] has the details and an example.
    pub fn call(&self, argument: Structure) -> Result<Structure, Error> {
        self.call_timeout(argument, self.timeout())
    }

    /// Like [`Channel::call`], with its own timeout.
    pub fn call_timeout(&self, argument: Structure, timeout: Duration) -> Result<Structure, Error> {
        self.start_structured(StructuredTask::Call(argument), true).wait_timeout(timeout)
    }

    /// Starts to process the record of the PV; the operation ends when the server reports the end. Does not block.
    ///
    /// QSRV of EPICS 7 and pvxs servers do not support this request and may not reply. Instead, put nothing with the option
    /// `process`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use fodo_net::{Context, PvRequest};
    ///
    /// let record = Context::from_env()?.channel("pva://machine:scan")?;
    /// record.start_process().wait()?;
    ///
    /// // The same with QSRV.
    /// let request = PvRequest::parse("record[process=true,block=true]")?;
    /// record.put_structure(&request, Vec::new())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_process(&self) -> Operation<()> {
        self.start_structured(StructuredTask::Process, false)
    }

    /// Processes the record of the PV and waits for the end. Blocks; [`Channel::start_process`] has the details and an example.
    pub fn process(&self) -> Result<(), Error> {
        self.process_timeout(self.timeout())
    }

    /// Like [`Channel::process`], with its own timeout.
    pub fn process_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.start_structured(StructuredTask::Process, true).wait_timeout(timeout)
    }

    /// Starts a subscription to the fields that a pvRequest selects. Each update is the whole value, as far as it was
    /// received, and [`Structure::changed`] contains the nodes that have changed since the update before.
    ///
    /// The events, queues and counters are those of [`Channel::monitor`]. Updates that are merged leave their changed nodes
    /// marked in the update that replaces them. Of the options, `request` is not used: the pvRequest selects the fields.
    /// `window` and `mask` become options of the pvRequest unless it contains them. With Channel Access, the monitor receives
    /// [`MonitorEvent::Refused`](crate::MonitorEvent::Refused) and no update.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{MonitorEvent, MonitorOptions, PvRequest};
    ///
    /// let temperature = context.channel("pva://demo:temperature")?;
    /// let monitor = temperature.monitor_structure(PvRequest::default(), MonitorOptions::default());
    /// for event in &monitor {
    ///     if let MonitorEvent::Update(structure) = event {
    ///         for bit in structure.changed().iter() {
    ///             println!("{} has changed", structure.kind().path(bit));
    ///         }
    ///         // Ends the loop.
    ///         context.close();
    ///     }
    /// }
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn monitor_structure(&self, request: PvRequest, options: MonitorOptions) -> Monitor<Structure> {
        let request = of_structure_monitor(request, &options);
        let monitor = MonitorCore::new(self.core().clone(), options, None, Delivery::Structures(Box::new(request)));
        if self.core().protocol() == Protocol::Ca {
            monitor.refused(Refusal::RequiresPva).wake();
        }
        self.add_monitor(&monitor);
        Monitor::new(monitor, self.clone())
    }

    pub(super) fn start_structured<T: Output>(
        &self,
        task: impl Into<Arc<StructuredTask>>,
        is_driven: bool,
    ) -> Operation<T> {
        match self.core().protocol() {
            Protocol::Pva => self.start(OperationTask::Structured(task.into()), is_driven),
            Protocol::Ca => self.failed(Error::misuse(self.name(), ONLY_PVA, REQUEST_WITH_PVA)),
        }
    }
}
