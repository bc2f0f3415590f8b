//! A C program under the hooks that are built in.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::process::Command;

use c::program::{is_program, run};
use c::*;
use ripstop_abi::*;

/// Sends so many messages of so many bytes to the other end, which has posted receives.
fn exchange(pair: &Pair, count: usize, bytes: usize) {
    let sent = vec![7_u8; bytes];
    let mut received = vec![0_u8; bytes];
    let (mut tx, mut rx) = (fi_context2::default(), fi_context2::default());
    let (tx, rx) = (ptr::from_mut(&mut tx), ptr::from_mut(&mut rx));
    for _ in 0..count {
        let buf: *mut c_void = received.as_mut_ptr().cast();
        post(pair.cq, || {
            op!(
                pair.eps[1],
                tagged.recv(buf, bytes, ptr::null_mut(), FI_ADDR_UNSPEC, 1, 0, rx.cast())
            )
        });
        let buf: *const c_void = sent.as_ptr().cast();
        post(pair.cq, || {
            op!(
                pair.eps[0],
                tagged.send(buf, bytes, ptr::null_mut(), pair.addrs[1], 1, tx.cast())
            )
        });
        let mut contexts: Vec<*mut c_void> = (0..2)
            .map(|_| completion::<fi_cq_tagged_entry>(pair.cq).op_context)
            .collect();
        contexts.sort_unstable();
        let mut both = [tx.cast(), rx.cast()];
        both.sort_unstable();
        assert_eq!(contexts, both);
    }
    assert_eq!(received, sent);
}

/// Whether the endpoints of a pair have tables of their own: those of a provider are of all its
/// endpoints.
fn are_hooked(pair: &Pair) -> bool {
    let [left, right] = pair.eps.map(|ep| unsafe { (*ep).tagged });
    !ptr::eq(left, right)
}

#[test]
fn noop_lies_over_each_object() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(are_hooked(&pair));
        exchange(&pair, 10, 1000);
        return;
    }
    run("noop_lies_over_each_object", &[("FI_HOOK", "noop")]);
    run(
        "noop_lies_over_each_object",
        &[("FI_HOOK", "ofi_hook_noop;noop")],
    );
}

#[test]
fn without_a_hook_the_tables_are_the_providers() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(!are_hooked(&pair));
        exchange(&pair, 10, 1000);
        return;
    }
    run("without_a_hook_the_tables_are_the_providers", &[]);
}

#[test]
fn a_name_that_is_no_hook_is_a_line_in_the_log() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        assert!(!are_hooked(&pair));
        return;
    }
    let output = run(
        "a_name_that_is_no_hook_is_a_line_in_the_log",
        &[("FI_HOOK", "nope")],
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("FI_HOOK names nope"), "{errors}");
}

/// A file for what a hook writes, which is not there yet.
fn file_for(name: &str) -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("ripstop-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file
}

/// The part of a line of JSON that is about a call to the second endpoint of a pair.
fn row<'a>(json: &'a str, call: &str, peer: &str) -> &'a str {
    let start = format!("{{\"call\":\"{call}\",\"peer\":\"{peer}\",");
    let rest = json.split(&start).nth(1);
    let rest = rest.unwrap_or_else(|| panic!("no {call} for {peer}: {json}"));
    rest.split('}').next().unwrap()
}

#[test]
fn perf_counts_calls_bytes_and_times() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        exchange(&pair, 10, 1000);
        let bytes = [0_u8; 8];
        let buf: *const c_void = bytes.as_ptr().cast();
        post(pair.cq, || {
            op!(pair.eps[0], tagged.inject(buf, 8, pair.addrs[1], 2))
        });
        return;
    }
    let file = file_for("perf");
    let test = "perf_counts_calls_bytes_and_times";
    let variables = [
        ("FI_HOOK", "perf"),
        ("FI_PERF_JSON", "1"),
        ("FI_PERF_FILE", file.to_str().unwrap()),
    ];
    run(test, &variables);
    let json = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let sent = row(&json, "fi_tsend", "1");
    assert!(sent.starts_with("\"calls\":10,"), "{sent}");
    for part in ["\"failed\":0,\"bytes\":10000,", "\"completed\":10,"] {
        assert!(sent.contains(part), "{sent}");
    }
    let received = row(&json, "fi_trecv", "-");
    assert!(received.contains("\"completed\":10,"), "{received}");
    let injected = row(&json, "fi_tinject", "1");
    assert!(injected.contains("\"bytes\":8"), "{injected}");
    assert!(!injected.contains("completed"), "{injected}");
    assert!(row(&json, "fi_endpoint", "-").starts_with("\"calls\":2,"));
    assert!(row(&json, "fi_close", "-").starts_with("\"calls\":"));
    assert!(json.contains("\"unfollowed\":0,"), "{json}");
    // The same as a table, on stderr.
    let output = run(test, &[("FI_HOOK", "perf;noop")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().find(|line| line.starts_with("fi_tsend "));
    let columns: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!((columns[1], columns[2], columns[5]), ("1", "10", "10000"));
    assert_eq!(columns.len(), 10);
}

#[test]
fn perf_writes_on_a_signal() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        exchange(&pair, 3, 10);
        let pid = std::process::id().to_string();
        let sent = Command::new("kill").args(["-USR2", &pid]).status().unwrap();
        assert!(sent.success());
        let file = std::env::var("FI_PERF_FILE").unwrap();
        let written = || std::fs::read_to_string(&file).ok();
        until("a table", || {
            written().filter(|text| text.contains("fi_tsend "))
        });
        return;
    }
    let file = file_for("perf-signal");
    let variables = [
        ("FI_HOOK", "perf"),
        ("FI_PERF_SIGNAL", "USR2"),
        ("FI_PERF_FILE", file.to_str().unwrap()),
    ];
    run("perf_writes_on_a_signal", &variables);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(text.matches("\nfi_tsend ").count(), 2, "{text}");
}

