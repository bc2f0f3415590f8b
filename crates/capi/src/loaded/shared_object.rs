#![allow(unsafe_code)]
//! Shared objects that bring a provider: opening them, and what their entry must give.

use core::ffi::CStr;
use std::error::Error as _;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use ripstop_abi as abi;
use ripstop_types::Version;
use thiserror::Error;

/// The function that shared objects export.
const ENTRY: &CStr = c"fi_prov_ini";

/// The oldest interface that shared objects may be built for, as in the C library.
const OLDEST: Version = Version::new(1, 3);

/// The longest name of a provider, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Why a shared object is not used.
#[derive(Debug, Error)]
pub(super) enum Refused {
    /// It does not load: no shared object, or one that lacks what it is linked with.
    #[error("it does not load: {0}")]
    Load(String),
    /// It is no provider.
    #[error("it does not export fi_prov_ini, so it is no provider; take it out of the folder")]
    NoEntry,
    /// There is nothing for it here.
    #[error("its provider cannot be used on this machine (its fi_prov_ini returns NULL)")]
    Absent,
    /// What it registers has no name that a provider can have.
    #[error(
        "its provider's name {0:?} is none: a name has 1 to {MAX_NAME_BYTES} letters, digits, - and _"
    )]
    Name(String),
    /// What it registers cannot be opened.
    #[error("its provider {0} lacks the function that opens fabrics (fi_provider::fabric)")]
    NoFabric(String),
    /// It was built for an interface that this library does not have.
    #[error(
        "its provider {name} is built for version {found} of the interface, and this library takes {OLDEST} to \
         {}.x: build it for one of these", Version::CURRENT.major()
    )]
    Version {
        /// The provider.
        name: String,
        /// What it says.
        found: Version,
    },
}

/// A provider's functions.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    /// None for a hook.
    pub(super) getinfo: Option<Getinfo>,
    pub(super) fabric: Fabric,
    cleanup: Option<unsafe extern "C" fn()>,
}

/// `fi_provider::getinfo`.
pub(super) type Getinfo = unsafe extern "C" fn(
    version: u32,
    node: *const core::ffi::c_char,
    service: *const core::ffi::c_char,
    flags: u64,
    hints: *const abi::fi_info,
    info: *mut *mut abi::fi_info,
) -> core::ffi::c_int;

type Fabric = unsafe extern "C" fn(
    attr: *mut abi::fi_fabric_attr,
    fabric: *mut *mut abi::fid_fabric,
    context: *mut core::ffi::c_void,
) -> core::ffi::c_int;

/// A shared object whose [`ENTRY`] has been called. Dropping it unloads it.
pub(super) struct SharedObject {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) api_version: Version,
    pub(super) functions: Functions,
    _library: Library,
}

impl SharedObject {
    /// Opens a file, which runs its code in this process, and asks its entry for the provider.
    ///
    /// # Errors
    /// [`Refused`]; the shared object is unloaded.
    pub(super) fn open(path: &Path) -> Result<Self, Refused> {
        // SAFETY: running the code of the shared objects that the user has put there is what they are for.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let reason = error.source().map(ToString::to_string);
            Refused::Load(reason.unwrap_or_else(|| error.to_string()))
        })?;
        // SAFETY: the interface says that this name is a function of this type.
        let entry = unsafe {
            library
                .get::<unsafe extern "C" fn() -> *const abi::fi_provider>(ENTRY.to_bytes_with_nul())
        };
        let entry = *entry.map_err(|_| Refused::NoEntry)?;
        // SAFETY: the entry takes nothing, and is called once.
        let provider = unsafe { entry() };
        // SAFETY: null or a provider, which lasts as long as the object is loaded.
        let provider = *unsafe { provider.as_ref() }.ok_or(Refused::Absent)?;
        let (name, functions) = checked(&provider)?;
        Ok(Self {
            path: path.to_owned(),
            name,
            version: Version(provider.version),
            api_version: Version(provider.fi_version),
            functions,
            _library: library,
        })
    }

    /// Has the provider clean up (`fi_provider::cleanup`).
    pub(super) fn clean_up(&self) {
        if let Some(cleanup) = self.functions.cleanup {
            // SAFETY: the provider's own function, called once, at the end.
            unsafe { cleanup() };
        }
    }
}

