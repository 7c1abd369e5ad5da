//! Objects of a CLU. Each kind of object is one file: a table of its features, methods and events, and its behaviour.

use std::fmt;
use std::time::Instant;

use crate::limit::{ARGUMENT_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::value::LuaValue;

mod calendar;
mod clu;
mod http_listener;
mod http_request;
pub(crate) mod interface;
mod mqtt_topic;
mod pid;
mod presence;
mod pv;
mod remote_clu;
mod schedule;
mod scheduler;
pub(crate) mod storage;
mod sunrise_sunset;
mod thermostat;
mod timer;
mod wake;
pub(crate) mod world;

pub(crate) use world::ObjectContext;

/// A kind of object: its number in `OBJECT:new`, and its table.
#[derive(Debug)]
pub struct ObjectClass {
    /// The first argument of `OBJECT:new`.
    pub number: u32,
    /// The name in the interface file.
    pub name: &'static str,
    /// The version in the interface file.
    pub version: u32,
    /// What `get` and `set` accept.
    pub features: &'static [Feature],
    /// What `execute` accepts.
    pub methods: &'static [ObjectMethod],
    /// What `add_event` accepts.
    pub events: &'static [ObjectEvent],
    /// Creates an object.
    pub(crate) create: fn(&mut ObjectContext<'_>) -> Box<dyn CluObject>,
}

/// A feature: a value that `get` reads and `set` writes.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The argument of `get` and `set`.
    pub index: u16,
    /// The name in the interface file.
    pub name: &'static str,
    /// What kind of value it has.
    pub kind: ValueKind,
    /// The unit, such as `ms`; empty without unit.
    pub unit: &'static str,
    /// Who may use it.
    pub access: FeatureAccess,
    /// Minimum and maximum; values outside are refused.
    pub range: Option<(f64, f64)>,
    /// The permitted values with their names; empty if every value is permitted.
    pub choices: &'static [(f64, &'static str)],
}

/// The kind of a value in the interface file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `num`.
    Number,
    /// `str`.
    Text,
    /// `timestamp`: seconds since 1970 in local time.
    TimeStamp,
    /// `table`: `{OBJECT, feature}`.
    Table,
    /// A number, a boolean, a text or a table; in interface files `str`, because they have no type for all of them.
    Any,
}

/// Who may use a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureAccess {
    /// `get` only.
    Get,
    /// `get` and `set`.
    GetSet,
    /// `set` only.
    Set,
}

/// A method that `execute` calls.
#[derive(Clone, Copy, Debug)]
pub struct ObjectMethod {
    /// The first argument of `execute`.
    pub index: u16,
    /// The name in the interface file.
    pub name: &'static str,
    /// The further arguments.
    pub parameters: &'static [Parameter],
}

/// An argument of a method. A missing argument is `nil`.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in the interface file.
    pub name: &'static str,
    /// What kind of value it has.
    pub kind: ValueKind,
    /// The unit; empty without unit.
    pub unit: &'static str,
}

/// An event to which `add_event` adds a handler.
#[derive(Clone, Copy, Debug)]
pub struct ObjectEvent {
    /// The first argument of `add_event`.
    pub address: u16,
    /// The name in the interface file.
    pub name: &'static str,
}

impl Feature {
    const fn new(index: u16, name: &'static str, kind: ValueKind, access: FeatureAccess) -> Feature {
        Feature { index, name, kind, unit: "", access, range: None, choices: &[] }
    }

    /// A number that only the object changes.
    const fn number(index: u16, name: &'static str) -> Feature {
        Feature::new(index, name, ValueKind::Number, FeatureAccess::Get)
    }

    /// A text that only the object changes.
    const fn text(index: u16, name: &'static str) -> Feature {
        Feature::new(index, name, ValueKind::Text, FeatureAccess::Get)
    }

    const fn settable(mut self) -> Feature {
        self.access = FeatureAccess::GetSet;
        self
    }

    const fn unit(mut self, unit: &'static str) -> Feature {
        self.unit = unit;
        self
    }

    const fn range(mut self, min: f64, max: f64) -> Feature {
        self.range = Some((min, max));
        self
    }

