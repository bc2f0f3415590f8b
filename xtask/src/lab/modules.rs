//! Which modules a module needs, as `modules.dep` tells it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};

/// What `depmod` has found: for each module, the files to load before it.
pub(super) struct Modules {
    /// By the module's name, with `_` where its file has `-`.
    by_name: BTreeMap<String, Entry>,
}

/// A line of `modules.dep`. Paths are relative to the folder of the kernel's modules.
struct Entry {
    file: String,
    /// The one that is needed by the others comes last.
    needs: Vec<String>,
}

impl Modules {
    /// Reads the text of a `modules.dep`.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut by_name = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (file, needs) = line
                .split_once(':')
                .with_context(|| format!("modules.dep has a line without a colon: {line}"))?;
            let entry = Entry {
                file: file.to_owned(),
                needs: needs.split_whitespace().map(str::to_owned).collect(),
            };
            by_name.insert(name(file), entry);
        }
        Ok(Self { by_name })
    }

    /// The files of `wanted` and of all that they need, each once, in an order in which they can be loaded.
    pub(super) fn in_order(&self, wanted: &[&str]) -> anyhow::Result<Vec<&str>> {
        let mut order = Vec::new();
        for module in wanted {
            let mut above = Vec::new();
            self.visit(&name(module), &mut above, &mut order)?;
        }
        Ok(order)
    }

    /// Adds `module` behind what it needs; `above` are the modules that led to it.
    fn visit<'a>(
        &'a self,
        module: &str,
        above: &mut Vec<String>,
        order: &mut Vec<&'a str>,
    ) -> anyhow::Result<()> {
        if above.iter().any(|other| other == module) {
            bail!("modules.dep goes in a circle at {module}");
        }
        let entry = self
            .by_name
            .get(module)
            .with_context(|| format!("the kernel has no module {module}"))?;
        if order.contains(&entry.file.as_str()) {
            return Ok(());
        }
        above.push(module.to_owned());
        for needed in entry.needs.iter().rev() {
            self.visit(&name(needed), above, order)?;
        }
        above.pop();
        order.push(&entry.file);
        Ok(())
    }

    /// Whether the kernel has `module` as a file.
    pub(super) fn contains(&self, module: &str) -> bool {
        self.by_name.contains_key(&name(module))
    }
}

/// The name of the module in `file`: `crc32c_intel` for `kernel/arch/x86/crypto/crc32c-intel.ko.xz`.
fn name(file: &str) -> String {
    let last = file.rsplit('/').next().unwrap_or(file);
    let stem = last.split_once(".ko").map_or(last, |(stem, _)| stem);
    stem.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/arch/x86/crypto/crc32c-intel.ko:

kernel/a.ko: kernel/b.ko
kernel/b.ko: kernel/a.ko
";

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let modules = Modules::parse(DEP).expect("a table");
        let order = modules.in_order(&["9p", "9pnet", "crc32c_intel"]);
        assert_eq!(
            order.expect("an order"),
            [
                "kernel/fs/netfs/netfs.ko",
                "kernel/net/9p/9pnet.ko",
                "kernel/fs/9p/9p.ko.xz",
                "kernel/arch/x86/crypto/crc32c-intel.ko",
            ]
        );
    }

    #[test]
    fn names_are_written_in_two_ways() {
        let modules = Modules::parse(DEP).expect("a table");
        assert!(modules.contains("crc32c-intel") && modules.contains("crc32c_intel"));
        assert!(!modules.contains("crc32c"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let modules = Modules::parse(DEP).expect("a table");
        let circle = modules.in_order(&["a"]).expect_err("a circle");
        assert!(circle.to_string().contains("circle"), "{circle}");
        let unknown = modules.in_order(&["rdma_rxe"]).expect_err("unknown");
        assert!(unknown.to_string().contains("rdma_rxe"), "{unknown}");
        assert!(Modules::parse("kernel/a.ko\n").is_err());
    }
}
