//! An endpoint of the object model as a [`Member`] of a group.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ripstop_core::av::set::{AvSet, AvSetAttr, UNIVERSE};
use ripstop_core::eq::{EqAttr, Event};
use ripstop_core::provider::{
    AddressVector as _, AvAttr, CollCall, CompletionQueue as _, Domain, Endpoint as _, Group as _,
    JoinCall,
};
use ripstop_core::{EventQueue, FidToken, Info};
use ripstop_mem::{Parked, copy_in};
use ripstop_types::{AtomicOp, AvType, CmEvent, Collective as What, Datatype, Errno, FiAddr};

use super::{address, posted};
use crate::endpoint::{Opening, failure};
use crate::perf::member::{self, ELEMENT, Member};
use crate::perf::protocol::Kind;
use crate::perf::subject::Lacks;

/// Context of every operation.
const OPERATION: usize = 1;

/// An endpoint of the object model.
pub(in crate::perf) struct Collective<D: Domain> {
    provider: String,
    group: Option<Arc<D::Group>>,
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    eq: Arc<EventQueue>,
    av: Arc<D::Av>,
    operand: Parked,
    result: Parked,
}

impl<D: Domain> Collective<D> {
    /// # Errors
    /// When something does not open.
    pub(super) fn open(domain: &Arc<D>, info: &Info, largest: usize, rank: usize) -> Result<Self> {
        let Opening { ep, cq } = Opening::new(domain, info, FidToken(0), 0)?;
        let attr = AvAttr {
            av_type: AvType::Table,
            ..AvAttr::default()
        };
        let av = domain.av(&attr).context("fi_av_open")?;
        let eq = EventQueue::open(&EqAttr::default()).context("fi_eq_open")?;
        let eq = Arc::new(eq);
        ep.bind_av(&av).context("fi_ep_bind")?;
        ep.bind_eq(&eq).context("fi_ep_bind")?;
        ep.enable().context("fi_enable")?;
        let operand = member::operand(rank, largest);
        let result = vec![0; operand.len()];
        Ok(Self {
            provider: info.prov_name().to_owned(),
            group: None,
            ep,
            cq,
            eq,
            av,
            operand: Parked::park(operand),
            result: Parked::park(result),
        })
    }
}

impl<D: Domain> Member for Collective<D> {
    fn address(&self) -> Result<Vec<u8>> {
        Ok(self.ep.name().context("fi_getname")?.to_bytes())
    }

    fn join(&mut self, addresses: &[Vec<u8>]) -> Result<()> {
        let own = self.ep.name().context("fi_getname")?;
        for bytes in addresses {
            let address = address(&own, bytes)?;
            self.av.insert(&address).context("fi_av_insert")?;
        }
        let attr = AvSetAttr {
            count: addresses.len(),
            start: FiAddr::NOTAVAIL,
            end: FiAddr::NOTAVAIL,
            stride: 0,
            comm_key: false,
            flags: UNIVERSE,
        };
        let set = AvSet::new(&attr, self.av.av_type(), &self.av.addresses());
        let set = set.context("fi_av_set")?;
        let call = JoinCall {
            members: &set.members(),
            operations: set.operations(),
            context: OPERATION,
        };
        match self.ep.join(&call, FidToken(1)) {
            Ok(group) => self.group = Some(group),
            Err(error @ Errno::ENOSYS) => {
                let text = "has no collectives, although it offers FI_COLLECTIVE";
                return Err(Lacks(format!("provider {} {text}: {error}", self.provider)).into());
            }
            Err(error) => return Err(error).context("fi_join_collective"),
        }
        Ok(())
    }

    fn joined(&mut self) -> Result<bool> {
        self.ended()?;
        match self.eq.read() {
            Ok(Event::Done {
                event: CmEvent::JoinComplete,
                ..
            }) => Ok(true),
            Ok(other) => bail!("fi_eq_read: {other:?}"),
            Err(Errno::EAGAIN) => Ok(false),
            Err(Errno::EAVAIL) => {
                let error = self.eq.read_error(true).context("fi_eq_readerr")?;
                bail!("fi_join_collective: {}", error.err)
            }
            Err(error) => bail!("fi_eq_read: {error}"),
        }
    }

    fn start(&mut self, kind: Kind, size: usize) -> Result<bool> {
        let Some(group) = &self.group else {
            bail!("no group");
        };
        let coll = match kind {
            Kind::Barrier => What::Barrier,
            _ => What::Allreduce,
        };
        let call = CollCall {
            coll,
            datatype: Datatype::Double,
            op: AtomicOp::Sum,
            count: size / ELEMENT,
            group: group.addr(),
            root: FiAddr::NOTAVAIL,
            context: OPERATION,
            flags: None,
        };
        let [operand, result] = [&self.operand, &self.result].map(|buf| buf.buf().first(size));
        posted(
            "a collective operation",
            self.ep.collective(operand, result, &call),
        )
    }

    #[inline]
    fn ended(&mut self) -> Result<bool> {
        match self.cq.read(1, |_| {}) {
            Ok(count) => Ok(count > 0),
            Err(Errno::EAGAIN) => Ok(false),
            Err(Errno::EAVAIL) => Err(failure(&*self.cq, |_| "collective operation")),
            Err(error) => bail!("fi_cq_read: {error}"),
        }
    }

    fn last(&self, size: usize) -> f64 {
        let mut bytes = vec![0; size];
        copy_in(&mut bytes, self.result.buf());
        member::last(&bytes)
    }
}
