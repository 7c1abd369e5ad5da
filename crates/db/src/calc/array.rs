//! Runs expressions whose values are numbers and arrays, for acalcout.
//!
//! Source: synApps calc, the documentation of the aCalcout record, and the behaviour of aCalcPerform for each operator.

use std::sync::Arc;

use super::fit::{Quadratic, derivative};
use super::run::{index, random, random_normal, truth};
use super::{ArrayFunction, ArrayPair, Binary, CompiledExpression, Edit, Join, Many, NO_ARG, Op, Pick, Unary};

/// The result of a division by zero.
const MOST: f64 = 1e35_f32 as f64;
/// Numbers closer to 0 than this count as 0.
const SMALL: f64 = 1e-9;

/// A value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Number(f64),
    Array(Elements),
}

/// An array; all arrays in an expression have the same length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Elements {
    all: Vec<f64>,
    /// The number of elements at the start that a range selected. Functions of the whole array use only these.
    n_counted: usize,
}

/// The inputs of an expression; it may also assign the arguments.
#[derive(Debug)]
pub(crate) struct ArrayInputs<'a> {
    /// A, B...
    pub(crate) args: &'a mut [f64],
    /// AA, BB...
    pub(crate) arrays: &'a mut [Arc<Vec<f64>>],
    /// A bit for each array that was assigned; AA is the lowest.
    pub(crate) assigned: u32,
    /// VAL
    pub(crate) value: f64,
    /// AVAL
    pub(crate) array: &'a [f64],
    /// The length of each array; not 0.
    pub(crate) n: usize,
}

impl Elements {
    fn new(all: Vec<f64>) -> Elements {
        Elements { n_counted: all.len(), all }
    }

    fn counted(&self) -> &[f64] {
        self.all.get(..self.n_counted).unwrap_or(&self.all)
    }

    fn map(mut self, change: impl Fn(f64) -> f64) -> Elements {
        self.all.iter_mut().for_each(|element| *element = change(*element));
        self
    }

    /// Replaces the counted elements, and sets the others to 0.
    fn with_counted(mut self, counted: Vec<f64>) -> Elements {
        let n = self.all.len();
        self.all = counted;
        self.all.resize(n, 0.0);
        self
    }
}

impl Item {
    fn number(&self) -> f64 {
        match self {
            Item::Number(number) => *number,
            Item::Array(elements) => elements.all.first().copied().unwrap_or(0.0),
        }
    }

    /// Converts to an array; a number is repeated, and NaN becomes 0.
    fn elements(self, n: usize) -> Elements {
        match self {
            Item::Number(number) => Elements::new(vec![if number.is_nan() { 0.0 } else { number }; n]),
            Item::Array(elements) => elements,
        }
    }

    /// The results for VAL and AVAL.
    pub(crate) fn results(self, n: usize) -> (f64, Vec<f64>) {
        (self.number(), self.elements(n).all)
    }

    fn at(&self, index: usize) -> f64 {
        match self {
            Item::Number(number) => *number,
            Item::Array(elements) => elements.all.get(index).copied().unwrap_or(0.0),
        }
    }
}

impl CompiledExpression {
    /// The result. `None`: an operation is impossible.
    pub(crate) fn run_array(&self, inputs: &mut ArrayInputs) -> Option<Item> {
        self.run_with(Item::number, |op, stack| inputs.step(op, stack))
    }
}

