//! The way of a request to the device.

use std::sync::atomic::{AtomicU64, Ordering};

use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{Operation, PostError, RecvRequest, SendFlags, SendRequest, Sge};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result, flags};

use crate::batch;
use crate::call::{length, list, refused, registered, unknown};
use crate::counter::Source as _;
use crate::cq::Cq;
use crate::endpoint::{Endpoint, Live};
use crate::link::Link;
use crate::params::{IOV_MOST, NAME};
use crate::queue::Posted;
use crate::sides::{self, Sides};
use crate::ud::{Peers, Way};

/// A request to send.
pub(crate) struct Sending {
    /// The peer of a datagram.
    pub(crate) dest: FiAddr,
    pub(crate) operation: Operation,
    pub(crate) context: Context,
    /// What its completion says.
    pub(crate) says: Flags,
    /// Flags of the call, or the endpoint's own.
    pub(crate) flags: Option<Flags>,
    /// The buffers are free when the call returns, and there is no completion.
    pub(crate) is_inject: bool,
}

impl Endpoint {
    /// Refuses operations that the endpoint was not opened for.
    pub(crate) fn has(&self, capability: Flags) -> Result<()> {
        if self.info.caps.contains(capability) {
            return Ok(());
        }
        fi_warn_sparse!(
            NAME,
            Subsys::EpData,
            "an endpoint that was opened without {capability:?} is asked for it; put it into the caps of the hints"
        );
        Err(Errno::EOPNOTSUPP)
    }

    fn live(&self) -> Result<&Live> {
        self.live.get().ok_or(Errno::EOPBADSTATE)
    }

    /// Gives a request to the device.
    pub(crate) fn post(&self, iov: &[UserBuf], sending: &Sending) -> Result<()> {
        // The peer's device acknowledges what it has placed, so delivery is no other level; it is not
        // offered, as in C, since what has not left the device's caches yet is a matter of the machine.
        const KNOWN: Flags = flags![
            INJECT COMPLETION INJECT_COMPLETE TRANSMIT_COMPLETE DELIVERY_COMPLETE MORE FENCE
            REMOTE_CQ_DATA
        ];
        let live = self.live()?;
        let known = match &self.link {
            _ if live.sides.is_lost() => return Err(self.lost()),
            Link::Connection(connection) if !connection.stands() => return Err(Errno::ENOTCONN),
            Link::Connection(_) => KNOWN,
            // Nobody acknowledges a datagram.
            Link::Datagrams(_) => KNOWN - Flags::DELIVERY_COMPLETE,
        };
        let flags = sending.flags.unwrap_or_else(|| flags_of(&self.tx_flags));
        if !known.contains(flags) {
            return Err(unknown(flags - known));
        }
        let len = self.length(iov, self.info.tx.iov_limit)?;
        let is_read = fetches(&sending.operation);
        let injects = sending.is_inject || flags.contains(Flags::INJECT);
        if injects && len > self.info.tx.inject_size {
            return Err(Errno::EMSGSIZE);
        }
        let is_inline = injects || !is_read && len <= self.info.tx.inject_size;
        let selected = !live.tx_selective || flags.contains(Flags::COMPLETION);
        let request = Request {
            posted: Posted {
                context: sending.context,
                flags: sending.says,
                reported: selected && !sending.is_inject,
                len,
            },
            operation: sending.operation,
            dest: sending.dest,
            fence: flags.contains(Flags::FENCE),
            is_inline,
            // What is injected is the program's again when the call returns.
            waits: flags.contains(Flags::MORE) && !injects,
        };
        match self.try_post(live, iov, &request) {
            // What has ended makes room.
            Err(Errno::EAGAIN) => {
                live.make_room(&live.tx_cq);
                self.try_post(live, iov, &request)
            }
            posted => posted,
        }
    }

