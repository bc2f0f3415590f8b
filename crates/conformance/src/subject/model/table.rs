//! The objects that a case has open, by the numbers that it knows them by.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use ripstop_core::provider::{Domain, Fabric, MrAttr};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_os::SharedBuf;
use ripstop_types::{self as types, Context, Errno, Flags};

use super::freed::unpark;
use super::{Mr, Way};
use crate::subject::{Completion, Error, Fid, Form, OVERWRITTEN, Result, Token};

/// The keys of memory that is registered for an operation are from here on, where the program chooses
/// them: no case has such a key.
const OWN_KEYS: u64 = 1 << 48;

/// Most buffers of an operation.
const BUFS: u64 = 64;

/// A completion queue, and whether its blocking reads name a number of entries.
pub struct Queue<D: Domain> {
    pub(super) cq: Arc<D::Cq>,
    pub(super) threshold: bool,
}

impl<D: Domain> Clone for Queue<D> {
    fn clone(&self) -> Self {
        Self {
            cq: self.cq.clone(),
            threshold: self.threshold,
        }
    }
}

/// Memory that may be registered. It is never freed: a peer may still write it.
pub struct Memory<D: Domain> {
    pub(super) bytes: Arc<Bytes>,
    pub(super) domain: Arc<D>,
}

/// Where memory is.
pub(super) enum Bytes {
    Private(Parked),
    Shared(SharedBuf),
}

impl<D: Domain> Clone for Memory<D> {
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            domain: self.domain.clone(),
        }
    }
}

impl<D: Domain> Memory<D> {
    pub(super) fn buf(&self) -> UserBuf {
        match &*self.bytes {
            Bytes::Private(parked) => parked.buf(),
            Bytes::Shared(shared) => shared.buf(),
        }
    }
}

/// An open object.
pub enum Object<W: Way> {
    Fabric(Arc<W::Fabric>),
    Domain(Arc<W::Domain>),
    Eq(Arc<W::Eq>),
    Cq(Queue<W::Domain>),
    Cntr(Arc<<W::Domain as Domain>::Counter>),
    Av(Arc<<W::Domain as Domain>::Av>),
    Pep(Arc<<W::Fabric as Fabric>::PassiveEp>),
    Ep(Arc<<W::Domain as Domain>::Endpoint>),
    Srx(Arc<<W::Domain as Domain>::SharedRx>),
    Memory(Memory<W::Domain>),
    Mr(Arc<<W::Domain as Domain>::Mr>),
    Stx(Arc<<W::Domain as Domain>::SharedTx>),
    Sep(Arc<<W::Domain as Domain>::ScalableEp>),
    Set(Arc<W::Set>),
    Group(Arc<<W::Domain as Domain>::Group>),
    Other(W::Other),
}

/// Does the same with the handle of any object that the traits have.
#[cfg(feature = "rust")]
macro_rules! any {
    ($object:expr, $o:ident => $body:expr, $other:ident => $otherwise:expr) => {
        match $object {
            Object::Fabric($o) => $body,
            Object::Domain($o) => $body,
            Object::Eq($o) => $body,
            Object::Cq(Queue { cq: $o, .. }) => $body,
            Object::Cntr($o) => $body,
            Object::Av($o) => $body,
            Object::Pep($o) => $body,
            Object::Ep($o) => $body,
            Object::Srx($o) => $body,
            Object::Memory(Memory { bytes: $o, .. }) => $body,
            Object::Mr($o) => $body,
            Object::Stx($o) => $body,
            Object::Sep($o) => $body,
            Object::Set($o) => $body,
            Object::Group($o) => $body,
            Object::Other($other) => $otherwise,
        }
    };
}