/// The fields of a protobuf message: number, value of an integer, bytes of all others.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        match key & 7 {
            0 => all.push((key >> 3, value, &bytes[..0])),
            2 => {
                let (inner, rest) = bytes.split_at(value as usize);
                all.push((key >> 3, 0, inner));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    all
}

/// How many slices and instant events have each name, of a trace that is well-formed: times rise, every
/// slice ends, and none of a track overlap.
fn read_trace(bytes: &[u8]) -> BTreeMap<String, u64> {
    let number = |message: &[u8], field| {
        let found = fields(message).into_iter().find(|(of, ..)| *of == field);
        found.map(|(_, value, _)| value)
    };
    let inner = |message, field| {
        let found = fields(message).into_iter().find(|(of, ..)| *of == field);
        found.map(|(_, _, inner)| inner)
    };
    let (mut counts, mut open, mut tracks, mut last) =
        (BTreeMap::new(), BTreeMap::new(), Vec::new(), 0);
    for (field, _, packet) in fields(bytes) {
        assert_eq!(field, 1, "Trace.packet");
        if let Some(track) = inner(packet, 60) {
            tracks.push(number(track, 1).unwrap());
            continue;
        }
        let time = number(packet, 8).unwrap();
        assert!(time >= last, "{time} after {last}");
        last = time;
        let event = inner(packet, 11).unwrap();
        let track = number(event, 11).unwrap();
        assert!(tracks.contains(&track));
        let kind = number(event, 9).unwrap();
        if kind == 2 {
            let began: u64 = open.remove(&track).expect("a slice that began");
            assert!(time > began);
            continue;
        }
        let name = String::from_utf8(inner(event, 23).unwrap().to_vec()).unwrap();
        *counts.entry(name).or_insert(0) += 1;
        if kind == 1 {
            assert_eq!(open.insert(track, time), None, "a slice within another");
        }
    }
    assert!(open.is_empty(), "{open:?}");
    counts
}

#[test]
fn trace_has_the_operations_that_perf_counts() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        exchange(&pair, 20, 100);
        let bytes = [0_u8; 8];
        let buf: *const c_void = bytes.as_ptr().cast();
        post(pair.cq, || {
            op!(pair.eps[0], tagged.inject(buf, 8, pair.addrs[1], 2))
        });
        return;
    }
    let test = "trace_has_the_operations_that_perf_counts";
    let (perf, trace) = (file_for("trace-perf"), file_for("trace"));
    let variables = [
        ("FI_HOOK", "perf;trace"),
        ("FI_PERF_JSON", "1"),
        ("FI_PERF_FILE", perf.to_str().unwrap()),
        ("FI_TRACE_FILE", trace.to_str().unwrap()),
    ];
    let read = || {
        run(test, &variables);
        let json = std::fs::read_to_string(&perf).unwrap();
        let counts = read_trace(&std::fs::read(&trace).unwrap());
        std::fs::remove_file(&perf).unwrap();
        std::fs::remove_file(&trace).unwrap();
        (json, counts)
    };
    let (json, counts) = read();
    for (call, peer) in [("fi_tsend", "1"), ("fi_trecv", "-"), ("fi_tinject", "1")] {
        let row = row(&json, call, peer);
        let number = |name: &str| -> u64 {
            let rest = row.split(name).nth(1).unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        // Each run of refused ones is one event more.
        let (calls, refused) = (number("\"calls\":"), number("\"refused\":"));
        let events = counts[call];
        assert!(
            (calls..=calls + refused).contains(&events),
            "{call}: {row}, {events}"
        );
    }
    assert_eq!(counts["fi_trecv"], 20);
}

