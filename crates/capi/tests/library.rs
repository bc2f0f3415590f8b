//! A C program that uses what belongs to the library itself: parameters, logging, errors.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::multiple_unsafe_ops_per_block)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::sync::Mutex;

use ripstop_abi::*;
use ripstop_capi::*;

/// What C declares: these two take more arguments.
fn variadic() -> (functions::fi_log_fn, functions::fi_param_define_fn) {
    let log = ripstop_fi_log_1_0 as *const ();
    let define = ripstop_fi_param_define_1_0 as *const ();
    // SAFETY: both are written to be called with a C argument list.
    unsafe {
        (
            core::mem::transmute::<*const (), functions::fi_log_fn>(log),
            core::mem::transmute::<*const (), functions::fi_param_define_fn>(define),
        )
    }
}

fn provider(name: &'static CStr) -> fi_provider {
    fi_provider {
        name: name.as_ptr(),
        ..Default::default()
    }
}

#[test]
fn parameters_are_defined_listed_and_read() {
    let mut prov = provider(c"capitest");
    let (_, define) = variadic();
    for (name, value) in [
        ("INT", "0x10"),
        ("BOOL", "yes"),
        ("SIZE", "5"),
        ("TEXT", "some text"),
    ] {
        // SAFETY: no other thread of this test reads the environment meanwhile.
        unsafe { std::env::set_var(format!("FI_CAPITEST_{name}"), value) };
    }
    // More arguments than registers hold, of both kinds.
    // SAFETY: the arguments match the format.
    let code = unsafe {
        let help = c"%d %s %.1f %ld %d %d %.2f %s".as_ptr();
        let text = c"strings".as_ptr();
        let last = c"end".as_ptr();
        define(
            &prov,
            c"int".as_ptr(),
            FI_PARAM_INT,
            help,
            1,
            text,
            2.5,
            3_i64,
            4,
            5,
            6.25,
            last,
        )
    };
    assert_eq!(code, 0);
    for (name, kind) in [
        (c"bool", FI_PARAM_BOOL),
        (c"size", FI_PARAM_SIZE_T),
        (c"text", FI_PARAM_STRING),
        (c"unset", FI_PARAM_STRING),
    ] {
        // SAFETY: a plain format.
        let code = unsafe { define(&prov, name.as_ptr(), kind, c"help".as_ptr()) };
        assert_eq!(code, 0);
    }
    fn get<T: Default>(prov: &mut fi_provider, name: &CStr) -> Result<T, c_int> {
        let mut value = T::default();
        let at = ptr::from_mut(&mut value).cast::<c_void>();
        // SAFETY: each test asks for the parameter's own type.
        match unsafe { ripstop_fi_param_get_1_0(prov, name.as_ptr(), at) } {
            0 => Ok(value),
            code => Err(code),
        }
    }
    assert_eq!(get::<c_int>(&mut prov, c"int"), Ok(16));
    assert_eq!(get::<c_int>(&mut prov, c"bool"), Ok(1));
    assert_eq!(get::<usize>(&mut prov, c"size"), Ok(5));
    let text = get::<usize>(&mut prov, c"text").unwrap();
    let text = ptr::with_exposed_provenance::<c_char>(text);
    // SAFETY: a string that lasts for ever.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"some text");
    assert_eq!(get::<usize>(&mut prov, c"unset"), Err(-FI_ENODATA));
    assert_eq!(get::<usize>(&mut prov, c"unknown"), Err(-FI_ENOENT));

    let (mut list, mut count) = (ptr::null_mut(), 0);
    // SAFETY: both are valid.
    assert_eq!(
        unsafe { ripstop_fi_getparams_1_0(&mut list, &mut count) },
        0
    );
    // SAFETY: as the call says.
    let listed = unsafe { core::slice::from_raw_parts(list, count.unsigned_abs() as usize) };
    let named = |name: &CStr| {
        // SAFETY: every name is a C string.
        listed
            .iter()
            .find(|param| unsafe { CStr::from_ptr(param.name) } == name)
            .unwrap()
    };
    let int = named(c"FI_CAPITEST_INT");
    // SAFETY: C strings.
    let (help, value) = unsafe { (CStr::from_ptr(int.help_string), CStr::from_ptr(int.value)) };
    assert_eq!(help, c"capitest: 1 strings 2.5 3 4 5 6.25 end");
    assert_eq!((value, int.type_), (c"0x10", FI_PARAM_INT));
    assert!(named(c"FI_CAPITEST_UNSET").value.is_null());
    named(c"FI_LOG_LEVEL");
    named(c"FI_TCP_IFACE");
    // SAFETY: the list from above, and null.
    unsafe {
        ripstop_fi_freeparams_1_0(list);
        ripstop_fi_freeparams_1_0(ptr::null_mut());
    }
}

