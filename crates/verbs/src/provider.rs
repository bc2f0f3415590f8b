//! The provider named `verbs`.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::hints::Request;
use ripstop_core::ip::answers;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Info, provider};
use ripstop_ibverbs::{available, has_devices};
use ripstop_types::{Errno, Flags, Result, Version};

use crate::devices::{self, Device};
use crate::dgram;
use crate::fabric::Fabric;
use crate::offer::{apply_defaults, offer};
use crate::params::{NAME, Params, VERSION};

/// The provider named `verbs`.
pub struct VerbsProvider {
    params: Arc<Params>,
    /// What was found last; devices are not looked for again until somebody asks for that
    /// (`FI_RESCAN`) or there are none.
    devices: Mutex<Vec<Arc<Device>>>,
}

impl std::fmt::Debug for VerbsProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VerbsProvider({} devices)", self.devices.lock().len())
    }
}

impl Default for VerbsProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl VerbsProvider {
    /// Reads the provider's parameters (`FI_VERBS_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
            devices: Mutex::default(),
        }
    }

    /// The devices, or why there are none.
    fn devices(&self, request: &Request<'_>) -> core::result::Result<Vec<Arc<Device>>, Refusal> {
        // Only who names the provider wants to know of a library that nothing needs.
        if (has_devices() || is_named(request))
            && let Err(missing) = available()
        {
            return Err(Refusal::Failed(Errno::ENOSYS, missing.to_string()));
        }
        let mut found = self.devices.lock();
        if found.is_empty() || request.flags.contains(Flags::RESCAN) {
            let all = devices::find(&self.params).map_err(|error| {
                let why = "the RDMA devices of this machine cannot be read".to_owned();
                Refusal::Failed(error, why)
            })?;
            *found = all.into_iter().map(Arc::new).collect();
        }
        match found.is_empty() {
            true => Err(Refusal::Failed(Errno::ENODEV, none().to_owned())),
            false => Ok(found.clone()),
        }
    }
}

/// Why no device is offered.
pub(crate) fn none() -> &'static str {
    match has_devices() {
        true => {
            "no RDMA device can be used: look at the state of their ports (ibv_devinfo, rdma link), at \
             FI_VERBS_DEVICE_NAME, and at FI_LOG_LEVEL=info for the reasons"
        }
        false => {
            "the kernel has no RDMA device (/sys/class/infiniband_verbs is empty): load its driver and \
             ib_uverbs; rdma link add NAME type rxe netdev INTERFACE makes one of a network card"
        }
    }
}

/// Whether a request names this provider.
fn is_named(request: &Request<'_>) -> bool {
    let fabric = request.hints.and_then(|hints| hints.fabric.as_ref());
    let name = fabric.and_then(|fabric| fabric.prov_name.as_deref());
    name.is_some_and(|name| name.to_ascii_lowercase().contains(NAME))
}

/// Whether an answer's source is an address of the device, or any address.
pub(crate) fn is_from(device: &Device, info: &Info) -> bool {
    let source = info.src_addr.as_ref().and_then(|addr| addr.ip());
    source.is_none_or(|source| {
        let ip = source.ip();
        ip.is_unspecified() || device.addresses.iter().any(|local| local.addr.ip() == ip)
    })
}

impl ProviderInfo for VerbsProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        VERSION
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let devices = match self.devices(request) {
            Ok(devices) => devices,
            Err(why) => return why.into(),
        };
        let mut answer = Answer::default();
        for device in &devices {
            let offer = offer(device, &self.params, request.hints);
            match answers(request, &offer, &device.addresses) {
                Ok(infos) => {
                    let (own, others): (Vec<_>, Vec<_>) =
                        infos.into_iter().partition(|info| is_from(device, info));
                    answer.infos.extend(own);
                    answer
                        .refusals
                        .extend(others.iter().map(|info| strange(device, info)));
                }
                Err(why) => answer.refusals.push(why.into()),
            }
        }
        for info in &mut answer.infos {
            apply_defaults(info, &self.params, request.hints);
        }
        // Providers are listed once.
        if !request.lists_providers() {
            for device in &devices {
                match dgram::answer(device, &self.params, request) {
                    Ok(info) => answer.infos.push(info),
                    Err(why) => answer.refusals.push(why),
                }
            }
        }
        answer
    }
}

/// The peer is not reached by the device, or the source is none of its addresses.
pub(crate) fn strange(device: &Device, info: &Info) -> Refusal {
    let source = info.src_addr.as_ref().map(ToString::to_string);
    let source = source.unwrap_or_default();
    let name = &device.name;
    Refusal::Failed(
        Errno::ENODATA,
        format!(
            "{source}, from which the connection would go out, is no address of device {name}; name a peer \
             that is reached by the interface of the device, not over lo"
        ),
    )
}

impl provider::Provider for VerbsProvider {
    type Fabric = Fabric;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric>> {
        Fabric::open(attr, &self.params)
    }
}
