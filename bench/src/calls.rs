//! What lies between a program and a provider's code, counted in the machine code.
//!
//! The caller's part is compiled from the inline functions of `rdma/`: the words that the call hands
//! over, which are its arguments behind the endpoint, the loads that find the function, and branches.
//! Our part are the first instructions of the function that the operation table names, up to the first
//! that belongs to a provider: debug information says from which source each instruction was inlined.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use ripstop_cli::outln;

/// Instructions of our part that are looked at, in bytes; the provider must begin within.
const WINDOW: u64 = 0x200;

/// Sources of providers: what they share, and their own.
const PROVIDERS: [&str; 6] = [
    "/crates/stream/",
    "/crates/shm/",
    "/crates/tcp/",
    "/crates/verbs/",
    "/crates/engine/",
    "/crates/foreign/",
];

/// The beginnings of the names of their functions.
const CRATES: [&str; 6] = [
    "ripstop_stream::",
    "ripstop_shm::",
    "ripstop_tcp::",
    "ripstop_verbs::",
    "ripstop_engine::",
    "ripstop_foreign::",
];

/// A call that is counted, and what it may cost.
struct Call {
    name: &'static str,
    /// Its parameters and arguments in C, behind the endpoint.
    parameters: &'static str,
    arguments: &'static str,
    /// The words that the caller hands over: the arguments behind the endpoint.
    words: usize,
    /// Our function, as `nm -C` names it.
    entry: &'static str,
    /// Words that our part reads from memory at most.
    loads: usize,
    /// Conditional branches of our part at most.
    branches: usize,
    /// Providers that have no such call, and refuse it.
    refused_by: &'static [&'static str],
}

/// The branches of ours: is the buffer a null pointer, and has the endpoint default flags
/// (`tx_attr.op_flags`), which an injected message has not.
const CALLS: [Call; 4] = [
    Call {
        name: "fi_send",
        parameters: "const void *b, size_t n, void *d, fi_addr_t a, void *c",
        arguments: "b, n, d, a, c",
        words: 5,
        entry: "ripstop_capi::endpoint::send::msg::send",
        loads: 3,
        branches: 2,
        refused_by: &[],
    },
    Call {
        name: "fi_tsend",
        parameters: "const void *b, size_t n, void *d, fi_addr_t a, uint64_t t, void *c",
        arguments: "b, n, d, a, t, c",
        words: 6,
        entry: "ripstop_capi::endpoint::send::tagged::send",
        loads: 3,
        branches: 2,
        refused_by: &["verbs"],
    },
    Call {
        name: "fi_inject",
        parameters: "const void *b, size_t n, fi_addr_t a",
        arguments: "b, n, a",
        words: 3,
        entry: "ripstop_capi::endpoint::send::msg::inject",
        loads: 1,
        branches: 1,
        refused_by: &[],
    },
    Call {
        name: "fi_write",
        parameters: "const void *b, size_t n, void *d, fi_addr_t a, uint64_t r, uint64_t k, void *c",
        arguments: "b, n, d, a, r, k, c",
        words: 7,
        entry: "ripstop_capi::endpoint::rma::write",
        loads: 3,
        branches: 2,
        refused_by: &[],
    },
];

/// Loads of the caller's part: the table from the endpoint and the function from the table.
const CALLER_LOADS: usize = 2;

/// What a stretch of machine code does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    instructions: usize,
    /// Conditional branches.
    branches: usize,
    /// Words read from memory that is not the stack.
    loads: usize,
    /// Calls of other functions.
    calls: usize,
}

impl Count {
    fn add(&mut self, text: &str) {
        self.instructions += 1;
        let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
        self.branches += usize::from(is_branch(name));
        self.calls += usize::from(name.starts_with("call"));
        // AT&T's order: what is read comes first, but for comparisons, which only read.
        let read = match operands.rsplit_once(',') {
            Some(_) if name.starts_with("cmp") || name.starts_with("test") => operands,
            Some((from, _)) => from,
            None => operands,
        };
        let memory = read.contains('(') && !read.contains("%rsp") && !name.starts_with("lea");
        self.loads += usize::from(memory);
    }
}

