//! The short forms: a few lines for each interface or provider.

use crate::{out, outln};
use ripstop_core::Info;
use ripstop_core::names::CNames as _;
use ripstop_types::Version;

/// Prints each interface.
pub(super) fn print(infos: &[Info]) {
    for info in infos {
        out!("{}", text(info));
    }
}

fn text(info: &Info) -> String {
    format!(
        "provider: {}\n    fabric: {}\n    domain: {}\n    version: {}\n    type: {}\n    protocol: {}\n",
        info.prov_name(),
        info.fabric.name.as_deref().unwrap_or("(null)"),
        info.domain.name.as_deref().unwrap_or("(null)"),
        Version(info.fabric.prov_version),
        info.ep.ep_type.c_names(),
        info.ep.protocol.c_names(),
    )
}

/// Prints each provider (`fi_info -l`).
pub(super) fn print_providers(infos: &[Info]) {
    for info in infos {
        let version = Version(info.fabric.prov_version);
        outln!("{}:\n    version: {version}", info.prov_name());
        // Where a provider is from stands in place of its fabric.
        if let Some(object) = &info.fabric.name {
            outln!("    path: {object}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_types::{EpType, Protocol};

    #[test]
    fn an_interface_has_six_lines() {
        let mut info = Info::default();
        info.fabric.prov_name = Some("tcp".to_owned());
        info.fabric.name = Some("127.0.0.0/8".to_owned());
        info.fabric.prov_version = Version::new(206, 0).0;
        info.ep.ep_type = EpType::Rdm;
        info.ep.protocol = Protocol::Xnet;
        let expected = "provider: tcp\n    fabric: 127.0.0.0/8\n    domain: (null)\n    \
                        version: 206.0\n    type: FI_EP_RDM\n    protocol: FI_PROTO_XNET\n";
        assert_eq!(text(&info), expected);
    }
}
