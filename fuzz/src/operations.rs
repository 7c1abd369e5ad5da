//! Sequences of operations: what clients ask, servers do and wires cut, in any order that the input says.
//!
//! Both ends are ours and behave; what must hold is that every operation ends once and every update is accounted for.

#[path = "../../crates/ca/tests/simulation/world.rs"]
#[expect(dead_code, reason = "seeds are for the simulation that moves it by chance")]
mod world;

use world::{Chance, World};

/// Steps of one input; what is longer finds nothing that shorter ones do not.
const STEPS_MAX: usize = 512;

/// Plays one input.
pub fn feed(bytes: &[u8]) {
    let mut world = World::new(Chance::Script(bytes.iter().copied().collect()));
    for _ in 0..STEPS_MAX {
        if world.chance.is_over() {
            break;
        }
        world.step();
    }
    world.settle();
    world.check();
}
