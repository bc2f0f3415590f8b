//! Memory that a device reaches, for links whose payloads of reads and of announced messages it moves itself.

use std::fmt::Debug;

use ripstop_engine::mr::Access;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result, RmaIov};
use ripstop_wire::rxm::MESSAGE_LEN;
use ripstop_wire::xnet::base::RmaIovs;

/// How a link lets a device reach memory of the program, in a stream of packets
/// ([`Transport::is_in_packets`](crate::Transport::is_in_packets)). The memory is registered by these calls, and no longer
/// than it is needed. `()` where payloads go by the stream.
pub trait Registering<L> {
    /// What peers reach a region of the program by.
    type Region: Debug + Send + Sync + 'static;

    /// Whether it does: then nothing else here is called where it does not.
    const SUPPORTED: bool;

    /// The largest key of a region.
    const MAX_KEY: u64 = u64::MAX;

    /// Lets peers read or write a region of a domain with this name, whose key is returned. `fills`: reads and messages
    /// of this side go there as well.
    ///
    /// # Errors
    /// The memory cannot be registered.
    fn register(
        domain: &str,
        memory: UserBuf,
        access: Access,
        fills: bool,
    ) -> Result<(Self::Region, u64)>;

    /// Where the payload of the next read goes whose `ReadReq` is not written to the link yet. The device
    /// places it there; what is read from the link afterwards is the header of a response without payload.
    ///
    /// # Errors
    /// The memory cannot be registered; the connection ends.
    fn tell_read(_link: &L, _memory: &[UserBuf]) -> Result<()> {
        Ok(())
    }

    /// Whether the device writes to peers straight from this memory, which the program has registered. Then
    /// the memory is in use until the write is delivered, and the completion says so.
    fn writes_from(_memory: &[UserBuf]) -> bool {
        false
    }

    /// Has the device write a short piece of memory to the peer's at once, by a copy, if nothing else is being written to
    /// the link; `false` says that nothing was done.
    fn write_now(_link: &L, _to: RmaIov, _memory: UserBuf) -> bool {
        false
    }

    /// Has the device read the peer's memory to a short piece of the program's at once, if the program has registered that
    /// and nothing else is being written to the link; `false` says that nothing was done. The response is as for
    /// [`Registering::tell_read`].
    fn read_now(_link: &L, _from: RmaIov, _memory: UserBuf) -> bool {
        false
    }

    /// How many bytes are left of a packet of which the header alone was read; 0 if there is none.
    fn payload_ready(_link: &L) -> usize {
        0
    }

    /// Has the device send a message in a packet at once, as [`Registering::write_now`]: the header of the unit and of
    /// the packet, and the payload.
    fn send_now(_link: &L, _header: &[u8; MESSAGE_LEN], _payload: UserBuf) -> bool {
        false
    }

    /// The peer may read the message with this index, until it says that it has. Returns what to announce.
    ///
    /// # Errors
    /// As for [`Registering::tell_read`].
    fn announce(_link: &L, _index: u16, _memory: &[UserBuf]) -> Result<RmaIovs> {
        Ok(RmaIovs::NONE)
    }

    /// As [`Registering::announce`], of a message of `len` bytes whose memory is the program's again at once: the peer
    /// reads a copy, which `fill` makes. A link that is closed waits for that as for what was written to it.
    ///
    /// # Errors
    /// As for [`Registering::tell_read`].
    fn announce_copy(
        _link: &L,
        _index: u16,
        _len: usize,
        _fill: impl FnOnce(&mut [u8]),
    ) -> Result<RmaIovs> {
        Ok(RmaIovs::NONE)
    }
}

/// Not supported.
impl<L> Registering<L> for () {
    type Region = ();

    const SUPPORTED: bool = false;

    fn register(_: &str, _: UserBuf, _: Access, _: bool) -> Result<((), u64)> {
        Err(Errno::ENOSYS)
    }
}
