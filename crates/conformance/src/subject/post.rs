//! Operations and registrations, as cases give them to a [`Subject`](super::Subject).

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags};

/// Names one operation; comes back with its completion. Chosen by the caller, never 0.
pub type Token = u64;

/// Which call posts an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `fi_send` and its forms.
    Send,
    /// `fi_recv` and its forms.
    Recv,
    /// `fi_tsend` and its forms.
    Tsend,
    /// `fi_trecv` and its forms.
    Trecv,
    /// `fi_read` and its forms.
    Read,
    /// `fi_write` and its forms.
    Write,
    /// `fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic` and their forms.
    Atomic(AtomicKind),
}

impl Kind {
    /// Whether it receives.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::Recv | Self::Trecv)
    }

    /// Whether it reaches a peer's memory.
    #[must_use]
    pub fn is_rma(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// A piece of a peer's memory (`struct fi_rma_iov`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where it starts: an address, or an offset into the region.
    pub address: u64,
    /// Bytes.
    pub len: usize,
    /// The region's key.
    pub key: u64,
}

/// Which call registers memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `fi_mr_reg`.
    #[default]
    Reg,
    /// `fi_mr_regv`.
    Regv,
    /// `fi_mr_regattr`.
    Regattr,
}

/// How to register memory (`struct fi_mr_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct MrAttr {
    /// Which call.
    pub form: Form,
    /// What the memory may be used for.
    pub access: Flags,
    /// The reserved field.
    pub offset: u64,
    /// The key to ask for.
    pub key: u64,
    /// Flags of the call.
    pub flags: Flags,
    /// Parts of the memory, in the order in which they form the region: offset and length of
    /// each. Empty for all of it in one piece; else not for [`Form::Reg`].
    pub pieces: &'static [(usize, usize)],
}

/// What an atomic is, besides its operands.
#[derive(Clone, Debug)]
pub struct Atomic {
    /// `enum fi_datatype`: any number, known or not.
    pub datatype: u32,
    /// `enum fi_op`: any number, known or not.
    pub op: u32,
    /// What to compare with.
    pub compare: Vec<Vec<u8>>,
    /// Room for what was there before.
    pub result: Vec<Vec<u8>>,
}

/// An operation to post.
///
/// Without flags and with one buffer this is `fi_send`, `fi_senddata`, `fi_recv` and so on; else
/// `fi_sendmsg`, `fi_recvmsg` and so on.
#[derive(Clone, Debug)]
pub struct Post {
    /// Which call.
    pub kind: Kind,
    /// The buffers: contents to send, or room to fill.
    pub bufs: Vec<Vec<u8>>,
    /// Destination, or the source a directed receive takes.
    pub addr: FiAddr,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that a receive ignores.
    pub ignore: u64,
    /// Remote CQ data of a send.
    pub data: Option<u64>,
    /// The peer's memory, of reads, writes and atomics.
    pub remote: Vec<Remote>,
    /// Of atomics. Its buffers come back behind the operands.
    pub atomic: Option<Box<Atomic>>,
    /// Flags of the call, as `fi_sendmsg` takes them.
    pub flags: Option<Flags>,
    /// Comes back with the completion; 0 until it is posted.
    pub token: Token,
}

impl Post {
    /// How many of its buffers it only reads: those of operands and comparisons, or of what it
    /// sends.
    #[must_use]
    pub fn sources(&self) -> usize {
        match self.kind {
            Kind::Recv | Kind::Trecv | Kind::Read => 0,
            Kind::Send | Kind::Tsend | Kind::Write | Kind::Atomic(_) => {
                let compare = self
                    .atomic
                    .as_ref()
                    .map_or(0, |atomic| atomic.compare.len());
                self.bufs.len() + compare
            }
        }
    }

    /// Whether its sources are free as soon as it is posted, by a flag of its own.
    #[must_use]
    pub fn injects(&self) -> bool {
        self.flags
            .is_some_and(|flags| flags.contains(Flags::INJECT))
    }

    fn new(kind: Kind, bufs: Vec<Vec<u8>>) -> Self {
        Self {
            kind,
            bufs,
            addr: FiAddr::UNSPEC,
            tag: 0,
            ignore: 0,
            data: None,
            remote: Vec::new(),
            atomic: None,
            flags: None,
            token: 0,
        }
    }

