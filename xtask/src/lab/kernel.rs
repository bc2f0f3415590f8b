//! Debian's kernels for guests: the image, and those of its modules that a guest uses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use crate::lab::modules::Modules;
use crate::lab::packages::{Fetcher, Unavailable, output, remove};

/// The kernels that guests can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
pub(crate) enum Series {
    /// Debian 12's own.
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    /// That of Debian 13, which Debian 12 has too.
    #[value(name = "6.12")]
    #[serde(rename = "6.12")]
    V6_12,
}

impl Series {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

/// A kernel that is ready to be booted.
pub(super) struct Kernel {
    /// Its release, `uname -r`.
    pub(super) release: String,
    /// The image that QEMU loads.
    pub(super) image: PathBuf,
    /// The folder that becomes `/lib/modules`.
    pub(super) modules: PathBuf,
}

/// Modules that guests use; what these need comes with them. What a kernel has built in is left out.
const WANTED: [&str; 18] = [
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "veth",
    "dummy",
    "sch_netem",
    "crc32_generic",
    "crc32c_generic",
    "libcrc32c",
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "iw_cm",
    "af_packet",
];

/// Where the modules of [`WANTED`] are in the package.
const PATTERNS: [&str; 14] = [
    "*/boot/vmlinuz-*",
    "*/lib/modules/*/modules.*",
    "*/lib/modules/*/kernel/arch/x86/crypto/*",
    "*/lib/modules/*/kernel/crypto/*",
    "*/lib/modules/*/kernel/lib/*",
    "*/lib/modules/*/kernel/fs/9p/*",
    "*/lib/modules/*/kernel/fs/netfs/*",
    "*/lib/modules/*/kernel/fs/fscache/*",
    "*/lib/modules/*/kernel/fs/configfs/*",
    "*/lib/modules/*/kernel/net/*",
    "*/lib/modules/*/kernel/drivers/infiniband/*",
    "*/lib/modules/*/kernel/drivers/virtio/*",
    "*/lib/modules/*/kernel/drivers/net/*.ko*",
    "*/lib/modules/*/kernel/drivers/char/hw_random/*",
];

/// The name of the kernel's image when it is ready.
const IMAGE: &str = "image";

/// The folder of the modules that a guest gets.
const MODULES: &str = "modules";

/// The concrete package of this kernel: the one that the archive's meta package stands for today.
pub(super) fn package(fetcher: &Fetcher, series: Series) -> anyhow::Result<String> {
    let name = series.name();
    let start = format!("linux-image-{name}.");
    ["linux-image-amd64", &format!("linux-image-{name}-amd64")]
        .iter()
        .find_map(|meta| fetcher.dependency(meta, &start))
        .with_context(|| {
            Unavailable(format!(
                "the archives of this machine have no kernel {name} (Debian 12 with its security archive has it)"
            ))
        })
}

/// Fetches a kernel; `busybox` is the program, for its `depmod`.
pub(super) fn fetch(fetcher: &Fetcher, series: Series, busybox: &Path) -> anyhow::Result<Kernel> {
    let package = package(fetcher, series)?;
    let release = package.trim_start_matches("linux-image-").to_owned();
    let prepare = |place: &Path| prepare(place, &release, busybox);
    let recipe = recipe();
    let name = format!("kernel-{}", series.name());
    let place = fetcher.unpack(&name, &[package], &PATTERNS, &recipe, &prepare)?;
    Ok(Kernel {
        image: place.join(IMAGE),
        modules: place.join(MODULES),
        release,
    })
}

/// What decides which modules a guest gets, besides the package.
pub(super) fn recipe() -> String {
    format!("{WANTED:?}")
}

/// Makes of an unpacked package what guests get, and removes the rest.
fn prepare(place: &Path, release: &str, busybox: &Path) -> anyhow::Result<()> {
    unpack_image(
        &place.join(format!("boot/vmlinuz-{release}")),
        &place.join(IMAGE),
    )?;
    let tree = ["usr/lib/modules", "lib/modules"]
        .map(|folder| place.join(folder).join(release))
        .into_iter()
        .find(|folder| folder.is_dir())
        .context("the kernel's package has no modules")?;
    let base = tree
        .ancestors()
        .nth(3)
        .context("the modules are in no folder")?;
    depmod(busybox, base, release)?;
    let known = Modules::parse(&fs::read_to_string(tree.join("modules.dep"))?)?;
    let builtin = fs::read_to_string(tree.join("modules.builtin"))?;
    let wanted: Vec<&str> = WANTED
        .into_iter()
        .filter(|module| known.contains(module) || !is_builtin(&builtin, module))
        .collect();
    let staged = place.join("staged");
    let folder = staged.join("lib/modules").join(release);
    for file in known.in_order(&wanted)? {
        copy_module(&tree.join(file), &folder.join(file.trim_end_matches(".xz")))?;
    }
    for file in [
        "modules.order",
        "modules.builtin",
        "modules.builtin.modinfo",
    ] {
        fs::copy(tree.join(file), folder.join(file))?;
    }
    depmod(busybox, &staged, release)?;
    fs::rename(staged.join("lib/modules"), place.join(MODULES))?;
    for folder in ["staged", "boot", "lib", "usr"] {
        remove(&place.join(folder))?;
    }
    Ok(())
}

/// Whether the kernel has the module in itself.
fn is_builtin(list: &str, module: &str) -> bool {
    let file = format!("/{module}.ko");
    list.lines()
        .any(|line| line.replace('-', "_").ends_with(&file))
}

/// Writes `modules.dep` and its companions for the modules below `base`.
pub(super) fn depmod(busybox: &Path, base: &Path, release: &str) -> anyhow::Result<()> {
    output(
        Command::new(busybox)
            .args(["depmod", "-b"])
            .arg(base)
            .arg(release),
    )?;
    Ok(())
}

/// Copies a module, decompressed: a guest would take ten times as long for that.
fn copy_module(from: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = to.parent().context("a module is in no folder")?;
    fs::create_dir_all(folder)?;
    match from.extension().is_some_and(|ending| ending == "xz") {
        true => decompress("xz", &fs::read(from)?, to),
        false => Ok(fs::copy(from, to).map(|_| ())?),
    }
}

/// Writes to `to` the kernel within the image, which would take a guest seconds to decompress; or the image as it is,
/// where this machine lacks the program for it.
fn unpack_image(image: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let found = payload(&bytes).and_then(|payload| {
        let program = compressor(payload)?;
        decompress(program, payload, to).ok()
    });
    match found {
        Some(()) => Ok(()),
        None => Ok(fs::write(to, bytes)?),
    }
}

/// The compressed kernel in an image: the boot protocol says where it is.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    (image.get(0x202..0x206)? == b"HdrS").then_some(())?;
    let sectors = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (sectors + 1) * 512 + number(0x248)?;
    // The last four bytes are the size of the kernel, for the code that decompresses it.
    let end = start.checked_add(number(0x24c)?)?.checked_sub(4)?;
    image.get(start..end)
}

