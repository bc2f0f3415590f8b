//! What programs that load the library ask for: without an answer, or with one that does not
//! echo their choices, they do not use the provider. RMA and atomics are left out where the
//! program can do without them.

use ripstop_core::{Hints, Info};
use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Threading, Version,
};

use super::super::has_network;
use super::{best, domain, ep, fabric, listed_unnamed, rx, tx};
use crate::case::{Cx, Outcome, Step, Stop, cases};
use crate::ensure;
use crate::rig::of_provider;
use crate::subject::Query;

cases! {
    pub(super) const CASES;
    fi_getinfo {
        rdm for_mpich: "MPICH finds the provider without hints and gets what it asks for";
        rdm for_open_mpi: "Open MPI's message layer gets tags, order and contexts";
        rdm for_mercury: "Mercury gets its table's protocol and address format";
        rdm for_sos: "Sandia OpenSHMEM's limits are met";
        rdm for_nccl: "the NCCL plugin's send and receive transport is served";
        rdm for_nixl: "NIXL's discovery finds a domain";
        rdm for_oneccl: "oneCCL gets tagged messages with manual progress";
        rdm for_lci: "LCI's sizes are met";
    }
}

/// Asks as a program does, without the suite's own hints.
fn as_program(cx: &Cx<'_>, version: Version, change: impl FnOnce(&mut Hints)) -> Step<Vec<Info>> {
    let here = best(cx)?;
    let mut hints = Hints { ..Hints::default() };
    ep(&mut hints).ep_type = EpType::Rdm;
    fabric(&mut hints).prov_name = Some(cx.setup.provider.clone());
    change(&mut hints);
    let query = Query {
        version: Some(version.min(cx.s.about().version)),
        hints: Some(hints),
        ..Query::default()
    };
    let remote = query
        .hints
        .as_ref()
        .is_some_and(|h| h.caps.contains(Flags::REMOTE_COMM));
    if remote && here.addr_format == AddrFormat::Str {
        return Err(Stop::not_offered("it reaches no other machine"));
    }
    of_provider(cx, cx.s.getinfo(&query)).map_err(|error| match error.is(Errno::ENODATA) {
        true if remote && !has_network() => Stop::not_here("this machine has no network"),
        _ => error.into(),
    })
}

fn for_mpich(cx: &Cx<'_>) -> Outcome {
    listed_unnamed(cx)?;
    let version = cx.s.about().version.min(Version::CURRENT);
    let caps = Flags::TAGGED
        | Flags::MSG
        | Flags::MULTI_RECV
        | Flags::DIRECTED_RECV
        | Flags::SEND
        | Flags::RECV;
    // First a list without hints, of which it scores each.
    let listed = cx.s.getinfo(&Query {
        version: Some(version),
        ..Query::default()
    })?;
    let usable = listed.iter().any(|i| {
        i.prov_name() == cx.setup.provider && i.ep.ep_type == EpType::Rdm && i.caps.contains(caps)
    });
    ensure!(
        usable,
        "no listed entry of {} has {caps:?}",
        cx.setup.provider
    );

    let infos = as_program(cx, version, |h| {
        h.caps = caps;
        h.mode = Mode::CONTEXT | Mode::ASYNC_IOV | Mode::RX_CQ_DATA | Mode::CONTEXT2;
        domain(h).threading = Threading::Domain;
        domain(h).control_progress = Progress::Manual;
        domain(h).progress = Progress::Manual;
        domain(h).resource_mgmt = ResourceMgmt::Enabled;
        domain(h).av_type = AvType::Table;
        domain(h).mr_mode = MrMode::ENDPOINT;
        domain(h).cq_data_size = 4;
        tx(h).op_flags = Flags::COMPLETION | Flags::DELIVERY_COMPLETE;
        tx(h).msg_order = MsgOrder::SAS;
        rx(h).op_flags = Flags::COMPLETION;
        rx(h).msg_order = MsgOrder::SAS;
    })?;
    for i in infos {
        ensure!(
            i.domain.threading == Threading::Domain,
            "threading {:?}",
            i.domain.threading
        );
        ensure!(
            i.domain.progress == Progress::Manual,
            "progress {:?}",
            i.domain.progress
        );
        ensure!(
            i.domain.control_progress == Progress::Manual,
            "control {:?}",
            i.domain
        );
        ensure!(
            i.domain.av_type == AvType::Table,
            "av_type {:?}",
            i.domain.av_type
        );
        ensure!(i.caps.contains(caps), "caps {:?}", i.caps);
        ensure!(
            i.domain.cq_data_size >= 4,
            "cq_data_size {}",
            i.domain.cq_data_size
        );
        ensure!(i.tx.iov_limit >= 1 && i.rx.iov_limit >= 1, "iov limits");
    }
    Ok(())
}

