//! The lines of a structure as text.

use core::ffi::CStr;
use core::fmt;

use super::names::{self, Names};
use crate::text::Text;

/// One step of indentation.
pub(super) const TAB: &str = "    ";

/// Lines of one structure, each a step further in than its name.
pub(super) struct Lines<'a> {
    text: &'a mut Text,
    indent: &'a str,
}

impl<'a> Lines<'a> {
    /// Starts a structure.
    pub(super) fn new(text: &'a mut Text, indent: &'a str, name: &str) -> Self {
        text.fmt(format_args!("{indent}{name}:\n"));
        Self { text, indent }
    }

    /// A line whose value `put` writes.
    pub(super) fn line(&mut self, name: &str, put: impl FnOnce(&mut Text)) {
        self.text.fmt(format_args!("{}{TAB}{name}: ", self.indent));
        put(self.text);
        self.text.put("\n");
    }

    /// A line with a number, in decimal.
    pub(super) fn number(&mut self, name: &str, value: impl fmt::Display) {
        self.line(name, |text| text.fmt(format_args!("{value}")));
    }

    /// A line with a number, in hexadecimal.
    pub(super) fn hex(&mut self, name: &str, value: impl fmt::LowerHex) {
        self.line(name, |text| text.fmt(format_args!("0x{value:x}")));
    }

    /// A line with a C string, or `(null)`.
    pub(super) fn string(&mut self, name: &str, value: Option<&CStr>) {
        self.line(name, |text| text.c_str(value));
    }

    /// A line with an address.
    pub(super) fn pointer<T>(&mut self, name: &str, value: *const T) {
        self.line(name, |text| text.pointer(value));
    }

    /// A line with the name of an enumeration's value.
    pub(super) fn value(&mut self, name: &str, table: Names, value: u32) {
        self.line(name, |text| names::value(text, table, u64::from(value)));
    }

    /// A line with the names of the set bits.
    pub(super) fn flags(&mut self, name: &str, table: Names, bits: u64) {
        self.line(name, |text| {
            text.put("[ ");
            names::flags(text, table, bits);
            text.put(" ]");
        });
    }
}

/// A line for each field, which is a number of this name.
macro_rules! numbers {
    ($lines:ident, $attr:ident: $($field:ident)*) => {
        $($lines.number(stringify!($field), $attr.$field);)*
    };
}

pub(super) use numbers;
