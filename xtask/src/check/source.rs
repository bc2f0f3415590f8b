//! Source files as token lists: comments and string contents never match a rule, lines are known,
//! and test code is told apart from the rest.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::workspace::Workspace;

/// Folders outside the workspace's members that hold Rust of their own.
const OTHER_ROOMS: [&str; 5] = ["libfabric", "fuzz", "bench", "interop", "kernel"];

/// Folders with products, findings and history instead of sources.
const SKIPPED: [&str; 4] = ["target", ".git", "corpus", "artifacts"];

/// One token, flattened: groups appear as their two delimiters.
pub(super) struct Token {
    /// The token's text.
    pub(super) text: String,
    /// Line, from 1.
    pub(super) line: usize,
    /// Whether the item is under `#[cfg(test)]` or `#[test]`.
    pub(super) test: bool,
}

/// One Rust file.
pub(super) struct SourceFile {
    /// Path relative to the top of the tree.
    pub(super) file: PathBuf,
    /// The folder name of the package that it belongs to.
    pub(super) folder: String,
    /// Whether the whole file is test code.
    pub(super) test: bool,
    /// Inner attributes without blanks, with their line: `forbid(unsafe_code)`.
    pub(super) attributes: Vec<(String, usize)>,
    /// Every token.
    pub(super) tokens: Vec<Token>,
    /// Number of lines.
    pub(super) lines: usize,
    /// Files that this one declares as modules for tests only.
    test_modules: Vec<PathBuf>,
}

/// Reads every Rust file of the tree.
pub(super) fn load_all(ws: &Workspace) -> anyhow::Result<Vec<SourceFile>> {
    let members = ws
        .packages
        .iter()
        .map(|package| (package.dir.clone(), &*package.folder));
    let others = OTHER_ROOMS.iter().map(|name| (ws.root.join(name), *name));
    let mut sources = Vec::new();
    let mut seen = HashSet::new();
    for (dir, folder) in members.chain(others).filter(|(dir, _)| dir.is_dir()) {
        for path in walk(&dir)? {
            if path.extension().is_some_and(|ext| ext == "rs") && seen.insert(path.clone()) {
                sources.push(SourceFile::load(ws, folder, &path)?);
            }
        }
    }
    let test_modules: HashSet<PathBuf> = sources
        .iter()
        .flat_map(|source| source.test_modules.clone())
        .collect();
    for source in &mut sources {
        // A test module's own modules are in its folder.
        source.test |= source
            .file
            .ancestors()
            .any(|path| test_modules.contains(&path.with_extension("rs")));
    }
    Ok(sources)
}

