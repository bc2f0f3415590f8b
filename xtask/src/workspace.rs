//! The tree this tool works on, as `cargo metadata` tells it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// A package of the workspace.
pub(crate) struct Package {
    /// Package name, for `cargo -p`.
    pub(crate) name: String,
    /// The package's folder, absolute.
    pub(crate) dir: PathBuf,
    /// Crate roots (`lib.rs`, `main.rs`, ...), absolute, without tests, examples and benches.
    pub(crate) roots: Vec<PathBuf>,
    /// Names of the executables it builds.
    pub(crate) binaries: Vec<String>,
    /// Direct dependencies, in manifest order.
    pub(crate) dependencies: Vec<Dependency>,
}

/// An arrow from one package to another.
pub(crate) struct Dependency {
    /// The package's name in the registry or in its own manifest.
    pub(crate) name: String,
    /// Folder of a path dependency, absolute.
    pub(crate) dir: Option<PathBuf>,
    /// Whether only tests, examples and benchmarks see it.
    pub(crate) dev: bool,
}

/// The workspace and where its products go.
pub(crate) struct Workspace {
    /// Folder of the top `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    /// The members.
    pub(crate) packages: Vec<Package>,
}

impl Package {
    /// The name of the package's folder, which is its name in the house plan.
    pub(crate) fn folder(&self) -> &str {
        folder_name(&self.dir)
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.dir.join("Cargo.toml")
    }
}

/// The last component of a path, or nothing when that is not text.
pub(crate) fn folder_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

impl Workspace {
    /// Asks cargo about the workspace that this tool was built in.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let metadata = MetadataCommand::new()
            .manifest_path(home.join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata failed: run it by hand to see why")?;
        Ok(Self {
            root: metadata.workspace_root.clone().into(),
            target: metadata.target_directory.clone().into(),
            packages: metadata.packages.into_iter().map(Package::from).collect(),
        })
    }

    /// The member in folder `name`, if it exists.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages
            .iter()
            .find(|package| package.folder() == name)
    }

    /// A path as people name it: relative to the top of the tree.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

impl From<cargo_metadata::Package> for Package {
    fn from(package: cargo_metadata::Package) -> Self {
        let is_binary = |target: &&cargo_metadata::Target| target.kind.contains(&TargetKind::Bin);
        let is_root = |target: &&cargo_metadata::Target| {
            let beside = [
                TargetKind::Test,
                TargetKind::Example,
                TargetKind::Bench,
                TargetKind::CustomBuild,
            ];
            !target.kind.iter().any(|kind| beside.contains(kind))
        };
        let dependency = |dep: &cargo_metadata::Dependency| Dependency {
            name: dep.name.clone(),
            dir: dep.path.clone().map(Into::into),
            dev: dep.kind == DependencyKind::Development,
        };
        Self {
            name: package.name.to_string(),
            dir: package
                .manifest_path
                .parent()
                .map(Into::into)
                .unwrap_or_default(),
            roots: package
                .targets
                .iter()
                .filter(is_root)
                .map(|target| target.src_path.clone().into())
                .collect(),
            binaries: package
                .targets
                .iter()
                .filter(is_binary)
                .map(|target| target.name.clone())
                .collect(),
            dependencies: package.dependencies.iter().map(dependency).collect(),
        }
    }
}
