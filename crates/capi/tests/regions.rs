//! A C program that registers memory in every way there is.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::c_void;
use core::ptr;

use c::*;
use ripstop_abi::*;

fn register(domain: *mut fid_domain, memory: &mut [u8], context: usize) -> *mut fid_mr {
    let mut mr: *mut fid_mr = ptr::null_mut();
    let code = unsafe {
        ((*(*domain).mr).reg.unwrap())(
            domain.cast(),
            memory.as_ptr().cast(),
            memory.len(),
            FI_REMOTE_WRITE,
            0,
            context as u64,
            0,
            &mut mr,
            ptr::without_provenance_mut(context),
        )
    };
    assert_eq!(code, 0);
    mr
}

#[test]
fn a_domain_bound_for_registrations_reports_each() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let events = eq(fabric, FI_WAIT_NONE);
    let mut entry = fi_eq_entry::default();
    let mut event = 0;
    let read = |entry: &mut fi_eq_entry, event: &mut u32| {
        let into = ptr::from_mut(entry).cast::<c_void>();
        op!(events, ops.read, event, into, size_of::<fi_eq_entry>(), 0)
    };
    let mut memory = [0_u8; 64];
    let quiet = register(domain, &mut memory, 1);
    assert_eq!(read(&mut entry, &mut event), -(FI_EAGAIN as isize));
    assert_eq!(fid!(domain, bind, events.cast(), FI_READ), -FI_EBADFLAGS);
    assert_eq!(fid!(domain, bind, events.cast(), FI_REG_MR), 0);
    for context in [7, 8] {
        let mr = register(domain, &mut memory, context);
        let size = size_of::<fi_eq_entry>() as isize;
        assert_eq!(read(&mut entry, &mut event), size);
        assert_eq!((event, entry.fid), (FI_MR_COMPLETE, mr.cast()));
        assert_eq!((entry.context.addr(), entry.data), (context, 0));
        assert_eq!(read(&mut entry, &mut event), -(FI_EAGAIN as isize));
        assert_eq!(close(mr), 0);
    }
    for code in [close(quiet), close(domain), close(events), close(fabric)] {
        assert_eq!(code, 0);
    }
}