/// Every file below `dir`, in order, without build products and version control.
pub(super) fn walk(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !skipped {
                pending.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

impl SourceFile {
    fn load(ws: &Workspace, folder: &str, path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::parse(folder, ws.relative(path), &text)
    }

    /// Splits `text`, which stands in `file`, into tokens.
    pub(super) fn parse(folder: &str, file: &Path, text: &str) -> anyhow::Result<Self> {
        let stream = TokenStream::from_str(text)
            .map_err(|error| anyhow!("{}: not Rust: {error}", file.display()))?;
        let mut source = Self {
            file: file.to_path_buf(),
            folder: folder.to_owned(),
            test: in_test_folder(file),
            attributes: Vec::new(),
            tokens: Vec::new(),
            lines: text.lines().count(),
            test_modules: Vec::new(),
        };
        source.flatten(stream, false);
        Ok(source)
    }

    fn flatten(&mut self, stream: TokenStream, inherited: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut in_item = false;
        for (index, tree) in trees.iter().enumerate() {
            if !inherited && starts_test_item(&trees, index) {
                in_item = true;
                self.note_test_module(&trees, index);
            }
            let test = inherited || in_item;
            match tree {
                TokenTree::Group(group) => {
                    self.note_inner_attribute(&trees, index, group);
                    self.flatten_group(group, test);
                    in_item &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    self.push(";".to_owned(), tree, test);
                    in_item = false;
                }
                _ => self.push(tree.to_string(), tree, test),
            }
        }
    }

    fn flatten_group(&mut self, group: &Group, test: bool) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        let line = group.span_open().start().line;
        self.tokens.push(Token {
            text: open.to_owned(),
            line,
            test,
        });
        self.flatten(group.stream(), test);
        let line = group.span_close().start().line;
        self.tokens.push(Token {
            text: close.to_owned(),
            line,
            test,
        });
    }

    fn push(&mut self, text: String, tree: &TokenTree, test: bool) {
        self.tokens.push(Token {
            text,
            line: tree.span().start().line,
            test,
        });
    }

    /// Keeps `#![...]`: a bracket group after `#` and `!`.
    fn note_inner_attribute(&mut self, trees: &[TokenTree], index: usize, group: &Group) {
        let bang =
            index >= 2 && is_punct(&trees[index - 1], '!') && is_punct(&trees[index - 2], '#');
        if bang && group.delimiter() == Delimiter::Bracket {
            let text = group.stream().to_string().split_whitespace().collect();
            self.attributes.push((text, group.span_open().start().line));
        }
    }

    /// Keeps the file of `#[cfg(test)] mod name;`.
    fn note_test_module(&mut self, trees: &[TokenTree], index: usize) {
        let words: Vec<String> = trees
            .iter()
            .skip(index + 2)
            .take(4)
            .map(|t| t.to_string())
            .collect();
        let Some(at) = words.iter().position(|word| word == "mod") else {
            return;
        };
        let Some(name) = words.get(at + 1) else {
            return;
        };
        let own = self
            .file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let folder = match own {
            "lib" | "main" | "mod" => folder.to_path_buf(),
            _ => folder.join(own),
        };
        self.test_modules.push(folder.join(format!("{name}.rs")));
        self.test_modules.push(folder.join(name).join("mod.rs"));
    }

    /// Tokens that are not test code.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &Token)> {
        let tokens = self.tokens.iter().enumerate();
        tokens.filter(|(_, token)| !self.test && !token.test)
    }

    /// Whether the texts of the tokens from `index` on are `pattern`.
    pub(super) fn matches(&self, index: usize, pattern: &[&str]) -> bool {
        let rest = self.tokens.get(index..).unwrap_or_default();
        rest.len() >= pattern.len() && rest.iter().zip(pattern).all(|(t, p)| t.text == *p)
    }

    /// Whether an inner attribute sets `lint` to one of `levels`, tests left out or not.
    pub(super) fn sets_lint(&self, levels: &[&str], lint: &str) -> bool {
        self.attributes.iter().any(|(text, _)| {
            let text = text.strip_prefix("cfg_attr(not(test),").unwrap_or(text);
            levels.iter().any(|level| {
                let list = text
                    .strip_prefix(level)
                    .and_then(|rest| rest.strip_prefix('('));
                let names = list.map(|list| list.trim_end_matches(')').split(','));
                names.is_some_and(|mut names| names.any(|name| name == lint))
            })
        })
    }

    /// Number of lines that are not in a test item.
    pub(super) fn lines_without_tests(&self) -> usize {
        if self.test {
            return 0;
        }
        let lines = |test| -> BTreeSet<usize> {
            self.tokens
                .iter()
                .filter(|token| token.test == test)
                .map(|token| token.line)
                .collect()
        };
        let (code, test) = (lines(false), lines(true));
        match (test.first(), test.last()) {
            (Some(first), Some(last)) if code.last() < test.first() => {
                self.lines - (last - first + 1)
            }
            _ => self.lines - test.difference(&code).count(),
        }
    }

    /// Number of lines that hold something besides tests, comments and blanks.
    pub(super) fn code_lines(&self) -> usize {
        self.code()
            .map(|(_, token)| token.line)
            .collect::<BTreeSet<_>>()
            .len()
    }
}

/// Whether the file's place says that it is test code.
fn in_test_folder(file: &Path) -> bool {
    let named = file.file_stem().is_some_and(|stem| stem == "tests");
    let folders = ["tests", "benches"];
    let inside = file.parent().is_some_and(|dir| {
        dir.components()
            .any(|part| folders.iter().any(|name| part.as_os_str() == *name))
    });
    named || inside
}

fn is_punct(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Whether `#[cfg(test)]` (alone or within `any`, `all`) or `#[test]` begins at `index`.
fn starts_test_item(trees: &[TokenTree], index: usize) -> bool {
    let (Some(hash), Some(TokenTree::Group(group))) = (trees.get(index), trees.get(index + 1))
    else {
        return false;
    };
    if !is_punct(hash, '#') || group.delimiter() != Delimiter::Bracket {
        return false;
    }
    let text: String = group.stream().to_string().split_whitespace().collect();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let cfg = words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not");
    cfg || text == "test"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SourceFile {
        SourceFile::parse("wire", Path::new("crates/wire/src/lib.rs"), text).expect("Rust")
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source = parse("// unsafe\n/* unsafe */ const A: &str = \"unsafe\";\nunsafe fn f() {}");
        let hits: Vec<usize> = source
            .tokens
            .iter()
            .filter(|t| t.text == "unsafe")
            .map(|t| t.line)
            .collect();
        assert_eq!(hits, [3]);
    }

    #[test]
    fn test_items_are_told_apart() {
        let source = parse("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        let names: Vec<&str> = source.code().map(|(_, t)| t.text.as_str()).collect();
        assert!(names.contains(&"a") && names.contains(&"c") && !names.contains(&"b"));
        assert_eq!(source.lines_without_tests(), 2);
    }

    #[test]
    fn only_code_outside_not_test_is_exempt() {
        let source = parse("#[cfg(not(test))]\nfn a() {}\n#[test]\nfn b() {}\n");
        assert_eq!(source.code().filter(|(_, t)| t.text == "fn").count(), 1);
    }

    #[test]
    fn files_of_test_modules_are_found() {
        let source = parse("#[cfg(test)]\nmod netsim;\n");
        assert_eq!(
            source.test_modules[0],
            Path::new("crates/wire/src/netsim.rs")
        );
    }

    #[test]
    fn inner_attributes_are_read() {
        let source = parse("#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used))]");
        assert!(source.sets_lint(&["deny", "forbid"], "clippy::unwrap_used"));
        assert!(!source.sets_lint(&["deny"], "clippy::indexing_slicing"));
    }
}
