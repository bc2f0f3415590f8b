//! The tree this tool works on, as `cargo metadata` tells it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// Targets of a package that are not part of what it delivers.
const BESIDE_KINDS: [TargetKind; 4] = [
    TargetKind::Test,
    TargetKind::Example,
    TargetKind::Bench,
    TargetKind::CustomBuild,
];

/// A package of the workspace.
pub(crate) struct Package {
    /// Package name, for `cargo -p`.
    pub(crate) name: String,
    /// Its folder below `crates`, or at the top: see [`folder`].
    pub(crate) folder: String,
    /// The package's folder, absolute.
    pub(crate) dir: PathBuf,
    /// Crate roots (`lib.rs`, `main.rs`, ...), absolute, without tests, examples and benches.
    pub(crate) roots: Vec<PathBuf>,
    /// Names of the executables it builds.
    pub(crate) binaries: Vec<String>,
    /// Direct dependencies, in manifest order.
    pub(crate) dependencies: Vec<Dependency>,
}

/// What is off by default and tried all the same.
pub(crate) const FEATURES: &str = "ripstop/verbs";

/// The program of the conformance suite.
pub(crate) const SUITE: &str = "conformance";

/// An arrow from one package to another.
pub(crate) struct Dependency {
    /// The package's name in the registry or in its own manifest.
    pub(crate) name: String,
    /// The folder of a path dependency.
    pub(crate) folder: Option<String>,
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

/// The name of a folder in the table of floors: `wire` for `crates/wire`, `fuzz` for `fuzz/bodies`.
fn folder(root: &Path, dir: &Path) -> String {
    let place = dir.strip_prefix(root).unwrap_or(dir);
    let place = place.strip_prefix("crates").unwrap_or(place);
    let first = place.components().next();
    first
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
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
        let root: PathBuf = metadata.workspace_root.into();
        let packages = metadata.packages.into_iter();
        Ok(Self {
            packages: packages
                .map(|package| Package::new(&root, package))
                .collect(),
            target: metadata.target_directory.into(),
            root,
        })
    }

    /// The first member in folder `name`, if there is one.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.folder == name)
    }

    /// The cargo that runs this tool, at the top of the tree.
    pub(crate) fn cargo(&self) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// What builds `target`, such as `--bin conformance`, of any member, in the profile of the tests.
    ///
    /// The members are all selected, as the job `unit` selects them: for fewer of them, cargo gives their dependencies
    /// other features, and builds nearly every crate once more.
    pub(crate) fn build_with_tests(&self, target: [&str; 2]) -> Command {
        let mut command = self.cargo();
        command.args(["build", "--quiet", "--workspace", "--features", FEATURES]);
        command.args(target);
        command
    }

    /// Where that puts the file `name`, such as `examples/pingpong`.
    pub(crate) fn built_with_tests(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// A path as people name it: relative to the top of the tree.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

impl Package {
    /// The manifest.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.dir.join("Cargo.toml")
    }

    fn new(root: &Path, package: cargo_metadata::Package) -> Self {
        let is_binary = |target: &&cargo_metadata::Target| target.kind.contains(&TargetKind::Bin);
        let is_root = |target: &&cargo_metadata::Target| {
            !target.kind.iter().any(|kind| BESIDE_KINDS.contains(kind))
        };
        let dependency = |dep: &cargo_metadata::Dependency| Dependency {
            name: dep.name.clone(),
            folder: dep.path.as_ref().map(|dir| folder(root, dir.as_std_path())),
            dev: dep.kind == DependencyKind::Development,
        };
        let dir = package
            .manifest_path
            .parent()
            .unwrap_or(package.manifest_path.as_path());
        Self {
            name: package.name.to_string(),
            folder: folder(root, dir.as_std_path()),
            dir: dir.into(),
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
