#![allow(unsafe_code)]
//! Interfaces of the object model as text.

use ripstop_core::Info;

use super::{free, write};
use crate::edge::Whole;
use crate::text::Text;
use crate::tostr;

/// An interface as `fi_tostr` prints it (`FI_TYPE_INFO`), for tools written in Rust; `None` when
/// there is no memory.
#[must_use]
pub fn info_text(info: &Info) -> Option<String> {
    let made = write::info(info);
    // SAFETY: null or made here, with pointers that are null or valid.
    let whole = unsafe { Whole::behind(made) }?;
    let mut text = Text::default();
    tostr::info::info(&mut text, whole);
    // SAFETY: made here, and nobody else knows it.
    unsafe { free::list(made) };
    Some(String::from_utf8_lossy(text.as_bytes()).into_owned())
}