impl<W: Way> Clone for Object<W> {
    fn clone(&self) -> Self {
        match self {
            Self::Fabric(o) => Self::Fabric(o.clone()),
            Self::Domain(o) => Self::Domain(o.clone()),
            Self::Eq(o) => Self::Eq(o.clone()),
            Self::Cq(o) => Self::Cq(o.clone()),
            Self::Cntr(o) => Self::Cntr(o.clone()),
            Self::Av(o) => Self::Av(o.clone()),
            Self::Pep(o) => Self::Pep(o.clone()),
            Self::Ep(o) => Self::Ep(o.clone()),
            Self::Srx(o) => Self::Srx(o.clone()),
            Self::Memory(o) => Self::Memory(o.clone()),
            Self::Mr(o) => Self::Mr(o.clone()),
            Self::Stx(o) => Self::Stx(o.clone()),
            Self::Sep(o) => Self::Sep(o.clone()),
            Self::Set(o) => Self::Set(o.clone()),
            Self::Group(o) => Self::Group(o.clone()),
            Self::Other(o) => Self::Other(o.clone()),
        }
    }
}

#[cfg(feature = "rust")]
impl<W: Way> Object<W> {
    /// How many hold it.
    pub(super) fn owners(&self) -> usize {
        any!(self, o => Arc::strong_count(o), _other => 0)
    }
}

/// An object and what stays as long as it is open.
struct Entry<W: Way> {
    object: Object<W>,
    /// What it was opened in.
    _fabric: Option<Arc<W::Fabric>>,
    _domain: Option<Arc<W::Domain>>,
    /// The queue of its events.
    events: Option<Arc<W::Eq>>,
    /// Where the memory of its operations has to be registered (`FI_MR_LOCAL`).
    registers: Option<Arc<W::Domain>>,
}

/// An operation that was posted.
struct Op<W: Way> {
    ep: Fid,
    token: Token,
    /// Lent to the operation; given back with its last completion.
    bufs: Vec<Parked>,
    /// Their registrations, where there have to be some.
    regions: Vec<Arc<Mr<W>>>,
    /// How many of them it only reads.
    sources: usize,
    multi: bool,
    /// It looks for a message to claim.
    claims: bool,
}

/// Everything opened and posted so far.
pub(super) struct Table<W: Way>(Mutex<Inner<W>>);

struct Inner<W: Way> {
    objects: BTreeMap<Fid, Entry<W>>,
    last: u32,
    contexts: Context,
    ops: BTreeMap<Context, Op<W>>,
    /// Contexts of the peeks that have claimed a message.
    claimed: HashMap<(Fid, Token), Context>,
}

