//! `fi_pingpong` with itself, as a user runs it.

#[path = "../../conformance/src/rig/port.rs"]
mod port;

use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn pingpong(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fi_pingpong"));
    command
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Server and client with these options.
fn both(server: &[&str], client: &[&str]) -> (Output, Output) {
    let port = port::free_port().port().to_string();
    let mut serving = pingpong(&["-B", &port])
        .args(server)
        .spawn()
        .expect("a server");
    // Until the server listens, clients are refused.
    let end = Instant::now() + Duration::from_secs(120);
    let client = loop {
        let output = pingpong(&["-P", &port])
            .args(client)
            .arg("127.0.0.1")
            .output();
        let output = output.expect("a client");
        let refused = String::from_utf8_lossy(&output.stderr).contains("cannot reach a server");
        if !refused || Instant::now() > end {
            break output;
        }
        sleep(Duration::from_millis(20));
    };
    while serving.try_wait().expect("a child").is_none() {
        if Instant::now() > end + Duration::from_secs(60) {
            serving.kill().expect("a child");
        }
        sleep(Duration::from_millis(20));
    }
    (serving.wait_with_output().expect("its output"), client)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_size_arrives() {
    for options in [
        &[
            "-p", "tcp", "-e", "rdm", "-m", "tagged", "-S", "all", "-I", "3", "-c",
        ][..],
        &["-p", "tcp", "-e", "msg", "-S", "all", "-I", "3", "-c"],
        &["-p", "shm", "-e", "rdm", "-S", "all", "-I", "3", "-c"],
    ] {
        let (server, client) = both(options, options);
        for output in [server, client] {
            assert!(
                output.status.success(),
                "{options:?}: {}",
                text(&output.stderr)
            );
            let table = text(&output.stdout);
            assert!(
                table.starts_with("bytes   #sent   #ack     total"),
                "{table}"
            );
            assert_eq!(table.lines().count(), 47, "{table}");
            assert!(table.contains("\n6m      3       =3      "), "{table}");
        }
    }
}

#[test]
fn different_options_are_noticed() {
    let (server, client) = both(&["-e", "rdm", "-S", "100"], &["-e", "rdm", "-S", "200"]);
    assert!(!server.status.success() && !client.status.success());
    let said = text(&server.stderr) + &text(&client.stderr);
    assert!(said.contains("options"), "{said}");
}

#[test]
fn what_is_not_there_is_an_error_with_advice() {
    let port = port::free_port().port().to_string();
    for (options, advice) in [
        (
            &["-e", "rdm", "-P", &port, "127.0.0.1"][..],
            "start fi_pingpong there first",
        ),
        (&["-e", "rdm", "no.such.name.invalid"], "does not resolve"),
        (&["-e", "dgram"], "give -e rdm or -e msg"),
        (&["-e", "rdm", "-p", "nope"], "no provider is named nope"),
        (&["-p", "nope"], "shm, "),
        (&["-e", "rdm", "-6", "127.0.0.1"], "leave out -6"),
    ] {
        let output = pingpong(options).output().expect("it starts");
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{options:?}");
        assert!(said.contains(advice), "{options:?}: {said}");
    }
}
