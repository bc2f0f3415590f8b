//! The attributes in an `fi_info`: which field of the core's structs is which of C's, and how the
//! two are converted.

use core::ffi::c_int;
use core::fmt::Debug;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{DomainAttr, EpAttr, FabricAttr, FidToken, RxAttr, TxAttr, fi_warn};
use ripstop_types::{
    AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol, ResourceMgmt, Result,
    Threading, Version,
};

/// A field of the core's attributes that C has as a `C`.
trait Field<C>: Sized {
    /// `None` for a value that no provider here knows.
    fn read(c: C) -> Option<Self>;

    /// The field for C.
    fn write(self) -> C;
}

macro_rules! fields {
    ($($type:ty = $c:ty: $read:expr, $write:expr;)*) => { $(
        impl Field<$c> for $type {
            fn read(c: $c) -> Option<Self> {
                $read(c)
            }

            fn write(self) -> $c {
                $write(self)
            }
        }
    )* };
}

fields! {
    u32 = u32: Some, |field| field;
    u64 = u64: Some, |field| field;
    usize = usize: Some, |field| field;
    Version = u32: |c| Some(Self(c)), |version: Self| version.0;
    Flags = u64: |c| Some(Self::from_bits_retain(c)), |flags: Self| flags.bits();
    Mode = u64: |c| Some(Self::from_bits_retain(c)), |mode: Self| mode.bits();
    MsgOrder = u64: |c| Some(Self::from_bits_retain(c)), |order: Self| order.bits();
    MrMode = c_int:
        |c: c_int| Some(Self::from_bits_retain(c.cast_unsigned())),
        |mode: Self| mode.bits().cast_signed();
    AvType = u32: Self::from_raw, Self::raw;
    EpType = u32: Self::from_raw, Self::raw;
    Progress = u32: Self::from_raw, Self::raw;
    Protocol = u32: Self::from_raw, Self::raw;
    ResourceMgmt = u32: Self::from_raw, Self::raw;
    Threading = u32: Self::from_raw, Self::raw;
}

/// An open object.
impl<T> Field<*mut T> for Option<FidToken> {
    fn read(fid: *mut T) -> Option<Self> {
        Some((!fid.is_null()).then(|| FidToken(fid.expose_provenance())))
    }

    fn write(self) -> *mut T {
        self.map_or(ptr::null_mut(), |token| {
            ptr::with_exposed_provenance_mut(token.0)
        })
    }
}

/// Attributes of the core that C has as a struct.
pub(crate) trait Attributes<C>: Sized {
    /// The attributes, but for names and keys, which are left empty.
    ///
    /// # Errors
    /// [`Errno::ENODATA`] for a value that no provider here knows.
    fn read(c: &C) -> Result<Self>;

    /// The struct for C, with null for names and keys.
    fn write(&self) -> C;
}

/// `renamed` fields have another name in C, which comes first; those after `without` are names and
/// keys.
macro_rules! attributes {
    ($($c:ident = $core:ident {
        $($field:ident)*
        $(, renamed $($theirs:ident: $ours:ident)*)?
        $(, without $($apart:ident)*)?
    })*) => { $(
        impl Attributes<abi::$c> for $core {
            fn read(c: &abi::$c) -> Result<Self> {
                Ok(Self {
                    $($($ours: field(stringify!($c), stringify!($theirs), c.$theirs)?,)*)?
                    $($field: field(stringify!($c), stringify!($field), c.$field)?,)*
                    $($($apart: Default::default(),)*)?
                })
            }

            fn write(&self) -> abi::$c {
                abi::$c {
                    $($($theirs: self.$ours.write(),)*)?
                    $($field: self.$field.write(),)*
                    $($($apart: Default::default(),)*)?
                }
            }
        }
    )* };
}

attributes! {
    fi_tx_attr = TxAttr {
        caps mode op_flags msg_order comp_order inject_size size iov_limit rma_iov_limit tclass
    }
    fi_rx_attr = RxAttr {
        caps mode op_flags msg_order comp_order total_buffered_recv size iov_limit
    }
    fi_ep_attr = EpAttr {
        protocol protocol_version max_msg_size msg_prefix_size max_order_raw_size
        max_order_war_size max_order_waw_size mem_tag_format tx_ctx_cnt rx_ctx_cnt auth_key_size,
        renamed type_: ep_type,
        without auth_key
    }
    fi_domain_attr = DomainAttr {
        domain threading control_progress resource_mgmt av_type mr_mode mr_key_size cq_data_size
        cq_cnt ep_cnt tx_ctx_cnt rx_ctx_cnt max_ep_tx_ctx max_ep_rx_ctx max_ep_stx_ctx
        max_ep_srx_ctx cntr_cnt mr_iov_limit caps mode auth_key_size max_err_data mr_cnt tclass
        max_ep_auth_key max_group_id max_cntr_value max_err_cntr_value,
        renamed data_progress: progress,
        without name auth_key
    }
    fi_fabric_attr = FabricAttr {
        fabric prov_version api_version,
        without name prov_name
    }
}

/// Reads the field `name` of the struct `owner`.
fn field<C: Copy + Debug, T: Field<C>>(owner: &str, name: &str, c: C) -> Result<T> {
    T::read(c).ok_or_else(|| {
        let (owner, name) = (owner.trim_start_matches("fi_"), name.trim_end_matches('_'));
        unknown(&format!("{owner}->{name}"), c)
    })
}

/// The answer to a value of `attribute` that nobody matches.
pub(super) fn unknown(attribute: &str, value: impl Debug) -> Errno {
    fi_warn!(
        "core",
        Subsys::Core,
        "{attribute} is {value:?}, which no provider here knows: leave it unspecified"
    );
    Errno::ENODATA
}
