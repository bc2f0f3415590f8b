//! Which modules of a crate use which, by the paths in its files that begin with `crate`, `super`, `self` or a module.
//!
//! A name that a module imports from another stands for where it is defined, so that `crate::Info` leads to `info.rs` and not
//! to the list of `pub use` in `lib.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use crate::check::source::SourceFile;

/// A module's names from the crate root down; the root's path is empty.
pub(super) type ModulePath = Vec<String>;

/// How many imports of imports are followed; a circle of them has no end.
const IMPORT_DEPTH: usize = 8;

/// Keywords before the name of an item.
const ITEMS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union",
];

/// A module: a file, or a block inside one.
#[derive(Default)]
struct Module {
    /// The path of the module that the file is.
    file: ModulePath,
    /// What its `use` items name, with the path as written.
    imports: HashMap<String, Vec<String>>,
    /// The paths before `*`.
    globs: Vec<Vec<String>>,
    /// Names of items in it.
    items: HashSet<String>,
}

/// The modules of a crate and the paths in them.
#[derive(Default)]
pub(super) struct Modules {
    modules: HashMap<ModulePath, Module>,
    /// The module that a path is in, and the path as written.
    references: Vec<(ModulePath, Vec<String>)>,
}

/// The module that the file at `path`, relative to the `src` folder of its crate, is.
fn module_of(path: &Path) -> ModulePath {
    let parts = path.with_extension("");
    let mut module: ModulePath = parts
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if let [.., last] = module.as_slice()
        && matches!(last.as_str(), "mod" | "lib" | "main")
    {
        module.pop();
    }
    module
}

impl Modules {
    /// Adds a file of the crate, whose path is relative to the crate's `src` folder. Tests are left out.
    pub(super) fn add(&mut self, path: &Path, source: &SourceFile) {
        if source.test {
            return;
        }
        let file = module_of(path);
        let tokens: Vec<&str> = source.code().map(|(_, token)| &*token.text).collect();
        self.module(&file, &file);
        let mut blocks: Vec<usize> = Vec::new();
        let mut here = file.clone();
        let mut depth = 0;
        let mut in_use = false;
        for (index, token) in tokens.iter().enumerate() {
            let rest = &tokens[index + 1..];
            match (*token, rest) {
                ("{", _) => depth += 1,
                ("}", _) => {
                    depth -= 1;
                    if blocks.last() == Some(&depth) {
                        blocks.pop();
                        here.pop();
                    }
                }
                ("mod", [name, "{", ..]) => {
                    blocks.push(depth);
                    here.push((*name).to_owned());
                    self.module(&here, &file);
                }
                (";", _) => in_use = false,
                ("use", [next, ..]) if *next != "<" => {
                    in_use = true;
                    self.import(&here, &file, rest);
                }
                ("crate" | "super" | "self", [":", ":", ..])
                    if !in_use && !is_inside_path(&tokens, index) =>
                {
                    self.references
                        .push((here.clone(), path_at(&tokens[index..])));
                }
                (keyword, [name, ..]) if ITEMS.contains(&keyword) => {
                    self.module(&here, &file).items.insert((*name).to_owned());
                }
                _ => {}
            }
        }
    }

    fn module(&mut self, path: &ModulePath, file: &ModulePath) -> &mut Module {
        let module = self.modules.entry(path.clone()).or_default();
        module.file.clone_from(file);
        module
    }

    fn import(&mut self, here: &ModulePath, file: &ModulePath, tokens: &[&str]) {
        let mut leaves = Vec::new();
        use_tree(tokens, Vec::new(), &mut leaves);
        for (name, path) in leaves {
            self.references.push((here.clone(), path.clone()));
            let module = self.module(here, file);
            if let Some(name) = name {
                module.imports.insert(name, path);
            } else {
                module.globs.push(path);
            }
        }
    }

    /// The module in which the end of a path is, if that is one of this crate.
    fn resolve(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let (first, _) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        let mut rest = path;
        let mut at = from.clone();
        if first == "crate" {
            at.clear();
            rest = &rest[1..];
        }
        while let [name, tail @ ..] = rest {
            match name.as_str() {
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                name => match self.lookup(&at, name, depth) {
                    Found::In(module) => at = module,
                    Found::Elsewhere => return None,
                    Found::Nothing if rest.len() == path.len() => return None,
                    Found::Nothing => break,
                },
            }
            rest = tail;
        }
        Some(at)
    }

