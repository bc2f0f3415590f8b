//! The C names of bits, as programs write them: `FI_MSG|FI_TAGGED`.

use bitflags::Flags as Bits;
use ripstop_types::{Flags, Mode, MrMode, MsgOrder};

/// Bits that have names in the C headers.
pub trait CNames {
    /// The names of the set bits joined by `|`, bits without a name in hexadecimal, and `0`
    /// for no bits at all.
    fn c_names(&self) -> String;
}

impl CNames for Flags {
    fn c_names(&self) -> String {
        join("FI_", *self)
    }
}

impl CNames for Mode {
    fn c_names(&self) -> String {
        join("FI_", *self)
    }
}

impl CNames for MrMode {
    fn c_names(&self) -> String {
        join("FI_MR_", *self)
    }
}

impl CNames for MsgOrder {
    fn c_names(&self) -> String {
        join("FI_ORDER_", *self)
    }
}

fn join<B>(prefix: &str, bits: B) -> String
where
    B: Bits + Copy,
    B::Bits: core::fmt::LowerHex + PartialEq,
{
    let mut names: Vec<String> = bits
        .iter_names()
        .map(|(name, _)| format!("{prefix}{name}"))
        .collect();
    let known = B::all();
    let unknown = bits.difference(known);
    if !unknown.is_empty() {
        names.push(format!("{:#x}", unknown.bits()));
    }
    if names.is_empty() {
        "0".to_owned()
    } else {
        names.join("|")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_headers() {
        assert_eq!((Flags::MSG | Flags::TAGGED).c_names(), "FI_MSG|FI_TAGGED");
        assert_eq!(MrMode::VIRT_ADDR.c_names(), "FI_MR_VIRT_ADDR");
        assert_eq!(MsgOrder::SAS.c_names(), "FI_ORDER_SAS");
        assert_eq!(Mode::CONTEXT2.c_names(), "FI_CONTEXT2");
        assert_eq!(Flags::empty().c_names(), "0");
        let unnamed = Flags::from_bits_retain(1 << 60) | Flags::MSG;
        assert_eq!(unnamed.c_names(), "FI_MSG|0x1000000000000000");
    }
}