fn for_open_mpi(cx: &Cx<'_>) -> Outcome {
    let caps =
        Flags::MSG | Flags::TAGGED | Flags::LOCAL_COMM | Flags::REMOTE_COMM | Flags::DIRECTED_RECV;
    for version in [Version::new(1, 18), Version::new(1, 9)] {
        for threading in [Threading::Domain, Threading::Safe] {
            let infos = as_program(cx, version, |h| {
                h.caps = caps;
                h.mode = Mode::CONTEXT | Mode::CONTEXT2;
                domain(h).threading = threading;
                domain(h).resource_mgmt = ResourceMgmt::Enabled;
                domain(h).av_type = AvType::Map;
                domain(h).cq_data_size = 4;
                tx(h).msg_order = MsgOrder::SAS;
                rx(h).msg_order = MsgOrder::SAS;
            })?;
            for i in infos {
                ensure!(i.caps.contains(caps), "caps {:?}", i.caps);
                ensure!(
                    i.domain.cq_data_size >= 4,
                    "cq_data_size {}",
                    i.domain.cq_data_size
                );
                ensure!(
                    i.ep.mem_tag_format.leading_zeros() == 0,
                    "tags are not of 64 bits"
                );
                ensure!(
                    i.tx.msg_order.contains(MsgOrder::SAS),
                    "order {:?}",
                    i.tx.msg_order
                );
            }
        }
    }
    Ok(())
}

fn for_mercury(cx: &Cx<'_>) -> Outcome {
    let caps = Flags::MSG | Flags::TAGGED | Flags::DIRECTED_RECV | Flags::MULTI_RECV;
    let on_machine = best(cx)?.addr_format == AddrFormat::Str;
    for version in [Version::new(1, 20), Version::new(1, 13), Version::new(1, 9)] {
        let infos = as_program(cx, version, |h| {
            h.caps = caps;
            h.mode = Mode::ASYNC_IOV | Mode::CONTEXT;
            domain(h).threading = Threading::Safe;
            domain(h).control_progress = Progress::Manual;
            domain(h).progress = Progress::Manual;
            domain(h).resource_mgmt = ResourceMgmt::Enabled;
            domain(h).av_type = AvType::Unspec;
            domain(h).cq_data_size = 4;
            domain(h).mr_mode = MrMode::VIRT_ADDR
                | MrMode::ALLOCATED
                | MrMode::PROV_KEY
                | MrMode::LOCAL
                | MrMode::ENDPOINT;
            tx(h).op_flags = Flags::INJECT_COMPLETE;
            tx(h).size = 512;
            rx(h).size = 512;
            h.addr_format = match on_machine {
                true => AddrFormat::Str,
                false => AddrFormat::SockaddrIn,
            };
        })?;
        for i in infos {
            let expected = match cx.setup.provider.as_str() {
                "tcp" => Protocol::Xnet,
                "tcp;ofi_rxm" => Protocol::Rxm,
                "shm" => Protocol::Shm,
                _ => i.ep.protocol,
            };
            ensure!(i.ep.protocol == expected, "protocol {:?}", i.ep.protocol);
            let name = i.domain.name.clone().unwrap_or_default();
            ensure!(
                !name.is_empty() && name != "tcp",
                "the domain {name:?} is no interface"
            );
            ensure!(
                i.domain.threading == Threading::Safe,
                "threading {:?}",
                i.domain.threading
            );
            ensure!(
                i.tx.size >= 512 && i.rx.size >= 512,
                "queues of {} and {}",
                i.tx.size,
                i.rx.size
            );
        }
    }
    Ok(())
}

