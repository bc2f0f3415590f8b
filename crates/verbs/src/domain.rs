//! Domains: one device.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::eq::EventQueue;
use ripstop_core::log::Subsys;
use ripstop_core::{Info, fi_warn};
use ripstop_ibverbs::{CmEvent, CmId, Context, DeviceAttr, Pd};
use ripstop_types::Result;

use crate::cm::OnEvent;
use crate::fabric::Fabric;
use crate::params::NAME;
use crate::regions::Regions;
use crate::ud::{self, Port};
use crate::watch::Watch;

/// A domain: a device with a protection domain.
pub struct Domain {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) context: Arc<Context>,
    pub(crate) attr: DeviceAttr,
    pub(crate) pd: Arc<Pd>,
    pub(crate) regions: Regions,
    /// What datagram endpoints have in common, of a domain for these; it has no others.
    pub(crate) port: Option<Port>,
    pub(crate) watch: Arc<Watch>,
    /// Hears that the device is being removed, where endpoints have no ids that do.
    sentinel: Option<(Arc<CmId>, Arc<Sentinel>)>,
    pub(crate) eq: Mutex<Option<Arc<EventQueue>>>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({:?})", self.context)
    }
}

impl Domain {
    pub(crate) fn open(fabric: &Arc<Fabric>, info: &Info) -> Result<Arc<Self>> {
        let context = Fabric::device(info)?;
        let pd = Pd::new(&context).inspect_err(|error| {
            let device = context.name();
            fi_warn!(
                NAME,
                Subsys::Domain,
                "device {device} has no protection domain left: {error}"
            );
        })?;
        let name = info.domain.name.as_deref().unwrap_or_default();
        let is_for_datagrams = name.ends_with(ud::SUFFIX);
        let port = is_for_datagrams.then(|| Port::open(&context, &pd, fabric.params.gid_idx));
        let port = port.transpose()?;
        let attr = context.attr()?;
        let watch = Watch::of(&context)?;
        fabric.cm.watch(&watch)?;
        let sentinel = port
            .as_ref()
            .and_then(|_| Sentinel::post(fabric, &context, &watch));
        Ok(Arc::new(Self {
            port,
            fabric: Arc::clone(fabric),
            attr,
            watch,
            sentinel,
            context,
            pd,
            regions: Regions::default(),
            eq: Mutex::new(None),
        }))
    }
}

/// Hears of the device of an id that connects nothing.
struct Sentinel(Arc<Watch>);

impl Sentinel {
    /// Has an id at an address of the device; none where it has no address.
    fn post(
        fabric: &Fabric,
        device: &Arc<Context>,
        watch: &Arc<Watch>,
    ) -> Option<(Arc<CmId>, Arc<Self>)> {
        let address = crate::devices::address_of(fabric, device).ok()?;
        let id = CmId::new(&fabric.cm.channel).ok()?;
        id.bind(&address).ok()?;
        let sentinel = Arc::new(Self(Arc::clone(watch)));
        let heard: Weak<Self> = Arc::downgrade(&sentinel);
        fabric.cm.add(&id, heard);
        Some((id, sentinel))
    }
}

impl OnEvent for Sentinel {
    fn event(&self, _: CmEvent) {}

    fn watch(&self) -> Option<Arc<Watch>> {
        Some(Arc::clone(&self.0))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Some((id, _)) = &self.sentinel {
            self.fabric.cm.remove(id);
        }
        self.fabric.cm.unwatch(&self.watch);
    }
}
