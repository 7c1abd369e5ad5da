//! What `SYSTEM:clientRegister`, `SYSTEM:clientDestroy` and `SYSTEM:fetchValues` name.

use crate::value::LuaValue;

/// One value of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FetchItem {
    /// A feature of an object.
    Feature {
        /// The name of the object.
        object: String,
        /// The index of the feature.
        index: u16,
    },
    /// How often an event of an object was fired since the scripts started.
    Event {
        /// The name of the object.
        object: String,
        /// The address of the event.
        address: u16,
    },
    /// A user variable, which `getVar` reads.
    Variable(String),
    /// An item that names no object: its value is `nil`.
    Unknown,
}

/// What a request has changed in the subscriptions. The server keeps them and fetches their values.
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionChange {
    /// `SYSTEM:clientRegister`: adds a subscription, or replaces the one with the same receiver and number.
    Register {
        /// Where to send the values.
        receiver: ReportReceiver,
        /// The number that the client has chosen.
        client_id: i64,
        /// What to send.
        items: Vec<FetchItem>,
    },
    /// `SYSTEM:clientDestroy`: removes a subscription.
    Destroy {
        /// Where the values were sent.
        receiver: ReportReceiver,
        /// The number that the client has chosen.
        client_id: i64,
    },
}

/// Where the values of a subscription are sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReportReceiver {
    /// To the source of the request.
    Source,
    /// To an address and a port, as the request names them.
    Address {
        /// The address; not checked.
        address: String,
        /// The UDP port.
        port: u16,
    },
}

impl ReportReceiver {
    /// `clientRegister("10.0.0.1", 4344, ..)` names an address; `clientRegister(0, ..)` means the source of the request.
    pub(crate) fn from_arguments(address: &LuaValue, port: &LuaValue) -> Option<ReportReceiver> {
        match address {
            LuaValue::Number(0.0) => Some(ReportReceiver::Source),
            LuaValue::Text(address) => {
                let port = port.as_number().filter(|port| (1.0..=65535.0).contains(port))?;
                Some(ReportReceiver::Address { address: address.clone(), port: port as u16 })
            }
            _ => None,
        }
    }
}