    fn try_post(&self, live: &Live, iov: &[UserBuf], request: &Request) -> Result<()> {
        let mut side = live.sides.tx.lock();
        if live.sides.is_lost() {
            return Err(self.lost());
        }
        if live.sides.is_recovering() {
            return Err(Errno::EAGAIN);
        }
        // A peer that is removed meanwhile stays until the request is posted.
        let peers = live.av.as_ref().map(|av| av.peers());
        let way = peers.as_ref().map(|peers| way(peers, request.dest));
        let way = way.transpose()?;
        let writes = fetches(&request.operation);
        let mut pieces = [Sge::default(); IOV_MOST];
        let count = match request.is_inline {
            true => list(iov, &mut pieces, |_| Ok(0))?,
            false => registered(&self.domain, iov, writes, &mut pieces, &mut side.hit)?,
        };
        let number = side.queue.next().ok_or(Errno::EAGAIN)?;
        let is_counted = live.sides.counting.of(request.posted.flags).is_some();
        let is_signaled = request.posted.reported || is_counted || side.queue.is_signal_due();
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, is_signaled);
        flags.set(SendFlags::INLINE, request.is_inline);
        flags.set(SendFlags::FENCE, request.fence);
        let operation = request.operation;
        let pieces = &pieces[..count];
        let mut request_list = SendRequest::new(number, operation, pieces, flags)?;
        if let Some(way) = way {
            request_list = request_list.to(way.destination());
        }
        if !live.tx_cq.take_room(1) {
            return Err(Errno::EAGAIN);
        }
        if request.waits || !side.batch.is_empty() {
            let send = batch::Send {
                number,
                operation,
                flags,
                to: way.map(batch::To::of),
            };
            let queued = side.batch.push(send, pieces);
            queued.inspect_err(|_| live.tx_cq.give_room(1))?;
            side.queue.push(request.posted, is_signaled);
            if request.waits && !side.batch.is_full() {
                return Ok(());
            }
            let posted = side.flush();
            drop(side);
            return posted.or_else(|failed| not_posted(&live.tx_cq, &live.sides, failed));
        }
        match live.qp.post_send(&mut [request_list]) {
            Ok(()) => side.queue.push(request.posted, is_signaled),
            Err(error) => {
                live.tx_cq.give_room(1);
                return Err(refused(error));
            }
        }
        Ok(())
    }

    /// Gives a receive to the device.
    pub(crate) fn post_receive(
        &self,
        iov: &[UserBuf],
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        const KNOWN: Flags = flags![COMPLETION MORE];
        let live = self.live()?;
        let flags = flags.unwrap_or_else(|| flags_of(&self.rx_flags));
        if !KNOWN.contains(flags) {
            return Err(unknown(flags - KNOWN));
        }
        let len = match &self.link {
            Link::Connection(_) => self.length(iov, self.info.rx.iov_limit)?,
            // The prefix is no part of a message, and longer ones are of use to nobody but do no harm.
            Link::Datagrams(_) => length(iov, self.info.rx.iov_limit)?,
        };
        if live.sides.srx.is_some() {
            fi_warn_sparse!(
                NAME,
                Subsys::EpData,
                "an endpoint with a shared receive context has no receives of its own; post to the context"
            );
            return Err(Errno::EOPNOTSUPP);
        }
        let posted = Posted {
            context,
            flags: flags![MSG RECV],
            reported: !live.rx_selective || flags.contains(Flags::COMPLETION),
            len,
        };
        let waits = flags.contains(Flags::MORE);
        let tried = match self.try_post_receive(live, iov, posted, waits) {
            Err(Errno::EAGAIN) => {
                live.make_room(&live.rx_cq);
                self.try_post_receive(live, iov, posted, waits)
            }
            tried => tried,
        };
        if tried? == Tried::Deaf {
            // Behind what the device has ended.
            live.rx_cq.progress();
            live.rx_cq.flush(&live.sides);
            live.rx_cq.fail(&posted, &live.sides, Errno::ENOTCONN);
        }
        Ok(())
    }

    /// Says that the device is gone.
    #[cold]
    fn lost(&self) -> Errno {
        fi_warn_sparse!(
            NAME,
            Subsys::EpData,
            "device {} is gone, so nothing can be sent or received by it; close the endpoint",
            self.domain.watch.name()
        );
        Errno::ENODEV
    }

    fn try_post_receive(
        &self,
        live: &Live,
        iov: &[UserBuf],
        posted: Posted,
        waits: bool,
    ) -> Result<Tried> {
        let mut side = live.sides.rx.lock();
        if live.sides.is_lost() {
            return Err(self.lost());
        }
        // Some devices do not look at receives that a queue pair gets when it has failed. Whoever makes it fail
        // waits for this lock after it has said so.
        if live.sides.is_deaf() {
            return Ok(Tried::Deaf);
        }
        if live.sides.is_recovering() {
            return Err(Errno::EAGAIN);
        }
        let mut pieces = [Sge::default(); IOV_MOST];
        let mut count = registered(&self.domain, iov, true, &mut pieces, &mut side.hit)?;
        let rest = self
            .domain
            .port
            .as_ref()
            .and_then(|port| port.rest(posted.len));
        if let Some(rest) = rest {
            *pieces.get_mut(count).ok_or(Errno::EINVAL)? = rest;
            count += 1;
        }
        let number = side.queue.next().ok_or(Errno::EAGAIN)?;
        let pieces = &pieces[..count];
        let number = sides::receive(number);
        let request = RecvRequest::new(number, pieces)?;
        if !live.rx_cq.take_room(1) {
            return Err(Errno::EAGAIN);
        }
        if waits || !side.batch.is_empty() {
            let queued = side.batch.push(batch::Receive { number }, pieces);
            queued.inspect_err(|_| live.rx_cq.give_room(1))?;
            side.queue.push(posted, true);
            if waits && !side.batch.is_full() {
                return Ok(Tried::Posted);
            }
            let posted = side.flush();
            drop(side);
            posted.or_else(|failed| not_posted(&live.rx_cq, &live.sides, failed))?;
            return Ok(Tried::Posted);
        }
        match live.qp.post_recv(&mut [request]) {
            Ok(()) => side.queue.push(posted, true),
            Err(error) => {
                live.rx_cq.give_room(1);
                return Err(refused(error));
            }
        }
        Ok(Tried::Posted)
    }

    /// Gives the requests that wait for more to the device.
    pub(crate) fn flush(&self) {
        if let Some(live) = self.live.get() {
            live.tx_cq.flush(&live.sides);
            live.rx_cq.flush(&live.sides);
        }
    }

    /// The bytes of a list of buffers, which is not too long.
    fn length(&self, iov: &[UserBuf], limit: usize) -> Result<usize> {
        let len = length(iov, limit)?;
        match len <= self.info.ep.max_msg_size {
            true => Ok(len),
            false => Err(Errno::EMSGSIZE),
        }
    }
}