#[test]
fn bad_parameters_are_refused() {
    let (_, define) = variadic();
    let prov = provider(c"capibad");
    let (name, help) = (c"x".as_ptr(), c"help".as_ptr());
    // SAFETY: null, empty and unknown are refused.
    let refused = unsafe {
        [
            define(&prov, ptr::null(), FI_PARAM_INT, help),
            define(&prov, name, FI_PARAM_INT, ptr::null()),
            define(&prov, name, FI_PARAM_INT, c"".as_ptr()),
            define(&prov, name, 9, help),
            ripstop_fi_param_get_1_0(ptr::null_mut(), ptr::null(), ptr::null_mut()),
            ripstop_fi_param_get_1_0(ptr::null_mut(), name, ptr::null_mut()),
            ripstop_fi_getparams_1_0(ptr::null_mut(), ptr::null_mut()),
        ]
    };
    assert_eq!(refused, [-FI_EINVAL; 7]);
}

/// Provider, level, subsystem, line and text.
type Line = (String, u32, u32, c_int, String);

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

unsafe extern "C" fn take(
    prov: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
    _func: *const c_char,
    line: c_int,
    msg: *const c_char,
) {
    // SAFETY: the library passes C strings.
    let text = |s| unsafe { CStr::from_ptr(s) }.to_str().unwrap().to_owned();
    // SAFETY: the library passes a provider.
    let name = text(unsafe { (*prov).name });
    LINES
        .lock()
        .unwrap()
        .push((name, level, subsys, line, text(msg)));
}

