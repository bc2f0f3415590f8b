//! Circles of modules: groups of files in which each uses each other, directly or through the rest. None of them can be read,
//! tested or moved alone, so the largest one of each crate may only shrink. Where files form none, the folders at the top of the
//! crate are checked in the same way.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::modules::Modules;
use crate::check::source::SourceFile;
use crate::workspace::Workspace;

/// Crates whose circles do not count: the structures of C name each other.
const EXEMPT: [&str; 1] = ["abi"];

/// The largest circle of a crate, as the names of its modules.
pub(super) type Circles = BTreeMap<String, Vec<String>>;

/// The largest circle of each crate that has one.
pub(super) fn largest(ws: &Workspace, sources: &[SourceFile]) -> Circles {
    let mut circles = Circles::new();
    for package in &ws.packages {
        let folder = ws.relative(&package.dir).join("src");
        let mut modules = Modules::default();
        for source in sources {
            if let Ok(path) = source.file.strip_prefix(&folder) {
                modules.add(path, source);
            }
        }
        let mut circle = largest_of(&modules.uses(), |module| module.join("/"));
        if circle.len() <= 1 {
            // Then the folders lead one way, too.
            circle = largest_of(&folders(&modules), |folder| format!("{folder}/"));
        }
        if circle.len() > 1 && !EXEMPT.contains(&package.folder.as_str()) {
            circles.insert(package.folder.clone(), circle);
        }
    }
    circles
}

/// Which folders and files at the top of a crate use which.
fn folders(modules: &Modules) -> BTreeMap<&String, BTreeSet<&String>> {
    let mut folders: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (from, targets) in modules.uses() {
        let Some(from) = from.first() else { continue };
        let targets = targets.into_iter().filter_map(|to| to.first());
        let others = targets.filter(|to| *to != from);
        folders.entry(from).or_default().extend(others);
    }
    folders
}

/// The largest circle; the first one of several in the order of their names.
fn largest_of<T: Ord>(
    uses: &BTreeMap<&T, BTreeSet<&T>>,
    name: impl Fn(&T) -> String,
) -> Vec<String> {
    let reached: BTreeMap<_, _> = uses
        .keys()
        .map(|from| (*from, reach(uses, *from)))
        .collect();
    let mut largest: Vec<String> = Vec::new();
    for (from, reached_from) in &reached {
        let back = reached_from
            .iter()
            .filter(|to| reached.get(**to).is_some_and(|back| back.contains(from)));
        let circle: Vec<String> = back.map(|to| name(to)).collect();
        if circle.len() > largest.len() {
            largest = circle;
        }
    }
    largest
}

/// What a node reaches in one or more steps.
fn reach<'a, T: Ord>(edges: &BTreeMap<&'a T, BTreeSet<&'a T>>, from: &'a T) -> BTreeSet<&'a T> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(node) = pending.pop() {
        for to in edges.get(node).into_iter().flatten() {
            if reached.insert(*to) {
                pending.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::default();
        for (path, text) in files {
            let source = SourceFile::parse("fake", Path::new(path), text).expect("Rust");
            modules.add(Path::new(path), &source);
        }
        match largest_of(&modules.uses(), |module| module.join("/")) {
            circle if circle.len() > 1 => circle,
            _ => largest_of(&folders(&modules), |folder| format!("{folder}/")),
        }
    }

    #[test]
    fn a_crate_without_circles_has_none() {
        let files = [
            ("lib.rs", "pub use a::A; mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use std::fmt; pub struct B;"),
        ];
        assert!(circle(&files).is_empty());
    }

    #[test]
    fn the_largest_circle_is_found_through_imports() {
        let files = [
            (
                "lib.rs",
                "pub use c::C; mod a; mod b; mod c; mod d; mod e; mod f;",
            ),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::C; pub struct B;"),
            ("c.rs", "pub struct C; fn f() { crate::a::f() }"),
            ("d.rs", "use crate::a;"),
            ("e.rs", "use super::f::F; pub struct E;"),
            ("f.rs", "use super::e::E; pub struct F;"),
        ];
        assert_eq!(circle(&files), ["a", "b", "c"]);
    }

    #[test]
    fn folders_that_use_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "pub mod x; pub mod z;"),
            ("a/x.rs", "use crate::b::y::Y;"),
            ("a/z.rs", "pub struct Z;"),
            ("b/mod.rs", "pub mod y;"),
            ("b/y.rs", "use crate::a::z::Z; pub struct Y;"),
        ];
        assert_eq!(circle(&files), ["a/", "b/"]);
        let last = files.len() - 1;
        assert!(circle(&files[..last]).is_empty());
    }

    #[test]
    fn a_module_and_its_parts_are_no_circle() {
        let files = [
            ("a/mod.rs", "mod x; pub use x::X; pub struct A;"),
            ("a/x.rs", "use super::A; pub struct X;"),
        ];
        assert!(circle(&files).is_empty());
    }
}
