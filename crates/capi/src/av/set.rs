//! Address vector sets (`fi_av_set(3)`).

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::av::set::{AvSet, AvSetAttr};
use ripstop_core::provider::{AddressVector, Domain};
use ripstop_types::{Errno, FiAddr, Flags, Result};

use super::body::AvBody;
use crate::edge::{In, Object, Out, trampolines};
use crate::errno::{self, code, fail};
use crate::object::domain::same_domain;
use crate::object::{self, Body, Room, This};
use crate::tables::{operations, table};

/// What a set's object holds.
pub(crate) struct AvSetBody<D: Domain> {
    pub(crate) set: AvSet,
    /// It stays as long as the set.
    pub(crate) av: Arc<D::Av>,
    /// The domain of the address vector. Endpoints of others join no group of the set.
    pub(crate) domain: Arc<D>,
}

impl<D: Domain> Body for AvSetBody<D> {
    type Head = abi::fid_av_set;

    fn in_use(&self) -> bool {
        // A group has its own list of the members.
        false
    }
}

impl<D: Domain> AvSetBody<D> {
    const SET: &'static abi::fi_ops_av_set = operations!(fi_ops_av_set [D] {
        set_union intersect diff insert remove addr
    });
}

trampolines! { [D: Domain]
    /// `fi_av_set`.
    pub(crate) extern "C" fn open(
        parent: This<AvBody<D>>, attr: In<*mut abi::fi_av_set_attr>,
        set: Out<*mut abi::fid_av_set>, context: *mut c_void,
    ) -> c_int {
        set.open(|| {
            let attr = attr.needed("fi_av_set", "attr")?;
            let attr = AvSetAttr {
                count: attr.count,
                start: FiAddr(attr.start_addr),
                end: FiAddr(attr.end_addr),
                stride: attr.stride,
                comm_key: attr.comm_key_size != 0,
                flags: Flags::from_bits_retain(attr.flags),
            };
            let av = &parent.av;
            let body = AvSetBody::<D> {
                set: AvSet::new(&attr, av.av_type(), &av.addresses())?,
                av: Arc::clone(av),
                domain: Arc::clone(&parent.domain),
            };
            let head = abi::fid_av_set {
                fid: object::fid(abi::FI_CLASS_AV_SET, context, AvSetBody::<D>::CLOSING),
                ops: table(AvSetBody::<D>::SET),
            };
            Ok(Room::new().fill(head, body))
        })
    }

    extern "C" fn set_union(dst: This<AvSetBody<D>>, src: Object<*const abi::fid_av_set>) -> c_int {
        code(dst.change(src, AvSet::union))
    }

    extern "C" fn intersect(dst: This<AvSetBody<D>>, src: Object<*const abi::fid_av_set>) -> c_int {
        code(dst.change(src, AvSet::intersect))
    }

    extern "C" fn diff(dst: This<AvSetBody<D>>, src: Object<*const abi::fid_av_set>) -> c_int {
        code(dst.change(src, AvSet::diff))
    }

    extern "C" fn insert(set: This<AvSetBody<D>>, addr: FiAddr) -> c_int {
        let known = set.av.lookup(addr);
        code(known.and_then(|_| set.set.insert(addr)))
    }

    extern "C" fn remove(set: This<AvSetBody<D>>, addr: FiAddr) -> c_int {
        code(set.set.remove(addr))
    }

    extern "C" fn addr(set: This<AvSetBody<D>>, coll_addr: Out<abi::fi_addr_t>) -> c_int {
        if coll_addr.is_null() {
            return fail(errno::missing("fi_av_set_addr", "coll_addr"));
        }
        coll_addr.put(set.set.addr().0);
        0
    }
}

impl<D: Domain> AvSetBody<D> {
    /// Changes the set by another one, which must be of the same address vector.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for one of another domain, [`Errno::EINVAL`] for another vector of this domain.
    fn change(
        &self,
        other: Object<'_, *const abi::fid_av_set>,
        by: impl FnOnce(&AvSet, &AvSet),
    ) -> Result<()> {
        let other = other.any().cast::<Self>(abi::FI_CLASS_AV_SET)?;
        same_domain("the address vector set", &self.domain, &other.domain)?;
        if !Arc::ptr_eq(&self.av, &other.av) {
            return Err(Errno::EINVAL);
        }
        by(&self.set, &other.set);
        Ok(())
    }
}
