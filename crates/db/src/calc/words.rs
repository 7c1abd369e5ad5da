//! The words of the languages: values, functions and operators, with their instructions.

use super::{ArrayFunction, ArrayPair, Binary, Checksum, Edit, Join, Many, Op, Unary};

/// A word at the place of a value.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Push(Op),
    Prefix(Unary),
    Call(Unary),
    Call2(Binary),
    CallMany(Many),
    /// `INT(x)` or `INT x`
    Edit(Edit),
    /// `PRINTF(format,x)`
    Join(Join),
    /// `UNTIL(A:=A+1;A>3)`
    Until,
    /// `AVG(AA)`
    OfArray(ArrayFunction),
    /// `NSMOO(AA,3)`
    OfPair(ArrayPair),
    /// `FITQ(AA,A,B,C)`, or with a mask `FITMQ(AA,BB,A,B,C)`
    Fit {
        is_masked: bool,
    },
}

pub(super) const OPERANDS: &[(&str, Operand)] = &[
    ("-", Operand::Prefix(Unary::Negate)),
    ("!", Operand::Prefix(Unary::Not)),
    ("~", Operand::Prefix(Unary::BitNot)),
    ("NOT", Operand::Prefix(Unary::BitNot)),
    ("ABS", Operand::Call(Unary::Abs)),
    ("SQRT", Operand::Call(Unary::Sqrt)),
    ("SQR", Operand::Call(Unary::Sqrt)),
    ("EXP", Operand::Call(Unary::Exp)),
    ("LOGE", Operand::Call(Unary::Ln)),
    ("LOG", Operand::Call(Unary::Log10)),
    ("LN", Operand::Call(Unary::Ln)),
    ("SINH", Operand::Call(Unary::Sinh)),
    ("SIN", Operand::Call(Unary::Sin)),
    ("COSH", Operand::Call(Unary::Cosh)),
    ("COS", Operand::Call(Unary::Cos)),
    ("TANH", Operand::Call(Unary::Tanh)),
    ("TAN", Operand::Call(Unary::Tan)),
    ("ASIN", Operand::Call(Unary::Asin)),
    ("ACOS", Operand::Call(Unary::Acos)),
    ("ATAN2", Operand::Call2(Binary::Atan2)),
    ("ATAN", Operand::Call(Unary::Atan)),
    ("CEIL", Operand::Call(Unary::Ceil)),
    ("FLOOR", Operand::Call(Unary::Floor)),
    ("FMOD", Operand::Call2(Binary::Fmod)),
    ("NINT", Operand::Call(Unary::Nint)),
    ("ISINF", Operand::Call(Unary::IsInf)),
    ("ISNAN", Operand::CallMany(Many::IsNan)),
    ("FINITE", Operand::CallMany(Many::Finite)),
    ("MIN", Operand::CallMany(Many::Min)),
    ("MAX", Operand::CallMany(Many::Max)),
    ("VAL", Operand::Push(Op::Value)),
    ("RNDM", Operand::Push(Op::Random)),
    ("PI", Operand::Push(Op::Number(std::f64::consts::PI))),
    ("D2R", Operand::Push(Op::Number(std::f64::consts::PI / 180.0))),
    ("R2D", Operand::Push(Op::Number(180.0 / std::f64::consts::PI))),
];

/// Additional words of the language with texts; they take precedence.
pub(super) const TEXT_OPERANDS: &[(&str, Operand)] = &[
    ("@", Operand::Edit(Edit::Fetch)),
    ("@@", Operand::Edit(Edit::FetchText)),
    ("$P", Operand::Join(Join::Print)),
    ("PRINTF", Operand::Join(Join::Print)),
    ("$S", Operand::Join(Join::Scan)),
    ("SSCANF", Operand::Join(Join::Scan)),
    ("$E", Operand::Edit(Edit::Escape)),
    ("ESC", Operand::Edit(Edit::Escape)),
    ("$T", Operand::Edit(Edit::Unescape)),
    ("TR_ESC", Operand::Edit(Edit::Unescape)),
    ("$R", Operand::Join(Join::Read)),
    ("READ", Operand::Join(Join::Read)),
    ("$W", Operand::Join(Join::Write)),
    ("WRITE", Operand::Join(Join::Write)),
    ("CRC16", Operand::Edit(Edit::Checksum(Checksum::Crc16, false))),
    ("MODBUS", Operand::Edit(Edit::Checksum(Checksum::Crc16, true))),
    ("LRC", Operand::Edit(Edit::Checksum(Checksum::Lrc, false))),
    ("AMODBUS", Operand::Edit(Edit::Checksum(Checksum::Lrc, true))),
    ("XOR8", Operand::Edit(Edit::Checksum(Checksum::Xor8, false))),
    ("ADD_XOR8", Operand::Edit(Edit::Checksum(Checksum::Xor8, true))),
    ("UNTIL", Operand::Until),
    ("NRNDM", Operand::Push(Op::Normal)),
    ("BYTE", Operand::Edit(Edit::Byte)),
    ("DBL", Operand::Edit(Edit::ToNumber)),
    ("STR", Operand::Edit(Edit::ToText)),
    ("LEN", Operand::Edit(Edit::Length)),
    ("NINT", Operand::Edit(Edit::ToWhole)),
    ("INT", Operand::Edit(Edit::ToWhole)),
    ("SVAL", Operand::Push(Op::TextValue)),
    ("S2R", Operand::Push(Op::Number(std::f64::consts::PI / (180.0 * 3600.0)))),
    ("R2S", Operand::Push(Op::Number(180.0 * 3600.0 / std::f64::consts::PI))),
];

