//! The provider named `verbs`.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::hints::Request;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, provider};
use ripstop_ibverbs::{available, has_devices};
use ripstop_types::{Errno, Flags, Result, Version};

use crate::answer;
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
            let all = devices::find(&self.params).map_err(answer::unreadable)?;
            *found = all.into_iter().map(Arc::new).collect();
        }
        match found.is_empty() {
            true => Err(answer::none()),
            false => Ok(found.clone()),
        }
    }
}

/// Whether a request names this provider.
fn is_named(request: &Request<'_>) -> bool {
    let fabric = request.hints.and_then(|hints| hints.fabric.as_ref());
    let name = fabric.and_then(|fabric| fabric.prov_name.as_deref());
    name.is_some_and(|name| name.to_ascii_lowercase().contains(NAME))
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
        let offer = |device: &Device| offer(device, &self.params, request.hints);
        let mut answer = answer::of_devices(&devices, request, offer);
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

impl provider::Provider for VerbsProvider {
    type Fabric = Fabric;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric>> {
        Fabric::open(attr, &self.params)
    }
}
