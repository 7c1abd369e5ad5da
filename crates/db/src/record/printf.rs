//! printf: a long string formatted from a format string and up to ten inputs.

use fodo_data::{Kind, Scalar, Text, Value};

use crate::common::Common;
use crate::field::{names, record_fields};
use crate::link::Constant;
use crate::process::post::Posts;
use crate::process::step::{Outcome, Step};
use crate::record::c_format::Directive;
use crate::record::device::{Device, stream};
use crate::record::long_text::{self, SIZE_MIN, fitting, length};
use crate::record::{CHANGED, Record, record_type};

record_fields! {
    /// A text formatted from a format string and values.
    Printf
    fields {
        "VAL" value: String(0), ASL0 PP SPECIAL;
        "SIZV" size: UShort = 41, NOMOD;
        "LEN" length: ULong, NOMOD;
        "OUT" output: OutLink;
        "FMT" format: String(81), PP;
        "IVLS" invalid_text: String(16) = "LNK".into();
    }
    arrays {
        inputs: [InLink(); 10] [] "INP" ZERO_TO_9;
    }
    private {
        common: Common;
    }
}

record_type!(Printf, "printf", ["Soft Channel", "Async Soft Channel", "stdio"], VAL LEN);

/// The names of the links, for messages.
const INPUTS: [&str; 10] = names(Printf::ROWS, "INP0");

impl Record for Printf {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
    }

    fn text_size(&self) -> u16 {
        self.size
    }

    fn is_unset(&self) -> bool {
        self.length == 0
    }

    fn after_put(&mut self, _field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        self.length = length(&self.value);
        posts.post(self, LEN, CHANGED);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if !step.is_completion {
            let format = step.lock().format.clone();
            let text = Text::from(written(step, &format.to_str()));
            let printf = step.lock();
            printf.value = fitting(&text, printf.size.into());
            printf.length = length(&printf.value);
            printf.common.undefined = 0;
            step.stamp(None);
        }
        let (is_well, is_waiting) = write(step);
        if is_waiting {
            return Outcome::Waiting;
        }
        step.post(|printf, posts| {
            let mask = posts.alarms(printf) | CHANGED;
            posts.post(printf, VAL, mask);
            posts.post(printf, LEN, mask);
        });
        Outcome::done(is_well)
    }
}

/// Writes the text to OUT. Returns whether that succeeded, and whether the record has to wait for completion.
fn write(step: &mut Step<'_, '_, Printf>) -> (bool, bool) {
    let device = Device::of(step.lock());
    if device == Device::Async && step.is_completion {
        return (true, false);
    }
    let (stream, line) = {
        let printf = step.lock();
        (stream(&printf.output), printf.value.clone())
    };
    if let (Device::Stdio, Some(stream)) = (device, stream) {
        step.print(stream, line);
        return (true, false);
    }
    let kind = step.kind_at(|printf| &printf.output);
    let value = Value::from(step.lock().value.clone());
    let Some(value) = long_text::to_target_kind(value, kind) else { return (true, false) };
    if device == Device::Async && step.drive_notifying(|printf| &printf.output, value.clone(), 0) {
        return (true, true);
    }
    (step.drive("OUT", |printf| &printf.output, value).is_ok(), false)
}

/// The size of the value that a conversion takes: `hh`, `h`, none, `l` or `ll`.
#[derive(Clone, Copy, Default, PartialEq)]
enum Size {
    Char,
    Short,
    #[default]
    Plain,
    Long,
    LongLong,
}

/// Formats the inputs.
fn written(step: &mut Step<'_, '_, Printf>, format: &str) -> String {
    let mut arguments = Arguments { step, n_taken: 0 };
    let mut out = String::new();
    let mut rest = format;
    while let Some((plain, tail)) = rest.split_once('%') {
        out.push_str(plain);
        let Some(parsed) = Parsed::read(tail, &mut arguments) else { return out };
        match parsed.shown(&mut arguments) {
            Shown::Text(text) => out.push_str(&text),
            Shown::NoValue => out.push_str(&arguments.step.lock().invalid_text.to_str()),
            Shown::NoDirective => {
                out.push('%');
                out.push_str(tail.get(..tail.len() - parsed.rest.len()).unwrap_or_default());
            }
        }
        rest = parsed.rest;
    }
    out.push_str(rest);
    out
}

