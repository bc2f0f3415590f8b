//! A test that runs itself again in a process of its own.

use std::process::{Command, Output};

/// Set in the process that is the program.
const PROGRAM: &str = "RIPSTOP_HOOKS_PROGRAM";

/// Whether this process is the program of the test.
pub fn is_program() -> bool {
    std::env::var_os(PROGRAM).is_some()
}

/// Runs a test again in a process of its own, with these variables, as the library reads them once.
pub fn run(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(PROGRAM, "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{test} with {variables:?}:\n{said}{errors}");
    output
}
