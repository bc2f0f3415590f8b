//! How the fields of a snapshot are bytes: numbers little-endian, texts and lists behind their length.
//! One macro gives a type both directions, so that they cannot differ.

use thiserror::Error;

/// The most bytes of a text; a longer one is cut.
const MAX_TEXT: usize = 256;

/// Bytes that are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They end in the middle.
    #[error("it ends in the middle")]
    Short,
    /// A field has a value that it cannot have.
    #[error("a field has a value that it cannot have")]
    Value,
    /// Something follows the end.
    #[error("something follows its end")]
    Long,
}

/// Bytes that are decoded.
#[derive(Debug)]
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Nothing is left.
    pub(super) const fn end(&self) -> Result<(), Malformed> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Malformed::Long),
        }
    }
}

/// A value as bytes.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it off the front.
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed>;
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let bytes = input.bytes(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().map_err(|_| Malformed::Short)?))
            }
        }
    )+};
}

numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        // Programs choose some names, and terminals obey some characters.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        let text: String = self.chars().map(plain).collect();
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        // At most `MAX_TEXT`.
        (text.len() as u16).put(out);
        out.extend_from_slice(text.as_bytes());
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let len = usize::from(u16::take(input)?);
        if len > MAX_TEXT {
            return Err(Malformed::Value);
        }
        let text = core::str::from_utf8(input.bytes(len)?).map_err(|_| Malformed::Value)?;
        // As `put` does it; nothing else is shown on a terminal.
        match text.chars().any(char::is_control) {
            true => Err(Malformed::Value),
            false => Ok(text.to_owned()),
        }
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        match bool::take(input)? {
            true => Ok(Some(T::take(input)?)),
            false => Ok(None),
        }
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.len()).unwrap_or(u16::MAX);
        count.put(out);
        for value in self.iter().take(usize::from(count)) {
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        // Nothing is reserved for what is only said to follow.
        let count = u16::take(input)?;
        (0..count).map(|_| T::take(input)).collect()
    }
}

/// Defines a struct of fields, in the order of their bytes.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $kind:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: $kind,)+ }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Field::take(input)?,)+ })
            }
        }
    };
}

/// Defines an enum that is one byte.
macro_rules! fieldless {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $value:literal,)+
    }) => {
        ripstop_types::numbered! {
            $(#[$meta])*
            pub enum $name: u8 as u8 { $($(#[$doc])* $variant = $value,)+ }
        }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u8).put(out);
            }

            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Self::from_number(u8::take(input)?).ok_or(Malformed::Value)
            }
        }
    };
}

pub(super) use {fieldless, record};