/// The output of one conversion.
enum Shown {
    Text(String),
    /// No input is left, or the input cannot be read.
    NoValue,
    /// The conversion letter is unknown.
    NoDirective,
}

/// A parsed conversion, and the format after it.
struct Parsed<'a> {
    directive: Directive,
    size: Size,
    letter: char,
    /// An input that specifies a width or precision could not be read.
    is_broken: bool,
    rest: &'a str,
}

impl<'a> Parsed<'a> {
    /// Parses what follows a `%`; `None` if the format ends inside the conversion.
    fn read(text: &'a str, arguments: &mut Arguments) -> Option<Parsed<'a>> {
        let mut directive = Directive::default();
        let mut size = Size::default();
        let mut is_broken = false;
        let mut characters = text.char_indices();
        loop {
            let (at, letter) = characters.next()?;
            match letter {
                '+' => directive.has_plus = true,
                ' ' => directive.has_blank = true,
                '#' => directive.is_alternate = true,
                '-' => directive.is_left = true,
                '.' => directive.precision = Some(0),
                '0' if directive.width == 0 && directive.precision.is_none() => directive.has_zeros = true,
                '0'..='9' => {
                    let place = directive.precision.as_mut().unwrap_or(&mut directive.width);
                    *place = place.saturating_mul(10).saturating_add(letter as usize - '0' as usize);
                }
                '*' => match arguments.next::<i64>(Kind::I16) {
                    None => is_broken = true,
                    Some(number) if directive.precision.is_some() => directive.precision = usize::try_from(number).ok(),
                    Some(number) => {
                        directive.is_left |= number < 0;
                        directive.width = number.unsigned_abs() as usize;
                    }
                },
                'h' => size = if size == Size::Short { Size::Char } else { Size::Short },
                'l' => size = if size == Size::Long { Size::LongLong } else { Size::Long },
                letter => {
                    let rest = text.get(at + letter.len_utf8()..).unwrap_or_default();
                    // Wider output is truncated at the longest possible VAL anyway.
                    directive.width = directive.width.min(u16::MAX.into());
                    directive.precision = directive.precision.map(|precision| precision.min(u16::MAX.into()));
                    return Some(Parsed { directive, size, letter, is_broken, rest });
                }
            }
        }
    }

    fn shown(&self, arguments: &mut Arguments) -> Shown {
        if self.is_broken {
            return Shown::NoValue;
        }
        let directive = &self.directive;
        let text = match self.letter {
            '%' => Some("%".into()),
            'c' => arguments.next::<i64>(Kind::I8).map(|code| directive.text(&char::from(code as u8).to_string())),
            'd' | 'i' => arguments.next(self.kind(true)).map(|number| directive.signed(number)),
            'o' | 'u' | 'x' | 'X' => arguments
                .next(self.kind(false))
                .map(|number: i64| directive.unsigned(number.cast_unsigned(), self.letter)),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let kind = if self.size == Size::Short { Kind::F32 } else { Kind::F64 };
                arguments.next(kind).map(|number: f64| directive.real(number, self.letter))
            }
            's' => arguments.text(self.size == Size::Long).map(|text| directive.text(&text)),
            _ => return Shown::NoDirective,
        };
        text.map_or(Shown::NoValue, Shown::Text)
    }

    /// The kind of an integer conversion.
    fn kind(&self, is_signed: bool) -> Kind {
        match (self.size, is_signed) {
            (Size::Char, true) => Kind::I8,
            (Size::Char, false) => Kind::U8,
            (Size::Short, true) => Kind::I16,
            (Size::Short, false) => Kind::U16,
            (Size::Plain | Size::Long, true) => Kind::I32,
            (Size::Plain | Size::Long, false) => Kind::U32,
            (Size::LongLong, true) => Kind::I64,
            (Size::LongLong, false) => Kind::U64,
        }
    }
}

