//! What a process begins with a peer: messages, answers, and steps at the peer's memory.

use ripstop_core::provider::{AtomicCall, Endpoint as _, RecvKind, RmaCall, SendKind};
use ripstop_mem::Parked;
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags, Result, RmaIov};

use super::{
    Flow, GUARD, KEY, Life, Load, MEMBERS, MESSAGE, Op, POSTED, REPLY, RMA, SLOT, WINDOW, What,
    mix, pattern,
};

impl Load {
    /// Whether operations are on their way that this process has begun by itself.
    pub(super) fn has_begun(&self) -> bool {
        let begun = |op: &Op| !matches!(op.what, What::Recv(_));
        self.ops.values().any(begun)
    }

    pub(super) fn out(&self, peer: usize) -> Flow {
        Flow {
            from: self.setup.own,
            from_life: self.setup.incarnation,
            to: peer,
            to_life: self.pairs[peer].incarnation,
        }
    }

    pub(super) fn back(&self, peer: usize) -> Flow {
        let out = self.out(peer);
        Flow {
            from: out.to,
            from_life: out.to_life,
            to: out.from,
            to_life: out.from_life,
        }
    }

    /// Begins what is next with a peer.
    pub(super) fn go_on(&mut self, peer: usize) {
        if peer == self.setup.own || !matches!(self.pairs[peer].life, Life::Talking) {
            return;
        }
        let pair = &self.pairs[peer];
        if pair.posted < pair.got + POSTED {
            self.post(peer);
        }
        let pair = &self.pairs[peer];
        if let Some(seq) = pair.owed.first().copied() {
            self.reply(peer, seq);
        }
        let pair = &self.pairs[peer];
        if self.is_idle() {
            return;
        }
        if pair.sent < pair.answered + WINDOW {
            self.send(peer);
        }
        self.reach(peer);
    }

    /// Whether nothing new is begun.
    const fn is_idle(&self) -> bool {
        self.resting
    }

    /// Notes what has become of a call. Where it was refused for now, it is done again later.
    fn begun(&mut self, op: Op, outcome: Result<()>) -> bool {
        let context = self.next;
        match outcome {
            Ok(()) => {
                self.next += 1;
                self.ops.insert(context, op);
                true
            }
            Err(error) => {
                let peer = op.peer;
                op.memory
                    .into_iter()
                    .for_each(|memory| drop((self.unpark)(memory)));
                if error != Errno::EAGAIN {
                    self.suspect(peer, error);
                }
                false
            }
        }
    }