/// The name and the functions of what an entry gave.
fn checked(provider: &abi::fi_provider) -> Result<(String, Functions), Refused> {
    let name = match provider.name.is_null() {
        true => String::new(),
        // SAFETY: not null, and then a C string, as the interface says.
        false => unsafe { CStr::from_ptr(provider.name) }
            .to_string_lossy()
            .into_owned(),
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_allowed) {
        return Err(Refused::Name(name.chars().take(MAX_NAME_BYTES).collect()));
    }
    let found = Version(provider.fi_version);
    if found < OLDEST || found.major() > Version::CURRENT.major() {
        return Err(Refused::Version { name, found });
    }
    let Some(fabric) = provider.fabric else {
        return Err(Refused::NoFabric(name));
    };
    let functions = Functions {
        getinfo: provider.getinfo,
        fabric,
        cleanup: provider.cleanup,
    };
    Ok((name, functions))
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int, c_void};

    use super::*;

    unsafe extern "C" fn getinfo(
        _: u32,
        _: *const c_char,
        _: *const c_char,
        _: u64,
        _: *const abi::fi_info,
        _: *mut *mut abi::fi_info,
    ) -> c_int {
        -abi::FI_ENODATA
    }

    unsafe extern "C" fn fabric(
        _: *mut abi::fi_fabric_attr,
        _: *mut *mut abi::fid_fabric,
        _: *mut c_void,
    ) -> c_int {
        -abi::FI_ENODATA
    }

    fn whole() -> abi::fi_provider {
        abi::fi_provider {
            fi_version: Version::CURRENT.0,
            name: c"udp".as_ptr(),
            getinfo: Some(getinfo),
            fabric: Some(fabric),
            ..Default::default()
        }
    }

    fn reason(provider: abi::fi_provider) -> String {
        checked(&provider)
            .err()
            .map(|why| why.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn what_is_no_provider_is_refused_with_the_reason() {
        assert_eq!(reason(whole()), "");
        let named = |name: &'static CStr| abi::fi_provider {
            name: name.as_ptr(),
            ..whole()
        };
        assert!(reason(named(c"")).contains("\"\""));
        assert!(reason(named(c"tcp;ofi_rxm")).contains("tcp;ofi_rxm"));
        assert!(reason(named(c"^udp")).contains("letters"));
        let unnamed = abi::fi_provider {
            name: core::ptr::null(),
            ..whole()
        };
        assert!(reason(unnamed).contains("is none"));
        let of = |major, minor| abi::fi_provider {
            fi_version: Version::new(major, minor).0,
            ..whole()
        };
        assert!(reason(of(1, 2)).contains("version 1.2"));
        assert!(reason(of(3, 0)).contains("version 3.0"));
        assert_eq!(reason(of(1, 3)), "");
        assert_eq!(reason(of(2, 99)), "");
        let closed = abi::fi_provider {
            fabric: None,
            ..whole()
        };
        assert!(reason(closed).contains("fi_provider::fabric"));
    }

    #[test]
    fn what_does_not_load_is_refused_with_the_reason() {
        let text = std::env::temp_dir().join(format!("ripstop-{}-fi.so", std::process::id()));
        std::fs::write(&text, "no shared object").unwrap();
        let refused = SharedObject::open(&text).err().map(|why| why.to_string());
        std::fs::remove_file(&text).unwrap();
        assert!(refused.is_some_and(|why| why.starts_with("it does not load: ")));
        let none = SharedObject::open(Path::new("libc.so.6")).err();
        assert!(matches!(none, Some(Refused::NoEntry)));
    }
}
