//! Matching of arriving messages with posted receives (man pages `fi_msg(3)`,
//! `fi_tagged(3)`).
//!
//! A [`Matcher`] is one receive context: receives in the order they were posted, and messages
//! that came before a receive for them ("unexpected") in the order they arrived. A message
//! goes to the first receive that fits; a receive takes the first message that fits it. There is no
//! limit to the number of either but memory, and long queues are not walked.

#[cfg(test)]
mod model;
mod posted;
mod waiting;

use ripstop_types::{Context, Errno, FiAddr, Result};

use crate::id::{AskedId, ConnId, DepartedId, EpId, MessageId, RecvId, SlotId, SrxId, WorkId};
use crate::pool::{List, Pool};
use crate::{Buffer, Iov};
use posted::Posted;
use waiting::Waiting;

/// A walk past more than so many items of a queue counts as long. When long walks have passed as
/// many as there are, the queue gets a table.
const LONG_WALK: usize = 64;

/// A queue of not more than so many items is a list again.
const MAX_LIST_ITEMS: usize = 16;

/// What a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Tag and the bits of it that do not matter; `None` for plain messages.
    pub tag: Option<(u64, u64)>,
    /// The peer, or [`FiAddr::UNSPEC`] for any.
    pub src: FiAddr,
}

/// What identifies a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender's tag; `None` for plain messages.
    pub tag: Option<u64>,
    /// The sender, or [`FiAddr::NOTAVAIL`].
    pub src: FiAddr,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Payload in bytes.
    pub len: u64,
    /// The sender waits for an acknowledgement.
    pub ack: bool,
}

impl Want {
    /// Whether a message fits.
    #[inline]
    #[must_use]
    pub const fn accepts(&self, tag: Option<u64>, src: FiAddr) -> bool {
        let tag_fits = match (self.tag, tag) {
            (None, None) => true,
            (Some((want, ignore)), Some(tag)) => (want | ignore) == (tag | ignore),
            _ => false,
        };
        tag_fits && (!self.src.is_specified() || self.src.0 == src.0)
    }
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub struct Recv<B> {
    /// Where the message goes.
    pub iov: Iov<B>,
    /// What it accepts.
    pub want: Want,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// Whether several messages go into the one buffer (`FI_MULTI_RECV`).
    pub multi: bool,
    /// Bytes of a multi-receive buffer handed out so far; see also [`Recv::for_work`].
    pub used: u64,
    /// Messages on their way into a multi-receive buffer.
    pub filling: u32,
    /// Takes no more messages: matched, cancelled, or a multi-receive buffer that is full.
    pub released: bool,
    /// The program has cancelled it while a message was on its way into it: should that fail, the error is
    /// [`Errno::ECANCELED`](ripstop_types::Errno::ECANCELED).
    pub(crate) cancelled: bool,
    /// Whether it was put into the queue of posted receives.
    pub(crate) listed: Listed,
}

/// Whether a receive was put into the queue of posted receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Listed {
    /// It is held: messages that wait come first.
    No,
    /// It was.
    Yes,
    /// It was, and [`Matcher::visit_posted`] has come by.
    Seen,
}

impl<B: Buffer> Recv<B> {
    /// A receive into these segments.
    #[inline]
    #[must_use]
    pub const fn new(iov: Iov<B>, want: Want, context: Context) -> Self {
        Self {
            iov,
            want,
            context,
            completion: true,
            multi: false,
            used: 0,
            filling: 0,
            released: false,
            cancelled: false,
            listed: Listed::Yes,
        }
    }

    /// The same, for one message and the deferred work with this id. It is never of just one
    /// segment, so `Matcher::match_first`, which asks for that, need not ask for this.
    #[must_use]
    pub fn for_work(self, work: WorkId) -> Self {
        Self {
            iov: self.iov.padded(),
            used: u64::from(work.number()),
            multi: false,
            ..self
        }
    }

    /// Whether it was put into the queue of posted receives.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed != Listed::No
    }

    /// The deferred work it is for.
    #[must_use]
    pub fn work(&self) -> Option<WorkId> {
        match self.multi {
            true => None,
            false => WorkId::new(u32::try_from(self.used).ok()?),
        }
    }
}

/// A message whose payload is still at the sender (rendezvous).
#[derive(Clone, Copy, Debug)]
pub struct Rts {
    /// The index by which both sides name it.
    pub index: u16,
    /// Where the payload is in the sender's process, if it may be got from there.
    pub address: Option<u64>,
}

