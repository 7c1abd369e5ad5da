//! Runs expressions whose values are numbers and texts, for scalcout and transform.
//!
//! Source: synApps calc, "String calc" in its documentation, and the behaviour of sCalcPerform for each operator.

use fodo_data::{STRING_BYTES_MAX, Text, format_f64, parse_f64};

use super::binary::{read, write};
use super::format::{escaped, print, scan, unescaped};
use super::run::{index, random, random_normal, truth};
use super::{Binary, CompiledExpression, Edit, Join, Many, Op, Pick, Unary};

/// Digits after the decimal point when a number is converted to text.
const DIGITS: i16 = 8;
/// Numbers closer than this are equal.
const SMALL: f64 = 1e-11;

/// A value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextValue {
    Number(f64),
    Text(Vec<u8>),
}

/// The inputs of an expression; it may also assign the arguments.
#[derive(Debug)]
pub(crate) struct TextInputs<'a> {
    /// A, B...
    pub(crate) args: &'a mut [f64],
    /// AA, BB...
    pub(crate) texts: &'a mut [Text],
    /// VAL
    pub(crate) value: f64,
    /// SVAL
    pub(crate) text: &'a Text,
}

impl TextValue {
    /// The number at the start of a text; 0 if there is none.
    pub(crate) fn number(&self) -> f64 {
        match self {
            TextValue::Number(number) => *number,
            TextValue::Text(text) => parse_f64(&Text::from_bytes(text)).unwrap_or(0.0),
        }
    }

    /// Converts to text; a number gets `precision` digits after the decimal point.
    pub(crate) fn text(self, precision: i16) -> Vec<u8> {
        match self {
            TextValue::Number(number) if number.is_nan() => b"NaN".to_vec(),
            TextValue::Number(number) => format_f64(number, precision).into_bytes(),
            TextValue::Text(text) => text,
        }
    }

    /// The first number anywhere in a text.
    fn first_number(&self) -> f64 {
        let TextValue::Text(text) = self else { return self.number() };
        let Some(mut start) = text.iter().position(u8::is_ascii_digit) else { return 0.0 };
        for sign in [b'.', b'-'] {
            if start > 0 && text.get(start - 1) == Some(&sign) {
                start -= 1;
            }
        }
        TextValue::Text(text.get(start..).unwrap_or_default().to_vec()).number()
    }
}

impl CompiledExpression {
    /// Whether the expression uses texts: then SVAL gets all digits of a number, else as many as in PREC.
    pub(crate) fn is_textual(&self) -> bool {
        let is_of_text = |op: &Op| {
            matches!(op, Op::Literal(_) | Op::TextArg(_) | Op::TextValue | Op::StoreText(_) | Op::Edit(_) | Op::Pick(_))
        };
        self.ops.iter().any(is_of_text)
    }

    /// The result. A missing argument is 0 or empty. `None`: an operation is impossible, such as a division by zero.
    pub(crate) fn run_text(&self, inputs: &mut TextInputs) -> Option<TextValue> {
        self.run_with(TextValue::number, |op, stack| self.step(op, stack, inputs))
    }

