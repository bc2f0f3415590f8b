//! Address handles.

use core::ffi::c_int;
use std::sync::Arc;

use ripstop_types::{Errno, Result};

use crate::edge::args::{In, Must, Object as _, Out, Take};
use crate::edge::made::{Ah, Context, Pd};
use crate::edge::objects::pointer;
use crate::edge::{exports, number, or_null};
use crate::engine::{GRH, ah};
use crate::sys::{ibv_ah, ibv_ah_attr, ibv_wc};

/// Creates an address handle.
pub(crate) fn create_ah(pd: &Pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    let ip = pd.engine.create_ah(pd.c.handle, attr)?;
    let c = ibv_ah {
        context: pd.c.context,
        pd: pointer(pd),
        handle: 0,
    };
    let engine = Arc::clone(&pd.engine);
    let pd = pd.c.handle;
    Ok(Ah { c, engine, pd, ip }.give())
}

exports! {
    /// `ibv_create_ah(3)`.
    fn ibv_create_ah(pd: Must<'_, Pd>, attr: In<'_, ibv_ah_attr>) -> *mut ibv_ah {
        or_null(attr.get().ok_or(Errno::EINVAL).and_then(|attr| create_ah(&pd, attr)))
    }

    /// `ibv_init_ah_from_wc`.
    fn ibv_init_ah_from_wc(
        _context: Must<'_, Context>,
        port: u8,
        wc: In<'_, ibv_wc>,
        header: In<'_, [u8; GRH]>,
        attr: Out<'_, ibv_ah_attr>,
    ) -> c_int {
        let wc = wc.get().ok_or(Errno::EINVAL);
        number(wc.and_then(|wc| ah::way_back(port, wc, header.get()).map(|found| attr.set(found))))
    }

    /// `ibv_create_ah_from_wc(3)`.
    fn ibv_create_ah_from_wc(
        pd: Must<'_, Pd>,
        wc: In<'_, ibv_wc>,
        header: In<'_, [u8; GRH]>,
        port: u8,
    ) -> *mut ibv_ah {
        let wc = wc.get().ok_or(Errno::EINVAL);
        let attr = wc.and_then(|wc| ah::way_back(port, wc, header.get()));
        or_null(attr.and_then(|attr| create_ah(&pd, &attr)))
    }

    /// `ibv_destroy_ah(3)`.
    fn ibv_destroy_ah(ah: Take<Ah>) -> c_int {
        ah.engine.destroy_ah(ah.pd);
        drop(ah.take());
        0
    }
}