/// A message nobody was waiting for.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    /// What identifies it.
    pub envelope: Envelope,
    /// The endpoint it came to.
    pub ep: Option<EpId>,
    /// The connection it came (or comes) by, until that is gone.
    pub conn: Option<ConnId>,
    /// The engine's record of who sent it, once its connection is gone.
    pub departed: Option<DepartedId>,
    /// Where the driver keeps its payload, if it does.
    pub slot: Option<SlotId>,
    /// Bytes of payload kept so far.
    pub kept: u64,
    /// There was no room to keep it: its payload is still in the stream, and its connection
    /// is blocked.
    pub parked: bool,
    /// The rendezvous, when the payload is still at the sender.
    pub rts: Option<Rts>,
    /// Set aside by a peek for the receive with this context.
    pub claimed: Option<Context>,
    /// The receive context whose owner knows of it, and will say what becomes of it.
    pub holder: Option<SrxId>,
    /// The owner of its receive context has to answer before any of its payload is read.
    pub ask_first: bool,
    /// Why it will never be whole.
    pub lost: Option<Errno>,
}

/// What an unexpected message costs in bytes besides its payload: itself, its place in a list and
/// in tables, its slot, and what an allocator adds.
pub const ENTRY: u64 = 256;

const _: () = assert!(size_of::<Unexpected>() <= ENTRY as usize);

impl Unexpected {
    /// Bytes of payload that follow its header in the stream: none for a rendezvous, or for one
    /// that is lost.
    #[must_use]
    pub const fn payload(&self) -> u64 {
        match (self.rts, self.lost) {
            (None, None) => self.envelope.len,
            _ => 0,
        }
    }

    /// What keeping it costs, in bytes.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.payload().saturating_add(ENTRY)
    }
}

/// One receive context.
#[derive(Debug)]
pub struct Matcher<B> {
    recvs: Pool<RecvId, Recv<B>>,
    msg: Posted,
    tagged: Posted,
    unexpected: Waiting,
    /// Least free bytes for a multi-receive buffer to stay posted.
    pub min_multi_recv: u64,
    /// Whether receives may name a source; else it is ignored.
    pub directed: bool,
    /// Messages that the owner of the receives has not been asked about, if there is one.
    pub(crate) asked: Option<AskedId>,
}

impl<B: Buffer> Matcher<B> {
    /// A context without receives.
    #[must_use]
    pub const fn new(min_multi_recv: u64, directed: bool) -> Self {
        Self {
            recvs: Pool::new(),
            msg: Posted::new(),
            tagged: Posted::new(),
            unexpected: Waiting::new(),
            min_multi_recv,
            directed,
            asked: None,
        }
    }

    /// A context whose receives another provider has (`fi_peer(3)`): it is asked about every
    /// message, in the order of this queue of the engine.
    #[must_use]
    pub(crate) const fn owned(asked: AskedId) -> Self {
        let mut matcher = Self::new(0, true);
        matcher.asked = Some(asked);
        matcher
    }

    /// Whether another provider has the receives.
    #[must_use]
    pub(crate) const fn is_owned(&self) -> bool {
        self.asked.is_some()
    }

    /// Posts a receive behind all others.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    // Inlined, so that a receive is put together where it stays.
    #[inline(always)]
    pub fn post(&mut self, recv: Recv<B>) -> Result<RecvId> {
        let tagged = recv.want.tag.is_some();
        let id = self.recvs.insert(recv)?;
        self.list(id, tagged);
        Ok(id)
    }

    #[inline]
    fn list(&mut self, id: RecvId, tagged: bool) {
        let posted = if tagged {
            &mut self.tagged
        } else {
            &mut self.msg
        };
        posted.add(&mut self.recvs, id);
    }

    /// Takes a receive without posting it: messages that wait come first.
    ///
    /// # Errors
    /// As [`Matcher::post`].
    #[inline(never)]
    pub fn hold(&mut self, recv: Recv<B>) -> Result<RecvId> {
        self.recvs.insert(Recv {
            listed: Listed::No,
            ..recv
        })
    }

    /// Posts a receive that was held, behind all others.
    pub fn post_held(&mut self, id: RecvId) {
        if let Some(recv) = self.recvs.get_mut(id)
            && recv.listed == Listed::No
        {
            recv.listed = Listed::Yes;
            let tagged = recv.want.tag.is_some();
            self.list(id, tagged);
        }
    }

