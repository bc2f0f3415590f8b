//! `fi_info --json`: everything, for machines. Names are those of the C headers.

use ripstop_core::hints::Request;
use ripstop_core::names::CNames;
use ripstop_core::param::Param;
use ripstop_core::registry::Registry;
use ripstop_core::{Address, BusAttr, DomainAttr, EpAttr, Info, LinkState, Nic, RxAttr, TxAttr};
use ripstop_types::Version;
use serde_json::{Value, json};

use super::args::Args;
use super::{environment, long, why};
use crate::outln;

/// Prints one object: `interfaces`, `providers` with their reasons, and `parameters`.
pub(super) fn print(args: &Args, registry: &Registry, request: &Request<'_>, infos: &[Info]) {
    let mut object = json!({
        "version": ripstop_capi::RELEASE,
        "api_version": Version::CURRENT.to_string(),
        "interfaces": infos.iter().map(|info| listed(registry, info)).collect::<Vec<_>>(),
    });
    if args.why {
        object["providers"] = answers(registry, request);
    }
    if args.shows_environment() {
        let parameters = environment::listed(args.getenv.as_deref());
        object["parameters"] = parameters.map(parameter).collect();
    }
    outln!("{object:#}");
}

/// An interface, with what its provider says beside the attributes.
fn listed(registry: &Registry, info: &Info) -> Value {
    let mut object = interface(info);
    object["remarks"] = json!(long::remarks(registry, info));
    object
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

fn parameter(param: Param) -> Value {
    json!({
        "name": param.name,
        "type": format!("{:?}", param.kind).to_lowercase(),
        "help": param.help,
        "value": param.value,
        "has_effect": !param.is_unused,
    })
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

/// A JSON object of fields that have the names of the C struct: numbers and texts as they are,
/// enumerations by the names of their values, and bits as lists of names.
macro_rules! object {
    ($of:ident { $(values: $($value:ident),+;)? $(enums: $($enum:ident),+;)? $(bits: $($bits:ident),+;)? }) => {{
        let mut object = json!({});
        $($(object[stringify!($value)] = json!($of.$value);)+)?
        $($(object[stringify!($enum)] = json!($of.$enum.c_names());)+)?
        $($(object[stringify!($bits)] = names(&$of.$bits);)+)?
        object
    }};
}

fn tx_attr(tx: &TxAttr) -> Value {
    object!(tx {
        values: inject_size, size, iov_limit, rma_iov_limit, tclass;
        bits: caps, mode, op_flags, msg_order;
    })
}

fn rx_attr(rx: &RxAttr) -> Value {
    object!(rx {
        values: size, iov_limit;
        bits: caps, mode, op_flags, msg_order;
    })
}

fn ep_attr(ep: &EpAttr) -> Value {
    let mut object = object!(ep {
        values: protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
            max_order_war_size, max_order_waw_size, auth_key_size;
        enums: protocol;
    });
    object["type"] = json!(ep.ep_type.c_names());
    object["mem_tag_format"] = json!(format!("{:#018x}", ep.mem_tag_format));
    object["tx_ctx_cnt"] = contexts(ep.tx_ctx_cnt);
    object["rx_ctx_cnt"] = contexts(ep.rx_ctx_cnt);
    object
}

/// A context count; the shared context is a name.
fn contexts(count: usize) -> Value {
    match count {
        ripstop_core::SHARED_CONTEXT => json!("FI_SHARED_CONTEXT"),
        count => json!(count),
    }
}

fn domain_attr(domain: &DomainAttr) -> Value {
    let mut object = object!(domain {
        values: name, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt,
            max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit,
            auth_key_size, max_err_data, mr_cnt, tclass, max_ep_auth_key, max_group_id,
            max_cntr_value, max_err_cntr_value;
        enums: threading, control_progress, resource_mgmt, av_type;
        bits: mr_mode, caps, mode;
    });
    object["data_progress"] = json!(domain.progress.c_names());
    object
}

fn nic(nic: &Nic) -> Value {
    let Nic { device, link, .. } = nic;
    let pci = match nic.bus {
        BusAttr::Unknown => Value::Null,
        BusAttr::Pci(pci) => json!({
            "domain_id": pci.domain,
            "bus_id": pci.bus,
            "device_id": pci.device,
            "function_id": pci.function,
        }),
    };
    let state = match link.state {
        LinkState::Unknown => "FI_LINK_UNKNOWN",
        LinkState::Down => "FI_LINK_DOWN",
        LinkState::Up => "FI_LINK_UP",
    };
    let mut link = object!(link { values: address, mtu, speed, network_type; });
    link["state"] = json!(state);
    json!({
        "device_attr": object!(device {
            values: name, device_id, device_version, vendor_id, driver, firmware;
        }),
        "pci_attr": pci,
        "link_attr": link,
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
