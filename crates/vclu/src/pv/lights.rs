//! Lights: what is known of dimmers (DIMM) and of LEDs with several colours (LEDRGB), of which a project may say little.

use fodo_clu::interface::{FeatureInterface, InterfaceKind, ObjectInterface};

/// The class of dimmers.
const DIMM: u32 = 5;
/// The class of LEDs.
const LEDRGB: u32 = 9;

/// The method of LEDs that sets red, green and blue by a text such as `#ff8000`.
pub(crate) const SET_RGB: u32 = 6;
/// The method of LEDs that sets white.
pub(crate) const SET_WHITE: u32 = 12;

/// The features of LEDs with the parts of a colour; white is missing in some.
const PARTS: [&str; 4] = ["RedValue", "GreenValue", "BlueValue", "WhiteValue"];

/// The greatest part of a colour.
pub(crate) const PART_MAX: f64 = 255.0;

/// A kind of light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Light {
    Dimmer,
    Led,
}

impl Light {
    /// `None` for an object that is not a light.
    pub fn of(interface: &ObjectInterface) -> Option<Light> {
        let is = |class, name: &str| interface.class == Some(class) || interface.name.eq_ignore_ascii_case(name);
        if is(DIMM, "DIMM") { Some(Light::Dimmer) } else { is(LEDRGB, "LEDRGB").then_some(Light::Led) }
    }

    /// The range of a feature for which none is stated.
    pub fn range_of(self, feature: &FeatureInterface) -> Option<(f64, f64)> {
        let name = feature.name.as_str();
        match self {
            _ if feature.kind != InterfaceKind::Number || !feature.choices.is_empty() => None,
            Light::Dimmer | Light::Led if name == "Value" => Some((0.0, 1.0)),
            Light::Led if PARTS.contains(&name) => Some((0.0, PART_MAX)),
            _ => None,
        }
    }
}

/// The indices of the features with the parts of a colour: red, green and blue, and white if the LED has it.
pub(crate) fn colour_parts(interface: &ObjectInterface) -> Option<Vec<u32>> {
    let index = |name: &&str| interface.feature(name).filter(|feature| feature.can_get).map(|feature| feature.index);
    let parts: Vec<u32> = PARTS.iter().map_while(index).collect();
    (parts.len() >= 3).then_some(parts)
}

/// The text of red, green and blue.
pub(crate) fn rgb_text([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
