//! Tools whose output nobody reads end quietly, as in `fi_info | true`; those whose output finds no room say so.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

/// The number of `SIGPIPE`, by which other tools end.
const SIGPIPE: i32 = 13;

#[test]
fn tools_end_quietly_when_nobody_reads_what_they_print() {
    for (program, options) in [
        (env!("CARGO_BIN_EXE_fi_info"), &["-l"][..]),
        (env!("CARGO_BIN_EXE_fi_info"), &["-p", "tcp"]),
        (env!("CARGO_BIN_EXE_fi_info"), &["-e"]),
        (env!("CARGO_BIN_EXE_fi_strerror"), &["11"]),
        (env!("CARGO_BIN_EXE_fi_pingpong"), &["-h"]),
        (env!("CARGO_BIN_EXE_ripstop"), &["--help"]),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(program);
        command.args(options).stdout(writer).stderr(Stdio::piped());
        let output = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "", "{program} {options:?}");
        let signal = output.status.signal();
        assert_eq!(
            signal,
            Some(SIGPIPE),
            "{program} {options:?}: {}",
            output.status
        );
    }
}

/// The output is a file, and there is no room for it.
#[test]
fn tools_say_that_their_output_is_incomplete() {
    for (program, options) in [
        (env!("CARGO_BIN_EXE_fi_info"), &["-l"][..]),
        (env!("CARGO_BIN_EXE_fi_info"), &["-p", "tcp"]),
        (env!("CARGO_BIN_EXE_fi_info"), &["-e"]),
        (env!("CARGO_BIN_EXE_fi_info"), &["--json"]),
        (env!("CARGO_BIN_EXE_fi_strerror"), &["11"]),
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("the kernel has it");
        let mut command = Command::new(program);
        command.args(options).stdout(full).stderr(Stdio::piped());
        let output = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected =
            "error: cannot write the output, which is incomplete: No space left on device";
        assert!(said.starts_with(expected), "{program} {options:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{program} {options:?}");
    }
}
