//! `ripstop perf` as a user runs it.

use std::process::{Command, Output};

fn perf(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ripstop"))
        .arg("perf")
        .args(options)
        .output()
        .expect("the program starts")
}

fn json(options: &[&str]) -> serde_json::Value {
    let output = perf(&[&["--json", "--pairs", "1"], options].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn messages_are_measured() {
    let report = json(&["--sizes", "8,100K", "--iterations", "32"]);
    let series = &report["messages"][0];
    assert_eq!(series["provider"], "tcp");
    let results = series["results"].as_array().expect("results");
    let sizes: Vec<_> = results.iter().map(|result| &result["bytes"]).collect();
    assert_eq!(sizes, [8, 102_400]);
    for result in results {
        for quantity in ["latency_us", "messages_per_second", "bytes_per_second"] {
            let median = result[quantity]["A"]["median"].as_f64().expect("a number");
            assert!(median > 0.0, "{quantity} in {result}");
        }
    }
}

#[test]
fn the_heading_names_every_provider() {
    let output = perf(&["--pairs", "1", "--sizes", "8", "--iterations", "32"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let heading = text.lines().next().unwrap_or_default();
    for provider in ["provider tcp, interface ", "; provider shm, interface "] {
        assert!(heading.contains(provider), "{provider:?} in\n{text}");
    }
}

#[test]
fn a_message_is_compared_with_a_handover() {
    let options = ["--provider", "shm", "--sizes", "8", "--iterations", "32"];
    let report = json(&options);
    let handover = &report["messages"][0]["cache_line_handover"];
    if report["cores"].is_null() {
        assert_eq!(*handover, serde_json::Value::Null);
        return;
    }
    let nanos = handover["nanoseconds"]["median"].as_f64();
    assert!(nanos > Some(0.0), "{handover}");
    let times = handover["latency_of_8_bytes_in_handovers"]["A"]["median"].as_f64();
    assert!(times > Some(0.0), "{handover}");
    let output = perf(&[&options[..], &["--pairs", "1"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("bare handover of a cache line"), "{text}");
}

#[test]
fn writes_and_reads_are_measured() {
    let report = json(&["--rma", "--sizes", "8,1M", "--iterations", "32"]);
    assert_eq!(report["messages"], serde_json::json!([]));
    let results = &report["remote_memory"][0]["results"];
    for (number, size) in [8, 1 << 20].into_iter().enumerate() {
        assert_eq!(results[number]["bytes"], size);
        for quantity in ["writes_per_second", "bytes_read_per_second"] {
            let median = results[number][quantity]["A"]["median"].as_f64();
            assert!(median > Some(0.0), "{quantity} of {size}");
        }
    }
}

#[test]
fn both_directions_are_measured() {
    let options = ["--both", "--sizes", "8,100K", "--iterations", "32"];
    let report = json(&options);
    assert_eq!(report["both_ways"], true);
    let messages = &report["messages"][1]["results"];
    let report = json(&[&options[..], &["--rma"]].concat());
    let memory = &report["remote_memory"][1]["results"];
    for (of, quantity) in [
        (messages, "latency_us"),
        (messages, "bytes_per_second"),
        (memory, "writes_per_second"),
        (memory, "reads_per_second"),
    ] {
        for number in 0..2 {
            let median = of[number][quantity]["A"]["median"].as_f64();
            assert!(median > Some(0.0), "{quantity} in {of}");
        }
    }
}

#[test]
fn groups_are_measured() {
    let options = ["--collective", "--ranks", "3", "--sizes", "8,64K"];
    let report = json(&[&options[..], &["--iterations", "20"]].concat());
    assert_eq!(report["messages"], serde_json::json!([]));
    for (number, provider) in ["tcp", "shm"].into_iter().enumerate() {
        let group = &report["collectives"][number];
        assert_eq!(group["provider"], provider);
        assert_eq!(group["ranks"], 3);
        let results = group["results"].as_array().expect("results");
        let rows = results.iter().map(|row| (&row["operation"], &row["bytes"]));
        let rows: Vec<_> = rows
            .map(|(name, bytes)| (name.as_str(), bytes.as_u64()))
            .collect();
        let expected = [("barrier", 0), ("allreduce", 8), ("allreduce", 64 << 10)];
        assert_eq!(
            rows,
            expected.map(|(name, bytes)| (Some(name), Some(bytes)))
        );
        for row in results {
            let median = row["latency_us"]["A"]["median"].as_f64();
            assert!(median > Some(0.0), "{row}");
        }
    }
}

#[test]
fn peers_are_counted() {
    let report = json(&["--av", "10000"]);
    let insertion = &report["address_vectors"][0];
    assert_eq!(insertion["peers"], 10_000);
    assert!(insertion["seconds"]["A"]["median"].as_f64() > Some(0.0));
}

#[test]
fn wrong_options_say_what_to_do() {
    for (options, advice) in [
        (
            &["--lib", "/no/such"][..],
            "give the path of a libfabric.so.1",
        ),
        (
            &["--lib", "/etc/passwd"],
            "give the path of a libfabric.so.1",
        ),
        (&["--provider", "nope"], "choose tcp"),
        (&["--sizes", "8,x"], "such as 8, 4K or 1M"),
        (&["--cores", "0,4000000"], "choose from"),
        (&["--collective", "--sizes", "12"], "such as 8,4K,1M"),
        (&["--ranks", "3"], "--collective"),
        (&["--rma", "--memfd"], "--lib"),
        (
            &["--lib", "/bin/sh", "--lib", "/bin/sh", "--lib", "/bin/sh"],
            "once or twice",
        ),
    ] {
        let output = perf(options);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{options:?}");
        assert!(errors.contains(advice), "{options:?}: {errors}");
    }
}

#[test]
fn without_a_device_it_says_what_to_do() {
    for options in [&[][..], &["--rma"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_ripstop"))
            .args(["perf", "--quick", "-p", "verbs;ofi_rxm"])
            .args(options)
            .env("SYSFS_PATH", "/nonexistent")
            .output()
            .expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{options:?}");
        // The second is said where rdma-core is missing, too.
        let advice = ["rdma link add", "install rdma-core's package"];
        assert!(advice.iter().any(|part| errors.contains(part)), "{errors}");
    }
}

#[test]
fn hooks_that_have_no_effect_are_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ripstop"));
    command.args(["perf", "--pairs", "1", "--sizes", "8", "--iterations", "32"]);
    let output = command.env("FI_HOOK", "perf").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("note: FI_HOOK=perf has no effect"), "{said}");
}
