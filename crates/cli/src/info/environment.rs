//! `fi_info -e` and `-g`: the environment variables that are read.

use crate::outln;
use ripstop_core::param::{Param, ParamType};
use ripstop_core::params;

/// The variables whose name contains `part`, in any case.
pub(super) fn listed(part: Option<&str>) -> impl Iterator<Item = Param> {
    let part = part.unwrap_or_default().to_ascii_uppercase();
    let all = params().list().into_iter();
    all.filter(move |param| param.name.to_ascii_uppercase().contains(&part))
}

/// Prints those.
pub(super) fn print(part: Option<&str>) {
    for param in listed(part) {
        outln!("{}", text(&param));
    }
}

/// The lines of one variable; one that is set appears as a shell would take it.
fn text(param: &Param) -> String {
    let Param { name, help, .. } = param;
    let mut text = format!("# {name}: {}\n# {help}\n", kind(param.kind));
    if let Some(value) = &param.value {
        let quote = if value.contains(' ') { "\"" } else { "" };
        text += &format!("{name}={quote}{value}{quote}\n");
    }
    text
}

/// What a variable holds.
fn kind(kind: ParamType) -> &'static str {
    match kind {
        ParamType::String => "String",
        ParamType::Int => "Integer",
        ParamType::Size => "size_t",
        ParamType::Bool => "Boolean (0/1, on/off, true/false, yes/no)",
    }
}

/// What precedes the tables of `docs/environment.md`.
const PREFACE: &str = "\
# Environment

The environment variables that the library reads, as `fi_info -e` prints them. An administrator may set them for all programs in
`/etc/libfabric.conf`, in lines `FI_NAME=value`. Names and meanings are those of C libfabric 2.6.0 where it has the same variable.
A value that makes no sense is logged and does not count.

Written by `fi_info -e --markdown` from the table of the library itself; a test compares (`crates/cli/tests/environment.rs`).
";

/// The variables whose name contains `part` as `docs/environment.md` has them: a table for the library
/// and one for each provider, and at the end those of C that have no effect.
pub(super) fn markdown(part: Option<&str>) -> String {
    let all: Vec<Param> = listed(part).collect();
    let (unused, used): (Vec<_>, Vec<_>) = all.into_iter().partition(|param| param.is_unused);
    let mut text = PREFACE.to_owned();
    // A provider may declare variables of the whole library.
    let mut sections: Vec<(Option<&str>, String)> = Vec::new();
    for param in &used {
        let provider = param.provider.as_deref();
        let (help, kind) = (cell(bare_help(param)), short_kind(param.kind));
        let row = format!("| `{}` | {kind} | {help} |\n", param.name);
        match sections.iter_mut().find(|(of, _)| *of == provider) {
            Some((_, rows)) => *rows += &row,
            None => sections.push((provider, row)),
        }
    }
    for (provider, rows) in sections {
        let title = provider.map_or("The library".to_owned(), |name| format!("Provider {name}"));
        text += &format!(
            "\n## {title}\n\n| variable | value | what it is for |\n|---|---|---|\n{rows}"
        );
    }
    if !unused.is_empty() {
        text += "\n## Variables of C libfabric that have no effect\n\n\
                 They may stay set: a line of the log tells of each at level `info`.\n\n\
                 | variable | why |\n|---|---|\n";
        for param in &unused {
            let why = bare_help(param).trim_start_matches("no effect: ");
            text += &format!("| `{}` | {} |\n", param.name, cell(why));
        }
    }
    text
}

/// The help without the name of the provider.
fn bare_help(param: &Param) -> &str {
    let help = &param.help;
    let prefix = param
        .provider
        .as_deref()
        .and_then(|name| help.strip_prefix(name));
    prefix
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(help)
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What a variable holds, in a word.
fn short_kind(kind: ParamType) -> &'static str {
    match kind {
        ParamType::String => "text",
        ParamType::Int | ParamType::Size => "number",
        ParamType::Bool => "yes or no",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_printed_as_users_know_it() {
        let param = Param {
            name: "FI_TCP_IFACE".to_owned(),
            provider: Some("tcp".to_owned()),
            kind: ParamType::String,
            help: "tcp: Specify interface name".to_owned(),
            value: Some("eth 0".to_owned()),
            is_unused: false,
        };
        let expected =
            "# FI_TCP_IFACE: String\n# tcp: Specify interface name\nFI_TCP_IFACE=\"eth 0\"\n";
        assert_eq!(text(&param), expected);
        let unset = Param {
            value: None,
            ..param
        };
        assert!(text(&unset).ends_with("name\n"));
        assert_eq!(bare_help(&unset), "Specify interface name");
    }
}
