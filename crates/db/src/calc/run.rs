//! Running a compiled expression.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Binary, CompiledExpression, Many, N_ARGS, Op, Unary};
use crate::limit;

impl CompiledExpression {
    /// The result, with `args` as the inputs A to U and `value` as VAL. `None`: the program is invalid, which the
    /// compiler prevents.
    pub(crate) fn run(&self, args: &mut [f64; N_ARGS], value: f64) -> Option<f64> {
        let mut stack = Stack { values: [0.0; limit::CALC_STACK_MAX], len: 0 };
        let mut next = 0;
        while let Some(op) = self.ops.get(next) {
            next += 1;
            match *op {
                Op::Number(number) => stack.push(number)?,
                Op::Arg(index) => stack.push(*args.get(usize::from(index))?)?,
                Op::Value => stack.push(value)?,
                Op::Random => stack.push(random())?,
                Op::Store(index) => *args.get_mut(usize::from(index))? = stack.pop()?,
                Op::Unary(unary) => {
                    let operand = stack.pop()?;
                    stack.push(unary.apply(operand))?;
                }
                Op::Binary(binary) => {
                    let right = stack.pop()?;
                    let left = stack.pop()?;
                    stack.push(binary.apply(left, right))?;
                }
                Op::Many(many, n) => {
                    let operands = stack.take(usize::from(n))?;
                    let result = many.apply(operands);
                    stack.push(result)?;
                }
                Op::JumpIfZero(to) => {
                    if stack.pop()? == 0.0 {
                        next = usize::from(to);
                    }
                }
                Op::Jump(to) => next = usize::from(to),
                // These are not in the language of numbers.
                Op::Literal(_) | Op::TextArg(_) | Op::TextValue | Op::StoreText(_) => return None,
                Op::Edit(_) | Op::Join(_) | Op::Pick(_) => return None,
                Op::Normal | Op::StoreAt | Op::StoreTextAt | Op::Until(_) => return None,
                Op::Indices | Op::RandomArray | Op::OfArray(_) | Op::OfPair(_) | Op::FitInto { .. } => return None,
            }
        }
        let result = stack.pop()?;
        (stack.len == 0).then_some(result)
    }

    /// The result of a program whose values are not only numbers. `number` converts a value to a number, `execute`
    /// executes an instruction that is not a jump. `None`: an operation is impossible.
    pub(super) fn run_with<V>(
        &self,
        number: fn(&V) -> f64,
        mut execute: impl FnMut(Op, &mut Vec<V>) -> Option<()>,
    ) -> Option<V> {
        let mut stack = Vec::new();
        let (mut next, mut n_rounds) = (0, 0);
        while let Some(op) = self.ops.get(next) {
            next += 1;
            match *op {
                Op::JumpIfZero(to) if number(&stack.pop()?) != 0.0 => debug_assert!(usize::from(to) > next),
                Op::JumpIfZero(to) | Op::Jump(to) => next = usize::from(to),
                Op::Until(start) => {
                    n_rounds += 1;
                    if number(stack.last()?) == 0.0 && n_rounds < limit::CALC_ROUNDS_MAX {
                        stack.pop();
                        next = usize::from(start);
                    }
                }
                op => execute(op, &mut stack)?,
            }
            debug_assert!(stack.len() <= limit::CALC_STACK_MAX);
        }
        let result = stack.pop()?;
        stack.is_empty().then_some(result)
    }
}

/// The index of the argument that a number stands for, for `@` and `@@`.
pub(super) fn index(number: f64) -> Option<usize> {
    let number = number.round();
    (number >= 0.0).then_some(number as usize)
}

struct Stack {
    values: [f64; limit::CALC_STACK_MAX],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: f64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<f64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn take(&mut self, n: usize) -> Option<&[f64]> {
        let start = self.len.checked_sub(n)?;
        let taken = self.values.get(start..self.len);
        self.len = start;
        taken
    }
}

