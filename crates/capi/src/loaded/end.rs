#![allow(unsafe_code)]
//! What the dynamic linker calls when the process ends, behind what programs have registered with
//! `atexit(3)` and behind the ends of the objects, which are linked with this library.

/// Stands among the functions to call.
// SAFETY: the section holds pointers to functions that take nothing, and this is one.
#[unsafe(link_section = ".fini_array")]
#[used]
static AT_END: extern "C" fn() = end;

extern "C" fn end() {
    super::end();
}