    const fn choices(mut self, choices: &'static [(f64, &'static str)]) -> Feature {
        self.choices = choices;
        self
    }

    /// Converts a value to the kind of the feature, and checks it.
    fn accept(&self, value: LuaValue) -> Result<LuaValue, ObjectError> {
        if self.access == FeatureAccess::Get {
            return Err(ObjectError::ReadOnly { feature: self.name });
        }
        let value = self.kind.convert(value, self.name)?;
        if let LuaValue::Number(number) = value {
            if let Some((min, max)) = self.range.filter(|(min, max)| !(*min..=*max).contains(&number)) {
                return Err(ObjectError::OutOfRange { feature: self.name, min, max });
            }
            let is_choice = self.choices.iter().any(|(choice, _)| *choice == number);
            if !self.choices.is_empty() && !is_choice {
                return Err(ObjectError::UnknownChoice { feature: self.name });
            }
        }
        Ok(value)
    }
}

impl ValueKind {
    /// `name`: of the feature or parameter.
    fn convert(self, value: LuaValue, name: &'static str) -> Result<LuaValue, ObjectError> {
        let converted = match self {
            ValueKind::Number | ValueKind::TimeStamp => {
                value.as_number().filter(|number| number.is_finite()).map(LuaValue::Number)
            }
            ValueKind::Text => match value {
                LuaValue::Text(_) => Some(value),
                LuaValue::Number(_) | LuaValue::Boolean(_) => Some(value.to_text(Default::default()).into()),
                _ => None,
            },
            ValueKind::Table => matches!(value, LuaValue::Table(_) | LuaValue::Nil).then_some(value),
            ValueKind::Any => (!matches!(value, LuaValue::Opaque(_))).then_some(value),
        };
        let value = converted.ok_or(ObjectError::WrongKind { name, kind: self })?;
        let n_bytes_max = if self == ValueKind::Any { TRANSFER_BYTES_MAX } else { ARGUMENT_BYTES_MAX };
        if value.n_bytes() > n_bytes_max {
            return Err(ObjectError::Failed { reason: format!("{name} has at most {n_bytes_max} bytes") });
        }
        Ok(value)
    }

    /// The name in interface files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ValueKind::Number => "num",
            ValueKind::Text => "str",
            ValueKind::TimeStamp => "timestamp",
            ValueKind::Table => "table",
            ValueKind::Any => "str",
        }
    }
}

impl ObjectMethod {
    const fn new(index: u16, name: &'static str) -> ObjectMethod {
        ObjectMethod { index, name, parameters: &[] }
    }

    const fn with(index: u16, name: &'static str, parameters: &'static [Parameter]) -> ObjectMethod {
        ObjectMethod { index, name, parameters }
    }

    /// Converts the arguments to the kinds of the parameters. Missing arguments stay `nil`.
    fn accept(&self, arguments: Vec<LuaValue>) -> Result<Vec<LuaValue>, ObjectError> {
        if arguments.iter().skip(self.parameters.len()).any(|argument| *argument != LuaValue::Nil) {
            return Err(ObjectError::TooManyArguments { method: self.name, n_max: self.parameters.len() });
        }
        let mut arguments = arguments.into_iter();
        let convert = |parameter: &Parameter| match arguments.next().unwrap_or_default() {
            LuaValue::Nil => Ok(LuaValue::Nil),
            value => parameter.kind.convert(value, parameter.name),
        };
        self.parameters.iter().map(convert).collect()
    }
}

impl Parameter {
    const fn new(name: &'static str, kind: ValueKind, unit: &'static str) -> Parameter {
        Parameter { name, kind, unit }
    }
}

impl ObjectEvent {
    const fn new(address: u16, name: &'static str) -> ObjectEvent {
        ObjectEvent { address, name }
    }
}

