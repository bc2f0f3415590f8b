use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use ripstop_core::EventQueue;
use ripstop_core::av::set::AvSet;
use ripstop_core::provider::{Counter as _, Domain, Fabric};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_os::SharedBuf;
use ripstop_types::{self as types, Context, Flags};

use crate::subject::{Completion, Error, Fid, OVERWRITTEN, Result, Token};

/// A completion queue, and whether its blocking reads name a number of entries.
pub(super) struct Queue<D: Domain> {
    pub(super) cq: Arc<D::Cq>,
    pub(super) threshold: bool,
}

/// Memory that may be registered. It is never freed: a peer may still write it.
pub(super) struct Memory<D: Domain> {
    pub(super) bytes: Arc<Bytes>,
    pub(super) domain: Arc<D>,
}

/// Where memory is.
pub(super) enum Bytes {
    Private(Parked),
    Shared(SharedBuf),
}

impl<D: Domain> Memory<D> {
    pub(super) fn buf(&self) -> UserBuf {
        match &*self.bytes {
            Bytes::Private(parked) => parked.buf(),
            Bytes::Shared(shared) => shared.buf(),
        }
    }
}

/// An address vector set, and the vector.
pub(super) struct Set<D: Domain> {
    pub(super) set: Arc<AvSet>,
    pub(super) av: Arc<D::Av>,
}

impl<D: Domain> Clone for Set<D> {
    fn clone(&self) -> Self {
        Self {
            set: self.set.clone(),
            av: self.av.clone(),
        }
    }
}

/// An open object.
pub(super) enum Object<F: Fabric, D: Domain> {
    Fabric(Arc<F>),
    Domain(Arc<D>),
    Eq(Arc<EventQueue>),
    Cq(Queue<D>),
    Cntr(Arc<D::Counter>),
    Av(Arc<D::Av>),
    Pep(Arc<F::PassiveEp>),
    Ep(Arc<D::Endpoint>),
    Srx(Arc<D::SharedRx>),
    Memory(Memory<D>),
    Mr(Arc<D::Mr>),
    Stx(Arc<D::SharedTx>),
    Sep(Arc<D::ScalableEp>),
    Set(Set<D>),
    Group(Arc<D::Group>),
}

impl<F: Fabric, D: Domain> Clone for Object<F, D> {
    fn clone(&self) -> Self {
        match self {
            Self::Fabric(o) => Self::Fabric(o.clone()),
            Self::Domain(o) => Self::Domain(o.clone()),
            Self::Eq(o) => Self::Eq(o.clone()),
            Self::Cq(o) => Self::Cq(Queue {
                cq: o.cq.clone(),
                threshold: o.threshold,
            }),
            Self::Cntr(o) => Self::Cntr(o.clone()),
            Self::Av(o) => Self::Av(o.clone()),
            Self::Pep(o) => Self::Pep(o.clone()),
            Self::Ep(o) => Self::Ep(o.clone()),
            Self::Srx(o) => Self::Srx(o.clone()),
            Self::Memory(o) => Self::Memory(Memory {
                bytes: o.bytes.clone(),
                domain: o.domain.clone(),
            }),
            Self::Mr(o) => Self::Mr(o.clone()),
            Self::Stx(o) => Self::Stx(o.clone()),
            Self::Sep(o) => Self::Sep(o.clone()),
            Self::Set(o) => Self::Set(o.clone()),
            Self::Group(o) => Self::Group(o.clone()),
        }
    }
}

impl<F: Fabric, D: Domain> Object<F, D> {
    /// Whether somebody else holds it.
    fn in_use(&self) -> bool {
        let owners = match self {
            Self::Fabric(o) => Arc::strong_count(o),
            Self::Domain(o) => Arc::strong_count(o),
            Self::Eq(o) => Arc::strong_count(o),
            Self::Cq(o) => Arc::strong_count(&o.cq),
            // As every front end, it asks before it closes.
            Self::Cntr(o) if o.is_busy() => return true,
            Self::Cntr(o) => Arc::strong_count(o),
            Self::Av(o) => Arc::strong_count(o),
            Self::Pep(o) => Arc::strong_count(o),
            Self::Ep(o) => Arc::strong_count(o),
            Self::Srx(o) => Arc::strong_count(o),
            Self::Memory(o) => Arc::strong_count(&o.bytes),
            Self::Mr(o) => Arc::strong_count(o),
            Self::Stx(o) => Arc::strong_count(o),
            Self::Sep(o) => Arc::strong_count(o),
            Self::Set(o) => Arc::strong_count(&o.set),
            Self::Group(o) => Arc::strong_count(o),
        };
        owners > 1
    }
}

/// An object and what stays as long as it is open.
struct Entry<F: Fabric, D: Domain> {
    object: Object<F, D>,
    /// What it was opened in.
    _fabric: Option<Arc<F>>,
    _domain: Option<Arc<D>>,
    /// The queue of its events.
    events: Option<Arc<EventQueue>>,
}

/// An operation that was posted.
struct Op {
    ep: Fid,
    token: Token,
    /// Lent to the operation; given back with its last completion.
    bufs: Vec<Parked>,
    /// How many of them it only reads.
    sources: usize,
    multi: bool,
    /// It looks for a message to claim.
    claims: bool,
}

/// Everything opened and posted so far.
pub(super) struct Table<F: Fabric, D: Domain>(Mutex<Inner<F, D>>);