    fn step(&self, op: Op, stack: &mut Vec<TextValue>, inputs: &mut TextInputs) -> Option<()> {
        let pushed = match op {
            Op::Number(number) => TextValue::Number(number),
            Op::Arg(index) => TextValue::Number(fetched(inputs.args, index.into())),
            Op::Value => TextValue::Number(inputs.value),
            Op::Random => TextValue::Number(random()),
            Op::Normal => TextValue::Number(random_normal()),
            Op::Literal(index) => TextValue::Text(cut(self.texts.get(usize::from(index))?.as_bytes().to_vec())),
            Op::TextArg(index) => TextValue::Text(fetched_text(inputs.texts, index.into())),
            Op::TextValue => TextValue::Text(inputs.text.as_bytes().to_vec()),
            Op::Store(index) => {
                inputs.keep(Some(usize::from(index)), stack.pop()?.number());
                return Some(());
            }
            Op::StoreText(index) => {
                inputs.keep_text(Some(usize::from(index)), stack.pop()?);
                return Some(());
            }
            Op::StoreAt => {
                let value = stack.pop()?.number();
                inputs.keep(index(stack.pop()?.number()), value);
                return Some(());
            }
            Op::StoreTextAt => {
                let value = stack.pop()?;
                inputs.keep_text(index(stack.pop()?.number()), value);
                return Some(());
            }
            Op::Unary(unary) => TextValue::Number(apply_unary(unary, stack.pop()?.number())?),
            Op::Binary(binary) => {
                let right = stack.pop()?;
                apply_binary(binary, stack.pop()?, right)?
            }
            Op::Many(many, n) => {
                let operands = stack.split_off(stack.len().checked_sub(usize::from(n))?);
                apply_many(many, operands)
            }
            Op::Edit(edit) => edit.apply(stack.pop()?, inputs),
            Op::Join(join) => {
                let right = stack.pop()?;
                join.apply(stack.pop()?, right)?
            }
            Op::Pick(pick) => {
                let (last, first) = (stack.pop()?, stack.pop()?);
                pick.apply(stack.pop()?.text(DIGITS), first, last)
            }
            Op::JumpIfZero(_) | Op::Jump(_) | Op::Until(_) => return None,
            // These are not in the language of texts.
            Op::Indices | Op::RandomArray | Op::OfArray(_) | Op::OfPair(_) | Op::FitInto { .. } => return None,
        };
        stack.push(pushed);
        Some(())
    }
}

impl TextInputs<'_> {
    /// Assigns a number to an argument; ignored if the argument does not exist.
    fn keep(&mut self, index: Option<usize>, value: f64) {
        if let Some(arg) = index.and_then(|index| self.args.get_mut(index)) {
            *arg = value;
        }
    }

    fn keep_text(&mut self, index: Option<usize>, value: TextValue) {
        if let Some(arg) = index.and_then(|index| self.texts.get_mut(index)) {
            *arg = Text::from_bytes(&value.text(DIGITS));
        }
    }
}

fn fetched(args: &[f64], index: usize) -> f64 {
    args.get(index).copied().unwrap_or(0.0)
}

fn fetched_text(texts: &[Text], index: usize) -> Vec<u8> {
    texts.get(index).map(|text| text.as_bytes().to_vec()).unwrap_or_default()
}

fn apply_unary(unary: Unary, operand: f64) -> Option<f64> {
    match unary {
        Unary::Sqrt | Unary::Ln | Unary::Log10 if operand < 0.0 => None,
        Unary::BitNot => Some(f64::from(!(operand as i32))),
        unary => Some(unary.apply(operand)),
    }
}

/// Operates on numbers unless both operands are texts. Numbers that are close are equal; a division by zero has no
/// result.
fn apply_binary(binary: Binary, left: TextValue, right: TextValue) -> Option<TextValue> {
    if let (TextValue::Text(left), TextValue::Text(right)) = (&left, &right)
        && let Some(result) = of_texts(binary, left, right)
    {
        return Some(result);
    }
    if let (TextValue::Text(text), Binary::ShiftLeft | Binary::ShiftRight) = (&left, binary) {
        return Some(TextValue::Text(shifted(text, binary, right.number())));
    }
    let (left, right) = (left.number(), right.number());
    let whole = |number: f64| number as i64;
    Some(TextValue::Number(match binary {
        Binary::Divide if right == 0.0 => return None,
        Binary::Modulo => whole(left).checked_rem(whole(right))? as f64,
        Binary::Less => truth(right - left > SMALL),
        Binary::LessOrEqual => truth((left - right).abs() < SMALL || left < right),
        Binary::Greater => truth(left - right > SMALL),
        Binary::GreaterOrEqual => truth((left - right).abs() < SMALL || left > right),
        Binary::Equal => truth((left - right).abs() < SMALL),
        Binary::NotEqual => truth((left - right).abs() > SMALL),
        Binary::BitAnd => (whole(left) & whole(right)) as f64,
        Binary::BitOr => (whole(left) | whole(right)) as f64,
        Binary::BitXor => (whole(left) ^ whole(right)) as f64,
        binary => binary.apply(left, right),
    }))
}

