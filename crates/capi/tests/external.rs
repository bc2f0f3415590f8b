//! The library as a provider of another libfabric: what that calls.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use c::*;
use ripstop_abi::*;
use ripstop_capi::{ripstop_fi_prov_ini, ripstop_shm_prov_ini};

const NONE: *mut c_void = ptr::null_mut();

fn tcp() -> &'static fi_provider {
    unsafe { &*ripstop_fi_prov_ini() }
}

fn shm() -> &'static fi_provider {
    unsafe { &*ripstop_shm_prov_ini() }
}

/// What the other library calls, with a program's hints.
fn ask(provider: &fi_provider, hints: &Info, flags: u64) -> Result<Info, c_int> {
    let mut info = ptr::null_mut();
    let node = c"127.0.0.1".as_ptr();
    let getinfo = provider.getinfo.unwrap();
    let code = unsafe {
        getinfo(
            NOW,
            node,
            ptr::null(),
            FI_SOURCE | flags,
            hints.0,
            &mut info,
        )
    };
    match code {
        0 => Ok(Info(info)),
        code => {
            assert!(info.is_null());
            Err(code)
        }
    }
}

fn hints() -> Info {
    let hints = Info::hints();
    hints.ep().type_ = FI_EP_RDM;
    hints.get().caps = FI_MSG | FI_TAGGED;
    hints
}

/// The name is the caller's, and goes with the attributes.
fn named(info: &Info, name: &CStr) {
    info.fabric().prov_name = unsafe { strdup(name.as_ptr()) };
}

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
}

fn name(provider: &fi_provider) -> &CStr {
    unsafe { CStr::from_ptr(provider.name) }
}

#[test]
fn each_is_a_provider_of_its_own_name() {
    for (provider, known_as, again) in [
        (tcp(), c"ripstop_tcp", tcp()),
        (shm(), c"ripstop_shm", shm()),
    ] {
        assert_eq!(name(provider), known_as);
        assert_eq!(provider.fi_version, NOW);
        assert!(ptr::eq(provider, again));
        unsafe { provider.cleanup.unwrap()() };
    }
}

#[test]
fn it_answers_under_the_name_that_the_other_library_gives_it() {
    for (provider, protocol) in [(tcp(), FI_PROTO_XNET), (shm(), FI_PROTO_SHM)] {
        let hints = hints();
        named(&hints, name(provider));
        let info = ask(provider, &hints, 0).unwrap();
        assert!(info.fabric().prov_name.is_null());
        assert_eq!(info.fabric().api_version, NOW);
        assert_eq!(info.fabric().prov_version, provider.version);
        assert_eq!(info.ep().type_, FI_EP_RDM);
        assert_eq!(info.ep().protocol, protocol);

        // Flags of its own are no matter, but who is layered upon others does without us.
        assert!(ask(provider, &hints, 1 << 57 | 1 << 58).is_ok());
        assert_eq!(ask(provider, &hints, 1 << 59).err(), Some(-FI_ENODATA));
        hints.get().caps = FI_HMEM;
        assert_eq!(ask(provider, &hints, 0).err(), Some(-FI_ENODATA));
    }
}

/// An owner asks each provider for all that the program wants; other machines are reached by
/// another one.
#[test]
fn shm_is_a_peer_for_programs_that_want_other_machines_too() {
    let hints = hints();
    hints.get().caps |= FI_REMOTE_COMM;
    hints.domain().caps = FI_REMOTE_COMM;
    assert!(ask(tcp(), &hints, 0).is_ok());
    assert_eq!(ask(shm(), &hints, 0).err(), Some(-FI_ENODATA));
    hints.get().caps |= FI_PEER;
    let info = ask(shm(), &hints, 0).unwrap();
    assert_eq!(info.get().caps & FI_REMOTE_COMM, 0);
    assert_eq!(info.domain().caps & (FI_PEER | FI_REMOTE_COMM), FI_PEER);
}

#[test]
fn its_objects_do_what_the_library_s_do() {
    for provider in [tcp(), shm()] {
        exchange(provider);
    }
}

fn exchange(provider: &fi_provider) {
    let info = ask(provider, &hints(), 0).unwrap();
    named(&info, name(provider));
    // An older library knows less of these, and has no more memory for them.
    info.domain().max_cntr_value = 5;
    let mut fabric = ptr::null_mut();
    let open = provider.fabric.unwrap();
    let attr = info.get().fabric_attr;
    assert_eq!(unsafe { open(attr, &mut fabric, NONE) }, 0);
    let domain = domain(fabric, &info);
    let (av, cq) = (
        av(domain, FI_AV_UNSPEC, 0),
        cq(domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE),
    );
    let [a, b] = [(); 2].map(|()| {
        let ep = endpoint(domain, &info);
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        ep
    });
    let to = insert(av, &c::name(unsafe { (*b).cm }, b.cast()));
    let mut room = [0_u8; 4];
    let buf = room.as_mut_ptr().cast::<c_void>();
    let any = FI_ADDR_UNSPEC;
    assert_eq!(op!(b, tagged.recv(buf, 4, NONE, any, 7, 0, NONE)), 0);
    let text = b"four".as_ptr().cast();
    post(cq, || op!(a, tagged.inject(text, 4, to, 7)));
    let done: fi_cq_tagged_entry = completion(cq);
    assert_eq!((done.len, done.tag, &room), (4, 7, b"four"));
    close_all!(a, b, av, cq, domain, fabric);

    let mut nothing = ptr::null_mut();
    assert_eq!(
        unsafe { open(ptr::null_mut(), &mut nothing, NONE) },
        -FI_EINVAL
    );
}