    /// The receive with this id.
    #[inline]
    #[must_use]
    pub fn recv(&self, id: RecvId) -> Option<&Recv<B>> {
        self.recvs.get(id)
    }

    /// The receive with this id, to be changed.
    #[inline]
    #[must_use]
    pub fn recv_mut(&mut self, id: RecvId) -> Option<&mut Recv<B>> {
        self.recvs.get_mut(id)
    }

    /// Forgets a receive that is in no queue.
    #[inline]
    pub fn finish(&mut self, id: RecvId) -> Option<Recv<B>> {
        self.recvs.remove(id)
    }

    /// The first posted receive that accepts the message, taken from its queue unless it is a
    /// multi-receive buffer.
    #[inline]
    pub fn match_message(&mut self, tag: Option<u64>, src: FiAddr) -> Option<RecvId> {
        let posted = if tag.is_some() {
            &mut self.tagged
        } else {
            &mut self.msg
        };
        let first = posted.first();
        match self.recvs.find(first) {
            Some(recv) if !recv.want.accepts(tag, src) => posted.find(&mut self.recvs, tag, src),
            Some(recv) if recv.multi => first,
            Some(_) => posted.pop_first(&mut self.recvs),
            None => posted.find(&mut self.recvs, tag, src),
        }
    }

    /// The frequent case of [`Matcher::match_message`]: takes the first posted receive, and
    /// forgets it, if it has one segment and the message fits it. Returns the segment, the
    /// context, and whether success is reported; where it must be, others are left alone.
    #[inline(always)]
    pub(crate) fn match_first(
        &mut self,
        tag: Option<u64>,
        src: FiAddr,
        len: u64,
        reported: bool,
    ) -> Option<(B, Context, bool)> {
        let posted = if tag.is_some() {
            &mut self.tagged
        } else {
            &mut self.msg
        };
        let first = self.recvs.find(posted.first())?;
        let [segment] = first.iov.segments() else {
            return None;
        };
        if !first.want.accepts(tag, src) || first.multi || first.iov.len() < len {
            return None;
        }
        if reported && !first.completion {
            return None;
        }
        let found = (*segment, first.context, first.completion);
        posted.discard_first(&mut self.recvs);
        Some(found)
    }

    /// Receives that are posted or being filled.
    #[must_use]
    pub const fn receives(&self) -> usize {
        self.recvs.len()
    }

    /// Shows the first `most` receives of either kind that wait for a message, and whether each is seen
    /// for the first time.
    pub fn visit_posted(&mut self, most: usize, visit: &mut dyn FnMut(RecvId, &Recv<B>, bool)) {
        let mut look = |id: RecvId, recv: &mut Recv<B>| {
            let is_new = core::mem::replace(&mut recv.listed, Listed::Seen) != Listed::Seen;
            visit(id, recv, is_new);
        };
        self.msg.visit(&mut self.recvs, most, &mut look);
        self.tagged.visit(&mut self.recvs, most, &mut look);
    }

    /// Takes a receive out of its queue; it stays known by its id.
    pub fn unpost(&mut self, id: RecvId) -> bool {
        let Some(recv) = self.recvs.get(id).filter(|recv| recv.is_listed()) else {
            return false;
        };
        let posted = match recv.want.tag {
            Some(_) => &mut self.tagged,
            None => &mut self.msg,
        };
        posted.remove(&mut self.recvs, id)
    }

    /// Takes the oldest posted receive with this context out of its queue.
    pub fn cancel(&mut self, context: Context) -> Option<RecvId> {
        self.take_posted(|recv| recv.context == context)
    }

    /// Marks the receives with this context that a message is on its way into, see [`Recv::cancelled`].
    pub(crate) fn note_cancel(&mut self, context: Context) {
        for id in self.recvs.every_id() {
            if let Some(recv) = self
                .recvs
                .get_mut(id)
                .filter(|recv| recv.context == context)
            {
                recv.cancelled = true;
            }
        }
    }

    /// Whether a posted receive with that property exists.
    #[must_use]
    pub fn any_posted(&self, wanted: impl Fn(&Recv<B>) -> bool) -> bool {
        self.tagged.any(&self.recvs, &wanted) || self.msg.any(&self.recvs, &wanted)
    }

