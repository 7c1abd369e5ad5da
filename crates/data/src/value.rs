use std::sync::Arc;

use crate::Text;

macro_rules! kinds {
    ($($kind:ident $rust:ty, $what:literal;)*) => {
        /// The kind of one element.
        ///
        /// ```
        /// use fodo_data::{Kind, Value};
        ///
        /// assert_eq!(Value::from(12.5).kind(), Kind::F64);
        /// assert_eq!((Kind::F64.n_bytes(), Kind::Text.n_bytes()), (Some(8), None));
        /// assert_eq!(Value::from(vec![1_i32, 2]).kind(), Kind::I32);
        /// assert_eq!([Kind::U8, Kind::Text].map(Kind::pva_name), ["ubyte", "string"]);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        impl Kind {
            /// All kinds; the place of each is its number.
            pub(crate) const ALL: &'static [Kind] = &[$(Kind::$kind,)*];
        }

        /// One element.
        ///
        /// ```
        /// use fodo_data::{Kind, Meta, Scalar};
        ///
        /// let state = Scalar::Enum(1);
        /// let meta = Meta { labels: vec!["Closed".into(), "Open".into()], ..Meta::default() };
        /// assert_eq!(state.kind(), Kind::Enum);
        /// assert_eq!(Scalar::initial(Kind::Enum), Scalar::Enum(0));
        /// assert_eq!(state.to_text(Some(&meta)), "Open".into());
        /// assert_eq!(state.to_f64(), Ok(1.0));
        /// assert_eq!(Scalar::Text("Closed".into()).to_kind(Kind::Enum, Some(&meta)), Ok(Scalar::Enum(0)));
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        pub enum Scalar {
            $(#[doc = $what] $kind($rust),)*
        }

        /// Zero or more elements of one kind. Cloning shares the elements.
        ///
        /// ```
        /// use std::sync::Arc;
        ///
        /// use fodo_data::{Array, Kind, Scalar};
        ///
        /// let samples = Array::I32(Arc::new(vec![10, 11, 12, 13]));
        /// assert_eq!((samples.kind(), samples.len()), (Kind::I32, 4));
        /// assert_eq!(samples.scalar(1), Some(Scalar::I32(11)));
        /// assert_eq!(samples.truncated(2), Array::I32(Arc::new(vec![10, 11])));
        /// assert_eq!(samples.part(1, 2), Array::I32(Arc::new(vec![11, 12])));
        /// assert_eq!(samples.strided(0, 2, 9), Array::I32(Arc::new(vec![10, 12])));
        /// assert_eq!(samples.to_kind(Kind::F64, None), Ok(Array::F64(Arc::new(vec![10.0, 11.0, 12.0, 13.0]))));
        /// assert!(Array::empty(Kind::F64).is_empty());
        ///
        /// // A match borrows the elements without copying them.
        /// if let Array::I32(elements) = &samples {
        ///     assert_eq!(elements.iter().sum::<i32>(), 46);
        /// }
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $(#[doc = $what] $kind(Arc<Vec<$rust>>),)*
        }

        impl Scalar {
            /// The element of a new variable: 0, false or empty.
            pub fn initial(kind: Kind) -> Scalar {
                match kind { $(Kind::$kind => Scalar::$kind(<$rust>::default()),)* }
            }

            /// The kind of this element.
            pub const fn kind(&self) -> Kind {
                match self { $(Scalar::$kind(_) => Kind::$kind,)* }
            }
        }

        impl Array {
            /// An array of `kind` without elements.
            pub fn empty(kind: Kind) -> Array {
                match kind { $(Kind::$kind => Array::$kind(Arc::default()),)* }
            }

            /// The kind of every element.
            pub const fn kind(&self) -> Kind {
                match self { $(Array::$kind(_) => Kind::$kind,)* }
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                match self { $(Array::$kind(elements) => elements.len(),)* }
            }

            /// For how many elements it has memory. [`Array::is_shared`] has an example.
            pub fn capacity(&self) -> usize {
                match self { $(Array::$kind(elements) => elements.capacity(),)* }
            }

            /// Whether another array shares its elements.
            ///
            /// ```
            /// use fodo_data::Value;
            ///
            /// let samples = Value::from(vec![1.5, 2.5]).into_array();
            /// assert!(!samples.is_shared() && samples.capacity() >= 2);
            /// let other = samples.clone();
            /// assert!(samples.is_shared() && other.is_shared());
            /// ```
            pub fn is_shared(&self) -> bool {
                match self { $(Array::$kind(elements) => Arc::strong_count(elements) > 1,)* }
            }

            /// One element, counted from 0; `None` past the end.
            pub fn scalar(&self, index: usize) -> Option<Scalar> {
                match self { $(Array::$kind(elements) => elements.get(index).cloned().map(Scalar::$kind),)* }
            }

            /// `n` elements from `first` on; fewer if the array ends before. The whole array is shared, a part of it is
            /// copied once.
            pub fn part(&self, first: usize, n: usize) -> Array {
                let length = self.len();
                let range = first.min(length)..first.saturating_add(n).min(length);
                if range == (0..length) {
                    return self.clone();
                }
                match self { $(Array::$kind(elements) => Array::$kind(Arc::new(elements[range].to_vec())),)* }
            }

            /// Sets another array to what [`Array::part`] returns. A part that is copied is copied to the memory of the other
            /// array, if that has the same kind, is not shared, and has at most twice the memory that is needed.
            ///
            /// ```
            /// use fodo_data::Value;
            ///
            /// let whole = Value::from(vec![1.5, 2.5, 3.5]).into_array();
            /// let mut part = Value::from(vec![0.0; 2]).into_array();
            /// whole.part_to(1, 2, &mut part);
            /// assert_eq!(part, whole.part(1, 2));
            /// ```
            pub fn part_to(&self, first: usize, n: usize, to: &mut Array) {
                let length = self.len();
                let range = first.min(length)..first.saturating_add(n).min(length);
                let n_copied = if range == (0..length) { 0 } else { range.len() };
                match (self, &mut *to) {
                    $((Array::$kind(elements), Array::$kind(own)) if n_copied > 0 => {
                        let is_suitable = |own: &&mut Vec<$rust>| (n_copied..=2 * n_copied).contains(&own.capacity());
                        if let Some(own) = Arc::get_mut(own).filter(is_suitable) {
                            own.clear();
                            own.extend_from_slice(&elements[range]);
                            return;
                        }
                    })*
                    _ => {}
                }
                *to = self.part(first, n);
            }

            /// Without its elements. Its memory remains if the array is not shared.
            ///
            /// ```
            /// use fodo_data::Value;
            ///
            /// assert!(Value::from(vec![1.5, 2.5]).into_array().cleared().is_empty());
            /// ```
            pub fn cleared(self) -> Array {
                match self {
                    $(Array::$kind(mut elements) => match Arc::get_mut(&mut elements) {
                        Some(own) => {
                            own.clear();
                            Array::$kind(elements)
                        }
                        None => Array::empty(Kind::$kind),
                    })*
                }
            }

            /// Every `step`th element from `start` on, at most `n`; fewer if the array ends first.
            pub fn strided(&self, start: usize, step: usize, n: usize) -> Array {
                if step <= 1 {
                    return self.part(start, n);
                }
                match self {
                    $(Array::$kind(elements) => {
                        let chosen = elements.iter().skip(start).step_by(step).take(n);
                        Array::$kind(Arc::new(chosen.cloned().collect()))
                    })*
                }
            }
        }

        impl From<Scalar> for Array {
            fn from(scalar: Scalar) -> Array {
                match scalar { $(Scalar::$kind(element) => Array::$kind(Arc::new(vec![element])),)* }
            }
        }
    };
}

