//! `ripstop-bench | true` ends quietly.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

#[test]
fn it_ends_quietly_when_nobody_reads_what_it_prints() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ripstop-bench"));
    command.arg("--help").stdout(writer).stderr(Stdio::piped());
    let output = command.output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // By SIGPIPE, as other tools.
    assert_eq!(output.status.signal(), Some(13), "{}", output.status);
}
