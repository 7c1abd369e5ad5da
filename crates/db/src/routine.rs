//! Routines: functions that sub and aSub records call by name.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fodo_data::{Array, Kind, STRING_BYTES_MAX, Text};

use crate::calc::N_ARGS;

/// The number of input arrays, and of output arrays, of an aSub record.
pub(crate) const N_ARRAYS: usize = 21;

/// The arguments of a routine of a sub record.
#[derive(Debug)]
pub struct SubCall<'a> {
    /// The inputs A to U; changes are kept and posted.
    pub args: &'a mut [f64; N_ARGS],
    /// VAL: the last value; the routine sets the new one.
    pub value: &'a mut f64,
}

/// The arguments of a routine of an aSub record. Inputs and outputs have the letters `'A'` to `'U'`.
#[derive(Debug)]
pub struct ASubCall<'a> {
    pub(crate) inputs: &'a [Array; N_ARRAYS],
    pub(crate) outputs: &'a mut [Array; N_ARRAYS],
    pub(crate) output_capacities: &'a [u32; N_ARRAYS],
}

impl ASubCall<'_> {
    /// The elements of an input; their number is in NEA for `'A'`.
    ///
    /// Fails if `T` is not the type in FTA, or if the letter is invalid.
    pub fn input<T: ArrayElement>(&self, letter: char) -> Result<&[T], RoutineFailed> {
        index(letter).and_then(|index| T::elements(self.inputs.get(index)?)).ok_or(RoutineFailed)
    }

    /// An input of any type. `None`: the letter is invalid.
    pub fn input_array(&self, letter: char) -> Option<&Array> {
        self.inputs.get(index(letter)?)
    }

    /// The present elements of an output.
    ///
    /// Fails if `T` is not the type in FTVA (for `'A'`), or if the letter is invalid.
    pub fn output<T: ArrayElement>(&self, letter: char) -> Result<&[T], RoutineFailed> {
        index(letter).and_then(|index| T::elements(self.outputs.get(index)?)).ok_or(RoutineFailed)
    }

    /// Sets an output and its length (VALA and NEVA for `'A'`). Elements beyond NOVA are dropped; texts are truncated
    /// to 39 bytes.
    ///
    /// Fails if `T` is not the type in FTVA, or if the letter is invalid.
    pub fn set_output<T: ArrayElement>(&mut self, letter: char, elements: &[T]) -> Result<(), RoutineFailed> {
        let index = index(letter).ok_or(RoutineFailed)?;
        let capacity = self.output_capacities.get(index).ok_or(RoutineFailed)?;
        let output = self.outputs.get_mut(index).ok_or(RoutineFailed)?;
        let elements = elements.get(..*capacity as usize).unwrap_or(elements);
        *output = T::array(elements, output.kind()).ok_or(RoutineFailed)?;
        Ok(())
    }

    /// The present elements of an output of any type. `None`: the letter is invalid.
    pub fn output_array(&self, letter: char) -> Option<&Array> {
        self.outputs.get(index(letter)?)
    }

    /// The same as [`ASubCall::set_output`] with elements of any type, which are converted to the type in FTVA.
    ///
    /// Fails if an element cannot be converted, such as a text that is not a number, or if the letter is invalid.
    ///
    /// ```
    /// let mut loader = fodo_db::Loader::default();
    /// loader.array_routine("copy", |call| {
    ///     let elements = call.input_array('A').cloned().ok_or(fodo_db::RoutineFailed)?;
    ///     call.set_output_array('A', &elements)?;
    ///     Ok(0)
    /// });
    /// ```
    pub fn set_output_array(&mut self, letter: char, elements: &Array) -> Result<(), RoutineFailed> {
        let kind = self.output_array(letter).ok_or(RoutineFailed)?.kind();
        let array = elements.to_kind(kind, None).map_err(|_| RoutineFailed)?;
        if let Array::Text(texts) = &array {
            return self.set_output(letter, texts.as_slice());
        }
        let index = index(letter).ok_or(RoutineFailed)?;
        let capacity = self.output_capacities.get(index).ok_or(RoutineFailed)?;
        *self.outputs.get_mut(index).ok_or(RoutineFailed)? = array.truncated(*capacity as usize);
        Ok(())
    }
}

/// The index of a letter, from 0 for A.
fn index(letter: char) -> Option<usize> {
    ('A'..='U').position(|other| other == letter)
}