    fn post(&mut self, peer: usize) {
        let pair = &self.pairs[peer];
        let (seq, flow) = (pair.posted, self.back(peer));
        let room = flow.len(seq) + GUARD.len();
        let memory = Parked::park(GUARD.iter().copied().cycle().take(room).collect());
        let buf = memory.buf().first(room - GUARD.len());
        let kind = RecvKind::Tagged {
            tag: flow.whose(MESSAGE, seq),
            ignore: 0,
        };
        let from = self.source(peer, seq);
        let outcome = self.ep.recv(kind, &[buf], from, self.next, None);
        let what = What::Recv(seq);
        let op = Op {
            peer,
            what,
            memory: vec![memory],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].posted += 1;
        }
    }

    /// Where a receive takes its message from: most from anybody, by the tag alone.
    pub(super) fn source(&self, peer: usize, seq: u32) -> FiAddr {
        // What is directed takes longer to fail, so this is for a part of the lives.
        let directed = mix(self.out(peer).whose(0, 0)).is_multiple_of(4);
        match directed && seq.is_multiple_of(2) {
            true => self.pairs[peer].addr,
            false => FiAddr::UNSPEC,
        }
    }

    fn send(&mut self, peer: usize) {
        let (seq, flow, to) = (self.pairs[peer].sent, self.out(peer), self.pairs[peer].addr);
        // First the place for the answer.
        let answer = Parked::park(vec![0; 8]);
        let kind = RecvKind::Tagged {
            tag: flow.whose(REPLY, seq),
            ignore: 0,
        };
        let from = self.source(peer, seq);
        let outcome = self.ep.recv(kind, &[answer.buf()], from, self.next, None);
        let op = Op {
            peer,
            what: What::RecvReply(seq),
            memory: vec![answer],
        };
        if !self.begun(op, outcome) {
            return;
        }
        let whose = flow.whose(MESSAGE, seq);
        let text = Parked::park(pattern(flow.len(seq), whose));
        let outcome = loop {
            let kind = SendKind::Tagged(whose);
            let outcome = self.ep.send(kind, &[text.buf()], None, to, self.next, None);
            match outcome {
                Err(Errno::EAGAIN) => self.collect(),
                outcome => break outcome,
            }
        };
        let op = Op {
            peer,
            what: What::Send,
            memory: vec![text],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].sent += 1;
        }
    }

    fn reply(&mut self, peer: usize, seq: u32) {
        let (flow, to) = (self.back(peer), self.pairs[peer].addr);
        let whose = flow.whose(REPLY, seq);
        let text = Parked::park(pattern(8, whose));
        let kind = SendKind::Tagged(whose);
        let outcome = self.ep.send(kind, &[text.buf()], None, to, self.next, None);
        let op = Op {
            peer,
            what: What::Reply,
            memory: vec![text],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].owed.remove(0);
        }
    }

    /// Where this process may write in a peer's memory, and what it writes in this round.
    pub(super) fn slot(&self, peer: usize) -> (RmaIov, Vec<u8>) {
        let round = self.pairs[peer].rounds;
        let whose = self.out(peer).whose(RMA, round);
        let random = mix(whose ^ 1);
        let len = match random % 8 {
            ..4 => 1 + random % 64,
            4..7 => 1 + random % 8192,
            _ => 1 + random % SLOT as u64,
        };
        let remote = RmaIov {
            addr: (MEMBERS * 8 + self.setup.own * SLOT) as u64,
            len,
            key: KEY,
        };
        (remote, pattern(len as usize, whose))
    }

    /// The next step at the peer's memory: write, read it back, add.
    fn reach(&mut self, peer: usize) {
        let Some(what) = self.pairs[peer].rma else {
            return;
        };
        let (slot, bytes) = self.slot(peer);
        let call = |remote, flags| RmaCall {
            remote,
            peer: self.pairs[peer].addr,
            data: None,
            context: self.next,
            flags: Some(flags),
        };
        let (memory, outcome) = match what {
            What::Write => {
                let text = Parked::park(bytes);
                let remote = [slot];
                let call = call(&remote, Flags::DELIVERY_COMPLETE);
                let outcome = self.ep.write(&[text.buf()], &call);
                (vec![text], outcome)
            }
            What::Read => {
                let room = Parked::park(vec![0; bytes.len()]);
                let remote = [slot];
                let call = call(&remote, Flags::empty());
                let outcome = self.ep.read(&[room.buf()], &call);
                (vec![room], outcome)
            }
            _ => {
                let [one, sum] = [1_u64, 0].map(|word| Parked::park(word.to_ne_bytes().to_vec()));
                let remote = [RmaIov {
                    addr: 8 * self.setup.own as u64,
                    len: 8,
                    key: KEY,
                }];
                let call = AtomicCall {
                    kind: AtomicKind::Fetch,
                    datatype: Datatype::Uint64,
                    op: AtomicOp::Sum,
                    compare: &[],
                    result: &[sum.buf()],
                    remote: &remote,
                    peer: self.pairs[peer].addr,
                    data: None,
                    context: self.next,
                    flags: Some(Flags::empty()),
                };
                let outcome = self.ep.atomic(&[one.buf()], &call);
                (vec![sum, one], outcome)
            }
        };
        if self.begun(Op { peer, what, memory }, outcome) {
            self.pairs[peer].rma = None;
        }
    }
}