#[test]
fn trace_drops_the_oldest() {
    if is_program() {
        let pair = Pair::open(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, |_| {});
        exchange_untagged(&pair, 50);
        return;
    }
    let trace = file_for("trace-short");
    let variables = [
        ("FI_HOOK", "trace"),
        ("FI_TRACE_RECORDS", "10"),
        ("FI_TRACE_FILE", trace.to_str().unwrap()),
    ];
    let output = run("trace_drops_the_oldest", &variables);
    let counts = read_trace(&std::fs::read(&trace).unwrap());
    std::fs::remove_file(&trace).unwrap();
    assert_eq!(counts.values().sum::<u64>(), 10, "{counts:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("90 oldest operations"), "{errors}");
}

/// Sends so many messages of one byte, whose entries have a context only.
fn exchange_untagged(pair: &Pair, count: usize) {
    let mut bytes = [0_u8; 2];
    let buf = bytes.as_mut_ptr();
    let (mut tx, mut rx) = (fi_context2::default(), fi_context2::default());
    let (tx, rx) = (ptr::from_mut(&mut tx).cast(), ptr::from_mut(&mut rx).cast());
    for _ in 0..count {
        let [left, right] = pair.eps;
        let to = unsafe { buf.add(1) }.cast();
        assert_eq!(
            op!(right, msg.recv(to, 1, ptr::null_mut(), FI_ADDR_UNSPEC, rx)),
            0
        );
        assert_eq!(
            op!(
                left,
                msg.send(buf.cast(), 1, ptr::null_mut(), pair.addrs[1], tx)
            ),
            0
        );
        for _ in 0..2 {
            let context = completion::<fi_cq_entry>(pair.cq).op_context;
            assert!(context == tx || context == rx);
        }
    }
}

/// The only file of the hook `monitor` below a folder.
fn monitored(base: &std::path::Path) -> std::path::PathBuf {
    let only = |folder: &std::path::Path| {
        let mut entries = std::fs::read_dir(folder).unwrap();
        let entry = entries.next().expect("an entry").unwrap().path();
        assert!(entries.next().is_none(), "{}", folder.display());
        entry
    };
    only(&only(&only(base)))
}

/// The count and the sum of a place and bucket of such a file.
fn monitored_numbers(file: &[u8], place: usize, bucket: usize) -> (u64, u64) {
    let number = |at: usize| u64::from_ne_bytes(file[at * 8..][..8].try_into().unwrap());
    (number(place * 18 + bucket), number(place * 18 + 9 + bucket))
}

/// The places of `fi_tsend`, `fi_trecv` and entries of tagged receives, by their order in C's
/// `hook_monitor.h`.
const TSEND: usize = 12;
const TRECV: usize = 3;
const TAGGED_RX: usize = 41;

/// Where the flags of such a file are, and its length.
const MONITOR_FLAGS: u64 = 6048;
const MONITOR_LENGTH: usize = 6056;

#[test]
fn monitor_answers_a_sampler() {
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
    if is_program() {
        let base = std::env::var("FI_OFI_HOOK_MONITOR_BASEPATH").unwrap();
        let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| {});
        exchange(&pair, 10, 1000);
        let path = monitored(base.as_ref());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let pids = format!(
            "{}_{}_1_",
            std::os::unix::process::parent_id(),
            std::process::id()
        );
        assert!(name.starts_with(&pids) && name.ends_with("_tcp"), "{name}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes == [0; MONITOR_LENGTH], "nobody has asked");
        // The next call answers, which is a receive, and what is behind it comes with the next answer.
        for (count, sent) in [(3, 10), (5, 3)] {
            file.write_all_at(&[1], MONITOR_FLAGS).unwrap();
            exchange(&pair, count, 1000);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes[MONITOR_FLAGS as usize], 0);
            let numbers = |place, bucket| monitored_numbers(&bytes, place, bucket);
            assert_eq!(numbers(TSEND, 2), (sent, sent * 1000));
            assert_eq!(numbers(TAGGED_RX, 2), (sent, sent * 1000));
            let before = u64::from(sent == 10);
            assert_eq!(numbers(TRECV, 0), (sent + before, 0));
        }
        return;
    }
    let base = file_for("monitor");
    std::fs::create_dir(&base).unwrap();
    let text = base.to_str().unwrap();
    let mut variables = vec![
        ("FI_HOOK", "monitor"),
        ("FI_OFI_HOOK_MONITOR_BASEPATH", text),
        ("FI_OFI_HOOK_MONITOR_TICK_MAX", "1"),
        ("FI_OFI_HOOK_MONITOR_FILE_MODE", "0640"),
        ("SLURM_JOB_ID", "17"),
    ];
    run("monitor_answers_a_sampler", &variables);
    variables.push(("FI_OFI_HOOK_MONITOR_LINGER", "1"));
    run("monitor_answers_a_sampler", &variables);
    let path = monitored(&base);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&base).unwrap();
    assert_eq!(bytes[MONITOR_FLAGS as usize], 2);
    // What nobody has read, and what came behind it.
    assert_eq!(monitored_numbers(&bytes, TSEND, 2), (3 + 5, 8000));
}