fn is_branch(name: &str) -> bool {
    name.starts_with('j') && !name.starts_with("jmp")
}

/// Whether binutils are installed.
pub(crate) fn is_there() -> bool {
    let mut version = Command::new("objdump");
    version.arg("--version").stdout(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Counts all, prints a table and `PASS`, `FAIL` and `SKIP` lines; `false` when there is more than
/// there may be.
///
/// # Errors
/// Without binutils, or a library whose symbols cannot be found.
pub(crate) fn check(lib: &Path) -> Result<bool> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "call",
        "words",
        "caller: loads",
        "branches",
        "provider",
        "ours: instructions",
        "loads",
        "branches",
        "calls",
    ]);
    let symbols = symbols(lib)?;
    let (mut good, mut lines) = (true, Vec::new());
    for call in &CALLS {
        let caller = caller(call)?;
        match caller {
            None => lines.push(format!(
                "SKIP caller of {}: no C compiler or no rdma/fabric.h",
                call.name
            )),
            Some(count) => {
                let fine = (count.branches, count.calls, count.loads) == (0, 0, CALLER_LOADS);
                lines.push(line(
                    fine,
                    format!(
                        "caller of {}: {} branches, {} loads",
                        call.name, count.branches, count.loads
                    ),
                ));
                good &= fine;
            }
        }
        let found = ours(lib, &symbols, call)?;
        for (provider, count) in found {
            if call.refused_by.contains(&provider.as_str()) {
                lines.push(format!("SKIP {} over {provider}: it is refused", call.name));
                continue;
            }
            let fine = (count.branches <= call.branches)
                && (count.loads <= call.loads && count.calls == 0);
            lines.push(line(
                fine,
                format!(
                    "{} over {provider}: {} branches, budget {}; {} calls",
                    call.name, count.branches, call.branches, count.calls
                ),
            ));
            good &= fine;
            let of = |value: fn(&Count) -> usize| {
                caller
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |c| value(c).to_string())
            };
            table.add_row([
                call.name.to_owned(),
                call.words.to_string(),
                of(|c| c.loads),
                of(|c| c.branches),
                provider,
                count.instructions.to_string(),
                count.loads.to_string(),
                count.branches.to_string(),
                count.calls.to_string(),
            ]);
        }
    }
    outln!("{table}");
    for line in lines {
        outln!("{line}");
    }
    Ok(good)
}

/// Our part of a call by provider; where there are several functions for one, that with the most
/// branches.
fn ours(lib: &Path, symbols: &[(u64, String)], call: &Call) -> Result<Vec<(String, Count)>> {
    let mut found: Vec<(String, Count)> = Vec::new();
    for (at, _) in symbols.iter().filter(|(_, name)| name == call.entry) {
        let entry = disassemble(lib, Some((*at, at + WINDOW)))?;
        let of = || format!("{} at {at:#x}", call.name);
        let (provider, count) = before_provider(&entry, symbols).with_context(of)?;
        match found.iter_mut().find(|(name, _)| *name == provider) {
            Some((_, most)) if most.branches >= count.branches => {}
            Some((_, most)) => *most = count,
            None => found.push((provider, count)),
        }
    }
    let (lib, entry) = (lib.display(), call.entry);
    ensure!(!found.is_empty(), "{lib} has no function {entry}");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn line(fine: bool, what: String) -> String {
    format!("{} {what}", if fine { "PASS" } else { "FAIL" })
}

/// What the inline function compiles to; `None` where it cannot be compiled.
fn caller(call: &Call) -> Result<Option<Count>> {
    let dir = tempfile::tempdir()?;
    let (source, object) = (dir.path().join("call.c"), dir.path().join("call.o"));
    let Call {
        name,
        parameters,
        arguments,
        ..
    } = call;
    std::fs::write(
        &source,
        format!(
            "#include <rdma/fabric.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_tagged.h>\n\
         #include <rdma/fi_rma.h>\n\
         ssize_t caller(struct fid_ep *ep, {parameters}) {{ return {name}(ep, {arguments}); }}\n"
        ),
    )?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-fcf-protection=none", "-c", "-o"])
        .arg(&object)
        .arg(&source);
    match compiler.output() {
        Ok(output) if output.status.success() => {}
        _ => return Ok(None),
    }
    let mut count = Count::default();
    for instruction in disassemble(&object, None)? {
        count.add(&instruction.text);
        // The jump into the provider ends it.
        if instruction.text.starts_with("jmp") {
            break;
        }
    }
    Ok(Some(count))
}

/// An instruction, and whether it was inlined from a provider's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instruction {
    text: String,
    /// The sources and functions that it was inlined from, innermost first.
    origin: Vec<String>,
}

