#![allow(unsafe_code)]
//! A provider from a shared object, as the registry and `fi_fabric(3)` use it.

use core::ffi::c_void;
use core::ptr;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ripstop_abi as abi;
use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{Handle, Info, fi_info};
use ripstop_types::{AddrFormat, EpType, Errno, Flags, Mode, Protocol, Result, Version};

use super::fabrics;
use super::shared_object::{Getinfo, SharedObject};
use crate::cmem;
use crate::edge::Whole;
use crate::info::OwnedInfo;
use crate::info::layout::{Layout, Widened};
use crate::info::read::string;
use crate::log;

/// The name of the one provider whose answers already have the names of what they link.
const LINKING: &str = "lnx";

/// A provider from a shared object, which stays loaded as long as this is referred to: by the registry, and by each
/// fabric that is open of it.
pub(crate) struct CProvider {
    object: SharedObject,
    cleaned_up: AtomicBool,
}

impl CProvider {
    /// The provider of a shared object.
    pub(super) const fn new(object: SharedObject) -> Self {
        Self {
            object,
            cleaned_up: AtomicBool::new(false),
        }
    }

    /// The file of the shared object.
    pub(crate) fn path(&self) -> &Path {
        &self.object.path
    }

    /// Whether it only intercepts calls of other providers' objects.
    pub(crate) const fn is_hook(&self) -> bool {
        self.object.functions.getinfo.is_none()
    }

    /// Has the provider clean up, once.
    pub(super) fn clean_up(&self) {
        if !self.cleaned_up.swap(true, Ordering::Relaxed) {
            self.object.clean_up();
        }
    }

    /// Opens a fabric, which refers to this provider until it is closed.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn open_fabric(
        self: &Arc<Self>,
        attr: Whole<'_, abi::fi_fabric_attr>,
        context: *mut c_void,
    ) -> Result<*mut abi::fid_fabric> {
        // The provider may write to it.
        let mut own = *attr;
        self.open(&mut own, context)
    }

    /// Opens a fabric that intercepts the calls on another, of the provider of this name.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) fn open_hook(
        self: &Arc<Self>,
        over: *mut abi::fid_fabric,
        provider: &str,
    ) -> Result<*mut abi::fid_fabric> {
        let mut attr = abi::fi_fabric_attr {
            fabric: over,
            // SAFETY: an open fabric, which every version of the interface gives this field.
            api_version: unsafe { (*over).api_version },
            ..Default::default()
        };
        let provider = log::c_provider(provider).cast_mut();
        self.open(&mut attr, provider.cast())
    }

    fn open(
        self: &Arc<Self>,
        attr: &mut abi::fi_fabric_attr,
        context: *mut c_void,
    ) -> Result<*mut abi::fid_fabric> {
        let api_version = attr.api_version;
        let mut fabric = ptr::null_mut();
        // SAFETY: attributes with what they point to, and a place for the fabric.
        let code = unsafe { (self.object.functions.fabric)(attr, &raw mut fabric, context) };
        if code != 0 || fabric.is_null() {
            return Err(errno(code).unwrap_or(Errno::EOTHER));
        }
        if self.object.api_version >= Version::new(1, 5) {
            // SAFETY: the fabric was just opened, and has this field since that version.
            unsafe { (*fabric).api_version = api_version };
        }
        // SAFETY: the fabric was just opened, and nobody else knows it yet.
        unsafe { fabrics::keep_loaded(fabric, self.clone()) };
        fi_info!(
            "core",
            Subsys::Core,
            "Using {} provider {}, path:{}",
            self.object.name,
            self.object.api_version,
            self.path().display()
        );
        Ok(fabric)
    }

    /// The name under which an interface of this provider goes: with that of the layer below in
    /// front, which a layer has written.
    fn full_name(&self, below: Option<&CStr>) -> String {
        let own = &self.object.name;
        match below.map(string) {
            Some(linked) if own.eq_ignore_ascii_case(LINKING) => linked,
            Some(below) => format!("{below};{own}"),
            None => own.clone(),
        }
    }

    /// What one interface is for the registry, with the interface itself; `None` for one without
    /// attributes, which no program could open, or when there is no memory.
    fn offer(&self, mut given: OwnedInfo, request: &Request<'_>) -> Option<Info> {
        let below = given.get().fabric_attr()?.prov_name();
        let name = self.full_name(below);
        let attr = given.fabric_attr()?;
        // SAFETY: null, or from C's allocator and of this `fi_info` alone.
        unsafe { cmem::free(attr.prov_name) };
        attr.prov_name = cmem::text(&name);
        attr.prov_version = self.object.version.0;
        attr.api_version = request.version.0;
        if attr.prov_name.is_null() {
            return None;
        }
        let whole = given.get();
        let (fabric, domain, ep) = (whole.fabric_attr()?, whole.domain_attr()?, whole.ep_attr()?);
        let mut info = Info {
            caps: Flags::from_bits_retain(whole.caps),
            mode: Mode::from_bits_retain(whole.mode),
            addr_format: AddrFormat::from_raw(whole.addr_format).unwrap_or_default(),
            ..Info::default()
        };
        info.ep.ep_type = EpType::from_raw(ep.type_).unwrap_or_default();
        info.ep.protocol = Protocol::from_raw(ep.protocol).unwrap_or_default();
        info.domain.name = domain.name().map(string);
        info.fabric.name = fabric.name().map(string);
        info.fabric.prov_name = Some(name);
        info.handle = Some(Handle::new(given));
        Some(info)
    }
}

