//! What every guest has besides its kernel: Debian's programs for RDMA and networks, and our own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::dist;
use crate::lab::image::Image;
use crate::lab::packages::{Fetcher, output};
use crate::lab::programs;
use crate::workspace::Workspace;

/// The packages that [`PROGRAMS`] are in.
const PACKAGES: [&str; 7] = [
    "busybox-static",
    "dash",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "perftest",
    "rdmacm-utils",
];

/// Programs of the packages. The shell is dash, since that of busybox prefers its own `ip`.
const PROGRAMS: [&str; 17] = [
    "dash",
    "ip",
    "tc",
    "ss",
    "rdma",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_ud_pingpong",
    "ibv_srq_pingpong",
    "rping",
    "udaddy",
    "ucmatose",
    "ib_send_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_read_bw",
];

/// The drivers of libibverbs that guests use.
const DRIVERS: [&str; 2] = ["rxe", "siw"];

/// Where the drivers are, in the packages and in a guest.
const DRIVER_FOLDER: &str = "usr/lib/x86_64-linux-gnu/libibverbs";

/// Where our install prefix is in a guest.
const PREFIX: &str = "/opt/ripstop";

/// The unpacked packages.
pub(super) struct Userland {
    tree: PathBuf,
}

impl Userland {
    /// Fetches the packages, with the libraries they need.
    pub(super) fn fetch(fetcher: &Fetcher) -> anyhow::Result<Self> {
        let packages = fetcher.with_libraries(&PACKAGES)?;
        let tree = fetcher.unpack("userland", &packages, &[], "", &|_| Ok(()))?;
        Ok(Self { tree })
    }

    /// busybox, which runs on this machine too.
    pub(super) fn busybox(&self) -> anyhow::Result<PathBuf> {
        self.program("busybox")
    }

    /// The programs of the packages, our own where they are built, and `added`: programs go to `/usr/local/bin`,
    /// folders to `/usr/local/share`.
    pub(super) fn image(&self, ws: &Workspace, added: &[PathBuf]) -> anyhow::Result<Image> {
        let mut image = Image::default();
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc"] {
            image.folder(folder);
        }
        self.add_busybox(&mut image)?;
        for name in PROGRAMS {
            let file = self.program(name)?;
            programs::add(&mut image, &format!("/usr/bin/{name}"), &file, &self.tree)?;
        }
        image.link("/bin/sh", "/usr/bin/dash");
        self.add_drivers(&mut image)?;
        self.add_prefix(&mut image, ws)?;
        for file in added {
            let name = file.file_name().context("--add wants a file")?;
            if file.is_dir() {
                image.copy_tree(
                    &format!("/usr/local/share/{}", name.to_string_lossy()),
                    file,
                )?;
                continue;
            }
            let place = format!("/usr/local/bin/{}", name.to_string_lossy());
            programs::add(&mut image, &place, file, &self.tree)?;
        }
        image.write("/etc/hosts", "127.0.0.1 localhost\n", false);
        image.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", false);
        image.write("/etc/group", "root:x:0:\n", false);
        Ok(image)
    }

    fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        ["usr/bin", "usr/sbin", "bin", "sbin"]
            .map(|folder| self.tree.join(folder).join(name))
            .into_iter()
            .find(|file| file.exists())
            .with_context(|| format!("the packages have no program {name}"))
    }

    fn add_busybox(&self, image: &mut Image) -> anyhow::Result<()> {
        let busybox = self.busybox()?;
        for applet in output(Command::new(&busybox).arg("--list"))?.lines() {
            image.link(&format!("/bin/{applet}"), "busybox");
        }
        image.copy("/bin/busybox", &busybox)?;
        // Here the kernel looks for it.
        image.link("/sbin/modprobe", "/bin/busybox");
        Ok(())
    }

    fn add_drivers(&self, image: &mut Image) -> anyhow::Result<()> {
        let folder = self.tree.join(DRIVER_FOLDER);
        for driver in DRIVERS {
            let config = format!("etc/libibverbs.d/{driver}.driver");
            image.copy(&format!("/{config}"), &self.tree.join(&config))?;
            let library = driver_library(&folder, driver)?;
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("/{DRIVER_FOLDER}/{name}");
            programs::add(image, &place, &library, &self.tree)?;
        }
        Ok(())
    }

    /// `target/dist`, if there is one.
    fn add_prefix(&self, image: &mut Image, ws: &Workspace) -> anyhow::Result<()> {
        let prefix = dist::prefix(ws);
        if !has_prefix(ws) {
            return Ok(());
        }
        for folder in ["bin", "lib"] {
            let from = prefix.join(folder);
            image.copy_tree(&format!("{PREFIX}/{folder}"), &from)?;
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                if entry.file_type()?.is_file() && is_elf(&entry.path())? {
                    programs::add_libraries(image, &entry.path(), &self.tree)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether our own programs are built.
pub(crate) fn has_prefix(ws: &Workspace) -> bool {
    dist::prefix(ws).join("lib").join(dist::SONAME).exists()
}

/// The library of a driver: its name carries a version that moves.
fn driver_library(folder: &Path, driver: &str) -> anyhow::Result<PathBuf> {
    let start = format!("lib{driver}-rdmav");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            found.push(entry.path());
        }
    }
    ensure!(
        found.len() == 1,
        "{} files are called {start}*",
        found.len()
    );
    Ok(found.swap_remove(0))
}

fn is_elf(file: &Path) -> anyhow::Result<bool> {
    Ok(fs::read(file)?.starts_with(b"\x7fELF"))
}
