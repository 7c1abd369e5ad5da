//! The data sent to a RecCeiver: the environment and the records with their aliases, descriptions and info items.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fodo_data::{Scalar, Text};
use fodo_net::process;

use super::{ItemSource, RecCasterConfig, RecSyncItem, RecSyncItems, RecSyncTimeouts};
use crate::driver::DatabaseDriver;
use crate::shell::matches;
use crate::stats::{Surroundings, VERSION};

/// The configuration of the announcements to RecCeivers.
///
/// ```
/// use std::time::Duration;
///
/// use fodo_ioc::{Ioc, RecSyncConfig};
/// use fodo_net::ServerConfig;
/// use fodo_net::log::Log;
///
/// # fn main() -> Result<(), fodo_ioc::IocError> {
/// let mut running = Ioc::of(fodo_ioc::Loader::default())?.serve(ServerConfig::isolated())?;
/// let recsync = RecSyncConfig {
///     port: 0, // 5049 at most sites; 0: any free port, for a test
///     variables: vec!["BUILDING".into()],
///     kept_back: vec!["*:internal:*".into()],
///     hold_off_max: Duration::from_secs(10),
///     answer: Duration::from_secs(20),
/// };
/// running.announce(recsync, Log::silent())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecSyncConfig {
    /// The UDP port of announcements.
    pub port: u16,
    /// Environment variables to send in addition to the standard ones.
    pub variables: Vec<String>,
    /// Patterns of record names that are not sent; `*` and `?` are wildcards.
    pub kept_back: Vec<String>,
    /// The maximum delay between an announcement and the connection.
    pub hold_off_max: Duration,
    /// The timeout for opening a connection; a server that is silent for four times as long is disconnected.
    pub answer: Duration,
}

/// The environment variables that every IOC sends, as in recsync.
const VARIABLES: [&str; 15] = [
    "HOSTNAME",
    "EPICS_BASE",
    "TOP",
    "ARCH",
    "IOC",
    "EPICS_CA_ADDR_LIST",
    "EPICS_CA_AUTO_ADDR_LIST",
    "EPICS_CA_MAX_ARRAY_BYTES",
    "RSRV_SERVER_PORT",
    "PVAS_SERVER_PORT",
    "PWD",
    "EPICS_HOST_ARCH",
    "IOCNAME",
    "ENGINEER",
    "LOCATION",
];

impl RecSyncConfig {
    /// The configuration for an IOC that serves on this address. An IOC that serves only its own host listens for
    /// announcements only there.
    pub(crate) fn config(&self, address: Ipv4Addr) -> RecCasterConfig {
        let interface = if address.is_loopback() { address } else { Ipv4Addr::UNSPECIFIED };
        let timeouts = RecSyncTimeouts { hold_off_max: self.hold_off_max, answer: self.answer };
        RecCasterConfig { interface, port: self.port, timeouts }
    }

    /// The data to send for an IOC that serves on this TCP port.
    pub(crate) fn items(self, driver: Arc<DatabaseDriver>, surroundings: &Surroundings, tcp_port: u16) -> ItemSource {
        let variables = self.environment(surroundings, tcp_port);
        let kept_back: Arc<[String]> = self.kept_back.into();
        Box::new(move || {
            let variables = variables.clone().into_iter().map(|(name, value)| RecSyncItem::Variable { name, value });
            Box::new(variables.chain(records(driver.clone(), kept_back.clone())))
        })
    }

    fn environment(&self, surroundings: &Surroundings, tcp_port: u16) -> Vec<(String, String)> {
        let mut variables = vec![("EPICS_VERSION".to_owned(), VERSION.to_owned())];
        for name in VARIABLES.into_iter().chain(self.variables.iter().map(String::as_str)) {
            let value = match (surroundings.variable(name), name) {
                ("", "HOSTNAME") => process::host_name(),
                // The variable is only the first port that the server tries.
                (_, "RSRV_SERVER_PORT") => tcp_port.to_string(),
                (value, _) => value.to_owned(),
            };
            if !value.is_empty() && variables.iter().all(|(known, _)| known != name) {
                variables.push((name.to_owned(), value));
            }
        }
        variables
    }
}

/// Iterates over the records; each is read when it is sent.
fn records(driver: Arc<DatabaseDriver>, kept_back: Arc<[String]>) -> RecSyncItems {
    let mut aliases: HashMap<Text, Vec<String>> = HashMap::new();
    for (alias, record) in driver.database().aliases() {
        aliases.entry(record).or_default().push(alias.to_string());
    }
    let is_published = move |name: &str| !kept_back.iter().any(|pattern| matches(pattern, name));
    Box::new(
        (0..)
            .map_while(move |index| {
                let name = driver.database().record_name(index)?;
                let aliases = aliases.get(&Text::from(name)).map_or(&[][..], Vec::as_slice);
                let aliases = aliases.iter().filter(|alias| is_published(alias)).cloned().map(RecSyncItem::Alias);
                Some(if is_published(name) { record(&driver, name, aliases) } else { Vec::new() })
            })
            .flatten(),
    )
}

fn record(driver: &DatabaseDriver, name: &str, aliases: impl Iterator<Item = RecSyncItem>) -> Vec<RecSyncItem> {
    let database = driver.database();
    let Some(field) = database.field(name) else { return Vec::new() };
    let record_type = database.facts(field).record_type;
    let info = |name: &Text, value: &Text| RecSyncItem::Info { name: name.to_string(), value: value.to_string() };
    let infos = database.info_items(name).map(|(name, value)| info(name, value));
    let description = database.field(&format!("{name}.DESC")).and_then(|field| database.read(field).value.first());
    let description = description.and_then(|value| match value {
        Scalar::Text(text) => Some(info(&Text::from("recordDesc"), &text)),
        _ => None,
    });
    let first = RecSyncItem::Record { record_type, name: name.to_owned() };
    std::iter::once(first).chain(aliases).chain(infos).chain(description).collect()
}
