//! Who makes the requests of an open device go on: calls that post and poll, and a thread.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ripstop_types::{Errno, Result};

use crate::engine::qp::PATIENCE;
use crate::engine::{Engine, Inner};
use crate::log::{Subsys, refuse};

/// How often the thread looks at requests that the provider did not take.
const RETRY: Duration = Duration::from_millis(1);

/// How long the thread waits for completions before it looks whether it is still needed.
const WAIT: Duration = Duration::from_millis(500);

/// How often the thread looks whether it is time to tell the program that a peer is gone.
const GIVE_UP_LOOK: Duration = Duration::from_millis(10);

/// How long a program may be away that has queue pairs of datagrams, before the thread takes what comes for them. While it
/// polls, peers that are faster wait for it; while it does not, what finds no receive is dropped.
const AWAY: Duration = Duration::from_millis(200);

/// What the thread has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Nothing,
    /// To look whether the program polls.
    Watch,
    /// To wait so long for completions.
    Serve(Duration),
}

impl Inner {
    /// What the thread has to do.
    fn work(&self) -> Work {
        if self.stalled {
            Work::Serve(RETRY)
        } else if self.cqs.iter().any(|(_, cq)| cq.is_armed()) {
            Work::Serve(if self.peers_gone { GIVE_UP_LOOK } else { WAIT })
        } else if self.datagrams == 0 {
            Work::Nothing
        } else if self.polled {
            Work::Watch
        } else {
            Work::Serve(AWAY)
        }
    }
}

impl Engine {
    /// Sees to what comes of posting to a queue pair.
    pub(super) fn posted(self: &Arc<Self>, inner: &mut Inner, qp: usize) {
        let Some(qp) = inner.qps.get_mut(qp) else {
            return;
        };
        let met_stuck = qp.take_met_stuck();
        if qp.is_failing() {
            inner.failing = true;
            self.progress(inner);
            return;
        }
        if qp.is_stalled() {
            inner.stalled = true;
            // Without a thread, what waits goes on when the program polls.
            let _ = self.serve(inner);
        }
        if met_stuck {
            self.progress(inner);
        }
    }

    /// Takes some of what the provider has completed; returns how much.
    pub(super) fn progress(&self, inner: &mut Inner) -> usize {
        let were_gone = inner.peers_gone;
        let count = self.take(inner);
        inner.retry();
        if inner.failing {
            self.settle(inner);
        }
        if inner.peers_gone {
            inner.give_up();
        }
        // The thread may be about to wait for longer than until it is time.
        if inner.peers_gone && !were_gone {
            self.net.wake();
        }
        count
    }

    /// Takes some ends of requests; returns how many.
    fn take(&self, inner: &mut Inner) -> usize {
        // Not within the provider's call: what follows may post, or drop an endpoint.
        let mut ends = std::mem::take(&mut inner.ends);
        self.net.drain(&mut |ended| ends.push(ended));
        let count = ends.len();
        ends.drain(..).for_each(|ended| inner.ended(&ended));
        inner.ends = ends;
        count
    }

    /// Moves queue pairs to the state of error that have requests which could not be posted, at once or when it is time,
    /// after taking what the provider has completed.
    fn settle(&self, inner: &mut Inner) {
        while self.take(inner) > 0 {}
        inner.failing = false;
        let Inner { qps, cqs, .. } = inner;
        qps.iter_mut().for_each(|(_, qp)| qp.settle(cqs));
        inner.peers_gone |= inner.qps.iter().any(|(_, qp)| qp.is_peer_gone());
    }

    /// Takes all of what the provider has completed, before a queue pair is moved to the state of error: what has
    /// arrived completes as such. Receives of datagrams are not given back meanwhile, so it comes to an end.
    pub(super) fn catch_up(&self, inner: &mut Inner) {
        while self.take(inner) > 0 {}
        self.progress(inner);
    }

    /// Lets datagrams of a queue pair arrive that is about to be destroyed: their requests are done, so the program does
    /// not wait for them.
    pub(super) fn linger(&self, qp: usize) {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            {
                let mut inner = self.inner.lock();
                self.progress(&mut inner);
                if inner.qps.get(qp).is_none_or(|qp| !qp.is_sending()) {
                    return;
                }
            }
            self.net.wait(RETRY);
        }
    }

    /// Has the thread serve, if there is something to serve.
    pub(super) fn serve(self: &Arc<Self>, inner: &mut Inner) -> Result<()> {
        if inner.work() == Work::Nothing {
            return Ok(());
        }
        if inner.serving {
            self.service.notify_all();
            return Ok(());
        }
        let engine = Arc::clone(self);
        let thread = thread::Builder::new().name("ripstop-verbs".into());
        match thread.spawn(move || engine.run()) {
            Ok(_) => {
                inner.serving = true;
                Ok(())
            }
            Err(error) => {
                let errno = Errno(error.raw_os_error().unwrap_or(Errno::EAGAIN.0));
                Err(refuse(
                    Subsys::Cq,
                    errno,
                    format_args!("no thread: {error}"),
                ))
            }
        }
    }

    /// The thread that serves.
    fn run(&self) {
        loop {
            let timeout = {
                let mut inner = self.inner.lock();
                self.progress(&mut inner);
                loop {
                    if inner.closed {
                        return;
                    }
                    match inner.work() {
                        Work::Serve(timeout) => break timeout,
                        Work::Nothing => self.service.wait(&mut inner),
                        Work::Watch => {
                            inner.polled = false;
                            self.service.wait_for(&mut inner, AWAY);
                        }
                    }
                }
            };
            self.net.wait(timeout);
        }
    }
}
