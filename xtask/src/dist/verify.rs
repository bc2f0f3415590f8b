//! What a finished shared library exports and needs, read with `objdump`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::dist::binutils;
use crate::dist::exports::Export;

/// Libraries that ours may need at run time.
const ALLOWED: [&str; 4] = ["libc.so", "libgcc_s.so", "libm.so", "ld-linux"];

/// What `objdump` tells of a shared library.
#[derive(Default)]
pub(crate) struct Library {
    /// Functions and data that other programs can bind to.
    pub(crate) exports: BTreeSet<Export>,
    /// Exported names that stand at no `FABRIC_1.N` node.
    foreign: Vec<String>,
    /// The name under which the loader knows it.
    pub(crate) soname: String,
    /// Libraries it needs.
    pub(crate) needed: Vec<String>,
    /// The newest C library version that one of its symbols asks for.
    pub(crate) glibc: (u32, u32),
}

impl Library {
    /// Reads the dynamic section and symbols of `path`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut library = Self::default();
        library.take_symbols(&binutils::run("objdump", |objdump| {
            objdump.arg("-T").arg(path)
        })?);
        library.take_headers(&binutils::run("objdump", |objdump| {
            objdump.arg("-p").arg(path)
        })?);
        Ok(library)
    }

    /// `ADDRESS g    DF .text SIZE (FABRIC_1.0) fi_getinfo`; brackets mean: not the default.
    fn take_symbols(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let section = words.iter().position(|word| word.starts_with(['.', '*']));
            let Some((section, name)) = section.zip(words.last()) else {
                continue;
            };
            if matches!(words[section], "*UND*" | "*ABS*") {
                continue;
            }
            let version = words.get(section + 2).copied().unwrap_or_default();
            let default = !version.starts_with('(');
            let node = version.trim_matches(['(', ')']).strip_prefix("FABRIC_1.");
            match node.and_then(|node| node.parse().ok()) {
                Some(node) => {
                    let name = (*name).to_owned();
                    self.exports.insert(Export {
                        name,
                        node,
                        default,
                    });
                }
                None => self.foreign.push((*name).to_owned()),
            }
        }
    }

    fn take_headers(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["NEEDED", name] => self.needed.push((*name).to_owned()),
                ["SONAME", name] => self.soname = (*name).to_owned(),
                [.., name] => self.glibc = self.glibc.max(glibc_version(name)),
                [] => {}
            }
        }
    }

    /// Everything in which the library differs from what it should be.
    pub(crate) fn problems(&self, expected: &BTreeSet<Export>, soname: &str) -> Vec<String> {
        let missing = expected.difference(&self.exports).map(|export| {
            format!(
                "{} is missing: crates/capi must define it",
                export.versioned_name()
            )
        });
        let extra = self.exports.difference(expected).map(|export| {
            format!(
                "{} is exported, but not in libfabric/exports.txt",
                export.versioned_name()
            )
        });
        let foreign = self
            .foreign
            .iter()
            .map(|name| format!("{name} is exported and must be local"));
        let mut problems: Vec<String> = missing.chain(extra).chain(foreign).collect();
        problems.extend(self.needless(&[]));
        if self.soname != soname {
            problems.push(format!("its soname is `{}`, not `{soname}`", self.soname));
        }
        problems
    }
}

impl Library {
    /// The same for a library that exports these names without a version, and nothing else, and needs
    /// these libraries of ours.
    pub(crate) fn problems_beside(&self, names: &[&str], needed: &[&str]) -> Vec<String> {
        let named = |name: &&str| self.foreign.iter().any(|other| other == name);
        let missing = names
            .iter()
            .filter(|name| !named(name))
            .map(|name| format!("{name} is missing: crates/capi must define it"));
        let unlinked = needed
            .iter()
            .filter(|name| !self.needed.iter().any(|other| other == *name))
            .map(|name| format!("{name} is not needed, and has the code"));
        let versioned = self.exports.iter().map(Export::versioned_name);
        let others = self.foreign.iter().cloned();
        let extra = versioned
            .chain(others)
            .filter(|name| !names.contains(&name.as_str()))
            .map(|name| format!("{name} is exported and must be local"));
        missing
            .chain(unlinked)
            .chain(extra)
            .chain(self.needless(needed))
            .collect()
    }

    /// Libraries that it must not need: all but those of the system, and these.
    fn needless(&self, ours: &[&str]) -> impl Iterator<Item = String> {
        self.needed
            .iter()
            .filter(|name| !ALLOWED.iter().any(|allowed| name.starts_with(allowed)))
            .filter(|name| !ours.contains(&name.as_str()))
            .map(|name| format!("{name} is needed at run time: only the C library may be"))
    }
}

/// `GLIBC_2.34` as numbers; `(0, 0)` for any other word.
fn glibc_version(word: &str) -> (u32, u32) {
    let mut numbers = word.strip_prefix("GLIBC_").unwrap_or_default().split('.');
    let mut number = || {
        numbers
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default()
    };
    (number(), number())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) dlsym
0000000000000000 g    DO *ABS*\t0000000000000000  FABRIC_1.1  FABRIC_1.1
0000000000008810 g    DF .text\t0000000000000004 (FABRIC_1.0) fi_fabric
0000000000008820 g    DF .text\t0000000000000004  FABRIC_1.1  fi_fabric
0000000000008830 g    DF .text\t0000000000000004  Base        rust_eh_personality
";

    fn read() -> Library {
        let mut library = Library::default();
        library.take_symbols(SYMBOLS);
        library.take_headers(
            "  NEEDED   libc.so.6\n  SONAME  libfabric.so.1\n 0x0 0x00 04 GLIBC_2.34\n",
        );
        library
    }

    #[test]
    fn objdump_is_read() {
        let library = read();
        let names: Vec<String> = library.exports.iter().map(Export::versioned_name).collect();
        assert_eq!(names, ["fi_fabric@FABRIC_1.0", "fi_fabric@@FABRIC_1.1"]);
        assert_eq!(library.foreign, ["rust_eh_personality"]);
        assert_eq!(library.glibc, (2, 34));
    }

    #[test]
    fn every_difference_is_a_problem() {
        let mut library = read();
        library.needed.push("libssl.so.3".to_owned());
        let expected = library.exports.clone();
        assert_eq!(library.problems(&expected, "libfabric.so.1").len(), 2);
        assert_eq!(library.problems(&BTreeSet::new(), "libother.so").len(), 5);
        let beside = |names: &[&str], needed: &[&str]| library.problems_beside(names, needed).len();
        assert_eq!(beside(&["rust_eh_personality"], &[]), 3);
        assert_eq!(beside(&["fi_prov_ini"], &[]), 5);
        // It needs one of these, and should need the other.
        assert_eq!(beside(&["rust_eh_personality"], &["libssl.so.3"]), 2);
        assert_eq!(beside(&["rust_eh_personality"], &["libripstop-fi.so"]), 4);
    }
}
