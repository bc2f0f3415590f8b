//! What a case asks its [`Rig`](super::Rig) to be.

use ripstop_core::{Hints, SHARED_CONTEXT};

use ripstop_types::{
    AvType, CqFormat, Flags, MrMode, MsgOrder, Progress, Threading, Version, WaitObj,
};

use crate::subject::{AvAttr, CqAttr};

/// What a [`Rig`](super::Rig) is asked to be.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Capabilities beyond messages.
    pub caps: Flags,
    /// Default flags of transmits, in the hints.
    pub tx_op_flags: Flags,
    /// Default flags of receives, in the hints.
    pub rx_op_flags: Flags,
    /// Message ordering of both directions.
    pub order: MsgOrder,
    /// Transmits that may be outstanding, 0 for the provider's choice.
    pub tx_size: usize,
    /// Receives that may be outstanding, 0 for the provider's choice.
    pub rx_size: usize,
    /// Who drives transfers.
    pub progress: Progress,
    /// The completion queues.
    pub cq: CqAttr,
    /// A queue of their own for receives.
    pub split_cq: bool,
    /// Counters of each side's transmits and receives, waited on like this.
    pub counters: Option<WaitObj>,
    /// One counter for all of them.
    pub one_cntr: bool,
    /// One address vector for both sides.
    pub one_av: bool,
    /// One completion queue for both sides.
    pub one_cq: bool,
    /// Completions only where a flag asks, in these directions.
    pub selective: Flags,
    /// The address vectors.
    pub av: AvAttr,
    /// A domain of its own for each side.
    pub two_domains: bool,
    /// Bytes to ask for as remote CQ data.
    pub cq_data: usize,
    /// The event queues' wait object.
    pub eq_wait: WaitObj,
    /// The traffic class of the domain, and that of transmits; 0 for none.
    pub tclass: (u32, u32),
    /// Each side receives through a shared context.
    pub shared_rx: bool,
    /// Reliable datagram endpoints have an event queue too, `rig.eqs[A]`.
    pub events: bool,
    /// Counters of each side's reads and writes, and of those that reach it.
    pub rma_counters: bool,
    /// Registration modes to offer instead of the usual ones.
    pub mr_mode: Option<MrMode>,
    /// The interface version to ask for instead of the newest.
    pub version: Option<Version>,
    /// What the case serialises, instead of the level of the run.
    pub threading: Option<Threading>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            caps: Flags::MSG,
            tx_op_flags: Flags::empty(),
            rx_op_flags: Flags::empty(),
            order: MsgOrder::empty(),
            tx_size: 0,
            rx_size: 0,
            progress: Progress::Unspec,
            cq: CqAttr::default(),
            split_cq: false,
            one_cq: false,
            one_av: false,
            counters: None,
            one_cntr: false,
            selective: Flags::empty(),
            av: AvAttr::default(),
            two_domains: false,
            cq_data: 0,
            eq_wait: WaitObj::Unspec,
            events: false,
            shared_rx: false,
            tclass: (0, 0),
            rma_counters: false,
            mr_mode: None,
            version: None,
            threading: None,
        }
    }
}

macro_rules! with {
    ($($field:ident: $type:ty;)*) => {
        $(
            #[doc = concat!("With this [`Spec::", stringify!($field), "`].")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

impl Spec {
    with! {
        counters: Option<WaitObj>;
        events: bool;
        mr_mode: Option<MrMode>;
        one_av: bool;
        order: MsgOrder;
        progress: Progress;
        rma_counters: bool;
        rx_op_flags: Flags;
        rx_size: usize;
        selective: Flags;
        shared_rx: bool;
        threading: Option<Threading>;
        two_domains: bool;
        tx_op_flags: Flags;
        tx_size: usize;
        version: Option<Version>;
    }

    /// Messages, and reads and writes of the peer's memory.
    #[must_use]
    pub fn rma() -> Self {
        Self::default().caps(Flags::RMA)
    }

    /// Messages and tagged messages.
    #[must_use]
    pub fn tagged() -> Self {
        Self::default().caps(Flags::TAGGED)
    }

    /// Messages, and groups that endpoints join.
    #[must_use]
    pub fn collective() -> Self {
        Self {
            events: true,
            ..Self::default().caps(Flags::COLLECTIVE)
        }
    }

    /// With more capabilities.
    #[must_use]
    pub fn caps(mut self, caps: Flags) -> Self {
        self.caps |= caps;
        self
    }

    /// With completion queues of this format.
    #[must_use]
    pub fn format(mut self, format: CqFormat) -> Self {
        self.cq.format = format;
        self
    }

    /// With completion queues that are waited on like this.
    #[must_use]
    pub fn wait(mut self, wait: WaitObj) -> Self {
        self.cq.wait = wait;
        self
    }

    /// With completion queues of this size.
    #[must_use]
    pub fn cq_size(mut self, size: usize) -> Self {
        self.cq.size = size;
        self
    }

    /// With address vectors of this type.
    #[must_use]
    pub fn av_type(mut self, av_type: AvType) -> Self {
        self.av.av_type = av_type;
        self
    }

    /// Writes what the spec asks into hints.
    pub(super) fn fill(&self, hints: &mut Hints) {
        hints.caps |= self.caps;
        if let (true, Some(ep)) = (self.shared_rx, &mut hints.ep) {
            ep.rx_ctx_cnt = SHARED_CONTEXT;
        }
        let mut tx = hints.tx.take().unwrap_or_default();
        tx.op_flags = self.tx_op_flags;
        tx.msg_order = self.order;
        tx.size = self.tx_size;
        tx.tclass = self.tclass.1;
        hints.tx = Some(tx);
        let mut rx = hints.rx.take().unwrap_or_default();
        rx.op_flags = self.rx_op_flags;
        rx.msg_order = self.order;
        rx.size = self.rx_size;
        hints.rx = Some(rx);
        let mut domain = hints.domain.take().unwrap_or_default();
        domain.av_type = self.av.av_type;
        domain.cq_data_size = self.cq_data;
        domain.tclass = self.tclass.0;
        domain.mr_mode = self.mr_mode.unwrap_or(domain.mr_mode);
        domain.threading = self.threading.unwrap_or(domain.threading);
        if self.progress != Progress::Unspec {
            domain.progress = self.progress;
            domain.control_progress = self.progress;
        }
        hints.domain = Some(domain);
    }
}
