//! An RDMA device for a test that runs itself again in a process of its own: the one of `bench/device`.

use std::ffi::c_ulong;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the device is told and says of requests (`requests` in `device.c`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Requests {
    /// Which are held back: none, [`HOLD_ALL`] or [`HOLD_READS`].
    pub hold: c_ulong,
    /// Reads that were posted.
    pub reads: c_ulong,
    /// Requests that are held back now.
    pub held: c_ulong,
    /// Requests that were posted with their data inline.
    pub inlined: c_ulong,
    /// Polls of completion queues that have found nothing.
    pub polls: c_ulong,
    /// Whether a queue pair is not told that its peer has gone, and holds back what it posts then.
    pub silent: c_ulong,
}

/// Of [`Requests::hold`]: all of them.
pub const HOLD_ALL: c_ulong = 1;

/// Of [`Requests::hold`]: reads.
pub const HOLD_READS: c_ulong = 2;

/// What the device counts of registrations of memory (`registrations` in `device.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Registrations {
    /// How many were made.
    pub made: c_ulong,
    /// How many have ended.
    pub ended: c_ulong,
    /// How many of the next are refused.
    pub refuse: c_ulong,
}

/// Set in the process that is the program.
const PROGRAM: &str = "RIPSTOP_DEVICE_PROGRAM";

/// The device as a library in a folder that `sysfs` lists it in, too; `None`, with a line, where it cannot be.
fn device(test: &str) -> Option<PathBuf> {
    let interfaces = ripstop_os::net::interfaces().expect("interfaces");
    if !interfaces.iter().any(|it| it.usable() && !it.loopback) {
        println!("SKIP: no interface but loopback has an address, and devices are found by that");
        return None;
    }
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(folder.join("class/infiniband_verbs/uverbs0")).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/device/device.c");
    let mut compiler = Command::new("cc");
    compiler.env("LC_ALL", "C").args([
        "-std=gnu11",
        "-O2",
        "-fno-builtin",
        "-fPIC",
        "-shared",
        "-o",
    ]);
    compiler.arg(folder.join("device.so")).arg(source);
    match compiler.output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            let told = String::from_utf8_lossy(&done.stderr);
            // A header; else the device is wrong.
            assert!(told.contains("No such file"), "{told}");
            println!("SKIP: the device needs libibverbs-dev and librdmacm-dev: {told}");
            return None;
        }
        Err(error) => {
            println!("SKIP: there is no C compiler: {error}");
            return None;
        }
    }
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink("device.so", folder.join(name)).expect("a link");
    }
    Some(folder)
}

/// Runs a test again in a process of its own that has the device; what it said, or `None` where that cannot be.
pub fn run(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    let folder = device(test)?;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
        .env("LD_LIBRARY_PATH", &folder)
        .env("SYSFS_PATH", &folder);
    command
        .env(PROGRAM, "1")
        .env("FI_LOG_LEVEL", "info")
        .envs(variables.iter().copied());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    fs::remove_dir_all(folder).expect("the folder");
    let said = String::from_utf8_lossy(&stdout);
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    assert!(
        status.success() && said.contains("1 passed"),
        "{test}:\n{said}{errors}"
    );
    Some(errors)
}

/// Whether this process is the program of the test.
pub fn is_program() -> bool {
    std::env::var_os(PROGRAM).is_some()
}
