//! Ready-made sources: a table of PVs, and several sources as one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fodo_lock::RwLock;

use super::{ServedPv, Source};

/// A source of PVs by their names. PVs can be added and removed while it is served.
///
/// A server with two PVs, one of which clients can write, and a client of it:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use fodo_net::{PvTable, Server, ServerConfig, SharedPv};
///
/// let temperature = SharedPv::new(21.5);
/// let setpoint = SharedPv::builder(20.0).on_put(|value, _client| Ok(value)).build();
/// let table = Arc::new(PvTable::from([("lab:temperature", temperature.clone()), ("lab:setpoint", setpoint)]));
/// let server = Server::start(ServerConfig::isolated(), table.clone())?;
///
/// temperature.post(21.7);
/// table.insert("lab:name", SharedPv::new("south hall"));
/// # let context = fodo_net::Context::new(server.client_config());
/// # let expected = [("lab:temperature", 21.7.into()), ("lab:setpoint", 20.0.into()), ("lab:name", "south hall".into())];
/// # for (name, value) in expected {
/// #     let value: fodo_net::Value = value;
/// #     assert_eq!(context.channel(name)?.get()?.value, value);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct PvTable {
    pvs: RwLock<HashMap<String, ServedPv>>,
}

impl PvTable {
    /// A table without PVs.
    pub fn new() -> PvTable {
        PvTable::default()
    }

    /// Adds a PV, flat or structured; one that already has this name is replaced and returned.
    ///
    /// ```
    /// use fodo_net::{PvTable, SharedPv};
    ///
    /// let table = PvTable::new();
    /// table.insert("lab:temperature", SharedPv::new(21.5));
    /// assert_eq!(table.names(), ["lab:temperature"]);
    /// assert!(table.remove("lab:temperature").is_some());
    /// ```
    ///
    /// Channels that are open to a replaced PV stay open to it until their clients reconnect.
    pub fn insert(&self, name: impl Into<String>, pv: impl Into<ServedPv>) -> Option<ServedPv> {
        self.pvs.write().insert(name.into(), pv.into())
    }

    /// Removes and returns the PV with this name. Channels that are open to it stay open; no new ones are created.
    pub fn remove(&self, name: &str) -> Option<ServedPv> {
        self.pvs.write().remove(name)
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.pvs.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }
}

impl Source for PvTable {
    fn serves(&self, name: &str) -> bool {
        self.pvs.read().contains_key(name)
    }

    fn serves_flat(&self, name: &str) -> bool {
        matches!(self.pvs.read().get(name), Some(ServedPv::Flat(_)))
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.pvs.read().get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.names()
    }
}

impl<N: Into<String>, P: Into<ServedPv>> FromIterator<(N, P)> for PvTable {
    fn from_iter<I: IntoIterator<Item = (N, P)>>(pvs: I) -> PvTable {
        let pvs = pvs.into_iter().map(|(name, pv)| (name.into(), pv.into()));
        PvTable { pvs: RwLock::new(pvs.collect()) }
    }
}

impl<N: Into<String>, P: Into<ServedPv>, const COUNT: usize> From<[(N, P); COUNT]> for PvTable {
    fn from(pvs: [(N, P); COUNT]) -> PvTable {
        pvs.into_iter().collect()
    }
}

impl fmt::Debug for PvTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PvTable").field("names", &self.names()).finish()
    }
}

/// Several sources as one. The first source that opens a name serves it.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{PvTable, ServedPv, SharedPv, Source, SourceChain, Value};
///
/// let machine = Arc::new(PvTable::from([("x", SharedPv::new(1.0))]));
/// let defaults = Arc::new(PvTable::from([("x", SharedPv::new(0.0)), ("y", SharedPv::new(0.0))]));
/// let both = SourceChain::new(vec![machine, defaults]);
///
/// let value = |name| both.open(name).and_then(ServedPv::flat).map(|pv| pv.read().value);
/// assert_eq!(value("x"), Some(Value::from(1.0)));
/// assert_eq!(value("y"), Some(Value::from(0.0)));
/// ```
#[derive(Clone)]
pub struct SourceChain {
    sources: Vec<Arc<dyn Source>>,
}

impl SourceChain {
    /// `sources`: the first one takes precedence.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> SourceChain {
        SourceChain { sources }
    }

    /// Whether there are no sources.
    ///
    /// ```
    /// assert!(fodo_net::SourceChain::new(Vec::new()).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

impl Source for SourceChain {
    fn serves(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.serves(name))
    }

    fn serves_flat(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.serves_flat(name))
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.sources.iter().find_map(|source| source.open(name))
    }

    fn refusal_reason(&self, name: &str) -> Option<String> {
        self.sources.iter().find_map(|source| source.refusal_reason(name))
    }

    fn names(&self) -> Vec<String> {
        self.sources.iter().flat_map(|source| source.names()).collect()
    }
}

impl fmt::Debug for SourceChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceChain").field("n_sources", &self.sources.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedPv;

    fn value(source: &dyn Source, name: &str) -> Option<f64> {
        source.open(name)?.flat().map(|pv| pv.read().value.to_f64().unwrap())
    }

    #[test]
    fn a_pv_table_serves_its_current_contents() {
        let table = PvTable::from([("a", SharedPv::new(1.0))]);
        assert!(table.insert("b", SharedPv::new(2.0)).is_none());
        assert!(table.insert("b", SharedPv::new(3.0)).is_some());
        assert!(table.remove("a").is_some() && table.remove("a").is_none());

        assert_eq!(table.names(), ["b"]);
        assert_eq!((table.serves("a"), value(&table, "a")), (false, None));
        assert_eq!((table.serves("b"), value(&table, "b")), (true, Some(3.0)));
    }

    #[test]
    fn the_first_source_that_opens_a_name_serves_it() {
        /// Claims every name, and refuses it.
        struct Refusing;
        impl Source for Refusing {
            fn serves(&self, _: &str) -> bool {
                true
            }

            fn open(&self, _: &str) -> Option<ServedPv> {
                None
            }

            fn refusal_reason(&self, name: &str) -> Option<String> {
                Some(format!("{name} is reserved"))
            }
        }
        let table = |pvs: [(&str, f64); 2]| -> Arc<dyn Source> {
            Arc::new(pvs.into_iter().map(|(name, value)| (name, SharedPv::new(value))).collect::<PvTable>())
        };
        let tables = SourceChain::new(vec![table([("a", 1.0), ("b", 2.0)]), table([("b", 3.0), ("c", 4.0)])]);
        let chain = SourceChain::new(vec![Arc::new(Refusing), Arc::new(tables.clone())]);

        for (name, expected) in [("a", Some(1.0)), ("b", Some(2.0)), ("c", Some(4.0)), ("d", None)] {
            assert_eq!((value(&tables, name), value(&chain, name)), (expected, expected), "{name}");
            assert_eq!((tables.serves(name), chain.serves(name)), (expected.is_some(), true), "{name}");
        }
        assert_eq!(tables.refusal_reason("d"), None);
        assert_eq!(chain.refusal_reason("d").as_deref(), Some("d is reserved"));
    }
}
