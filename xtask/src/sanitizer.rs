//! Builds with AddressSanitizer, for the job `asan` of `cargo xtask test` and for `cargo xtask dist --asan`.
//!
//! The sanitizer is not in stable Rust, but its runtime comes with the stable toolchain, and the environment
//! variable `RUSTC_BOOTSTRAP` lets the compiler use it. The standard library itself is not instrumented; what it
//! allocates and copies is seen all the same, since the runtime takes the place of `malloc` and `memcpy`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::workspace::Workspace;

/// What is built for. Build scripts and macros are built for the host, without the sanitizer, only where cargo
/// is told a target.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The runtime is linked into executables and exports its functions to the libraries that they open.
const FLAGS: &str = "-Zsanitizer=address -Clink-arg=-rdynamic";

/// Where everything of these builds goes.
pub(crate) fn folder(ws: &Workspace) -> PathBuf {
    ws.target.join("asan")
}

/// For tests: leaks fail them, but for those in [`SUPPRESSIONS`].
pub(crate) const FOR_TESTS: &str = "detect_leaks=1";

/// What tests leak on purpose, below the top of the tree.
const SUPPRESSIONS: &str = "xtask/leaks.txt";

/// For the suite. It leaves the objects of each case to the end of its process, which are no leaks, and bounds how
/// much memory some of them take: so little freed memory is kept back from being used again, and little room is
/// left around each piece.
pub(crate) const FOR_SUITE: &str =
    "detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=16:max_redzone=16";

/// Makes a cargo command build with the sanitizer. What it runs ends at the first error.
pub(crate) fn instrument<'a>(ws: &Workspace, cargo: &'a mut Command) -> &'a mut Command {
    let leaks = ws.root.join(SUPPRESSIONS);
    let leaks = format!("suppressions={}:print_suppressions=0", leaks.display());
    cargo
        .env("LSAN_OPTIONS", leaks)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", folder(ws))
        .env("CARGO_BUILD_TARGET", TARGET)
}

/// Whether the toolchain can do it.
///
/// # Errors
/// Says what is missing.
pub(crate) fn check(ws: &Workspace) -> anyhow::Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .current_dir(&ws.root)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .context("cannot run rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let runtime = folder
        .parent()
        .unwrap_or(&folder)
        .join("lib/librustc-stable_rt.asan.a");
    ensure!(
        runtime.exists() && cfg!(target_arch = "x86_64"),
        "{} is not there: the toolchain has no AddressSanitizer for this machine",
        runtime.display()
    );
    Ok(())
}