    /// What `name` is in module `at`.
    fn lookup(&self, at: &ModulePath, name: &str, depth: usize) -> Found {
        let child = [at.as_slice(), &[name.to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return Found::In(child);
        }
        let Some(module) = self.modules.get(at) else {
            return Found::Nothing;
        };
        if let Some(path) = module.imports.get(name) {
            let found = self.resolve(at, path, depth);
            return found.map_or(Found::Elsewhere, Found::In);
        }
        if module.items.contains(name) {
            return Found::Nothing;
        }
        let mut globs = module.globs.iter();
        let found = globs.find_map(|glob| {
            let other = self.resolve(at, glob, depth)?;
            let child = [other.as_slice(), &[name.to_owned()]].concat();
            let has_item = self
                .modules
                .get(&other)
                .is_some_and(|m| m.items.contains(name));
            match self.modules.contains_key(&child) {
                true => Some(child),
                false => has_item.then_some(other),
            }
        });
        found.map_or(Found::Nothing, Found::In)
    }

    /// The files, as modules, and which others each uses. A module that declares others may name them: these do not count.
    pub(super) fn uses(&self) -> BTreeMap<&ModulePath, BTreeSet<&ModulePath>> {
        let mut uses: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = BTreeMap::new();
        for module in self.modules.values() {
            uses.entry(&module.file).or_default();
        }
        for (from, path) in &self.references {
            let target = self.resolve(from, path, IMPORT_DEPTH);
            let ends = (
                self.modules.get(from),
                target.and_then(|target| self.modules.get(&target)),
            );
            if let (Some(from), Some(to)) = ends
                && !to.file.starts_with(&from.file)
            {
                uses.entry(&from.file).or_default().insert(&to.file);
            }
        }
        uses
    }
}

/// What a name stands for.
enum Found {
    /// A module of the crate, or an item in it.
    In(ModulePath),
    /// Something imported from another crate.
    Elsewhere,
    /// No module and no import: an item, or the name of another crate.
    Nothing,
}

/// Whether the token is a later part of a path, or says how far something is visible (`pub(in crate::a)`).
fn is_inside_path(tokens: &[&str], index: usize) -> bool {
    let before = &tokens[..index];
    before.ends_with(&[":", ":"]) || before.ends_with(&["pub", "(", "in"])
}

/// The path that begins at the first token.
fn path_at(tokens: &[&str]) -> Vec<String> {
    let mut path = vec![tokens[0].to_owned()];
    let mut rest = &tokens[1..];
    while let [":", ":", name, tail @ ..] = rest {
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            break;
        }
        path.push((*name).to_owned());
        rest = tail;
    }
    path
}

/// Collects the paths of a `use` item and the names they get (none for `*`); returns the tokens behind it.
fn use_tree<'a, 't>(
    mut tokens: &'a [&'t str],
    mut path: Vec<String>,
    leaves: &mut Vec<(Option<String>, Vec<String>)>,
) -> &'a [&'t str] {
    loop {
        match tokens {
            ["{", rest @ ..] => {
                tokens = rest;
                while let [next, ..] = tokens
                    && *next != "}"
                {
                    tokens = use_tree(tokens, path.clone(), leaves);
                    tokens = tokens.strip_prefix(&[","]).unwrap_or(tokens);
                }
                return tokens.get(1..).unwrap_or_default();
            }
            ["*", rest @ ..] => {
                leaves.push((None, path));
                return rest;
            }
            [":", ":", rest @ ..] => tokens = rest,
            [name, ":", ":", rest @ ..] => {
                path.push((*name).to_owned());
                tokens = rest;
            }
            [name, rest @ ..] => {
                if *name != "self" || path.is_empty() {
                    path.push((*name).to_owned());
                }
                let (alias, rest) = match rest {
                    ["as", alias, rest @ ..] => (Some((*alias).to_owned()), rest),
                    _ => (path.last().cloned(), rest),
                };
                leaves.push((alias.or_else(|| Some((*name).to_owned())), path));
                return rest;
            }
            [] => return tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The uses of a crate with these files, as `from -> to`.
    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::default();
        for (path, text) in files {
            let source = SourceFile::parse("fake", Path::new(path), text).expect("Rust");
            modules.add(Path::new(path), &source);
        }
        let uses = modules.uses();
        let arrows = uses.iter().flat_map(|(from, all)| {
            all.iter()
                .map(|to| format!("{} -> {}", from.join("/"), to.join("/")))
        });
        arrows.collect()
    }

    #[test]
    fn uses_and_mentions_are_read() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            (
                "a.rs",
                "use crate::{b::B, c::{self, C as D}}; use std::fmt;",
            ),
            (
                "b.rs",
                "fn f() { let x: super::c::C = crate::d::new::<u8>(); }",
            ),
            (
                "c.rs",
                "// crate::a\nconst A: &str = \"crate::a\"; pub(in crate::a) struct C;",
            ),
            ("d.rs", "pub fn new() { self::helper() } fn helper() {}"),
        ];
        assert_eq!(uses(&files), ["a -> b", "a -> c", "b -> c", "b -> d"]);
    }

    #[test]
    fn names_lead_to_where_they_are_defined() {
        let files = [
            (
                "lib.rs",
                "mod a; mod b; mod user; pub use a::*; pub use b::deep::B as Renamed; pub use other::C;",
            ),
            (
                "a/mod.rs",
                "mod inner; pub use self::inner::Inner; pub struct A;",
            ),
            ("a/inner.rs", "pub struct Inner; fn f(_: super::A) {}"),
            ("b.rs", "pub mod deep { pub struct B; }"),
            (
                "user.rs",
                "use crate::{A, C, Renamed}; use crate::a::Inner; use crate::Unknown;",
            ),
        ];
        assert_eq!(
            uses(&files),
            [
                "a/inner -> a",
                "user -> ",
                "user -> a",
                "user -> a/inner",
                "user -> b"
            ]
        );
    }

    #[test]
    fn what_a_module_declares_and_tests_do_not_count() {
        let files = [
            (
                "a/mod.rs",
                "mod x; use x::X; fn f(_: self::x::X) {} #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("a/x.rs", "pub struct X; #[test] fn t() { crate::b::f(); }"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;"),
        ];
        assert_eq!(uses(&files), Vec::<String>::new());
    }

    #[test]
    fn imports_of_imports_end() {
        let files = [
            ("a.rs", "pub use crate::b::X; pub use crate::b::*;"),
            ("b.rs", "pub use crate::a::X; pub use crate::a::*;"),
            ("c.rs", "use crate::a::{X, Y};"),
        ];
        assert_eq!(uses(&files), ["a -> b", "b -> a", "c -> a"]);
    }
}
