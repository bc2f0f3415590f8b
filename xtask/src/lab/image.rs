//! The initial file system of a guest: a list of entries, written as the `newc` archive that the kernel unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use cpio::newc::{self, ModeFileType};

/// What will be at one path.
enum Entry {
    Folder,
    File { content: Vec<u8>, mode: u32 },
    Link { to: String },
}

/// The files of a guest by their absolute path, so that folders come before what is in them.
#[derive(Default)]
pub(super) struct Image {
    entries: BTreeMap<String, Entry>,
}

impl Image {
    /// A folder, with those above it.
    pub(super) fn folder(&mut self, path: &str) {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.entries.contains_key(path) {
            return;
        }
        self.parent(path);
        self.entries.insert(path.to_owned(), Entry::Folder);
    }

    /// A file with this content, executable or not.
    pub(super) fn write(&mut self, path: &str, content: impl Into<Vec<u8>>, is_executable: bool) {
        self.parent(path);
        let mode = if is_executable { 0o755 } else { 0o644 };
        let content = content.into();
        self.entries
            .insert(path.to_owned(), Entry::File { content, mode });
    }

    /// A copy of `file` of this machine; links are followed.
    pub(super) fn copy(&mut self, path: &str, file: &Path) -> anyhow::Result<()> {
        let told = || format!("cannot read {}", file.display());
        let content = fs::read(file).with_context(told)?;
        let mode = fs::metadata(file).with_context(told)?.permissions().mode();
        self.write(path, content, mode & 0o111 != 0);
        Ok(())
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.parent(path);
        self.entries
            .insert(path.to_owned(), Entry::Link { to: to.to_owned() });
    }

    /// A copy of the folder `from`; links stay links, and hidden files are left out.
    pub(super) fn copy_tree(&mut self, path: &str, from: &Path) -> anyhow::Result<()> {
        self.folder(path);
        let entries =
            fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let place = format!("{path}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.copy_tree(&place, &entry.path())?;
            } else if kind.is_symlink() {
                self.link(&place, &fs::read_link(entry.path())?.to_string_lossy());
            } else {
                self.copy(&place, &entry.path())?;
            }
        }
        Ok(())
    }

    /// Whether something is at `path`.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// Writes the archive.
    pub(super) fn pack(&self, mut to: impl Write) -> io::Result<()> {
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let (kind, mode, content): (_, _, &[u8]) = match entry {
                Entry::Folder => (ModeFileType::Directory, 0o755, &[]),
                Entry::File { content, mode } => (ModeFileType::Regular, *mode, content),
                Entry::Link { to } => (ModeFileType::Symlink, 0o777, to.as_bytes()),
            };
            let length = u32::try_from(content.len()).map_err(io::Error::other)?;
            let mut writer = newc::Builder::new(path.trim_start_matches('/'))
                .ino(number)
                .mode(mode)
                .set_mode_file_type(kind)
                .write(to, length);
            writer.write_all(content)?;
            to = writer.finish()?;
        }
        newc::trailer(to)?;
        Ok(())
    }

    fn parent(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_archive_holds_what_was_put_in() {
        let mut image = Image::default();
        image.write("/usr/bin/hello", "text", true);
        image.link("/init", "usr/bin/hello");
        image.folder("/usr/");
        assert!(image.contains("/usr/bin") && !image.contains("/usr/lib"));
        let mut archive = Vec::new();
        image.pack(&mut archive).expect("packed");
        let mut rest = archive.as_slice();
        let mut found = Vec::new();
        loop {
            let mut reader = newc::Reader::new(rest).expect("an entry");
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            let (name, mode) = (entry.name().to_owned(), entry.mode());
            let mut content = String::new();
            reader.read_to_string(&mut content).expect("text");
            found.push((name, mode, content));
            rest = reader.finish().expect("the next");
        }
        let expected = [
            ("init", 0o120777, "usr/bin/hello"),
            ("usr", 0o040755, ""),
            ("usr/bin", 0o040755, ""),
            ("usr/bin/hello", 0o100755, "text"),
        ];
        let expected = expected.map(|(name, mode, text)| (name.to_owned(), mode, text.to_owned()));
        assert_eq!(found, expected);
    }
}
