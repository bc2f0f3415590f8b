//! The module siw, iWARP in software: Debian's kernels lack it, so it is built from their own source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::lab::copy_files;
use crate::lab::kernel::{self, Kernel, Series};
use crate::lab::packages::{Fetcher, Unavailable, output, remove};
use crate::test::process::{self, End};

/// The longest that the build may take; it takes ten seconds of a processor.
const LIMIT: Duration = Duration::from_secs(600);

/// Where siw is in the kernel's source.
const SOURCE: &str = "drivers/infiniband/sw/siw";

/// The folder of the modules that a guest gets: those of the kernel, and siw.
const MODULES: &str = "modules";

/// What `make` is told: to build siw, and without type information, for which a program is needed that most machines
/// lack.
const SETTINGS: [&str; 2] = ["CONFIG_RDMA_SIW=m", "CONFIG_DEBUG_INFO_BTF_MODULES="];

/// Builds siw for `kernel`; the folder that becomes `/lib/modules`.
pub(super) fn build(
    fetcher: &Fetcher,
    series: Series,
    kernel: &Kernel,
    busybox: &Path,
) -> anyhow::Result<PathBuf> {
    for tool in ["make", "gcc", "strip"] {
        output(Command::new(tool).arg("--version"))
            .with_context(|| Unavailable(format!("siw is built here, and there is no {tool}")))?;
    }
    let packages = packages(fetcher, series, kernel);
    let prepare = |place: &Path| prepare(fetcher, series, kernel, busybox, place);
    let recipe = format!("{}{SETTINGS:?}", kernel::recipe());
    let name = format!("siw-{}", series.name());
    let place = fetcher.unpack(&name, &packages, &[], &recipe, &prepare)?;
    Ok(place.join(MODULES))
}

/// The kernel's source, and its headers with what these need.
fn packages(fetcher: &Fetcher, series: Series, kernel: &Kernel) -> Vec<String> {
    let headers = format!("linux-headers-{}", kernel.release);
    let starts = ["linux-headers-", "linux-kbuild-", "linux-compiler-"];
    let mut packages: Vec<String> = starts
        .iter()
        .filter_map(|start| fetcher.dependency(&headers, start))
        .collect();
    packages.extend([headers, format!("linux-source-{}", series.name())]);
    packages
}

/// Builds in an unpacked folder, and removes all but the modules.
fn prepare(
    fetcher: &Fetcher,
    series: Series,
    kernel: &Kernel,
    busybox: &Path,
    place: &Path,
) -> anyhow::Result<()> {
    let name = format!("linux-source-{}", series.name());
    unpack_source(place, &name)?;
    let headers = place
        .join("usr/src")
        .join(format!("linux-headers-{}", kernel.release));
    // The headers name each other by where they would be installed.
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).context("the headers have no Makefile")?;
    let here = format!("{}/usr/src/", place.display());
    fs::write(&makefile, text.replace("/usr/src/", &here))?;
    let source = place.join(&name).join(SOURCE);
    make(fetcher, &headers, &source)?;

    let base = place.join("staged");
    let folder = base.join("lib/modules");
    copy_files(&kernel.modules, &folder)?;
    let module = source.join("siw.ko");
    output(Command::new("strip").arg("--strip-debug").arg(&module))?;
    let extra = folder.join(&kernel.release).join("extra");
    fs::create_dir_all(&extra)?;
    fs::copy(&module, extra.join("siw.ko"))?;
    kernel::depmod(busybox, &base, &kernel.release)?;
    fs::rename(&folder, place.join(MODULES))?;
    for folder in ["staged", &name, "usr", "lib"] {
        remove(&place.join(folder))?;
    }
    Ok(())
}

/// Unpacks siw from the archive in the package of the source.
fn unpack_source(place: &Path, name: &str) -> anyhow::Result<()> {
    let archive = place.join("usr/src").join(format!("{name}.tar.xz"));
    let unpacked = Command::new("tar")
        .args(["-x", "--no-same-owner", "-C"])
        .arg(place)
        .arg("-f")
        .arg(&archive)
        .arg(format!("{name}/{SOURCE}"))
        .stdin(Stdio::null())
        .status()?;
    ensure!(unpacked.success(), "cannot unpack {}", archive.display());
    Ok(())
}

fn make(fetcher: &Fetcher, headers: &Path, source: &Path) -> anyhow::Result<()> {
    let path = fetcher.folder.join("siw.log");
    let log = File::create(&path)?;
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(headers)
        .arg(format!("M={}", source.display()))
        .args(SETTINGS)
        .arg("modules");
    // Those of a make around this one are not for it.
    for variable in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        command.env_remove(variable);
    }
    let end = process::run(&mut command, &log, LIMIT, &fetcher.interrupt)?;
    ensure!(
        end == End::Exit { success: true },
        "siw does not build: see {}",
        path.display()
    );
    Ok(())
}
