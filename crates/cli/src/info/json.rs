//! `fi_info --json`: everything, for machines. Names are those of the C headers.

use ripstop_core::hints::Request;
use ripstop_core::names::CNames;
use ripstop_core::params;
use ripstop_core::registry::Registry;
use ripstop_core::{Address, BusAttr, DomainAttr, EpAttr, Info, LinkState, Nic, RxAttr, TxAttr};
use ripstop_types::Version;
use serde_json::{Value, json};

use super::args::Args;
use super::why;

/// Prints one object: `interfaces`, `providers` with their reasons, and `parameters`.
pub(super) fn print(args: &Args, registry: &Registry, request: &Request<'_>, infos: &[Info]) {
    let mut object = json!({
        "version": ripstop_capi::RELEASE,
        "api_version": Version::CURRENT.to_string(),
        "interfaces": infos.iter().map(interface).collect::<Vec<_>>(),
    });
    if args.why {
        object["providers"] = answers(registry, request);
    }
    if args.shows_environment() {
        object["parameters"] = parameters(args.getenv.as_deref());
    }
    println!("{object:#}");
}

fn answers(registry: &Registry, request: &Request<'_>) -> Value {
    let answer = |(name, answer): (String, ripstop_core::registry::Answer)| {
        let reasons: Vec<Value> = why::counted(&answer)
            .into_iter()
            .map(|(reason, offers)| json!({ "reason": reason, "offers": offers }))
            .collect();
        json!({ "name": name, "matches": answer.infos.len(), "refusals": reasons })
    };
    registry.ask(request).into_iter().map(answer).collect()
}

fn parameters(part: Option<&str>) -> Value {
    let part = part.unwrap_or_default().to_ascii_uppercase();
    let listed = params().list().into_iter();
    listed
        .filter(|param| param.name.to_ascii_uppercase().contains(&part))
        .map(|param| {
            json!({
                "name": param.name,
                "type": format!("{:?}", param.kind).to_lowercase(),
                "help": param.help,
                "value": param.value,
            })
        })
        .collect()
}

fn interface(info: &Info) -> Value {
    json!({
        "caps": names(&info.caps),
        "mode": names(&info.mode),
        "addr_format": info.addr_format.c_names(),
        "src_addr": info.src_addr.as_ref().map(Address::to_string),
        "dest_addr": info.dest_addr.as_ref().map(Address::to_string),
        "tx_attr": tx_attr(&info.tx),
        "rx_attr": rx_attr(&info.rx),
        "ep_attr": ep_attr(&info.ep),
        "domain_attr": domain_attr(&info.domain),
        "fabric_attr": {
            "name": info.fabric.name,
            "prov_name": info.fabric.prov_name,
            "prov_version": Version(info.fabric.prov_version).to_string(),
            "api_version": info.fabric.api_version.to_string(),
        },
        "nic": info.nic.as_deref().map(nic),
    })
}

/// The names of the bits that are set.
fn names(bits: &impl CNames) -> Value {
    match bits.c_names().as_str() {
        "0" => json!([]),
        names => names.split('|').collect(),
    }
}

fn tx_attr(tx: &TxAttr) -> Value {
    json!({
        "caps": names(&tx.caps),
        "mode": names(&tx.mode),
        "op_flags": names(&tx.op_flags),
        "msg_order": names(&tx.msg_order),
        "inject_size": tx.inject_size,
        "size": tx.size,
        "iov_limit": tx.iov_limit,
        "rma_iov_limit": tx.rma_iov_limit,
        "tclass": tx.tclass,
    })
}

fn rx_attr(rx: &RxAttr) -> Value {
    json!({
        "caps": names(&rx.caps),
        "mode": names(&rx.mode),
        "op_flags": names(&rx.op_flags),
        "msg_order": names(&rx.msg_order),
        "size": rx.size,
        "iov_limit": rx.iov_limit,
    })
}