impl<W: Way> Table<W> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inner {
            objects: BTreeMap::new(),
            last: 0,
            contexts: 0,
            ops: BTreeMap::new(),
            claimed: HashMap::new(),
        }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner<W>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the next object.
    pub(super) fn number(&self) -> Fid {
        self.with(|t| {
            t.last += 1;
            Fid(t.last)
        })
    }

    /// Keeps an object, and what it was opened in, under a number.
    pub(super) fn put(
        &self,
        fid: Fid,
        object: Object<W>,
        fabric: Option<Arc<W::Fabric>>,
        domain: Option<Arc<W::Domain>>,
    ) -> Fid {
        let entry = Entry {
            object,
            _fabric: fabric,
            _domain: domain,
            events: None,
            registers: None,
        };
        self.with(|t| t.objects.insert(fid, entry));
        fid
    }

    pub(super) fn get(&self, fid: Fid) -> Result<Object<W>> {
        let found = self.with(|t| t.objects.get(&fid).map(|e| e.object.clone()));
        found.ok_or(Error::Missing("use a closed object"))
    }

    /// The number of an object that is open.
    pub(super) fn find(&self, is: impl Fn(&Object<W>) -> bool) -> Option<Fid> {
        self.with(|t| {
            let mut objects = t.objects.iter();
            objects
                .find(|(_, entry)| is(&entry.object))
                .map(|(fid, _)| *fid)
        })
    }

    /// How many objects are open. Memory is none of the interface.
    pub(super) fn open(&self) -> usize {
        let is_memory = |entry: &&Entry<W>| matches!(entry.object, Object::Memory(_));
        self.with(|t| t.objects.values().filter(|entry| !is_memory(entry)).count())
    }

    /// Remembers where an endpoint's events go.
    pub(super) fn reports_to(&self, fid: Fid, eq: &Arc<W::Eq>) {
        self.with(|t| {
            if let Some(entry) = t.objects.get_mut(&fid) {
                entry.events = Some(Arc::clone(eq));
            }
        });
    }

    /// The memory of an endpoint's operations has to be registered there.
    pub(super) fn registers(&self, fid: Fid, domain: Arc<W::Domain>) {
        self.with(|t| {
            if let Some(entry) = t.objects.get_mut(&fid) {
                entry.registers = Some(domain);
            }
        });
    }

    /// An endpoint is closed: the memory of operations that have not ended is not used any more.
    pub(super) fn unregister(&self, ep: Fid) {
        self.with(|t| {
            let of_ep = t.ops.values_mut().filter(|op| op.ep == ep);
            of_ep.for_each(|op| op.regions.clear());
        });
    }

    /// Registers the memory of an operation where that has to be.
    fn register(&self, ep: Fid, context: Context, bufs: &[Parked]) -> Result<Vec<Arc<Mr<W>>>> {
        let domain = self.with(|t| t.objects.get(&ep)?.registers.clone());
        let Some(domain) = domain else {
            return Ok(Vec::new());
        };
        let bufs = bufs.iter().map(Parked::buf).filter(|buf| !buf.is_empty());
        let regions = bufs.enumerate().map(|(index, buf)| {
            let attr = MrAttr::of_buf(
                buf,
                Flags::SEND | Flags::RECV | Flags::READ | Flags::WRITE,
                OWN_KEYS + (context as u64) * BUFS + index as u64,
            );
            W::register(&domain, Form::Reg, &attr)
        });
        regions.collect()
    }

    /// The queue where an endpoint's events go.
    pub(super) fn events(&self, fid: Fid) -> Option<Arc<W::Eq>> {
        self.with(|t| t.objects.get(&fid)?.events.clone())
    }

    /// Takes out an object that was closed, with the queue of its events.
    pub(super) fn take(&self, fid: Fid) -> Option<Arc<W::Eq>> {
        let entry = self.with(|t| t.objects.remove(&fid));
        // What is dropped here may look for the table.
        entry.and_then(|entry| entry.events.clone())
    }

    /// Keeps the buffers of an operation that is about to be posted: its context, and where
    /// the buffers are.
    ///
    /// It only reads the first `sources` of them.
    pub(super) fn lend(
        &self,
        ep: Fid,
        token: Token,
        sources: usize,
        bufs: Vec<Parked>,
    ) -> Result<(Context, Vec<UserBuf>)> {
        // Tokens are the case's own, and threads may use the same: contexts are unique.
        let context = self.with(|t| {
            t.contexts += 1;
            t.contexts
        });
        let iov = self.lend_again(context, ep, token, sources, bufs)?;
        Ok((context, iov))
    }

    /// As [`Table::lend`], under the context of an operation that has ended.
    pub(super) fn lend_again(
        &self,
        context: Context,
        ep: Fid,
        token: Token,
        sources: usize,
        bufs: Vec<Parked>,
    ) -> Result<Vec<UserBuf>> {
        let regions = self.register(ep, context, &bufs)?;
        let lent = bufs.iter().map(Parked::buf).collect();
        let op = Op {
            ep,
            token,
            bufs,
            regions,
            sources,
            multi: false,
            claims: false,
        };
        self.with(|t| t.ops.insert(context, op));
        Ok(lent)
    }

    /// The operation takes several messages.
    pub(super) fn set_multi(&self, context: Context) {
        self.with(|t| {
            if let Some(op) = t.ops.get_mut(&context) {
                op.multi = true;
            }
        });
    }

    /// The operation looks for a message to claim.
    pub(super) fn set_claims(&self, context: Context) {
        self.with(|t| {
            if let Some(op) = t.ops.get_mut(&context) {
                op.claims = true;
            }
        });
    }

    /// Overwrites what an operation reads, if it has not ended.
    pub(super) fn overwrite(&self, context: Context) {
        self.with(|t| {
            let op = t.ops.get(&context);
            for buf in op
                .into_iter()
                .flat_map(|op| op.bufs.iter().take(op.sources))
            {
                let bytes = vec![OVERWRITTEN; buf.buf().len()];
                copy_out(buf.buf(), &bytes);
            }
        });
    }

    /// The operation was refused: nobody uses its buffers.
    pub(super) fn forget(&self, context: Context) {
        let op = self.with(|t| t.ops.remove(&context));
        let Some(Op { bufs, regions, .. }) = op else {
            return;
        };
        drop(regions);
        for buf in bufs {
            drop(unpark(buf));
        }
    }

    /// Takes what the peek with this token has claimed: its context.
    pub(super) fn take_claim(&self, ep: Fid, token: Token) -> Option<Context> {
        self.with(|t| t.claimed.remove(&(ep, token)))
    }

    /// Gives a claim back that could not be used.
    pub(super) fn put_claim(&self, ep: Fid, token: Token, context: Context) {
        self.with(|t| t.claimed.insert((ep, token), context));
    }

    /// The context under which an operation was posted.
    pub(super) fn context(&self, ep: Fid, token: Token) -> Option<Context> {
        self.with(|t| {
            let mut ops = t.ops.iter().rev();
            let found = ops.find(|(_, op)| op.ep == ep && op.token == token);
            found.map(|(context, _)| *context)
        })
    }

    /// A completion in the suite's words, with the operation's buffers if it is its last.
    pub(super) fn completion(&self, from: types::Completion, error: Option<Errno>) -> Completion {
        let (mut bufs, mut piece) = (Vec::new(), None);
        let token = self.with(|t| {
            let op = t.ops.get_mut(&from.context)?;
            let received = from.buf != 0 && error.is_none();
            if let (true, true, Some(room)) = (op.multi, received, op.bufs.first()) {
                piece = bytes_of(room.buf(), from.buf, from.len);
            }
            let ends = from.flags.contains(Flags::MULTI_RECV) || error == Some(Errno::ECANCELED);
            if !op.multi || ends {
                op.regions.clear();
                bufs.extend(op.bufs.drain(..).map(unpark));
                for source in bufs.iter_mut().take(op.sources) {
                    source.fill(OVERWRITTEN);
                }
            }
            if op.claims && error.is_none() {
                t.claimed.insert((op.ep, op.token), from.context);
            }
            Some(op.token)
        });
        Completion {
            token,
            flags: from.flags,
            len: from.len,
            data: from.data,
            tag: from.tag,
            src: from.src,
            bufs,
            piece,
        }
    }
}

