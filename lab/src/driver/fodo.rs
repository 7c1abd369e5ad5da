//! Our client as a user meets it: [`Channel::get`], nothing set but the environment.

use std::sync::Arc;

use fodo_net::{Array, Channel, Context, Error, Scalar, TimeStamp, Value};

use super::{Driver, Failure};
use crate::limit::OPERATION_MAX;

/// A context and its channels.
#[derive(Debug)]
pub struct Fodo {
    context: Context,
    channels: Vec<Channel>,
    elements: Arc<Vec<i32>>,
}

impl Fodo {
    /// Configured by the environment, as any program of a user is.
    pub fn new() -> Result<Fodo, Failure> {
        let context = Context::from_env()
            .map_err(|why| Failure::Operation { what: "making a context".into(), why: why.to_string() })?;
        Ok(Fodo { context, channels: Vec::new(), elements: Arc::default() })
    }

    fn channel(&self, index: usize) -> Result<&Channel, Failure> {
        self.channels
            .get(index)
            .ok_or_else(|| Failure::Operation { what: "use of a channel".into(), why: "it is not open".into() })
    }
}

fn failed(what: &str) -> impl Fn(Error) -> Failure + '_ {
    move |why| Failure::Operation { what: what.into(), why: why.to_string() }
}

impl Driver for Fodo {
    fn version(&self) -> String {
        format!("fodo {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&mut self, pv: &str, n_channels: usize) -> Result<usize, Failure> {
        let mut channels = Vec::with_capacity(n_channels);
        for _index in 0..n_channels {
            channels.push(self.context.channel(pv).map_err(failed("making a channel"))?);
        }
        let mut element_count_max = 0;
        for channel in &channels {
            let facts = channel.connect(OPERATION_MAX).map_err(failed("connecting"))?;
            element_count_max = facts.count_max as usize;
        }
        self.channels = channels;
        Ok(element_count_max)
    }

    fn get_scalar(&mut self, channel_index: usize) -> Result<f64, Failure> {
        let reading = self.channel(channel_index)?.get(OPERATION_MAX).map_err(failed("get"))?;
        match reading.value {
            Value::Scalar(Scalar::F64(value)) if reading.time != TimeStamp::NEVER => Ok(value),
            _ => Err(Failure::WrongValue { value: f64::NAN, expected: "one double with its time".into() }),
        }
    }

    fn put_array(&mut self, elements: &[i32]) -> Result<(), Failure> {
        self.elements = Arc::default();
        self.channel(0)?.put(elements.to_vec(), OPERATION_MAX).map_err(failed("put"))
    }

    fn get_array(&mut self, n_elements: usize) -> Result<(), Failure> {
        let reading = self.channel(0)?.get(OPERATION_MAX).map_err(failed("get"))?;
        match reading.value {
            Value::Array(Array::I32(elements)) => {
                self.elements = elements;
                Ok(())
            }
            other => Err(Failure::WrongCount { n: other.len(), expected: n_elements }),
        }
    }

    fn elements(&mut self) -> &[i32] {
        &self.elements
    }
}