impl Instruction {
    fn is_provider(&self) -> bool {
        self.origin
            .iter()
            .any(|line| PROVIDERS.iter().any(|folder| line.contains(folder)))
    }
}

/// The provider's function that an instruction calls, if it does.
fn called<'a>(text: &str, symbols: &'a [(u64, String)]) -> Option<&'a str> {
    let target = text.strip_prefix("call ")?.split(' ').next()?;
    let target = u64::from_str_radix(target, 16).ok()?;
    let names = symbols.iter().filter(|(at, _)| *at == target);
    let mut names = names.map(|(_, name)| name.trim_start_matches('<'));
    names.find(|name| CRATES.iter().any(|of| name.starts_with(of)))
}

/// What is counted before the first branch or call of the provider's, or the call of a function of it, and
/// which provider that is. Instructions of the provider's that the compiler has moved up are not counted.
fn before_provider(entry: &[Instruction], symbols: &[(u64, String)]) -> Result<(String, Count)> {
    let mut count = Count::default();
    for instruction in entry {
        if let Some(function) = called(&instruction.text, symbols) {
            return Ok((provider(function), count));
        }
        let name = instruction.text.split(' ').next().unwrap_or_default();
        let leaves = name.starts_with('j') || name.starts_with("call") || name == "lock";
        match (instruction.is_provider(), leaves) {
            (true, true) => {
                let all = instruction.origin.join(" ");
                return Ok((provider(&all), count));
            }
            (true, false) => {}
            (false, _) => count.add(&instruction.text),
        }
    }
    bail!("no instruction of a provider in its first {WINDOW} bytes, or no debug information")
}

/// The provider and the lock that generic arguments name.
fn provider(origin: &str) -> String {
    let transport = ["::Shm", "::Tcp", "ripstop_verbs::"]
        .into_iter()
        .find(|name| origin.contains(name));
    let name = transport.unwrap_or("other").trim_matches(':');
    name.trim_start_matches("ripstop_").to_ascii_lowercase()
}

/// The functions of a library, from the debug information beside it where it is stripped.
fn symbols(lib: &Path) -> Result<Vec<(u64, String)>> {
    let name = lib
        .file_name()
        .context("a library")?
        .to_string_lossy()
        .into_owned();
    let beside = lib.with_file_name(".debug").join(format!("{name}.debug"));
    let file: PathBuf = if beside.is_file() {
        beside
    } else {
        lib.to_owned()
    };
    let text = output(Command::new("nm").args(["-C", "--defined-only"]).arg(&file))?;
    let symbol = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let at = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((at, words.nth(1)?.to_owned()))
    };
    Ok(text.lines().filter_map(symbol).collect())
}

