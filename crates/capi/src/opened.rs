//! What is open, so that `fi_getinfo` can name it: an interface of a fabric or domain that the
//! program has open comes with the object (`fi_fabric_attr::fabric`, `fi_domain_attr::domain`).

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::{FabricAttr, FidToken, Info};
use ripstop_types::{Flags, Mode, MrMode};

struct OpenFabric {
    provider: String,
    name: String,
    fid: FidToken,
}

struct OpenDomain {
    fabric: FidToken,
    name: String,
    caps: Flags,
    mode: Mode,
    mr_mode: MrMode,
    fid: FidToken,
}

#[derive(Default)]
struct Opened {
    fabrics: Vec<OpenFabric>,
    domains: Vec<OpenDomain>,
}

static OPENED: Mutex<Opened> = Mutex::new(Opened {
    fabrics: Vec::new(),
    domains: Vec::new(),
});

fn token(fid: *mut abi::fid) -> FidToken {
    FidToken(fid.addr())
}

/// Remembers a fabric.
pub(crate) fn fabric_opened(attr: &FabricAttr, fid: *mut abi::fid) {
    OPENED.lock().fabrics.push(OpenFabric {
        provider: attr.prov_name.clone().unwrap_or_default(),
        name: attr.name.clone().unwrap_or_default(),
        fid: token(fid),
    });
}

/// Forgets a fabric.
pub(crate) fn fabric_closed(fid: *mut abi::fid) {
    OPENED.lock().fabrics.retain(|open| open.fid != token(fid));
}

/// Remembers a domain.
pub(crate) fn domain_opened(fabric: *mut abi::fid, info: &Info, fid: *mut abi::fid) {
    OPENED.lock().domains.push(OpenDomain {
        fabric: token(fabric),
        name: info.domain.name.clone().unwrap_or_default(),
        caps: info.caps | info.domain.caps,
        mode: info.mode | info.domain.mode,
        mr_mode: info.domain.mr_mode,
        fid: token(fid),
    });
}

/// Forgets a domain.
pub(crate) fn domain_closed(fid: *mut abi::fid) {
    OPENED.lock().domains.retain(|open| open.fid != token(fid));
}

/// Names in each answer the fabric and the domain that are open already, if they do what the
/// answer says.
pub(crate) fn name_in(infos: &mut [Info]) {
    let opened = OPENED.lock();
    for info in infos {
        let name = info.fabric.name.as_deref();
        let same =
            |open: &&OpenFabric| open.provider == info.prov_name() && name == Some(&open.name);
        let mut fabrics = opened.fabrics.iter().filter(same).map(|open| open.fid);
        let fits = |open: &&OpenDomain| {
            fabrics.clone().any(|fabric| fabric == open.fabric)
                && info.domain.name.as_deref() == Some(&open.name)
                && open.caps.contains(info.caps | info.domain.caps)
                && (info.mode | info.domain.mode).contains(open.mode)
                && info.domain.mr_mode.contains(open.mr_mode)
        };
        let domain = opened.domains.iter().find(fits);
        let fabric = domain.map(|open| open.fabric).or_else(|| fabrics.next());
        info.fabric.fabric = info.fabric.fabric.or(fabric);
        info.domain.domain = info.domain.domain.or(domain.map(|open| open.fid));
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use ripstop_core::DomainAttr;

    use super::*;

    #[test]
    fn answers_name_what_is_open() {
        let attr = FabricAttr {
            name: Some("net".into()),
            prov_name: Some("opened-test".into()),
            ..Default::default()
        };
        let info = Info {
            caps: Flags::MSG,
            fabric: attr.clone(),
            domain: DomainAttr {
                name: Some("eth0".into()),
                ..Default::default()
            },
            ..Default::default()
        };
        let [fabric, domain] = [8, 16].map(ptr::without_provenance_mut);
        fabric_opened(&attr, fabric);
        domain_opened(fabric, &info, domain);
        let mut more = info.clone();
        more.caps |= Flags::RMA;
        let mut infos = [info.clone(), more, Info::default()];
        name_in(&mut infos);
        let named = infos.map(|info| (info.fabric.fabric, info.domain.domain));
        let (fabric_token, domain_token) = (Some(FidToken(8)), Some(FidToken(16)));
        let expected = [
            (fabric_token, domain_token),
            (fabric_token, None),
            (None, None),
        ];
        assert_eq!(named, expected);
        domain_closed(domain);
        fabric_closed(fabric);
        let mut infos = [info];
        name_in(&mut infos);
        assert_eq!(infos[0].fabric.fabric, None);
    }
}