/// The result of `+`, `-` or a comparison of two texts; `None`: the operator needs numbers.
fn of_texts(binary: Binary, left: &[u8], right: &[u8]) -> Option<TextValue> {
    Some(match binary {
        Binary::Add => TextValue::Text(cut([left, right].concat())),
        Binary::Subtract => TextValue::Text(replaced(left, find(left, right), right.len(), b"")),
        Binary::Less => TextValue::Number(truth(left < right)),
        Binary::LessOrEqual => TextValue::Number(truth(left <= right)),
        Binary::Greater => TextValue::Number(truth(left > right)),
        Binary::GreaterOrEqual => TextValue::Number(truth(left >= right)),
        Binary::Equal => TextValue::Number(truth(left == right)),
        Binary::NotEqual => TextValue::Number(truth(left != right)),
        _ => return None,
    })
}

/// Shifts a text right, with blanks before it, or left.
fn shifted(text: &[u8], binary: Binary, by: f64) -> Vec<u8> {
    let by = (by.round().max(0.0) as usize).min(STRING_BYTES_MAX);
    match binary {
        Binary::ShiftRight => cut([&vec![b' '; by], text].concat()),
        _ => text.get(by..).unwrap_or_default().to_vec(),
    }
}

fn apply_many(many: Many, operands: Vec<TextValue>) -> TextValue {
    let are_texts = operands.iter().all(|operand| matches!(operand, TextValue::Text(_)));
    if are_texts && matches!(many, Many::Min | Many::Max) {
        let join = if many == Many::Min { Join::Lesser } else { Join::Greater };
        let best = operands.into_iter().reduce(|best, next| join.extreme(best, next));
        return best.unwrap_or(TextValue::Text(Vec::new()));
    }
    let numbers: Vec<f64> = operands.iter().map(TextValue::number).collect();
    TextValue::Number(many.apply(&numbers))
}

impl Edit {
    fn apply(self, operand: TextValue, inputs: &TextInputs) -> TextValue {
        let index = |operand: &TextValue| index(operand.number()).unwrap_or(usize::MAX);
        match (self, operand) {
            (Edit::ToNumber, operand) => TextValue::Number(operand.first_number()),
            (Edit::ToWhole, operand) => TextValue::Number(operand.first_number().round()),
            (Edit::ToText, operand) => TextValue::Text(operand.text(DIGITS)),
            (Edit::Length, operand) => TextValue::Number(operand.text(DIGITS).len() as f64),
            (Edit::Byte, TextValue::Text(text)) => {
                TextValue::Number(text.first().map_or(0.0, |byte| f64::from(*byte as i8)))
            }
            (Edit::Escape, TextValue::Text(text)) => TextValue::Text(cut(escaped(&text))),
            (Edit::Unescape, TextValue::Text(text)) => TextValue::Text(unescaped(&text)),
            (Edit::Checksum(checksum, is_appended), TextValue::Text(text)) => {
                TextValue::Text(cut(checksum.apply(&text, is_appended)))
            }
            (Edit::Byte | Edit::Escape | Edit::Unescape | Edit::Checksum(..), number) => number,
            (Edit::Fetch, operand) => TextValue::Number(fetched(inputs.args, index(&operand))),
            (Edit::FetchText, operand) => TextValue::Text(fetched_text(inputs.texts, index(&operand))),
        }
    }
}

impl Join {
    fn apply(self, left: TextValue, right: TextValue) -> Option<TextValue> {
        match (self, left, right) {
            (Join::Lesser | Join::Greater, left, right) => Some(self.extreme(left, right)),
            (Join::SubtractLast, TextValue::Text(left), TextValue::Text(right)) => {
                let last = left.windows(right.len().max(1)).rposition(|part| part == right);
                Some(TextValue::Text(replaced(&left, last, right.len(), b"")))
            }
            (Join::SubtractLast, left, right) => Some(TextValue::Number(left.number() - right.number())),
            (Join::Print, TextValue::Text(format), value) => print(&format, value).map(cut).map(TextValue::Text),
            (Join::Scan, TextValue::Text(text), TextValue::Text(format)) => scan(&text, &format),
            (Join::Read, TextValue::Text(text), TextValue::Text(format)) => read(&text, &format),
            (Join::Write, TextValue::Text(format), value) => {
                write(&format, value.number()).map(cut).map(TextValue::Text)
            }
            (Join::Print | Join::Scan | Join::Read | Join::Write, ..) => None,
        }
    }

