#![allow(unsafe_code)]
//! Run-time parameters (`fi_provider(3)`, `fi_getparams`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::collections::HashSet;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, PoisonError};

use ripstop_abi as abi;
use ripstop_core::param::{Param, ParamType};
use ripstop_core::params;
use ripstop_types::{Errno, Result};

use crate::errno::{code, fail};
use crate::info::read::string;
use crate::log::provider_name;
use crate::varargs::Args;
use crate::{cmem, providers};

/// Exported as `fi_getparams@@FABRIC_1.0`: lists all parameters. The array ends with an entry
/// of nulls and is freed with `fi_freeparams`. Returns 0, `-FI_EINVAL` for null, `-FI_ENOMEM`.
///
/// # Safety
///
/// `list` and `count` are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_getparams_1_0(
    list: *mut *mut abi::fi_param,
    count: *mut c_int,
) -> c_int {
    if list.is_null() || count.is_null() {
        return fail(Errno::EINVAL);
    }
    providers::load();
    let found = params().list();
    let made = listed(&found);
    if made.is_null() {
        return fail(Errno::ENOMEM);
    }
    // SAFETY: not null, and the caller's guarantee.
    unsafe { list.write(made) };
    let length = c_int::try_from(found.len()).unwrap_or(c_int::MAX);
    // SAFETY: as above.
    unsafe { count.write(length) };
    0
}

/// A C array of parameters, or null when there is no memory.
fn listed(found: &[Param]) -> *mut abi::fi_param {
    let made = cmem::zeroed::<abi::fi_param>(found.len().saturating_add(1));
    if made.is_null() {
        return made;
    }
    for (index, param) in found.iter().enumerate() {
        let entry = abi::fi_param {
            name: cmem::text(&param.name),
            type_: param.kind as abi::fi_param_type,
            help_string: cmem::text(&param.help),
            value: param
                .value
                .as_deref()
                .map_or(ptr::null(), |value| cmem::text(value).cast_const()),
        };
        // SAFETY: `index` is within the array.
        unsafe { made.wrapping_add(index).write(entry) };
        if entry.name.is_null() || entry.help_string.is_null() {
            // SAFETY: made here, and nobody else knows it.
            unsafe { ripstop_fi_freeparams_1_0(made) };
            return ptr::null_mut();
        }
    }
    made
}

/// Exported as `fi_freeparams@@FABRIC_1.0`: frees what `fi_getparams` made; null is nothing.
///
/// # Safety
///
/// `list` is null or came from `fi_getparams`, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_freeparams_1_0(list: *mut abi::fi_param) {
    if list.is_null() {
        return;
    }
    let mut at = list;
    loop {
        // SAFETY: the array ends with an entry of nulls.
        let entry = unsafe { at.read() };
        for text in [entry.name, entry.help_string, entry.value] {
            // SAFETY: null or made by `fi_getparams`.
            unsafe { cmem::free(text.cast_mut()) };
        }
        if entry.name.is_null() {
            break;
        }
        at = at.wrapping_add(1);
    }
    // SAFETY: made by `fi_getparams`.
    unsafe { cmem::free(list) };
}

/// The provider of a parameter: `None` for the core.
///
/// # Safety
///
/// `provider` is null or valid, with a name that is null or a C string.
unsafe fn owner(provider: *const abi::fi_provider) -> Option<String> {
    (!provider.is_null()).then(|| {
        // SAFETY: the caller's guarantee.
        let name = unsafe { provider_name(provider) };
        name.to_string_lossy().into_owned()
    })
}

fn kind_of(kind: abi::fi_param_type) -> Option<ParamType> {
    Some(match kind {
        abi::FI_PARAM_STRING => ParamType::String,
        abi::FI_PARAM_INT => ParamType::Int,
        abi::FI_PARAM_BOOL => ParamType::Bool,
        abi::FI_PARAM_SIZE_T => ParamType::Size,
        _ => return None,
    })
}

/// What `fi_param_define` does with its arguments.
///
/// # Safety
///
/// As `ripstop_fi_param_define_1_0` says; `args` are those of the format.
pub(crate) unsafe extern "C" fn define(
    provider: *const abi::fi_provider,
    name: *const c_char,
    kind: abi::fi_param_type,
    help: *const c_char,
    args: Args,
) -> c_int {
    let define = || {
        // SAFETY: the caller's guarantee, for each block of this function.
        let name = unsafe { string(name) }.ok_or(Errno::EINVAL)?;
        let kind = kind_of(kind).ok_or(Errno::EINVAL)?;
        if help.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above; not null.
        let help = unsafe { args.print(help) }.ok_or(Errno::ENOMEM)?;
        if help.is_empty() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        let owner = unsafe { owner(provider) };
        params().define(owner.as_deref(), &name, kind, &help);
        Ok(())
    };
    code(define())
}

/// Exported as `fi_param_get@@FABRIC_1.0`: reads a parameter that was defined. Returns 0,
/// `-FI_ENODATA` when it is not set, `-FI_ENOENT` when it was not defined, `-FI_EINVAL` for
/// null or for a value that makes no sense. A string belongs to the library and lasts for ever.
///
/// # Safety
///
/// - `provider` is null or a provider with a name; `name` is null or a C string.
/// - `value` is null or points to what the parameter's type needs: `char *`, `int`, `int` or
///   `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_param_get_1_0(
    provider: *mut abi::fi_provider,
    name: *const c_char,
    value: *mut c_void,
) -> c_int {
    let get = || {
        // SAFETY: the caller's guarantee, for each block of this function.
        let name = unsafe { string(name) }.ok_or(Errno::EINVAL)?;
        if value.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        let owner = unsafe { owner(provider) };
        // SAFETY: as above; not null.
        unsafe { store(owner.as_deref(), &name, value) }
    };
    code(get())
}

/// Reads a parameter into a C variable.
///
/// # Safety
///
/// `value` points to what the parameter's type needs.
unsafe fn store(owner: Option<&str>, name: &str, value: *mut c_void) -> Result<()> {
    let (kind, text) = params().raw(owner, name)?;
    match kind {
        ParamType::String => {
            // SAFETY: the caller's guarantee, for each arm.
            unsafe { value.cast::<*const c_char>().write(kept(text)) };
        }
        ParamType::Int => {
            let number = params().get::<i32>(owner, name)?;
            // SAFETY: as above.
            unsafe { value.cast::<c_int>().write(number) };
        }
        ParamType::Bool => {
            let truth = params().get::<bool>(owner, name)?;
            // SAFETY: as above.
            unsafe { value.cast::<c_int>().write(c_int::from(truth)) };
        }
        ParamType::Size => {
            let size = params().get::<usize>(owner, name)?;
            // SAFETY: as above.
            unsafe { value.cast::<usize>().write(size) };
        }
    }
    Ok(())
}

/// A C string that lasts for ever; equal texts share one.
fn kept(text: String) -> *const c_char {
    static KEPT: LazyLock<Mutex<HashSet<&'static CStr>>> = LazyLock::new(Mutex::default);
    // Values of environment variables have no NULs.
    let text = CString::new(text).unwrap_or_default();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text.as_c_str()) {
        return known.as_ptr();
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    kept.insert(text);
    text.as_ptr()
}
