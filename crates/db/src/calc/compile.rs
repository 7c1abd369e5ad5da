//! Compiles expressions in one pass of precedence climbing. Names need no blanks between them.

use fodo_data::{Text, number_at_start};

use super::words::{ARRAY_OPERANDS, ARRAY_OPERATORS, OPERANDS, OPERATORS, TEXT_OPERANDS, TEXT_OPERATORS, WordKind};
use super::{CalcError, CompiledExpression, Dialect, Edit, N_ARGS, N_SYNAPPS_ARGS, N_TEXT_ARGS, NO_ARG, Op, Pick};
use crate::limit;

impl CompiledExpression {
    /// Compiles an expression.
    pub(crate) fn compile(text: &str) -> Result<CompiledExpression, CalcError> {
        CompiledExpression::compile_as(Dialect::Numbers, text)
    }

    /// As [`CompiledExpression::compile`], for [`CompiledExpression::run_text`].
    pub(crate) fn compile_text(text: &str) -> Result<CompiledExpression, CalcError> {
        CompiledExpression::compile_as(Dialect::Texts, text)
    }

    /// As [`CompiledExpression::compile`], for [`CompiledExpression::run_array`].
    pub(crate) fn compile_array(text: &str) -> Result<CompiledExpression, CalcError> {
        CompiledExpression::compile_as(Dialect::Arrays, text)
    }

    fn compile_as(dialect: Dialect, text: &str) -> Result<CompiledExpression, CalcError> {
        let mut compiler = Compiler { dialect, text, position: 0, ops: Vec::new(), texts: Vec::new(), depth: 0 };
        compiler.statements(None)?;
        if compiler.ops.len() > usize::from(u16::MAX) {
            return Err(CalcError { position: 0, reason: "the expression is too long" });
        }
        let program = CompiledExpression { ops: compiler.ops.into(), texts: compiler.texts.into() };
        if program.stack_needed() > limit::CALC_STACK_MAX {
            return Err(CalcError { position: 0, reason: "the expression needs more than 80 values on the stack" });
        }
        Ok(program)
    }

    /// The maximum number of values on the stack, over all paths: each branch of `?:` leaves one.
    fn stack_needed(&self) -> usize {
        let (mut len, mut most) = (0_usize, 0);
        for op in &self.ops {
            match op {
                Op::Number(_) | Op::Arg(_) | Op::Value | Op::Random | Op::Normal => len += 1,
                Op::Literal(_) | Op::TextArg(_) | Op::TextValue | Op::Indices | Op::RandomArray => len += 1,
                Op::Store(_) | Op::StoreText(_) | Op::Binary(_) | Op::Join(_) => len = len.saturating_sub(1),
                Op::JumpIfZero(_) | Op::Jump(_) | Op::OfPair(_) => len = len.saturating_sub(1),
                Op::FitInto { is_masked, .. } => len = len.saturating_sub(usize::from(*is_masked)),
                Op::Pick(_) | Op::StoreAt | Op::StoreTextAt => len = len.saturating_sub(2),
                Op::Many(_, n) => len = (len + 1).saturating_sub(usize::from(*n)),
                Op::Unary(_) | Op::Edit(_) | Op::Until(_) | Op::OfArray(_) => {}
            }
            most = most.max(len);
        }
        most
    }
}

struct Compiler<'a> {
    dialect: Dialect,
    text: &'a str,
    position: usize,
    ops: Vec<Op>,
    texts: Vec<Text>,
    depth: u8,
}

