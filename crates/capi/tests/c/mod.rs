//! What a C program gets from libfabric's headers: the inline functions, over the raw
//! operation tables, and a few shorthands.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::mut_from_ref)] // as C has it

pub mod device;
pub mod matcher;
pub mod owner;
pub mod program;
pub mod side;
pub mod watch;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::time::{Duration, Instant};

use ripstop_abi::*;
use ripstop_capi::*;

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// A string that `fi_freeinfo` frees.
pub fn dup(text: &CStr) -> *mut c_char {
    // SAFETY: a C string.
    unsafe { strdup(text.as_ptr()) }
}

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Calls an operation of a table: `op!(object, table.name(arguments))`.
#[macro_export]
macro_rules! op {
    ($object:expr, $table:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: the test passes live objects, and what the operation takes.
        unsafe { (*(*$object).$table).$name.unwrap()($object, $($arg),*) }
    };
}

/// Calls an operation of every object: `fid!(object, name, arguments...)`.
#[macro_export]
macro_rules! fid {
    ($object:expr, $name:ident $(, $arg:expr)*) => {{
        let fid = $object.cast::<ripstop_abi::fid>();
        // SAFETY: the test passes a live object, and what the operation takes.
        unsafe { (*(*fid).ops).$name.unwrap()(fid, $($arg),*) }
    }};
}

pub fn close<T>(object: *mut T) -> c_int {
    fid!(object, close)
}

/// Closes objects in this order, which all of them allow.
#[macro_export]
macro_rules! close_all {
    ($($object:expr),+ $(,)?) => {
        $(assert_eq!($crate::c::close($object), 0, stringify!($object));)+
    };
}

pub fn bind<T, U>(object: *mut T, other: *mut U, flags: u64) -> c_int {
    fid!(object, bind, other.cast(), flags)
}

pub fn control<T, A>(object: *mut T, command: c_int, arg: *mut A) -> c_int {
    fid!(object, control, command, arg.cast())
}

pub fn enable(ep: *mut fid_ep) -> c_int {
    control(ep, FI_ENABLE, ptr::null_mut::<u8>())
}

/// An `fi_info` that is freed in the end.
pub struct Info(pub *mut fi_info);

impl Drop for Info {
    fn drop(&mut self) {
        unsafe { ripstop_fi_freeinfo_1_9(self.0) };
    }
}

impl Info {
    pub fn hints() -> Self {
        Self(unsafe { ripstop_fi_dupinfo_1_9(ptr::null()) })
    }

    pub fn get(&self) -> &mut fi_info {
        unsafe { &mut *self.0 }
    }

    pub fn ep(&self) -> &mut fi_ep_attr {
        unsafe { &mut *self.get().ep_attr }
    }

    pub fn domain(&self) -> &mut fi_domain_attr {
        unsafe { &mut *self.get().domain_attr }
    }

    pub fn fabric(&self) -> &mut fi_fabric_attr {
        unsafe { &mut *self.get().fabric_attr }
    }

    pub fn tx(&self) -> &mut fi_tx_attr {
        unsafe { &mut *self.get().tx_attr }
    }

    pub fn rx(&self) -> &mut fi_rx_attr {
        unsafe { &mut *self.get().rx_attr }
    }
}

pub fn getinfo(
    version: u32,
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    hints: Option<&Info>,
) -> Result<Info, c_int> {
    let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let hints = hints.map_or(ptr::null(), |hints| hints.0.cast_const());
    let mut info = ptr::null_mut();
    let code = unsafe {
        ripstop_fi_getinfo_1_9(version, text(node), text(service), flags, hints, &mut info)
    };
    match code {
        0 => Ok(Info(info)),
        code => {
            assert!(info.is_null());
            Err(code)
        }
    }
}

pub const NOW: u32 = FI_VERSION(2, 6);

