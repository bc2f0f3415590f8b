//! What is refused here because a C provider would take it on trust.

use ripstop_foreign::{Buf, CqAttr, Single};
use ripstop_types::{Errno, FiAddr, Flags, WaitObj};

use crate::{Pair, library, rdm_info};

fn pair() -> Option<Pair<Single>> {
    let library = library()?;
    let info = rdm_info(&library, Flags::empty());
    Some(Pair::new(&info, CqAttr::default()))
}

#[test]
fn an_address_must_be_in_the_vector() {
    let Some(pair) = pair() else { return };
    let a = &pair.a;
    for addr in [FiAddr::UNSPEC, FiAddr(1 << 40), FiAddr(a.peer.0 + 1)] {
        let refused = a.ep.tsend(Buf::zeroed(3), addr, 0, 0).unwrap_err();
        assert_eq!(
            (refused.error.errno, refused.payload.len()),
            (Errno::EADDRNOTAVAIL, 3)
        );
        assert_eq!(
            a.ep.tinject(b"x", addr, 0).unwrap_err().errno,
            Errno::EADDRNOTAVAIL
        );
        assert_eq!(a.av.lookup(addr).unwrap_err().errno, Errno::EINVAL);
        assert_eq!(
            a.av.remove(&[a.peer, addr]).unwrap_err().errno,
            Errno::EINVAL
        );
    }
    assert_eq!(
        a.av.remove(&[a.peer, a.peer]).unwrap_err().errno,
        Errno::EINVAL
    );
    a.av.lookup(a.peer).unwrap();
    a.av.remove(&[a.peer]).unwrap();
    assert_eq!(a.av.lookup(a.peer).unwrap_err().errno, Errno::EINVAL);
    let gone = a.ep.send(Buf::zeroed(3), a.peer, 0).unwrap_err();
    assert_eq!(gone.error.errno, Errno::EADDRNOTAVAIL);
}

#[test]
fn limits_of_the_info_hold() {
    let Some(pair) = pair() else { return };
    let info = rdm_info(&library().unwrap(), Flags::empty());
    let a = &pair.a;
    let big = vec![0; info.inject_size() + 1];
    assert_eq!(a.ep.inject(&big, a.peer).unwrap_err().errno, Errno::EINVAL);
    assert_eq!(
        a.ep.tinjectdata(&big, 1, a.peer, 0).unwrap_err().errno,
        Errno::EINVAL
    );
    let flagged =
        a.ep.sendmsg(Buf::from(&big[..]), a.peer, 0, Flags::INJECT, 0);
    assert_eq!(flagged.unwrap_err().error.errno, Errno::EINVAL);

    let pieces: Vec<Buf> = (0..=info.tx_iov_limit().min(15))
        .map(|_| Buf::zeroed(1))
        .collect();
    let refused =
        a.ep.sendmsg(pieces, a.peer, 0, Flags::empty(), 0)
            .unwrap_err();
    assert_eq!(refused.error.errno, Errno::EINVAL);

    let triggered = a.ep.sendmsg(Buf::zeroed(1), a.peer, 0, Flags::TRIGGER, 0);
    assert_eq!(triggered.unwrap_err().error.errno, Errno::EBADFLAGS);
    let multi =
        a.ep.recvmsg(Buf::zeroed(1), FiAddr::UNSPEC, Flags::MULTI_RECV, 0);
    assert_eq!(multi.unwrap_err().error.errno, Errno::EBADFLAGS);
    let claim =
        a.ep.trecvmsg(Buf::zeroed(1), FiAddr::UNSPEC, 0, 0, Flags::CLAIM, 0);
    assert_eq!(claim.unwrap_err().error.errno, Errno::EBADFLAGS);
}

#[test]
fn nothing_blocks_without_a_wait_object() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let fabric = library.fabric(&info).unwrap();
    let domain = fabric.domain::<Single>(&info).unwrap();
    let cq = domain.cq(CqAttr::default()).unwrap();
    assert_eq!(
        cq.sread(&mut Vec::new(), 1, None).unwrap_err().errno,
        Errno::EINVAL
    );
    assert_eq!(cq.signal().unwrap_err().errno, Errno::EINVAL);
    assert_eq!(fabric.trywait(&[&cq]).unwrap_err().errno, Errno::EINVAL);
    let eq = fabric.eq(0, WaitObj::None).unwrap();
    assert_eq!(eq.sread(None).unwrap_err().errno, Errno::EINVAL);
    assert_eq!(eq.wait_fd().unwrap_err().errno, Errno::EINVAL);
    let cntr = domain.cntr(WaitObj::None).unwrap();
    assert_eq!(cntr.wait(1, None).unwrap_err().errno, Errno::EINVAL);
}
