//! Records of a running IOC.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use fodo_ioc::{ProgramValue, RecordHandle};
use fodo_lock::Mutex;
use fodo_net::{Array, Severity, Status, TimeStamp, Value};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};

use super::{IocState, record_error, routine};
use crate::array::PyArray;
use crate::ownership::Owned;
use crate::{assign, error, limit, operation, reading};

/// A record, or one of its fields. It is connected with the record while the IOC runs.
#[pyclass(frozen, subclass, name = "Record", module = "fodo._native")]
pub struct PyRecord {
    name: Py<PyString>,
    bound: Mutex<Option<BoundRecord>>,
}

#[derive(Clone)]
struct BoundRecord {
    handle: Arc<Owned<RecordHandle>>,
    state: Arc<IocState>,
}

impl PyRecord {
    pub fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.name.bind(py).to_cow()?.into_owned())
    }

    pub fn bind(&self, handle: RecordHandle, state: Arc<IocState>) {
        let bound = BoundRecord { handle: Arc::new(Owned::new(handle)), state };
        let before = self.bound.lock().replace(bound);
        // The last handle of an IOC drops its database, without a lock held here.
        drop(before);
    }

    fn bound(&self, py: Python<'_>) -> PyResult<BoundRecord> {
        routine::refuse_inside(py)?;
        let bound = self.bound.lock().clone();
        bound.ok_or_else(|| self.misuse(py, "the IOC of this record was not started"))
    }

    fn misuse(&self, py: Python<'_>, reason: &str) -> PyErr {
        error::misuse(py, &self.name.bind(py).to_string_lossy(), reason)
    }

    fn value_of(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
        assign::value(value).map_err(|reason| self.misuse(py, &reason))
    }

    fn set_value(&self, py: Python<'_>, value: ProgramValue) -> PyResult<()> {
        let bound = self.bound(py)?;
        let handle = bound.handle.get(py)?;
        let result = bound.state.with_database(py, || handle.set_with(value));
        bound.state.count_sets(1, usize::from(result.is_err()));
        result.map_err(|error| record_error(py, handle.name(), &error))
    }

    fn with_alarm(
        &self,
        py: Python<'_>,
        value: ProgramValue,
        severity: Option<&Bound<'_, PyAny>>,
        status: Option<&Bound<'_, PyAny>>,
        message: Option<&str>,
        time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ProgramValue> {
        let mut value = value;
        let severity = severity.map(severity_of).transpose().map_err(|reason| self.misuse(py, &reason))?;
        if severity.is_some() || status.is_some() {
            let status = match status {
                None => {
                    if severity == Some(Severity::None) {
                        Status::NO_ALARM
                    } else {
                        Status::SOFT
                    }
                }
                Some(status) => status_of(status).map_err(|reason| self.misuse(py, &reason))?,
            };
            let of_status = if status == Status::NO_ALARM { Severity::None } else { Severity::Invalid };
            value = value.with_alarm(severity.unwrap_or(of_status), status);
        }
        if let Some(message) = message {
            value = value.with_message(message);
        }
        match time {
            None => Ok(value),
            Some(time) => Ok(value.at(time_of(time).map_err(|reason| self.misuse(py, &reason))?)),
        }
    }
}

#[pymethods]
impl PyRecord {
    #[new]
    fn create(name: Py<PyString>) -> PyRecord {
        PyRecord { name, bound: Mutex::new(None) }
    }

    #[getter(name)]
    fn full_name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    #[pyo3(signature = (value, *, severity=None, status=None, message=None, time=None))]
    fn set(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        severity: Option<&Bound<'_, PyAny>>,
        status: Option<&Bound<'_, PyAny>>,
        message: Option<&str>,
        time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let value = ProgramValue::new(self.value_of(py, value)?);
        self.set_value(py, self.with_alarm(py, value, severity, status, message, time)?)
    }

    #[pyo3(signature = (severity, status=None, message=None, time=None))]
    fn set_alarm(
        &self,
        py: Python<'_>,
        severity: &Bound<'_, PyAny>,
        status: Option<&Bound<'_, PyAny>>,
        message: Option<&str>,
        time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let value = self.with_alarm(py, ProgramValue::unchanged(), Some(severity), status, message, time)?;
        self.set_value(py, value)
    }

    fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bound = self.bound(py)?;
        let handle = bound.handle.get(py)?;
        let present = bound.state.with_database(py, || handle.read());
        reading::value(py, &self.name, present)
    }

    /// Writes as a client does. Waits for the processing to end, for at most `timeout` seconds, if there is a `timeout`.
    #[pyo3(signature = (value, timeout=None))]
    fn _put(&self, py: Python<'_>, value: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let value = self.value_of(py, value)?;
        let bound = self.bound(py)?;
        let handle = bound.handle.get(py)?;
        let Some(seconds) = timeout else {
            let result = bound.state.with_database(py, || handle.put(value));
            return result.map_err(|error| record_error(py, handle.name(), &error));
        };
        if bound.state.is_taker() {
            return Err(self.misuse(py, "a callback of the IOC cannot wait for a put: it would wait for itself"));
        }
        let deadline = operation::duration(Some(seconds))?.and_then(|timeout| Instant::now().checked_add(timeout));
        let (sender, mut ended) = mpsc::channel();
        // It fails if the caller no longer waits.
        let ended_with = move |result| drop(sender.send(result));
        let started = py.detach(|| handle.put_with(value, ended_with));
        started.map_err(|error| record_error(py, handle.name(), &error))?;
        loop {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            let result;
            (ended, result) = py.detach(move || {
                let result = ended.recv_timeout(left.min(limit::SIGNAL_PERIOD));
                (ended, result)
            });
            match result {
                Ok(result) => return result.map_err(|error| record_error(py, handle.name(), &error)),
                Err(RecvTimeoutError::Disconnected) => return Err(super::closed(py, handle.name())),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let reason = format!("the put has not ended within {seconds} s");
                    let exception = error::instance(py, "NoReply", self.name.bind(py), &reason, None, None);
                    return Err(exception.map_or_else(|failure| failure, PyErr::from_value));
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }
}

/// The severity with a name such as `MAJOR`, or a number; a member of `fodo.Severity` is a number.
fn severity_of(severity: &Bound<'_, PyAny>) -> Result<Severity, String> {
    let expected = || {
        let shown = severity.repr().map_or_else(|_| "such an object".to_owned(), |shown| shown.to_string());
        format!("the severity cannot be {shown}: expected one of {}, or 0 to 3", Severity::NAMES.join(", "))
    };
    let code = match severity.extract::<String>() {
        Ok(name) => Severity::NAMES.iter().position(|known| *known == name),
        Err(_) => severity.extract::<usize>().ok().filter(|code| *code < Severity::NAMES.len()),
    };
    code.map(|code| Severity::from_code(code as u16)).ok_or_else(expected)
}

/// The status with a name such as `HIHI`, or a number.
fn status_of(status: &Bound<'_, PyAny>) -> Result<Status, String> {
    if let Ok(code) = status.extract::<u16>() {
        return Ok(Status(code));
    }
    let name = status.extract::<String>().map_err(|_| "the status must be a name, such as \"HIHI\"".to_owned())?;
    let position = Status::NAMES.iter().position(|known| *known == name);
    position
        .map(|code| Status(code as u16))
        .ok_or_else(|| format!("there is no alarm status \"{name}\": expected one of {}", Status::NAMES.join(", ")))
}

/// A time stamp: seconds since 1970, or a `datetime`.
fn time_of(time: &Bound<'_, PyAny>) -> Result<TimeStamp, String> {
    const NANOS: i64 = 1_000_000_000;
    let invalid = || format!("the time stamp cannot be {time}: expected seconds since 1970, or a datetime");
    let number = if time.is_instance_of::<PyFloat>() || time.is_instance_of::<PyInt>() {
        time.clone()
    } else {
        time.call_method0("timestamp").map_err(|_| invalid())?
    };
    if let Ok(unix_s) = number.extract::<i64>() {
        return Ok(TimeStamp { unix_s, nanos: 0 });
    }
    let seconds: f64 = number.extract().map_err(|_| invalid())?;
    if !seconds.is_finite() {
        return Err(invalid());
    }
    let whole = seconds.floor();
    // A float of the present time has a resolution of a quarter of a microsecond.
    let nanos = (((seconds - whole) * 1e6).round() as i64) * 1000;
    Ok(TimeStamp { unix_s: whole as i64 + nanos / NANOS, nanos: (nanos % NANOS) as u32 })
}

/// Records with a value for each.
pub type PairedValues = Vec<(Arc<Owned<RecordHandle>>, ProgramValue)>;

/// Pairs records with the elements of an array, or of another sequence.
pub fn paired(py: Python<'_>, records: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<PairedValues> {
    let records = records.cast::<PyList>()?;
    let handles = records.iter().map(|record| {
        let record = record.cast::<PyRecord>()?.get();
        record.bound(py).map(|bound| bound.handle)
    });
    let handles: Vec<_> = handles.collect::<PyResult<_>>()?;
    let check_number = |n_values: usize| match n_values == handles.len() {
        true => Ok(()),
        false => {
            let reason = format!("there are {} records and {n_values} values", handles.len());
            Err(error::misuse(py, "", &reason))
        }
    };
    let values = match elements(py, values)? {
        Some(values) => values,
        None => {
            let objects = values.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            check_number(objects.len())?;
            let value_of = |(record, object): (Bound<'_, PyAny>, &Bound<'_, PyAny>)| {
                Ok(ProgramValue::new(record.cast::<PyRecord>()?.get().value_of(py, object)?))
            };
            records.iter().zip(&objects).map(value_of).collect::<PyResult<_>>()?
        }
    };
    check_number(values.len())?;
    Ok(handles.into_iter().zip(values).collect())
}

/// The elements of an array with one dimension; `None` for another sequence.
fn elements(py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Option<Vec<ProgramValue>>> {
    let is_list = values.is_instance_of::<PyList>() || values.is_instance_of::<PyTuple>();
    if is_list || !(values.is_instance_of::<PyArray>() || values.hasattr("__buffer__")? || values.hasattr("dtype")?) {
        return Ok(None);
    }
    let value = assign::value(values).map_err(|reason| error::misuse(py, "", &reason))?;
    let Value::Array(array) = value else { return Ok(None) };
    Ok(Some(match &array {
        Array::F64(numbers) => numbers.iter().map(|number| ProgramValue::new(*number)).collect(),
        other => (0..other.len())
            .filter_map(|index| other.scalar(index))
            .map(|scalar| ProgramValue::new(Value::Scalar(scalar)))
            .collect(),
    }))
}
