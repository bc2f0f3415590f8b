//! Which provider comes first.

use ripstop_types::EpType;

use crate::info::Info;

/// Known providers, best first: fabrics with hardware of their own, what is layered upon
/// others, sockets, and shared memory, which reaches no other machine.
const ORDER: [&str; 16] = [
    "efa", "psm2", "opx", "usnic", "verbs", "cxi", "psm3", "ucx", "ofi_rxm", "ofi_rxd", "udp",
    "tcp", "shm", "sockets", "net", "lnx",
];

/// The place of a provider: that of its topmost layer, last for an unknown one.
pub(super) fn rank(name: &str) -> usize {
    let top = name.rsplit(';').next().unwrap_or(name);
    ORDER
        .iter()
        .position(|listed| listed.eq_ignore_ascii_case(top))
        .unwrap_or(ORDER.len())
}

/// Puts reliable datagrams that `tcp` has by itself before those layered upon it.
pub(super) fn prefer_native(infos: &mut Vec<Info>) {
    let is = |info: &Info, name: &str| {
        info.ep.ep_type == EpType::Rdm && info.prov_name().eq_ignore_ascii_case(name)
    };
    let Some(layered) = infos.iter().position(|info| is(info, "tcp;ofi_rxm")) else {
        return;
    };
    let tail = infos.split_off(layered);
    let (native, others): (Vec<_>, Vec<_>) = tail.into_iter().partition(|info| is(info, "tcp"));
    infos.extend(native);
    infos.extend(others);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, ep_type: EpType) -> Info {
        let mut info = Info::default();
        info.fabric.prov_name = Some(name.to_owned());
        info.ep.ep_type = ep_type;
        info
    }

    #[test]
    fn ranks_are_those_of_the_topmost_layer() {
        assert!(rank("verbs") < rank("shm"));
        assert!(rank("tcp;ofi_rxm") < rank("TCP"));
        assert!(rank("mine") > rank("net"));
    }

    #[test]
    fn native_datagrams_come_before_layered_ones() {
        let mut infos = vec![
            info("verbs", EpType::Rdm),
            info("tcp;ofi_rxm", EpType::Rdm),
            info("udp", EpType::Dgram),
            info("tcp", EpType::Msg),
            info("tcp", EpType::Rdm),
        ];
        prefer_native(&mut infos);
        let names: Vec<_> = infos
            .iter()
            .map(|i| (i.prov_name(), i.ep.ep_type))
            .collect();
        let expected = [
            ("verbs", EpType::Rdm),
            ("tcp", EpType::Rdm),
            ("tcp;ofi_rxm", EpType::Rdm),
            ("udp", EpType::Dgram),
            ("tcp", EpType::Msg),
        ];
        assert_eq!(names, expected);
    }
}
