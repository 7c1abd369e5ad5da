//! What the updates of a monitor contain.

use fodo_data::{NodeValue, Reading, Structure};

use super::MonitorEvent;

/// What the updates of a [`Monitor`](super::Monitor) contain: a [`Reading`], or with pvAccess a [`Structure`]. No other
/// type can implement it.
///
/// See the example of [`Channel::monitor_structure`](crate::Channel::monitor_structure).
pub trait MonitorValue: sealed::QueuedValue {}

impl MonitorValue for Reading {}
impl MonitorValue for Structure {}

impl<T> MonitorEvent<T> {
    /// The same event of a monitor with other updates; `None` for an update.
    pub(in crate::client) fn without_update<U>(self) -> Option<MonitorEvent<U>> {
        Some(match self {
            MonitorEvent::Update(_) => return None,
            MonitorEvent::Connected(facts) => MonitorEvent::Connected(facts),
            MonitorEvent::Rights(facts) => MonitorEvent::Rights(facts),
            MonitorEvent::Merged(n) => MonitorEvent::Merged(n),
            MonitorEvent::Unresponsive => MonitorEvent::Unresponsive,
            MonitorEvent::Responsive => MonitorEvent::Responsive,
            MonitorEvent::Disconnected => MonitorEvent::Disconnected,
            MonitorEvent::Refused(refusal) => MonitorEvent::Refused(refusal),
            MonitorEvent::WrongReply(reply) => MonitorEvent::WrongReply(reply),
            MonitorEvent::Closed => MonitorEvent::Closed,
        })
    }
}

mod sealed {
    use fodo_data::{NodeValue, Reading, Scalar, Structure, Value};

    use super::super::State;
    use super::super::queue::Queue;
    use super::node_bytes;

    /// A value that a monitor queues.
    pub trait QueuedValue: Sized {
        /// The queue of a monitor with such updates; `None` for other monitors.
        fn queue_of(state: &mut State) -> Option<&mut Queue<Self>>;

        /// The bytes of its arrays, and of the texts of a structure.
        fn array_bytes(&self) -> usize;

        /// The update before was dropped: this one contains its changes too.
        fn merge(&mut self, earlier: &Self);
    }

    impl QueuedValue for Reading {
        #[inline]
        fn queue_of(state: &mut State) -> Option<&mut Queue<Reading>> {
            Some(&mut state.queue)
        }

        #[inline]
        fn array_bytes(&self) -> usize {
            match &self.value {
                value @ Value::Array(_) => value.n_bytes(),
                Value::Scalar(_) => 0,
            }
        }

        #[inline]
        fn merge(&mut self, _: &Reading) {}
    }

    impl QueuedValue for Structure {
        fn queue_of(state: &mut State) -> Option<&mut Queue<Structure>> {
            state.structures.as_deref_mut()
        }

        /// Of the changed nodes: the others share their memory with the update before.
        fn array_bytes(&self) -> usize {
            let changed = self.kind().covered(self.changed()).flatten();
            let bytes = |node: &NodeValue| match node {
                NodeValue::Value(Value::Scalar(scalar)) if !matches!(scalar, Scalar::Text(_)) => 0,
                node => node_bytes(node),
            };
            changed.filter_map(|bit| self.node(bit)).map(bytes).sum()
        }

        fn merge(&mut self, earlier: &Structure) {
            earlier.changed().iter().for_each(|bit| self.mark(bit));
        }
    }
}

/// About how many bytes the texts and arrays of a structure take.
pub(in crate::client) fn structure_bytes(structure: &Structure) -> usize {
    (0..structure.kind().nodes().len()).filter_map(|bit| structure.node(bit)).map(node_bytes).sum()
}

/// The same for one node.
pub(in crate::client) fn node_bytes(node: &NodeValue) -> usize {
    let element = |element: &Structure| size_of::<Structure>() + structure_bytes(element);
    match node {
        NodeValue::Structure => 0,
        NodeValue::Value(value) => value.n_bytes(),
        NodeValue::Structures(elements) | NodeValue::Anys(elements) => elements.iter().flatten().map(element).sum(),
        NodeValue::Union(union) => union.iter().map(|union| element(&union.value)).sum(),
        NodeValue::Unions(elements) => elements.iter().flatten().map(|union| element(&union.value)).sum(),
        NodeValue::Any(any) => any.iter().map(|any| element(any)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fodo_data::{Kind, StructureBuilder, Text, UnionValue, Value};

    use super::sealed::QueuedValue as _;
    use super::*;

    fn numbers() -> Value {
        vec![1, 2, 3].into()
    }

    /// A text that is too long to be stored in place.
    fn long_text() -> Value {
        Value::from("a text of more than forty characters, so that it is stored elsewhere")
    }

    /// A structure whose three members are set.
    fn structure() -> Structure {
        let mut build = StructureBuilder::new("");
        build.array("numbers", Kind::I32).scalar("text", Kind::Text).scalar("number", Kind::F64);
        let mut structure = Structure::new(Arc::new(build.finish()));
        structure.set("numbers", numbers()).unwrap();
        structure.set("text", long_text()).unwrap();
        structure.set("number", 1.5).unwrap();
        structure
    }

    #[test]
    fn the_bytes_of_a_node_are_those_of_all_structures_in_it() {
        let members = numbers().n_bytes() + long_text().n_bytes() + Value::from(1.5).n_bytes();
        assert!(numbers().n_bytes() >= 12 && long_text().n_bytes() > 60);
        assert_eq!(structure_bytes(&structure()), members);

        let element = size_of::<Structure>() + members;
        let union = || UnionValue { selector: 0, value: structure() };
        for (node, n_bytes) in [
            (NodeValue::Structure, 0),
            (NodeValue::Value(numbers()), numbers().n_bytes()),
            (NodeValue::Structures(Arc::new(vec![Some(structure()), None, Some(structure())])), 2 * element),
            (NodeValue::Union(None), 0),
            (NodeValue::Union(Some(Box::new(union()))), element),
            (NodeValue::Unions(Arc::new(vec![None, Some(union()), Some(union())])), 2 * element),
            (NodeValue::Any(None), 0),
            (NodeValue::Any(Some(Box::new(structure()))), element),
            (NodeValue::Anys(Arc::new(vec![Some(structure()), None, Some(structure())])), 2 * element),
        ] {
            assert_eq!(node_bytes(&node), n_bytes, "{node:?}");
        }
    }

    #[test]
    fn an_update_counts_with_its_arrays_and_the_texts_of_its_changed_nodes() {
        let of_reading = |value: Value| Reading::bare(value).array_bytes();
        let mut changed = structure();

        assert_eq!([of_reading(numbers()), of_reading(long_text())], [numbers().n_bytes(), 0]);
        assert_eq!(of_reading(vec![Text::from("a")].into()), Value::from(vec![Text::from("a")]).n_bytes());
        assert_eq!(changed.array_bytes(), numbers().n_bytes() + long_text().n_bytes(), "a number takes none");
        changed.mark_only([1, 3].into_iter().collect());
        assert_eq!(changed.array_bytes(), numbers().n_bytes());
    }

    #[test]
    fn an_update_that_replaces_another_one_contains_its_changes() {
        let (mut later, mut earlier) = (structure(), structure());
        later.mark_only([1].into_iter().collect());
        earlier.mark_only([3].into_iter().collect());

        later.merge(&earlier);

        assert!(later.changed().iter().eq([1, 3]));
    }
}