    /// Takes the oldest posted receive for which `wanted` holds out of its queue; of those with
    /// a tag, if there is one.
    pub fn take_posted(&mut self, wanted: impl Fn(&Recv<B>) -> bool) -> Option<RecvId> {
        let found = |_, recv: &Recv<B>| wanted(recv);
        self.tagged
            .take(&mut self.recvs, found)
            .or_else(|| self.msg.take(&mut self.recvs, found))
    }

    /// Takes all posted receives for which `wanted` holds out of their queues, for
    /// [`Matcher::next_of`].
    pub fn split_posted(&mut self, wanted: impl Fn(&Recv<B>) -> bool) -> [List<RecvId>; 2] {
        let found = |_, recv: &Recv<B>| wanted(recv);
        [
            self.tagged.split(&mut self.recvs, found),
            self.msg.split(&mut self.recvs, found),
        ]
    }

    /// Takes the next of some receives that were taken out.
    pub fn next_of(&mut self, lists: &mut [List<RecvId>; 2]) -> Option<RecvId> {
        let mut lists = lists.iter_mut();
        lists.find_map(|list| list.pop_front(&mut self.recvs))
    }

    /// Whether no message waits for a receive.
    #[inline]
    #[must_use]
    pub const fn nothing_unexpected(&self) -> bool {
        self.unexpected.is_empty()
    }

    /// Adds a message that is in `pool` behind all others that wait.
    pub fn add_unexpected(&mut self, pool: &mut Pool<MessageId, Unexpected>, id: MessageId) {
        self.unexpected.add(pool, id);
    }

    /// The first waiting message that fits. With `claim`, only the one set aside for that
    /// context; without, none that is set aside.
    #[must_use]
    pub fn find_unexpected(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        want: Want,
        claim: Option<Context>,
    ) -> Option<MessageId> {
        self.unexpected.find(pool, &want, claim)
    }

    /// Takes a waiting message from the queue; it stays in `pool`. Returns whether it was there.
    pub fn remove_unexpected(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        id: MessageId,
    ) -> bool {
        self.unexpected.remove(pool, id)
    }

    /// Takes all waiting messages for which `wanted` holds from the queue, into a list; they stay
    /// in `pool`.
    pub fn split_unexpected(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        wanted: impl Fn(&Unexpected) -> bool,
    ) -> List<MessageId> {
        self.unexpected.split(pool, wanted)
    }

    /// Calls `visit` on every waiting message, which leaves its tag and source as they are.
    pub fn each_unexpected(
        &self,
        pool: &mut Pool<MessageId, Unexpected>,
        visit: impl FnMut(MessageId, &mut Unexpected),
    ) {
        self.unexpected.for_each(pool, visit);
    }

    /// Says what the source of waiting messages is now; `None` for the same as before.
    pub fn rename_unexpected(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        source: impl Fn(&Unexpected) -> Option<FiAddr>,
    ) {
        self.unexpected.flatten(pool);
        self.unexpected.for_each(pool, |_, message| {
            if let Some(src) = source(message) {
                message.envelope.src = src;
            }
        });
    }

