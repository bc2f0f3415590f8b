use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ripstop_core::Address;
use ripstop_foreign as lib;
use ripstop_foreign::Close as _;
use ripstop_types::{AddrFormat, Errno};

use super::refused;
use crate::subject::{Completion, Error, Fid, OVERWRITTEN, Result, Token};

/// An open object of the library.
pub(super) enum Object<M: lib::Threading> {
    Fabric(lib::Fabric),
    Domain(lib::Domain<M>),
    Eq(lib::Eq),
    Cq(lib::Cq<M>),
    Cntr(lib::Cntr<M>),
    Av(lib::Av<M>),
    Pep(Arc<lib::Pep>),
    Ep(SharedEp<M>),
    Memory(lib::Region<M>),
    Mr(Arc<lib::Mr<M>>),
    Stx(lib::SharedTx<M>),
    Polls(Arc<lib::PollSet<M>>),
    Waits(lib::WaitSet),
    Set(lib::AvSet<M>),
    Group(Arc<lib::Group<M>>),
}

/// An endpoint; setting options needs it alone.
pub(super) type SharedEp<M> = Arc<RwLock<lib::Endpoint<M>>>;

impl<M: lib::Threading> Clone for Object<M> {
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
            Self::Memory(o) => Self::Memory(o.clone()),
            Self::Mr(o) => Self::Mr(o.clone()),
            Self::Stx(o) => Self::Stx(o.clone()),
            Self::Polls(o) => Self::Polls(o.clone()),
            Self::Waits(o) => Self::Waits(o.clone()),
            Self::Set(o) => Self::Set(o.clone()),
            Self::Group(o) => Self::Group(o.clone()),
        }
    }
}

pub(super) fn read<M: lib::Threading>(ep: &SharedEp<M>) -> RwLockReadGuard<'_, lib::Endpoint<M>> {
    ep.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write<M: lib::Threading>(ep: &SharedEp<M>) -> RwLockWriteGuard<'_, lib::Endpoint<M>> {
    ep.write().unwrap_or_else(PoisonError::into_inner)
}

const BUSY: Error = Error::Missing("close what another thread is using");

pub(super) fn close_shared(pep: Arc<lib::Pep>) -> std::result::Result<(), (Arc<lib::Pep>, Error)> {
    let pep = Arc::try_unwrap(pep).map_err(|pep| (pep, BUSY))?;
    pep.close().map_err(|(o, e)| (Arc::new(o), e.into()))
}

pub(super) fn close_polls<M: lib::Threading>(
    set: Arc<lib::PollSet<M>>,
) -> std::result::Result<(), (Arc<lib::PollSet<M>>, Error)> {
    let set = Arc::try_unwrap(set).map_err(|set| (set, BUSY))?;
    set.close().map_err(|(o, e)| (Arc::new(o), e.into()))
}

pub(super) fn close_group<M: lib::Threading>(
    group: Arc<lib::Group<M>>,
) -> std::result::Result<(), (Arc<lib::Group<M>>, Error)> {
    let group = Arc::try_unwrap(group).map_err(|group| (group, BUSY))?;
    group.close().map_err(|(o, e)| (Arc::new(o), e.into()))
}

pub(super) fn close_mr<M: lib::Threading>(
    mr: Arc<lib::Mr<M>>,
) -> std::result::Result<(), (Arc<lib::Mr<M>>, Error)> {
    let mr = Arc::try_unwrap(mr).map_err(|mr| (mr, BUSY))?;
    mr.close().map_err(|(o, e)| (Arc::new(o), e.into()))
}

pub(super) fn close_ep<M: lib::Threading>(
    ep: SharedEp<M>,
) -> std::result::Result<(), (SharedEp<M>, Error)> {
    let ep = Arc::try_unwrap(ep).map_err(|ep| (ep, BUSY))?;
    let ep = ep.into_inner().unwrap_or_else(PoisonError::into_inner);
    ep.close()
        .map_err(|(o, e)| (Arc::new(RwLock::new(o)), e.into()))
}

/// An operation that was posted, and how many of its buffers it only reads.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) op: lib::OpId,
    pub(super) sources: usize,
}

/// Everything opened and posted so far.
pub(super) struct Table<M: lib::Threading>(Mutex<Inner<M>>);

pub(super) struct Inner<M: lib::Threading> {
    objects: BTreeMap<Fid, (Object<M>, AddrFormat)>,
    last: u32,
    pub(super) ids: HashMap<lib::FidId, Fid>,
    pub(super) infos: Vec<Arc<lib::Info>>,
    pub(super) requests: HashMap<usize, lib::ConnReq>,
    pub(super) requests_seen: usize,
    pub(super) ops: HashMap<Token, Posted>,
    pub(super) claims: HashMap<Token, lib::Claim>,
    pub(super) works: Vec<lib::WorkId>,
}

