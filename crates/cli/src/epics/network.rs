//! The implementation of `ToolClient` for the network.

use std::time::{Duration, SystemTime};

use fodo_net::{Channel, ChannelFacts, Context, Error, Notice, Priority, Protocol, Reading, Request, Value, many};

use super::plant::ToolClient;
use crate::local_time::Clock;
use crate::notices;

/// Channel Access PVs; configured by the EPICS_CA_* variables.
#[derive(Default)]
pub struct Network {
    channels: Vec<Channel>,
}

impl ToolClient for Network {
    fn connect(&mut self, names: &[String], priority: Priority, timeout: Duration) -> Vec<Result<ChannelFacts, Error>> {
        let context = match context(|notice: &_| notices::of_epics(notice, &Clock::local(), SystemTime::now())) {
            Ok(context) => context,
            Err(reason) => return vec![Err(misuse(reason))],
        };
        let mut connecting = Vec::with_capacity(names.len());
        for name in names {
            match context.channel_at(&channel_access(name), priority) {
                Ok(channel) => {
                    connecting.push(channel.start_connect());
                    self.channels.push(channel);
                }
                Err(error) => return vec![Err(error)],
            }
        }
        many::wait_timeout(connecting, timeout)
    }

    fn read(&mut self, requests: &[(usize, Request)], timeout: Duration) -> Vec<Result<Reading, Error>> {
        let reading = requests.iter().filter_map(|&(pv, request)| Some(self.channels.get(pv)?.start_get(request)));
        many::wait_timeout(reading.collect::<Vec<_>>(), timeout)
    }

    fn write(&mut self, pv: usize, value: Value, confirmed: bool, timeout: Duration) -> Result<(), Error> {
        match self.channels.get(pv) {
            Some(channel) if confirmed => channel.put_timeout(value, timeout),
            Some(channel) => channel.put_unconfirmed_timeout(value, timeout),
            None => Err(misuse("not connected".to_owned())),
        }
    }
}

/// A context of the environment variables, whose notices are printed on stderr, formatted by `text`.
pub(super) fn context(text: impl Fn(&Notice) -> Option<String> + Send + 'static) -> Result<Context, String> {
    let context = Context::from_env().map_err(|error| error.to_string())?;
    notices::print(&context, text).map_err(|error| error.to_string())?;
    Ok(context)
}

/// The name of a PV as a name of Channel Access, because these tools know no schemes and no other protocol.
pub(super) fn channel_access(name: &str) -> String {
    format!("{}://{name}", Protocol::Ca)
}

/// An error that concerns no PV.
fn misuse(reason: String) -> Error {
    Error::misuse("", reason, "")
}
