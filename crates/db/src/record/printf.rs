//! printf: a long string formatted from a format string and up to ten inputs.

use fodo_data::{Kind, Scalar, Text, Value};

use crate::common::Common;
use crate::field::{names, record_fields};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::c_format::FormatSpec;
use crate::record::device::{DeviceSupport, stream};
use crate::record::long_text::{self, SIZE_MIN, fitting, length};
use crate::record::{CHANGED, Record, record_type};

record_fields! {
    /// A text formatted from a format string and values.
    Printf
    fields {
        "VAL" value: String(0), ASL0 PP SPECIAL INTEREST0;
        "SIZV" size: UShort = 41, NOMOD;
        "LEN" length: ULong, NOMOD INTEREST0;
        "OUT" output: OutLink, DEVICE;
        "FMT" format: String(81), PP INTEREST0;
        "IVLS" invalid_text: String(16) = "LNK".into(), INTEREST0;
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

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        // A put does not change LEN, as in Base. While LEN is 0, VAL has no value to read.
        if self.length == 0 {
            self.value = Text::EMPTY;
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if !step.is_completion {
            let format = step.lock().format.clone();
            let text = Text::from_bytes(&formatted(step, format.as_bytes()));
            let printf = step.lock();
            printf.value = fitting(&text, printf.size.into());
            printf.length = length(&printf.value);
            printf.common.undefined = 0;
            step.stamp(None);
        }
        let (is_ok, is_waiting) = write(step);
        if is_waiting {
            return ProcessOutcome::Waiting;
        }
        step.post(|printf, posts| {
            let mask = posts.alarms(printf) | CHANGED;
            posts.post(printf, VAL, mask);
            posts.post(printf, LEN, mask);
        });
        ProcessOutcome::done(is_ok)
    }
}

/// Writes the text to OUT. Returns whether that succeeded, and whether the record has to wait for completion.
fn write(step: &mut Step<'_, '_, Printf>) -> (bool, bool) {
    let device = DeviceSupport::of(step.lock());
    if device == DeviceSupport::Async && step.is_completion {
        return (true, false);
    }
    let (stream, line) = {
        let printf = step.lock();
        (stream(&printf.output), printf.value.clone())
    };
    if let (DeviceSupport::Stdio, Some(stream)) = (device, stream) {
        step.print(stream, line);
        return (true, false);
    }
    let kind = step.kind_at(|printf| &printf.output);
    let value = Value::from(step.lock().value.clone());
    let Some(value) = long_text::to_target_kind(value, kind) else { return (true, false) };
    if device == DeviceSupport::Async && step.write_link_with_completion(|printf| &printf.output, value.clone(), 0) {
        return (true, true);
    }
    (step.write_link("OUT", |printf| &printf.output, value).is_ok(), false)
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

/// Formats the inputs. All texts are bytes, as in C, whatever their encoding.
fn formatted(step: &mut Step<'_, '_, Printf>, format: &[u8]) -> Vec<u8> {
    let mut inputs = RemainingInputs { step, n_taken: 0 };
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let (plain, conversion) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some(parsed) = PrintfConversion::read(conversion, &mut inputs) else { return out };
        match parsed.formatted(&mut inputs) {
            Formatted::Text(text) => out.extend(text),
            Formatted::NoValue => out.extend_from_slice(inputs.step.lock().invalid_text.as_bytes()),
            Formatted::UnknownLetter => {
                out.extend_from_slice(&conversion[..conversion.len() - parsed.rest.len()]);
            }
        }
        rest = parsed.rest;
    }
    out.extend_from_slice(rest);
    out
}

/// The output of one conversion.
enum Formatted {
    Text(Vec<u8>),
    /// No input is left, or the input cannot be read.
    NoValue,
    /// The conversion letter is unknown.
    UnknownLetter,
}

/// A parsed conversion, and the format after it.
struct PrintfConversion<'a> {
    spec: FormatSpec,
    size: Size,
    letter: u8,
    /// An input that specifies a width or precision could not be read.
    is_broken: bool,
    rest: &'a [u8],
}

