//! What programs tell each other when they connect: a byte with its length, and it. `librdmacm` pads
//! what a peer gets, so the length is needed. C libfabric's `struct vrb_cm_data_hdr` is the same.

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_types::{Errno, Result};

use crate::params::NAME;

/// Most bytes of a program: `librdmacm` has 56 in a request, less our header.
pub(crate) const MOST: usize = 55;

/// The bytes for the peer.
///
/// # Errors
/// [`Errno::EINVAL`] for more than [`MOST`] bytes.
pub(crate) fn emit(data: &[u8]) -> Result<Vec<u8>> {
    match u8::try_from(data.len()) {
        Ok(len) if data.len() <= MOST => Ok([&[len], data].concat()),
        _ => {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "{} bytes of connection data are too many; pass at most {MOST} (FI_OPT_CM_DATA_SIZE)",
                data.len()
            );
            Err(Errno::EINVAL)
        }
    }
}

/// What the peer's program says; nothing where the peer's length is more than it has sent.
pub(crate) fn parse(bytes: &[u8]) -> &[u8] {
    let Some((len, data)) = bytes.split_first() else {
        return &[];
    };
    data.get(..usize::from(*len)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_padded_comes_back_as_it_was() {
        let mut bytes = emit(b"hello").expect("short");
        assert_eq!(bytes, b"\x05hello");
        bytes.resize(56, 0);
        assert_eq!(parse(&bytes), b"hello");
        assert_eq!(parse(&emit(b"").expect("short")), b"");
        assert_eq!(emit(&[0; MOST]).map(|bytes| bytes.len()), Ok(56));
        assert_eq!(emit(&[0; MOST + 1]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_length_that_is_wrong_is_nothing() {
        assert_eq!(parse(&[]), b"");
        assert_eq!(parse(&[5, 1, 2]), b"");
        assert_eq!(parse(&[255; 56]), b"");
    }
}