    /// Number of receives known, posted or being filled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.recvs.len()
    }

    /// Whether no receive is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.recvs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Mem;

    const ANY: FiAddr = FiAddr::UNSPEC;
    const STRANGER: FiAddr = FiAddr::NOTAVAIL;

    fn want(tag: Option<(u64, u64)>, src: FiAddr) -> Want {
        Want { tag, src }
    }

    fn recv(context: Context, tag: Option<(u64, u64)>, src: FiAddr) -> Recv<Mem> {
        Recv::new(Iov::one(Mem(0, 10)), want(tag, src), context)
    }

    fn matcher(recvs: impl IntoIterator<Item = Recv<Mem>>) -> Matcher<Mem> {
        let mut matcher = Matcher::new(0, true);
        for recv in recvs {
            matcher.post(recv).unwrap();
        }
        matcher
    }

    /// The context of the receive a message goes to.
    fn matched(matcher: &mut Matcher<Mem>, tag: Option<u64>, src: FiAddr) -> Option<Context> {
        let id = matcher.match_message(tag, src)?;
        Some(matcher.recv(id)?.context)
    }

    #[test]
    fn a_message_fits_by_kind_tag_and_source() {
        let peer = FiAddr(3);
        for (tag, src, message, from, fits) in [
            (None, ANY, None, peer, true),
            (None, ANY, Some(0), peer, false),
            (Some((0, u64::MAX)), ANY, None, peer, false),
            (Some((0, u64::MAX)), ANY, Some(9), peer, true),
            (Some((5, 0)), ANY, Some(5), peer, true),
            (Some((5, 0)), ANY, Some(4), peer, false),
            (Some((5, 1)), ANY, Some(4), peer, true),
            (Some((4, 1)), ANY, Some(5), peer, true),
            (Some((5, 1)), ANY, Some(7), peer, false),
            (None, peer, None, peer, true),
            (None, peer, None, FiAddr(4), false),
            (None, peer, None, STRANGER, false),
            (None, ANY, None, STRANGER, true),
        ] {
            let want = want(tag, src);
            assert_eq!(want.accepts(message, from), fits, "{want:?} {message:?}");
        }
    }

    #[test]
    fn the_oldest_receive_that_fits_is_taken() {
        let mut matcher = matcher([
            recv(1, Some((1, 0)), FiAddr(9)),
            recv(2, Some((2, 0)), ANY),
            recv(3, None, ANY),
            recv(4, Some((0, 3)), ANY),
            recv(5, Some((2, 0)), ANY),
        ]);
        assert_eq!(matched(&mut matcher, Some(2), ANY), Some(2));
        assert_eq!(matched(&mut matcher, Some(2), ANY), Some(4));
        assert_eq!(matched(&mut matcher, Some(2), ANY), Some(5));
        assert_eq!(matched(&mut matcher, Some(2), ANY), None);
        assert_eq!(matched(&mut matcher, Some(1), FiAddr(8)), None);
        assert_eq!(matched(&mut matcher, Some(1), FiAddr(9)), Some(1));
        assert_eq!(matched(&mut matcher, None, STRANGER), Some(3));
    }

    #[test]
    fn a_multi_receive_buffer_stays_in_its_place() {
        let multi = Recv {
            multi: true,
            ..recv(2, None, ANY)
        };
        let first = recv(1, None, FiAddr(9));
        let mut matcher = matcher([first, multi, recv(3, None, ANY)]);
        for _ in 0..2 {
            assert_eq!(matched(&mut matcher, None, ANY), Some(2));
        }
        assert_eq!(matched(&mut matcher, None, FiAddr(9)), Some(1));
        let id = matcher.match_message(None, ANY).unwrap();
        assert!(matcher.unpost(id) && !matcher.unpost(id));
        assert_eq!(matched(&mut matcher, None, ANY), Some(3));
    }

    #[test]
    fn the_frequent_case_is_the_first_receive_with_room() {
        let mut matcher = matcher([recv(1, None, FiAddr(9)), recv(2, None, ANY)]);
        assert_eq!(matcher.match_first(None, ANY, 5, true), None);
        assert_eq!(matcher.match_first(None, FiAddr(9), 11, true), None);
        assert_eq!(matcher.match_first(Some(1), FiAddr(9), 5, true), None);
        let found = matcher.match_first(None, FiAddr(9), 10, true);
        assert_eq!(found, Some((Mem(0, 10), 1, true)));
        assert_eq!(matcher.len(), 1);
        assert!(matcher.match_first(None, ANY, 0, true).is_some());
        assert!(matcher.is_empty());
    }

    #[test]
    fn a_cancelled_receive_is_out_of_its_queue() {
        let mut matcher = matcher([recv(1, None, ANY), recv(2, Some((0, 0)), ANY)]);
        let id = matcher.cancel(2).unwrap();
        assert_eq!(matcher.finish(id).unwrap().context, 2);
        assert_eq!(matcher.cancel(2), None);
        assert_eq!(matched(&mut matcher, Some(0), ANY), None);
        let id = matcher.take_posted(|recv| recv.context == 1).unwrap();
        assert!(matcher.finish(id).is_some());
        assert!(matcher.is_empty());
    }

    #[test]
    fn a_held_receive_takes_its_place_once() {
        let mut matcher = matcher([]);
        let held = matcher.hold(recv(1, None, ANY)).unwrap();
        for context in 2..17 {
            matcher.post(recv(context, None, ANY)).unwrap();
        }
        for _ in 0..2 {
            matcher.post_held(held);
        }
        for context in (2..17).chain([1]) {
            assert_eq!(matched(&mut matcher, None, ANY), Some(context));
        }
        assert_eq!(matched(&mut matcher, None, ANY), None);
    }
}
