//! What `fi_getinfo` answers for a list of devices, of either provider.

use ripstop_core::Info;
use ripstop_core::hints::Request;
use ripstop_core::ip::answers;
use ripstop_core::registry::{Answer, Refusal};
use ripstop_ibverbs::has_devices;
use ripstop_types::Errno;

use crate::devices::Device;

/// Why no device is offered.
pub(crate) fn none() -> Refusal {
    let why = match has_devices() {
        true => {
            "no RDMA device can be used: look at the state of their ports (ibv_devinfo, rdma link), at \
             FI_VERBS_DEVICE_NAME, and at FI_LOG_LEVEL=info for the reasons"
        }
        false => {
            "the kernel has no RDMA device (/sys/class/infiniband_verbs is empty): load its driver and \
             ib_uverbs; rdma link add NAME type rxe netdev INTERFACE makes one of a network card"
        }
    };
    Refusal::Failed(Errno::ENODEV, why.to_owned())
}

/// Why devices are not known.
pub(crate) fn unreadable(error: Errno) -> Refusal {
    let why = "the RDMA devices of this machine cannot be read".to_owned();
    Refusal::Failed(error, why)
}

/// What is offered of each device, with its addresses as sources.
pub(crate) fn of_devices<D: AsRef<Device>>(
    devices: &[D],
    request: &Request<'_>,
    offer: impl Fn(&Device) -> Info,
) -> Answer {
    let mut answer = Answer::default();
    for device in devices.iter().map(AsRef::as_ref) {
        match answers(request, &offer(device), &device.addresses) {
            Ok(infos) => {
                let (own, others): (Vec<_>, Vec<_>) =
                    infos.into_iter().partition(|info| is_from(device, info));
                answer.infos.extend(own);
                let others = others.iter().map(|info| strange(device, info));
                answer.refusals.extend(others);
            }
            Err(why) => answer.refusals.push(why.into()),
        }
    }
    answer
}

/// Whether an answer's source is an address of the device, or any address.
fn is_from(device: &Device, info: &Info) -> bool {
    let source = info.src_addr.as_ref().and_then(|addr| addr.ip());
    source.is_none_or(|source| {
        let ip = source.ip();
        ip.is_unspecified() || device.addresses.iter().any(|local| local.addr.ip() == ip)
    })
}

/// The peer is not reached by the device, or the source is none of its addresses.
fn strange(device: &Device, info: &Info) -> Refusal {
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