fn ep_attr(ep: &EpAttr) -> Value {
    json!({
        "type": ep.ep_type.c_names(),
        "protocol": ep.protocol.c_names(),
        "protocol_version": ep.protocol_version,
        "max_msg_size": ep.max_msg_size,
        "msg_prefix_size": ep.msg_prefix_size,
        "max_order_raw_size": ep.max_order_raw_size,
        "max_order_war_size": ep.max_order_war_size,
        "max_order_waw_size": ep.max_order_waw_size,
        "mem_tag_format": format!("{:#018x}", ep.mem_tag_format),
        "tx_ctx_cnt": contexts(ep.tx_ctx_cnt),
        "rx_ctx_cnt": contexts(ep.rx_ctx_cnt),
        "auth_key_size": ep.auth_key_size,
    })
}

/// A context count; the shared context is a name.
fn contexts(count: usize) -> Value {
    match count {
        ripstop_core::SHARED_CONTEXT => json!("FI_SHARED_CONTEXT"),
        count => json!(count),
    }
}

fn domain_attr(domain: &DomainAttr) -> Value {
    json!({
        "name": domain.name,
        "threading": domain.threading.c_names(),
        "control_progress": domain.control_progress.c_names(),
        "data_progress": domain.progress.c_names(),
        "resource_mgmt": domain.resource_mgmt.c_names(),
        "av_type": domain.av_type.c_names(),
        "mr_mode": names(&domain.mr_mode),
        "mr_key_size": domain.mr_key_size,
        "cq_data_size": domain.cq_data_size,
        "cq_cnt": domain.cq_cnt,
        "ep_cnt": domain.ep_cnt,
        "tx_ctx_cnt": domain.tx_ctx_cnt,
        "rx_ctx_cnt": domain.rx_ctx_cnt,
        "max_ep_tx_ctx": domain.max_ep_tx_ctx,
        "max_ep_rx_ctx": domain.max_ep_rx_ctx,
        "max_ep_stx_ctx": domain.max_ep_stx_ctx,
        "max_ep_srx_ctx": domain.max_ep_srx_ctx,
        "cntr_cnt": domain.cntr_cnt,
        "mr_iov_limit": domain.mr_iov_limit,
        "caps": names(&domain.caps),
        "mode": names(&domain.mode),
        "auth_key_size": domain.auth_key_size,
        "max_err_data": domain.max_err_data,
        "mr_cnt": domain.mr_cnt,
        "tclass": domain.tclass,
        "max_ep_auth_key": domain.max_ep_auth_key,
        "max_group_id": domain.max_group_id,
        "max_cntr_value": domain.max_cntr_value,
        "max_err_cntr_value": domain.max_err_cntr_value,
    })
}

fn nic(nic: &Nic) -> Value {
    let pci = match nic.bus {
        BusAttr::Unknown => Value::Null,
        BusAttr::Pci(pci) => json!({
            "domain_id": pci.domain,
            "bus_id": pci.bus,
            "device_id": pci.device,
            "function_id": pci.function,
        }),
    };
    let state = match nic.link.state {
        LinkState::Unknown => "FI_LINK_UNKNOWN",
        LinkState::Down => "FI_LINK_DOWN",
        LinkState::Up => "FI_LINK_UP",
    };
    json!({
        "device_attr": {
            "name": nic.device.name,
            "device_id": nic.device.device_id,
            "device_version": nic.device.device_version,
            "vendor_id": nic.device.vendor_id,
            "driver": nic.device.driver,
            "firmware": nic.device.firmware,
        },
        "pci_attr": pci,
        "link_attr": {
            "address": nic.link.address,
            "mtu": nic.link.mtu,
            "speed": nic.link.speed,
            "state": state,
            "network_type": nic.link.network_type,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_types::Flags;

    #[test]
    fn bits_are_lists_of_names() {
        assert_eq!(names(&Flags::empty()), json!([]));
        let unnamed = Flags::from_bits_retain(1 << 60);
        assert_eq!(
            names(&(Flags::MSG | Flags::TAGGED | unnamed)),
            json!(["FI_MSG", "FI_TAGGED", "0x1000000000000000"])
        );
    }

    #[test]
    fn an_interface_has_every_group() {
        let value = interface(&Info::default());
        for group in [
            "tx_attr",
            "rx_attr",
            "ep_attr",
            "domain_attr",
            "fabric_attr",
        ] {
            assert!(value[group].is_object(), "{group}");
        }
        assert_eq!(contexts(usize::MAX), json!("FI_SHARED_CONTEXT"));
    }
}