#[test]
fn a_program_takes_the_log() {
    let (log, _) = variadic();
    let open = |version, name: *const c_char, len, flags, fid: *mut *mut fid| {
        // SAFETY: null or a C string, and a place for the object.
        unsafe {
            ripstop_fi_open_1_5(
                version,
                name,
                ptr::null_mut(),
                len,
                flags,
                fid,
                ptr::null_mut(),
            )
        }
    };
    let now = FI_VERSION(2, 6);
    let mut logging: *mut fid = ptr::null_mut();
    let name = c"Logging".as_ptr();
    assert_eq!(open(now, ptr::null(), 0, 0, &mut logging), -FI_EINVAL);
    assert_eq!(
        open(now, c"anything".as_ptr(), 0, 0, &mut logging),
        -FI_ENOSYS
    );
    assert_eq!(
        open(FI_VERSION(1, 12), name, 0, 0, &mut logging),
        -FI_EINVAL
    );
    assert_eq!(open(now, name, 4, 0, &mut logging), -FI_EINVAL);
    assert_eq!(open(now, name, 0, 1, &mut logging), -FI_EBADFLAGS);
    assert_eq!(open(now, name, 0, 0, &mut logging), 0);
    let mut ops = fi_ops_log {
        size: size_of::<fi_ops_log>(),
        log: Some(take),
        ..Default::default()
    };
    let mut mine = fid_logging {
        fid: fid {
            fclass: FI_CLASS_LOG,
            ..Default::default()
        },
        ops: &raw mut ops,
    };
    let bind = |other: *mut fid, flags| {
        // SAFETY: an open object, and null or an object.
        unsafe { (*(*logging).ops).bind.unwrap()(logging, other, flags) }
    };
    let mine_fid = (&raw mut mine).cast::<fid>();
    assert_eq!(bind(ptr::null_mut(), 0), -FI_EINVAL);
    assert_eq!(bind(mine_fid, 1), -FI_EINVAL);
    assert_eq!(bind(mine_fid, 0), 0);
    assert_eq!(open(now, name, 0, 0, &mut logging), -FI_EALREADY);

    let prov = provider(c"logtest");
    // SAFETY: the arguments match the format.
    unsafe {
        let format = c"%s %d %.1f %s\n".as_ptr();
        let (one, two) = (c"one".as_ptr(), c"two".as_ptr());
        log(
            &prov,
            FI_LOG_WARN,
            FI_LOG_CQ,
            c"here".as_ptr(),
            12,
            format,
            one,
            2,
            3.5,
            two,
        );
        log(
            &prov,
            99,
            FI_LOG_CQ,
            c"here".as_ptr(),
            12,
            format,
            one,
            2,
            3.5,
            two,
        );
        log(&prov, FI_LOG_WARN, FI_LOG_CQ, ptr::null(), 1, ptr::null());
    }
    // SAFETY: a provider, and a place for the time.
    let (enabled, disabled, ready) = unsafe {
        let mut time = 0;
        (
            ripstop_fi_log_enabled_1_0(&prov, FI_LOG_WARN, FI_LOG_CORE),
            ripstop_fi_log_enabled_1_0(&prov, FI_LOG_DEBUG, FI_LOG_CORE),
            [
                ripstop_fi_log_ready_1_6(&prov, FI_LOG_WARN, FI_LOG_CORE, &mut time),
                ripstop_fi_log_ready_1_6(&prov, FI_LOG_WARN, FI_LOG_CORE, &mut time),
                ripstop_fi_log_ready_1_6(ptr::null(), FI_LOG_WARN, FI_LOG_CORE, ptr::null_mut()),
            ],
        )
    };
    assert_eq!((enabled, disabled, ready), (1, 0, [1, 0, 0]));
    // SAFETY: the object that was imported.
    assert_eq!(unsafe { (*mine.fid.ops).close.unwrap()(mine_fid) }, 0);
    assert_eq!(open(now, name, 0, 0, &mut logging), 0);
    let lines = LINES.lock().unwrap();
    let own: Vec<_> = lines.iter().filter(|line| line.0 == "logtest").collect();
    let expected = (
        "logtest".to_owned(),
        FI_LOG_WARN,
        FI_LOG_CQ,
        12,
        "one 2 3.5 two\n".to_owned(),
    );
    assert_eq!(own, [&expected]);
}

/// A monitor that nothing ever starts: the cache of registrations has its own.
mod never {
    use super::*;

    pub(super) unsafe extern "C" fn start(_: *mut fid_mem_monitor) -> c_int {
        unreachable!("a monitor was started")
    }
    pub(super) unsafe extern "C" fn stop(_: *mut fid_mem_monitor) {
        unreachable!("a monitor was stopped")
    }
    pub(super) unsafe extern "C" fn subscribe(
        _: *mut fid_mem_monitor,
        _: *const c_void,
        _: usize,
    ) -> c_int {
        unreachable!("a monitor was asked for memory")
    }
    pub(super) unsafe extern "C" fn unsubscribe(
        _: *mut fid_mem_monitor,
        _: *const c_void,
        _: usize,
    ) {
        unreachable!("a monitor was asked for memory")
    }
    pub(super) unsafe extern "C" fn valid(
        _: *mut fid_mem_monitor,
        _: *const c_void,
        _: usize,
    ) -> bool {
        unreachable!("a monitor was asked for memory")
    }
}

