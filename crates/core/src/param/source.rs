//! Where values come from: the environment, and the file that administrators may write.

use std::collections::HashMap;

use super::parse;

/// The administrator's file: lines `FI_NAME=value`.
pub(super) const FILE: &str = "/etc/libfabric.conf";

/// What says which code is loaded, and which files are written and how. Programs that have
/// [rights which their caller has not](ripstop_os::is_privileged) take these from the file alone.
const GUARDED: [&str; 9] = [
    "FI_PROVIDER_PATH",
    "FI_HOOK",
    "FI_LOG_LOCATION",
    "FI_LOG_LOCATION_MODE",
    "FI_PERF_FILE",
    "FI_TRACE_FILE",
    "FI_OFI_HOOK_MONITOR_BASEPATH",
    "FI_OFI_HOOK_MONITOR_DIR_MODE",
    "FI_OFI_HOOK_MONITOR_FILE_MODE",
];

/// The parameter that gives the file precedence over the environment.
pub(super) const PREFER_FILE: &str = "prefer_sysconfig";

/// The environment, and the administrator's file as it was when the process started.
pub(super) struct Source {
    environment: Environment,
    file: HashMap<String, String>,
    prefer_file: bool,
}

/// Reads a variable.
type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Source {
    /// That of this process.
    pub(super) fn load() -> Self {
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        let is_privileged = ripstop_os::is_privileged();
        Self::new(Box::new(move |name| variable(name, is_privileged)), &text)
    }

    pub(super) fn new(environment: Environment, file: &str) -> Self {
        let mut source = Self {
            environment,
            file: parse_file(file),
            prefer_file: false,
        };
        let preference = source.value(&super::variable(None, PREFER_FILE));
        source.prefer_file = preference
            .and_then(|text| parse::boolean(&text))
            .unwrap_or(false);
        source
    }

    /// The variable in the environment.
    pub(super) fn environment(&self, variable: &str) -> Option<String> {
        (self.environment)(variable)
    }

    /// The value that counts.
    pub(super) fn value(&self, variable: &str) -> Option<String> {
        let in_file = || self.file.get(variable).cloned();
        let in_environment = || self.environment(variable);
        match self.prefer_file {
            true => in_file().or_else(in_environment),
            false => in_environment().or_else(in_file),
        }
    }
}

/// A variable of the environment, but for guarded ones of a privileged program.
fn variable(name: &str, is_privileged: bool) -> Option<String> {
    let is_ignored = is_privileged && GUARDED.contains(&name);
    std::env::var(name).ok().filter(|_| !is_ignored)
}

/// The guarded variables that are set and have no effect in this process.
pub(super) fn ignored() -> impl Iterator<Item = (&'static str, String)> {
    let guarded = GUARDED.iter().filter(|_| ripstop_os::is_privileged());
    guarded.filter_map(|name| Some((*name, std::env::var(name).ok()?)))
}

/// Lines without `=` say nothing; of several for one variable the first counts.
fn parse_file(text: &str) -> HashMap<String, String> {
    let mut values = HashMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        values
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For the other process: whether it is to read as a privileged program does.
    const PRIVILEGED: &str = "RIPSTOP_TEST_PRIVILEGED";

    #[test]
    fn callers_of_a_privileged_program_name_no_code() {
        let path = std::env::var("PATH").ok();
        assert_eq!(variable("PATH", true), path);
        let child = |privileged: &str| {
            let test = "param::source::tests::subprocess_reads_what_is_guarded";
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture"]);
            command.env(PRIVILEGED, privileged).env("FI_HOOK", "trace");
            let out = command.output().unwrap();
            String::from_utf8_lossy(&out.stdout).contains("FI_HOOK is trace")
        };
        assert!(child("no") && !child("yes"));
    }

    #[test]
    fn subprocess_reads_what_is_guarded() {
        let privileged = std::env::var(PRIVILEGED).is_ok_and(|given| given == "yes");
        if let Some(hook) = variable("FI_HOOK", privileged) {
            println!("FI_HOOK is {hook}");
        }
    }

    #[test]
    fn the_file_fills_in_and_may_prevail() {
        let text = "# comment\nFI_CORE_TEST=a=b\nFI_CORE_TEST=second\nPATH=file\n";
        let with_file = |text: &str| Source::new(Box::new(|name| std::env::var(name).ok()), text);
        let source = with_file(text);
        assert_eq!(source.value("FI_CORE_TEST").as_deref(), Some("a=b"));
        assert_ne!(source.value("PATH").as_deref(), Some("file"));
        let source = with_file(&format!("{text}FI_PREFER_SYSCONFIG=yes\n"));
        assert_eq!(source.value("PATH").as_deref(), Some("file"));
        assert_ne!(source.environment("PATH").as_deref(), Some("file"));
        assert_eq!(source.value("FI_NOWHERE"), None);
    }
}
