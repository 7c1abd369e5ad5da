//! Limits of a value that other features of its object contain.
//!
//! `MaxBusVoltage` and `MinBusVoltage` are the limits beyond which a CLU reports `BusVoltage` as out of range. `Min` and `Max` of a
//! thermostat or a scheduler are the range of its setpoints and of its `Value`.

use fodo_clu::interface::{FeatureInterface, InterfaceKind, ObjectInterface};

/// Which limit a feature contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// The least value that can be set.
    Low,
    /// The greatest value that can be set.
    High,
    /// The value below which the CLU is alarmed.
    AlarmLow,
    /// The value above which the CLU is alarmed.
    AlarmHigh,
}

/// The limits of a value as its object has them now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LiveLimits {
    low: Option<f64>,
    high: Option<f64>,
    alarm_low: Option<f64>,
    alarm_high: Option<f64>,
}

/// A feature that contains a limit of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeatureLimit {
    /// The index of the feature that contains the limit.
    pub by: u32,
    pub kind: LimitKind,
    /// The index of the feature that is limited.
    pub of: u32,
}

impl LiveLimits {
    /// No limit is known.
    pub const NONE: LiveLimits = LiveLimits { low: None, high: None, alarm_low: None, alarm_high: None };

    /// Sets a limit; `None`: it is not known. Returns whether the limits are others now.
    pub fn set(&mut self, kind: LimitKind, limit: Option<f64>) -> bool {
        let before = (self.range(), self.alarm());
        *match kind {
            LimitKind::Low => &mut self.low,
            LimitKind::High => &mut self.high,
            LimitKind::AlarmLow => &mut self.alarm_low,
            LimitKind::AlarmHigh => &mut self.alarm_high,
        } = limit;
        before != (self.range(), self.alarm())
    }

    /// Minimum and maximum, if both are known and make sense.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high).filter(|(low, high)| low < high)
    }

    /// The limits beyond which the alarm is major.
    pub fn alarm(&self) -> Option<(f64, f64)> {
        self.alarm_low.zip(self.alarm_high).filter(|(low, high)| low < high)
    }
}

/// The features of an object that contain limits of others.
pub(super) fn limits_of(interface: &ObjectInterface) -> Vec<FeatureLimit> {
    let numbers = interface.features.iter().filter(|feature| is_number(feature)).collect::<Vec<_>>();
    let named = |name: &str| numbers.iter().find(|feature| feature.name == name && feature.can_get).copied();
    let common = named("Min").zip(named("Max"));
    let mut limits = Vec::new();
    let mut add =
        |feature: &FeatureInterface, low: (LimitKind, &FeatureInterface), high: (LimitKind, &FeatureInterface)| {
            limits.extend([low, high].map(|(kind, by)| FeatureLimit { by: by.index, kind, of: feature.index }));
        };
    for feature in &numbers {
        let own = named(&format!("Min{}", feature.name)).zip(named(&format!("Max{}", feature.name)));
        let is_setpoint = feature.can_set || feature.name == "Value";
        match (own, common) {
            (Some((min, max)), _) => add(feature, (LimitKind::AlarmLow, min), (LimitKind::AlarmHigh, max)),
            (None, Some((min, max))) if is_setpoint && feature.range.is_none() && feature.unit == min.unit => {
                let is_limit = [min.index, max.index].contains(&feature.index);
                if !is_limit {
                    add(feature, (LimitKind::Low, min), (LimitKind::High, max));
                }
            }
            _ => {}
        }
    }
    limits
}

fn is_number(feature: &FeatureInterface) -> bool {
    feature.kind == InterfaceKind::Number && feature.choices.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::CLASSES;

    fn of_class(number: u32) -> Vec<(String, String)> {
        let class = CLASSES.into_iter().find(|class| class.number == number).unwrap();
        let interface = ObjectInterface::from(class);
        let name = |index| interface.features.iter().find(|feature| feature.index == index).unwrap().name.clone();
        limits_of(&interface).into_iter().map(|limit| (name(limit.by), name(limit.of))).collect()
    }

    #[test]
    fn the_setpoints_of_a_thermostat_and_the_value_of_a_scheduler_are_limited_by_min_and_max() {
        let pairs = |of: &str| [("Min".to_string(), of.to_string()), ("Max".to_string(), of.to_string())];

        assert_eq!(of_class(18), [pairs("PointValue"), pairs("HolidayModeValue")].concat());
        assert_eq!(of_class(16), pairs("Value"));
        assert_eq!(of_class(14), []);
    }

    #[test]
    fn a_value_with_its_own_minimum_and_maximum_has_alarm_limits() {
        let xml = r#"<CLU typeName="X"><interface><features>
            <feature index="27" name="BusVoltage" type="num" get="true" range="0-30" unit="V"/>
            <feature index="29" name="MaxBusVoltage" type="num" get="true" set="true" range="0-30" unit="V"/>
            <feature index="30" name="MinBusVoltage" type="num" get="true" set="true" range="0-30" unit="V"/>
            </features></interface></CLU>"#;

        let limits = limits_of(&ObjectInterface::parse(xml).unwrap()[0]);

        let expected = [
            FeatureLimit { by: 30, kind: LimitKind::AlarmLow, of: 27 },
            FeatureLimit { by: 29, kind: LimitKind::AlarmHigh, of: 27 },
        ];
        assert_eq!(limits, expected);
    }

    #[test]
    fn limits_count_only_in_pairs() {
        let mut limits = LiveLimits::NONE;

        assert!(!limits.set(LimitKind::Low, Some(5.0)));
        assert!(limits.set(LimitKind::High, Some(30.0)) && limits.range() == Some((5.0, 30.0)));
        assert!(!limits.set(LimitKind::High, Some(30.0)));
        assert!(limits.set(LimitKind::High, Some(5.0)) && limits.range().is_none());
        assert_eq!(limits.alarm(), None);
    }
}