/// The program that decompresses what begins like this.
fn compressor(payload: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &str); 3] = [
        (b"\xfd7zXZ", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x1f\x8b", "gzip"),
    ];
    starts
        .iter()
        .find(|(start, _)| payload.starts_with(start))
        .map(|(_, program)| *program)
}

/// Writes to `to` what `program` makes of `bytes`.
fn decompress(program: &str, bytes: &[u8], to: &Path) -> anyhow::Result<()> {
    let packed = to.with_extension("packed");
    fs::write(&packed, bytes)?;
    let status = Command::new(program)
        .arg("-dc")
        .stdin(File::open(&packed)?)
        .stdout(File::create(to)?)
        .stderr(Stdio::null())
        .status();
    fs::remove_file(&packed)?;
    let status = status.map_err(|error| Unavailable(format!("cannot run {program}: {error}")))?;
    ensure!(
        status.success(),
        "{program} cannot decompress what becomes {}",
        to.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of one setup sector, with `payload` 16 bytes behind the setup.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        let length = payload.len() as u32 + 4;
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend(payload);
        image.extend([1, 2, 3, 4]);
        image
    }

    #[test]
    fn the_compressed_kernel_is_found() {
        let image = image(b"\xfd7zXZ\0kernel");
        let found = payload(&image).expect("a payload");
        assert_eq!(found, b"\xfd7zXZ\0kernel");
        assert_eq!(compressor(found), Some("xz"));
        assert_eq!(compressor(b"plain"), None);
    }

    #[test]
    fn a_file_that_is_no_image_has_none() {
        assert_eq!(payload(b"short"), None);
        let mut cut = image(b"kernel");
        cut.truncate(1042);
        assert_eq!(payload(&cut), None);
        let mut other = image(b"kernel");
        other[0x202] = b'X';
        assert_eq!(payload(&other), None);
    }

    #[test]
    fn what_is_built_in_is_known() {
        let list = "kernel/drivers/virtio/virtio_pci.ko\nkernel/lib/crc-t10dif.ko\n";
        assert!(is_builtin(list, "virtio_pci") && is_builtin(list, "crc_t10dif"));
        assert!(!is_builtin(list, "pci"));
    }
}