impl ArrayInputs<'_> {
    fn step(&mut self, op: Op, stack: &mut Vec<Item>) -> Option<()> {
        let n = self.n;
        let pushed = match op {
            Op::Number(number) => Item::Number(number),
            Op::Arg(index) => Item::Number(self.args.get(usize::from(index)).copied().unwrap_or(0.0)),
            Op::Value => Item::Number(self.value),
            Op::Random => Item::Number(random()),
            Op::Normal => Item::Number(random_normal()),
            Op::TextArg(index) => self.fetch(index.into()),
            Op::TextValue => Item::Array(sized(self.array, n)),
            Op::Indices => Item::Array(Elements::new((0..n).map(|index| index as f64).collect())),
            Op::RandomArray => Item::Array(Elements::new((0..n).map(|_| random()).collect())),
            Op::Store(_) | Op::StoreText(_) | Op::StoreAt | Op::StoreTextAt => return self.store(op, stack),
            Op::Unary(unary) => apply_unary(unary, stack.pop()?)?,
            Op::Binary(binary) => {
                let right = stack.pop()?;
                apply_binary(binary, stack.pop()?, right, n)
            }
            Op::Many(many, n_args) => {
                let operands = stack.split_off(stack.len().checked_sub(usize::from(n_args))?);
                apply_many(many, operands, n)?
            }
            Op::Edit(Edit::Fetch) => Item::Number(
                index(stack.pop()?.number()).and_then(|index| self.args.get(index)).copied().unwrap_or(0.0),
            ),
            Op::Edit(Edit::FetchText) => self.fetch(index(stack.pop()?.number()).unwrap_or(usize::MAX)),
            Op::Edit(Edit::ToNumber) => Item::Number(stack.pop()?.number()),
            Op::Join(join @ (Join::Lesser | Join::Greater)) => {
                let right = stack.pop()?;
                let is_right = |left: f64, right: f64| if join == Join::Lesser { left > right } else { left < right };
                zipped(stack.pop()?, &right, n, |left, right| if is_right(left, right) { right } else { left })
            }
            Op::Pick(pick) => {
                let (last, first) = (stack.pop()?.number(), stack.pop()?.number());
                Item::Array(pick.part(stack.pop()?.elements(n), first, last))
            }
            Op::OfArray(function) => match stack.pop()? {
                Item::Number(number) => function.of_number(number, n),
                Item::Array(elements) => function.apply(elements)?,
            },
            Op::OfPair(pair) => {
                let right = stack.pop()?;
                pair.apply(stack.pop()?, right, n)?
            }
            Op::FitInto { is_masked, into } => {
                let mask = if is_masked { Some(stack.pop()?.elements(n)) } else { None };
                let (fit, curve) = fitted(stack.pop()?.elements(n), mask.as_ref())?;
                for (place, coefficient) in into.iter().zip([fit.constant, fit.linear, fit.square]) {
                    if let Some(arg) = self.args.get_mut(usize::from(*place)).filter(|_| *place != NO_ARG) {
                        *arg = coefficient;
                    }
                }
                Item::Array(curve)
            }
            // These are not in the language of arrays.
            Op::Literal(_) | Op::Edit(_) | Op::Join(_) => return None,
            Op::JumpIfZero(_) | Op::Jump(_) | Op::Until(_) => return None,
        };
        stack.push(pushed);
        Some(())
    }

    fn fetch(&self, index: usize) -> Item {
        Item::Array(sized(self.arrays.get(index).map_or(&[][..], |array| array.as_slice()), self.n))
    }

    /// Assigns the top of the stack to an argument; ignored if the argument does not exist.
    fn store(&mut self, op: Op, stack: &mut Vec<Item>) -> Option<()> {
        let value = stack.pop()?;
        let (place, is_array) = match op {
            Op::Store(place) => (Some(usize::from(place)), false),
            Op::StoreText(place) => (Some(usize::from(place)), true),
            Op::StoreAt => (index(stack.pop()?.number()), false),
            _ => (index(stack.pop()?.number()), true),
        };
        let Some(place) = place else { return Some(()) };
        if is_array && let Some(array) = self.arrays.get_mut(place) {
            *array = Arc::new((0..self.n).map(|index| value.at(index)).collect());
            self.assigned |= 1 << place;
        }
        if !is_array && let Some(arg) = self.args.get_mut(place) {
            *arg = value.number();
        }
        Some(())
    }
}

/// An array of exactly `n` elements: truncated, or filled up with 0.
fn sized(array: &[f64], n: usize) -> Elements {
    let mut all = array.to_vec();
    all.resize(n, 0.0);
    Elements::new(all)
}

/// The logarithm or root of an array with negative elements is an error; of a negative number it is 0.
fn apply_unary(unary: Unary, operand: Item) -> Option<Item> {
    let is_refused = |number: f64| matches!(unary, Unary::Sqrt | Unary::Ln | Unary::Log10) && number < 0.0;
    let apply = |number: f64| match unary {
        Unary::Nint => (number + 0.5_f64.copysign(number)).trunc(),
        _ if is_refused(number) => 0.0,
        unary => unary.apply(number),
    };
    match operand {
        Item::Number(number) => Some(Item::Number(apply(number))),
        Item::Array(elements) if elements.all.iter().any(|element| is_refused(*element)) => None,
        Item::Array(elements) => Some(Item::Array(elements.map(apply))),
    }
}

