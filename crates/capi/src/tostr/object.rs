//! Objects as text.

use crate::edge::AnyFid;
use crate::text::Text;

/// Appends what an object says about itself, or else `label` and its address.
pub(super) fn fid(out: &mut Text, label: &str, fid: AnyFid<'_>) {
    match fid.text() {
        Some(told) => out.bytes(told.split(|&byte| byte == 0).next().unwrap_or_default()),
        None => {
            out.put(label);
            out.pointer(fid.as_ptr());
            out.put("\n");
        }
    }
}
