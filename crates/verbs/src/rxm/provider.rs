//! The provider named `verbs;ofi_rxm`.

use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Info, provider};
use ripstop_ibverbs::{available, has_devices};
use ripstop_stream::Fabric;
use ripstop_stream::attr::{apply_defaults, packet_offer, provider_version};
use ripstop_types::{Errno, Flags, MrMode, MsgOrder, Result, Version, flags};

use crate::answer;
use crate::devices::Device;
use crate::rxm::NAME;
use crate::rxm::params::Params;
use crate::rxm::transport::RxmVerbs;

/// The provider named `verbs;ofi_rxm`.
#[derive(Debug)]
pub struct RxmVerbsProvider {
    params: Arc<Params>,
}

impl Default for RxmVerbsProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl RxmVerbsProvider {
    /// Reads the parameters of packets (`FI_OFI_RXM_*`, `FI_RIPSTOP_RXM_*`) and of devices (`FI_VERBS_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
        }
    }

    fn offer(&self, device: &Device) -> Info {
        let ops = flags![MSG TAGGED RMA ATOMIC TRIGGER];
        let rx = flags![RECV MULTI_RECV REMOTE_READ REMOTE_WRITE];
        let mut info = packet_offer::<RxmVerbs>((*self.params).as_ref(), ops, rx);
        // The peer's device reads and writes at once, its program carries out atomics when it comes to that.
        let mixed = MsgOrder::RAR | MsgOrder::RAW | MsgOrder::WAW;
        info.tx.msg_order -= mixed;
        info.rx.msg_order -= mixed;
        info.tx.op_flags -= Flags::COMMIT_COMPLETE;
        info.domain.mr_mode =
            MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY | MrMode::BASIC;
        info.domain.mr_key_size = size_of::<u32>();
        info.domain.mr_iov_limit = 1;
        info.domain.cq_data_size = size_of::<u32>();
        info.domain.name = Some(device.name.clone());
        info.fabric.name = Some(device.fabric.clone());
        info.nic = Some(Arc::clone(&device.nic));
        info
    }
}

impl ProviderInfo for RxmVerbsProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    /// Where there is no device, only who names it wants to know why.
    fn is_by_name_only(&self) -> bool {
        !has_devices()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        if let Err(missing) = available() {
            return Refusal::Failed(Errno::ENOSYS, missing.to_string()).into();
        }
        let devices = match self.params.devices(request.flags.contains(Flags::RESCAN)) {
            Ok(devices) if !devices.is_empty() => devices,
            Ok(_) => return answer::none().into(),
            Err(error) => return answer::unreadable(error).into(),
        };
        let mut answer = answer::of_devices(&devices, request, |device| self.offer(device));
        for info in &mut answer.infos {
            apply_defaults(info, (*self.params).as_ref(), request.hints);
            self.params.rxm.apply(info, request.hints);
        }
        answer
    }
}

impl provider::Provider for RxmVerbsProvider {
    type Fabric = Fabric<RxmVerbs>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<RxmVerbs>>> {
        Ok(Arc::new(Fabric::new(
            attr.clone(),
            Arc::clone(&self.params),
        )))
    }
}
