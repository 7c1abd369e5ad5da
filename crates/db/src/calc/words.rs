//! The words of the languages: values, functions and operators, with their instructions.

use super::{ArrayFunction, ArrayPair, Binary, Checksum, Edit, Join, Many, Op, Unary};

/// A word at the place of a value.
#[derive(Clone, Copy)]
pub(super) enum WordKind {
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

pub(super) const OPERANDS: &[(&str, WordKind)] = &[
    ("-", WordKind::Prefix(Unary::Negate)),
    ("!", WordKind::Prefix(Unary::Not)),
    ("~", WordKind::Prefix(Unary::BitNot)),
    ("NOT", WordKind::Prefix(Unary::BitNot)),
    ("ABS", WordKind::Call(Unary::Abs)),
    ("SQRT", WordKind::Call(Unary::Sqrt)),
    ("SQR", WordKind::Call(Unary::Sqrt)),
    ("EXP", WordKind::Call(Unary::Exp)),
    ("LOGE", WordKind::Call(Unary::Ln)),
    ("LOG", WordKind::Call(Unary::Log10)),
    ("LN", WordKind::Call(Unary::Ln)),
    ("SINH", WordKind::Call(Unary::Sinh)),
    ("SIN", WordKind::Call(Unary::Sin)),
    ("COSH", WordKind::Call(Unary::Cosh)),
    ("COS", WordKind::Call(Unary::Cos)),
    ("TANH", WordKind::Call(Unary::Tanh)),
    ("TAN", WordKind::Call(Unary::Tan)),
    ("ASIN", WordKind::Call(Unary::Asin)),
    ("ACOS", WordKind::Call(Unary::Acos)),
    ("ATAN2", WordKind::Call2(Binary::Atan2)),
    ("ATAN", WordKind::Call(Unary::Atan)),
    ("CEIL", WordKind::Call(Unary::Ceil)),
    ("FLOOR", WordKind::Call(Unary::Floor)),
    ("FMOD", WordKind::Call2(Binary::Fmod)),
    ("NINT", WordKind::Call(Unary::Nint)),
    ("ISINF", WordKind::Call(Unary::IsInf)),
    ("ISNAN", WordKind::CallMany(Many::IsNan)),
    ("FINITE", WordKind::CallMany(Many::Finite)),
    ("MIN", WordKind::CallMany(Many::Min)),
    ("MAX", WordKind::CallMany(Many::Max)),
    ("VAL", WordKind::Push(Op::Value)),
    ("RNDM", WordKind::Push(Op::Random)),
    ("PI", WordKind::Push(Op::Number(std::f64::consts::PI))),
    ("D2R", WordKind::Push(Op::Number(std::f64::consts::PI / 180.0))),
    ("R2D", WordKind::Push(Op::Number(180.0 / std::f64::consts::PI))),
];

/// Additional words of the language with texts; they take precedence.
pub(super) const TEXT_OPERANDS: &[(&str, WordKind)] = &[
    ("@", WordKind::Edit(Edit::Fetch)),
    ("@@", WordKind::Edit(Edit::FetchText)),
    ("$P", WordKind::Join(Join::Print)),
    ("PRINTF", WordKind::Join(Join::Print)),
    ("$S", WordKind::Join(Join::Scan)),
    ("SSCANF", WordKind::Join(Join::Scan)),
    ("$E", WordKind::Edit(Edit::Escape)),
    ("ESC", WordKind::Edit(Edit::Escape)),
    ("$T", WordKind::Edit(Edit::Unescape)),
    ("TR_ESC", WordKind::Edit(Edit::Unescape)),
    ("$R", WordKind::Join(Join::Read)),
    ("READ", WordKind::Join(Join::Read)),
    ("$W", WordKind::Join(Join::Write)),
    ("WRITE", WordKind::Join(Join::Write)),
    ("CRC16", WordKind::Edit(Edit::Checksum(Checksum::Crc16, false))),
    ("MODBUS", WordKind::Edit(Edit::Checksum(Checksum::Crc16, true))),
    ("LRC", WordKind::Edit(Edit::Checksum(Checksum::Lrc, false))),
    ("AMODBUS", WordKind::Edit(Edit::Checksum(Checksum::Lrc, true))),
    ("XOR8", WordKind::Edit(Edit::Checksum(Checksum::Xor8, false))),
    ("ADD_XOR8", WordKind::Edit(Edit::Checksum(Checksum::Xor8, true))),
    ("UNTIL", WordKind::Until),
    ("NRNDM", WordKind::Push(Op::Normal)),
    ("BYTE", WordKind::Edit(Edit::Byte)),
    ("DBL", WordKind::Edit(Edit::ToNumber)),
    ("STR", WordKind::Edit(Edit::ToText)),
    ("LEN", WordKind::Edit(Edit::Length)),
    ("NINT", WordKind::Edit(Edit::ToWhole)),
    ("INT", WordKind::Edit(Edit::ToWhole)),
    ("SVAL", WordKind::Push(Op::TextValue)),
    ("S2R", WordKind::Push(Op::Number(std::f64::consts::PI / (180.0 * 3600.0)))),
    ("R2S", WordKind::Push(Op::Number(180.0 * 3600.0 / std::f64::consts::PI))),
];

/// Additional words of the language with arrays; they take precedence.
pub(super) const ARRAY_OPERANDS: &[(&str, WordKind)] = &[
    ("@", WordKind::Edit(Edit::Fetch)),
    ("@@", WordKind::Edit(Edit::FetchText)),
    ("AMAX", WordKind::OfArray(ArrayFunction::Max)),
    ("AMIN", WordKind::OfArray(ArrayFunction::Min)),
    ("ARNDM", WordKind::Push(Op::RandomArray)),
    ("ARR", WordKind::OfArray(ArrayFunction::ToArray)),
    ("AVAL", WordKind::Push(Op::TextValue)),
    ("AVG", WordKind::OfArray(ArrayFunction::Average)),
    ("CAT", WordKind::OfPair(ArrayPair::Join)),
    ("CUM", WordKind::OfArray(ArrayFunction::Cumulate)),
    ("DBL", WordKind::Edit(Edit::ToNumber)),
    ("DERIV", WordKind::OfArray(ArrayFunction::Derivative)),
    ("FITMPOLY", WordKind::OfPair(ArrayPair::FitMasked)),
    ("FITMQ", WordKind::Fit { is_masked: true }),
    ("FITPOLY", WordKind::OfArray(ArrayFunction::Fit)),
    ("FITQ", WordKind::Fit { is_masked: false }),
    ("FWHM", WordKind::OfArray(ArrayFunction::Width)),
    ("INT", WordKind::Call(Unary::Nint)),
    ("IX", WordKind::Push(Op::Indices)),
    ("IXMAX", WordKind::OfArray(ArrayFunction::IndexOfMax)),
    ("IXMIN", WordKind::OfArray(ArrayFunction::IndexOfMin)),
    ("IXNZ", WordKind::OfArray(ArrayFunction::IndexOfNonZero)),
    ("IXZ", WordKind::OfArray(ArrayFunction::IndexOfZero)),
    ("NDERIV", WordKind::OfPair(ArrayPair::Derivative)),
    ("NRNDM", WordKind::Push(Op::Normal)),
    ("NSMOO", WordKind::OfPair(ArrayPair::Smooth)),
    ("R2S", WordKind::Push(Op::Number(180.0 * 3600.0 / std::f64::consts::PI))),
    ("S2R", WordKind::Push(Op::Number(std::f64::consts::PI / (180.0 * 3600.0)))),
    ("SMOO", WordKind::OfArray(ArrayFunction::Smooth)),
    ("STD", WordKind::OfArray(ArrayFunction::Deviation)),
    ("SUM", WordKind::OfArray(ArrayFunction::Sum)),
    ("UNTIL", WordKind::Until),
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