    /// The lesser or greater of two values, compared as texts if both are texts, else as numbers.
    fn extreme(self, left: TextValue, right: TextValue) -> TextValue {
        let is_right = |is_less: bool, is_greater: bool| if self == Join::Lesser { is_less } else { is_greater };
        match (left, right) {
            (TextValue::Text(left), TextValue::Text(right)) => {
                TextValue::Text(if is_right(right < left, right > left) { right } else { left })
            }
            (left, right) => {
                let (left, right) = (left.number(), right.number());
                TextValue::Number(if is_right(right < left, right > left) { right } else { left })
            }
        }
    }
}

impl Pick {
    fn apply(self, text: Vec<u8>, first: TextValue, last: TextValue) -> TextValue {
        if self == Pick::Replace {
            let (old, new) = (first.text(DIGITS), last.text(DIGITS));
            return TextValue::Text(cut(replaced(&text, find(&text, &old), old.len(), &new)));
        }
        let len = text.len() as i64;
        let counted = |number: f64| if number < 0.0 { number as i64 + len } else { number as i64 };
        // If a border is a text, the range excludes it.
        let from = match first {
            TextValue::Number(number) => counted(number),
            TextValue::Text(border) => find(&text, &border).map_or(0, |at| (at + border.len()) as i64),
        };
        let to = match last {
            TextValue::Number(number) => counted(number),
            TextValue::Text(border) if border.is_empty() => len,
            TextValue::Text(border) => find(&text, &border).map_or(len, |at| at as i64 - 1),
        };
        let (from, end) = (from.clamp(0, len) as usize, to.saturating_add(1).clamp(0, len) as usize);
        TextValue::Text(text.get(from..end).unwrap_or_default().to_vec())
    }
}

/// The position of the first occurrence; `None` for an empty text.
fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    if pattern.is_empty() { None } else { text.windows(pattern.len()).position(|part| part == pattern) }
}

/// Replaces bytes at a position; `None`: the text is unchanged.
fn replaced(text: &[u8], at: Option<usize>, n_bytes: usize, by: &[u8]) -> Vec<u8> {
    let parts = at.and_then(|at| Some((text.get(..at)?, text.get(at + n_bytes..)?)));
    parts.map_or_else(|| text.to_vec(), |(before, after)| [before, by, after].concat())
}