/// The inputs, taken one after another.
struct Arguments<'s, 't, 'a> {
    step: &'s mut Step<'t, 'a, Printf>,
    n_taken: usize,
}

/// A number that an element can be converted to.
trait Number: Sized {
    fn of(scalar: &Scalar) -> Option<Self>;
}

impl Number for i64 {
    /// Reinterprets the bits of an unsigned 64-bit integer.
    fn of(scalar: &Scalar) -> Option<i64> {
        match scalar {
            Scalar::I8(number) => Some((*number).into()),
            Scalar::U8(number) => Some((*number).into()),
            Scalar::I16(number) => Some((*number).into()),
            Scalar::U16(number) => Some((*number).into()),
            Scalar::I32(number) => Some((*number).into()),
            Scalar::U32(number) => Some((*number).into()),
            Scalar::I64(number) => Some(*number),
            Scalar::U64(number) => Some(number.cast_signed()),
            _ => None,
        }
    }
}

impl Number for f64 {
    fn of(scalar: &Scalar) -> Option<f64> {
        scalar.to_f64().ok()
    }
}

impl Arguments<'_, '_, '_> {
    fn next<T: Number>(&mut self, kind: Kind) -> Option<T> {
        self.element(kind).as_ref().and_then(T::of)
    }

    /// Takes the next input as an element of a kind.
    fn element(&mut self, kind: Kind) -> Option<Scalar> {
        let index = self.n_taken;
        let name = *INPUTS.get(index)?;
        self.n_taken += 1;
        let constant = match self.step.lock().inputs[index].constant() {
            Some(Constant::One(scalar)) => Some(scalar.clone()),
            Some(Constant::Many(scalars)) => scalars.first().cloned(),
            None => None,
        };
        if let Some(scalar) = constant {
            return converted(&scalar, kind);
        }
        self.step.fetch_scalar(name, |printf| &printf.inputs[index], kind).ok()?
    }

    /// Takes the next input as a text; if `is_long`, reads arrays of characters completely.
    fn text(&mut self, is_long: bool) -> Option<String> {
        let index = self.n_taken;
        let name = *INPUTS.get(index)?;
        if is_long && matches!(self.step.kind_at(|printf| &printf.inputs[index]), Some(Kind::I8 | Kind::U8)) {
            self.n_taken += 1;
            let fetched = self.step.fetch_array(name, |printf| &printf.inputs[index], Kind::U8);
            return Some(fetched.ok()??.long_text()?.to_str().into_owned());
        }
        match self.element(Kind::Text)? {
            Scalar::Text(text) => Some(text.to_str().into_owned()),
            _ => None,
        }
    }
}

/// Converts a constant to a kind. An integer must be in range; a negative one for an unsigned kind wraps, as in Base.
fn converted(constant: &Scalar, kind: Kind) -> Option<Scalar> {
    let Scalar::I64(number) = *constant else {
        return if kind == Kind::Text {
            Some(Scalar::Text(constant.to_text(None)))
        } else {
            constant.to_kind(kind, None).ok()
        };
    };
    macro_rules! unsigned {
        ($variant:ident, $unsigned:ty, $signed:ty) => {
            <$unsigned>::try_from(number)
                .or_else(|_| <$signed>::try_from(number).map(<$signed>::cast_unsigned))
                .ok()
                .map(Scalar::$variant)
        };
    }
    match kind {
        Kind::I8 => i8::try_from(number).ok().map(Scalar::I8),
        Kind::I16 => i16::try_from(number).ok().map(Scalar::I16),
        Kind::I32 => i32::try_from(number).ok().map(Scalar::I32),
        Kind::U8 => unsigned!(U8, u8, i8),
        Kind::U16 => unsigned!(U16, u16, i16),
        Kind::U32 => unsigned!(U32, u32, i32),
        Kind::U64 => Some(Scalar::U64(number.cast_unsigned())),
        kind => constant.to_kind(kind, None).ok(),
    }
}
