//! Handles for records: the program sets, reads and writes them without looking up names.

use std::fmt;
use std::sync::Arc;

use fodo_data::{Reading, Value};
use fodo_db::{FieldRef, ProgramError, ProgramValue, PutError};

use crate::driver::{DatabaseDriver, ProgramPutError};
use crate::names::field_of;

/// A field of a running IOC, usually the VAL of a record, for the program that runs the IOC. Cloning it is cheap, and
/// any thread may use it. It remains valid when the IOC stops, and then only reads; the memory of the IOC is freed when
/// the last handle is dropped.
///
/// [`RecordHandle::set`] is for records with DTYP Program: the program is their device. [`RecordHandle::put`] writes any
/// field, as a client does.
///
/// ```
/// use fodo_data::{Severity, Status};
/// use fodo_ioc::{IocBuilder, ProgramValue, RecordDefinition};
/// use fodo_net::{Context, ServerConfig, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = IocBuilder::new();
/// for name in ["X:t1", "X:t2"] {
///     builder.define(&RecordDefinition::new("ai", name).field("DTYP", "Program").field("SCAN", "I/O Intr"))?;
/// }
/// builder.load_text(r#"record(calc, "$(P)sum") { field(CALC, "A+1") }"#, "P=X:")?;
/// let running = builder.build()?.serve(ServerConfig::isolated())?;
///
/// let (t1, t2) = (running.record("X:t1")?, running.record("X:t2")?);
/// t1.set(21.5)?;
/// t2.set_with(ProgramValue::new(99.0).with_alarm(Severity::Major, Status::HW_LIMIT).with_message("no sensor"))?;
/// let reading = t2.read();
/// assert_eq!((reading.value, reading.alarm.status), (Value::from(99.0), Status::HW_LIMIT));
/// running.set_many([(&t1, ProgramValue::new(22.0)), (&t2, ProgramValue::new(23.0))])?;
///
/// let (sender, ended) = std::sync::mpsc::channel();
/// let input = running.record("X:sum.A")?;
/// input.put(41.0)?;
/// running.record("X:sum.PROC")?.put_with(1, move |result| drop(sender.send(result)))?;
/// ended.recv()??;
/// assert_eq!((input.name(), running.record("X:sum")?.read().value), ("X:sum.A", Value::from(42.0)));
///
/// let context = Context::new(running.client_config());
/// assert_eq!(context.channel("X:t1")?.get()?.value, Value::from(22.0));
/// assert_eq!(context.channel("pva://X:t2")?.get()?.value, Value::from(23.0));
/// running.stop()?;
/// assert!(t1.set(24.0).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecordHandle {
    driver: Arc<DatabaseDriver>,
    field: FieldRef,
    name: Arc<str>,
    /// Whether the field is VAL.
    is_value: bool,
}

/// Why an operation of a [`RecordHandle`] failed. The text names the PV.
///
/// ```
/// use fodo_ioc::{IocBuilder, RecordDefinition, RecordError};
/// use fodo_net::ServerConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = IocBuilder::new();
/// builder.define(&RecordDefinition::new("stringin", "X:state").field("DTYP", "Program"))?;
/// let running = builder.build()?.serve(ServerConfig::isolated())?;
///
/// let Err(RecordError::Unknown { message }) = running.record("X:stat") else { return Err("it exists".into()) };
/// assert_eq!(message, "there is no record \"X:stat\"; did you mean \"X:state\"?");
/// let Err(error) = running.record("X:state")?.set("x".repeat(40)) else { return Err("it was set".into()) };
/// assert_eq!(error.to_string(), "X:state: the length of the value is 40; the record can store 39");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum RecordError {
    /// The IOC has no such record or field.
    Unknown {
        /// The reason, with a suggestion.
        message: String,
    },
    /// The value cannot be set; nothing has changed.
    Set {
        /// The name of the PV.
        pv: String,
        /// The reason.
        error: ProgramError,
    },
    /// The put was rejected.
    Put {
        /// The name of the PV.
        pv: String,
        /// The reason.
        error: PutError,
    },
    /// The IOC has stopped, or stopped before the put had ended.
    Stopped {
        /// The name of the PV.
        pv: String,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Unknown { message } => f.write_str(message),
            RecordError::Set { pv, error } => write!(f, "{pv}: {error}"),
            RecordError::Put { pv, error } => write!(f, "{pv}: {error}"),
            RecordError::Stopped { pv } => write!(f, "{pv}: the IOC has stopped"),
        }
    }
}

impl std::error::Error for RecordError {}

impl RecordHandle {
    pub(crate) fn new(driver: &Arc<DatabaseDriver>, name: &str) -> Result<RecordHandle, RecordError> {
        let database = driver.database();
        let field = field_of(database, name).map_err(|message| RecordError::Unknown { message })?;
        let record = name.split_once('.').map_or(name, |(record, _)| record);
        let is_value = database.field(record) == Some(field);
        Ok(RecordHandle { driver: driver.clone(), field, name: name.into(), is_value })
    }

    /// The name with which the handle was created.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The present value, alarm and time. Locks only the record, briefly.
    pub fn read(&self) -> Reading {
        self.driver.database().read(self.field)
    }

    /// Sets the value, without an alarm. The same as [`RecordHandle::set_with`] with [`ProgramValue::new`].
    pub fn set(&self, value: impl Into<Value>) -> Result<(), RecordError> {
        self.set_with(ProgramValue::new(value))
    }

