//! A process on the virtual network: an endpoint of the shipped driver, and what belongs to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::eq::EqAttr;
use ripstop_core::lock::Shared;
use ripstop_core::provider::{
    AddressVector as _, AvAttr, CompletionQueue as _, Counter as _, CounterAttr, CqAttr,
    Domain as _, Endpoint as _, EpOption, Fabric as _,
};
use ripstop_core::{Address, EventQueue, FidToken, Info};
use ripstop_stream::attr::{MATCHED_RX, OPS, Offer, SOURCES, offer};
use ripstop_stream::{Av, Counter, Cq, Domain, Endpoint, Fabric, PeerRx, Tunables};
use ripstop_types::{
    AddrFormat, Completion, CompletionError, EpType, Errno, FiAddr, Flags, MrMode, Progress,
    Protocol, Result, Threading,
};

use crate::network::Nanos;
use crate::system::Net;
use crate::transport::{Params, Sim, socket_addr};

/// What a node is like.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Most bytes of an injected message.
    pub max_inject: usize,
    /// Most bytes of a payload that is copied to be written with others.
    pub inline: usize,
    /// Tagged messages above this many bytes wait for the receiver.
    pub eager_max: u64,
    /// Most bytes of unexpected messages of a peer that are kept.
    pub kept_bytes: u64,
    /// Most unexpected messages of a peer that are kept.
    pub kept_messages: u32,
    /// Most bytes of unexpected messages of all peers that are kept.
    pub kept_total: u64,
    /// How long it tries to reach a peer.
    pub patience: Nanos,
    /// Receives may name their source.
    pub directed: bool,
    /// Completions of messages from strangers are errors.
    pub source_err: bool,
    /// Operations that may be outstanding.
    pub tx_size: usize,
    /// Operations of both kinds are counted.
    pub counted: bool,
    /// Only operations that ask for it have a completion.
    pub selective: bool,
    /// Least free bytes of a multi-receive buffer.
    pub min_multi_recv: usize,
    /// Its receives are those of another provider, which the test plays.
    pub owned: bool,
    /// Messages are in packets (`FI_PROTO_RXM`), of which one holds so many bytes; the same at all nodes.
    pub packets: Option<u64>,
    /// Connections beyond which idle ones end, 0 for any number; with packets.
    pub max_connections: usize,
    /// Addresses in its address vector.
    pub known: Vec<u16>,
}

impl NodeConfig {
    /// A node like most, that knows these peers.
    #[must_use]
    pub fn new(known: &[u16]) -> Self {
        Self {
            max_inject: 128,
            inline: 256,
            eager_max: 1000,
            kept_bytes: 6144,
            kept_messages: 8,
            kept_total: 15_000,
            patience: 200_000_000,
            directed: true,
            source_err: false,
            tx_size: 1000,
            counted: true,
            selective: true,
            min_multi_recv: 64,
            owned: false,
            packets: None,
            max_connections: 0,
            known: known.to_vec(),
        }
    }

    fn tunables(&self) -> Tunables {
        Tunables {
            tx_size: self.tx_size,
            rx_size: 1000,
            max_inject: self.max_inject,
            inline: self.inline,
            eager_max: self.eager_max,
            kept_bytes: self.kept_bytes,
            kept_messages: self.kept_messages,
            kept_longest: u64::MAX,
            kept_total: self.kept_total,
            universe: 0,
            remove_cleanup: false,
            no_thread: true,
            timeout: Duration::from_nanos(self.patience),
            answer: Duration::from_nanos(4 * self.patience),
        }
    }

    fn info(&self, address: u16) -> Info {
        let mut info = offer::<Sim>(
            &self.tunables(),
            &Offer {
                ep_type: EpType::Rdm,
                addr_format: AddrFormat::SockaddrIp,
                protocol: Protocol::Xnet,
                protocol_version: 1,
                domain_caps: Flags::LOCAL_COMM | Flags::REMOTE_COMM | Flags::PEER,
                ops: OPS | Flags::TAGGED | Flags::COLLECTIVE,
                rx_caps: MATCHED_RX | SOURCES,
                rx_ctx_cnt: 1,
            },
        );
        let without = [
            (self.directed, Flags::DIRECTED_RECV),
            (self.source_err, Flags::SOURCE_ERR),
        ];
        for (_, cap) in without.iter().filter(|(has, _)| !has) {
            info.caps -= *cap;
            info.rx.caps -= *cap;
        }
        (info.tx.op_flags, info.rx.op_flags) = (Flags::empty(), Flags::empty());
        info.tx.size = self.tx_size;
        info.domain.threading = Threading::Domain;
        info.domain.progress = Progress::Manual;
        info.domain.control_progress = Progress::Manual;
        info.domain.mr_mode = MrMode::empty();
        info.src_addr = Some(Address::Ip(socket_addr(address)));
        info
    }
}

/// An entry of the completion queue.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A success.
    Success(Completion),
    /// An error, with what describes it.
    Failure(CompletionError, Vec<u8>),
}

