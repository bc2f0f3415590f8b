//! How operations end, and whether a peer's end is noticed in time.

use std::time::{Duration, Instant};

use ripstop_core::provider::{CompletionQueue as _, Endpoint as _};
use ripstop_mem::copy_out;
use ripstop_types::{Completion, Errno, FiAddr};

use super::{
    GUARD, Held, Life, Load, MESSAGE, Op, Pair, REPLY, SUSPICION_LIMIT, What, noticed_within,
    pattern,
};

impl Load {
    /// Takes what has completed.
    pub(super) fn collect(&mut self) {
        let mut done: Vec<Completion> = Vec::new();
        let take = |entry: &Completion| done.push(*entry);
        let read = match self.sleeps && self.random.below(4) != 0 {
            true => {
                let long = Some(Duration::from_millis(500));
                self.cq.sread(64, 1, long, take)
            }
            false => self.cq.read(64, take),
        };
        let gap = self.ran.elapsed();
        self.ran = Instant::now();
        self.away = self.away.max(gap);
        for entry in done {
            match self.ops.remove(&entry.context) {
                Some(op) => self.completed(op, entry),
                None => assert!(self.is_foreign(entry.context), "{entry:?} of no operation"),
            }
        }
        match read {
            Ok(_) | Err(Errno::EAGAIN | Errno::ECANCELED) => {}
            Err(Errno::EAVAIL) => self.take_error(),
            Err(error) => panic!("the queue fails: {error}"),
        }
    }

    fn take_error(&mut self) {
        let (mut context, mut why) = (0, Errno::EOTHER);
        let note = |error: &ripstop_types::CompletionError, _: &[u8]| {
            (context, why) = (error.entry.context, error.err);
        };
        self.cq.read_error(note).unwrap();
        let Some(op) = self.ops.remove(&context) else {
            assert!(self.is_foreign(context), "{why} of no operation");
            return;
        };
        let peer = op.peer;
        op.memory
            .into_iter()
            .for_each(|memory| drop((self.unpark)(memory)));
        let cancelled = why == Errno::ECANCELED && matches!(self.pairs[peer].life, Life::Dead(_));
        if !cancelled {
            self.suspect(peer, why);
        }
    }

    /// Whether an entry is of what a peer did here that may do what it likes: writes with data.
    const fn is_foreign(&self, context: usize) -> bool {
        context == 0 && self.setup.hostile.is_some()
    }

    pub(super) fn suspect(&mut self, peer: usize, why: Errno) {
        let life = &mut self.pairs[peer].life;
        if matches!(life, Life::Talking) {
            *life = Life::Suspect(Instant::now());
            println!("\nsuspect {peer} {why}");
        }
    }

    fn completed(&mut self, op: Op, entry: Completion) {
        let peer = op.peer;
        let (back, out) = (self.back(peer), self.out(peer));
        let mut memory = op.memory.into_iter().map(self.unpark);
        let first = memory.next().unwrap_or_default();
        memory.for_each(drop);
        let trusted = self.setup.hostile != Some(peer);
        let pair = &self.pairs[peer];
        let right = match op.what {
            What::Send | What::Reply | What::Write => true,
            What::Recv(seq) => {
                let text = pattern(back.len(seq), back.whose(MESSAGE, seq));
                let (found, guard) = first.split_at(text.len());
                assert_eq!(guard, GUARD, "behind message {seq} of {peer}");
                entry.len == text.len() && found == text
            }
            What::RecvReply(seq) => entry.len == 8 && first == pattern(8, out.whose(REPLY, seq)),
            What::Read => first == self.slot(peer).1,
            What::Add => first == pair.sums.to_ne_bytes(),
        };
        assert!(right || !trusted, "{:?} of {peer}: wrong bytes", op.what);
        let pair = &mut self.pairs[peer];
        match op.what {
            What::Send | What::Reply => {}
            What::Recv(seq) => {
                pair.got += 1;
                pair.owed.push(seq);
            }
            What::RecvReply(_) => pair.answered += 1,
            What::Write => pair.rma = Some(What::Read),
            What::Read => {
                pair.rounds += 1;
                pair.rma = Some(What::Add);
            }
            What::Add => {
                pair.sums += 1;
                pair.rma = Some(What::Write);
            }
        }
        if let Some((answered, got)) = pair.goal
            && pair.answered >= answered
            && pair.got >= got
        {
            pair.goal = None;
            println!("\nmore {peer}");
        }
    }

    /// Sees to it that a peer's end is noticed in time, and leaves nothing.
    pub(super) fn judge(&mut self, peer: usize) {
        match self.pairs[peer].life {
            Life::Suspect(since) if self.setup.hostile != Some(peer) => {
                assert!(
                    since.elapsed() < SUSPICION_LIMIT,
                    "{peer} failed, and is not dead"
                );
            }
            Life::Dead(since) => {
                self.cancel(peer);
                let left: Vec<_> = self.ops.values().filter(|op| op.peer == peer).collect();
                assert!(
                    since.elapsed() < noticed_within() || left.is_empty(),
                    "not ended: {:?}; this process was away for up to {:?}",
                    left.iter().map(|op| op.what).collect::<Vec<_>>(),
                    self.away
                );
                if left.is_empty() && self.has_let_go(since) {
                    self.clean(peer, since);
                }
            }
            _ => {}
        }
    }

    /// Cancels receives that any peer could fill.
    fn cancel(&mut self, peer: usize) {
        let any = |op: &Op, load: &Self| match op.what {
            What::Recv(seq) | What::RecvReply(seq) => {
                op.peer == peer && load.source(peer, seq) == FiAddr::UNSPEC
            }
            _ => false,
        };
        let contexts = self.ops.iter().filter(|(_, op)| any(op, self));
        let contexts: Vec<_> = contexts.map(|(context, _)| *context).collect();
        for context in contexts {
            // One that has begun ends by itself.
            let cancelled = self.ep.cancel(context);
            assert!(matches!(cancelled, Ok(()) | Err(Errno::ENOENT)));
        }
    }

    /// Whether all that is held is of peers that live.
    fn has_let_go(&self, since: Instant) -> bool {
        let talking = |pair: &&Pair| matches!(pair.life, Life::Talking);
        let living = self.pairs.iter().filter(talking).count();
        let held = Held::now();
        // Each lets its region be mapped, or not.
        let allowed = (0..=living)
            .flat_map(|count| (0..=count).map(move |mapped| (count, mapped)))
            .any(|(count, mapped)| held == self.before.with(count, mapped));
        assert!(
            allowed || since.elapsed() < noticed_within(),
            "held: {held:?}, before: {:?}, {living} peers live",
            self.before
        );
        allowed
    }

    fn clean(&mut self, peer: usize, since: Instant) {
        // Nobody writes there any more: its successor begins with zero.
        if let Some(region) = &self.region {
            copy_out(region.buf().skip(8 * peer).first(8), &[0; 8]);
        }
        self.pairs[peer].life = Life::None;
        println!("\nclean {peer} {}", since.elapsed().as_millis());
    }
}
