//! Headers as bytes and back.

mod any;
mod bytes;
mod refused;

use std::vec::Vec;

use super::*;
use crate::ByteOrder::{self, Big, Little};

fn emitted(header: &Header, order: ByteOrder) -> Vec<u8> {
    let mut out = [0xaa; MAX_HEADER];
    let len = header.emit(order, &mut out).unwrap();
    assert_eq!(len, header.len());
    assert!(out[len..].iter().all(|byte| *byte == 0xaa));
    out[..len].to_vec()
}

fn assert_bytes(header: &Header, little: &[u8], big: &[u8]) {
    for (order, bytes) in [(Little, little), (Big, big)] {
        assert_eq!(emitted(header, order), bytes);
        assert_eq!(Header::parse(order, bytes), Ok(*header));
        assert_eq!(peek_len(bytes), Ok(bytes.len()));
    }
}