impl Unary {
    pub(super) fn apply(self, operand: f64) -> f64 {
        match self {
            Unary::Negate => -operand,
            Unary::Not => truth(operand == 0.0),
            Unary::BitNot => f64::from(!whole(operand)),
            Unary::Abs => operand.abs(),
            Unary::Sqrt => operand.sqrt(),
            Unary::Exp => operand.exp(),
            Unary::Ln => operand.ln(),
            Unary::Log10 => operand.log10(),
            Unary::Sin => operand.sin(),
            Unary::Cos => operand.cos(),
            Unary::Tan => operand.tan(),
            Unary::Asin => operand.asin(),
            Unary::Acos => operand.acos(),
            Unary::Atan => operand.atan(),
            Unary::Sinh => operand.sinh(),
            Unary::Cosh => operand.cosh(),
            Unary::Tanh => operand.tanh(),
            Unary::Ceil => operand.ceil(),
            Unary::Floor => operand.floor(),
            Unary::Nint => f64::from(cut(if operand >= 0.0 { operand + 0.5 } else { operand - 0.5 })),
            Unary::IsInf => truth(operand.is_infinite()),
        }
    }
}

impl Binary {
    pub(super) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Binary::Add => left + right,
            Binary::Subtract => left - right,
            Binary::Multiply => left * right,
            Binary::Divide => left / right,
            Binary::Modulo => match cut(right) {
                0 => f64::NAN,
                divisor => f64::from(cut(left).wrapping_rem(divisor)),
            },
            Binary::Power => left.powf(right),
            // As in Base, the order of the arguments is the reverse of C.
            Binary::Atan2 => right.atan2(left),
            Binary::Fmod => left % right,
            Binary::Less => truth(left < right),
            Binary::LessOrEqual => truth(left <= right),
            Binary::Greater => truth(left > right),
            Binary::GreaterOrEqual => truth(left >= right),
            Binary::Equal => truth(left == right),
            Binary::NotEqual => truth(left != right),
            Binary::And => truth(left != 0.0 && right != 0.0),
            Binary::Or => truth(left != 0.0 || right != 0.0),
            Binary::BitAnd => f64::from(whole(left) & whole(right)),
            Binary::BitOr => f64::from(whole(left) | whole(right)),
            Binary::BitXor => f64::from(whole(left) ^ whole(right)),
            Binary::ShiftLeft => f64::from(whole(left).wrapping_shl(whole(right) as u32)),
            Binary::ShiftRight => f64::from(whole(left).wrapping_shr(whole(right) as u32)),
            Binary::ShiftRightLogical => f64::from((whole(left) as u32).wrapping_shr(whole(right) as u32)),
        }
    }
}

impl Many {
    pub(super) fn apply(self, operands: &[f64]) -> f64 {
        match self {
            Many::Min => extreme(operands, |so_far, next| next < so_far),
            Many::Max => extreme(operands, |so_far, next| next > so_far),
            Many::IsNan => truth(operands.iter().any(|operand| operand.is_nan())),
            Many::Finite => truth(operands.iter().all(|operand| operand.is_finite())),
        }
    }
}

/// The minimum or maximum; NaN if an operand is NaN.
fn extreme(operands: &[f64], is_better: impl Fn(f64, f64) -> bool) -> f64 {
    let better = |so_far: f64, next: f64| if next.is_nan() || is_better(so_far, next) { next } else { so_far };
    operands.iter().copied().reduce(better).unwrap_or(f64::NAN)
}

pub(super) fn truth(is_true: bool) -> f64 {
    if is_true { 1.0 } else { 0.0 }
}

/// Converts to 32 bits: numbers in the range of `int` or `unsigned` keep their bits, as in Base.
fn whole(number: f64) -> i32 {
    if number < 0.0 { cut(number) } else { to_u32_x86(number) as i32 }
}

/// The cast to `int` on x86: every number out of range becomes the minimum.
fn cut(number: f64) -> i32 {
    if number > -2_147_483_649.0 && number < 2_147_483_648.0 { number as i32 } else { i32::MIN }
}

/// The cast to `unsigned` on x86, which converts to 64 bits first.
fn to_u32_x86(number: f64) -> u32 {
    if number < 9_223_372_036_854_775_808.0 { number as i64 as u32 } else { 0 }
}

/// A random number with normal distribution, mean 0 and standard deviation 1.
///
/// Source: Box, Muller, "A note on the generation of random normal deviates", 1958.
pub(super) fn random_normal() -> f64 {
    // Never 0, which has no logarithm.
    let radius = (-2.0 * (1.0 - random() * 0.999_999).ln()).sqrt();
    radius * (std::f64::consts::TAU * random()).cos()
}

/// A random number from 0 to 1. No security and no statistics depend on it, so a counter with a mixer is enough.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
pub(super) fn random() -> f64 {
    static STATE: AtomicU64 = AtomicU64::new(0x5eed);
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 48) as f64 / f64::from(u16::MAX)
}
