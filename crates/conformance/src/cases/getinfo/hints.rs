//! Each attribute of the hints: what fits is echoed, what does not fit finds nothing.

use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Threading, Version,
};

use super::{all_answers, ask, ask_hints, best, domain, ep, fabric, no_answer, rx, tx};
use crate::case::{Cx, Outcome, Stop, cases, refused};
use crate::ensure;

cases! {
    pub(super) const CASES;
    fi_getinfo {
        both caps: "each offered capability can be asked for alone";
        both caps_only_asked: "primary capabilities are only those asked for";
        both caps_unknown: "a capability nobody has finds nothing";
        both caps_directions: "FI_SEND or FI_RECV alone restricts the other side";
        both caps_of_contexts: "contexts have no capability the interface lacks";
        both comm_scope: "FI_LOCAL_COMM and FI_REMOTE_COMM can be asked for";
        both mode: "no answer needs a mode that was not offered";
        both addr_format: "an address format that fits is echoed, another finds nothing";
        both ep_type: "only endpoints of the type asked for";
        both protocol: "the protocol is matched";
        both max_msg_size: "the message size asked for is offered";
        both inject_size: "an inject size up to the offer fits, one more does not";
        both queue_sizes: "queue sizes are at least those asked, absurd ones find nothing";
        both iov_limit: "an iov_limit up to the offer fits, one more does not";
        both msg_order: "send-after-send order is offered and echoed";
        both tx_op_flags: "each completion level can be the default";
        both op_flags_unknown: "an operation flag nobody has finds nothing";
        both ctx_cnt: "one context fits, a million do not";
        msg shared_rx: "a shared receive context can be asked for";
        rdm mem_tag_format: "the tag format leaves the bits asked for";
        both domain_name: "a domain is found by name, a wrong name finds nothing";
        both fabric_name: "a fabric is found by name, a wrong name finds nothing";
        both prov_name: "an unknown provider finds nothing";
        both prov_version: "a provider version newer than the offer finds nothing";
        both threading: "every threading level a caller can promise is echoed";
        both progress: "both progress models are offered and echoed";
        both resource_mgmt: "both kinds of resource management can be asked for";
        both av_type: "both types of address vector can be asked for";
        both cq_data_size: "4 and 8 bytes of CQ data fit, more than offered does not";
        both mr_key_size: "a key size above the offer finds nothing";
        both mr_mode: "no answer needs a registration mode that was not offered";
        both mr_mode_old: "before 1.5, FI_MR_BASIC and FI_MR_SCALABLE are understood";
    }
}

/// Capabilities a provider must not add when others were asked for.
const PRIMARY: Flags = Flags::MSG
    .union(Flags::RMA)
    .union(Flags::TAGGED)
    .union(Flags::ATOMIC)
    .union(Flags::MULTICAST)
    .union(Flags::NAMED_RX_CTX)
    .union(Flags::DIRECTED_RECV)
    .union(Flags::HMEM)
    .union(Flags::COLLECTIVE);

fn caps(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.caps;
    let message = offered & (Flags::MSG | Flags::TAGGED);
    for primary in message.iter() {
        all_answers(
            cx,
            &format!("{primary:?}"),
            |h| h.caps = primary,
            |i| i.caps.contains(primary),
        )?;
    }
    let modifiers = Flags::MULTI_RECV | Flags::SOURCE | Flags::DIRECTED_RECV;
    for modifier in (offered & modifiers).iter() {
        let asked = Flags::MSG | modifier;
        all_answers(
            cx,
            &format!("{asked:?}"),
            |h| h.caps = asked,
            |i| i.caps.contains(asked),
        )?;
    }
    Ok(())
}

fn caps_only_asked(cx: &Cx<'_>) -> Outcome {
    all_answers(
        cx,
        "FI_MSG alone",
        |h| h.caps = Flags::MSG,
        |i| i.caps & PRIMARY == Flags::MSG,
    )
}