/// The instructions of a file, or of a part of it.
fn disassemble(file: &Path, part: Option<(u64, u64)>) -> Result<Vec<Instruction>> {
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn"]);
    if let Some((from, to)) = part {
        objdump.args(["-l", "--inlines"]);
        objdump
            .arg(format!("--start-address={from:#x}"))
            .arg(format!("--stop-address={to:#x}"));
    }
    Ok(parse(&output(objdump.arg(file))?))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{command:?}: install binutils"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads what objdump prints: lines that say where the next instructions come from, and instructions.
fn parse(text: &str) -> Vec<Instruction> {
    let (mut found, mut origin, mut fresh) = (Vec::new(), Vec::<String>::new(), true);
    for line in text.lines() {
        let instruction = line.trim_start().split_once(":\t");
        match instruction {
            Some((at, code)) if u64::from_str_radix(at, 16).is_ok() => {
                let text = code.split_whitespace().collect::<Vec<_>>().join(" ");
                found.push(Instruction {
                    text,
                    origin: origin.clone(),
                });
                fresh = true;
            }
            _ if line.starts_with('/') || line.starts_with("inlined by ") => {
                // Without a line of its own, the innermost source is the one before.
                if std::mem::take(&mut fresh) {
                    let innermost = origin.first().cloned();
                    origin.clear();
                    if line.starts_with("inlined by ") {
                        origin.extend(innermost);
                    }
                }
                origin.push(line.to_owned());
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "\
00000000000e1910 <f>:
f():
/w/crates/capi/src/edge/mod.rs:138
inlined by /w/crates/capi/src/endpoint/send.rs:79 (send<Domain<ripstop_shm::transport::Shm>>)
   e1910:\tpush   %rbp
inlined by /w/crates/capi/src/endpoint/send.rs:79 (send<Domain<ripstop_shm::transport::Shm>>)
   e1921:\ttest   %rsi,%rsi
   e1924:\tje     e1ce5 <g>
/rustc/library/core/src/ptr.rs:1
inlined by /w/crates/stream/src/api/endpoint_ops.rs:369 (send<ripstop_shm::transport::Shm>)
inlined by /w/crates/capi/src/endpoint/send.rs:79 (send)
   e193c:\tmov    0x80(%rdi),%r15
/w/crates/capi/src/endpoint/body.rs:2
   e1940:\tmov    0x8(%rdi),%rax
/rustc/library/core/src/sync/atomic.rs:4
inlined by /w/crates/stream/src/api/endpoint_ops.rs:370 (send<ripstop_shm::transport::Shm>)
   e194e:\tlock cmpxchg %cl,0x18(%rbx)
   e1953:\tjne    e1d47 <h>
";

    #[test]
    fn what_comes_before_the_provider_is_counted() {
        let entry = parse(ENTRY);
        assert_eq!(entry.len(), 7);
        assert_eq!(entry[1].origin.len(), 2);
        let (provider, count) = before_provider(&entry, &[]).expect("a provider");
        let expected = Count {
            instructions: 4,
            branches: 1,
            loads: 1,
            calls: 0,
        };
        assert_eq!((provider.as_str(), count), ("shm", expected));
        assert!(before_provider(&entry[..3], &[]).is_err());
    }

    #[test]
    fn the_call_of_a_function_of_the_provider_is_where_it_begins() {
        let entry = parse(
            "   e1910:\ttest   %rsi,%rsi\n   e1913:\tcall   26bc0 <f>\n   e1918:\tcall   4816d0 <g>\n",
        );
        let symbols = [
            (0x26bc0, "ripstop_capi::log::say".to_owned()),
            (
                0x4816d0,
                "<ripstop_verbs::endpoint::Endpoint as of>::write".to_owned(),
            ),
        ];
        let (provider, count) = before_provider(&entry, &symbols).expect("a provider");
        assert_eq!(
            (provider.as_str(), count.instructions, count.calls),
            ("verbs", 2, 1)
        );
        assert!(before_provider(&entry, &symbols[..1]).is_err());
    }

    #[test]
    fn loads_and_branches_are_told_apart() {
        let mut count = Count::default();
        for text in [
            "mov 0x30(%rdi),%rax",
            "jmp *0x10(%rax)",
            "mov %rsi,0x38(%rsp)",
            "mov %rsi,0x38(%rbx)",
            "lea 0x20(%rbx),%r14",
            "cmp $0x1,0x8(%rbx)",
            "jne 12",
            "call 12",
        ] {
            count.add(text);
        }
        let expected = Count {
            instructions: 8,
            branches: 1,
            loads: 3,
            calls: 1,
        };
        assert_eq!(count, expected);
    }
}
