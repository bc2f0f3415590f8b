//! `fi_pingpong`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ripstop_cli::exit::end_on_closed_pipe();
    ripstop_cli::exit::code(ripstop_cli::pingpong::main())
}
