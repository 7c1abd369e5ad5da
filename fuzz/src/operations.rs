//! Sequences of operations: client requests, server actions and splits of the stream, in the order that the input
//! gives.
//!
//! Both ends are Fodo and behave correctly. Every operation must end once, and every update must be accounted
//! for.

#[path = "../../crates/ca/tests/simulation/world.rs"]
#[expect(dead_code, reason = "only the simulation uses seeds")]
mod world;

use world::{Chance, World};

/// The maximum number of steps; longer inputs find nothing that shorter ones do not.
const STEPS_MAX: usize = 512;

/// Processes one input.
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
