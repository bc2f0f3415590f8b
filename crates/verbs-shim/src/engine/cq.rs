//! Completion queues and the channels that tell of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use ripstop_os::set_nonblocking;

use crate::sys::{IBV_WC_SUCCESS, ibv_wc};

/// Things that a program waits for by a descriptor: each has a byte in a pipe, so that the descriptor is
/// readable as long as there is one, and blocks or not as the program has set it.
pub(crate) struct Channel<T> {
    reader: PipeReader,
    /// Does not block: whoever posts has locks.
    writer: PipeWriter,
    /// Another description of the reader, which does not block, whatever the program does with its own. Takes
    /// the bytes of what is withdrawn; where there is no `/proc` they stay, and [`Channel::take`] passes over
    /// them.
    spare: Option<File>,
    waiting: Mutex<Waiting<T>>,
}

/// What nobody has taken. There are as many bytes in the pipe as things here, but for those that are owed and
/// those that a thread has read on its way here.
struct Waiting<T> {
    things: VecDeque<T>,
    /// Bytes for which the pipe had no room.
    owed: usize,
}

impl<T> Waiting<T> {
    /// Writes what is owed, as far as there is room.
    fn pay(&mut self, mut writer: &PipeWriter) {
        while self.owed > 0 && matches!(writer.write(&[1]), Ok(1)) {
            self.owed -= 1;
        }
    }
}

impl<T> Channel<T> {
    /// # Errors
    /// Those of `pipe(2)`.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        set_nonblocking(writer.as_fd()).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let spare = File::open(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        let spare = spare
            .ok()
            .filter(|file| set_nonblocking(file.as_fd()).is_ok());
        Ok(Arc::new(Self {
            reader,
            writer,
            spare,
            waiting: Mutex::new(Waiting {
                things: VecDeque::new(),
                owed: 0,
            }),
        }))
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Adds one.
    pub(crate) fn post(&self, thing: T) {
        let mut waiting = self.waiting.lock();
        waiting.things.push_back(thing);
        waiting.owed += 1;
        waiting.pay(&self.writer);
    }

    /// Takes the next one that `give` makes something of, and waits for it unless the descriptor is set not to.
    /// While `give` runs, nobody withdraws anything.
    ///
    /// # Errors
    /// Those of `read(2)`, `EAGAIN` among them.
    pub(crate) fn take<R>(&self, mut give: impl FnMut(T) -> Option<R>) -> io::Result<R> {
        loop {
            let mut byte = [0];
            if (&self.reader).read(&mut byte)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut waiting = self.waiting.lock();
            waiting.pay(&self.writer);
            // What was withdrawn since the byte was read is not there.
            if let Some(given) = waiting.things.pop_front().and_then(&mut give) {
                return Ok(given);
            }
        }
    }

    /// Withdraws those that `gone` says of.
    pub(crate) fn withdraw(&self, gone: impl Fn(&T) -> bool) {
        drop(self.split_off(gone));
    }

    /// Takes out those that `gone` says of, in their order, and their bytes.
    pub(crate) fn split_off(&self, gone: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut waiting.things);
        let (out, stay): (VecDeque<T>, _) = all.into_iter().partition(gone);
        waiting.things = stay;
        if let Some(mut spare) = self.spare.as_ref() {
            let unpaid = waiting.owed.min(out.len());
            waiting.owed -= unpaid;
            let mut byte = [0];
            // A byte that is not there is on its way with a thread, which then finds nothing.
            let _ = (unpaid..out.len()).try_for_each(|_| spare.read_exact(&mut byte));
        }
        out
    }
}

/// Events of an object that the program has and has not acknowledged. Whoever destroys the object waits until
/// there are none, so that no other thread uses it.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    count: Mutex<u64>,
    none: Condvar,
}

impl Unacked {
    /// Counts one that is given out. The channel is locked: later nobody withdraws it.
    pub(crate) fn give(&self) {
        *self.count.lock() += 1;
    }

    /// The program acknowledges some.
    pub(crate) fn ack(&self, some: u64) {
        let mut count = self.count.lock();
        *count = count.saturating_sub(some);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    /// Waits until all are acknowledged.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.none.wait(&mut count);
        }
    }
}

/// What a program wants to be told of a queue (`ibv_req_notify_cq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Solicited,
    Any,
}

/// What `ibv_get_cq_event` gives out of a queue: its address and its context, and where that is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) cq: usize,
    pub(crate) context: usize,
    pub(crate) unacked: Arc<Unacked>,
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
                channel.post(self.told.clone());
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
            let gone = &self.told.unacked;
            channel.withdraw(|told| Arc::ptr_eq(&told.unacked, gone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel whose reader does not wait.
    fn channel<T>() -> Arc<Channel<T>> {
        let channel = Channel::new().expect("a pipe");
        set_nonblocking(channel.reader.as_fd()).expect("a descriptor");
        channel
    }

    fn next<T>(channel: &Channel<T>) -> Option<T> {
        match channel.take(Some) {
            Ok(thing) => Some(thing),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                None
            }
        }
    }

    #[test]
    fn what_is_withdrawn_takes_its_byte_along() {
        let channel = channel();
        (0..6).for_each(|thing| channel.post(thing));
        channel.withdraw(|thing| thing % 2 == 0);
        let mut bytes = [0; 8];
        let mut reader = &channel.reader;
        assert_eq!(reader.read(&mut bytes).expect("bytes"), 3);
        (&channel.writer).write_all(&bytes[..3]).expect("room");
        assert_eq!(
            [(); 4].map(|()| next(&channel)),
            [Some(1), Some(3), Some(5), None]
        );
    }

    #[test]
    fn more_than_a_pipe_holds_is_posted_and_taken() {
        let channel = channel();
        let count = 70_000;
        (0..count).for_each(|thing| channel.post(thing));
        // Those for which there was no byte, and some for which there was.
        channel.withdraw(|thing| *thing >= 65_000 && *thing < 69_000);
        let taken: Vec<i32> = std::iter::from_fn(|| next(&channel)).collect();
        assert!(taken.into_iter().eq((0..65_000).chain(69_000..count)));
        channel.post(1);
        assert_eq!([next(&channel), next(&channel)], [Some(1), None]);
    }

    #[test]
    fn what_nothing_is_made_of_is_passed_over() {
        let channel = channel();
        (0..4).for_each(|thing| channel.post(thing));
        let odd = channel.take(|thing| (thing % 2 == 1).then_some(thing));
        assert_eq!((odd.expect("a thing"), next(&channel)), (1, Some(2)));
    }

    #[test]
    fn waiting_ends_when_all_is_acknowledged() {
        let unacked = Unacked::default();
        unacked.wait();
        (0..3).for_each(|_| unacked.give());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| unacked.wait());
            unacked.ack(2);
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiting.is_finished());
            unacked.ack(1);
        });
        assert_eq!(*unacked.count.lock(), 0);
    }
}