/// An interface on the loopback, of this endpoint type.
pub fn loopback(ep_type: fi_ep_type, change: impl FnOnce(&Info)) -> Info {
    let hints = Info::hints();
    hints.ep().type_ = ep_type;
    hints.get().caps = FI_MSG | FI_TAGGED;
    hints.get().addr_format = FI_SOCKADDR_IN;
    change(&hints);
    getinfo(NOW, Some(c"127.0.0.1"), None, FI_SOURCE, Some(&hints)).unwrap()
}

pub fn fabric(info: &Info) -> *mut fid_fabric {
    let mut fabric = ptr::null_mut();
    let code =
        unsafe { ripstop_fi_fabric_1_1(info.get().fabric_attr, &mut fabric, ptr::null_mut()) };
    assert_eq!(code, 0);
    fabric
}

pub fn domain(fabric: *mut fid_fabric, info: &Info) -> *mut fid_domain {
    let mut domain = ptr::null_mut();
    assert_eq!(
        op!(fabric, ops.domain(info.0, &mut domain, ptr::null_mut())),
        0
    );
    domain
}

/// A domain with what it belongs to, all closed at the end.
pub struct OpenDomain {
    _info: Info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
}

impl OpenDomain {
    pub fn of(info: Info) -> Self {
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        Self {
            _info: info,
            fabric,
            domain,
        }
    }
}

impl Drop for OpenDomain {
    fn drop(&mut self) {
        close_all!(self.domain, self.fabric);
    }
}

pub fn cq(domain: *mut fid_domain, format: fi_cq_format, wait_obj: fi_wait_obj) -> *mut fid_cq {
    let mut attr = fi_cq_attr {
        size: 64,
        format,
        wait_obj,
        ..Default::default()
    };
    let mut cq = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.cq_open(&mut attr, &mut cq, ptr::null_mut())),
        0
    );
    cq
}

pub fn av(domain: *mut fid_domain, type_: fi_av_type, flags: u64) -> *mut fid_av {
    let mut attr = fi_av_attr {
        type_,
        flags,
        ..Default::default()
    };
    let mut av = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.av_open(&mut attr, &mut av, ptr::null_mut())),
        0
    );
    av
}

pub fn cntr(domain: *mut fid_domain) -> *mut fid_cntr {
    let mut attr = fi_cntr_attr {
        wait_obj: FI_WAIT_UNSPEC,
        ..Default::default()
    };
    let mut cntr = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.cntr_open(&mut attr, &mut cntr, ptr::null_mut())),
        0
    );
    cntr
}

pub fn eq(fabric: *mut fid_fabric, wait_obj: fi_wait_obj) -> *mut fid_eq {
    let mut attr = fi_eq_attr {
        wait_obj,
        flags: FI_WRITE,
        ..Default::default()
    };
    let mut eq = ptr::null_mut();
    assert_eq!(
        op!(fabric, ops.eq_open(&mut attr, &mut eq, ptr::null_mut())),
        0
    );
    eq
}

pub fn endpoint(domain: *mut fid_domain, info: &Info) -> *mut fid_ep {
    let mut ep = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.endpoint(info.0, &mut ep, ptr::null_mut())),
        0
    );
    ep
}

/// The address of an endpoint, active or passive.
/// An endpoint with its address vector and its queue.
pub fn bound(
    domain: *mut fid_domain,
    info: &Info,
    av: *mut fid_av,
    cq: *mut fid_cq,
) -> *mut fid_ep {
    let ep = endpoint(domain, info);
    assert_eq!(bind(ep, av, 0), 0);
    assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
    ep
}

pub fn name(cm: *mut fi_ops_cm, fid: *mut fid) -> Vec<u8> {
    let mut len = 0;
    let getname = unsafe { (*cm).getname.unwrap() };
    let code = unsafe { getname(fid, ptr::null_mut(), &mut len) };
    assert_eq!(code, -FI_ETOOSMALL);
    let mut addr = vec![0_u8; len];
    assert_eq!(
        unsafe { getname(fid, addr.as_mut_ptr().cast(), &mut len) },
        0
    );
    assert_eq!(len, addr.len());
    addr
}

