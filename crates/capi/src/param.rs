#![allow(unsafe_code)]
//! Run-time parameters (`fi_provider(3)`, `fi_getparams`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::collections::HashSet;
use std::ffi::CString;
use std::sync::LazyLock;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::param::{Param, ParamType};
use ripstop_core::params;
use ripstop_types::{Errno, Result};

use crate::edge::{In, Out, Whole, arguments, trampolines};
use crate::errno::{code, fail};
use crate::format::Format;
use crate::info::read::string;
use crate::log::{Provider, provider_name};
use crate::{cmem, loaded, providers};

trampolines! { []
    /// Exported as `fi_getparams@@FABRIC_1.0`: lists all parameters. The array ends with an entry
    /// of nulls and is freed with `fi_freeparams`. Returns 0, `-FI_EINVAL` for null, `-FI_ENOMEM`.
    ///
    /// # Safety
    ///
    /// `list` and `count` are null or valid for writes.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_getparams_1_0(
        list: Out<*mut abi::fi_param> as *mut *mut abi::fi_param,
        count: Out<c_int> as *mut c_int,
    ) -> c_int {
        if list.is_null() || count.is_null() {
            return fail(Errno::EINVAL);
        }
        providers::load();
        loaded::load();
        let found = params().list();
        let made = listed(&found);
        if made.is_null() {
            return fail(Errno::ENOMEM);
        }
        list.put(made);
        count.put(c_int::try_from(found.len()).unwrap_or(c_int::MAX));
        0
    }

    /// What `fi_param_define` does with its arguments.
    pub(crate) extern "C" fn define(
        provider: Provider, name: Option<&CStr>, kind: abi::fi_param_type,
        help: Format(help, args),
    ) -> c_int {
        let define = || {
            let name = name.map(string).ok_or(Errno::EINVAL)?;
            let kind = kind_of(kind).ok_or(Errno::EINVAL)?;
            if help.is_null() {
                return Err(Errno::EINVAL);
            }
            let help = help.print().ok_or(Errno::ENOMEM)?;
            if help.is_empty() {
                return Err(Errno::EINVAL);
            }
            params().define(owner(provider.get()).as_deref(), &name, kind, &help);
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
    pub extern "C" fn ripstop_fi_param_get_1_0(
        provider: In<*mut abi::fi_provider> as *mut abi::fi_provider,
        name: Option<&CStr> as *const c_char,
        value: Value as *mut c_void,
    ) -> c_int {
        let get = || {
            let name = name.map(string).ok_or(Errno::EINVAL)?;
            if value.at.is_null() {
                return Err(Errno::EINVAL);
            }
            value.store(owner(provider.get()).as_deref(), &name)
        };
        code(get())
    }
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
fn owner(provider: Option<Whole<'_, abi::fi_provider>>) -> Option<String> {
    provider.map(|provider| string(provider_name(Some(provider))))
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

arguments! {
    /// The variable of a caller: null, or of the type of the parameter that the call names.
    struct Value { at: *mut c_void }
}

impl Value<'_> {
    /// Reads the parameter that the call names into the variable, which is not null.
    fn store(self, owner: Option<&str>, name: &str) -> Result<()> {
        let (kind, text) = params().raw(owner, name)?;
        let value = self.at;
        match kind {
            ParamType::String => {
                // SAFETY: not null, and for a parameter of this type a `char *`.
                unsafe { value.cast::<*const c_char>().write(kept(text)) };
            }
            ParamType::Size => {
                let size = params().get::<usize>(owner, name)?;
                // SAFETY: not null, and for a parameter of this type a `size_t`.
                unsafe { value.cast::<usize>().write(size) };
            }
            ParamType::Int | ParamType::Bool => {
                let number = match kind {
                    ParamType::Int => params().get::<i32>(owner, name)?,
                    _ => c_int::from(params().get::<bool>(owner, name)?),
                };
                // SAFETY: not null, and for a parameter of these types an `int`.
                unsafe { value.cast::<c_int>().write(number) };
            }
        }
        Ok(())
    }
}

/// A C string that lasts for ever; equal texts share one.
fn kept(text: String) -> *const c_char {
    static KEPT: LazyLock<Mutex<HashSet<&'static CStr>>> = LazyLock::new(Mutex::default);
    // Values of environment variables have no NULs.
    let text = CString::new(text).unwrap_or_default();
    let mut kept = KEPT.lock();
    if let Some(known) = kept.get(text.as_c_str()) {
        return known.as_ptr();
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    kept.insert(text);
    text.as_ptr()
}