/// Operates element by element if one operand is an array.
fn apply_binary(binary: Binary, left: Item, right: Item, n: usize) -> Item {
    match (binary, left) {
        (Binary::ShiftLeft | Binary::ShiftRight, Item::Array(elements)) => {
            let by = right.number();
            Item::Array(shifted(elements, if binary == Binary::ShiftLeft { -by } else { by }))
        }
        (Binary::Power | Binary::ShiftLeft | Binary::ShiftRight, left) => {
            let right = Item::Number(right.number());
            zipped(left, &right, n, |left, right| binary.apply(left, right))
        }
        (Binary::Divide, left) => zipped(left, &right, n, |left, right| if right == 0.0 { MOST } else { left / right }),
        (Binary::Modulo, left) => {
            zipped(left, &right, n, |left, right| (left as i32).checked_rem(right as i32).map_or(MOST, f64::from))
        }
        (binary, left) => zipped(left, &right, n, |left, right| binary.apply(left, right)),
    }
}

fn zipped(left: Item, right: &Item, n: usize, apply: impl Fn(f64, f64) -> f64) -> Item {
    match (left, right) {
        (Item::Number(left), Item::Number(right)) => Item::Number(apply(left, *right)),
        (left, right) => {
            let mut left = left.elements(n);
            left.all.iter_mut().enumerate().for_each(|(index, left)| *left = apply(*left, right.at(index)));
            Item::Array(left)
        }
    }
}

fn apply_many(many: Many, operands: Vec<Item>, n: usize) -> Option<Item> {
    let is_array = |item: &Item| matches!(item, Item::Array(_));
    if matches!(many, Many::IsNan | Many::Finite) {
        let all = operands.iter().flat_map(|item| match item {
            Item::Number(number) => std::slice::from_ref(number),
            Item::Array(elements) => &elements.all,
        });
        return Some(Item::Number(many.apply(&all.copied().collect::<Vec<f64>>())));
    }
    if !operands.iter().any(is_array) {
        let numbers: Vec<f64> = operands.iter().map(Item::number).collect();
        return Some(Item::Number(many.apply(&numbers)));
    }
    let is_better = |next: f64, best: f64| if many == Many::Max { next > best } else { next < best };
    let mut operands = operands.into_iter();
    let first = Item::Array(operands.next()?.elements(n));
    Some(
        operands.fold(first, |best, next| {
            zipped(best, &next, n, |best, next| if is_better(next, best) { next } else { best })
        }),
    )
}

/// Shifts elements right or left; fractions of an element by linear interpolation.
fn shifted(mut elements: Elements, by: f64) -> Elements {
    let n = elements.all.len();
    let whole = by.round();
    let distance = (whole.abs() as usize).min(n);
    if whole > 0.0 {
        elements.all.rotate_right(distance);
        elements.all.iter_mut().take(distance).for_each(|element| *element = 0.0);
    } else {
        elements.all.rotate_left(distance);
        elements.all.iter_mut().skip(n - distance).for_each(|element| *element = 0.0);
    }
    let rest = (by - whole).abs();
    if rest <= SMALL || n < 2 {
        return elements;
    }
    if by > whole {
        elements.all.reverse();
    }
    for index in 0..n {
        // The last element uses the slope of the previous one.
        let (near, far) = if index + 1 < n { (index, index + 1) } else { (index - 1, index) };
        let slope = elements.all.get(far).zip(elements.all.get(near)).map_or(0.0, |(far, near)| far - near);
        if let Some(element) = elements.all.get_mut(index) {
            *element += rest * slope;
        }
    }
    if by > whole {
        elements.all.reverse();
    }
    elements
}

impl Pick {
    /// A part of an array: moved to the start, or kept in place with zeros around it.
    fn part(self, mut elements: Elements, first: f64, last: f64) -> Elements {
        let n = elements.all.len();
        let counted = |number: f64| if number < 0.0 { number as i64 + n as i64 } else { number as i64 };
        let from = counted(first).clamp(0, n as i64) as usize;
        let end = (counted(last).saturating_add(1).clamp(0, n as i64) as usize).max(from);
        let part = elements.all.get(from..end).unwrap_or_default().to_vec();
        if self == Pick::Range {
            elements.n_counted = part.len();
            return elements.with_counted(part);
        }
        elements.n_counted = end;
        let before = vec![0.0; from];
        elements.with_counted([before, part].concat())
    }
}