/// Calls `poll` until it gives something.
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = poll() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: nothing in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Reads one entry of a queue.
pub fn completion<E: Default>(cq: *mut fid_cq) -> E {
    completion_with(cq, || ())
}

/// As [`completion`], with something to do meanwhile.
pub fn completion_with<E: Default>(cq: *mut fid_cq, mut meanwhile: impl FnMut()) -> E {
    let mut entry = E::default();
    until("a completion", || {
        meanwhile();
        match op!(cq, ops.read(ptr::from_mut(&mut entry).cast::<c_void>(), 1)) {
            1 => Some(()),
            code => {
                assert_eq!(code, -FI_EAGAIN as isize);
                None
            }
        }
    });
    entry
}

/// Repeats a data call while its queue is full, driving the queue.
pub fn post(cq: *mut fid_cq, mut call: impl FnMut() -> isize) {
    until("room to post", || match call() {
        0 => Some(()),
        code => {
            assert_eq!(code, -FI_EAGAIN as isize);
            let _progress = op!(cq, ops.read(ptr::null_mut(), 0));
            None
        }
    });
}

/// Two RDM endpoints of one domain that know each other.
pub struct Pair {
    pub info: Info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub av: *mut fid_av,
    pub cq: *mut fid_cq,
    pub eps: [*mut fid_ep; 2],
    /// Addresses of the two.
    pub addrs: [fi_addr_t; 2],
}

impl Pair {
    /// Both use one queue of this format.
    pub fn open(format: fi_cq_format, wait: fi_wait_obj, change: impl FnOnce(&Info)) -> Self {
        Self::of(loopback(FI_EP_RDM, change), format, wait)
    }

    /// Endpoints of this provider for all kinds of transfers, of a domain that makes progress only when it is told to.
    pub fn over(provider: &CStr, mr_mode: c_int) -> Self {
        let hints = Info::hints();
        hints.ep().type_ = FI_EP_RDM;
        hints.get().caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_TRIGGER;
        hints.domain().mr_mode = mr_mode;
        hints.domain().threading = FI_THREAD_DOMAIN;
        hints.domain().data_progress = FI_PROGRESS_MANUAL;
        hints.domain().control_progress = FI_PROGRESS_MANUAL;
        hints.fabric().prov_name = dup(provider);
        let info = match provider {
            _ if provider == c"tcp" => {
                hints.get().addr_format = FI_SOCKADDR_IN;
                getinfo(NOW, Some(c"127.0.0.1"), None, FI_SOURCE, Some(&hints))
            }
            _ => getinfo(NOW, None, None, 0, Some(&hints)),
        };
        Self::of(info.unwrap(), FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE)
    }

    /// As `open`, of this interface.
    pub fn of(info: Info, format: fi_cq_format, wait: fi_wait_obj) -> Self {
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_UNSPEC, 0);
        let cq = cq(domain, format, wait);
        let eps = [(); 2].map(|()| {
            let ep = bound(domain, &info, av, cq);
            assert_eq!(enable(ep), 0);
            ep
        });
        let addrs = eps.map(|ep| insert(av, &name(unsafe { (*ep).cm }, ep.cast())));
        Self {
            info,
            fabric,
            domain,
            av,
            cq,
            eps,
            addrs,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ep in self.eps {
            assert_eq!(close(ep), 0);
        }
        close_all!(self.cq, self.av, self.domain, self.fabric);
    }
}

/// Inserts one address.
pub fn insert(av: *mut fid_av, addr: &[u8]) -> fi_addr_t {
    let mut peer = FI_ADDR_NOTAVAIL;
    let addr = addr.as_ptr().cast();
    assert_eq!(
        op!(av, ops.insert(addr, 1, &mut peer, 0, ptr::null_mut())),
        1
    );
    assert_ne!(peer, FI_ADDR_NOTAVAIL);
    peer
}

/// The bytes of a `struct sockaddr_in`.
pub fn sockaddr(host: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = 2_u16.to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(host);
    bytes.extend([0; 8]);
    bytes
}