impl Live {
    /// Takes what has ended from the device, where there is no room in a queue.
    fn make_room(&self, cq: &Cq) {
        cq.progress();
        if self.sides.is_recovering() {
            // It goes on when both sides have ended.
            self.tx_cq.progress();
            self.rx_cq.progress();
        }
    }
}

/// The way of a datagram.
#[inline]
fn way(peers: &Peers, dest: FiAddr) -> Result<&Way> {
    peers.way(dest).ok_or_else(|| {
        fi_warn_sparse!(
            NAME,
            Subsys::EpData,
            "the address vector has no peer {:#x}; send to what fi_av_insert gave",
            dest.0
        );
        Errno::EINVAL
    })
}

/// A request as it is tried, twice if the first time finds no room.
struct Request {
    posted: Posted,
    operation: Operation,
    dest: FiAddr,
    fence: bool,
    is_inline: bool,
    /// Whether the device need not be told before the next one.
    waits: bool,
}

/// What came of trying to post a receive.
#[derive(PartialEq, Eq)]
enum Tried {
    /// The device has it, or will have.
    Posted,
    /// Nothing comes any more, so it is not posted.
    Deaf,
}

/// The flags of calls that have none.
pub(crate) fn flags_of(place: &AtomicU64) -> Flags {
    Flags::from_bits_retain(place.load(Ordering::Relaxed))
}

/// Whether an operation writes the local memory.
const fn fetches(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Read(_) | Operation::FetchAdd(..) | Operation::CompareSwap(..)
    )
}

/// A batch was not posted as a whole. Its last request is that of the call, which fails; the calls of the others
/// have returned, so these have completions.
#[cold]
fn not_posted(cq: &Cq, sides: &Sides, (requests, errno): (Vec<Posted>, Errno)) -> Result<()> {
    cq.give_room(requests.len());
    let [others @ .., _] = &requests[..] else {
        return Ok(());
    };
    let errno = refused(PostError { posted: 0, errno });
    for posted in others {
        cq.fail(posted, sides, errno);
    }
    Err(errno)
}
