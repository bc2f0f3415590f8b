//! One executable that is every tool: `ripstop`, started under another tool's name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a link `name` to `ripstop`; gives the link.
fn link(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("names-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join(name);
    let _ = fs::remove_file(&link);
    symlink(env!("CARGO_BIN_EXE_ripstop"), &link).expect("a link");
    link
}

fn run(program: impl AsRef<Path>, options: &[&str]) -> Output {
    let mut command = Command::new(program.as_ref());
    command.args(options).output().expect("the program starts")
}

#[test]
fn a_link_is_the_tool_that_it_is_named_for() {
    for (name, own, options) in [
        ("fi_info", env!("CARGO_BIN_EXE_fi_info"), &["--version"][..]),
        (
            "fi_info",
            env!("CARGO_BIN_EXE_fi_info"),
            &["-p", "tcp", "-l"],
        ),
        ("fi_info", env!("CARGO_BIN_EXE_fi_info"), &["-p", "nope"]),
        ("fi_pingpong", env!("CARGO_BIN_EXE_fi_pingpong"), &["-h"]),
        ("fi_strerror", env!("CARGO_BIN_EXE_fi_strerror"), &["-11"]),
        ("fi_strerror", env!("CARGO_BIN_EXE_fi_strerror"), &["x"]),
    ] {
        let (linked, own) = (run(link(name), options), run(own, options));
        assert!(!own.stdout.is_empty() || !own.stderr.is_empty(), "{name}");
        assert_eq!(linked, own, "{name} {options:?}");
    }
}

#[test]
fn under_any_other_name_it_is_ripstop() {
    let other = run(link("ripstop-before"), &["--version"]);
    assert_eq!(other, run(env!("CARGO_BIN_EXE_ripstop"), &["--version"]));
    let text = String::from_utf8_lossy(&other.stdout);
    assert!(text.starts_with("ripstop "), "{text}");
}