impl ArrayFunction {
    fn of_number(self, number: f64, n: usize) -> Item {
        Item::Number(match self {
            ArrayFunction::ToArray => return Item::Array(Item::Number(number).elements(n)),
            ArrayFunction::IndexOfZero => truth(number.abs() < SMALL) - 1.0,
            ArrayFunction::IndexOfNonZero => truth(number.abs() > SMALL) - 1.0,
            ArrayFunction::IndexOfMax | ArrayFunction::IndexOfMin | ArrayFunction::Deviation => 0.0,
            ArrayFunction::Width | ArrayFunction::Derivative | ArrayFunction::Fit => 0.0,
            _ => number,
        })
    }

    fn apply(self, elements: Elements) -> Option<Item> {
        let counted = elements.counted();
        let n = counted.len() as f64;
        let sum: f64 = counted.iter().sum();
        Some(Item::Number(match self {
            ArrayFunction::Max => *counted.get(extreme(counted, |next, best| next > best)).unwrap_or(&0.0),
            ArrayFunction::Min => *counted.get(extreme(counted, |next, best| next < best)).unwrap_or(&0.0),
            ArrayFunction::IndexOfMax => extreme(counted, |next, best| next > best) as f64,
            ArrayFunction::IndexOfMin => extreme(counted, |next, best| next < best) as f64,
            ArrayFunction::IndexOfZero => zero_crossing(counted),
            ArrayFunction::IndexOfNonZero => {
                counted.iter().position(|element| element.abs() > SMALL).map_or(-1.0, |index| index as f64)
            }
            ArrayFunction::Average => sum / n,
            ArrayFunction::Deviation => {
                let squares: f64 = counted.iter().map(|element| (element - sum / n).powi(2)).sum();
                (squares / (n - 1.0).max(1.0)).sqrt()
            }
            ArrayFunction::Width => width(counted),
            ArrayFunction::Sum => sum,
            ArrayFunction::ToArray => return Some(Item::Array(elements)),
            ArrayFunction::Cumulate => return Some(Item::Array(cumulated(elements))),
            ArrayFunction::Smooth => return Some(Item::Array(smoothed(elements))),
            ArrayFunction::Derivative => {
                let derived = derivative(counted, 2)?;
                return Some(Item::Array(elements.with_counted(derived)));
            }
            ArrayFunction::Fit => return Some(Item::Array(fitted(elements, None)?.1)),
        }))
    }
}

impl ArrayPair {
    fn apply(self, left: Item, right: Item, n: usize) -> Option<Item> {
        match (self, left) {
            (ArrayPair::Smooth, Item::Number(number)) => Some(Item::Number(number)),
            (ArrayPair::Smooth, Item::Array(mut elements)) => {
                elements.n_counted = n;
                // More rounds than elements have no visible effect.
                let n_rounds = (right.number().max(0.0) as usize).min(n);
                Some(Item::Array((0..n_rounds).fold(elements, |elements, _| smoothed(elements))))
            }
            (ArrayPair::Derivative, left) => {
                let elements = left.elements(n);
                let n_around = (right.number().max(0.0) as usize).min(elements.n_counted.saturating_sub(1) / 2);
                let derived = derivative(elements.counted(), n_around)?;
                Some(Item::Array(elements.with_counted(derived)))
            }
            (ArrayPair::FitMasked, left) => {
                let Item::Array(mask) = right else { return None };
                Some(Item::Array(fitted(left.elements(n), Some(&mask))?.1))
            }
            (ArrayPair::Join, Item::Number(number)) if matches!(right, Item::Number(_)) => Some(Item::Number(number)),
            (ArrayPair::Join, left) => {
                let elements = left.elements(n);
                let mut joined = elements.counted().to_vec();
                match &right {
                    Item::Number(number) => joined.push(*number),
                    Item::Array(right) => joined.extend(right.counted()),
                }
                joined.truncate(n);
                Some(Item::Array(Elements { n_counted: joined.len(), ..elements.with_counted(joined) }))
            }
        }
    }
}

/// The index of the first extreme element.
fn extreme(counted: &[f64], is_better: impl Fn(f64, f64) -> bool) -> usize {
    let mut best = (0, counted.first().copied().unwrap_or(0.0));
    for (index, element) in counted.iter().enumerate() {
        if is_better(*element, best.1) {
            best = (index, *element);
        }
    }
    best.0
}