impl Entry {
    /// What it has in common.
    #[must_use]
    pub fn completion(&self) -> &Completion {
        match self {
            Self::Success(completion) => completion,
            Self::Failure(error, _) => &error.entry,
        }
    }
}

/// One process, with one endpoint.
#[derive(Debug)]
pub struct Node {
    /// The endpoint.
    pub ep: Arc<Endpoint<Sim, Shared>>,
    /// Its completion queue.
    pub cq: Arc<Cq<Sim, Shared>>,
    /// Its event queue.
    pub eq: Arc<EventQueue>,
    /// Where another provider receives, if one does.
    pub peer_rx: Option<Arc<PeerRx<Sim, Shared>>>,
    av: Arc<Av<Sim, Shared>>,
    counters: [Arc<Counter<Sim, Shared>>; 2],
    /// Its domain.
    pub domain: Arc<Domain<Sim, Shared>>,
    known: BTreeMap<u16, FiAddr>,
    poller: u32,
    net: Net,
}

impl Node {
    /// A process with an open endpoint.
    ///
    /// # Errors
    /// Of the objects.
    pub fn open(net: &Net, address: u16, pid: u32, config: &NodeConfig) -> Result<Self> {
        let info = config.info(address);
        let tunables = config.tunables();
        let params = Params {
            net: net.clone(),
            pid,
            tunables,
            packets: config.packets,
            max_connections: config.max_connections,
        };
        let fabric = Arc::new(Fabric::<Sim>::new(info.fabric.clone(), Arc::new(params)));
        let poller = net.lock().next_poller();
        let domain = fabric.safe_domain(&info)?;
        let cq = domain.cq(&CqAttr::default())?;
        let av = domain.av(&AvAttr::default())?;
        let eq = Arc::new(EventQueue::open(&EqAttr::default())?);
        let counter = CounterAttr::default();
        let counters = [domain.counter(&counter)?, domain.counter(&counter)?];
        let ep = domain.endpoint(&info, FidToken(0))?;
        let selective = match config.selective {
            true => Flags::SELECTIVE_COMPLETION,
            false => Flags::empty(),
        };
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV | selective)?;
        ep.bind_av(&av)?;
        ep.bind_eq(&eq)?;
        if config.counted {
            ep.bind_counter(&counters[0], Flags::SEND)?;
            ep.bind_counter(&counters[1], Flags::RECV)?;
        }
        let mut peer_rx = None;
        if config.owned {
            let rx = domain.peer_rx()?;
            ep.bind_peer_rx(&rx)?;
            peer_rx = Some(rx);
        }
        ep.enable()?;
        if !config.owned {
            ep.set_option(EpOption::MinMultiRecv, config.min_multi_recv)?;
        }
        let mut node = Self {
            ep,
            cq,
            eq,
            peer_rx,
            av,
            counters,
            domain,
            known: BTreeMap::new(),
            poller,
            net: net.clone(),
        };
        for peer in &config.known {
            node.learn(*peer);
        }
        Ok(node)
    }

    /// The fabric address of a peer, if it is in the address vector.
    #[must_use]
    pub fn fi_addr(&self, peer: u16) -> FiAddr {
        *self.known.get(&peer).unwrap_or(&FiAddr::NOTAVAIL)
    }

    /// Puts a peer into the address vector.
    ///
    /// # Panics
    /// If it is refused.
    pub fn learn(&mut self, peer: u16) -> FiAddr {
        let av = &self.av;
        let insert = || av.insert(&Address::Ip(socket_addr(peer)));
        *self
            .known
            .entry(peer)
            .or_insert_with(|| insert().expect("an address like all"))
    }

    /// Makes progress and takes one entry of the completion queue.
    ///
    /// # Panics
    /// If the queue announces an entry that is not there.
    pub fn read(&self) -> Option<Entry> {
        let mut entry = None;
        let done = self
            .cq
            .read(1, |completion| entry = Some(Entry::Success(*completion)));
        match done {
            Ok(_) | Err(Errno::EAGAIN) => {}
            Err(Errno::EAVAIL) => {
                let note = |error: &CompletionError, data: &[u8]| {
                    entry = Some(Entry::Failure(*error, data.to_vec()));
                };
                self.cq.read_error(note).expect("an error was announced");
            }
            Err(error) => panic!("{error}"),
        }
        entry
    }

    /// Whether its poller would tell of something that its domain waits for.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.net.lock().has_ready(self.poller)
    }

    /// How many streams of it are up with whoever is at the other end, by the peer's address.
    #[must_use]
    pub fn streams_with(&self, peer: u16) -> usize {
        let links = self.domain.links();
        let net = self.net.lock();
        let with = |link: &&Arc<crate::transport::SimLink>| net.peer_of(link.end()) == peer;
        links.iter().filter(with).count()
    }

    /// Successes and errors counted of sends and of receives.
    #[must_use]
    pub fn counted(&self) -> [(u64, u64); 2] {
        self.counters
            .each_ref()
            .map(|counter| (counter.read(), counter.read_error()))
    }
}
