//! `fi_info -v` and `-i`: the whole structures, as `fi_tostr` prints them.

use crate::out;
use ripstop_core::Info;
use ripstop_core::registry::Registry;

/// Prints each interface whose text contains `part`, in any case.
pub(super) fn print(registry: &Registry, infos: &[Info], part: Option<&str>) {
    let part = part.unwrap_or_default().to_lowercase();
    for info in infos {
        let as_given = ripstop_foreign::provider::text(info);
        let Some(text) = as_given.or_else(|| ripstop_capi::info_text(info)) else {
            continue;
        };
        if text.to_lowercase().contains(&part) {
            out!("---\n{text}{}", comments(&remarks(registry, info)));
        }
    }
}

/// What the provider of an interface says beside its attributes.
pub(super) fn remarks(registry: &Registry, info: &Info) -> Vec<String> {
    let provider = registry.provider(info.prov_name());
    provider.map_or_else(Vec::new, |provider| provider.remarks())
}

/// Remarks as comments of YAML: programs that parse the text do not see them.
fn comments(remarks: &[String]) -> String {
    remarks
        .iter()
        .map(|remark| format!("# {remark}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn remarks_are_comments() {
        let remarks = ["one".to_owned(), "two".to_owned()];
        assert_eq!(super::comments(&remarks), "# one\n# two\n");
    }
}