/// The position where a line through the elements first crosses 0; -1 if it never does.
fn zero_crossing(counted: &[f64]) -> f64 {
    let is_above = counted.first().is_some_and(|first| *first > 0.0);
    let pairs = counted.windows(2).enumerate().filter_map(|(index, pair)| Some((index, *pair.first()?, *pair.last()?)));
    let crossing = pairs.into_iter().find(|(_, _, after)| (*after > 0.0) != is_above);
    crossing.map_or(-1.0, |(index, before, after)| index as f64 + before.abs() / (before - after).abs())
}

/// Full width at half maximum, in elements.
fn width(counted: &[f64]) -> f64 {
    let peak = extreme(counted, |next, best| next > best);
    let (most, least) =
        (counted.iter().copied().fold(f64::MIN, f64::max), counted.iter().copied().fold(f64::MAX, f64::min));
    let half = least + (most - least) / 2.0;
    let crossing = |below: usize, above: usize| {
        let (low, high) = (counted.get(below).copied().unwrap_or(half), counted.get(above).copied().unwrap_or(half));
        below as f64 + (half - low) / (high - low) * (above as f64 - below as f64)
    };
    let after = (peak + 1..counted.len()).find(|index| counted.get(*index).is_some_and(|element| *element < half));
    let before = (0..peak).rev().find(|index| counted.get(*index).is_some_and(|element| *element < half));
    let end = after.map_or(counted.len().saturating_sub(1) as f64, |index| crossing(index, index - 1));
    end - before.map_or(0.0, |index| crossing(index, index + 1))
}

fn cumulated(mut elements: Elements) -> Elements {
    let mut sum = 0.0;
    for element in &mut elements.all {
        sum += *element;
        *element = sum;
    }
    elements
}

/// Replaces each element, except two at either end, by a weighted mean of five.
fn smoothed(mut elements: Elements) -> Elements {
    const WEIGHTS: [f64; 5] = [1.0 / 16.0, 1.0 / 4.0, 3.0 / 8.0, 1.0 / 4.0, 1.0 / 16.0];
    let around = |five: &[f64]| five.iter().zip(WEIGHTS).map(|(element, weight)| element * weight).sum();
    let means: Vec<f64> = elements.counted().windows(WEIGHTS.len()).map(around).collect();
    elements.all.iter_mut().skip(2).zip(means).for_each(|(element, mean)| *element = mean);
    elements
}

