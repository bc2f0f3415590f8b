//! The C names of values, as programs write them: `FI_MSG|FI_TAGGED`, `FI_EP_RDM`.

use bitflags::Flags as Bits;
use ripstop_types::{
    AddrFormat, AvType, EpType, Flags, Mode, MrMode, MsgOrder, Progress, Protocol, ResourceMgmt,
    Threading,
};

/// Values that have names in the C headers.
pub trait CNames {
    /// Of an enumeration, the name of the value. Of bits, the names of those that are set
    /// joined by `|`, bits without a name in hexadecimal, and `0` for no bits at all.
    fn c_names(&self) -> String;
}

impl CNames for usize {
    /// A number has no name: its digits.
    fn c_names(&self) -> String {
        self.to_string()
    }
}

macro_rules! enumeration {
    ($($type:ident { $($variant:ident $name:ident,)* })*) => { $(
        impl CNames for $type {
            fn c_names(&self) -> String {
                match self {
                    $(Self::$variant => stringify!($name).to_owned(),)*
                }
            }
        }
    )* };
}

enumeration! {
    EpType {
        Unspec FI_EP_UNSPEC, Msg FI_EP_MSG, Dgram FI_EP_DGRAM, Rdm FI_EP_RDM,
    }
    AddrFormat {
        Unspec FI_FORMAT_UNSPEC, Sockaddr FI_SOCKADDR, SockaddrIn FI_SOCKADDR_IN,
        SockaddrIn6 FI_SOCKADDR_IN6, SockaddrIb FI_SOCKADDR_IB, Str FI_ADDR_STR,
        IbUd FI_ADDR_IB_UD, SockaddrIp FI_SOCKADDR_IP,
    }
    AvType {
        Unspec FI_AV_UNSPEC, Map FI_AV_MAP, Table FI_AV_TABLE,
    }
    Progress {
        Unspec FI_PROGRESS_UNSPEC, Auto FI_PROGRESS_AUTO, Manual FI_PROGRESS_MANUAL,
        ControlUnified FI_PROGRESS_CONTROL_UNIFIED,
    }
    Threading {
        Unspec FI_THREAD_UNSPEC, Safe FI_THREAD_SAFE, Fid FI_THREAD_FID,
        Domain FI_THREAD_DOMAIN, Completion FI_THREAD_COMPLETION, Endpoint FI_THREAD_ENDPOINT,
    }
    ResourceMgmt {
        Unspec FI_RM_UNSPEC, Disabled FI_RM_DISABLED, Enabled FI_RM_ENABLED,
    }
    Protocol {
        Unspec FI_PROTO_UNSPEC, RdmaCmIbRc FI_PROTO_RDMA_CM_IB_RC, IbUd FI_PROTO_IB_UD, Udp FI_PROTO_UDP,
        SockTcp FI_PROTO_SOCK_TCP, Rxm FI_PROTO_RXM, Rxd FI_PROTO_RXD, Shm FI_PROTO_SHM,
        Xnet FI_PROTO_XNET, Lnx FI_PROTO_LNX,
    }
}

macro_rules! bits {
    ($($type:ident $prefix:literal,)*) => { $(
        impl CNames for $type {
            fn c_names(&self) -> String {
                join($prefix, *self)
            }
        }
    )* };
}

bits! {
    Flags "FI_",
    Mode "FI_",
    MrMode "FI_MR_",
    MsgOrder "FI_ORDER_",
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
        assert_eq!(EpType::Rdm.c_names(), "FI_EP_RDM");
        assert_eq!(AddrFormat::Unspec.c_names(), "FI_FORMAT_UNSPEC");
        let unnamed = Flags::from_bits_retain(1 << 60) | Flags::MSG;
        assert_eq!(unnamed.c_names(), "FI_MSG|0x1000000000000000");
    }
}
