//! PVs that hold their value.

use std::sync::Arc;

use fodo_net::{
    AcceptedValues, Kind, Meta, NodeKind, NodeValue, Pv, Reading, SharedPv, SharedStructure, Structure, StructuredPv,
    Value,
};

/// A PV of a program, and what clients may do with it.
pub struct OwnedPv {
    pub value: HeldValue,
    pub accepts_puts: bool,
    pub accepts_calls: bool,
}

/// The value of a PV, and who serves it.
pub enum HeldValue {
    /// A scalar, an array or an enum, over both protocols.
    Flat(FlatValue),
    /// Any structure, over pvAccess.
    Structured(SharedStructure, Arc<dyn StructuredPv>),
}

/// A scalar, an array or an enum.
pub struct FlatValue {
    pub pv: Arc<dyn Pv>,
    shared: SharedPv,
    kind: Kind,
    /// 1 for a scalar.
    count_max: u32,
    meta: Arc<Meta>,
}

impl FlatValue {
    /// `length_max`: of an array; 0 for the length of the value.
    pub fn new(initial: Reading, length_max: u32) -> FlatValue {
        let meta = initial.meta.clone().unwrap_or_default();
        // An array of one element would be a scalar to clients.
        let count_max = match &initial.value {
            Value::Array(array) => length_max.max(u32::try_from(array.len()).unwrap_or(u32::MAX)).max(2),
            Value::Scalar(_) => 1,
        };
        let kind = initial.value.kind();
        let shared = SharedPv::builder(initial.value.clone()).meta(Meta::clone(&meta)).count_max(count_max).build();
        shared.post_reading(initial);
        FlatValue { pv: shared.clone().into(), shared, kind, count_max, meta }
    }

    /// The current value, with its metadata.
    pub fn reading(&self) -> Reading {
        Reading { meta: Some(self.meta.clone()), ..self.shared.reading() }
    }

    /// A value of a client, as the PV stores it.
    pub fn converted(&self, value: Value) -> Result<Value, String> {
        if value.len() > self.count_max as usize {
            return Err(format!("{} elements, but the PV has at most {}", value.len(), self.count_max));
        }
        let value = match value.kind() == self.kind {
            true => value,
            // A label becomes its index.
            false => value.to_kind(self.kind, Some(&self.meta)).map_err(|error| error.to_string())?,
        };
        match self.count_max {
            1 => value.first().map(Value::Scalar).ok_or_else(|| "the value has no element".to_owned()),
            _ => Ok(Value::Array(value.into_array())),
        }
    }

    /// Sends a value, its alarm and its time to all subscribers. A value that the PV would make another value of is refused.
    pub fn post(&self, mut reading: Reading) -> Result<(), String> {
        let scalar = NodeKind::Scalar(self.kind);
        let accepted = match self.count_max {
            1 => AcceptedValues::of_field(&scalar),
            _ => AcceptedValues::of_field(&NodeKind::Array { kind: self.kind, size: fodo_net::ArraySize::Variable }),
        };
        if let Some(accepted) = accepted {
            reading.value = accepted.accept(reading.value)?;
        }
        reading.value = self.converted(reading.value)?;
        self.shared.post_reading(reading);
        Ok(())
    }

    /// Sends a value that a client has put.
    pub fn post_put(&self, value: Value) {
        self.shared.post(value);
    }
}

/// The fields that a structure is changed by, each with its path.
pub fn change(shared: &SharedStructure, fields: Vec<(String, NodeValue)>) -> Result<Structure, String> {
    let mut change = shared.new_value();
    for (path, value) in fields {
        AcceptedValues::check_field(&mut change, &path, &value)?;
    }
    Ok(change)
}
