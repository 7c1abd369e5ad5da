//! Named states: switches that filters, links and records of an IOC share (`dbState` in Base).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_data::Text;
use fodo_lock::Mutex;

/// All states of an IOC, by name. Clones share the states.
#[derive(Clone, Debug, Default)]
pub struct States(Arc<Mutex<Vec<DbState>>>);

/// One state, initially off. Clones share the state.
#[derive(Clone, Debug)]
pub struct DbState {
    name: Text,
    is_on: Arc<AtomicBool>,
}

impl States {
    /// The state of that name; created if it does not exist.
    pub fn create(&self, name: &str) -> DbState {
        let mut states = self.0.lock();
        if let Some(state) = find(&states, name) {
            return state;
        }
        let state = DbState { name: name.into(), is_on: Arc::default() };
        states.push(state.clone());
        state
    }

    /// The state of that name, if it exists.
    pub fn find(&self, name: &str) -> Option<DbState> {
        find(&self.0.lock(), name)
    }

    /// Every state, in the order of creation.
    pub fn all(&self) -> Vec<DbState> {
        self.0.lock().clone()
    }
}

fn find(states: &[DbState], name: &str) -> Option<DbState> {
    states.iter().find(|state| state.name.as_bytes() == name.as_bytes()).cloned()
}

impl DbState {
    /// The name.
    pub fn name(&self) -> &Text {
        &self.name
    }

    /// Turns the state on or off. This processes no record; the next reader sees the change.
    pub fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Whether the state is on.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }
}

impl PartialEq for DbState {
    /// Whether both are the same state. Two states of different databases differ even if the name is the same.
    fn eq(&self, other: &DbState) -> bool {
        Arc::ptr_eq(&self.is_on, &other.is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_with_the_same_name_are_shared() {
        let states = States::default();

        states.create("beam").set(true);

        assert!(states.clone().create("beam").is_on());
        assert_eq!(states.find("beam"), Some(states.create("beam")));
        assert_eq!(states.find("lost"), None);
        assert_eq!(states.all().len(), 1);
    }
}