/// An element type of the inputs and outputs of an aSub record: `f64` for DOUBLE, `u8` for UCHAR, `u16` for USHORT and
/// ENUM, [`Text`] for STRING.
pub trait ArrayElement: Sized + sealed::Sealed {
    /// The elements of an array of this type.
    #[doc(hidden)]
    fn elements(array: &Array) -> Option<&[Self]>;

    /// An array of `kind`; `None` if elements of that kind have another type.
    #[doc(hidden)]
    fn array(elements: &[Self], kind: Kind) -> Option<Array>;
}

mod sealed {
    /// Prevents implementations of [`super::ArrayElement`] outside this module.
    pub trait Sealed {}
}

macro_rules! array_elements {
    ($($rust:ty: $($kind:ident)|+;)*) => {$(
        impl sealed::Sealed for $rust {}

        impl ArrayElement for $rust {
            fn elements(array: &Array) -> Option<&[Self]> {
                match array {
                    $(Array::$kind(elements) => Some(elements),)+
                    _ => None,
                }
            }

            fn array(elements: &[Self], kind: Kind) -> Option<Array> {
                match kind {
                    $(Kind::$kind => Some(Array::$kind(Arc::new(elements.to_vec()))),)+
                    _ => None,
                }
            }
        }
    )*};
}

array_elements! {
    i8: I8; u8: U8; i16: I16; u16: U16 | Enum; i32: I32; u32: U32; i64: I64; u64: U64; f32: F32; f64: F64;
}

impl sealed::Sealed for Text {}

impl ArrayElement for Text {
    fn elements(array: &Array) -> Option<&[Self]> {
        if let Array::Text(texts) = array { Some(texts) } else { None }
    }

    fn array(elements: &[Self], kind: Kind) -> Option<Array> {
        let cut = |text: &Text| match text.as_bytes().get(..STRING_BYTES_MAX) {
            Some(start) => Text::from_bytes(start),
            None => text.clone(),
        };
        (kind == Kind::Text).then(|| Array::Text(Arc::new(elements.iter().map(cut).collect())))
    }
}

/// A routine failed: the record goes into SOFT alarm with the severity in BRSV. A routine that panics has failed
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutineFailed;

/// A routine of sub records.
pub(crate) type Routine = Arc<dyn Fn(SubCall<'_>) -> Result<(), RoutineFailed> + Send + Sync>;

/// A routine of aSub records.
#[derive(Clone)]
pub(crate) struct ArrayRoutine(Arc<ArrayFn>);

type ArrayFn = dyn Fn(&mut ASubCall<'_>) -> Result<i32, RoutineFailed> + Send + Sync;

impl fmt::Debug for ArrayRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArrayRoutine")
    }
}

impl ArrayRoutine {
    /// Calls the routine. Returns the new VAL.
    pub(crate) fn call(&self, call: &mut ASubCall<'_>) -> i32 {
        const FAILED: i32 = -1;
        // After a panic the arrays are valid, whichever of them the routine has set.
        let result = catch_unwind(AssertUnwindSafe(|| (self.0)(call)));
        result.unwrap_or(Err(RoutineFailed)).unwrap_or(FAILED)
    }
}

/// Calls a routine. A panic counts as failure: the record goes into alarm, and the database keeps running.
pub(crate) fn call(routine: &Routine, call: SubCall<'_>) -> Result<(), RoutineFailed> {
    // After a panic the arguments are valid: they are numbers, and every number is valid.
    catch_unwind(AssertUnwindSafe(|| routine(call))).unwrap_or(Err(RoutineFailed))
}

/// The registered routines, by name.
#[derive(Clone, Default)]
pub(crate) struct Routines {
    scalar: HashMap<String, Routine>,
    array: HashMap<String, ArrayRoutine>,
}

impl Routines {
    pub(crate) fn add(&mut self, name: &str, routine: Routine) {
        self.scalar.insert(name.to_owned(), routine);
    }

    pub(crate) fn add_array(&mut self, name: &str, routine: Arc<ArrayFn>) {
        self.array.insert(name.to_owned(), ArrayRoutine(routine));
    }

    pub(crate) fn find(&self, name: &str) -> Option<Routine> {
        self.scalar.get(name).cloned()
    }

    pub(crate) fn find_array(&self, name: &str) -> Option<ArrayRoutine> {
        self.array.get(name).cloned()
    }
}

impl fmt::Debug for Routines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.scalar.keys().chain(self.array.keys())).finish()
    }
}
