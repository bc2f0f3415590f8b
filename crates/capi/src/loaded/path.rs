//! `FI_PROVIDER_PATH` (`fabric(7)`).

use std::path::{Path, PathBuf};

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_core::registry::Standing;

/// A place to look for providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// All shared objects of a folder that the variable names.
    Folder(PathBuf),
    /// All shared objects of the folder beside this library.
    Beside(PathBuf),
    /// One shared object.
    File(PathBuf),
}

/// Where providers are looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchPath {
    /// That of providers from folders.
    pub(super) standing: Standing,
    /// In this order.
    pub(super) entries: Vec<Entry>,
}

impl SearchPath {
    /// What the variable says, where `beside` is the folder that counts when it says nothing.
    pub(super) fn parse(given: Option<&str>, beside: &Path) -> Self {
        let given = given.unwrap_or_default();
        let (standing, list) = match given.strip_prefix('@') {
            Some(list) => (Standing::Found, list),
            None => (Standing::ByVersion, given),
        };
        let names = list.split(':').filter(|name| !name.is_empty());
        let mut entries: Vec<Entry> = names.filter_map(entry).collect();
        let names_folder = |entry: &Entry| matches!(entry, Entry::Folder(_));
        if !entries.iter().any(names_folder) {
            entries.push(Entry::Beside(beside.to_owned()));
        }
        Self { standing, entries }
    }
}

/// One name of the list; `None` for one that cannot be used.
fn entry(name: &str) -> Option<Entry> {
    let Some(file) = name.strip_prefix('+') else {
        return Some(Entry::Folder(PathBuf::from(name)));
    };
    let file = PathBuf::from(file);
    if !file.is_absolute() {
        fi_warn!(
            "core",
            Subsys::Core,
            "FI_PROVIDER_PATH names +{}: give the full path of a file behind +",
            file.display()
        );
        return None;
    }
    Some(Entry::File(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &str) -> (Standing, Vec<Entry>) {
        let path = SearchPath::parse(Some(given), Path::new("/lib/libfabric"));
        (path.standing, path.entries)
    }

    fn folder(path: &str) -> Entry {
        Entry::Folder(path.into())
    }

    #[test]
    fn the_folder_beside_the_library_counts_where_none_is_named() {
        let beside = Entry::Beside("/lib/libfabric".into());
        let file = Entry::File("/x/libx-fi.so".into());
        assert_eq!(parse(""), (Standing::ByVersion, vec![beside.clone()]));
        assert_eq!(parse("@"), (Standing::Found, vec![beside.clone()]));
        let only_file = (Standing::ByVersion, vec![file, beside.clone()]);
        assert_eq!(parse("+/x/libx-fi.so"), only_file);
        assert_eq!(parse("+libx-fi.so"), (Standing::ByVersion, vec![beside]));
    }

    #[test]
    fn folders_and_files_are_taken_in_order() {
        let both = vec![folder("/a"), Entry::File("/b-fi.so".into()), folder("c")];
        assert_eq!(parse("/a:+/b-fi.so::c"), (Standing::ByVersion, both));
        assert_eq!(
            parse("@/a:/b"),
            (Standing::Found, vec![folder("/a"), folder("/b")])
        );
    }
}