/// Why a call of an object was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectError {
    /// The CLU has no object with this name.
    UnknownObject,
    /// The object belongs to hardware or a network service that this CLU does not have.
    Unavailable,
    /// The object has no feature with this index.
    UnknownFeature {
        /// The index.
        index: u16,
    },
    /// The object has no method with this index.
    UnknownMethod {
        /// The index.
        index: u16,
    },
    /// The feature cannot be set.
    ReadOnly {
        /// Its name.
        feature: &'static str,
    },
    /// The feature cannot be read.
    WriteOnly {
        /// Its name.
        feature: &'static str,
    },
    /// The value or argument has another kind than expected.
    WrongKind {
        /// The name of the feature or parameter.
        name: &'static str,
        /// The kind that it must have.
        kind: ValueKind,
    },
    /// The value is outside the range of the feature.
    OutOfRange {
        /// Its name.
        feature: &'static str,
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// The value is not one of the permitted ones.
    UnknownChoice {
        /// The name of the feature.
        feature: &'static str,
    },
    /// The method has fewer parameters.
    TooManyArguments {
        /// Its name.
        method: &'static str,
        /// How many it has.
        n_max: usize,
    },
    /// The object could not do it.
    Failed {
        /// What a person must correct.
        reason: String,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectError::UnknownObject => write!(f, "the CLU has no such object"),
            ObjectError::Unavailable => write!(f, "the object is not available on this CLU"),
            ObjectError::UnknownFeature { index } => write!(f, "there is no feature {index}"),
            ObjectError::UnknownMethod { index } => write!(f, "there is no method {index}"),
            ObjectError::ReadOnly { feature } => write!(f, "{feature} cannot be set"),
            ObjectError::WriteOnly { feature } => write!(f, "{feature} cannot be read"),
            ObjectError::WrongKind { name, kind } => write!(f, "{name} must be a value of type {}", kind.name()),
            ObjectError::OutOfRange { feature, min, max } => write!(f, "{feature} must be between {min} and {max}"),
            ObjectError::UnknownChoice { feature } => write!(f, "{feature} does not have this value"),
            ObjectError::TooManyArguments { method, n_max } => write!(f, "{method} has at most {n_max} arguments"),
            ObjectError::Failed { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for ObjectError {}

/// The behaviour of an object. Indices and kinds have been checked against the class.
pub(crate) trait CluObject {
    /// The value of a feature.
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue;

    /// Sets a feature.
    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError>;

    /// Calls a method with as many arguments as it has parameters.
    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError>;

    /// `SYSTEM.Init` was called: all objects have been created.
    fn init(&mut self, _context: &mut ObjectContext<'_>) {}

    /// When [`CluObject::tick`] must be called.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The deadline has passed.
    fn tick(&mut self, _context: &mut ObjectContext<'_>) {}

    /// Another thread has woken the object with its [`ObjectContext::waker`].
    fn woken(&mut self, _context: &mut ObjectContext<'_>) {}

    /// The CLU stops or is reset.
    fn stop(&mut self, _context: &mut ObjectContext<'_>) {}
}

/// All classes that this CLU has, in the order of their numbers.
pub const CLASSES: [&ObjectClass; 14] = [
    &clu::CLASS,
    &remote_clu::CLASS,
    &timer::CLASS,
    &pid::CLASS,
    &calendar::CLASS,
    &scheduler::CLASS,
    &thermostat::CLASS,
    &sunrise_sunset::CLASS,
    &presence::CLASS,
    &storage::CLASS,
    &http_listener::CLASS,
    &http_request::CLASS,
    &pv::CLASS,
    &mqtt_topic::CLASS,
];

const OFF_ON: &[(f64, &str)] = &[(0.0, "Off"), (1.0, "On")];

/// A number argument; `missing` if it is `nil`.
fn number_or(arguments: &[LuaValue], index: usize, missing: f64) -> f64 {
    arguments.get(index).and_then(LuaValue::as_number).unwrap_or(missing)
}

/// A flag as devices print it.
fn flag(is_on: bool) -> LuaValue {
    LuaValue::Number(f64::from(u8::from(is_on)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_no_duplicate_index() {
        for class in CLASSES {
            let mut features: Vec<u16> = class.features.iter().map(|feature| feature.index).collect();
            let mut methods: Vec<u16> = class.methods.iter().map(|method| method.index).collect();
            let mut events: Vec<u16> = class.events.iter().map(|event| event.address).collect();
            for indices in [&mut features, &mut methods, &mut events] {
                let n_indices = indices.len();
                indices.sort_unstable();
                indices.dedup();
                assert_eq!(indices.len(), n_indices, "{}", class.name);
            }
        }
        assert!(CLASSES.is_sorted_by_key(|class| class.number));
    }
}