/// What Open MPI's `opal_common_ofi_export_memory_monitor` does, and its end.
#[test]
fn a_program_exports_its_monitor_of_memory() {
    let open = |version, len, flags, fid: *mut *mut fid| {
        let (attr, context) = (ptr::null_mut(), ptr::without_provenance_mut(8));
        let name = c"mr_cache".as_ptr();
        unsafe { ripstop_fi_open_1_5(version, name, attr, len, flags, fid, context) }
    };
    let version = FI_VERSION(1, 13);
    let mut cache: *mut fid = ptr::null_mut();
    assert_eq!(open(FI_VERSION(1, 12), 0, 0, &mut cache), -FI_EINVAL);
    assert_eq!(open(version, 8, 0, &mut cache), -FI_EINVAL);
    assert_eq!(open(version, 0, 1, &mut cache), -FI_EBADFLAGS);
    assert_eq!(open(version, 0, 0, &mut cache), 0);
    let shown = unsafe { ((*cache).fclass, (*cache).context.addr()) };
    assert_eq!(shown, (FI_CLASS_MR_CACHE, 8));

    let mut export_ops = fi_ops_mem_monitor {
        size: size_of::<fi_ops_mem_monitor>(),
        start: Some(never::start),
        stop: Some(never::stop),
        subscribe: Some(never::subscribe),
        unsubscribe: Some(never::unsubscribe),
        valid: Some(never::valid),
    };
    let mut monitor = || fid_mem_monitor {
        fid: fid {
            fclass: FI_CLASS_MEM_MONITOR,
            ..Default::default()
        },
        export_ops: &raw mut export_ops,
        import_ops: ptr::null_mut(),
    };
    let (mut first, mut second) = (monitor(), monitor());
    let import = |cache: *mut fid, other: &mut fid_mem_monitor, flags| {
        let other = ptr::from_mut(other).cast::<fid>();
        unsafe { (*(*cache).ops).bind.unwrap()(cache, other, flags) }
    };
    let close = |fid: *mut fid| unsafe { (*(*fid).ops).close.unwrap()(fid) };
    assert_eq!(import(cache, &mut first, 1), -FI_EINVAL);
    first.fid.fclass = FI_CLASS_LOG;
    assert_eq!(import(cache, &mut first, 0), -FI_EINVAL);
    first.fid.fclass = FI_CLASS_MEM_MONITOR;
    let mut short = fi_ops_mem_monitor {
        size: 8,
        ..Default::default()
    };
    let whole = core::mem::replace(&mut first.export_ops, &raw mut short);
    assert_eq!(import(cache, &mut first, 0), -FI_EINVAL);
    first.export_ops = whole;
    assert_eq!(import(cache, &mut first, 0), 0);
    assert_eq!(import(cache, &mut second, 0), -FI_EBUSY);

    // What Open MPI calls when memory that it watches is unmapped.
    let byte = 0_u8;
    let memory = ptr::from_ref(&byte).cast();
    let notify = unsafe { (*first.import_ops).notify.unwrap() };
    assert_eq!(
        unsafe { (*first.import_ops).size },
        size_of::<fi_ops_mem_notify>()
    );
    unsafe { notify(&mut first, memory, 1) };
    assert_eq!(close(cache), 0);
    assert_eq!(close((&raw mut first).cast()), 0);

    // Then another may come.
    assert_eq!(open(version, 0, 0, &mut cache), 0);
    assert_eq!(import(cache, &mut second, 0), 0);
    assert_eq!(close((&raw mut second).cast()), 0);
    assert_eq!(close(cache), 0);
}

#[test]
fn the_interface_has_a_version_and_errors_have_texts() {
    // SAFETY: every argument is allowed.
    let (version, text) = unsafe { (ripstop_fi_version_1_0(), ripstop_fi_strerror_1_0(-259)) };
    assert_eq!(version, FI_VERSION(2, 6));
    // SAFETY: a C string.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"Error available");
}
