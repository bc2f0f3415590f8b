//! Providers from shared objects (`fi_provider(3)`): which there are, and what is open of them
//! (`docs/design/c-providers.md`).
//!
//! Each function of the interface that lists, asks or opens providers calls [`load`] first. What it
//! finds is in the registry beside the providers that are built in.
//!
//! | module | contents |
//! |---|---|
//! | `path` | where shared objects are looked for (`FI_PROVIDER_PATH`) |
//! | `shared_object` | opening one, and what it must export |
//! | `provider` | its provider, for the registry and `fi_fabric(3)` |
//! | `fabrics` | the open fabrics of these providers, which keep them loaded |
//! | `hooks` | what `FI_HOOK` puts above a fabric |
//! | `end` | the end of the process |
//!
//! A *shared object* is a file here, an *object* a `fid`, as everywhere else.

mod end;
mod fabrics;
mod hooks;
mod path;
mod provider;
mod shared_object;

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::registry::{Registration, Standing, registry};
use ripstop_core::{fi_info, fi_warn, params};

pub(crate) use hooks::install;
use path::{Entry, SearchPath};
pub(crate) use provider::CProvider;
use shared_object::{Refused, SharedObject};

use crate::providers;

/// What the name of a shared object ends with in a folder of them.
const SUFFIX: &str = "-fi.so";

/// Our own providers as shared objects for other libraries. In the folder beside this library they are
/// left out: they are built in.
const OURS: [&str; 2] = ["libripstop-fi.so", "libripstop_shm-fi.so"];

/// A provider that is registered.
struct Loaded {
    provider: Arc<CProvider>,
    /// Keeps it listed.
    _registration: Registration,
}

/// The providers that were loaded, in the order of their registration.
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// The process that has loaded them.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Loads the providers, once, behind those that are built in. A thread that comes while another one
/// loads waits.
pub(crate) fn load() {
    PROCESS.get_or_init(|| {
        providers::load();
        let registry = registry();
        let given = params().get::<String>(None, "provider_path").ok();
        let search = SearchPath::parse(given.as_deref(), &beside());
        for (file, standing) in files(&search) {
            load_file(&file, standing, registry);
        }
        process::id()
    });
}

/// The folder beside this library where shared objects are looked for.
fn beside() -> PathBuf {
    let this = ripstop_os::path_of_code(load);
    let folder = this.and_then(|path| path.parent().map(Path::to_owned));
    folder.unwrap_or_default().join("libfabric")
}

/// The files to open, in order.
fn files(search: &SearchPath) -> Vec<(PathBuf, Standing)> {
    let mut files = Vec::new();
    for entry in &search.entries {
        match entry {
            Entry::File(file) => files.push((file.clone(), Standing::Preferred)),
            Entry::Folder(folder) => {
                let found = in_folder(folder).into_iter();
                files.extend(found.map(|file| (file, search.standing)));
            }
            Entry::Beside(folder) => {
                let found = in_folder(folder).into_iter();
                let others = found.filter(|file| !is_ours(file));
                files.extend(others.map(|file| (file, search.standing)));
            }
        }
    }
    files
}

/// Whether a shared object has the name of one of ours.
fn is_ours(file: &Path) -> bool {
    let name = file.file_name();
    name.is_some_and(|name| OURS.iter().any(|ours| name == *ours))
}

/// The shared objects in a folder, in the order in which the C library takes them: last names first.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let folder = folder.display();
            fi_info!("core", Subsys::Core, "no providers from {folder}: {error}");
            return Vec::new();
        }
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_object = |path: &PathBuf| {
        let name = path.file_name();
        name.is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX))
    };
    let mut files: Vec<_> = paths.filter(is_object).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files
}

/// Opens a file and registers its provider, or says in the log why not. A file that is loaded already is left out,
/// under whatever path.
fn load_file(file: &Path, standing: Standing, registry: &'static ripstop_core::registry::Registry) {
    let same = |loaded: &Loaded| {
        let known = fs::canonicalize(loaded.provider.path());
        known.is_ok_and(|known| fs::canonicalize(file).is_ok_and(|file| file == known))
    };
    let mut loaded = LOADED.lock();
    if loaded.iter().any(same) {
        return;
    }
    drop(loaded);
    let opened = SharedObject::open(file).map(CProvider::new);
    let provider = match opened {
        Ok(provider) => Arc::new(provider),
        Err(why @ Refused::Absent) => {
            fi_info!("core", Subsys::Core, "{}: {why}", file.display());
            return;
        }
        Err(why) => {
            fi_warn!(
                "core",
                Subsys::Core,
                "provider object {} is refused: {why}",
                file.display()
            );
            return;
        }
    };
    loaded = LOADED.lock();
    loaded.push(Loaded {
        _registration: registry.register_as(provider.clone(), standing),
        provider,
    });
}

/// Whether any provider was loaded.
pub(crate) fn is_any() -> bool {
    !LOADED.lock().is_empty()
}

/// The provider of this name, if the registry takes one from a shared object for it.
pub(crate) fn find(name: &str) -> Option<Arc<CProvider>> {
    let counts = registry().provider(name)?;
    let same =
        |loaded: &&Loaded| core::ptr::addr_eq(Arc::as_ptr(&loaded.provider), Arc::as_ptr(&counts));
    let loaded = LOADED.lock();
    loaded
        .iter()
        .find(same)
        .map(|loaded| Arc::clone(&loaded.provider))
}

/// The end of the process: all are taken off the list, last ones first, and cleaned up. A shared object is unloaded
/// unless a fabric of it is open. What a child has inherited is its parent's to clean up.
fn end() {
    ripstop_hooks::at_end();
    if PROCESS.get() != Some(&process::id()) {
        return;
    }
    let mut loaded = std::mem::take(&mut *LOADED.lock());
    while let Some(one) = loaded.pop() {
        one.provider.clean_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_files_of_such_names() {
        let folder = std::env::temp_dir().join(format!("ripstop-objects-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in [
            "liba-fi.so",
            "libb-fi.so",
            "libc.so",
            OURS[0],
            OURS[1],
            "x-fi.so.1",
        ] {
            fs::write(folder.join(name), "").unwrap();
        }
        let names = |entry| {
            let search = SearchPath {
                standing: Standing::Found,
                entries: vec![entry],
            };
            let files = files(&search);
            assert!(
                files
                    .iter()
                    .all(|(_, standing)| *standing == Standing::Found)
            );
            let name = |(path, _): (PathBuf, _)| path.file_name().unwrap().to_owned();
            files.into_iter().map(name).collect::<Vec<_>>()
        };
        let beside = names(Entry::Beside(folder.clone()));
        let named = names(Entry::Folder(folder.clone()));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(beside, ["libb-fi.so", "liba-fi.so"]);
        assert_eq!(named, [OURS[1], OURS[0], "libb-fi.so", "liba-fi.so"]);
        assert!(in_folder(&folder).is_empty());
    }
}
