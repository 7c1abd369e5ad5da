//! Channels of a request, spread over a few connections.
//!
//! spvirit has one request at a time on a connection. As many are used as its pool of connections keeps.

use serde_json::{Value, json};
use spvirit_codec::spvd_decode::DecodedValue;

use crate::circuit::{Circuit, number, search};
use crate::failed::Failed;

/// The channels of a request.
pub struct Channels {
    before: String,
    after: String,
    width: usize,
    has_number: bool,
    is_distinct: bool,
    pub n: usize,
}

impl Channels {
    pub fn of(request: &Value) -> Channels {
        let pattern = request["pattern"].as_str().unwrap_or_default();
        let parts = pattern.split_once('{').and_then(|(before, rest)| {
            let (format, after) = rest.split_once('}')?;
            Some((before, format, after))
        });
        let (before, format, after) = parts.unwrap_or((pattern, "", ""));
        Channels {
            before: before.to_owned(),
            after: after.to_owned(),
            width: format.trim_start_matches(':').trim_start_matches('0').parse().unwrap_or(0),
            has_number: parts.is_some(),
            is_distinct: request["variant"] == "distinct",
            n: request["n"].as_u64().unwrap_or_default() as usize,
        }
    }

    /// The number of a channel's PV, which is its value.
    pub fn number(&self, index: usize) -> f64 {
        if self.is_distinct { index as f64 } else { 0.0 }
    }

    pub fn name(&self, index: usize) -> String {
        let (before, after, width) = (&self.before, &self.after, self.width);
        match self.has_number {
            true => format!("{before}{:0width$}{after}", self.number(index)),
            false => before.clone(),
        }
    }

    pub fn names(&self) -> Vec<String> {
        (0..self.n).map(|index| self.name(index)).collect()
    }

    pub fn check(&self, index: usize, value: f64) -> Result<(), Failed> {
        match self.has_number {
            true if value != self.number(index) => Err(Failed::wrong_value(value, self.number(index))),
            false if !value.is_finite() => Err(Failed::wrong_value(value, "a number")),
            _ => Ok(()),
        }
    }
}

/// A connection with some of the channels: the index and the number of each.
struct Lane {
    circuit: Circuit,
    channels: Vec<(usize, u32)>,
}

impl Lane {
    async fn to(pv: &str) -> Result<Lane, Failed> {
        Ok(Lane { circuit: Circuit::connect(pv).await?, channels: Vec::new() })
    }

    /// Searches and connects every fourth channel, from the one with this index.
    async fn connect(&mut self, channels: &Channels, first: usize) -> Result<(), Failed> {
        for index in (first..channels.n).step_by(Batch::N_LANES) {
            let name = channels.name(index);
            search(&name).await?;
            self.channels.push((index, self.circuit.channel(&name).await?));
        }
        Ok(())
    }

    async fn get(&mut self, fields: &[&str]) -> Result<Vec<(usize, DecodedValue)>, Failed> {
        let mut values = Vec::with_capacity(self.channels.len());
        for (index, channel) in &self.channels {
            values.push((*index, self.circuit.get(*channel, fields).await?));
        }
        Ok(values)
    }

    /// Puts the number of each channel and `more`.
    async fn put(&mut self, channels: &Channels, more: f64) -> Result<(), Failed> {
        for (index, channel) in &self.channels {
            self.circuit.put(*channel, &json!(channels.number(*index) + more)).await?;
        }
        Ok(())
    }
}

/// Connections whose requests are in flight together.
pub struct Batch {
    lanes: [Lane; Batch::N_LANES],
}

impl Batch {
    pub const N_LANES: usize = 4;

    /// Connections to the server of a PV, without channels.
    pub async fn to(pv: &str) -> Result<Batch, Failed> {
        Ok(Batch { lanes: [Lane::to(pv).await?, Lane::to(pv).await?, Lane::to(pv).await?, Lane::to(pv).await?] })
    }

    /// Connects each channel.
    pub async fn connect(&mut self, channels: &Channels) -> Result<(), Failed> {
        let [a, b, c, d] = &mut self.lanes;
        tokio::try_join!(
            a.connect(channels, 0),
            b.connect(channels, 1),
            c.connect(channels, 2),
            d.connect(channels, 3)
        )?;
        Ok(())
    }

    /// Gets from each channel; the values are in the order of the channels.
    pub async fn get(&mut self, fields: &[&str]) -> Result<Vec<DecodedValue>, Failed> {
        let [a, b, c, d] = &mut self.lanes;
        let (a, b, c, d) = tokio::try_join!(a.get(fields), b.get(fields), c.get(fields), d.get(fields))?;
        let mut values = [a, b, c, d].concat();
        values.sort_by_key(|(index, _)| *index);
        Ok(values.into_iter().map(|(_, value)| value).collect())
    }

    /// Puts the number of each channel and `more`, and waits for completion.
    pub async fn put(&mut self, channels: &Channels, more: f64) -> Result<(), Failed> {
        let [a, b, c, d] = &mut self.lanes;
        tokio::try_join!(a.put(channels, more), b.put(channels, more), c.put(channels, more), d.put(channels, more))?;
        Ok(())
    }
}

/// Checks the value of each channel, after subtracting `more`.
pub fn check(channels: &Channels, values: &[DecodedValue], more: f64) -> Result<(), Failed> {
    if values.len() != channels.n {
        return Err(Failed::wrong_count(values.len(), channels.n));
    }
    values.iter().enumerate().try_for_each(|(index, value)| channels.check(index, number(value, &["value"]) - more))
}
