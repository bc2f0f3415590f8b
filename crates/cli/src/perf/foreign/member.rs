//! A library behind the C interface as a [`Member`] of a group.

use anyhow::{Context as _, Result, bail};
use ripstop_core::av::set::UNIVERSE;
use ripstop_foreign::{
    Addr, Av, AvAttr, AvSet, AvSetAttr, Buf, Collecting, Completion, Cq, CqAttr, Endpoint, Eq,
    Event, Group, Returned, Single,
};
use ripstop_types::{AtomicOp, AvType, Collective, Datatype, Errno, FiAddr, Flags, WaitObj};

use super::{Opened, failure, posted};
use crate::perf::member::{self, ELEMENT, Member};
use crate::perf::protocol::Kind;
use crate::perf::subject::Lacks;

/// Token of every operation.
const OPERATION: u64 = 1;

/// An endpoint of a library.
pub(in crate::perf) struct ForeignMember {
    /// The library and its provider.
    who: String,
    group: Option<Group<Single>>,
    set: Option<AvSet<Single>>,
    ep: Endpoint<Single>,
    cq: Cq<Single>,
    eq: Eq,
    av: Av<Single>,
    /// Operand and result, while no operation has them.
    bufs: Option<[Buf; 2]>,
    found: Vec<Completion>,
}

impl ForeignMember {
    /// # Errors
    /// When something does not open.
    pub(super) fn open(opened: &Opened, largest: usize, rank: usize) -> Result<Self> {
        let cq = opened.domain.cq(CqAttr::default())?;
        let av = opened.domain.av(AvAttr {
            av_type: AvType::Table,
            ..AvAttr::default()
        })?;
        let eq = opened.fabric.eq(0, WaitObj::Unspec)?;
        let builder = opened.domain.endpoint(&opened.info)?;
        let ep = builder
            .bind_cq(&cq, Flags::SEND | Flags::RECV)?
            .bind_av(&av)?
            .bind_eq(&eq)?
            .enable()?;
        let operand = member::operand(rank, largest);
        let result = Buf::zeroed(operand.len());
        let (path, provider) = (opened.library.path().display(), opened.info.provider());
        Ok(Self {
            who: format!("{path} with provider {provider}"),
            group: None,
            set: None,
            ep,
            cq,
            eq,
            av,
            bufs: Some([Buf::from(&operand[..]), result]),
            found: Vec::new(),
        })
    }
}

impl Member for ForeignMember {
    fn address(&self) -> Result<Vec<u8>> {
        Ok(self.ep.getname()?.as_bytes().to_vec())
    }

    fn join(&mut self, addresses: &[Vec<u8>]) -> Result<()> {
        for address in addresses {
            self.av.insert(&Addr::from_bytes(address))?;
        }
        self.join_all(addresses.len())
            .map_err(|error| match error.errno {
                Errno::ENOSYS => {
                    let who = &self.who;
                    let text = "has no collectives, although it offers FI_COLLECTIVE";
                    Lacks(format!("{who} {text}: {error}")).into()
                }
                _ => error.into(),
            })
    }

    fn joined(&mut self) -> Result<bool> {
        self.ended()?;
        match self.eq.read() {
            Ok(Event::Joined { .. }) => Ok(true),
            Ok(_) => bail!("fi_eq_read: an event that is no FI_JOIN_COMPLETE"),
            Err(error) if error.is_again() => Ok(false),
            Err(error) if error.errno == Errno::EAVAIL => {
                let error = self.eq.readerr()?;
                bail!("fi_join_collective: {}", error.err)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn start(&mut self, kind: Kind, size: usize) -> Result<bool> {
        let group = self.group.as_ref().context("no group")?;
        let bufs = self.bufs.take().context("an operation is under way")?;
        let (coll, bufs) = match kind {
            Kind::Barrier => {
                self.bufs = Some(bufs);
                (Collective::Barrier, [Buf::zeroed(0), Buf::zeroed(0)])
            }
            _ => (Collective::Allreduce, bufs),
        };
        let call = Collecting {
            coll,
            datatype: Datatype::Double.number(),
            op: AtomicOp::Sum.number(),
            count: size / ELEMENT,
            group: group.addr(),
            root: FiAddr::NOTAVAIL,
            flags: Flags::empty(),
        };
        match self.ep.collective(bufs, &call, None, OPERATION) {
            Err(refused) if refused.is_again() => {
                self.keep(refused.payload);
                Ok(false)
            }
            other => posted(other),
        }
    }

    #[inline]
    fn ended(&mut self) -> Result<bool> {
        match self.cq.read(&mut self.found) {
            Ok(_) => {}
            Err(error) if error.is_again() => return Ok(false),
            Err(error) if error.errno == Errno::EAVAIL => {
                return Err(failure(&self.cq, |_| "collective operation"));
            }
            Err(error) => return Err(error.into()),
        }
        let Some(completion) = self.found.pop() else {
            return Ok(false);
        };
        if let Returned::Bufs(bufs) = completion.returned {
            self.keep(bufs);
        }
        Ok(true)
    }

    fn last(&self, size: usize) -> f64 {
        let result = self.bufs.as_ref().map(|[_, result]| result);
        let bytes = result.and_then(|result| result.get(..size));
        member::last(bytes.unwrap_or_default())
    }
}

impl ForeignMember {
    /// Begins to join the group of all that the address vector has.
    fn join_all(&mut self, count: usize) -> ripstop_foreign::Result<()> {
        let set = self.av.set(&AvSetAttr {
            count,
            range: (FiAddr::NOTAVAIL, FiAddr::NOTAVAIL),
            stride: 0,
            flags: UNIVERSE,
        })?;
        self.group = Some(self.ep.join(&set, set.addr()?, Flags::empty())?);
        self.set = Some(set);
        Ok(())
    }

    /// Takes back what an operation had; those of a barrier are empty.
    fn keep(&mut self, bufs: Vec<Buf>) {
        if let Ok(bufs) = <[Buf; 2]>::try_from(bufs)
            && !bufs[0].is_empty()
        {
            self.bufs = Some(bufs);
        }
    }
}
