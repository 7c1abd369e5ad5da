//! The scripts of the laboratory's CLU: `checkAlive`, and objects whose features change together.

use super::wire::SERIAL;

/// Features of a subscription: as many as a client of a CLU registers together.
pub const N_FEATURES: usize = 16;

/// MAIN.LUA. It uses only what all virtual CLUs have.
pub fn main() -> String {
    format!(
        "require \"om\"\n\
         function checkAlive()\n  return \"{SERIAL}\"\nend\n\
         SYSTEM.Init()\n\
         repeat\n  SYSTEM.Loop()\nuntil 1 == 2\n"
    )
}

/// OM.LUA: timers that are never started, whose times [`change`] sets.
pub fn om() -> String {
    let mut text = String::from("-- NAME_CLU Laboratory=CLU0001\nCLU0001 = OBJECT:new(0, 0x7f000001, \"CLU0001\")\n");
    for name in objects() {
        text += &format!("{name} = OBJECT:new(6, \"{name}\")\n");
    }
    text += "function change(number)\n";
    for name in objects() {
        text += &format!("  {name}:set(0, number)\n");
    }
    text + "  return true\nend\n"
}

/// The objects whose first feature changes.
pub fn objects() -> Vec<String> {
    (1..=N_FEATURES).map(|number| format!("TIM{number:04}")).collect()
}

/// The expression that sets all features to a number.
pub fn change(number: u64) -> String {
    format!("change({number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expression_of_a_change_calls_what_the_scripts_define() {
        let om = om();

        assert_eq!(change(3), "change(3)");
        assert!(om.contains("function change(number)"));
        assert_eq!(om.matches(":set(0, number)").count(), N_FEATURES);
        assert!(main().contains("return \"0d0a1b2c\"") && main().contains("require \"om\""));
    }
}
