//! Which objects are open, which were closed, and which use which.

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;

/// So many addresses of closed objects are remembered.
const CLOSED: usize = 1 << 16;

/// So many names are listed in one line.
const LISTED: usize = 16;

/// An object, as lines of the log call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) class: usize,
    pub(super) id: u64,
    pub(super) addr: usize,
}

impl Name {
    const fn kind(self) -> (&'static str, Subsys) {
        match self.class {
            abi::FI_CLASS_FABRIC => ("fabric", Subsys::Fabric),
            abi::FI_CLASS_DOMAIN => ("domain", Subsys::Domain),
            abi::FI_CLASS_EP => ("endpoint", Subsys::EpData),
            abi::FI_CLASS_SEP => ("scalable endpoint", Subsys::EpCtrl),
            abi::FI_CLASS_PEP => ("passive endpoint", Subsys::EpCtrl),
            abi::FI_CLASS_RX_CTX => ("receive context", Subsys::EpData),
            abi::FI_CLASS_SRX_CTX => ("shared receive context", Subsys::EpData),
            abi::FI_CLASS_TX_CTX => ("transmit context", Subsys::EpData),
            abi::FI_CLASS_STX_CTX => ("shared transmit context", Subsys::EpData),
            abi::FI_CLASS_MR => ("memory region", Subsys::Mr),
            abi::FI_CLASS_AV => ("address vector", Subsys::Av),
            abi::FI_CLASS_AV_SET => ("address vector set", Subsys::Av),
            abi::FI_CLASS_CQ => ("completion queue", Subsys::Cq),
            abi::FI_CLASS_EQ => ("event queue", Subsys::Eq),
            abi::FI_CLASS_CNTR => ("counter", Subsys::Cntr),
            abi::FI_CLASS_WAIT => ("wait set", Subsys::Core),
            abi::FI_CLASS_POLL => ("poll set", Subsys::Core),
            abi::FI_CLASS_MC => ("multicast group", Subsys::EpCtrl),
            _ => ("object", Subsys::Core),
        }
    }

    pub(super) const fn subsys(self) -> Subsys {
        self.kind().1
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:#x})", self.kind().0, self.id, self.addr)
    }
}

/// An object that is open.
#[derive(Debug)]
struct Open {
    name: Name,
    /// What it was opened from.
    parent: Option<u64>,
    /// What was bound to it.
    uses: Vec<u64>,
}

/// All objects under this hook.
#[derive(Debug, Default)]
struct Objects {
    open: BTreeMap<u64, Open>,
    /// By address.
    closed: HashMap<usize, Name>,
}

static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);

/// The process that opens them. A forked child says nothing of its parent's.
static PROCESS: OnceLock<u32> = OnceLock::new();

fn with<R>(use_it: impl FnOnce(&mut Objects) -> R) -> R {
    use_it(OBJECTS.lock().get_or_insert_default())
}

/// An object was opened.
pub(super) fn opened(name: Name, parent: Option<u64>) {
    PROCESS.get_or_init(std::process::id);
    let uses = Vec::new();
    with(|objects| {
        objects.closed.remove(&name.addr);
        objects.open.insert(name.id, Open { name, parent, uses });
    });
}

/// What is not watched has this address.
pub(super) fn taken(addr: usize) {
    with(|objects| objects.closed.remove(&addr));
}

/// An object was bound to another one, which uses it now.
pub(super) fn bound(user: u64, used: u64) {
    with(|objects| {
        if let Some(user) = objects
            .open
            .get_mut(&user)
            .filter(|user| !user.uses.contains(&used))
        {
            user.uses.push(used);
        }
    });
}

/// What is open that was opened from an object, and what that is bound to.
pub(super) fn users_of(id: u64) -> (Vec<Name>, Vec<Name>) {
    with(|objects| {
        let open = || objects.open.values();
        let children = open().filter(|open| open.parent == Some(id));
        let users = open().filter(|open| open.uses.contains(&id));
        (
            children.map(|open| open.name).collect(),
            users.map(|open| open.name).collect(),
        )
    })
}

/// An object was closed.
pub(super) fn closed(name: Name) {
    with(|objects| {
        objects.open.remove(&name.id);
        if objects.closed.len() >= CLOSED {
            objects.closed.clear();
        }
        objects.closed.insert(name.addr, name);
    });
}

/// The object that was closed and had this address, unless there is another one now.
pub(super) fn closed_at(addr: usize) -> Option<Name> {
    with(|objects| objects.closed.get(&addr).copied())
}

/// Whether an object was closed that had this address, and no other one has it now. Of objects without this hook nothing is
/// known.
pub(crate) fn is_closed(addr: usize) -> bool {
    let objects = OBJECTS.lock();
    objects
        .as_ref()
        .is_some_and(|all| all.closed.contains_key(&addr))
}

/// Names for one line.
pub(super) fn list(names: &[Name]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(Name::to_string).collect();
    let more = names.len().saturating_sub(LISTED);
    match more {
        0 => shown.join(", "),
        _ => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A call on an object was made by a table that only closed ones have.
pub(crate) fn used_when_closed(addr: usize, call: &str) {
    let name = closed_at(addr).map_or_else(|| format!("{addr:#x}"), |name| name.to_string());
    fi_warn!(
        "core",
        Subsys::Core,
        "FI_HOOK=debug: {call} of {name}: it was closed before, and its memory may be another's by now; this \
         call is refused, others are not seen: forget an object that is closed"
    );
}

/// The process ends: what is still open is told.
pub(crate) fn at_end() {
    if PROCESS.get() != Some(&std::process::id()) {
        return;
    }
    let Some(objects) = OBJECTS.try_lock() else {
        return;
    };
    let open: Vec<Name> = objects
        .iter()
        .flat_map(|all| all.open.values())
        .map(|open| open.name)
        .collect();
    drop(objects);
    if open.is_empty() {
        return;
    }
    fi_warn!(
        "core",
        Subsys::Core,
        "FI_HOOK=debug: the process ends and fi_close was not called for {}; close what was opened last first",
        list(&open)
    );
}
