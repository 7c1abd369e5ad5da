//! The budget of one call: instructions and time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Error, HookTriggers, Lua, VmState};

use crate::clock::ClockFn;
use crate::limit::{BUDGET_STEP, LARGE_MEMORY_BUDGET_STEP, LARGE_MEMORY_BYTES};

/// What is left of the budget of the current call.
pub(crate) struct Budget {
    clock: ClockFn,
    instructions_max: u64,
    time_max: Duration,
    instructions_left: Cell<u64>,
    deadline: Cell<Instant>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    pub fn new(clock: ClockFn, instructions_max: u64, time_max: Duration) -> Budget {
        let now = clock().monotonic;
        Budget {
            clock,
            instructions_max,
            time_max,
            instructions_left: Cell::new(instructions_max),
            deadline: Cell::new(now + time_max),
            is_exceeded: Cell::new(false),
        }
    }

    /// Starts a call.
    pub fn start(&self, now: Instant) {
        self.instructions_left.set(self.instructions_max);
        self.deadline.set(now + self.time_max);
        self.is_exceeded.set(false);
    }

    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Fails if the call has exceeded its budget.
    pub fn check(&self) -> mlua::Result<()> {
        if self.instructions_left.get() == 0 || (self.clock)().monotonic > self.deadline.get() {
            self.is_exceeded.set(true);
        }
        if self.is_exceeded.get() {
            let seconds = self.time_max.as_secs_f64();
            let instructions = self.instructions_max;
            let text = format!("the call exceeded its budget of {instructions} instructions or {seconds} s");
            return Err(Error::runtime(text));
        }
        Ok(())
    }

    /// Takes instructions from the budget.
    pub fn spend(&self, n_instructions: u32) -> mlua::Result<()> {
        let left = self.instructions_left.get().saturating_sub(n_instructions.into());
        self.instructions_left.set(left);
        self.check()
    }

    /// Checks the budget while scripts run, in all their coroutines.
    pub fn install(self: Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        lua.set_global_hook(every(BUDGET_STEP), move |lua, _| self.step(lua, BUDGET_STEP))
    }

    /// The current coroutine creates another one, which inherits its hook: that must be the hook of all coroutines, because a
    /// hook of one coroutine is removed where it is inherited.
    pub fn begin_coroutine(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        self.spend(BUDGET_STEP)?;
        Rc::clone(self).install(lua)
    }

    /// The current coroutine has executed this number of instructions. One of them can compare or copy texts of megabytes,
    /// therefore the checks are more frequent while the scripts use much memory.
    fn step(self: &Rc<Self>, lua: &Lua, n_instructions: u32) -> mlua::Result<VmState> {
        self.spend(n_instructions)?;
        let next = if lua.used_memory() > LARGE_MEMORY_BYTES { LARGE_MEMORY_BUDGET_STEP } else { BUDGET_STEP };
        if next != n_instructions {
            let budget = Rc::clone(self);
            lua.set_hook(every(next), move |lua, _| budget.step(lua, next))?;
        }
        Ok(VmState::Continue)
    }
}

fn every(n_instructions: u32) -> HookTriggers {
    HookTriggers::new().every_nth_instruction(n_instructions)
}