fn for_sos(cx: &Cx<'_>) -> Outcome {
    let infos = as_program(cx, Version::new(1, 20), |h| {
        h.caps = Flags::MSG;
        domain(h).threading = Threading::Domain;
        domain(h).progress = Progress::Auto;
        domain(h).resource_mgmt = ResourceMgmt::Enabled;
        domain(h).av_type = AvType::Map;
        tx(h).op_flags = Flags::DELIVERY_COMPLETE;
        tx(h).inject_size = 16;
    })?;
    for i in infos {
        ensure!(i.mode.is_empty(), "mode {:?} with none offered", i.mode);
        ensure!(i.tx.inject_size >= 16, "inject_size {}", i.tx.inject_size);
        ensure!(
            i.domain.progress == Progress::Auto,
            "progress {:?}",
            i.domain.progress
        );
    }
    Ok(())
}

fn for_nccl(cx: &Cx<'_>) -> Outcome {
    let caps = Flags::TAGGED | Flags::MSG | Flags::LOCAL_COMM | Flags::REMOTE_COMM;
    for version in [Version::new(1, 20), Version::new(1, 18), Version::new(1, 6)] {
        let infos = as_program(cx, version, |h| {
            h.caps = caps;
            h.mode = Mode::CONTEXT | Mode::CONTEXT2;
            domain(h).threading = Threading::Safe;
            domain(h).av_type = AvType::Table;
            domain(h).mr_mode = MrMode::LOCAL
                | MrMode::ENDPOINT
                | MrMode::VIRT_ADDR
                | MrMode::ALLOCATED
                | MrMode::PROV_KEY;
            tx(h).msg_order = MsgOrder::SAS;
            rx(h).msg_order = MsgOrder::SAS;
        })?;
        ensure!(
            infos.iter().all(|i| i.caps.contains(caps)),
            "caps {caps:?} not echoed"
        );
    }
    Ok(())
}

fn for_nixl(cx: &Cx<'_>) -> Outcome {
    let caps = Flags::MSG | Flags::LOCAL_COMM | Flags::REMOTE_COMM;
    let infos = as_program(cx, Version::new(1, 18), |h| {
        h.caps = caps;
        h.mode = Mode::CONTEXT;
        domain(h).mr_mode = MrMode::from_bits_retain(!3);
        domain(h).threading = Threading::Completion;
    })?;
    for i in infos {
        ensure!(i.caps.contains(caps), "caps {:?}", i.caps);
        let app_keys = !i.domain.mr_mode.contains(MrMode::PROV_KEY);
        ensure!(
            cx.setup.provider != "tcp" || app_keys,
            "mr_mode {:?}",
            i.domain.mr_mode
        );
    }
    Ok(())
}

fn for_oneccl(cx: &Cx<'_>) -> Outcome {
    let version = cx.s.about().version.min(Version::CURRENT);
    let infos = as_program(cx, version, |h| {
        h.caps = Flags::TAGGED;
        h.mode = Mode::CONTEXT;
        domain(h).control_progress = Progress::Manual;
        domain(h).progress = Progress::Manual;
        domain(h).resource_mgmt = ResourceMgmt::Enabled;
    })?;
    for i in infos {
        ensure!(
            i.ep.mem_tag_format.leading_zeros() == 0,
            "tags are not of 64 bits"
        );
        ensure!(
            i.domain.progress == Progress::Manual,
            "progress {:?}",
            i.domain.progress
        );
    }
    Ok(())
}

fn for_lci(cx: &Cx<'_>) -> Outcome {
    let infos = as_program(cx, Version::new(1, 6), |h| {
        h.caps = Flags::MSG;
        domain(h).threading = Threading::Safe;
        domain(h).control_progress = Progress::Manual;
        domain(h).progress = Progress::Manual;
        domain(h).av_type = AvType::Map;
        domain(h).mr_mode = MrMode::VIRT_ADDR
            | MrMode::ALLOCATED
            | MrMode::PROV_KEY
            | MrMode::LOCAL
            | MrMode::ENDPOINT;
        tx(h).inject_size = 64;
    })?;
    for i in infos {
        ensure!(
            i.domain.cq_data_size >= 4,
            "cq_data_size {}",
            i.domain.cq_data_size
        );
        ensure!(
            i.domain.mr_key_size <= 8,
            "mr_key_size {}",
            i.domain.mr_key_size
        );
        ensure!(i.mode.is_empty(), "mode {:?} with none offered", i.mode);
    }
    Ok(())
}