kinds! {
    Bool bool, "true or false";
    I8 i8, "signed, 8 bits";
    U8 u8, "unsigned, 8 bits";
    I16 i16, "signed, 16 bits";
    U16 u16, "unsigned, 16 bits";
    I32 i32, "signed, 32 bits";
    U32 u32, "unsigned, 32 bits";
    I64 i64, "signed, 64 bits";
    U64 u64, "unsigned, 64 bits";
    F32 f32, "floating point, 32 bits";
    F64 f64, "floating point, 64 bits";
    Enum u16, "the index of a state";
    Text Text, "a string";
}

impl Kind {
    /// The size of one element in bytes; `None` for a string.
    #[inline]
    pub const fn n_bytes(self) -> Option<usize> {
        Some(match self {
            Kind::Bool | Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 | Kind::Enum => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
            Kind::Text => return None,
        })
    }

    /// The name of the type in pvAccess, where the index of a state is a number.
    pub const fn pva_name(self) -> &'static str {
        match self {
            Kind::Bool => "boolean",
            Kind::I8 => "byte",
            Kind::I16 => "short",
            Kind::I32 => "int",
            Kind::I64 => "long",
            Kind::U8 => "ubyte",
            Kind::U16 | Kind::Enum => "ushort",
            Kind::U32 => "uint",
            Kind::U64 => "ulong",
            Kind::F32 => "float",
            Kind::F64 => "double",
            Kind::Text => "string",
        }
    }
}

