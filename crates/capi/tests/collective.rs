//! A C program that makes address vector sets, joins groups and reduces.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

/// Two endpoints with one address vector, and a queue and an event queue for both.
struct Ends {
    info: Info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    eq: *mut fid_eq,
    eps: [*mut fid_ep; 2],
}

impl Ends {
    fn open() -> Self {
        let info = loopback(FI_EP_RDM, |hints| {
            hints.get().caps = FI_MSG | FI_COLLECTIVE;
        });
        assert_eq!(info.get().caps & FI_COLLECTIVE, FI_COLLECTIVE);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_TABLE, 0);
        let cq = cq(domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE);
        let eq = eq(fabric, FI_WAIT_NONE);
        let eps = [0, 1].map(|rank| {
            let ep = bound(domain, &info, av, cq);
            assert_eq!(bind(ep, eq, 0), 0);
            assert_eq!(enable(ep), 0);
            let addr = name(unsafe { (*ep).cm }, ep.cast());
            assert_eq!(insert(av, &addr), rank);
            ep
        });
        Self {
            info,
            fabric,
            domain,
            av,
            cq,
            eq,
            eps,
        }
    }

    fn set(&self, change: impl FnOnce(&mut fi_av_set_attr)) -> Result<*mut fid_av_set, c_int> {
        let mut attr = fi_av_set_attr {
            start_addr: FI_ADDR_NOTAVAIL,
            end_addr: FI_ADDR_NOTAVAIL,
            ..Default::default()
        };
        change(&mut attr);
        let mut set = ptr::null_mut();
        match op!(self.av, ops.av_set(&mut attr, &mut set, NONE)) {
            0 => Ok(set),
            code => Err(code),
        }
    }

    fn join(&self, rank: usize, set: *mut fid_av_set, context: usize) -> *mut fid_mc {
        let mut coll_addr = 0;
        assert_eq!(op!(set, ops.addr(&mut coll_addr)), 0);
        let addr = fi_collective_addr { set, coll_addr };
        let mut mc = ptr::null_mut();
        let addr = (&raw const addr).cast::<c_void>();
        let context = ptr::without_provenance_mut(context);
        let ep = self.eps[rank];
        assert_eq!(op!(ep, cm.join(addr, FI_COLLECTIVE, &mut mc, context)), 0);
        mc
    }

    /// The object and the context of the next event, which says that a group is joined.
    fn joined(&self) -> (*mut fid, usize) {
        until("a join", || {
            let mut entry = fi_eq_entry::default();
            let mut event = 0;
            let buf = (&raw mut entry).cast::<c_void>();
            let len = size_of::<fi_eq_entry>();
            let read = op!(self.eq, ops.read(&mut event, buf, len, 0));
            (read > 0).then(|| {
                assert_eq!(event, FI_JOIN_COMPLETE);
                (entry.fid, entry.context.addr())
            })
        })
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for ep in self.eps {
            assert_eq!(close(ep), 0);
        }
        close_all!(self.cq, self.eq, self.av, self.domain, self.fabric);
        assert!(!self.info.0.is_null());
    }
}

#[test]
fn a_join_reports_its_group_and_its_context() {
    let ends = Ends::open();
    let set = ends.set(|attr| attr.flags = FI_UNIVERSE).unwrap();
    let groups = [ends.join(0, set, 10), ends.join(1, set, 11)];
    let mut events = [ends.joined(), ends.joined()];
    events.sort_by_key(|(_, context)| *context);
    for (rank, (object, context)) in events.into_iter().enumerate() {
        assert_eq!((object, context), (groups[rank].cast::<fid>(), 10 + rank));
    }
    for object in groups {
        assert_eq!(close(object), 0);
    }
    assert_eq!(close(set), 0);
}

#[test]
fn sets_and_joins_refuse_bad_input() {
    let ends = Ends::open();
    let set = ends.set(|_| {}).unwrap();
    assert_eq!(op!(set, ops.addr(ptr::null_mut())), -FI_EINVAL);
    assert_eq!(op!(set, ops.set_union(ptr::null())), -FI_EINVAL);
    let mut mc = ptr::null_mut();
    let addr = fi_collective_addr {
        set,
        coll_addr: FI_ADDR_NOTAVAIL,
    };
    let addr = (&raw const addr).cast::<c_void>();
    let joined = op!(ends.eps[0], cm.join(addr, 0, &mut mc, NONE));
    assert_eq!(joined, -FI_ENOSYS, "only collective groups can be joined");
    assert_eq!(close(set), 0);
}

#[test]
fn a_set_of_another_domain_is_refused() {
    let ends = Ends::open();
    let domain = domain(ends.fabric, &ends.info);
    let mut attr = fi_av_set_attr {
        start_addr: FI_ADDR_NOTAVAIL,
        end_addr: FI_ADDR_NOTAVAIL,
        ..Default::default()
    };
    let av = av(domain, FI_AV_TABLE, 0);
    let mut set = ptr::null_mut();
    assert_eq!(op!(av, ops.av_set(&mut attr, &mut set, NONE)), 0);
    let addr = fi_collective_addr {
        set,
        coll_addr: FI_ADDR_NOTAVAIL,
    };
    let addr = (&raw const addr).cast::<c_void>();
    let mut mc = ptr::null_mut();
    let joined = op!(ends.eps[0], cm.join(addr, FI_COLLECTIVE, &mut mc, NONE));
    assert_eq!(joined, -FI_EDOMAIN);
    assert!(mc.is_null());
    let own = ends.set(|_| {}).unwrap();
    assert_eq!(op!(own, ops.set_union(set)), -FI_EDOMAIN);
    close_all!(own, set, av, domain);
}

#[test]
fn limits_are_told_for_what_there_is() {
    let ends = Ends::open();
    let query = |coll, op, datatype| {
        let mut attr = fi_collective_attr {
            op,
            datatype,
            ..Default::default()
        };
        let code = op!(ends.domain, ops.query_collective(coll, &mut attr, 0));
        (code, attr)
    };
    let (code, attr) = query(FI_ALLREDUCE, FI_SUM, FI_DOUBLE);
    assert_eq!(code, 0);
    assert_eq!(attr.datatype_attr.size, 8);
    assert!(attr.datatype_attr.count > 1 << 20 && attr.max_members >= 1000);
    assert_eq!(query(FI_BARRIER, FI_NOOP, FI_VOID).0, 0);
    assert_eq!(query(FI_BROADCAST, FI_NOOP, FI_UINT8).0, 0);
    // An operation where there is none, and a type of nothing, as from attributes of zeroes.
    assert_eq!(query(FI_BARRIER, FI_SUM, FI_DOUBLE).0, 0);
    assert_eq!(query(FI_BROADCAST, FI_SUM, FI_UINT8).0, 0);
    assert_eq!(query(FI_ALLREDUCE, FI_BXOR, FI_DOUBLE).0, -FI_EOPNOTSUPP);
    assert_eq!(query(FI_ALLREDUCE, FI_CSWAP, FI_INT32).0, -FI_EOPNOTSUPP);
    assert_eq!(query(99, FI_NOOP, FI_UINT8).0, -FI_EOPNOTSUPP);
    assert_eq!(query(FI_REDUCE, FI_SUM, FI_VOID).0, -FI_EOPNOTSUPP);
}