/// The `len` bytes at an address inside a buffer.
fn bytes_of(room: UserBuf, at: usize, len: usize) -> Option<Vec<u8>> {
    let from = room.slice(at.checked_sub(room.addr())?, len)?;
    let mut bytes = vec![0; len];
    copy_in(&mut bytes, from);
    Some(bytes)
}

macro_rules! getters {
    ($($name:ident: $variant:ident => $type:ty, $what:literal;)*) => {
        impl<W: Way> Table<W> {
            $(pub(super) fn $name(&self, fid: Fid) -> Result<$type> {
                match self.get(fid)? {
                    Object::$variant(o) => Ok(o),
                    _ => Err(Error::Missing($what)),
                }
            })*
        }
    };
}

getters! {
    fabric: Fabric => Arc<W::Fabric>, "use that as a fabric";
    domain: Domain => Arc<W::Domain>, "use that as a domain";
    eq: Eq => Arc<W::Eq>, "use that as an event queue";
    cq: Cq => Queue<W::Domain>, "use that as a completion queue";
    cntr: Cntr => Arc<<W::Domain as Domain>::Counter>, "use that as a counter";
    av: Av => Arc<<W::Domain as Domain>::Av>, "use that as an address vector";
    pep: Pep => Arc<<W::Fabric as Fabric>::PassiveEp>, "use that as a passive endpoint";
    ep: Ep => Arc<<W::Domain as Domain>::Endpoint>, "use that as an endpoint";
    memory: Memory => Memory<W::Domain>, "use that as memory";
    mr: Mr => Arc<<W::Domain as Domain>::Mr>, "use that as a registration";
    set: Set => Arc<W::Set>, "use that as an address vector set";
    group: Group => Arc<<W::Domain as Domain>::Group>, "use that as a group";
    sep: Sep => Arc<<W::Domain as Domain>::ScalableEp>, "use that as a scalable endpoint";
}