impl Kind {
    /// The smallest and the largest integer of this kind; `None` for other kinds than integers.
    ///
    /// ```
    /// use fodo_data::Kind;
    ///
    /// assert_eq!(Kind::I16.integer_range(), Some((-32768, 32767)));
    /// assert_eq!(Kind::F64.integer_range(), None);
    /// ```
    pub fn integer_range(self) -> Option<(i128, i128)> {
        fn of(low: impl Into<i128>, high: impl Into<i128>) -> Option<(i128, i128)> {
            Some((low.into(), high.into()))
        }
        match self {
            Kind::I8 => of(i8::MIN, i8::MAX),
            Kind::U8 => of(0, u8::MAX),
            Kind::I16 => of(i16::MIN, i16::MAX),
            Kind::U16 | Kind::Enum => of(0, u16::MAX),
            Kind::I32 => of(i32::MIN, i32::MAX),
            Kind::U32 => of(0, u32::MAX),
            Kind::I64 => of(i64::MIN, i64::MAX),
            Kind::U64 => of(0, u64::MAX),
            Kind::Bool | Kind::F32 | Kind::F64 | Kind::Text => None,
        }
    }
}

impl Scalar {
    /// The integer; a bool is 0 or 1. `None` for a floating point number and a text.
    ///
    /// ```
    /// use fodo_data::Scalar;
    ///
    /// assert_eq!(Scalar::U64(u64::MAX).as_integer(), Some(18_446_744_073_709_551_615));
    /// assert_eq!(Scalar::F64(1.0).as_integer(), None);
    /// ```
    pub fn as_integer(&self) -> Option<i128> {
        Some(match self {
            Scalar::Bool(flag) => i128::from(*flag),
            Scalar::I8(number) => i128::from(*number),
            Scalar::U8(number) => i128::from(*number),
            Scalar::I16(number) => i128::from(*number),
            Scalar::U16(number) | Scalar::Enum(number) => i128::from(*number),
            Scalar::I32(number) => i128::from(*number),
            Scalar::U32(number) => i128::from(*number),
            Scalar::I64(number) => i128::from(*number),
            Scalar::U64(number) => i128::from(*number),
            Scalar::F32(_) | Scalar::F64(_) | Scalar::Text(_) => return None,
        })
    }
}

impl Array {
    fn n_bytes(&self) -> usize {
        match self {
            Array::Text(texts) => texts.iter().map(|text| size_of::<Text>() + text.len()).sum(),
            numbers => numbers.kind().n_bytes().unwrap_or(0) * numbers.len(),
        }
    }

    /// Whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `n` elements, or the whole array if it has at most `n`.
    pub fn truncated(&self, n: usize) -> Array {
        self.part(0, n)
    }
}

/// A value: one element or an array of them.
///
/// ```
/// use fodo_data::{Array, Kind, Scalar, Value};
///
/// let gap = Value::from(12.5);
/// assert_eq!((gap.kind(), gap.len(), gap.n_bytes()), (Kind::F64, 1, 8));
/// assert_eq!(gap.to_f64(), Ok(12.5));
/// assert_eq!(gap.to_kind(Kind::I32, None), Ok(Value::from(12)));
///
/// assert_eq!(Value::from(String::from("mm")), Value::from("mm"));
///
/// let samples = Value::from(vec![1_i16, 2, 3]);
/// assert_eq!(samples.first(), Some(Scalar::I16(1)));
/// assert!(!samples.is_empty() && matches!(samples.into_array(), Array::I16(_)));
///
/// // A text of any length is an array of characters.
/// let path = Value::characters("/data/2026/run-0042.h5");
/// assert_eq!(path.kind(), Kind::U8);
/// assert_eq!(path.long_text().unwrap_or_default(), "/data/2026/run-0042.h5".into());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One element.
    Scalar(Scalar),
    /// Zero or more elements.
    Array(Array),
}

impl Value {
    /// The kind of its elements.
    pub const fn kind(&self) -> Kind {
        match self {
            Value::Scalar(scalar) => scalar.kind(),
            Value::Array(array) => array.kind(),
        }
    }

    /// The number of elements; 1 for a scalar.
    pub fn len(&self) -> usize {
        match self {
            Value::Scalar(_) => 1,
            Value::Array(array) => array.len(),
        }
    }

    /// Whether the value is an array without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first element; `None` for an empty array.
    pub fn first(&self) -> Option<Scalar> {
        match self {
            Value::Scalar(scalar) => Some(scalar.clone()),
            Value::Array(array) => array.scalar(0),
        }
    }