fn caps_unknown(cx: &Cx<'_>) -> Outcome {
    let unknown = Flags::from_bits_retain(1 << 60);
    no_answer(cx, "capability bit 60", |h| h.caps = Flags::MSG | unknown)
}

fn caps_directions(cx: &Cx<'_>) -> Outcome {
    all_answers(
        cx,
        "FI_MSG and FI_SEND",
        |h| h.caps = Flags::MSG | Flags::SEND,
        |i| i.tx.caps.contains(Flags::SEND) && !i.rx.caps.contains(Flags::RECV),
    )?;
    all_answers(
        cx,
        "FI_MSG and FI_RECV",
        |h| h.caps = Flags::MSG | Flags::RECV,
        |i| i.rx.caps.contains(Flags::RECV) && !i.tx.caps.contains(Flags::SEND),
    )?;
    all_answers(
        cx,
        "FI_MSG without a direction",
        |h| h.caps = Flags::MSG,
        |i| i.caps.contains(Flags::SEND | Flags::RECV),
    )
}

fn caps_of_contexts(cx: &Cx<'_>) -> Outcome {
    for caps in [Flags::empty(), Flags::MSG] {
        all_answers(
            cx,
            &format!("{caps:?}"),
            |h| h.caps = caps,
            |i| i.caps.contains(i.tx.caps) && i.caps.contains(i.rx.caps),
        )?;
    }
    Ok(())
}

fn comm_scope(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.caps & (Flags::LOCAL_COMM | Flags::REMOTE_COMM);
    ensure!(
        offered.contains(Flags::LOCAL_COMM),
        "no FI_LOCAL_COMM in {offered:?}"
    );
    let asked = Flags::MSG | offered;
    all_answers(
        cx,
        &format!("{asked:?}"),
        |h| h.caps = asked,
        |i| i.caps.contains(asked),
    )
}