struct Inner<F: Fabric, D: Domain> {
    objects: BTreeMap<Fid, Entry<F, D>>,
    last: u32,
    contexts: Context,
    ops: BTreeMap<Context, Op>,
    /// Contexts of the peeks that have claimed a message.
    claimed: HashMap<(Fid, Token), Context>,
}

impl<F: Fabric, D: Domain> Table<F, D> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inner {
            objects: BTreeMap::new(),
            last: 0,
            contexts: 0,
            ops: BTreeMap::new(),
            claimed: HashMap::new(),
        }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner<F, D>) -> R) -> R {
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
        object: Object<F, D>,
        fabric: Option<Arc<F>>,
        domain: Option<Arc<D>>,
    ) -> Fid {
        let entry = Entry {
            object,
            _fabric: fabric,
            _domain: domain,
            events: None,
        };
        self.with(|t| t.objects.insert(fid, entry));
        fid
    }

    pub(super) fn get(&self, fid: Fid) -> Result<Object<F, D>> {
        let found = self.with(|t| t.objects.get(&fid).map(|e| e.object.clone()));
        found.ok_or(Error::Missing("use a closed object"))
    }

    /// Remembers where an endpoint's events go.
    pub(super) fn reports_to(&self, fid: Fid, eq: &Arc<EventQueue>) {
        self.with(|t| {
            if let Some(entry) = t.objects.get_mut(&fid) {
                entry.events = Some(Arc::clone(eq));
            }
        });
    }

    /// The queue where an endpoint's events go.
    pub(super) fn events(&self, fid: Fid) -> Option<Arc<EventQueue>> {
        self.with(|t| t.objects.get(&fid)?.events.clone())
    }

    /// Takes out an object that nobody else uses, for closing it; `None` when it is in use.
    /// Also the queue of its events.
    pub(super) fn take(&self, fid: Fid) -> Result<Option<Closing>>
    where
        F: 'static,
        D: 'static,
    {
        self.with(|t| {
            let entry = t.objects.get(&fid).ok_or(Error::Missing("close twice"))?;
            if entry.object.in_use() {
                return Ok(None);
            }
            let entry = t.objects.remove(&fid);
            let events = entry.as_ref().and_then(|e| e.events.clone());
            Ok(entry.map(|entry| Closing {
                entry: Box::new(entry),
                events,
            }))
        })
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
    ) -> (Context, Vec<UserBuf>) {
        // Tokens are the case's own, and threads may use the same: contexts are unique.
        let context = self.with(|t| {
            t.contexts += 1;
            t.contexts
        });
        let iov = self.lend_again(context, ep, token, sources, bufs);
        (context, iov)
    }

    /// As [`Table::lend`], under the context of an operation that has ended.
    pub(super) fn lend_again(
        &self,
        context: Context,
        ep: Fid,
        token: Token,
        sources: usize,
        bufs: Vec<Parked>,
    ) -> Vec<UserBuf> {
        let lent = bufs.iter().map(Parked::buf).collect();
        let op = Op {
            ep,
            token,
            bufs,
            sources,
            multi: false,
            claims: false,
        };
        self.with(|t| t.ops.insert(context, op));
        lent
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
        for buf in op.into_iter().flat_map(|op| op.bufs) {
            drop(buf.unpark());
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
    pub(super) fn completion(&self, from: types::Completion, failed: bool) -> Completion {
        let (mut bufs, mut piece) = (Vec::new(), None);
        let token = self.with(|t| {
            let op = t.ops.get_mut(&from.context)?;
            let received = from.buf != 0 && !failed;
            if let (true, true, Some(room)) = (op.multi, received, op.bufs.first()) {
                piece = bytes_of(room.buf(), from.buf, from.len);
            }
            if !op.multi || failed || from.flags.contains(Flags::MULTI_RECV) {
                bufs.extend(op.bufs.drain(..).map(Parked::unpark));
                for source in bufs.iter_mut().take(op.sources) {
                    source.fill(OVERWRITTEN);
                }
            }
            if op.claims && !failed {
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

/// An object on its way out.
pub(super) struct Closing {
    /// Dropping it closes the object.
    pub(super) entry: Box<dyn Any>,
    pub(super) events: Option<Arc<EventQueue>>,
}

macro_rules! getters {
    ($($name:ident: $variant:ident => $type:ty, $what:literal;)*) => {
        impl<F: Fabric, D: Domain> Table<F, D> {
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
    fabric: Fabric => Arc<F>, "use that as a fabric";
    domain: Domain => Arc<D>, "use that as a domain";
    eq: Eq => Arc<EventQueue>, "use that as an event queue";
    cq: Cq => Queue<D>, "use that as a completion queue";
    cntr: Cntr => Arc<D::Counter>, "use that as a counter";
    av: Av => Arc<D::Av>, "use that as an address vector";
    pep: Pep => Arc<F::PassiveEp>, "use that as a passive endpoint";
    ep: Ep => Arc<D::Endpoint>, "use that as an endpoint";
    memory: Memory => Memory<D>, "use that as memory";
    mr: Mr => Arc<D::Mr>, "use that as a registration";
    set: Set => Set<D>, "use that as an address vector set";
    group: Group => Arc<D::Group>, "use that as a group";
    sep: Sep => Arc<D::ScalableEp>, "use that as a scalable endpoint";
}
