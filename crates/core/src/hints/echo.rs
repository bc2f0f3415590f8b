//! What the answer repeats of the hints.

/// Replaces a value by the caller's, when it has one.
pub(super) fn echo<T: PartialEq + Default>(offered: &mut T, asked: T) {
    if asked != T::default() {
        *offered = asked;
    }
}

/// Replaces an authentication key by the caller's, when it has one.
pub(super) fn echo_key(offered: &mut Vec<u8>, offered_size: &mut usize, asked: &Vec<u8>) {
    if !asked.is_empty() {
        offered.clone_from(asked);
        *offered_size = asked.len();
    }
}

/// The traffic class of the answer. That of an offer says that there are classes; what was not
/// asked is the default.
pub(super) fn answered_class(offered: u32, asked: Option<u32>) -> u32 {
    asked.filter(|_| offered != 0).unwrap_or(0)
}
