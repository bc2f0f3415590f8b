//! `target/dist`: an install prefix with the C library, its pkg-config file, the tools and the man pages; and packages
//! made of it.

mod binutils;
mod deb;
mod debug;
mod exports;
mod licences;
mod objects;
mod package;
mod program;
mod verbs;
mod verify;
mod wheel;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::sanitizer;
use crate::workspace::Workspace;
use exports::Export;
use verify::Library;

/// The name under which programs built for libfabric look for the library.
pub(crate) const SONAME: &str = "libfabric.so.1";

/// The executable that is every tool: the name under which it is started says which.
const TOOL: &str = "ripstop";

/// The release of libfabric whose interface and symbols the library has.
const API_RELEASE: &str = "2.6.0";

/// Options of the link, after the archive: only versioned names leave, nothing is bound lazily, and the
/// code stays mapped after `dlclose`, since threads and thread-local destructors may still need it.
const LINK_OPTIONS: [&str; 6] = [
    "-Wl,--no-whole-archive",
    "-Wl,--gc-sections",
    "-Wl,--as-needed",
    "-Wl,-z,now,-z,relro,-z,nodelete",
    "-Wl,--build-id",
    "-pthread",
];

/// What to make.
#[derive(Args)]
pub(crate) struct Options {
    /// Make only the library, with AddressSanitizer, in target/asan: a program that opens it must have the
    /// sanitizer's runtime.
    #[arg(long, conflicts_with_all = ["deb", "wheel"])]
    asan: bool,
    /// Make Debian packages of the prefix too, in target/packages: ripstop, and libfabric1-ripstop, which puts its
    /// library in front of the C one.
    #[arg(long)]
    deb: bool,
    /// Make a Python wheel of the prefix too, in target/packages.
    #[arg(long)]
    wheel: bool,
}

/// Where the prefix is made.
pub(crate) fn prefix(ws: &Workspace) -> PathBuf {
    ws.target.join("dist")
}

/// The library that `--asan` makes.
pub(crate) fn sanitized(ws: &Workspace) -> PathBuf {
    sanitizer::folder(ws).join(SONAME)
}

/// Makes what is asked for; `false` when a check of it failed.
pub(crate) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<bool> {
    ensure!(
        ws.package("capi").is_some(),
        "crates/capi is not there: nothing to link"
    );
    binutils::check()?;
    let exports = exports::parse(&fs::read_to_string(ws.root.join("libfabric/exports.txt"))?)?;
    if options.asan {
        return make_sanitized(ws, &exports);
    }
    if !make_prefix(ws, &exports)? {
        return Ok(false);
    }
    make_packages(ws, options)?;
    Ok(true)
}

/// Whether Debian packages can be made here.
pub(crate) fn has_debian_tools() -> bool {
    deb::check().is_ok()
}

/// Makes the packages that are asked for, and prints their files.
fn make_packages(ws: &Workspace, options: &Options) -> anyhow::Result<()> {
    let prefix = prefix(ws);
    let mut made = Vec::new();
    if options.deb {
        package::clear(ws, "deb")?;
        made.extend(deb::make(ws, &prefix)?);
    }
    if options.wheel {
        package::clear(ws, "whl")?;
        made.push(wheel::make(ws, &prefix)?);
    }
    remove(&package::folder(ws).join("staging"))?;
    for file in made {
        let size = fs::metadata(&file)?.len() / 1024;
        println!("{} {size} KiB", file.display());
    }
    Ok(())
}

/// Makes the library with AddressSanitizer. The archive is that of `ripstop-capi` itself, in the profile of the
/// tests, so that they share what is built.
fn make_sanitized(ws: &Workspace, exports: &BTreeSet<Export>) -> anyhow::Result<bool> {
    sanitizer::check(ws)?;
    let mut build = ws.cargo();
    build.args(["rustc", "--lib", "--crate-type", "staticlib", "--package"]);
    build.arg("ripstop-capi");
    complete(sanitizer::instrument(ws, &mut build))?;
    let folder = sanitizer::folder(ws);
    let archive = folder
        .join(sanitizer::TARGET)
        .join("debug/libripstop_capi.a");
    let library = sanitized(ws);
    link(&folder, &archive, exports, &library)?;
    println!("{}", library.display());
    Ok(true)
}

