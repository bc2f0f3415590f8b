//! Tools whose output nobody reads end quietly, as in `fi_info | true`.

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
