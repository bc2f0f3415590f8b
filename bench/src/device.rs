//! The device that providers of RDMA are counted on: `bench/device/device.c`, which is memory of one process.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::top;

/// The names that the device has as a library.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// The device's source is wrong, as the compiler says: not something that the machine lacks.
#[derive(Debug)]
pub(crate) struct DoesNotCompile(String);

impl fmt::Display for DoesNotCompile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bench/device/device.c does not compile: {}", self.0)
    }
}

impl std::error::Error for DoesNotCompile {}

/// The device, compiled. It is gone when it is dropped.
pub(crate) struct Device {
    folder: TempDir,
    /// Without links, as callgrind names it.
    object: PathBuf,
}

impl Device {
    /// What a provider is counted on, if not on what the machine has.
    ///
    /// # Errors
    /// What the machine lacks for it; [`DoesNotCompile`].
    pub(crate) fn of(provider: &str) -> Result<Option<Self>> {
        provider.starts_with("verbs").then(Self::new).transpose()
    }

    fn new() -> Result<Self> {
        let interfaces = ripstop_os::net::interfaces()?;
        ensure!(
            interfaces.iter().any(|it| it.usable() && !it.loopback),
            "no interface but loopback has an address, and devices are found by that"
        );
        let folder = tempfile::tempdir()?;
        let object = folder.path().canonicalize()?.join("device.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
        // It must not call the C library, whose instructions count.
        compiler.args(["-fno-builtin", "-fPIC", "-shared", "-o"]);
        compiler.arg(&object);
        compiler.arg(top().join("bench/device/device.c"));
        let headers = Command::new("cc")
            .args(["-fsyntax-only", "-x", "c", "/dev/null"])
            .args(["-include", "infiniband/verbs.h"])
            .args(["-include", "rdma/rdma_cma.h"])
            .output()
            .context("there is no C compiler")?;
        ensure!(
            headers.status.success(),
            "the device needs the headers of the packages libibverbs-dev and librdmacm-dev"
        );
        let output = compiler.output()?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(DoesNotCompile(told.trim().to_owned()).into());
        }
        for name in LIBRARIES {
            symlink(&object, folder.path().join(name))?;
        }
        let entry = folder.path().join("class/infiniband_verbs/uverbs0");
        fs::create_dir_all(entry)?;
        Ok(Self { folder, object })
    }

    /// What has a program find the device and no other.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let mut folders = vec![self.folder.path().to_owned()];
        let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        folders.extend(std::env::split_paths(&others));
        let folders = std::env::join_paths(folders).unwrap_or_default();
        let sysfs = OsStr::to_os_string(self.folder.path().as_os_str());
        [("LD_LIBRARY_PATH", folders), ("SYSFS_PATH", sysfs)]
    }

    /// The file with its instructions.
    pub(crate) fn object(&self) -> Cow<'_, str> {
        self.object.to_string_lossy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_providers_of_rdma() {
        assert!(matches!(Device::of("tcp;ofi_rxm"), Ok(None)));
        match Device::of("verbs;ofi_rxm") {
            Err(why) if why.is::<DoesNotCompile>() => panic!("{why:#}"),
            Err(why) => println!("SKIP: {why:#}"),
            Ok(device) => {
                let device = device.expect("one");
                let [(_, folders), (_, sysfs)] = device.environment();
                let first = std::env::split_paths(&folders).next().expect("a folder");
                assert!(first.join(LIBRARIES[0]).exists() && first.join(LIBRARIES[1]).exists());
                assert_eq!(first, PathBuf::from(sysfs));
            }
        }
    }
}
