//! The programs of GNU binutils that the distribution needs, which come with any C compiler.

use std::process::Command;

use crate::dist::program;

/// The programs.
const PROGRAMS: [&str; 2] = ["objcopy", "objdump"];

/// Whether all are there: asked before the build, which takes minutes.
///
/// # Errors
/// Names the one that is missing.
pub(crate) fn check() -> anyhow::Result<()> {
    for program in PROGRAMS {
        run(program, |command| command.arg("--version"))?;
    }
    Ok(())
}

/// Runs one of them to its end, with the arguments that `with` gives; returns what it printed.
///
/// # Errors
/// When it is not installed, and when it fails, with what it said.
pub(crate) fn run(
    name: &str,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> anyhow::Result<String> {
    let mut command = Command::new(name);
    let printed = program::output(with(&mut command), "install binutils")?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = run("no-such-objcopy", |command| command).expect_err("not there");
        let text = format!("{error:#}");
        assert!(text.contains("no-such-objcopy: install binutils"), "{text}");
    }

    #[test]
    fn what_a_program_says_is_in_the_error() {
        let error = run("objcopy", |command| command.arg("/no/such/file")).expect_err("no file");
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }
}