fn mode(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    for offered in [Mode::empty(), Mode::CONTEXT, Mode::all()] {
        match ask_hints(cx, |h| h.mode = offered) {
            Ok(infos) => {
                let all = infos.iter().map(|i| i.mode | i.tx.mode | i.rx.mode);
                for needed in all {
                    ensure!(
                        offered.contains(needed),
                        "{needed:?} needed, {offered:?} offered"
                    );
                }
            }
            Err(e) if e.is(Errno::ENODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn addr_format(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.addr_format;
    all_answers(
        cx,
        &format!("{offered:?}"),
        |h| h.addr_format = offered,
        |i| i.addr_format == offered,
    )?;
    for other in [AddrFormat::Str, AddrFormat::SockaddrIb, AddrFormat::IbUd] {
        if other != offered {
            no_answer(cx, &format!("{other:?}"), |h| h.addr_format = other)?;
        }
    }
    Ok(())
}

fn ep_type(cx: &Cx<'_>) -> Outcome {
    for ep_type in [EpType::Msg, EpType::Rdm, EpType::Dgram] {
        match ask_hints(cx, |h| ep(h).ep_type = ep_type) {
            Ok(infos) => {
                let other = infos.iter().find(|i| i.ep.ep_type != ep_type);
                ensure!(
                    other.is_none(),
                    "{ep_type:?} asked, {:?}",
                    other.map(|i| i.ep.ep_type)
                );
            }
            Err(e) if e.is(Errno::ENODATA) && ep_type != cx.ep_type => {}
            Err(e) if e.is(Errno::ENODATA) => {
                return Err(Stop::not_offered("no such endpoints"));
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn protocol(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.ep.protocol;
    ensure!(offered != Protocol::Unspec, "no protocol in the answer");
    all_answers(
        cx,
        &format!("{offered:?}"),
        |h| ep(h).protocol = offered,
        |i| i.ep.protocol == offered,
    )?;
    no_answer(cx, "FI_PROTO_RDMA_CM_IB_RC", |h| {
        ep(h).protocol = Protocol::RdmaCmIbRc
    })?;
    no_answer(cx, "a protocol version of 1000", |h| {
        ep(h).protocol_version = 1000
    })
}

fn max_msg_size(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.ep.max_msg_size;
    for size in [1, 65_536, offered] {
        if size <= offered {
            all_answers(
                cx,
                &format!("max_msg_size {size}"),
                |h| ep(h).max_msg_size = size,
                |i| i.ep.max_msg_size >= size,
            )?;
        }
    }
    match offered.checked_add(1) {
        Some(more) => no_answer(cx, "a larger message", |h| ep(h).max_msg_size = more),
        None => Ok(()),
    }
}

fn inject_size(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.tx.inject_size;
    ensure!(offered >= 16, "inject_size is {offered}; consumers need 16");
    for size in [1, 16, offered] {
        all_answers(
            cx,
            &format!("inject_size {size}"),
            |h| tx(h).inject_size = size,
            |i| i.tx.inject_size >= size,
        )?;
    }
    no_answer(cx, "a larger inject_size", |h| {
        tx(h).inject_size = offered + 1
    })
}

fn queue_sizes(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    for size in [1, 16, 512] {
        let what = format!("queues of {size}");
        all_answers(cx, &what, |h| tx(h).size = size, |i| i.tx.size >= size)?;
        all_answers(cx, &what, |h| rx(h).size = size, |i| i.rx.size >= size)?;
    }
    let absurd = usize::MAX / 2;
    no_answer(cx, "an absurd transmit queue", |h| tx(h).size = absurd)?;
    no_answer(cx, "an absurd receive queue", |h| rx(h).size = absurd)
}

fn iov_limit(cx: &Cx<'_>) -> Outcome {
    let best = best(cx)?;
    let (t, r) = (best.tx.iov_limit, best.rx.iov_limit);
    all_answers(
        cx,
        "transmit iov_limit",
        |h| tx(h).iov_limit = t,
        |i| i.tx.iov_limit >= t,
    )?;
    all_answers(
        cx,
        "receive iov_limit",
        |h| rx(h).iov_limit = r,
        |i| i.rx.iov_limit >= r,
    )?;
    no_answer(cx, "a larger transmit iov_limit", |h| {
        tx(h).iov_limit = t + 1
    })?;
    no_answer(cx, "a larger receive iov_limit", |h| {
        rx(h).iov_limit = r + 1
    })
}

fn msg_order(cx: &Cx<'_>) -> Outcome {
    let sas = MsgOrder::SAS;
    all_answers(
        cx,
        "FI_ORDER_SAS",
        |h| {
            tx(h).msg_order = sas;
            rx(h).msg_order = sas;
        },
        |i| i.tx.msg_order.contains(sas) && i.rx.msg_order.contains(sas),
    )?;
    // Any order: what is answered has what was asked.
    for order in MsgOrder::all().iter() {
        match ask_hints(cx, |h| tx(h).msg_order = order) {
            Ok(infos) => {
                let lacks = infos.iter().find(|i| !i.tx.msg_order.contains(order));
                ensure!(
                    lacks.is_none(),
                    "{order:?} asked, {:?}",
                    lacks.map(|i| i.tx.msg_order)
                );
            }
            Err(e) if e.is(Errno::ENODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn tx_op_flags(cx: &Cx<'_>) -> Outcome {
    for flag in [
        Flags::COMPLETION,
        Flags::INJECT_COMPLETE,
        Flags::TRANSMIT_COMPLETE,
        Flags::DELIVERY_COMPLETE,
        Flags::DELIVERY_COMPLETE | Flags::COMPLETION,
    ] {
        all_answers(
            cx,
            &format!("{flag:?}"),
            |h| tx(h).op_flags = flag,
            |i| i.tx.op_flags == flag,
        )?;
    }
    all_answers(
        cx,
        "FI_COMPLETION of receives",
        |h| rx(h).op_flags = Flags::COMPLETION,
        |i| i.rx.op_flags == Flags::COMPLETION,
    )
}

fn op_flags_unknown(cx: &Cx<'_>) -> Outcome {
    let unknown = Flags::from_bits_retain(1 << 60);
    no_answer(cx, "transmit flag bit 60", |h| tx(h).op_flags = unknown)?;
    no_answer(cx, "receive flag bit 60", |h| rx(h).op_flags = unknown)
}

fn ctx_cnt(cx: &Cx<'_>) -> Outcome {
    all_answers(
        cx,
        "one context each",
        |h| {
            ep(h).tx_ctx_cnt = 1;
            ep(h).rx_ctx_cnt = 1;
        },
        |i| i.ep.tx_ctx_cnt == 1 && i.ep.rx_ctx_cnt == 1,
    )?;
    no_answer(cx, "a million transmit contexts", |h| {
        ep(h).tx_ctx_cnt = 1_000_000
    })?;
    no_answer(cx, "a million receive contexts", |h| {
        ep(h).rx_ctx_cnt = 1_000_000
    })
}

fn shared_rx(cx: &Cx<'_>) -> Outcome {
    let shared = ripstop_core::SHARED_CONTEXT;
    all_answers(
        cx,
        "a shared receive context",
        |h| {
            h.caps = Flags::MSG;
            ep(h).rx_ctx_cnt = shared;
        },
        |i| i.ep.rx_ctx_cnt == shared,
    )
}

fn mem_tag_format(cx: &Cx<'_>) -> Outcome {
    if !best(cx)?.caps.contains(Flags::TAGGED) {
        return Err(Stop::not_offered("no FI_TAGGED"));
    }
    for format in [u64::MAX, 0xffff_ffff, 0xaaaa_aaaa_aaaa_aaaa] {
        let bits = 64 - format.leading_zeros();
        all_answers(
            cx,
            &format!("mem_tag_format {format:#x}"),
            |h| {
                h.caps = Flags::TAGGED;
                ep(h).mem_tag_format = format;
            },
            |i| 64 - i.ep.mem_tag_format.leading_zeros() >= bits,
        )?;
    }
    Ok(())
}

fn domain_name(cx: &Cx<'_>) -> Outcome {
    let name = best(cx)?.domain.name;
    all_answers(
        cx,
        &format!("domain {name:?}"),
        |h| domain(h).name.clone_from(&name),
        |i| i.domain.name == name,
    )?;
    no_answer(cx, "domain nonesuch", |h| {
        domain(h).name = Some("nonesuch".to_owned());
    })
}

fn fabric_name(cx: &Cx<'_>) -> Outcome {
    let name = best(cx)?.fabric.name;
    all_answers(
        cx,
        &format!("fabric {name:?}"),
        |h| fabric(h).name.clone_from(&name),
        |i| i.fabric.name == name,
    )?;
    no_answer(cx, "fabric nonesuch", |h| {
        fabric(h).name = Some("nonesuch".to_owned());
    })
}

fn prov_name(cx: &Cx<'_>) -> Outcome {
    for name in ["nonesuch", "tcpx", "tc"] {
        no_answer(cx, name, |h| fabric(h).prov_name = Some(name.to_owned()))?;
    }
    Ok(())
}

fn prov_version(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.fabric.prov_version;
    ensure!(offered != 0, "the provider has no version");
    no_answer(cx, "a newer provider", |h| {
        fabric(h).prov_version = offered.saturating_add(1 << 16);
    })
}

fn threading(cx: &Cx<'_>) -> Outcome {
    for level in [Threading::Safe, Threading::Completion, Threading::Domain] {
        all_answers(
            cx,
            &format!("{level:?}"),
            |h| domain(h).threading = level,
            |i| i.domain.threading == level,
        )?;
    }
    all_answers(
        cx,
        "no threading level",
        |h| domain(h).threading = Threading::Unspec,
        |i| i.domain.threading != Threading::Unspec,
    )
}

fn progress(cx: &Cx<'_>) -> Outcome {
    for model in [Progress::Auto, Progress::Manual] {
        all_answers(
            cx,
            &format!("{model:?}"),
            |h| {
                domain(h).progress = model;
                domain(h).control_progress = model;
            },
            |i| i.domain.progress == model && i.domain.control_progress == model,
        )?;
    }
    all_answers(
        cx,
        "no progress model",
        |h| {
            domain(h).progress = Progress::Unspec;
            domain(h).control_progress = Progress::Unspec;
        },
        |i| match i.fabric.prov_name.as_deref() {
            // As from C's, a program that does not ask for a thread gets none.
            Some(name) if name.ends_with(";ofi_rxm") => i.domain.progress == Progress::Manual,
            _ => i.domain.progress != Progress::Unspec,
        },
    )
}

fn resource_mgmt(cx: &Cx<'_>) -> Outcome {
    for asked in [ResourceMgmt::Enabled, ResourceMgmt::Disabled] {
        all_answers(
            cx,
            &format!("{asked:?}"),
            |h| domain(h).resource_mgmt = asked,
            |i| i.domain.resource_mgmt == asked || i.domain.resource_mgmt == ResourceMgmt::Enabled,
        )?;
    }
    Ok(())
}

fn av_type(cx: &Cx<'_>) -> Outcome {
    for asked in [AvType::Map, AvType::Table] {
        all_answers(
            cx,
            &format!("{asked:?}"),
            |h| domain(h).av_type = asked,
            |i| i.domain.av_type == asked,
        )?;
    }
    Ok(())
}

fn cq_data_size(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.domain.cq_data_size;
    ensure!(offered >= 4, "cq_data_size is {offered}; consumers need 4");
    for size in [4, offered] {
        all_answers(
            cx,
            &format!("cq_data_size {size}"),
            |h| domain(h).cq_data_size = size,
            |i| i.domain.cq_data_size >= size,
        )?;
    }
    no_answer(cx, "more CQ data", |h| domain(h).cq_data_size = offered + 1)
}

fn mr_key_size(cx: &Cx<'_>) -> Outcome {
    let offered = best(cx)?.domain.mr_key_size;
    if offered == 0 {
        return Err(Stop::not_offered("no memory keys"));
    }
    all_answers(
        cx,
        "the offered key size",
        |h| domain(h).mr_key_size = offered,
        |i| i.domain.mr_key_size >= offered,
    )?;
    no_answer(cx, "a larger key", |h| domain(h).mr_key_size = offered + 1)
}

fn mr_mode(cx: &Cx<'_>) -> Outcome {
    let basic = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
    for offered in [
        MrMode::empty(),
        basic,
        basic | MrMode::LOCAL | MrMode::ENDPOINT,
    ] {
        // With messages only, every caller can be served.
        all_answers(
            cx,
            &format!("{offered:?}"),
            |h| {
                h.caps = Flags::MSG;
                domain(h).mr_mode = offered;
            },
            |i| offered.contains(i.domain.mr_mode),
        )?;
    }
    Ok(())
}

fn mr_mode_old(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    for mode in [MrMode::BASIC, MrMode::SCALABLE] {
        let infos = ask(cx, |q| {
            q.version = Some(Version::new(1, 4));
            if let Some(hints) = &mut q.hints {
                hints.caps = Flags::MSG;
                domain(hints).mr_mode = mode;
            }
        });
        match infos {
            Ok(infos) => {
                let other = infos.iter().find(|i| i.domain.mr_mode != mode);
                ensure!(
                    other.is_none(),
                    "{mode:?} asked, {:?}",
                    other.map(|i| i.domain.mr_mode)
                );
            }
            Err(e) => return refused::<()>(Err(e), &[], &format!("{mode:?} before 1.5")),
        }
    }
    Ok(())
}