/// Additional words of the language with arrays; they take precedence.
pub(super) const ARRAY_OPERANDS: &[(&str, Operand)] = &[
    ("@", Operand::Edit(Edit::Fetch)),
    ("@@", Operand::Edit(Edit::FetchText)),
    ("AMAX", Operand::OfArray(ArrayFunction::Max)),
    ("AMIN", Operand::OfArray(ArrayFunction::Min)),
    ("ARNDM", Operand::Push(Op::RandomArray)),
    ("ARR", Operand::OfArray(ArrayFunction::ToArray)),
    ("AVAL", Operand::Push(Op::TextValue)),
    ("AVG", Operand::OfArray(ArrayFunction::Average)),
    ("CAT", Operand::OfPair(ArrayPair::Join)),
    ("CUM", Operand::OfArray(ArrayFunction::Cumulate)),
    ("DBL", Operand::Edit(Edit::ToNumber)),
    ("DERIV", Operand::OfArray(ArrayFunction::Derivative)),
    ("FITMPOLY", Operand::OfPair(ArrayPair::FitMasked)),
    ("FITMQ", Operand::Fit { is_masked: true }),
    ("FITPOLY", Operand::OfArray(ArrayFunction::Fit)),
    ("FITQ", Operand::Fit { is_masked: false }),
    ("FWHM", Operand::OfArray(ArrayFunction::Width)),
    ("INT", Operand::Call(Unary::Nint)),
    ("IX", Operand::Push(Op::Indices)),
    ("IXMAX", Operand::OfArray(ArrayFunction::IndexOfMax)),
    ("IXMIN", Operand::OfArray(ArrayFunction::IndexOfMin)),
    ("IXNZ", Operand::OfArray(ArrayFunction::IndexOfNonZero)),
    ("IXZ", Operand::OfArray(ArrayFunction::IndexOfZero)),
    ("NDERIV", Operand::OfPair(ArrayPair::Derivative)),
    ("NRNDM", Operand::Push(Op::Normal)),
    ("NSMOO", Operand::OfPair(ArrayPair::Smooth)),
    ("R2S", Operand::Push(Op::Number(180.0 * 3600.0 / std::f64::consts::PI))),
    ("S2R", Operand::Push(Op::Number(std::f64::consts::PI / (180.0 * 3600.0)))),
    ("SMOO", Operand::OfArray(ArrayFunction::Smooth)),
    ("STD", Operand::OfArray(ArrayFunction::Deviation)),
    ("SUM", Operand::OfArray(ArrayFunction::Sum)),
    ("UNTIL", Operand::Until),
];

/// Additional operators of the language with arrays.
pub(super) const ARRAY_OPERATORS: &[(&str, Op, u8)] =
    &[("<?", Op::Join(Join::Lesser), 3), (">?", Op::Join(Join::Greater), 3)];

/// Binary operators with their precedence, longer spellings first.
pub(super) const OPERATORS: &[(&str, Binary, u8)] = &[
    ("||", Binary::Or, 1),
    ("|", Binary::BitOr, 1),
    ("OR", Binary::BitOr, 1),
    ("XOR", Binary::BitXor, 1),
    ("&&", Binary::And, 2),
    ("&", Binary::BitAnd, 2),
    ("AND", Binary::BitAnd, 2),
    ("<<", Binary::ShiftLeft, 2),
    (">>>", Binary::ShiftRightLogical, 2),
    (">>", Binary::ShiftRight, 2),
    ("<=", Binary::LessOrEqual, 4),
    ("<", Binary::Less, 4),
    (">=", Binary::GreaterOrEqual, 4),
    (">", Binary::Greater, 4),
    ("==", Binary::Equal, 4),
    ("=", Binary::Equal, 4),
    ("!=", Binary::NotEqual, 4),
    ("#", Binary::NotEqual, 4),
    ("+", Binary::Add, 5),
    ("-", Binary::Subtract, 5),
    ("**", Binary::Power, 7),
    ("*", Binary::Multiply, 6),
    ("/", Binary::Divide, 6),
    ("%", Binary::Modulo, 6),
    ("^", Binary::Power, 7),
];

/// Additional operators of the language with texts.
pub(super) const TEXT_OPERATORS: &[(&str, Op, u8)] = &[
    ("<?", Op::Join(Join::Lesser), 3),
    (">?", Op::Join(Join::Greater), 3),
    ("|-", Op::Join(Join::SubtractLast), 5),
    ("-|", Op::Binary(Binary::Subtract), 5),
];
