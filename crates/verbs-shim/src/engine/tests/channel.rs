//! Completion channels.

use super::*;

#[test]
fn a_queue_that_is_armed_tells_of_a_completion_once() {
    on_both(|kind| {
        let [a, b] = pair(kind);
        let channel = Channel::new().expect("a pipe");
        let cq = b
            .engine
            .create_cq(8, Some(Arc::clone(&channel)))
            .expect("a queue");
        let told = Told {
            cq: 5,
            context: 6,
            ..Told::default()
        };
        b.engine.call_cq(cq, told);
        let cap = b.engine.query_qp(b.qp).expect("attributes").1.cap;
        let init = QpInit {
            pd: b.pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            all_signaled: true,
            cap,
            ud: false,
        };
        let (qp, num, _) = b.engine.create_qp(&init).expect("a queue pair");
        let mut c = b;
        (c.qp, c.num, c.cq) = (qp, num, cq);
        let d = Side::new(kind);
        connect(&c, &d);
        c.recv(1, &[]).expect("a receive");
        c.engine.arm(cq, false).expect("a queue");
        d.send(&wr(2, IBV_WR_SEND, NOWHERE), &[]).expect("a send");
        // Nobody polls here: the thread of the device does.
        let told = channel.take(Some).expect("an event");
        assert_eq!((told.cq, told.context), (5, 6));
        assert_eq!(c.wait().wr_id, 1);
        assert_eq!(d.wait().wr_id, 2);
        c.engine.close();
        drop(a);
    });
}
