#![allow(unsafe_code)]
//! The attributes behind the pointers of an `fi_info` that an object was opened with.

use ripstop_abi as abi;

/// Those of the domain.
pub(crate) fn domain(info: &abi::fi_info) -> Option<&abi::fi_domain_attr> {
    // SAFETY: null or valid: the provider has opened an object with it.
    unsafe { info.domain_attr.as_ref() }
}

/// Those of the transmit side.
pub(crate) fn tx(info: &abi::fi_info) -> Option<&abi::fi_tx_attr> {
    // SAFETY: null or valid: the provider has opened an object with it.
    unsafe { info.tx_attr.as_ref() }
}

/// Those of the receive side.
pub(crate) fn rx(info: &abi::fi_info) -> Option<&abi::fi_rx_attr> {
    // SAFETY: null or valid: the provider has opened an object with it.
    unsafe { info.rx_attr.as_ref() }
}
