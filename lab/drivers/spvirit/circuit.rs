//! A connection of spvirit with its channels, and values.
//!
//! `PvaClient::pvget` and `pvput` take 44 ms from the second one on: each ends with a message without a reply, and the
//! next one waits until the system confirms it, because their connections lack TCP_NODELAY. The functions of which they
//! consist are public; here they run on connections that have it.

use std::time::Duration;

use serde_json::Value;
use spvirit_client::client::{
    ValidatedConn, connect_and_validate, create_channel_on, encode_put_request, ensure_status_ok, run_get_on,
};
use spvirit_client::put_encode::encode_put_payload;
use spvirit_client::pva_client::decode_init_introspection;
use spvirit_client::{PvOptions, PvaClient, client_from_opts, read_until, resolve_pv_server};
use spvirit_codec::epics_decode::PvaPacketCommand;
use spvirit_codec::spvd_decode::DecodedValue;
use spvirit_codec::spvd_encode::encode_pv_request_with_options;
use spvirit_codec::spvirit_encode::encode_destroy_request;
use tokio::io::AsyncWriteExt;

use crate::failed::Failed;

/// The laboratory's own limit for each point is shorter.
pub const OPERATION_MAX: Duration = Duration::from_secs(180);

pub const READING: [&str; 3] = ["value", "alarm", "timeStamp"];
pub const WHOLE: [&str; 0] = [];

/// The code of puts, the bit that opens an operation, and the one that is set in its later messages.
const PUT: u8 = 11;
const OPEN: u8 = 0x08;
const EXECUTE: u8 = 0x00;

/// Options for a PV; spvirit reads the address list from the environment, but not the port.
fn options(name: &str) -> PvOptions {
    let port = std::env::var("EPICS_PVA_BROADCAST_PORT").ok().and_then(|port| port.parse().ok());
    let default = PvOptions::new(name.to_owned());
    PvOptions { timeout: OPERATION_MAX, udp_port: port.unwrap_or(default.udp_port), ..default }
}

/// A client without connections.
pub fn client() -> PvaClient {
    client_from_opts(&options(""))
}

/// Waits until a server claims the name.
pub async fn search(name: &str) -> Result<(), Failed> {
    resolve_pv_server(&options(name)).await?;
    Ok(())
}

/// A connection, which has one request at a time.
pub struct Circuit {
    connection: ValidatedConn,
    n_channels: u32,
    n_operations: u32,
}

impl Circuit {
    /// Connects to the server of a PV.
    pub async fn connect(name: &str) -> Result<Circuit, Failed> {
        let options = options(name);
        let (address, guid) = resolve_pv_server(&options).await?;
        let connection = connect_and_validate(address, guid, &options).await?;
        connection.stream.set_nodelay(true)?;
        Ok(Circuit { connection, n_channels: 0, n_operations: 0 })
    }

    /// Creates another channel to a PV; returns its number on the server.
    pub async fn channel(&mut self, name: &str) -> Result<u32, Failed> {
        self.n_channels += 1;
        Ok(create_channel_on(&mut self.connection, name, self.n_channels, OPERATION_MAX).await?)
    }

    pub async fn get(&mut self, channel: u32, fields: &[&str]) -> Result<DecodedValue, Failed> {
        self.n_operations += 1;
        let operation = self.n_operations;
        let got = run_get_on(&mut self.connection, channel, "", fields, operation, OPERATION_MAX).await?;
        self.close(channel, operation).await?;
        Ok(got.value)
    }

    /// Puts with completion; otherwise the same as `PvaClient::pvput`.
    pub async fn put(&mut self, channel: u32, value: &Value) -> Result<(), Failed> {
        self.n_operations += 1;
        let (operation, is_be) = (self.n_operations, self.connection.is_be);
        let request = encode_pv_request_with_options(&["value"], &[("block", "true")], is_be);
        let opened = self.put_message(channel, operation, OPEN, &request).await?;
        let offered = decode_init_introspection(&opened, "PUT")?;
        let encoded = encode_put_payload(&offered, value, is_be).map_err(Failed::Unexpected)?;
        let done = self.put_message(channel, operation, EXECUTE, &encoded).await?;
        ensure_status_ok(&done, is_be, "PUT")?;
        self.close(channel, operation).await
    }

    /// Sends a message of a put and waits for its reply.
    async fn put_message(&mut self, channel: u32, operation: u32, kind: u8, body: &[u8]) -> Result<Vec<u8>, Failed> {
        let ValidatedConn { stream, version, is_be, reassembler, .. } = &mut self.connection;
        stream.write_all(&encode_put_request(channel, operation, kind, body, *version, *is_be)).await?;
        let is_reply = |command: &PvaPacketCommand| matches!(command, PvaPacketCommand::Op(op) if (op.command, op.ioid, op.subcmd & OPEN) == (PUT, operation, kind));
        Ok(read_until(stream, OPERATION_MAX, reassembler, is_reply).await?)
    }

    /// Closes an operation on the server, which sends no reply.
    async fn close(&mut self, channel: u32, operation: u32) -> Result<(), Failed> {
        let ValidatedConn { stream, version, is_be, .. } = &mut self.connection;
        stream.write_all(&encode_destroy_request(channel, operation, *version, *is_be)).await?;
        Ok(())
    }
}

/// A field of a structure.
pub fn field<'a>(value: &'a DecodedValue, path: &[&str]) -> Option<&'a DecodedValue> {
    let Some((name, rest)) = path.split_first() else { return Some(value) };
    let DecodedValue::Structure(fields) = value else { return None };
    let (_, value) = fields.iter().find(|(known, _)| known == name)?;
    field(value, rest)
}

/// A number; NaN for anything else.
pub fn number(value: &DecodedValue, path: &[&str]) -> f64 {
    match field(value, path) {
        Some(DecodedValue::Float64(number)) => *number,
        Some(DecodedValue::Float32(number)) => f64::from(*number),
        Some(DecodedValue::Int32(number)) => f64::from(*number),
        Some(DecodedValue::Int64(number)) => *number as f64,
        Some(DecodedValue::Int16(number)) => f64::from(*number),
        _ => f64::NAN,
    }
}
