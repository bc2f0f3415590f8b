//! The man pages in `man/` say what the tools and the library do: their options are those of `--help`, and their variables
//! those of the library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder `man`.
fn manual() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man")
}

/// A page such as `man1/ripstop.1`.
fn page(name: &str) -> String {
    let path = manual().join(name);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// An option as `-s --src_addr ADDR`: its names, then what it takes.
type Options = BTreeSet<String>;

/// What a tool prints when asked for help; `-h` is the short form, with an option on each line.
fn help(tool: &str, subcommand: Option<&str>) -> String {
    let out = Command::new(tool).args(subcommand).arg("-h").output();
    let out = out.expect("the tool starts");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("text")
}

/// The options in a text of help. Lines are `  -s, --src_addr <ADDR>  What it is`; two blanks end the names.
fn offered(help: &str) -> Options {
    let (_, options) = help.split_once("Options:\n").expect("options");
    let lines = options.lines().filter_map(|line| {
        let line = line.trim_start();
        line.starts_with('-').then(|| {
            let names = line.split("  ").next().unwrap_or(line);
            names.replace(", -", " -").replace(['<', '>'], "")
        })
    });
    lines.collect()
}

/// The options in a page or a part of it: `.It Fl s , Fl -src_addr Ar ADDR`.
fn described(page: &str) -> Options {
    let lines = page.lines().filter_map(|line| {
        let line = line.strip_prefix(".It Fl ")?;
        let (names, takes) = match line.split_once(" Ar ") {
            Some((names, takes)) => (names, format!(" {takes}")),
            None => (line, String::new()),
        };
        let names: Vec<String> = names
            .split(" , Fl ")
            .map(|name| format!("-{name}"))
            .collect();
        Some(format!("{}{takes}", names.join(" ")))
    });
    lines.collect()
}

/// What of a page stands under the heading `.Ss name`.
fn part<'a>(page: &'a str, name: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("\n.Ss {name}\n"))
        .unwrap_or_else(|| panic!("no part {name}"));
    let rest = rest.split("\n.Ss ").next().unwrap_or(rest);
    rest.split("\n.Sh ").next().unwrap_or(rest)
}

#[track_caller]
fn require_same(name: &str, offered: &Options, described: &Options) {
    assert!(!offered.is_empty(), "{name} has no options");
    assert_eq!(
        offered, described,
        "the options of {name} (left) are not those of its man page (right)"
    );
}

#[test]
fn each_option_of_a_tool_is_in_its_page() {
    for (name, tool) in [
        ("fi_info", env!("CARGO_BIN_EXE_fi_info")),
        ("fi_pingpong", env!("CARGO_BIN_EXE_fi_pingpong")),
        ("fi_strerror", env!("CARGO_BIN_EXE_fi_strerror")),
    ] {
        let page = page(&format!("man1/{name}.1"));
        require_same(name, &offered(&help(tool, None)), &described(&page));
    }
}

#[test]
fn each_subcommand_of_ripstop_is_in_its_page() {
    let tool = env!("CARGO_BIN_EXE_ripstop");
    let page = page("man1/ripstop.1");
    let (whole, _) = page.split_once("\n.Ss ").expect("subcommands");
    let help_of_all = help(tool, None);
    require_same("ripstop", &offered(&help_of_all), &described(whole));

    let (_, commands) = help_of_all.split_once("Commands:\n").expect("subcommands");
    let commands: BTreeSet<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let parts: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix(".Ss "))
        .collect();
    assert_eq!(
        commands, parts,
        "subcommands (left) and parts of ripstop.1 (right)"
    );
    for command in commands {
        let offered = offered(&help(tool, Some(command)));
        require_same(command, &offered, &described(part(&page, command)));
    }
}

#[test]
fn options_are_read_from_both() {
    let help = "Usage: x\n\nOptions:\n  -s, --src <A,B>  From\n      --why   Why\n  -d <a b>\n          More\n";
    let page = ".It Fl s , Fl -src Ar A,B\nFrom\n.It Fl -why\n.It Fl d Ar a b\n.It Ev FI_X\n";
    assert_eq!(offered(help), described(page));
    assert_eq!(offered(help).len(), 3);
    assert_eq!(part("\n.Ss a\n1\n.Ss b\n2\n.Sh C\n3\n", "b"), "2");
}

#[test]
fn pages_format_without_a_warning() {
    let mut pages: Vec<PathBuf> = Vec::new();
    for folder in fs::read_dir(manual()).expect("man/") {
        let files = fs::read_dir(folder.expect("a section").path()).expect("a section");
        pages.extend(files.map(|file| file.expect("a page").path()));
    }
    assert!(pages.len() >= 8, "{pages:?}");
    let checks: [(&str, &[&str]); 2] = [
        ("mandoc", &["-T", "lint", "-W", "warning"]),
        ("groff", &["-mandoc", "-Tutf8", "-ww", "-z"]),
    ];
    let mut has_run = false;
    for (program, options) in checks {
        for page in &pages {
            let Ok(out) = Command::new(program).args(options).arg(page).output() else {
                break;
            };
            let said = [out.stdout, out.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(out.status.success() && said.is_empty(), "{program}: {said}");
            has_run = true;
        }
    }
    if !has_run {
        println!("SKIP: neither mandoc nor groff is installed");
    }
}