impl<'a> PrintfConversion<'a> {
    /// Parses what starts with `%`; `None` if the format ends inside the conversion.
    fn read(text: &'a [u8], inputs: &mut RemainingInputs) -> Option<PrintfConversion<'a>> {
        let mut spec = FormatSpec::default();
        let mut size = Size::default();
        let mut is_broken = false;
        let (_percent, mut rest) = text.split_first()?;
        loop {
            let (&letter, tail) = rest.split_first()?;
            rest = tail;
            match letter {
                b'+' => spec.has_plus = true,
                b' ' => spec.has_blank = true,
                b'#' => spec.is_alternate = true,
                b'-' => spec.is_left = true,
                b'.' => spec.precision = Some(0),
                b'0' if spec.width == 0 && spec.precision.is_none() => spec.has_zeros = true,
                b'0'..=b'9' => {
                    let place = spec.precision.as_mut().unwrap_or(&mut spec.width);
                    *place = place.saturating_mul(10).saturating_add(usize::from(letter - b'0'));
                }
                b'*' => match inputs.next::<i64>(Kind::I16) {
                    None => is_broken = true,
                    Some(number) if spec.precision.is_some() => spec.precision = usize::try_from(number).ok(),
                    Some(number) => {
                        spec.is_left |= number < 0;
                        spec.width = number.unsigned_abs() as usize;
                    }
                },
                b'h' => size = if size == Size::Short { Size::Char } else { Size::Short },
                b'l' => size = if size == Size::Long { Size::LongLong } else { Size::Long },
                letter => {
                    // Wider output is truncated at the longest possible VAL anyway.
                    spec.width = spec.width.min(u16::MAX.into());
                    spec.precision = spec.precision.map(|precision| precision.min(u16::MAX.into()));
                    return Some(PrintfConversion { spec, size, letter, is_broken, rest });
                }
            }
        }
    }

    fn formatted(&self, inputs: &mut RemainingInputs) -> Formatted {
        if self.is_broken {
            return Formatted::NoValue;
        }
        let spec = &self.spec;
        let text = match self.letter {
            b'%' => Some(b"%".to_vec()),
            b'c' => inputs.next::<i64>(Kind::I8).map(|code| spec.text(&[code as u8])),
            b'd' | b'i' => inputs.next(self.kind(true)).map(|number| spec.signed(number).into_bytes()),
            b'o' | b'u' | b'x' | b'X' => inputs
                .next(self.kind(false))
                .map(|number: i64| spec.unsigned(number.cast_unsigned(), self.letter.into()).into_bytes()),
            b'e' | b'E' | b'f' | b'F' | b'g' | b'G' => {
                let kind = if self.size == Size::Short { Kind::F32 } else { Kind::F64 };
                inputs.next(kind).map(|number: f64| spec.real(number, self.letter.into()).into_bytes())
            }
            b's' => inputs.text(self.size == Size::Long).map(|text| spec.text(text.as_bytes())),
            _ => return Formatted::UnknownLetter,
        };
        text.map_or(Formatted::NoValue, Formatted::Text)
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
struct RemainingInputs<'s, 't, 'a> {
    step: &'s mut Step<'t, 'a, Printf>,
    n_taken: usize,
}

/// A number that an element can be converted to.
trait FromScalar: Sized {
    fn of(scalar: &Scalar) -> Option<Self>;
}

impl FromScalar for i64 {
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

impl FromScalar for f64 {
    fn of(scalar: &Scalar) -> Option<f64> {
        scalar.to_f64().ok()
    }
}

impl RemainingInputs<'_, '_, '_> {
    fn next<T: FromScalar>(&mut self, kind: Kind) -> Option<T> {
        self.element(kind).as_ref().and_then(T::of)
    }

    /// Takes the next input as an element of a kind.
    fn element(&mut self, kind: Kind) -> Option<Scalar> {
        let index = self.n_taken;
        let name = *INPUTS.get(index)?;
        self.n_taken += 1;
        if let Some(constant) = self.step.lock().inputs[index].constant() {
            return constant.first(kind);
        }
        self.step.read_link_scalar(name, |printf| &printf.inputs[index], kind).ok()?
    }

    /// Takes the next input as a text; if `is_long`, reads arrays of characters completely.
    fn text(&mut self, is_long: bool) -> Option<Text> {
        let index = self.n_taken;
        let name = *INPUTS.get(index)?;
        if is_long && matches!(self.step.kind_at(|printf| &printf.inputs[index]), Some(Kind::I8 | Kind::U8)) {
            self.n_taken += 1;
            let fetched = self.step.read_link_array(name, |printf| &printf.inputs[index], Kind::U8);
            return fetched.ok()??.long_text();
        }
        match self.element(Kind::Text)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Now;

    use crate::{Input, Loader};

    /// Compared with softIoc 7.0.10.
    #[test]
    fn printf_widths_precisions_and_characters_count_bytes() {
        let db = r#"record(printf, "p") { field(FMT, "%.2s|%.3s|%5s|%-5s|%c|é") field(SIZV, "60") field(PINI, "YES")
            field(INP0, "text") field(INP1, "text") field(INP2, "text") field(INP3, "text") field(INP4, "code") }
            record(stringin, "text") { field(VAL, "aäb") } record(longin, "code") { field(VAL, "228") }"#;
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(db.into())).unwrap();
        let database = loader.finish().unwrap();

        database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();

        let reading = database.read(database.field("p.VAL$").unwrap());
        let expected = [b"a\xc3|a\xc3\xa4| a\xc3\xa4b|a\xc3\xa4b |\xe4|\xc3\xa9".as_slice(), b"\0"].concat();
        assert_eq!(reading.value, fodo_data::Value::from(expected));
    }
}
