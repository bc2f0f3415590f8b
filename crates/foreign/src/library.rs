#![allow(unsafe_code)]
//! Opening a library and its plain functions.

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix;
use parking_lot::Mutex;
use ripstop_abi::functions::{
    fi_dupinfo_fn, fi_fabric_fn, fi_freeinfo_fn, fi_getinfo_fn, fi_strerror_fn, fi_tostr_fn,
    fi_version_fn,
};
use ripstop_abi::{fi_info, fi_type};
use ripstop_types::{Errno, Version};

use crate::{Error, OpenError, Result};

/// An opened libfabric. Clones share it; it is never unloaded, since a library may leave
/// threads and exit handlers behind.
#[derive(Clone)]
pub struct Library {
    functions: Arc<Functions>,
}

/// The functions this crate calls by name, and the file they came from.
pub(crate) struct Functions {
    path: PathBuf,
    pub(crate) version: Version,
    pub(crate) getinfo: fi_getinfo_fn,
    pub(crate) dupinfo: fi_dupinfo_fn,
    pub(crate) freeinfo: fi_freeinfo_fn,
    pub(crate) fabric: fi_fabric_fn,
    strerror: fi_strerror_fn,
    tostr: fi_tostr_fn,
    _library: ManuallyDrop<unix::Library>,
}

/// Serialises calls that older releases do not guard themselves: the first `fi_getinfo`, which
/// initialises the library, and `fi_tostr`, whose result is one static buffer.
pub(crate) static GLOBAL: Mutex<()> = Mutex::new(());

impl Library {
    /// Opens the library at `path`. A name without a slash is searched as the dynamic linker
    /// does. Two libraries can be open in one process when both are given with a slash.
    ///
    /// Of the versions of a function that the library exports, `dlsym`(3) gives the default
    /// one, which is the newest; every struct of it begins with the members of release 1.5,
    /// the only ones this crate touches.
    ///
    /// # Errors
    ///
    /// The file does not load, is no libfabric, or is one before 1.5.
    pub fn open(path: impl AsRef<Path>) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
        // SAFETY: running the file's initialisers is what the caller asks for; see "Trust" in
        // the crate's documentation.
        let opened = unsafe { unix::Library::open(Some(path), flags) };
        let library = opened.map_err(|e| OpenError::Load {
            path: path.to_owned(),
            reason: e
                .source()
                .map_or_else(|| e.to_string(), ToString::to_string),
        })?;
        let library = ManuallyDrop::new(library);

        let version: fi_version_fn = symbol(&library, path, "fi_version")?;
        // SAFETY: `fi_version` takes nothing and may be called at any time.
        let version = Version(unsafe { version() });
        if version < Version::new(1, 5) {
            return Err(OpenError::TooOld {
                path: path.to_owned(),
                version,
            });
        }
        Ok(Self {
            functions: Arc::new(Functions {
                version,
                getinfo: symbol(&library, path, "fi_getinfo")?,
                dupinfo: symbol(&library, path, "fi_dupinfo")?,
                freeinfo: symbol(&library, path, "fi_freeinfo")?,
                fabric: symbol(&library, path, "fi_fabric")?,
                strerror: symbol(&library, path, "fi_strerror")?,
                tostr: symbol(&library, path, "fi_tostr")?,
                path: path.to_owned(),
                _library: library,
            }),
        })
    }

    pub(crate) fn functions(&self) -> &Arc<Functions> {
        &self.functions
    }

    /// The file it was opened from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.functions.path
    }

    /// The API version it implements (`fi_version`).
    #[must_use]
    pub fn version(&self) -> Version {
        self.functions.version
    }

    /// The library's words for an error (`fi_strerror`).
    #[must_use]
    pub fn strerror(&self, errno: Errno) -> String {
        let _guard = GLOBAL.lock();
        // SAFETY: the function takes any number.
        let text = unsafe { (self.functions.strerror)(errno.0) };
        copy_text(text)
    }
}

impl Functions {
    /// Whether both are of one library, so that objects of one may be passed to the other.
    pub(crate) fn same(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.getinfo, other.getinfo)
    }

    /// `fi_tostr`(3) of a value of the given kind.
    pub(crate) fn text(&self, value: *const c_void, kind: fi_type) -> String {
        let _guard = GLOBAL.lock();
        // SAFETY: the callers pass a live value of the kind they name; the lock keeps the
        // static result ours until it is copied.
        let text = unsafe { (self.tostr)(value, kind) };
        copy_text(text)
    }

    /// A copy of one info of this library, or of none: a zeroed one with every part.
    pub(crate) fn dup(&self, info: *const fi_info) -> Result<*mut fi_info> {
        // SAFETY: `info` is null or a live info of this library, which the call only reads.
        let copy = unsafe { (self.dupinfo)(info) };
        if copy.is_null() {
            return Err(Error::new("fi_dupinfo", Errno::ENOMEM));
        }
        Ok(copy)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({}, {})", self.path().display(), self.version())
    }
}

/// Looks up a function by its C name. The type must be that of the function.
fn symbol<F: Copy>(
    library: &unix::Library,
    path: &Path,
    name: &'static str,
) -> std::result::Result<F, OpenError> {
    // SAFETY: every caller names the type that `ripstop_abi::functions` gives for the name.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    match found {
        Ok(function) => Ok(*function),
        Err(_) => Err(OpenError::Symbol {
            path: path.to_owned(),
            name,
        }),
    }
}

/// Copies a C string, null as empty.
pub(crate) fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the callers pass a terminated string that stays until they return.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// A C return value that says what a buffer should have held.
pub(crate) fn too_small(ret: c_int) -> bool {
    ret == -Errno::ETOOSMALL.0
}