    /// Sets value, alarm and time of a record with DTYP Program, on this thread.
    ///
    /// An input with SCAN I/O Intr is processed now, and its subscribers receive the value. Any other input reads the
    /// newest value when it is processed. An output has and posts the value as if it had written it; its handler is not
    /// called.
    ///
    /// Fails if the value cannot be converted to the type of VAL or is too long, if DTYP is not Program, and after the
    /// IOC has stopped.
    pub fn set_with(&self, value: ProgramValue) -> Result<(), RecordError> {
        let mut refused = match self.is_value {
            true => self.driver.set_by_program([(self.field, value)]).ok_or_else(|| self.stopped())?,
            false => vec![(0, ProgramError::NotProgram)],
        };
        refused.pop().map_or(Ok(()), |(_, error)| Err(self.set_error(error)))
    }

    /// Writes the field as a client does, without waiting: the record is processed if it is passive and the field
    /// requires that. DISP applies, access rules do not.
    pub fn put(&self, value: impl Into<Value>) -> Result<(), RecordError> {
        self.driver.put_by_program(self.field, value.into(), None).map_err(|error| self.put_error(error))
    }

    /// The same; `ended` is called once all processing that the put starts has ended. If the record is active, the put
    /// waits for it.
    ///
    /// `ended` may be called before this returns, on the thread that completes the put, which may be one of the server:
    /// it should return soon. No lock is held, so it may use handles; if it puts again, that function is called after it
    /// returns. If the put is rejected at once, this fails, and `ended` is not called.
    pub fn put_with(
        &self,
        value: impl Into<Value>,
        ended: impl FnOnce(Result<(), RecordError>) + Send + 'static,
    ) -> Result<(), RecordError> {
        let name = self.name.clone();
        let ended = move |result: Result<(), ProgramPutError>| ended(result.map_err(|error| put_error(&name, error)));
        self.driver
            .put_by_program(self.field, value.into(), Some(Box::new(ended)))
            .map_err(|error| self.put_error(error))
    }

    /// Sets several records under one lock, with one present time.
    pub(crate) fn set_many<'a>(
        driver: &Arc<DatabaseDriver>,
        values: impl IntoIterator<Item = (&'a RecordHandle, ProgramValue)>,
    ) -> Result<(), SetManyError> {
        // Collected first, since an iterator that uses a handle would wait for itself.
        let (handles, values): (Vec<&RecordHandle>, Vec<ProgramValue>) = values.into_iter().unzip();
        let is_own = |handle: &RecordHandle| Arc::ptr_eq(&handle.driver, driver) && handle.is_value;
        let strangers = handles.iter().enumerate().filter(|(_, handle)| !is_own(handle));
        let mut errors: Vec<_> = strangers.map(|(position, handle)| (position, handle.stranger())).collect();
        if errors.is_empty() {
            let fields = handles.iter().map(|handle| handle.field);
            match driver.set_by_program(fields.zip(values)) {
                Some(refused) => errors.extend(
                    refused
                        .into_iter()
                        .filter_map(|(position, error)| Some((position, handles.get(position)?.set_error(error)))),
                ),
                None => {
                    errors.extend(handles.iter().enumerate().map(|(position, handle)| (position, handle.stopped())))
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(SetManyError { errors }) }
    }

    fn stranger(&self) -> RecordError {
        let message = format!("{}: the handle is not for the VAL of a record of this IOC", self.name);
        RecordError::Unknown { message }
    }

    fn set_error(&self, error: ProgramError) -> RecordError {
        RecordError::Set { pv: self.name.to_string(), error }
    }

    fn put_error(&self, error: ProgramPutError) -> RecordError {
        put_error(&self.name, error)
    }

    fn stopped(&self) -> RecordError {
        RecordError::Stopped { pv: self.name.to_string() }
    }
}

fn put_error(name: &str, error: ProgramPutError) -> RecordError {
    let pv = name.to_owned();
    match error {
        ProgramPutError::Refused(error) => RecordError::Put { pv, error },
        ProgramPutError::Stopped => RecordError::Stopped { pv },
    }
}

/// The values that [`RunningIoc::set_many`](crate::RunningIoc::set_many) could not set; all others are set.
///
/// ```
/// use fodo_ioc::{IocBuilder, ProgramValue, RecordDefinition};
/// use fodo_net::ServerConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = IocBuilder::new();
/// for name in ["a", "b"] {
///     builder.define(&RecordDefinition::new("longin", name).field("DTYP", "Program").field("SCAN", "I/O Intr"))?;
/// }
/// let running = builder.build()?.serve(ServerConfig::isolated())?;
/// let (a, b) = (running.record("a")?, running.record("b")?);
///
/// let result = running.set_many([(&a, ProgramValue::new("many")), (&b, ProgramValue::new(2))]);
/// let Err(failure) = result else { return Err("a text is not a number".into()) };
/// assert_eq!(failure.errors.first().map(|(position, _)| *position), Some(0));
/// assert_eq!(failure.to_string(), "a: \"many\" is not a number");
/// assert_eq!(b.read().value, 2.into());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SetManyError {
    /// The positions of the values, from 0, with the reasons.
    pub errors: Vec<(usize, RecordError)>,
}

impl fmt::Display for SetManyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, first)) = self.errors.first() {
            first.fmt(f)?;
        }
        match self.errors.len().saturating_sub(1) {
            0 => Ok(()),
            n_more => write!(f, "; {n_more} more values are not set"),
        }
    }
}

impl std::error::Error for SetManyError {}
