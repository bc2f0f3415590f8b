//! Arrows between crates point down, or left within a floor.

use std::fs;

use crate::check::Finding;
use crate::workspace::{Dependency, Package, Workspace};

/// Folders under `crates/`, from the ground up and from left to right within a floor.
pub(crate) const FLOORS: [&[&str]; 6] = [
    &["types", "wire", "abi"],
    &["engine", "mem"],
    &["os", "core", "stream", "ibverbs", "foreign"],
    &["tcp", "shm", "udp", "verbs", "lnx"],
    &["ripstop", "hooks", "capi", "verbs-shim"],
    &["cli", "brick", "libfabric"],
];

/// Folders beside the floors: they may use any crate, and no crate uses them outside its tests.
const BESIDE: [&str; 6] = ["conformance", "sim", "interop", "bench", "fuzz", "xtask"];

/// The floor of the providers, which never see each other.
const PROVIDERS: usize = 3;

/// The provider that links others, and so sees them.
const LINKING: &str = "lnx";

/// Registry crates that call the operating system, which is `os`'s work.
const SYSTEM: [&str; 9] = [
    "libc", "rustix", "nix", "socket2", "mio", "polling", "io-uring", "memmap2", "tokio",
];

/// The highest floor that must leave the operating system to `os`.
const PROTOCOL_FLOORS: usize = 4;

/// Floor and place of a folder, or `None` beside the floors.
fn place(folder: &str) -> Option<(usize, usize)> {
    FLOORS.iter().enumerate().find_map(|(floor, names)| {
        let position = names.iter().position(|name| *name == folder)?;
        Some((floor, position))
    })
}

/// Reports every dependency between crates that points the wrong way.
pub(super) fn check(ws: &Workspace, findings: &mut Vec<Finding>) {
    for package in &ws.packages {
        let folder = package.folder.as_str();
        if place(folder).is_none() && !BESIDE.contains(&folder) {
            let advice = format!(
                "`{folder}` has no place in the table of floors: add it to FLOORS in \
                 xtask/src/check/floors.rs and to docs/architecture.md"
            );
            findings.push(finding(ws, package, "name", advice));
        }
        for dependency in &package.dependencies {
            let wrong = match &dependency.folder {
                Some(other) => wrong_dependency(folder, other, dependency.dev),
                None => wrong_crate(folder, dependency),
            };
            if let Some(advice) = wrong {
                findings.push(finding(ws, package, &dependency.name, advice));
            }
        }
    }
}

/// What is wrong with a dependency between two folders, if anything.
fn wrong_dependency(from: &str, to: &str, dev: bool) -> Option<String> {
    let (floor, position) = place(from)?;
    let Some((to_floor, to_position)) = place(to) else {
        return (!dev).then(|| {
            format!("`{from}` uses `{to}`, which stands beside the floors: dev-dependencies only")
        });
    };
    if to_floor == floor && floor == PROVIDERS && from != LINKING {
        return Some(format!(
            "provider `{from}` sees provider `{to}`: move what they share to a lower floor"
        ));
    }
    let down_or_left = to_floor < floor || (to_floor == floor && to_position < position);
    (!down_or_left).then(|| {
        format!(
            "`{from}` (L{floor}) may not use `{to}` (L{to_floor}): \
             a dependency points down, or left within a floor"
        )
    })
}

/// What is wrong with a registry dependency, if anything.
fn wrong_crate(from: &str, dependency: &Dependency) -> Option<String> {
    let (floor, _) = place(from)?;
    let system = SYSTEM.contains(&dependency.name.as_str());
    (system && !dependency.dev && floor <= PROTOCOL_FLOORS && from != "os").then(|| {
        format!(
            "`{from}` calls the operating system through `{}`: ask `os` for it",
            dependency.name
        )
    })
}

/// A finding at the line of a manifest that names `what`.
fn finding(ws: &Workspace, package: &Package, what: &str, advice: String) -> Finding {
    let manifest = package.manifest();
    let text = fs::read_to_string(&manifest).unwrap_or_default();
    let line = text
        .lines()
        .position(|line| line.trim_start().starts_with(what));
    Finding {
        file: ws.relative(&manifest).to_path_buf(),
        line: line.map_or(1, |index| index + 1),
        rule: "floors",
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_down_or_left() {
        for (from, to) in [
            ("wire", "types"),
            ("core", "os"),
            ("tcp", "wire"),
            ("foreign", "abi"),
        ] {
            assert_eq!(wrong_dependency(from, to, false), None, "{from} -> {to}");
        }
        for (from, to) in [
            ("types", "wire"),
            ("os", "core"),
            ("engine", "os"),
            ("core", "tcp"),
        ] {
            assert!(
                wrong_dependency(from, to, false).is_some(),
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn providers_never_see_each_other() {
        assert!(wrong_dependency("shm", "tcp", false).is_some());
        assert_eq!(wrong_dependency("lnx", "tcp", false), None);
        assert!(wrong_dependency("tcp", "lnx", false).is_some());
    }

    #[test]
    fn the_suite_is_for_tests_only() {
        assert!(wrong_dependency("tcp", "conformance", false).is_some());
        assert_eq!(wrong_dependency("tcp", "conformance", true), None);
        assert_eq!(wrong_dependency("conformance", "foreign", false), None);
    }

    #[test]
    fn only_os_calls_the_system() {
        let libc = |dev| Dependency {
            name: "libc".into(),
            folder: None,
            dev,
        };
        assert!(wrong_crate("tcp", &libc(false)).is_some());
        assert_eq!(wrong_crate("os", &libc(false)), None);
        assert_eq!(wrong_crate("tcp", &libc(true)), None);
    }

    #[test]
    fn the_table_is_in_the_architecture() {
        let page = include_str!("../../../docs/architecture.md");
        for folder in FLOORS.iter().copied().flatten().chain(&BESIDE) {
            assert!(
                page.contains(&format!("`{folder}")),
                "docs/architecture.md omits `{folder}`"
            );
        }
    }
}
