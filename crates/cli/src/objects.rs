//! Providers from shared objects (`FI_PROVIDER_PATH`). They are linked with `libfabric.so.1`, so the
//! tools reach them through the one that is installed with them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal, Registration, Registry, Standing};
use ripstop_core::{FabricAttr, Hints, Info, fi_warn};
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_types::{Errno, Flags, Mode, Version};

/// The variable that names places of objects.
const PATH: &str = "FI_PROVIDER_PATH";

/// The objects in the folder beside the library that are no reason to open it: our own.
const OURS: [&str; 2] = ["libripstop-fi.so", "libripstop_shm-fi.so"];

/// A provider that the library installed with the tools has loaded.
struct FromObject {
    provider: ForeignProvider,
    name: String,
    version: Version,
    path: PathBuf,
    /// Whether answers are shown as the library gives them; else they can be opened.
    is_shown: bool,
}

/// A provider, and what keeps it listed.
struct Listed(
    Arc<FromObject>,
    #[expect(dead_code, reason = "kept")] Registration,
);

static LISTED: OnceLock<Vec<Listed>> = OnceLock::new();

/// Lists the providers that the library has loaded beside those of the tools, if there can be any;
/// once. With `is_shown` answers are as the library gives them, and cannot be opened.
pub(crate) fn list(registry: &'static Registry, is_shown: bool) {
    LISTED.get_or_init(|| {
        let found = found(is_shown).into_iter().map(Arc::new);
        let register = |provider: Arc<FromObject>| {
            // Of two providers with one name the library has chosen this.
            let registration = registry.register_as(provider.clone(), Standing::Preferred);
            Listed(provider, registration)
        };
        found.map(register).collect()
    });
}

/// The provider of an interface with this name, to open it.
pub(crate) fn find(name: &str) -> Option<Arc<ForeignProvider>> {
    let listed = LISTED.get()?.iter();
    let mut found = listed.filter(|listed| listed.0.is_meant(name));
    found
        .next()
        .map(|listed| Arc::new(listed.0.provider.clone()))
}

fn found(is_shown: bool) -> Vec<FromObject> {
    let Some(folder) = libraries() else {
        return Vec::new();
    };
    let named = env::var_os(PATH).is_some_and(|path| !path.is_empty());
    if !named && !has_objects(&folder.join("libfabric")) {
        return Vec::new();
    }
    let path = folder.join("libfabric.so.1");
    let library = match Library::open(&path) {
        Ok(library) => library,
        Err(error) => {
            fi_warn!(
                "core",
                Subsys::Core,
                "providers from objects are left out, which {} would load: {error}",
                path.display()
            );
            return Vec::new();
        }
    };
    let listed = ForeignProvider::new(library.clone(), "").offers(&Request {
        version: Version::CURRENT,
        flags: Flags::PROV_ATTR_ONLY,
        ..Request::default()
    });
    let one = |info: Info| {
        let FabricAttr {
            name,
            prov_name,
            prov_version,
            ..
        } = info.fabric;
        // The name of the fabric is where the provider is from.
        let (path, name) = (PathBuf::from(name?), prov_name?);
        Some(FromObject {
            provider: ForeignProvider::new(library.clone(), &name),
            name,
            version: Version(prov_version),
            path,
            is_shown,
        })
    };
    listed
        .unwrap_or_default()
        .into_iter()
        .filter_map(one)
        .collect()
}

/// The folder `lib` of the prefix that this tool is installed in.
fn libraries() -> Option<PathBuf> {
    let tool = env::current_exe().and_then(fs::canonicalize).ok()?;
    let folder = tool.parent()?.parent()?.join("lib");
    folder.join("libfabric.so.1").is_file().then_some(folder)
}

/// Whether there are objects that are not our own.
fn has_objects(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name.ends_with("-fi.so") && !OURS.contains(&name.as_str()))
}

impl FromObject {
    /// Whether interfaces of this name are its own: those that it is the topmost layer of.
    fn is_meant(&self, name: &str) -> bool {
        let top = name.rsplit(';').next().unwrap_or(name);
        top.eq_ignore_ascii_case(&self.name)
    }

    /// What the library answers, with nothing kept from the caller.
    fn shown(&self, request: &Request<'_>) -> Answer {
        let mut hints = request.hints.cloned().unwrap_or_else(|| Hints {
            mode: Mode::all(),
            ..Hints::default()
        });
        let fabric = hints.fabric.get_or_insert_default();
        fabric.prov_name.get_or_insert_with(|| self.name.clone());
        let hints = Some(&hints);
        match self.provider.offers(&Request { hints, ..*request }) {
            Ok(infos) => Answer {
                infos,
                refusals: Vec::new(),
            },
            Err(error) => Refusal::Failed(
                error.errno,
                "it has no interface that meets the hints".to_owned(),
            )
            .into(),
        }
    }
}

impl ProviderInfo for FromObject {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Version {
        self.version
    }

    fn object(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let mut answer = match self.is_shown {
            true => self.shown(request),
            false => self.provider.getinfo(request),
        };
        // The library also answers with what is layered upon it, which is listed by itself.
        answer.infos.retain(|info| self.is_meant(info.prov_name()));
        if answer.infos.is_empty() && answer.refusals.is_empty() {
            let why = "it has no interface of its own that meets the hints";
            answer.refusals = vec![Refusal::Failed(Errno::ENODATA, why.to_owned())];
        }
        answer
    }

    fn remarks(&self) -> Vec<String> {
        vec![format!("from the object {}", self.path.display())]
    }
}
