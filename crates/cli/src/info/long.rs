//! `fi_info -v` and `-i`: the whole structures, as `fi_tostr` prints them.

use ripstop_core::Info;

/// Prints each interface whose text contains `part`, in any case.
pub(super) fn print(infos: &[Info], part: Option<&str>) {
    let part = part.unwrap_or_default().to_lowercase();
    let texts = infos.iter().filter_map(ripstop_capi::info_text);
    for text in texts.filter(|text| text.to_lowercase().contains(&part)) {
        print!("---\n{text}");
    }
}
