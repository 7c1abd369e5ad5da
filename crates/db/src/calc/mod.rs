//! The expression language of calc records, with texts of scalcout and transform, with arrays of acalcout: compiled once,
//! run on a bounded stack.

mod array;
mod binary;
mod compile;
mod fit;
mod format;
mod run;
mod text;
mod words;

use std::fmt;

use fodo_data::Text;

pub(crate) use array::ArrayInputs;
pub(crate) use format::{escaped, unescaped};
pub(crate) use text::TextInputs;

/// Inputs A to U.
pub(crate) const N_ARGS: usize = 21;
/// Inputs A to P of the languages with texts and with arrays.
const N_SYNAPPS_ARGS: u8 = 16;
/// Inputs AA to LL.
const N_TEXT_ARGS: u8 = 12;
/// In [`Op::FitInto`]: the coefficient is not kept.
const NO_ARG: u8 = u8::MAX;

/// Which language an expression is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// Base's: calc and calcout.
    Numbers,
    /// That of synApps calc: texts are values as well.
    Texts,
    /// That of synApps calc: arrays are values as well.
    Arrays,
}

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    ops: Box<[Op]>,
    /// What [`Op::Literal`] counts.
    texts: Box<[Text]>,
}

impl Program {
    /// A bit for each argument that is read somewhere; A is the lowest.
    pub(crate) fn args_used(&self) -> u32 {
        let bit = |op: &Op| if let Op::Arg(index) = op { 1_u32 << *index } else { 0 };
        self.ops.iter().fold(0, |used, op| used | bit(op))
    }

    /// Whether it sets an argument.
    pub(crate) fn has_stores(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Store(_) | Op::StoreAt))
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
    /// Pushes a random number of a normal distribution; of the languages with texts and with arrays only.
    Normal,
    /// Takes one, keeps it in an argument.
    Store(u8),
    /// Replaces one.
    Unary(Unary),
    /// Replaces two by one.
    Binary(Binary),
    /// Replaces `n` by one.
    Many(Many, u8),
    /// Pushes a text; of the language with texts only.
    Literal(u8),
    /// Pushes AA, SVAL or AVAL; these and the following are of the languages with texts and with arrays.
    TextArg(u8),
    TextValue,
    /// Takes one, keeps it in a text or array argument.
    StoreText(u8),
    /// Takes two: the number of an argument, and what is kept in it.
    StoreAt,
    /// Likewise for a text or array argument.
    StoreTextAt,
    /// Replaces one.
    Edit(Edit),
    /// Replaces two by one.
    Join(Join),
    /// Replaces three by one.
    Pick(Pick),
    /// Pushes 0, 1, 2...; these and the following are of the language with arrays only.
    Indices,
    /// Pushes random numbers.
    RandomArray,
    /// Replaces one.
    OfArray(ArrayFunction),
    /// Replaces two by one.
    OfPair(ArrayPair),
    /// Replaces an array, or an array and a mask, by the curve fitted to it; keeps the coefficients in arguments.
    FitInto {
        is_masked: bool,
        into: [u8; 3],
    },
    /// Takes one; if it is 0 goes on at the instruction with this number.
    JumpIfZero(u16),
    Jump(u16),
    /// The end of a loop: if the topmost is 0, takes it and goes back to the instruction with this number.
    Until(u16),
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

/// What makes one value of one, where either may be a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// DBL: the first number in a text.
    ToNumber,
    /// STR
    ToText,
    /// INT, NINT: as DBL, rounded.
    ToWhole,
    /// LEN
    Length,
    /// BYTE: the number of the first character.
    Byte,
    /// ESC: what cannot be printed as C writes it.
    Escape,
    /// TR_ESC: the other way.
    Unescape,
    /// `@`: the argument of a number.
    Fetch,
    /// `@@`: the text argument of a number.
    FetchText,
    /// A checksum of a text. The flag: behind the text.
    Checksum(Checksum, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    /// That of Modbus/RTU.
    Crc16,
    /// That of Modbus/ASCII.
    Lrc,
    /// All bytes with exclusive or.
    Xor8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    /// `<?`
    Lesser,
    /// `>?`
    Greater,
    /// `|-`: without the last occurrence.
    SubtractLast,
    /// PRINTF
    Print,
    /// SSCANF
    Scan,
    /// READ: a number out of bytes.
    Read,
    /// WRITE: a number as bytes.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// `[from,to]`
    Range,
    /// `{old,new}`
    Replace,
}

/// What makes a number or an array of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayFunction {
    /// AMAX
    Max,
    /// AMIN
    Min,
    /// IXMAX
    IndexOfMax,
    /// IXMIN
    IndexOfMin,
    /// IXZ: where the elements first cross 0.
    IndexOfZero,
    /// IXNZ: of the first element that is not 0.
    IndexOfNonZero,
    /// AVG
    Average,
    /// STD: standard deviation.
    Deviation,
    /// FWHM
    Width,
    /// SUM
    Sum,
    /// CUM: the sums up to each element.
    Cumulate,
    /// SMOO
    Smooth,
    /// DERIV
    Derivative,
    /// FITPOLY
    Fit,
    /// ARR
    ToArray,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayPair {
    /// NSMOO: SMOO several times.
    Smooth,
    /// NDERIV: DERIV with so many elements on either side.
    Derivative,
    /// FITMPOLY: with a mask.
    FitMasked,
    /// CAT
    Join,
}
