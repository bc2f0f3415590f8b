//! Who makes the requests of an open device go on: calls that post and poll, and a thread.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ripstop_types::{Errno, Result};

use crate::engine::{Engine, Inner};
use crate::log::{Subsys, refuse};

/// How often the thread looks at requests that the provider did not take.
const RETRY: Duration = Duration::from_millis(1);

/// How long the thread waits for completions before it looks whether it is still needed.
const WAIT: Duration = Duration::from_millis(500);

impl Engine {
    /// Sees to what comes of posting to a queue pair.
    pub(super) fn posted(self: &Arc<Self>, inner: &mut Inner, qp: usize) {
        let Some(qp) = inner.qps.get(qp) else {
            return;
        };
        if qp.is_failing() {
            self.settle(inner);
        } else if qp.is_stalled() {
            inner.stalled = true;
            // Without a thread, what waits goes on when the program polls.
            let _ = self.serve(inner);
        }
    }

    /// Takes some of what the provider has completed; returns how much.
    pub(super) fn progress(&self, inner: &mut Inner) -> usize {
        let count = self.take(inner);
        inner.retry();
        if inner.failing {
            self.settle(inner);
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

    /// Moves queue pairs to the state of error that have requests which could not be posted, after taking what the
    /// provider has completed.
    fn settle(&self, inner: &mut Inner) {
        while self.take(inner) > 0 {}
        inner.failing = false;
        let Inner { qps, cqs, .. } = inner;
        qps.iter_mut().for_each(|(_, qp)| qp.settle(cqs));
    }

    /// Takes all of what the provider has completed, before a queue pair is moved to the state of error: what has
    /// arrived completes as such.
    pub(super) fn catch_up(&self, inner: &mut Inner) {
        while self.progress(inner) > 0 {}
    }

    /// Has the thread serve, if there is something to serve.
    pub(super) fn serve(self: &Arc<Self>, inner: &mut Inner) -> Result<()> {
        if !inner.needs_service() {
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
                while !inner.needs_service() && !inner.closed {
                    self.service.wait(&mut inner);
                }
                if inner.closed {
                    return;
                }
                if inner.stalled { RETRY } else { WAIT }
            };
            self.net.wait(timeout);
        }
    }
}