/// Builds everything, checks the library's symbols and prints what was made; `false` when a check failed.
fn make_prefix(ws: &Workspace, exports: &BTreeSet<Export>) -> anyhow::Result<bool> {
    let fresh = ws.target.join("dist.new");
    let lib = fresh.join("lib");
    remove(&fresh)?;
    fs::create_dir_all(lib.join("pkgconfig"))?;
    complete_all(builds(ws)?)?;
    let work = work(ws);
    let archive = work.join("release/libfabric.a");
    link(&work, &archive, exports, &lib.join(SONAME))?;
    let objects = objects::link(&work, &archive, &lib)?;
    verbs::link(ws, &lib)?;
    symlink(SONAME, lib.join("libfabric.so"))?;
    fs::write(lib.join("pkgconfig/libfabric.pc"), pkg_config())?;
    let tools = install_tools(ws, &fresh.join("bin"))?;
    install_texts(ws, &fresh.join("share"))?;
    let mut products = vec![lib.join(SONAME)];
    products.extend(objects);
    if !tools.is_empty() {
        products.push(fresh.join("bin").join(TOOL));
    }
    for product in &products {
        debug::split(product)?;
    }

    // The prefix is replaced at once: a failed build leaves the old one.
    let prefix = prefix(ws);
    remove(&prefix)?;
    fs::rename(&fresh, &prefix)?;
    let lib = prefix.join("lib");
    let library = lib.join(SONAME);
    let made = Library::read(&library)?;
    print_table(&prefix, &library, &made, &tools)?;
    let mut problems: Vec<String> = made
        .problems(exports, SONAME)
        .into_iter()
        .map(|problem| format!("{SONAME}: {problem}"))
        .collect();
    problems.extend(objects::problems(&lib)?);
    problems.extend(verbs::problems(ws, &lib)?);
    for problem in &problems {
        println!("error: {problem}");
    }
    Ok(problems.is_empty())
}

/// Removes a folder if it is there.
fn remove(dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot replace {}", dir.display()))?;
    }
    Ok(())
}

/// The folder of what the build of the static libraries makes.
fn work(ws: &Workspace) -> PathBuf {
    ws.target.join("libfabric")
}

/// What builds the static libraries and the tools. Each uses one processor for most of its time, since it optimises all
/// crates as one, so they are run side by side.
pub(crate) fn builds(ws: &Workspace) -> anyhow::Result<Vec<Command>> {
    let home = ws.root.join("libfabric");
    // The separate workspace takes the versions that the tests ran with.
    fs::copy(ws.root.join("Cargo.lock"), home.join("Cargo.lock"))?;
    let mut libraries = ws.cargo();
    libraries
        .args(["build", "--release", "--manifest-path"])
        .arg(home.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(work(ws));
    let mut builds = vec![libraries, verbs::build(ws)];
    if let Some(cli) = ws.package("cli") {
        let mut tools = ws.cargo();
        tools.args(["build", "--release", "--package", &cli.name, "--bin", TOOL]);
        builds.push(tools);
    }
    Ok(builds)
}

/// Links an archive as the library, under the exported names; `work` is for files in between.
fn link(
    work: &Path,
    archive: &Path,
    exports: &BTreeSet<Export>,
    library: &Path,
) -> anyhow::Result<()> {
    let (renames, script) = (work.join("renames.txt"), work.join("libfabric.map"));
    fs::write(&renames, exports::renames(exports))?;
    fs::write(&script, exports::version_script(exports))?;
    let archive = renamed(archive, &renames, &work.join("versioned.a"))?;
    shared(&archive, &script, SONAME, library)
}

/// Copies an archive and gives it other names; returns the copy.
fn renamed(archive: &Path, renames: &Path, copy: &Path) -> anyhow::Result<PathBuf> {
    binutils::run("objcopy", |objcopy| {
        objcopy.arg("--redefine-syms").arg(renames);
        objcopy.arg(archive).arg(copy)
    })?;
    Ok(copy.to_path_buf())
}

/// The C compiler, which starts the linker.
fn compiler() -> OsString {
    std::env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// Links an archive as a shared library.
fn shared(archive: &Path, script: &Path, soname: &str, library: &Path) -> anyhow::Result<()> {
    let mut cc = Command::new(compiler());
    cc.arg("-shared")
        .arg("-o")
        .arg(library)
        .arg("-Wl,--whole-archive")
        .arg(archive);
    cc.args(LINK_OPTIONS).arg(format!("-Wl,-soname,{soname}"));
    complete(cc.arg(format!("-Wl,--version-script={}", script.display())))
}

/// Installs the executable of `crates/cli`, which is built, and links to it under the names of the other tools; returns
/// all names.
fn install_tools(ws: &Workspace, bin: &Path) -> anyhow::Result<Vec<String>> {
    let Some(cli) = ws.package("cli") else {
        return Ok(Vec::new());
    };
    fs::create_dir_all(bin)?;
    fs::copy(ws.target.join("release").join(TOOL), bin.join(TOOL))
        .with_context(|| format!("cannot install {TOOL}"))?;
    for name in cli.binaries.iter().filter(|name| *name != TOOL) {
        symlink(TOOL, bin.join(name)).with_context(|| format!("cannot install {name}"))?;
    }
    Ok(cli.binaries.clone())
}

/// Installs the man pages and the licences.
fn install_texts(ws: &Workspace, share: &Path) -> anyhow::Result<()> {
    let pages = ws.root.join("man");
    for page in package::files(&pages)? {
        package::copy(&pages.join(&page), &share.join("man").join(&page))?;
    }
    let doc = share.join("doc/ripstop");
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        package::copy(&ws.root.join(licence), &doc.join(licence))?;
    }
    package::write(&doc.join("THIRD-PARTY.txt"), licences::text(ws)?)
}

/// The pkg-config file; it finds the library wherever the prefix is moved to. No headers are installed:
/// programs are compiled with the headers of libfabric itself.
fn pkg_config() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         \n\
         Name: libfabric\n\
         Description: OpenFabrics Interfaces, implemented by Ripstop\n\
         Version: {API_RELEASE}\n\
         Libs: -L${{libdir}} -lfabric\n"
    )
}