    /// A message.
    #[must_use]
    pub fn send(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Kind::Send, vec![bytes.into()])
    }

    /// A tagged message.
    #[must_use]
    pub fn tsend(tag: u64, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            tag,
            ..Self::new(Kind::Tsend, vec![bytes.into()])
        }
    }

    /// Room for a message.
    #[must_use]
    pub fn recv(len: usize) -> Self {
        Self::new(Kind::Recv, vec![vec![0; len]])
    }

    /// Room for a message with this tag, whose bits in `ignore` are free.
    #[must_use]
    pub fn trecv(tag: u64, ignore: u64, len: usize) -> Self {
        Self {
            tag,
            ignore,
            ..Self::new(Kind::Trecv, vec![vec![0; len]])
        }
    }

    /// Bytes for a peer's memory.
    #[must_use]
    pub fn write(bytes: impl Into<Vec<u8>>, to: Remote) -> Self {
        Self {
            remote: vec![to],
            ..Self::new(Kind::Write, vec![bytes.into()])
        }
    }

    /// Room for bytes of a peer's memory.
    #[must_use]
    pub fn read(from: Remote) -> Self {
        Self {
            remote: vec![from],
            ..Self::new(Kind::Read, vec![vec![0; from.len]])
        }
    }

    /// An atomic on a place of a peer's memory: operands, if it has some, comparisons and room
    /// for the result in one buffer each.
    #[must_use]
    pub fn atomic(
        kind: AtomicKind,
        (datatype, op): (Datatype, AtomicOp),
        [operand, compare]: [&[u8]; 2],
        to: Remote,
    ) -> Self {
        let given = |bytes: &[u8], takes: bool| match takes {
            true => vec![bytes.to_vec()],
            false => Vec::new(),
        };
        let fetches = kind != AtomicKind::Plain;
        let atomic = Atomic {
            datatype: datatype.number(),
            op: op.number(),
            compare: given(compare, kind == AtomicKind::Compare),
            result: given(&vec![0; to.len], fetches),
        };
        Self {
            remote: vec![to],
            atomic: Some(Box::new(atomic)),
            ..Self::new(Kind::Atomic(kind), given(operand, op.takes_operand()))
        }
    }

    /// At these places of a peer's memory instead.
    #[must_use]
    pub fn remote(mut self, remote: Vec<Remote>) -> Self {
        self.remote = remote;
        self
    }

    /// With these buffers instead.
    #[must_use]
    pub fn iov(mut self, bufs: Vec<Vec<u8>>) -> Self {
        self.bufs = bufs;
        self
    }

    /// To this peer, or from this peer only.
    #[must_use]
    pub fn with(mut self, addr: FiAddr) -> Self {
        self.addr = addr;
        self
    }

    /// With remote CQ data.
    #[must_use]
    pub fn data(mut self, data: u64) -> Self {
        self.data = Some(data);
        self
    }

    /// With flags of its own.
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Self {
        self.flags = Some(self.flags.unwrap_or_default() | flags);
        self
    }
}

/// A message whose buffer is free when the call returns, without a completion.
#[derive(Clone, Copy, Debug)]
pub struct Inject<'a> {
    /// The contents.
    pub bytes: &'a [u8],
    /// The tag of `fi_tinject`; `None` for `fi_inject`.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The destination.
    pub addr: FiAddr,
}

/// A message claimed by the peek with this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed(pub Token);

/// A counter, and the value at which an operation starts (`fi_trigger`(3)).
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// The counter.
    pub cntr: super::Fid,
    /// The value.
    pub threshold: u64,
}

/// What deferred work does.
#[derive(Clone, Copy, Debug)]
pub enum WorkOp<'a> {
    /// A data transfer. Its token comes back only if its flags ask for a completion.
    Post {
        /// The endpoint.
        ep: super::Fid,
        /// What it does.
        post: &'a Post,
        /// The counter of its end.
        done: Option<super::Fid>,
    },
    /// `FI_OP_CNTR_SET`.
    Set(super::Fid, u64),
    /// `FI_OP_CNTR_ADD`.
    Add(super::Fid, u64),
}

/// Names deferred work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkId(pub usize);

/// What a subject overwrites a source with as soon as it is free: when a call with `FI_INJECT` or
/// without a completion returns, else when the completion is read.
pub const OVERWRITTEN: u8 = 0xee;

/// A successful completion.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The operation's token, or `None` when the context is none of a posted operation.
    pub token: Option<Token>,
    /// What completed.
    pub flags: Flags,
    /// Bytes received.
    pub len: usize,
    /// Remote CQ data.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
    /// The sender, or [`FiAddr::NOTAVAIL`].
    pub src: FiAddr,
    /// The buffers of the operation, when this was its last completion; those it has only read are
    /// overwritten.
    pub bufs: Vec<Vec<u8>>,
    /// One message out of a multi-receive buffer.
    pub piece: Option<Vec<u8>>,
}

impl Completion {
    /// The first `len` bytes of the buffers: what was received.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.bufs.concat();
        bytes.truncate(self.len);
        bytes
    }
}

/// A failed operation (`struct fi_cq_err_entry`).
#[derive(Clone, Debug)]
pub struct CqError {
    /// What is known of the operation, as for a success.
    pub entry: Completion,
    /// The reason.
    pub err: Errno,
    /// Bytes of a truncated message that did not fit.
    pub olen: usize,
    /// The provider's own code.
    pub prov_errno: i32,
    /// The provider's data.
    pub err_data: Vec<u8>,
}
