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
        op!(events, ops.read(event, into, size_of::<fi_eq_entry>(), 0))
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
    close_all!(quiet, domain, events, fabric);
}

/// MPI programs have windows that are all of the address space, to which they attach memory later.
#[test]
fn the_whole_address_space_can_be_registered() {
    const KEY: u64 = 5;
    for (provider, mr_mode) in [c"tcp", c"shm"]
        .into_iter()
        .flat_map(|provider| [0, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED].map(|mode| (provider, mode)))
    {
        let pair = Pair::over(provider, mr_mode);
        let (mut mr, none) = (ptr::null_mut(), ptr::null_mut::<c_void>());
        let reg = unsafe { (*(*pair.domain).mr).reg.unwrap() };
        let (domain, access) = (pair.domain.cast(), FI_REMOTE_READ | FI_REMOTE_WRITE);
        let all = usize::MAX;
        let code = unsafe { reg(domain, none, all, access, 0, KEY, 0, &mut mr, none) };
        assert_eq!(code, 0);

        let ep = pair.eps[0];
        for len in [8, 100_000] {
            let mut target = vec![0_u8; len];
            let source: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            let mut read = vec![0_u8; len];
            let at = target.as_mut_ptr().expose_provenance() as u64;
            let from = source.as_ptr().cast();
            let peer = pair.addrs[1];
            post(pair.cq, || {
                op!(ep, rma.write(from, len, none, peer, at, KEY, none))
            });
            completion::<fi_cq_entry>(pair.cq);
            let into = read.as_mut_ptr().cast();
            post(pair.cq, || {
                op!(ep, rma.read(into, len, none, peer, at, KEY, none))
            });
            completion::<fi_cq_entry>(pair.cq);
            assert_eq!(read, source, "{provider:?} {mr_mode:#x} {len}");
            drop(target);
        }
        assert_eq!(close(mr), 0);
    }
}