impl Drop for CProvider {
    fn drop(&mut self) {
        self.clean_up();
    }
}

impl ProviderInfo for CProvider {
    fn name(&self) -> &str {
        &self.object.name
    }

    fn version(&self) -> Version {
        self.object.version
    }

    fn api_version(&self) -> Version {
        self.object.api_version
    }

    fn object(&self) -> Option<&Path> {
        Some(self.path())
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let Some(getinfo) = self.object.functions.getinfo else {
            let why =
                "it is a hook: it intercepts calls when FI_HOOK names it, and has no interface";
            return Refusal::Failed(Errno::ENODATA, why.to_owned()).into();
        };
        let given = match self.ask(getinfo, request) {
            Ok(given) => given,
            Err(Errno::ENODATA) => {
                let why = "it has no interface that meets the hints; FI_LOG_LEVEL=info shows its own lines";
                return Refusal::Failed(Errno::ENODATA, why.to_owned()).into();
            }
            Err(errno) => {
                let why = format!("the fi_getinfo of {} fails", self.path().display());
                return Refusal::Failed(errno, why).into();
            }
        };
        let mut answer = Answer::default();
        let offers = given.into_iter().filter_map(|one| self.offer(one, request));
        answer.infos = offers.filter(|info| has_names(info, request)).collect();
        if answer.infos.is_empty() {
            let why = "none of its interfaces has the fabric and the domain that the hints name";
            answer.refusals = vec![Refusal::Failed(Errno::ENODATA, why.to_owned())];
        }
        answer
    }
}

impl CProvider {
    /// Asks the provider, in C.
    fn ask(&self, getinfo: Getinfo, request: &Request<'_>) -> Result<Vec<OwnedInfo>> {
        let original = request.original.map(|original| original.hints);
        let hints = match original.and_then(|any| any.downcast_ref::<Widened>()) {
            Some(wide) => ptr::from_ref(wide.whole().get()),
            None if request.hints.is_none() => ptr::null(),
            // The hints of a caller that is not C have no form that could be passed on.
            None => return Err(Errno::EOPNOTSUPP),
        };
        let [node, service] = [request.node, request.service].map(c_string);
        let (node, service) = (node?, service?);
        let mut list = ptr::null_mut();
        // SAFETY: strings and hints that are null or whole and last as long as the call, and a place
        // for the list.
        let code = unsafe {
            getinfo(
                request.version.0,
                or_null(node.as_ref()),
                or_null(service.as_ref()),
                request.flags.bits(),
                hints,
                &raw mut list,
            )
        };
        if let Some(errno) = errno(code) {
            return Err(errno);
        }
        let layout = Layout::of_release(self.object.api_version);
        // SAFETY: a list that the provider has made for this call, in the layout of its release.
        let given = unsafe { OwnedInfo::from_list(list, layout) };
        match given.is_empty() {
            true => Err(Errno::ENODATA),
            false => Ok(given),
        }
    }
}

/// Whether an interface has the names that the hints ask for. Layers ask without this.
fn has_names(info: &Info, request: &Request<'_>) -> bool {
    let same = |asked: Option<&String>, has: Option<&String>| {
        asked.is_none_or(|asked| has.is_some_and(|has| has.eq_ignore_ascii_case(asked)))
    };
    let Some(hints) = request.hints else {
        return true;
    };
    let fabric = hints
        .fabric
        .as_ref()
        .and_then(|fabric| fabric.name.as_ref());
    let domain = hints
        .domain
        .as_ref()
        .and_then(|domain| domain.name.as_ref());
    same(fabric, info.fabric.name.as_ref()) && same(domain, info.domain.name.as_ref())
}

/// The error in a return value; `None` for success.
fn errno(code: core::ffi::c_int) -> Option<Errno> {
    (code != 0).then(|| Errno(code.wrapping_abs()))
}

fn c_string(text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new)
        .transpose()
        .map_err(|_| Errno::EINVAL)
}

fn or_null(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}