fn cut(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(STRING_BYTES_MAX);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(expression: &str) -> Option<TextValue> {
        let mut args: Vec<f64> = (1..=12).map(f64::from).collect();
        let mut texts: Vec<Text> = ["one", "two three", "x=-1.5 mm"].map(Text::from).to_vec();
        let program = CompiledExpression::compile_text(expression).map_err(|error| (expression, error)).ok()?;
        let mut inputs = TextInputs { args: &mut args, texts: &mut texts, value: 100.0, text: &"before".into() };
        program.run_text(&mut inputs)
    }

    fn text(expression: &str) -> String {
        match run(expression) {
            Some(TextValue::Text(text)) => String::from_utf8(text).unwrap_or_default(),
            other => format!("{other:?}"),
        }
    }

    fn number(expression: &str) -> f64 {
        match run(expression) {
            Some(TextValue::Number(number)) => number,
            _ => f64::NAN,
        }
    }

    #[test]
    fn strings_are_concatenated_subtracted_and_compared() {
        assert_eq!(text("AA+' '+BB"), "one two three");
        assert_eq!(text("BB-'t'"), "wo three");
        assert_eq!(text("BB|-'t'"), "two hree");
        assert_eq!(text("BB-|'t'"), "wo three");
        assert_eq!(number("AA=='one'"), 1.0);
        assert_eq!(number("AA<BB"), 1.0);
        assert_eq!(text("AA>?BB"), "two three");
        assert_eq!(text("MIN(BB,AA,CC)"), "one");
        assert_eq!(text("SVAL+'x'"), "beforex");
    }

    #[test]
    fn an_operator_with_a_number_and_a_string_converts_the_string_to_a_number() {
        assert_eq!(number("'3'+A"), 4.0);
        assert_eq!(number("A+'3 mm'"), 4.0);
        assert_eq!(number("'2'*'3'"), 6.0);
        assert_eq!(number("A='1'"), 1.0);
    }

    #[test]
    fn substrings_are_selected_by_position_or_delimiter() {
        assert_eq!(text("BB[0,2]"), "two");
        assert_eq!(text("BB[-5,-1]"), "three");
        assert_eq!(text("CC['=',' ']"), "-1.5");
        assert_eq!(text("BB['two ','']"), "three");
        assert_eq!(text("BB{'two','one'}[0,4]"), "one t");
        assert_eq!(text("AA<<1"), "ne");
        assert_eq!(text("AA>>2"), "  one");
    }

    #[test]
    fn strings_and_numbers_convert_to_each_other() {
        assert_eq!(number("DBL(CC)"), -1.5);
        assert_eq!(number("INT(CC)"), -2.0);
        assert_eq!(number("LEN(BB)"), 9.0);
        assert_eq!(number("BYTE('A')"), 65.0);
        assert_eq!(text("STR(A)"), "1.00000000");
        assert_eq!(text("PRINTF('%5.2f mm',B/3)"), " 0.67 mm");
        assert_eq!(text("$P('%s!',AA)"), "one!");
        assert_eq!(number("SSCANF('v=12 x','v=%d')"), 12.0);
        assert_eq!(text("$S(BB,'two %s')"), "three");
    }

    #[test]
    fn arguments_are_read_by_index_and_assigned() {
        assert_eq!(number("@3"), 4.0);
        assert_eq!(text("@@1"), "two three");
        assert_eq!(text("BB:=AA+'!';BB+BB"), "one!one!");
        assert_eq!(number("C:='7';C+1"), 8.0);
        assert_eq!(number("P"), 0.0);
    }

    #[test]
    fn checksums_and_binary_bytes_are_computed_from_strings() {
        assert_eq!(text("CRC16('123456789')"), "7K");
        assert_eq!(text("MODBUS('1234')[0,3]"), "1234");
        assert_eq!(text("AMODBUS('\\x01\\x03')"), "\\x01\\x03\\xfc");
        assert_eq!(text("XOR8('\\x01\\x03')"), "\\x02");
        assert_eq!(text("ADD_XOR8(AA)"), "oned");
        assert_eq!(text("LRC(AA)+''"), "\\xbe");
        assert_eq!(number("READ('\\x01\\x02',\"%hu\")"), 258.0);
        assert_eq!(text("$W('%hd',1250)"), "\\x04\\xe2");
        assert_eq!(number("$R(WRITE('%lf',A/8),'%lf')"), 0.125);
    }

    #[test]
    fn until_loops_run_until_the_value_is_nonzero_or_the_iteration_limit() {
        assert_eq!(number("UNTIL(7)"), 7.0);
        assert_eq!(number("B:=10;UNTIL(B:=B-1;B<1)+B"), 1.0);
        assert_eq!(text("B:=8;AA:='';C:=UNTIL(AA:=AA+BB[B,B];B:=B-1;B<0);AA"), "eerht owt");
        assert_eq!(
            text("AA:='';B:=1;C:=UNTIL(A:=0;C:=UNTIL(AA:=AA+(@@B)[A,A];A:=A+1;A>1);B:=B+1;B>2);AA"),
            "twx=",
            "the first two characters of BB and CC"
        );
        // At most a thousand iterations, including those of inner loops.
        assert_eq!(number("A:=0;B:=UNTIL(A:=A+1;0);A"), 1000.0);
        assert_eq!(number("A:=0;B:=UNTIL(C:=UNTIL(A:=A+1;0);0);A"), 1000.0);
    }

    #[test]
    fn assignments_are_allowed_in_parentheses_and_by_variable_index() {
        assert_eq!(number("A+(AA:='abc';B:=0;7)"), 8.0);
        assert_eq!(number("@1:=5;B"), 5.0);
        assert_eq!(number("D:=1;@D:=@0+1;B"), 2.0);
        assert_eq!(text("@@(A+1):='new';CC"), "new");
        assert_eq!(number("@99:=5;@-1:=6;A"), 1.0);
        assert_eq!(number("@1+1"), 3.0);
        assert!(CompiledExpression::compile_text("A+@1:=5;A").is_err());
        assert!(CompiledExpression::compile_text("(A:=1)").is_err());
        assert!(CompiledExpression::compile_text("UNTIL(A:=1)").is_err());
    }

    #[test]
    fn normal_random_numbers_have_a_mean_near_zero() {
        let numbers: Vec<f64> = (0..10_000).map(|_| number("NRNDM")).collect();

        let mean = numbers.iter().sum::<f64>() / 10_000.0;
        let variance = numbers.iter().map(|number| number * number).sum::<f64>() / 10_000.0;
        // Six standard errors; the sequence is the same in each process.
        assert!(mean.abs() < 0.06 && (variance - 1.0).abs() < 0.09, "{mean} {variance}");
    }

    #[test]
    fn what_cannot_be_done_has_no_result() {
        assert_eq!(run("A/0"), None);
        assert_eq!(run("SQRT(-A)"), None);
        assert_eq!(run("A%0"), None);
        assert_eq!(run("PRINTF(A,B)"), None);
        assert!(CompiledExpression::compile_text("'open").is_err());
        assert!(CompiledExpression::compile_text("AA[1]").is_err());
        assert!(CompiledExpression::compile("AA").is_err());
    }

    #[test]
    fn nearly_equal_numbers_compare_as_equal() {
        assert_eq!(number("A+1e-12=A"), 1.0);
        assert_eq!(number("A>A-1e-12"), 0.0);
    }

    #[test]
    fn numbers_that_are_close_are_equal_in_a_string_expression() {
        let compared = |operator: &str| {
            [format!("A{operator}B"), format!("B{operator}A"), format!("A{operator}1"), format!("A{operator}(A+1e-12)")]
                .map(|expression| number(&expression))
        };

        assert_eq!(compared("<"), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(compared("<="), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(compared(">"), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(compared(">="), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(compared("=="), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(compared("!="), [1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn numbers_at_the_limit_of_closeness_are_neither_equal_nor_different() {
        let operators = ["<", "<=", ">", ">=", "==", "!="];

        let above = operators.map(|operator| number(&format!("1e-11{operator}0")));
        let below = operators.map(|operator| number(&format!("0{operator}1e-11")));

        assert_eq!(above, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(below, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn bits_and_extremes_of_numbers_are_computed_in_a_string_expression() {
        assert_eq!([number("6&3"), number("6|3"), number("6 XOR 3"), number("~5")], [2.0, 7.0, 5.0, -6.0]);
        assert_eq!([number("7%4"), number("A/4"), number("D-|A")], [3.0, 0.25, 3.0]);
        assert_eq!([number("A<?B"), number("B<?A"), number("A>?B"), number("B>?A")], [1.0, 1.0, 2.0, 2.0]);
        assert!(run("1/0").is_none() && run("7%0").is_none() && run("SQRT(-1)").is_none());
    }

    #[test]
    fn the_root_of_zero_exists_and_the_logarithm_of_zero_is_infinite() {
        assert_eq!([number("SQRT(0)"), number("SQRT(4)"), number("LN(1)"), number("LOG(100)")], [0.0, 2.0, 0.0, 2.0]);
        assert_eq!([number("LN(0)"), number("LOG(0)")], [f64::NEG_INFINITY; 2]);
        assert!(run("LN(-1)").is_none() && run("LOG(-1)").is_none());
    }
}