    /// The size of the elements in memory in bytes, including the characters of texts.
    #[inline]
    pub fn n_bytes(&self) -> usize {
        match self {
            Value::Scalar(Scalar::Text(text)) => text.len(),
            Value::Scalar(number) => number.kind().n_bytes().unwrap_or(0),
            Value::Array(array) => array.n_bytes(),
        }
    }

    /// A long string: the text's bytes with a terminating NUL, for a character array or a field name with a trailing
    /// `$`.
    pub fn characters(text: &str) -> Value {
        Value::Array(Array::U8(Arc::new(text.bytes().chain([0]).collect())))
    }

    /// The text of a long string: the characters before the first NUL. `None` if the elements are not characters.
    pub fn long_text(&self) -> Option<Text> {
        match self {
            Value::Scalar(Scalar::U8(byte)) => Some(Text::from_bytes(&[*byte])),
            Value::Scalar(Scalar::I8(byte)) => Some(Text::from_bytes(&[byte.cast_unsigned()])),
            Value::Array(Array::U8(bytes)) => Some(Text::from_bytes(bytes)),
            Value::Array(Array::I8(bytes)) => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| byte.cast_unsigned()).collect();
                Some(Text::from_bytes(&bytes))
            }
            _ => None,
        }
    }

    /// The elements as an array; a scalar becomes an array of one.
    pub fn into_array(self) -> Array {
        match self {
            Value::Scalar(scalar) => scalar.into(),
            Value::Array(array) => array,
        }
    }
}

macro_rules! from {
    ($($kind:ident $rust:ty;)*) => {$(
        impl From<$rust> for Value {
            fn from(element: $rust) -> Value {
                Value::Scalar(Scalar::$kind(element))
            }
        }

        impl From<Vec<$rust>> for Value {
            fn from(elements: Vec<$rust>) -> Value {
                Value::Array(Array::$kind(Arc::new(elements)))
            }
        }
    )*};
}

from! {
    Bool bool; I8 i8; U8 u8; I16 i16; U16 u16; I32 i32; U32 u32; I64 i64; U64 u64; F32 f32; F64 f64; Text Text;
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Scalar(Scalar::Text(text.into()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Scalar(Scalar::Text(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_copied_to_memory_that_is_suitable_and_not_shared() {
        let whole = Array::I32(Arc::new((0..100).collect()));
        let address = |array: &Array| match array {
            Array::I32(elements) => elements.as_ptr(),
            _ => unreachable!(),
        };
        let with_capacity = |n| Array::I32(Arc::new(Vec::with_capacity(n)));

        for (what, first, n, mut to, is_shared, is_reused) in [
            ("as large", 10, 20, with_capacity(20), false, true),
            ("twice as large", 10, 20, with_capacity(40), false, true),
            ("much larger", 10, 20, with_capacity(1000), false, false),
            ("too small", 10, 20, with_capacity(19), false, false),
            ("shared", 10, 20, with_capacity(20), true, false),
            ("the whole array", 0, 100, with_capacity(100), false, false),
            ("nothing", 100, 5, with_capacity(5), false, false),
        ] {
            let (before, other) = (address(&to), is_shared.then(|| to.clone()));

            whole.part_to(first, n, &mut to);

            assert_eq!((&to, address(&to) == before), (&whole.part(first, n), is_reused), "{what}");
            assert!(other.is_none_or(|other| other.is_empty()), "{what}");
        }
        let mut other_kind = Array::F64(Arc::new(vec![0.0; 2]));
        whole.part_to(1, 2, &mut other_kind);
        assert_eq!(other_kind, whole.part(1, 2));
    }

    #[test]
    fn a_clone_and_a_part_that_is_the_whole_share_the_elements_and_any_other_part_copies_them() {
        let array = Array::I32(Arc::new(vec![1, 2, 3]));
        let Array::I32(original) = &array else { unreachable!() };
        let shares = |other: Array| matches!(other, Array::I32(elements) if Arc::ptr_eq(original, &elements));

        assert!([array.clone(), array.part(0, 3), array.truncated(9), array.strided(0, 1, 3)].into_iter().all(shares));
        for (first, n, expected) in [
            (0, 2, vec![1, 2]),
            (1, 1, vec![2]),
            (1, usize::MAX, vec![2, 3]),
            (3, 1, vec![]),
            (9, 1, vec![]),
            (1, 0, vec![]),
        ] {
            assert_eq!(array.part(first, n), Array::I32(Arc::new(expected)), "{first} {n}");
        }
        assert_eq!(array.truncated(2), Array::I32(Arc::new(vec![1, 2])));
        assert_eq!(array.strided(0, 2, 9), Array::I32(Arc::new(vec![1, 3])));
    }
}