/// Fits a quadratic curve to the counted elements; with a mask, to the elements whose mask is above 1e-8.
fn fitted(elements: Elements, mask: Option<&Elements>) -> Option<(Quadratic, Elements)> {
    let n_counted = mask.map_or(elements.n_counted, |mask| mask.n_counted);
    let points = elements.all.iter().copied().take(n_counted).enumerate();
    let is_used = |index: usize| mask.is_none_or(|mask| mask.all.get(index).is_some_and(|element| *element > 1e-8));
    let fit = Quadratic::fit(points.filter(|(index, _)| is_used(*index)).map(|(index, y)| (index as f64, y)))?;
    let curve = (0..n_counted).map(|index| fit.at(index as f64)).collect();
    Some((fit, elements.with_counted(curve)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 7;

    fn run(expression: &str) -> Option<(Item, Vec<f64>, Vec<Vec<f64>>)> {
        let mut args: Vec<f64> = (1..=12).map(f64::from).collect();
        let rows: [&[f64]; 4] = [&[1.0, 2.0, 4.0, 8.0, 4.0, 2.0, 1.0], &[3.0, 1.0, -1.0, -2.0], &[0.0; N], &[1.0; N]];
        let mut arrays: Vec<Arc<Vec<f64>>> = rows.iter().map(|row| Arc::new(row.to_vec())).collect();
        let program = CompiledExpression::compile_array(expression).map_err(|error| (expression, error)).ok()?;
        let array: Vec<f64> = vec![5.0; N];
        let mut inputs =
            ArrayInputs { args: &mut args, arrays: &mut arrays, assigned: 0, value: 100.0, array: &array, n: N };
        let result = program.run_array(&mut inputs)?;
        Some((result, args, arrays.iter().map(|array| array.to_vec()).collect()))
    }

    fn array(expression: &str) -> Vec<f64> {
        match run(expression) {
            Some((Item::Array(elements), ..)) => elements.all,
            _ => Vec::new(),
        }
    }

    fn number(expression: &str) -> f64 {
        match run(expression) {
            Some((Item::Number(number), ..)) => number,
            _ => f64::NAN,
        }
    }

    #[test]
    fn operators_act_elementwise_and_scalars_are_broadcast_to_arrays() {
        assert_eq!(array("AA+1"), [2.0, 3.0, 5.0, 9.0, 5.0, 3.0, 2.0]);
        assert_eq!(array("2*BB"), [6.0, 2.0, -2.0, -4.0, 0.0, 0.0, 0.0]);
        assert_eq!(array("AA>3"), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(array("-IX"), [0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        assert_eq!(array("MAX(AA,3,BB)"), [3.0, 3.0, 4.0, 8.0, 4.0, 3.0, 3.0]);
        assert_eq!(array("MIN(AA,3,BB)"), [1.0, 1.0, -1.0, -2.0, 0.0, 0.0, 0.0]);
        assert_eq!(array("MIN(3,AA)"), [1.0, 2.0, 3.0, 3.0, 3.0, 2.0, 1.0]);
        assert_eq!(array("AA<?3"), [1.0, 2.0, 3.0, 3.0, 3.0, 2.0, 1.0]);
        assert_eq!(array("IX^2")[6], 36.0);
        assert_eq!(array("ARR(A)"), [1.0; N]);
        assert_eq!(array("AVAL"), [5.0; N]);
        assert_eq!((number("A+B*C"), number("DBL(AA)"), number("VAL")), (7.0, 1.0, 100.0));
        assert_eq!(array("AA/0"), [MOST; N]);
        assert_eq!(array("A>2?AA:DD"), [1.0; N]);
    }

    #[test]
    fn array_functions_return_a_number() {
        let numbers = ["AMAX(AA)", "AMIN(BB)", "IXMAX(AA)", "IXMIN(BB)", "SUM(AA)", "AVG(DD)", "STD(DD)", "IXNZ(BB)"];
        assert_eq!(numbers.map(number), [8.0, -2.0, 3.0, 3.0, 22.0, 1.0, 0.0, 0.0]);
        assert_eq!(number("IXZ(BB)"), 1.5);
        assert_eq!([number("IXZ(AA)"), number("IXNZ(CC)")], [-1.0, -1.0]);
        // Half of the range 1 to 8 is at 4.5, an eighth of the way from 4 to 8 on either side.
        assert_eq!(number("FWHM(AA)"), 1.75);
        assert_eq!((number("STD(AA)") * 1000.0).round(), 2478.0);
        assert_eq!((number("ISNAN(AA,NAN)"), number("FINITE(AA,B)")), (1.0, 1.0));
    }

    #[test]
    fn subranges_are_shifted_or_kept_in_place_and_limit_array_functions() {
        assert_eq!(array("AA[2,4]"), [4.0, 8.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(array("AA{2,4}"), [0.0, 0.0, 4.0, 8.0, 4.0, 0.0, 0.0]);
        assert_eq!(array("AA[-2,-1]"), [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!([number("AVG(AA[2,4])"), number("AMIN(AA[2,4])"), number("AMIN(AA)")], [16.0 / 3.0, 4.0, 1.0]);
        assert_eq!(array("CAT(AA[3,4],BB[0,1])"), [8.0, 4.0, 3.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(array("CAT(AA[3,3],9)"), [8.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(array("AA[4,2]"), [0.0; N]);
        assert_eq!(array("AA[-100,100]"), array("AA"));
    }

    #[test]
    fn array_shifts_accept_fractional_offsets() {
        assert_eq!(array("AA>>2"), [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 4.0]);
        assert_eq!(array("AA<<1"), [2.0, 4.0, 8.0, 4.0, 2.0, 1.0, 0.0]);
        assert_eq!(array("IX<<0.25"), [0.25, 1.25, 2.25, 3.25, 4.25, 5.25, 6.1875]);
        assert_eq!(array("IX>>100"), [0.0; N]);
        assert_eq!(number("4>>1"), 2.0);
    }

    #[test]
    fn arrays_are_smoothed_summed_differentiated_and_fitted() {
        let close =
            |left: Vec<f64>, right: [f64; N]| left.iter().zip(right).all(|(left, right)| (left - right).abs() < 1e-9);
        assert_eq!(array("SMOO(AA)"), [1.0, 2.0, 4.3125, 5.25, 4.3125, 2.0, 1.0]);
        assert_eq!(array("NSMOO(AA,1)"), array("SMOO(AA)"));
        assert_eq!(array("NSMOO(AA,2)"), array("SMOO(SMOO(AA))"));
        assert_eq!(array("CUM(DD)"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert!(close(array("DERIV(IX*IX)"), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]));
        assert!(close(array("NDERIV(3*IX,1)"), [3.0; N]));
        assert!(close(array("FITPOLY(1+IX+IX*IX)"), [1.0, 3.0, 7.0, 13.0, 21.0, 31.0, 43.0]));
        assert!(close(array("FITMPOLY(IX+9*(IX=2),IX#2)"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let (curve, args, _) = run("FITQ(1+2*IX+3*IX*IX,D,E,F)").unwrap_or((Item::Number(0.0), Vec::new(), Vec::new()));
        assert!(matches!(curve, Item::Array(_)));
        assert!(args.get(3..6).is_some_and(|args| args.iter().zip([1.0, 2.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-9)));
    }

    #[test]
    fn array_variables_are_assigned_and_read_by_index() {
        let (_, args, arrays) =
            run("CC:=AA*2;@@3:=7;A:=BB;@1:=9;0").unwrap_or((Item::Number(0.0), Vec::new(), Vec::new()));
        assert_eq!(arrays.get(2).map(Vec::as_slice), Some([2.0, 4.0, 8.0, 16.0, 8.0, 4.0, 2.0].as_slice()));
        assert_eq!(arrays.get(3).map(Vec::as_slice), Some([7.0; N].as_slice()));
        assert_eq!(args.get(..2), Some([3.0, 9.0].as_slice()));
        assert_eq!(array("@@(A-1)"), array("AA"));
        assert_eq!(number("A:=0;UNTIL(A:=A+1;A>5)"), 1.0);
    }

    #[test]
    fn what_cannot_be_done_has_no_result() {
        assert_eq!(run("SQRT(BB)"), None);
        assert_eq!(run("FITMPOLY(AA,1)"), None);
        assert_eq!(run("NDERIV(AA,0)"), None);
        assert!(CompiledExpression::compile_array("FITQ(AA,7)").is_err());
        assert!(CompiledExpression::compile_array("'text'").is_err());
        assert!(CompiledExpression::compile_array("AVG()").is_err());
        assert!(CompiledExpression::compile_text("AVG(AA)").is_err());
        assert_eq!(number("SQRT(-1)"), 0.0);
    }

    #[test]
    fn array_functions_of_a_number_treat_it_as_one_element() {
        assert_eq!([number("IXZ(0)"), number("IXZ(3)"), number("IXNZ(0)"), number("IXNZ(3)")], [0.0, -1.0, -1.0, 0.0]);
        assert_eq!([number("IXMAX(3)"), number("IXMIN(3)"), number("STD(3)"), number("FWHM(3)")], [0.0; 4]);
        assert_eq!([number("SUM(3)"), number("AMAX(3)")], [3.0; 2]);
        assert_eq!([number("NINT(1.5)"), number("NINT(-1.5)"), number("NINT(1.4)")], [2.0, -2.0, 1.0]);
    }

    #[test]
    fn an_array_shifted_right_by_a_fraction_continues_the_slope_at_its_start() {
        assert_eq!(array("IX>>0.25"), [-0.1875, 0.75, 1.75, 2.75, 3.75, 4.75, 5.75]);
        assert_eq!(array("IX>>1.75"), [0.0, 0.0, 0.25, 1.25, 2.25, 3.25, 4.1875]);
    }

    #[test]
    fn the_width_at_half_maximum_ends_where_the_elements_are_below_half() {
        assert_eq!(number("FWHM((IX=3)*2+(IX>3)*(IX<6))"), 2.5);
        assert_eq!(number("FWHM((IX=3)*2+(IX<3)*(IX>0))"), 2.5);
        assert_eq!([number("FWHM(IX)"), number("FWHM(6-IX)")], [3.0, 3.0]);
    }

    #[test]
    fn numbers_and_arrays_are_joined_up_to_the_size_of_an_array() {
        assert_eq!(number("CAT(3,4)"), 3.0);
        assert_eq!(array("CAT(3,BB[0,1])"), [3.0; N].map(|number| number));
        assert_eq!(array("CAT(AA,BB)"), array("AA"));
    }
}
