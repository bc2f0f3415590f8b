//! `fi_info -e` and `-g`: the environment variables that are read.

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
        println!("{}", text(&param));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_printed_as_users_know_it() {
        let param = Param {
            name: "FI_TCP_IFACE".to_owned(),
            kind: ParamType::String,
            help: "tcp: Specify interface name".to_owned(),
            value: Some("eth 0".to_owned()),
        };
        let expected =
            "# FI_TCP_IFACE: String\n# tcp: Specify interface name\nFI_TCP_IFACE=\"eth 0\"\n";
        assert_eq!(text(&param), expected);
        let unset = Param {
            value: None,
            ..param
        };
        assert!(text(&unset).ends_with("name\n"));
    }
}
