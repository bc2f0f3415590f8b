//! Compares this crate with the headers installed on this machine (Debian's `libfabric-dev`),
//! by asking a C compiler for sizes, offsets and values.
//!
//! Without a compiler or headers the test says that it skips. Members and constants that came
//! after release 1.17 are not compared here; the layout asserts in the crate hold them.

mod structs;
mod values;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use structs::Size;

/// One struct as the Rust side sees it.
pub(crate) struct Struct {
    name: &'static str,
    size: usize,
    compare: Size,
    fields: Vec<(&'static str, usize)>,
}

const HEADERS: [&str; 14] = [
    "fabric.h",
    "fi_atomic.h",
    "fi_cm.h",
    "fi_collective.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_eq.h",
    "fi_errno.h",
    "fi_ext.h",
    "fi_rma.h",
    "fi_tagged.h",
    "fi_trigger.h",
    "providers/fi_log.h",
    "providers/fi_prov.h",
];

#[test]
fn installed_headers_agree() {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        eprintln!("SKIP: no /usr/include/rdma/fabric.h; install libfabric-dev to run this");
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIP: no C compiler named cc");
        return;
    }
    let structs = structs::all();
    let values = values::all();
    let c = ask_compiler(&program(&structs, &values));
    if c["version"] >= 0x1_0014 {
        eprintln!("SKIP: the headers installed are of release 1.20 or later");
        return;
    }

    let mut wrong = Vec::new();
    for s in &structs {
        let size = c[s.name];
        let right = match s.compare {
            Size::Same => size == s.size as u64,
            Size::Grew => size < s.size as u64,
        };
        if !right {
            wrong.push(format!("sizeof {}: C {size}, here {}", s.name, s.size));
        }
        for (field, offset) in &s.fields {
            let there = c[&format!("{}.{field}", s.name)];
            if there != *offset as u64 {
                wrong.push(format!("{}.{field}: C {there}, here {offset}", s.name));
            }
        }
    }
    for (name, value) in &values {
        if c[*name] != *value {
            wrong.push(format!("{name}: C {:#x}, here {value:#x}", c[*name]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!(
        "compared {} structs and {} constants",
        structs.len(),
        values.len()
    );
}

/// The C program that prints a name and a number a line.
fn program(structs: &[Struct], values: &[(&str, u64)]) -> String {
    let mut c = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in HEADERS {
        writeln!(c, "#include <rdma/{header}>").unwrap();
    }
    c.push_str(
        "#define P(name, value) printf(\"%s %llu\\n\", name, (unsigned long long)(value))\n",
    );
    c.push_str("int main(void)\n{\n");
    c.push_str("P(\"version\", FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));\n");
    for s in structs {
        let name = s.name;
        writeln!(c, "P(\"{name}\", sizeof(struct {name}));").unwrap();
        for (field, _) in &s.fields {
            // A name that Rust reserves carries an underscore here.
            let theirs = field.trim_end_matches('_');
            writeln!(
                c,
                "P(\"{name}.{field}\", offsetof(struct {name}, {theirs}));"
            )
            .unwrap();
        }
    }
    for (name, _) in values {
        writeln!(c, "P(\"{name}\", {name});").unwrap();
    }
    c.push_str("return 0;\n}\n");
    c
}

/// Compiles and runs `source` in a directory of its own.
fn ask_compiler(source: &str) -> HashMap<String, u64> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    std::fs::create_dir_all(&dir).unwrap();
    let (input, program) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&input, source).unwrap();
    let status = Command::new("cc")
        .args(["-w", "-o"])
        .args([&program, &input])
        .status()
        .unwrap();
    assert!(status.success(), "cc failed on {}", input.display());
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}
