//! Where a normative type has a number with its alarm and time stamp.

use crate::{Kind, NodeKind, Role, StructureType};

/// Where a type has a number with its alarm and time stamp, as sets of bits below 64. [`NormativeLayout::number_nodes`](crate::NormativeLayout::number_nodes)
/// returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberNodes {
    /// The kind of the value, which is not a text.
    pub kind: Kind,
    /// The value, and after it seconds of 64 bits, nanoseconds and user tag of 32 bits, next to each other.
    pub without_alarm: u64,
    /// The same, and between value and seconds: severity and status, both of 32 bits, and message, next to each other.
    pub with_alarm: u64,
}

impl NumberNodes {
    pub(crate) fn of(kind: &StructureType, roles: &[Role]) -> Option<NumberNodes> {
        let first = |role| roles.iter().position(|known| *known == role);
        let (value, alarm, time) = (first(Role::Value)?, first(Role::Severity)?, first(Role::Seconds)?);
        let is_kind = |bit: usize, kind_of_role: Kind| kind.nodes()[bit].kind == NodeKind::Scalar(kind_of_role);
        let are = |start: usize, expected: [(Role, Kind); 3]| {
            let mut expected = (start..).zip(expected);
            expected.all(|(bit, (role, kind))| roles.get(bit) == Some(&role) && is_kind(bit, kind))
        };
        let is_usual =
            are(alarm, [(Role::Severity, Kind::I32), (Role::Status, Kind::I32), (Role::Message, Kind::Text)])
                && are(time, [(Role::Seconds, Kind::I64), (Role::Nanoseconds, Kind::I32), (Role::UserTag, Kind::I32)]);
        let kind = match kind.nodes()[value].kind {
            NodeKind::Scalar(kind) if kind != Kind::Text => kind,
            _ => return None,
        };
        let is_ordered = value < alarm && alarm < time && time < 60;
        (is_usual && is_ordered).then(|| {
            let without_alarm = (1 << value) + (7 << time);
            NumberNodes { kind, without_alarm, with_alarm: without_alarm + (7 << alarm) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{NormativeLayout, StructureBuilder, normative_type};

    fn nodes_of(kind: StructureType) -> Option<NumberNodes> {
        NormativeLayout::of(Arc::new(kind)).unwrap().number_nodes().copied()
    }

    #[test]
    fn a_number_has_its_nodes_where_the_normative_type_has_them() {
        let expected = NumberNodes { kind: Kind::I16, without_alarm: 0b11_1000_0010, with_alarm: 0b11_1011_1010 };

        assert_eq!(nodes_of(normative_type(Kind::I16, false)), Some(expected));
        for other in
            [normative_type(Kind::Text, false), normative_type(Kind::Enum, false), normative_type(Kind::F64, true)]
        {
            assert_eq!(nodes_of(other), None);
        }
    }

    #[test]
    fn a_type_with_other_kinds_or_another_order_is_transferred_node_by_node() {
        let with = |seconds: Kind, is_time_first: bool| {
            let mut build = StructureBuilder::new("");
            let time = |build: &mut StructureBuilder| {
                build.open("timeStamp", "time_t").scalar("secondsPastEpoch", seconds).scalar("nanoseconds", Kind::I32);
                build.scalar("userTag", Kind::I32).close();
            };
            build.scalar("value", Kind::F64);
            if is_time_first {
                time(&mut build);
            }
            build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("status", Kind::I32);
            build.scalar("message", Kind::Text).close();
            if !is_time_first {
                time(&mut build);
            }
            nodes_of(build.finish())
        };

        assert!(with(Kind::I64, false).is_some());
        assert_eq!((with(Kind::I32, false), with(Kind::I64, true)), (None, None));
    }

    /// A number with this kind of status and this many other members before the time stamp.
    fn number(status: Kind, is_value_first: bool, n_others: usize) -> Option<NumberNodes> {
        let mut build = StructureBuilder::new("");
        if is_value_first {
            build.scalar("value", Kind::F64);
        }
        build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("status", status);
        build.scalar("message", Kind::Text).close();
        for other in 0..n_others {
            build.scalar(&format!("x{other}"), Kind::F64);
        }
        build.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64).scalar("nanoseconds", Kind::I32);
        build.scalar("userTag", Kind::I32).close();
        if !is_value_first {
            build.scalar("value", Kind::F64);
        }
        nodes_of(build.finish())
    }

    #[test]
    fn the_nodes_of_a_number_are_among_the_first_and_the_value_comes_before_the_others() {
        let last = NumberNodes { kind: Kind::F64, without_alarm: 7 << 59 | 2, with_alarm: 7 << 59 | 0b11_1010 };

        assert_eq!((number(Kind::I32, true, 52), number(Kind::I32, true, 53)), (Some(last), None));
        assert_eq!((number(Kind::I16, true, 0), number(Kind::I32, false, 0)), (None, None));
    }
}
