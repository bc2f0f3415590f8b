//! Objects used from several threads, wait objects and counters.

use std::time::Duration;

use ripstop_foreign::{Buf, CqAttr, Error, Fabric, Shared, Single};
use ripstop_types::{Errno, FiAddr, Flags, Threading as Level, WaitObj};

use crate::{Pair, SOON, library, rdm_info};

const WAITING: CqAttr = CqAttr {
    size: 0,
    format: ripstop_types::CqFormat::Tagged,
    wait: WaitObj::Fd,
    threshold: false,
};

#[test]
fn a_blocked_reader_wakes_for_a_message_and_for_a_signal() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let pair: Pair<Shared> = Pair::new(&info, WAITING);
    let (a, b) = (&pair.a, &pair.b);
    std::thread::scope(|s| {
        let reader = s.spawn(|| b.cq.wait(SOON).unwrap());
        b.ep.trecv(Buf::zeroed(8), FiAddr::UNSPEC, 1, 0, 5).unwrap();
        let mut buf = Buf::from(&b"wake"[..]);
        while let Err(refused) = a.ep.tsend(buf, a.peer, 1, 6) {
            assert!(refused.is_again(), "{}", refused.error);
            buf = refused.payload;
            let _ = a.cq.read_up_to(&mut Vec::new(), 0); // progress
        }
        assert_eq!(a.cq.wait(SOON).unwrap().token, 6);
        assert_eq!(reader.join().unwrap().token, 5);

        let reader = s.spawn(|| b.cq.sread(&mut Vec::new(), 1, Some(SOON)));
        std::thread::sleep(Duration::from_millis(50));
        b.cq.signal().unwrap();
        let woken = reader.join().unwrap();
        assert_eq!(woken.unwrap_err().errno, Errno::EAGAIN);
    });
    let soon =
        b.cq.sread(&mut Vec::new(), 1, Some(Duration::from_millis(10)));
    assert_eq!(soon.unwrap_err().errno, Errno::EAGAIN);
}

#[test]
fn a_descriptor_is_there_where_asked_for() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let fabric: Fabric = library.fabric(&info).unwrap();
    let domain = fabric.domain::<Shared>(&info).unwrap();
    let cq = domain.cq(WAITING).unwrap();
    assert!(cq.wait_fd().is_ok());
    fabric.trywait(&[&cq]).unwrap();
    let other: Fabric = library.fabric(&info).unwrap();
    assert_eq!(other.trywait(&[&cq]).unwrap_err().errno, Errno::EINVAL);
    let plain = domain.cq(CqAttr::default()).unwrap();
    assert_eq!(plain.wait_fd().unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn threads_share_one_endpoint() {
    const EACH: u64 = 200;
    const THREADS: u64 = 4;
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let pair: Pair<Shared> = Pair::new(&info, CqAttr::default());
    let (a, b) = (&pair.a, &pair.b);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut sums = [0_u64; THREADS as usize];
            for tag in 0..THREADS * EACH {
                b.ep.trecv(Buf::zeroed(8), FiAddr::UNSPEC, 0, u64::MAX, tag)
                    .unwrap();
                let done = b.cq.wait(SOON).unwrap();
                let buf = done.returned.into_buf().unwrap();
                sums[done.tag as usize] += u64::from_ne_bytes(buf[..].try_into().unwrap());
            }
            sums
        });
        for thread in 0..THREADS {
            s.spawn(move || {
                for i in 0..EACH {
                    let mut buf = Buf::from(&i.to_ne_bytes()[..]);
                    while let Err(refused) = a.ep.tsend(buf, a.peer, thread, i) {
                        assert!(refused.is_again(), "{}", refused.error);
                        buf = refused.payload;
                        std::thread::yield_now();
                    }
                    a.cq.wait(SOON).unwrap();
                }
            });
        }
        assert_eq!(
            reader.join().unwrap(),
            [EACH * (EACH - 1) / 2; THREADS as usize]
        );
    });
}

#[test]
fn counters_count() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let fabric: Fabric = library.fabric(&info).unwrap();
    let domain = fabric.domain::<Shared>(&info).unwrap();
    let cntr = domain.cntr(WaitObj::Unspec).unwrap();
    assert_eq!((cntr.read(), cntr.readerr()), (0, 0));
    cntr.add(3).unwrap();
    cntr.set(10).unwrap();
    cntr.adderr(2).unwrap();
    cntr.wait(10, Some(SOON))
        .unwrap_or_else(|e| assert_eq!(e.errno, Errno::EAVAIL));
    cntr.seterr(0).unwrap();
    assert_eq!((cntr.read(), cntr.readerr()), (10, 0));
    let late = cntr.wait(11, Some(Duration::from_millis(10))).unwrap_err();
    assert_eq!(late.errno, Errno::ETIMEDOUT);
}

#[test]
fn shared_objects_need_a_safe_domain() {
    let Some(library) = library() else { return };
    let mut hints = crate::hints("tcp", ripstop_types::EpType::Msg, Level::Domain);
    hints.caps = Flags::MSG;
    let found = crate::getinfo(&library, Some(&hints), crate::HERE);
    let info = found.unwrap().remove(0);
    assert_eq!(info.threading(), Level::Domain);
    let fabric: Fabric = library.fabric(&info).unwrap();
    let refused = fabric.domain::<Shared>(&info).err();
    assert_eq!(
        refused,
        Some(Error {
            call: "fi_domain",
            errno: Errno::EINVAL
        })
    );
    fabric.domain::<Single>(&info).unwrap();
}
