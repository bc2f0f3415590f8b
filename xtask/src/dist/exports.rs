//! What the C library exports, from `libfabric/exports.txt`, in the forms that the link step wants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, ensure};

/// One name at one version node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Export {
    /// The name a C program calls.
    pub(crate) name: String,
    /// Minor number of the node: 9 is `FABRIC_1.9`.
    pub(crate) node: u32,
    /// Whether a program linked today gets this one.
    pub(crate) default: bool,
}

impl Export {
    /// The node's name.
    pub(crate) fn node_name(&self) -> String {
        format!("FABRIC_1.{}", self.node)
    }

    /// The function of `ripstop-capi` that answers.
    fn private_name(&self) -> String {
        format!("ripstop_{}_1_{}", self.name, self.node)
    }

    /// The name with its version, as an assembler spells it.
    pub(crate) fn versioned_name(&self) -> String {
        let at = if self.default { "@@" } else { "@" };
        format!("{}{at}{}", self.name, self.node_name())
    }
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> anyhow::Result<BTreeSet<Export>> {
    let mut exports = BTreeSet::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let nodes = words
            .map(node_number)
            .collect::<anyhow::Result<Vec<u32>>>()?;
        ensure!(
            !nodes.is_empty(),
            "exports.txt: `{name}` stands at no version node"
        );
        ensure!(
            nodes.is_sorted(),
            "exports.txt: the nodes of `{name}` are out of order"
        );
        let default = line
            .split_whitespace()
            .filter(|word| !word.starts_with('('))
            .count()
            .checked_sub(2);
        for (index, node) in nodes.iter().enumerate() {
            exports.insert(Export {
                name: name.to_owned(),
                node: *node,
                default: default == Some(index),
            });
        }
    }
    Ok(exports)
}

/// The number of a node, in brackets or not.
fn node_number(word: &str) -> anyhow::Result<u32> {
    let word = word.trim_matches(['(', ')']);
    let minor = word.strip_prefix("1.").and_then(|minor| minor.parse().ok());
    minor.with_context(|| format!("exports.txt: `{word}` is no version node: write 1.N"))
}

/// The linker's version script: each node with its names, each after the one before it.
pub(crate) fn version_script(exports: &BTreeSet<Export>) -> String {
    let mut nodes: BTreeMap<u32, Vec<&Export>> = BTreeMap::new();
    for export in exports {
        nodes.entry(export.node).or_default().push(export);
    }
    let mut script = String::new();
    let mut parent = String::new();
    for members in nodes.values() {
        let node = members[0].node_name();
        let names: String = members
            .iter()
            .map(|export| format!(" {};", export.name))
            .collect();
        let local = if parent.is_empty() { " local: *;" } else { "" };
        let _ = writeln!(script, "{node} {{ global:{names}{local} }}{parent};");
        parent = format!(" {node}");
    }
    script
}

/// The renames for `objcopy --redefine-syms`: private name, versioned name.
pub(crate) fn renames(exports: &BTreeSet<Export>) -> String {
    let line = |export: &Export| format!("{} {}\n", export.private_name(), export.versioned_name());
    exports.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_entries_of_2_6_0() {
        let exports = parse(include_str!("../../../libfabric/exports.txt")).expect("a table");
        assert_eq!(exports.iter().filter(|export| export.node <= 9).count(), 36);
        // Those of the node of no release.
        assert_eq!(exports.len(), 36 + 3);
        assert_eq!(exports.iter().filter(|export| export.default).count(), 17);
    }

    #[test]
    fn nodes_follow_each_other() {
        let exports = parse("a 1.0 1.3\nb 1.3\n").expect("a table");
        let script =
            "FABRIC_1.0 { global: a; local: *; };\nFABRIC_1.3 { global: a; b; } FABRIC_1.0;\n";
        assert_eq!(version_script(&exports), script);
    }

    #[test]
    fn the_last_node_without_brackets_is_the_default() {
        let exports = parse("fi_a 1.0 1.9 (1.10)\n").expect("a table");
        let expected = "ripstop_fi_a_1_0 fi_a@FABRIC_1.0\nripstop_fi_a_1_9 fi_a@@FABRIC_1.9\n\
                        ripstop_fi_a_1_10 fi_a@FABRIC_1.10\n";
        assert_eq!(renames(&exports), expected);
    }

    #[test]
    fn a_bad_table_is_refused() {
        for text in ["fi_a\n", "fi_a 2.0\n", "fi_a 1.9 1.0\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