fn print_table(
    prefix: &Path,
    library: &Path,
    made: &Library,
    tools: &[String],
) -> anyhow::Result<()> {
    let kib = |file: &Path| -> anyhow::Result<u64> { Ok(fs::metadata(file)?.len() / 1024) };
    let size = kib(library)?;
    let entries = made.exports.len();
    let (major, minor) = made.glibc;
    println!("{}", prefix.display());
    println!(
        "  lib/{SONAME:<32} {size} KiB, {entries} versioned entries, glibc >= {major}.{minor}"
    );
    println!("  {:<36} {}", "", made.needed.join(" "));
    println!("  lib/{:<32} -> {SONAME}", "libfabric.so");
    for (name, provides) in objects::PRODUCTS {
        let size = kib(&prefix.join("lib").join(name))?;
        println!("  lib/{name:<32} {size} KiB, {provides} for other libraries");
    }
    let size = kib(&prefix.join("lib").join(verbs::FILE))?;
    println!(
        "  lib/{:<32} {size} KiB, for programs of verbs",
        verbs::FILE
    );
    println!(
        "  lib/{:<32} version {API_RELEASE}",
        "pkgconfig/libfabric.pc"
    );
    if tools.is_empty() {
        println!("  bin/ is not made: crates/cli is not there");
        return Ok(());
    }
    let size = kib(&prefix.join("bin").join(TOOL))?;
    let links = tools.iter().filter(|name| *name != TOOL);
    let links: Vec<&str> = links.map(String::as_str).collect();
    println!("  bin/{TOOL:<32} {size} KiB, also as {}", links.join(" "));
    println!("  debug information is in .debug beside each");
    println!("  share/                       man pages and licences");
    Ok(())
}

/// Runs a command to its end; an error names the command.
fn complete(command: &mut Command) -> anyhow::Result<()> {
    let child = start(command)?;
    finish(command, child)
}

/// Runs commands side by side, each to its end; an error names the first that failed.
fn complete_all(mut commands: Vec<Command>) -> anyhow::Result<()> {
    let started: Vec<_> = commands.iter_mut().map(start).collect();
    let ends = commands.iter().zip(started);
    let ends: Vec<_> = ends
        .map(|(command, child)| finish(command, child?))
        .collect();
    ends.into_iter().collect()
}

fn start(command: &mut Command) -> anyhow::Result<Child> {
    let program = command.get_program().display().to_string();
    let child = command.spawn();
    child.with_context(|| format!("cannot run {program}: is it installed?"))
}

fn finish(command: &Command, mut child: Child) -> anyhow::Result<()> {
    if !child.wait()?.success() {
        bail!("{} failed: {command:?}", command.get_program().display());
    }
    Ok(())
}
