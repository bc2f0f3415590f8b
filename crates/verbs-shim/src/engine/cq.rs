//! Completion queues and the channels that tell of them.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::consts::IBV_WC_SUCCESS;
use crate::sys::ibv_wc;

/// Things that a program waits for by a descriptor: each has a byte in a pipe, so that the descriptor is
/// readable as long as there is one, and blocks or not as the program has set it.
pub(crate) struct Channel<T> {
    reader: PipeReader,
    writer: PipeWriter,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> Channel<T> {
    /// # Errors
    /// Those of `pipe(2)`.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        Ok(Arc::new(Self {
            reader,
            writer,
            waiting: Mutex::new(VecDeque::new()),
        }))
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Adds one.
    pub(crate) fn post(&self, thing: T) {
        self.waiting.lock().push_back(thing);
        // A pipe takes 65536 bytes before it blocks; queues and ids have few events at a time.
        let _ = (&self.writer).write(&[1]);
    }

    /// Takes the next one, and waits for it unless the descriptor is set not to.
    ///
    /// # Errors
    /// Those of `read(2)`, `EAGAIN` among them.
    pub(crate) fn take(&self) -> io::Result<T> {
        loop {
            let mut byte = [0];
            if (&self.reader).read(&mut byte)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // What was withdrawn has left its byte.
            if let Some(thing) = self.waiting.lock().pop_front() {
                return Ok(thing);
            }
        }
    }

    /// Withdraws those that `gone` says of.
    pub(crate) fn withdraw(&self, gone: impl Fn(&T) -> bool) {
        drop(self.split_off(gone));
    }

    /// Takes out those that `gone` says of, in their order. Their bytes stay, and are passed over.
    pub(crate) fn split_off(&self, gone: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut *waiting);
        let (out, stay) = all.into_iter().partition(gone);
        *waiting = stay;
        out
    }
}

/// What a program wants to be told of a queue (`ibv_req_notify_cq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Solicited,
    Any,
}

/// What `ibv_get_cq_event` gives out of a queue: its address and its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) cq: usize,
    pub(crate) context: usize,
}

/// A completion queue.
pub(crate) struct Cq {
    entries: VecDeque<ibv_wc>,
    capacity: usize,
    wanted: Wanted,
    channel: Option<Arc<Channel<Told>>>,
    /// What the channel gives out for this queue.
    told: Told,
    /// Queue pairs that complete here; each counts twice if it sends and receives here.
    pub(crate) users: usize,
    overrun: bool,
}

impl Cq {
    pub(crate) fn new(capacity: usize, channel: Option<Arc<Channel<Told>>>) -> Self {
        Self {
            entries: VecDeque::with_capacity(capacity.min(4096)),
            capacity,
            wanted: Wanted::Nothing,
            channel,
            told: Told::default(),
            users: 0,
            overrun: false,
        }
    }

    /// Says how the queue is called, before it is used.
    pub(crate) fn call(&mut self, told: Told) {
        self.told = told;
    }

    /// Whether there is nothing to be polled.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the oldest completion.
    pub(crate) fn pop(&mut self) -> Option<ibv_wc> {
        self.entries.pop_front()
    }

    /// Whether the next completion is to be told of.
    pub(crate) fn is_armed(&self) -> bool {
        self.wanted != Wanted::Nothing
    }

    /// Asks to be told of the next completion, or of the next solicited one.
    pub(crate) fn arm(&mut self, solicited: bool) {
        // The wider of two wishes holds.
        if !solicited {
            self.wanted = Wanted::Any;
        } else if self.wanted == Wanted::Nothing {
            self.wanted = Wanted::Solicited;
        }
    }

    /// Adds a completion. Returns whether the queue has become longer than it may, for the first time: it
    /// still holds everything.
    #[must_use]
    pub(crate) fn push(&mut self, wc: ibv_wc, solicited: bool) -> bool {
        self.entries.push_back(wc);
        let tell = match self.wanted {
            Wanted::Nothing => false,
            Wanted::Solicited => solicited || wc.status != IBV_WC_SUCCESS,
            Wanted::Any => true,
        };
        if tell {
            self.wanted = Wanted::Nothing;
            if let Some(channel) = &self.channel {
                channel.post(self.told);
            }
        }
        let first = self.entries.len() > self.capacity && !self.overrun;
        self.overrun |= first;
        first
    }

    /// Takes out the completions of a queue pair that is destroyed.
    pub(crate) fn forget(&mut self, qp_num: u32) {
        self.entries.retain(|wc| wc.qp_num != qp_num);
    }

    /// Sets another length, which must hold what is there.
    #[must_use]
    pub(crate) fn resize(&mut self, capacity: usize) -> bool {
        let fits = self.entries.len() <= capacity;
        if fits {
            self.capacity = capacity;
        }
        fits
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            let gone = self.told;
            channel.withdraw(|told| *told == gone);
        }
    }
}
