//! The expression languages of calc records (numbers), of scalcout and transform (also texts), and of acalcout (also
//! arrays). Expressions are compiled once and run on a bounded stack.

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
/// Inputs A to P of the languages with texts and with arrays, which are those of synApps.
const N_SYNAPPS_ARGS: u8 = 16;
/// Inputs AA to LL.
const N_TEXT_ARGS: u8 = 12;
/// In [`Op::FitInto`]: the coefficient is not stored.
const NO_ARG: u8 = u8::MAX;

/// The language of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// The language of EPICS Base: calc and calcout.
    Numbers,
    /// A language of synApps calc: values are numbers and texts.
    Texts,
    /// A language of synApps calc: values are numbers and arrays.
    Arrays,
}

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledExpression {
    ops: Box<[Op]>,
    /// The texts that [`Op::Literal`] indexes.
    texts: Box<[Text]>,
}

impl CompiledExpression {
    /// A bit for each argument that the program reads; A is the lowest.
    pub(crate) fn args_used(&self) -> u32 {
        let bit = |op: &Op| if let Op::Arg(index) = op { 1_u32 << *index } else { 0 };
        self.ops.iter().fold(0, |used, op| used | bit(op))
    }

    /// Whether the program assigns an argument.
    pub(crate) fn has_stores(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Store(_) | Op::StoreAt))
    }
}

/// An error in an expression, with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CalcError {
    /// The byte where the error starts.
    pub(crate) position: usize,
    pub(crate) reason: &'static str,
}

impl fmt::Display for CalcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.reason, self.position + 1)
    }
}

/// One instruction. The comments describe the effect on the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    /// Pushes.
    Number(f64),
    Arg(u8),
    Value,
    Random,
    /// Pushes a random number with normal distribution; only in the languages with texts and with arrays.
    Normal,
    /// Pops a value into an argument.
    Store(u8),
    /// Replaces one value.
    Unary(Unary),
    /// Replaces two values by one.
    Binary(Binary),
    /// Replaces `n` values by one.
    Many(Many, u8),
    /// Pushes a text; only in the language with texts.
    Literal(u8),
    /// Pushes AA to LL. This and the next ones are only in the languages with texts and with arrays.
    TextArg(u8),
    /// Pushes SVAL or AVAL.
    TextValue,
    /// Pops a value into a text or array argument.
    StoreText(u8),
    /// Pops the index of an argument and its new value.
    StoreAt,
    /// The same for a text or array argument.
    StoreTextAt,
    /// Replaces one value.
    Edit(Edit),
    /// Replaces two values by one.
    Join(Join),
    /// Replaces three values by one.
    Pick(Pick),
    /// Pushes the array 0, 1, 2... This and the next ones are only in the language with arrays.
    Indices,
    /// Pushes an array of random numbers.
    RandomArray,
    /// Replaces one value.
    OfArray(ArrayFunction),
    /// Replaces two values by one.
    OfPair(ArrayPair),
    /// Replaces an array, or an array and a mask, by the fitted curve; stores the coefficients in arguments.
    FitInto {
        is_masked: bool,
        into: [u8; 3],
    },
    /// Pops a value; if it is 0, continues at the instruction with this index.
    JumpIfZero(u16),
    Jump(u16),
    /// The end of a loop: if the top value is 0, pops it and jumps back to the instruction with this index.
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

/// A function of one value; the argument or the result may be a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// DBL: the first number in a text.
    ToNumber,
    /// STR
    ToText,
    /// INT, NINT: like DBL, but rounded.
    ToWhole,
    /// LEN
    Length,
    /// BYTE: the code of the first character.
    Byte,
    /// ESC: replaces non-printable characters by C escapes.
    Escape,
    /// TR_ESC: replaces C escapes by their characters.
    Unescape,
    /// `@`: the argument with this index.
    Fetch,
    /// `@@`: the text argument with this index.
    FetchText,
    /// A checksum of a text. The flag: the checksum is appended to the text.
    Checksum(Checksum, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    /// The checksum of Modbus/RTU.
    Crc16,
    /// The checksum of Modbus/ASCII.
    Lrc,
    /// Exclusive or of all bytes.
    Xor8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    /// `<?`
    Lesser,
    /// `>?`
    Greater,
    /// `|-`: removes the last occurrence.
    SubtractLast,
    /// PRINTF
    Print,
    /// SSCANF
    Scan,
    /// READ: converts bytes to a number.
    Read,
    /// WRITE: converts a number to bytes.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// `[from,to]`
    Range,
    /// `{old,new}`
    Replace,
}

/// A function of an array; the result is a number or an array.
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
    /// IXZ: the position where the elements first cross 0.
    IndexOfZero,
    /// IXNZ: the index of the first element that is not 0.
    IndexOfNonZero,
    /// AVG
    Average,
    /// STD: standard deviation.
    Deviation,
    /// FWHM
    Width,
    /// SUM
    Sum,
    /// CUM: the cumulative sums.
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
    /// NSMOO: repeated SMOO.
    Smooth,
    /// NDERIV: DERIV with a given number of elements on either side.
    Derivative,
    /// FITMPOLY: FITPOLY with a mask.
    FitMasked,
    /// CAT
    Join,
}
