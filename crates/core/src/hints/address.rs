//! The request as a whole: hints, node, service and flags of `fi_getinfo(3)`.

use core::any::Any;

use ripstop_types::{AddrFormat, Errno, Flags, Version};

use super::mismatch::{Group, Mismatch};
use super::negotiate;
use crate::address::Address;
use crate::info::{Hints, Info};
use crate::resolve::{Query, resolve, source_for};

/// The arguments of `fi_getinfo(3)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Version of the interface the caller was written for.
    pub version: Version,
    /// Host to reach, or with [`Flags::SOURCE`] the one to bind to.
    pub node: Option<&'a str>,
    /// Port, in the same sense.
    pub service: Option<&'a str>,
    /// [`Flags::SOURCE`], [`Flags::NUMERICHOST`], [`Flags::PROV_ATTR_ONLY`],
    /// [`Flags::RESCAN`].
    pub flags: Flags,
    /// What the caller needs.
    pub hints: Option<&'a Hints>,
    /// The hints as a C program gave them, for providers that are asked in C.
    pub original: Option<Original<'a>>,
}

/// Hints in C.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// Of a type that only the C edge knows.
    pub hints: &'a dyn Any,
    /// Whether [`Request::hints`] says as much. Else it has names only, and there is a value that only
    /// a provider that is asked in C can know.
    pub is_read: bool,
}

impl Request<'_> {
    /// Checks what no provider could answer.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] when the caller is newer than this library, [`Errno::EINVAL`] for
    /// [`Flags::SOURCE`] without a node and a service.
    pub fn validate(&self) -> Result<(), Errno> {
        if self.version > Version::CURRENT {
            return Err(Errno::ENOSYS);
        }
        if self.names_source() && self.node.is_none() && self.service.is_none() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// The providers that the hints name.
    pub(crate) fn prov_name(&self) -> Option<&str> {
        self.hints?.fabric.as_ref()?.prov_name.as_deref()
    }

    /// Whether the caller only lists providers.
    #[must_use]
    pub fn lists_providers(&self) -> bool {
        self.flags == Flags::PROV_ATTR_ONLY
    }

    /// The answer of a provider that makes this offer: [`negotiate`]d attributes, and the
    /// addresses that node, service and hints give. Resolving a node that is not numeric
    /// may block.
    ///
    /// String addresses are made as `fi_shm(7)` says, from node and service; where
    /// neither call nor hints have one, both are that of this process. Without a source
    /// address that of the route to the peer is filled in.
    ///
    /// # Errors
    /// The first attribute that does not fit, or a node or service that does not resolve.
    pub fn answer(&self, offer: &Info) -> Result<Info, Mismatch> {
        if self.lists_providers() {
            return Ok(Info::of_provider(
                offer.fabric.prov_name.clone(),
                offer.fabric.prov_version,
            ));
        }
        let mut info = negotiate(offer, self.hints, self.version)?;
        self.fill_addresses(&mut info)?;
        Ok(info)
    }

    const fn names_source(&self) -> bool {
        self.flags.contains(Flags::SOURCE)
    }

    fn fill_addresses(&self, info: &mut Info) -> Result<(), Mismatch> {
        let asked = self.node.is_some() || self.service.is_some();
        let named = asked
            .then(|| self.named_address(info.addr_format))
            .transpose()?;
        let concrete = named.is_some();
        let (src, dest) = match self.names_source() {
            true => (named, None),
            false => (None, named),
        };
        let hinted =
            |addr: fn(&Hints) -> &Option<Address>| self.hints.and_then(|h| addr(h).clone());
        info.src_addr = src.or(hinted(|h| &h.src_addr)).or(info.src_addr.take());
        info.dest_addr = dest.or(hinted(|h| &h.dest_addr)).or(info.dest_addr.take());
        if info.addr_format == AddrFormat::Str {
            let own = || Address::Str(Address::process_name());
            info.src_addr.get_or_insert_with(own);
            if !self.names_source() {
                info.dest_addr.get_or_insert_with(own);
            }
        }
        if let (None, Some(Address::Ip(dest))) = (&info.src_addr, &info.dest_addr) {
            info.src_addr = source_for(dest).ok().map(Address::Ip);
        }
        self.settle_format(info, concrete);
        Ok(())
    }

    /// An address settles the format, unless the caller gave one for its own addresses.
    fn settle_format(&self, info: &mut Info, concrete: bool) {
        let Some(addr) = info.dest_addr.as_ref().or(info.src_addr.as_ref()) else {
            return;
        };
        let asked = self.hints.map_or(AddrFormat::Unspec, |h| h.addr_format);
        info.addr_format = if concrete || asked == AddrFormat::Unspec {
            addr.format()
        } else {
            asked
        };
    }

    /// The address of a queue pair of datagrams, which a node has to be: nobody is asked who is behind a name.
    fn queue_pair(&self) -> Result<Address, Mismatch> {
        let address = self.node.and_then(|node| node.parse::<Address>().ok());
        let of_format = address.filter(|address| address.format() == AddrFormat::IbUd);
        of_format.ok_or_else(|| Mismatch {
            group: Group::Call,
            attribute: "node",
            asked: self.node.unwrap_or("NULL").to_owned(),
            offered: "addresses of the format FI_ADDR_IB_UD".to_owned(),
            remedy: "give what fi_getname gives there, as fi_addr_ib_ud://GID:QPN/LID/PKEY/SL, or no node, and \
                     insert the peer into an address vector"
                .to_owned(),
        })
    }

    fn named_address(&self, format: AddrFormat) -> Result<Address, Mismatch> {
        if format == AddrFormat::Str {
            return Ok(Address::string(self.node, self.service));
        }
        if format == AddrFormat::IbUd {
            return self.queue_pair();
        }
        let query = Query {
            node: self.node,
            service: self.service,
            format,
            passive: self.names_source(),
            numeric: self.flags.contains(Flags::NUMERICHOST),
        };
        resolve(&query).map(Address::from).map_err(|why| {
            let (node, service) = (self.node.unwrap_or("NULL"), self.service.unwrap_or("NULL"));
            Mismatch {
                group: Group::Call,
                attribute: "node, service",
                asked: format!("{node}, {service}"),
                offered: "no address".to_owned(),
                remedy: why.to_string(),
            }
        })
    }
}
