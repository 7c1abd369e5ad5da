//! The expression language of calc records: compiled once, run on a fixed stack.

mod compile;
mod run;

use std::fmt;

/// Values that an expression may hold at once, as in Base.
pub(crate) const STACK_MAX: usize = 80;
/// Inputs A to U.
pub(crate) const N_ARGS: usize = 21;

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    ops: Box<[Op]>,
}

impl Program {
    /// A bit for each argument that is read somewhere; A is the lowest.
    pub(crate) fn args_used(&self) -> u32 {
        let bit = |op: &Op| if let Op::Arg(index) = op { 1_u32 << *index } else { 0 };
        self.ops.iter().fold(0, |used, op| used | bit(op))
    }

    /// Whether it sets an argument.
    pub(crate) fn has_stores(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Store(_)))
    }
}

/// What is wrong with an expression, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CalcError {
    /// The byte it starts at.
    pub(crate) position: usize,
    pub(crate) reason: &'static str,
}

impl fmt::Display for CalcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.reason, self.position + 1)
    }
}

/// One instruction; each says what it takes from the stack and leaves there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    /// Pushes.
    Number(f64),
    Arg(u8),
    Value,
    Random,
    /// Takes one, keeps it in an argument.
    Store(u8),
    /// Replaces one.
    Unary(Unary),
    /// Replaces two by one.
    Binary(Binary),
    /// Replaces `n` by one.
    Many(Many, u8),
    /// Takes one; if it is 0 goes on at the instruction with this number.
    JumpIfZero(u16),
    Jump(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unary {
    Negate,
    Not,
    BitNot,
    Abs,
    Sqrt,
    Exp,
    Ln,
    Log10,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Ceil,
    Floor,
    Nint,
    IsInf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    Fmod,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    ShiftRightLogical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Many {
    Min,
    Max,
    IsNan,
    Finite,
}
