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
        /// assert_eq!(Value::from(vec![1_i32, 2]).kind(), Kind::I32);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        /// One element.
        ///
        /// ```
        /// use fodo_data::{Kind, Meta, Scalar};
        ///
        /// let state = Scalar::Enum(1);
        /// let meta = Meta { labels: vec!["Closed".into(), "Open".into()], ..Meta::default() };
        /// assert_eq!(state.kind(), Kind::Enum);
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
        /// assert_eq!(samples.skipped(3), Array::I32(Arc::new(vec![13])));
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

            /// One element, counted from 0; `None` past the end.
            pub fn scalar(&self, index: usize) -> Option<Scalar> {
                match self { $(Array::$kind(elements) => elements.get(index).cloned().map(Scalar::$kind),)* }
            }

            /// The first `n` elements, or the whole array if it has at most `n`.
            pub fn truncated(&self, n: usize) -> Array {
                if n >= self.len() {
                    return self.clone();
                }
                match self { $(Array::$kind(elements) => Array::$kind(Arc::new(elements[..n].to_vec())),)* }
            }

            /// Every `step`th element from `start` on, at most `n`; fewer if the array ends first.
            pub fn strided(&self, start: usize, step: usize, n: usize) -> Array {
                match self {
                    $(Array::$kind(elements) => {
                        let chosen = elements.iter().skip(start).step_by(step.max(1)).take(n);
                        Array::$kind(Arc::new(chosen.cloned().collect()))
                    })*
                }
            }
        }

        impl Array {
            /// The elements after the first `n`; empty if there are none.
            pub fn skipped(&self, n: usize) -> Array {
                match self {
                    $(Array::$kind(elements) => Array::$kind(Arc::new(elements.iter().skip(n).cloned().collect())),)*
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

impl Array {
    /// Whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    pub fn n_bytes(&self) -> usize {
        let each = match self.kind() {
            Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 | Kind::Enum => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
            Kind::Text => {
                return match self {
                    Value::Scalar(Scalar::Text(text)) => text.len(),
                    Value::Array(Array::Text(texts)) => texts.iter().map(|text| size_of::<Text>() + text.len()).sum(),
                    _ => 0,
                };
            }
        };
        each * self.len()
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
    I8 i8; U8 u8; I16 i16; U16 u16; I32 i32; U32 u32; I64 i64; U64 u64; F32 f32; F64 f64; Text Text;
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
    fn cloning_an_array_shares_its_elements_and_slicing_copies_them() {
        let array = Array::I32(Arc::new(vec![1, 2, 3]));

        let Array::I32(copy) = array.clone() else { unreachable!() };
        let Array::I32(original) = &array else { unreachable!() };
        assert!(Arc::ptr_eq(original, &copy));
        assert_eq!(array.truncated(2), Array::I32(Arc::new(vec![1, 2])));
        assert_eq!(array.strided(0, 2, 9), Array::I32(Arc::new(vec![1, 3])));
    }
}