impl Compiler<'_> {
    /// Compiles assignments and exactly one expression, separated by semicolons, up to the end or a closing bracket.
    fn statements(&mut self, bracket: Option<&str>) -> Result<(), CalcError> {
        let is_over = |compiler: &Self| {
            compiler.is_at_end() || bracket.is_some_and(|bracket| compiler.rest().starts_with(bracket))
        };
        let mut has_result = false;
        self.blanks();
        while !is_over(self) {
            let start = self.position;
            if !self.assignment()? && !self.indexed_assignment()? {
                if has_result {
                    return Err(CalcError { position: start, reason: "only one result is possible" });
                }
                has_result = true;
            }
            self.blanks();
            if is_over(self) {
                break;
            }
            if !self.take(";") {
                return self.fail("an operator is missing");
            }
            self.blanks();
            if is_over(self) {
                return self.fail("an expression is missing after ';'");
            }
        }
        if has_result { Ok(()) } else { self.fail("the expression for the result is missing") }
    }

    /// Compiles `A:=...`, if the next statement is one.
    fn assignment(&mut self) -> Result<bool, CalcError> {
        let start = self.position;
        let store = self.text_argument().map(Op::StoreText).or_else(|| self.argument().map(Op::Store));
        if let Some(store) = store {
            self.blanks();
            if self.take(":=") {
                self.expression(0)?;
                self.ops.push(store);
                return Ok(true);
            }
        }
        self.position = start;
        Ok(false)
    }

    /// Compiles `@7:=...` or `@@7:=...`; anything else is an expression, and the result is false.
    fn indexed_assignment(&mut self) -> Result<bool, CalcError> {
        if self.dialect == Dialect::Numbers || !self.rest().starts_with('@') {
            self.expression(0)?;
            return Ok(false);
        }
        self.deeper()?;
        self.operand()?;
        self.blanks();
        let store = match self.ops.last() {
            Some(Op::Edit(Edit::Fetch)) => Some(Op::StoreAt),
            Some(Op::Edit(Edit::FetchText)) => Some(Op::StoreTextAt),
            _ => None,
        };
        if let Some(store) = store.filter(|_| self.rest().starts_with(":=")) {
            self.take(":=");
            self.ops.pop();
            self.expression(0)?;
            self.ops.push(store);
            self.depth -= 1;
            return Ok(true);
        }
        self.operators(0)?;
        Ok(false)
    }

    fn deeper(&mut self) -> Result<(), CalcError> {
        self.depth += 1;
        if self.depth > limit::CALC_DEPTH_MAX { self.fail("the expression is nested too deeply") } else { Ok(()) }
    }

    /// Compiles a value and the following operators with a precedence above `least`; `?:` has the lowest precedence.
    fn expression(&mut self, least: u8) -> Result<(), CalcError> {
        self.deeper()?;
        self.operand()?;
        self.operators(least)
    }

    /// Compiles the operators after the first value of an expression.
    fn operators(&mut self, least: u8) -> Result<(), CalcError> {
        loop {
            self.blanks();
            let start = self.position;
            if let Some((op, precedence)) = self.operator() {
                if precedence <= least {
                    self.position = start;
                    break;
                }
                self.expression(precedence)?;
                self.ops.push(op);
            } else if least == 0 && self.take("?") {
                self.condition()?;
            } else {
                break;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Compiles the branches after `?`.
    fn condition(&mut self) -> Result<(), CalcError> {
        let if_zero = self.ops.len();
        self.ops.push(Op::JumpIfZero(0));
        self.expression(0)?;
        self.blanks();
        if self.rest().starts_with(":=") || !self.take(":") {
            return self.fail("':' is missing after '?'");
        }
        let over = self.ops.len();
        self.ops.push(Op::Jump(0));
        self.patch(if_zero, Op::JumpIfZero);
        self.expression(0)?;
        self.patch(over, Op::Jump);
        Ok(())
    }

    fn patch(&mut self, at: usize, jump: fn(u16) -> Op) {
        let to = self.ops.len() as u16;
        if let Some(op) = self.ops.get_mut(at) {
            *op = jump(to);
        }
    }

    /// Compiles a value, and the ranges and replacements after it.
    fn operand(&mut self) -> Result<(), CalcError> {
        self.blanks();
        if self.take("(") {
            match self.dialect {
                Dialect::Texts | Dialect::Arrays => self.statements(Some(")"))?,
                Dialect::Numbers => self.expression(0)?,
            }
            self.close(")")?;
        } else {
            self.value()?;
        }
        while self.dialect != Dialect::Numbers {
            self.blanks();
            let (pick, end) = match self.rest().bytes().next() {
                Some(b'[') => (Pick::Range, "]"),
                Some(b'{') => (Pick::Replace, "}"),
                _ => break,
            };
            self.position += 1;
            self.expression(0)?;
            self.close(",")?;
            self.expression(0)?;
            self.close(end)?;
            self.ops.push(Op::Pick(pick));
        }
        Ok(())
    }

    fn value(&mut self) -> Result<(), CalcError> {
        let start = self.position;
        if let Some(op) = self.literal()? {
            self.ops.push(op);
            return Ok(());
        }
        let Some((name, operand)) = self.named() else {
            let op = self.text_argument().map(Op::TextArg).or_else(|| self.argument().map(Op::Arg));
            if let Some(op) = op {
                self.ops.push(op);
                return Ok(());
            }
            return self.fail(if self.is_at_end() { "a value is missing" } else { "this is not a value" });
        };
        self.position += name.len();
        match operand {
            WordKind::Push(op) => self.ops.push(op),
            WordKind::Prefix(unary) => {
                const TIGHTEST: u8 = 8;
                self.expression(TIGHTEST)?;
                self.ops.push(Op::Unary(unary));
            }
            WordKind::Call(unary) => {
                self.arguments(1, start)?;
                self.ops.push(Op::Unary(unary));
            }
            WordKind::Call2(binary) => {
                self.arguments(2, start)?;
                self.ops.push(Op::Binary(binary));
            }
            WordKind::Edit(edit) => {
                self.arguments(1, start)?;
                self.ops.push(Op::Edit(edit));
            }
            WordKind::Join(join) => {
                self.arguments(2, start)?;
                self.ops.push(Op::Join(join));
            }
            WordKind::Until => {
                self.blanks();
                if !self.take("(") {
                    return self.fail("'(' is missing");
                }
                let start = self.ops.len() as u16;
                self.statements(Some(")"))?;
                self.close(")")?;
                self.ops.push(Op::Until(start));
            }
            WordKind::OfArray(function) => {
                self.arguments(1, start)?;
                self.ops.push(Op::OfArray(function));
            }
            WordKind::OfPair(pair) => {
                self.arguments(2, start)?;
                self.ops.push(Op::OfPair(pair));
            }
            WordKind::Fit { is_masked } => self.fit(is_masked)?,
            WordKind::CallMany(many) => {
                let n = self.arguments(0, start)?;
                self.ops.push(Op::Many(many, n));
            }
        }
        Ok(())
    }

    /// Compiles the arguments of FITQ and FITMQ. Up to three names at the end are the arguments for the coefficients.
    fn fit(&mut self, is_masked: bool) -> Result<(), CalcError> {
        self.blanks();
        if !self.take("(") {
            return self.fail("'(' is missing");
        }
        self.expression(0)?;
        if is_masked {
            self.close(",")?;
            self.expression(0)?;
        }
        let mut into = [NO_ARG; 3];
        for place in &mut into {
            self.blanks();
            if !self.take(",") {
                break;
            }
            self.blanks();
            match self.argument() {
                Some(arg) => *place = arg,
                None => return self.fail("this is not the name of an argument"),
            }
        }
        self.close(")")?;
        self.ops.push(Op::FitInto { is_masked, into });
        Ok(())
    }

    /// Compiles the arguments of a function. `expected`: their number; 0: at least one.
    fn arguments(&mut self, expected: u8, start: usize) -> Result<u8, CalcError> {
        self.blanks();
        if !self.take("(") {
            if expected != 1 {
                return self.fail("'(' is missing");
            }
            // Base accepts a function without brackets, like an operator: SIN A.
            self.expression(8)?;
            return Ok(1);
        }
        let mut n = 0_u8;
        loop {
            self.expression(0)?;
            n = n.saturating_add(1);
            self.blanks();
            if !self.take(",") {
                break;
            }
        }
        self.close(")")?;
        if expected != 0 && n != expected {
            return Err(CalcError { position: start, reason: "wrong number of arguments" });
        }
        Ok(n)
    }

    fn close(&mut self, end: &str) -> Result<(), CalcError> {
        self.blanks();
        if self.take(end) {
            return Ok(());
        }
        self.fail(match end {
            ")" => "')' is missing",
            "]" => "']' is missing",
            "}" => "'}' is missing",
            _ => "',' is missing",
        })
    }

    /// The longest name at this position: ABS is not A.
    fn named(&self) -> Option<(&'static str, WordKind)> {
        let more: &[_] = match self.dialect {
            Dialect::Numbers => &[],
            Dialect::Texts => TEXT_OPERANDS,
            Dialect::Arrays => ARRAY_OPERANDS,
        };
        // Of two names of the same length, the last one is used.
        let all = OPERANDS.iter().chain(more).filter(|(name, _)| self.starts_with(name));
        all.max_by_key(|(name, _)| name.len()).copied()
    }

    fn operator(&mut self) -> Option<(Op, u8)> {
        let more: &[_] = match self.dialect {
            Dialect::Numbers => &[],
            Dialect::Texts => TEXT_OPERATORS,
            Dialect::Arrays => ARRAY_OPERATORS,
        };
        let numbers = OPERATORS.iter().map(|(name, binary, precedence)| (*name, Op::Binary(*binary), *precedence));
        let found = numbers.chain(more.iter().copied()).filter(|(name, ..)| self.starts_with(name));
        let (name, op, precedence) = found.max_by_key(|(name, ..)| name.len())?;
        self.position += name.len();
        Some((op, precedence))
    }

    /// Parses A to U, or A to P, in upper or lower case.
    fn argument(&mut self) -> Option<u8> {
        let n_args = if self.dialect == Dialect::Numbers { N_ARGS as u8 } else { N_SYNAPPS_ARGS };
        let index = self.letter(0).filter(|index| *index < n_args)?;
        self.position += 1;
        Some(index)
    }

    /// Parses AA to LL, in upper or lower case.
    fn text_argument(&mut self) -> Option<u8> {
        let index = self.letter(0).filter(|index| self.letter(1) == Some(*index))?;
        if self.dialect == Dialect::Numbers || index >= N_TEXT_ARGS {
            return None;
        }
        self.position += 2;
        Some(index)
    }

    /// The index of the letter `ahead` characters from here, from 0 for A.
    fn letter(&self, ahead: usize) -> Option<u8> {
        let letter = self.rest().as_bytes().get(ahead)?.to_ascii_uppercase();
        letter.is_ascii_uppercase().then(|| letter - b'A')
    }

    /// Parses a number, or a text in quotes.
    fn literal(&mut self) -> Result<Option<Op>, CalcError> {
        let quote = self.rest().chars().next().filter(|first| matches!(first, '"' | '\''));
        let Some(quote) = quote.filter(|_| self.dialect == Dialect::Texts) else {
            return Ok(self.number()?.map(Op::Number));
        };
        let Some((text, _)) = self.rest().get(1..).and_then(|rest| rest.split_once(quote)) else {
            return self.fail("the closing quote is missing");
        };
        let (text, n_bytes) = (Text::from(text), text.len());
        let Ok(index) = u8::try_from(self.texts.len()) else { return self.fail("there are too many texts") };
        self.texts.push(text);
        self.position += n_bytes + 2;
        Ok(Some(Op::Literal(index)))
    }

    fn number(&mut self) -> Result<Option<f64>, CalcError> {
        let rest = self.rest().as_bytes();
        if rest.starts_with(b"0x") || rest.starts_with(b"0X") {
            let n = rest.iter().skip(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
            let digits = self.rest().get(2..2 + n).unwrap_or_default();
            return match u32::from_str_radix(digits, 16) {
                Ok(bits) => {
                    self.position += 2 + n;
                    // 32 bits with a sign, as in Base.
                    Ok(Some(f64::from(bits as i32)))
                }
                Err(_) => self.fail("this is not a number"),
            };
        }
        let is_number = rest.first().is_some_and(|first| first.is_ascii_digit() || *first == b'.');
        let is_word = self.starts_with("INF") || self.starts_with("NAN");
        if !is_number && !is_word {
            return Ok(None);
        }
        match number_at_start(self.rest()) {
            Ok((number, n_bytes)) => {
                self.position += n_bytes;
                Ok(Some(number))
            }
            Err(_) => self.fail("this is not a number"),
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn blanks(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start().len();
    }

    fn starts_with(&self, name: &str) -> bool {
        self.rest().get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    }

    fn take(&mut self, name: &str) -> bool {
        let is_there = self.starts_with(name);
        if is_there {
            self.position += name.len();
        }
        is_there
    }

    fn fail<T>(&self, reason: &'static str) -> Result<T, CalcError> {
        Err(CalcError { position: self.position, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> f64 {
        let mut args = [0.0; 21];
        for (index, arg) in args.iter_mut().enumerate() {
            *arg = index as f64 + 1.0;
        }
        match CompiledExpression::compile(text) {
            Ok(program) => program.run(&mut args, 100.0).unwrap_or(f64::NAN),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn operator_precedence_is_the_same_as_in_epics_base() {
        assert_eq!(run("1+2*3"), 7.0);
        assert_eq!(run("2^3^2"), 64.0);
        assert_eq!(run("-2^2"), 4.0);
        assert_eq!(run("1|2&3"), 3.0);
        assert_eq!(run("1+1<<2"), 8.0);
        assert_eq!(run("A=1&&B#1"), 1.0);
        assert_eq!(run("7%4"), 3.0);
    }

    #[test]
    fn conditional_expressions_can_be_nested() {
        assert_eq!(run("A>5?1:B>1?2:3"), 2.0);
        assert_eq!(run("A?B?10:20:30"), 10.0);
    }

    #[test]
    fn assignments_change_the_inputs() {
        assert_eq!(run("A:=10;A+B"), 12.0);
        assert_eq!(run("A+B;A:=10"), 3.0);
    }

    #[test]
    fn function_names_need_no_separating_blanks() {
        assert_eq!(run("MAX(A,B,C)"), 3.0);
        assert_eq!(run("aORb"), 3.0);
        assert!((run("ATAN2(1,0)")).abs() < 1e-15);
        assert_eq!(run("ABS(-3)"), 3.0);
        assert_eq!(run("VAL+1"), 101.0);
        assert_eq!(run("NINT(-2.5)"), -3.0);
        assert!(run("ISNAN(NAN)") == 1.0);
        assert_eq!(run("0x1F"), 31.0);
        assert_eq!(run("0xFFFFFFFF"), -1.0);
        assert_eq!(run("~0"), -1.0);
        assert_eq!(run("-1>>>28"), 15.0);
    }

    #[test]
    fn inf_and_nan_literals_are_accepted_and_out_of_range_numbers_rejected() {
        for text in ["INF", "inf", "Infinity", "infinity+1", "ABS(-INFINITY)"] {
            assert_eq!(run(text), f64::INFINITY, "{text}");
        }
        for text in ["NAN", "nan(0x7)", "nan()+1"] {
            assert!(run(text).is_nan(), "{text}");
        }
        for text in
            ["infinit", "nana", "nan(", "0x", "0x100000000", "1e999", "1e-999", "1e-310", ".", ".e5", "00x1", "1e"]
        {
            assert!(CompiledExpression::compile(text).is_err(), "{text}");
        }
        assert_eq!((run("1."), run(".5"), run("010"), run("0X1f")), (1.0, 0.5, 10.0, 31.0));
    }

    #[test]
    fn division_by_zero_returns_infinity_and_modulo_zero_returns_nan() {
        assert_eq!(run("1/0"), f64::INFINITY);
        assert!(run("1%0").is_nan());
    }

    #[test]
    fn expression_errors_are_reported_with_their_position() {
        let error =
            |text| CompiledExpression::compile(text).map(|_| ()).map_err(|error| (error.position, error.reason));

        assert_eq!(error("A+"), Err((2, "a value is missing")));
        assert_eq!(error("(A"), Err((2, "')' is missing")));
        assert_eq!(error("A B"), Err((2, "an operator is missing")));
        assert_eq!(error(""), Err((0, "the expression for the result is missing")));
        assert_eq!(error("A;B"), Err((2, "only one result is possible")));
        assert_eq!(error("A?B"), Err((3, "':' is missing after '?'")));
        assert_eq!(error("A;"), Err((2, "an expression is missing after ';'")));
        assert_eq!(error("W"), Err((0, "this is not a value")));
    }

    #[test]
    fn a_deeply_nested_expression_is_rejected_without_stack_overflow() {
        assert!(CompiledExpression::compile(&"(".repeat(10_000)).is_err());
        assert!(CompiledExpression::compile(&"-".repeat(10_000)).is_err());
    }

    #[test]
    fn equal_numbers_are_neither_less_nor_greater_and_zero_has_no_bits() {
        assert_eq!(["A<A", "A<=A", "A>A", "A>=A", "A=A", "A#A"].map(run), [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(["0|0", "0&7", "~0", "-1|0", "0>>1", "NINT(0)"].map(run), [0.0, 0.0, -1.0, -1.0, 0.0, 0.0]);
        assert_eq!(
            ["4294967295|0", "4294967296|1", "-2147483648|0", "-2147483649|0"].map(run),
            [-1.0, 1.0, -2_147_483_648.0, -2_147_483_648.0]
        );
    }

    #[test]
    fn an_expression_may_need_eighty_values_on_the_stack_and_not_one_more() {
        let most = |n: usize| format!("MAX({})", vec!["1"; n].join(","));
        for (expression, is_accepted) in [
            (most(80), true),
            (most(81), false),
            (format!("MAX(1,2)+{}", most(79)), true),
            (format!("MAX(1,2)+{}", most(80)), false),
            (format!("(A?1:2)+{}", most(79)), true),
            (format!("(A?1:2)+{}", most(80)), false),
        ] {
            assert_eq!(CompiledExpression::compile(&expression).is_ok(), is_accepted, "{expression}");
        }
    }

    #[test]
    fn an_expression_of_too_many_operations_is_rejected() {
        let sum = |n: usize| CompiledExpression::compile(&vec!["1"; n].join("+")).map_err(|error| error.reason);

        // A number, and two operations for each further one.
        assert!(sum(32_768).is_ok());
        assert_eq!(sum(32_769).err(), Some("the expression is too long"));
    }
}