impl<M: lib::Threading> Table<M> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inner {
            objects: BTreeMap::new(),
            last: 0,
            ids: HashMap::new(),
            infos: Vec::new(),
            requests: HashMap::new(),
            requests_seen: 0,
            ops: HashMap::new(),
            claims: HashMap::new(),
            works: Vec::new(),
        }))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Inner<M>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes an operation that was posted, which only reads its first buffers.
    pub(super) fn posted(&self, token: Token, op: lib::OpId, sources: usize) {
        self.with(|t| t.ops.insert(token, Posted { op, sources }));
    }

    pub(super) fn insert(&self, object: Object<M>, format: AddrFormat) -> Fid {
        self.with(|t| {
            t.last += 1;
            t.objects.insert(Fid(t.last), (object, format));
            Fid(t.last)
        })
    }

    pub(super) fn insert_ep(&self, ep: lib::Endpoint<M>, format: AddrFormat) -> Fid {
        let id = ep.id();
        let fid = self.insert(Object::Ep(Arc::new(RwLock::new(ep))), format);
        self.with(|t| t.ids.insert(id, fid));
        fid
    }

    pub(super) fn insert_pep(&self, pep: lib::Pep, format: AddrFormat) -> Fid {
        let id = pep.id();
        let fid = self.insert(Object::Pep(Arc::new(pep)), format);
        self.with(|t| t.ids.insert(id, fid));
        fid
    }

    pub(super) fn insert_group(&self, group: lib::Group<M>, format: AddrFormat) -> Fid {
        let id = group.id();
        let fid = self.insert(Object::Group(Arc::new(group)), format);
        self.with(|t| t.ids.insert(id, fid));
        fid
    }

    /// Takes an object out, for closing it.
    pub(super) fn take(&self, fid: Fid) -> Result<(Object<M>, AddrFormat)> {
        let taken = self.with(|t| {
            t.ids.retain(|_, f| *f != fid);
            t.objects.remove(&fid)
        });
        taken.ok_or(Error::Missing("close twice"))
    }

    pub(super) fn put_back(&self, fid: Fid, object: Object<M>, format: AddrFormat) {
        let id = match &object {
            Object::Ep(ep) => Some(read(ep).id()),
            Object::Pep(pep) => Some(pep.id()),
            Object::Group(group) => Some(group.id()),
            _ => None,
        };
        self.with(|t| {
            t.ids.extend(id.map(|id| (id, fid)));
            t.objects.insert(fid, (object, format));
        });
    }

    pub(super) fn get(&self, fid: Fid) -> Result<Object<M>> {
        let found = self.with(|t| t.objects.get(&fid).map(|(o, _)| o.clone()));
        found.ok_or(Error::Missing("use a closed object"))
    }

    /// The address format that belongs to an object.
    pub(super) fn format(&self, fid: Fid) -> AddrFormat {
        self.with(|t| t.objects.get(&fid).map(|(_, f)| *f))
            .unwrap_or_default()
    }

    pub(super) fn to_address(
        &self,
        call: &'static str,
        fid: Fid,
        addr: &lib::Addr,
    ) -> Result<Address> {
        Address::from_bytes(self.format(fid), addr.as_bytes())
            .map_err(|_| refused(call, Errno::EOTHER))
    }

    /// A completion in the suite's words; keeps the claim it may bring.
    pub(super) fn completion(&self, from: lib::Completion) -> Completion {
        let token = from.op.map(|_| from.token);
        let (mut bufs, mut piece) = (Vec::new(), None);
        let posted = self.with(|t| t.ops.get(&from.token).copied());
        let sources = posted
            .filter(|posted| Some(posted.op) == from.op)
            .map_or(0, |posted| posted.sources);
        let mut take = |at: usize, mut buf: lib::Buf| {
            if at < sources {
                buf.fill(OVERWRITTEN);
            }
            bufs.push(black_box(buf).to_vec());
        };
        match from.returned {
            lib::Returned::Nothing => {}
            lib::Returned::Buf(buf) => take(0, buf),
            lib::Returned::Bufs(all) => {
                for (at, buf) in all.into_iter().enumerate() {
                    take(at, buf);
                }
            }
            lib::Returned::Piece { bytes, released } => {
                piece = Some(bytes);
                bufs.extend(released.map(|b| b.to_vec()));
            }
            lib::Returned::Claim(claim) => {
                self.with(|t| t.claims.insert(from.token, claim));
            }
        }
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

macro_rules! getters {
    ($($name:ident: $variant:ident => $type:ty, $what:literal;)*) => {
        impl<M: lib::Threading> Table<M> {
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
    fabric: Fabric => lib::Fabric, "use that as a fabric";
    domain: Domain => lib::Domain<M>, "use that as a domain";
    eq: Eq => lib::Eq, "use that as an event queue";
    cq: Cq => lib::Cq<M>, "use that as a completion queue";
    cntr: Cntr => lib::Cntr<M>, "use that as a counter";
    av: Av => lib::Av<M>, "use that as an address vector";
    pep: Pep => Arc<lib::Pep>, "use that as a passive endpoint";
    ep: Ep => SharedEp<M>, "use that as an endpoint";
    memory: Memory => lib::Region<M>, "use that as memory";
    mr: Mr => Arc<lib::Mr<M>>, "use that as a registration";
    polls: Polls => Arc<lib::PollSet<M>>, "use that as a poll set";
    waits: Waits => lib::WaitSet, "use that as a wait set";
    set: Set => lib::AvSet<M>, "use that as an address vector set";
    group: Group => Arc<lib::Group<M>>, "use that as a group";
}
