#![allow(unsafe_code)]
//! Calls that a careless C program makes: null pointers, unknown commands, buffers of another
//! length. Each gives what the library says.

use std::ffi::{c_int, c_void};
use std::ptr::{self, null, null_mut};

use ripstop_abi::{
    FI_ALIAS, FI_GETWAIT, FI_GETWAITOBJ, FI_OPT_ENDPOINT, fi_alias, fi_cq_err_entry, fi_ops,
    fi_ops_msg, fid,
};
use ripstop_types::Flags;

use crate::call::{self, calls, op};
use crate::threading::Threading;
use crate::{Counter, Cq, Domain, Endpoint, Eq, Error, Fabric, Library, Result};

/// A call and what it returned.
pub type Said = (&'static str, i64);

/// A command of `fi_control`(3) that no release knows.
const UNKNOWN: c_int = 12_345;

/// What the byte of an error entry has that nobody wrote.
pub const UNTOUCHED: u8 = 0xa5;

/// `fi_control`(3) with null as argument.
fn control_null(fid: *mut fid, command: c_int) -> i64 {
    match call::command("fi_control", fid, command) {
        Ok(()) => 0,
        Err(error) => -i64::from(error.errno.0),
    }
}

fn controls(fid: *mut fid) -> [Said; 3] {
    [
        ("FI_GETWAIT into null", control_null(fid, FI_GETWAIT)),
        ("FI_GETWAITOBJ into null", control_null(fid, FI_GETWAITOBJ)),
        ("an unknown command", control_null(fid, UNKNOWN)),
    ]
}

/// The wait object an object says it has (`FI_GETWAITOBJ`).
pub(crate) fn wait_object(fid: *mut fid) -> Result<i32> {
    let mut object: c_int = -1;
    let arg: *mut c_void = (&raw mut object).cast();
    // SAFETY: the caller passes a live object.
    let table: *const fi_ops = unsafe { (*fid).ops };
    let ret = calls!(table, fi_ops.control(fid, FI_GETWAITOBJ, arg));
    Error::check("fi_control", ret)?;
    Ok(object)
}

/// Notes what functions of a table, where they are there, return for arguments that are null in part.
macro_rules! note {
    ($said:ident, $table:expr, $ops:ident: $($what:literal = $op:ident($($arg:expr),*);)+) => { $(
        if let Some(function) = op!($table, $ops.$op) {
            // SAFETY: the object is open, and what an argument points to is there during the call. A
            // library must look at its arguments; one that follows null ends this process.
            let ret = unsafe { function($($arg),*) };
            $said.push(($what, ret as i64));
        }
    )+ };
}

impl Library {
    /// Null where the answer or the attributes should be.
    #[must_use]
    pub fn null_calls(&self) -> Vec<Said> {
        let functions = self.functions();
        let version = self.version().0;
        // SAFETY: a library must look at its arguments; one that follows null ends this process.
        let getinfo = unsafe {
            (functions.getinfo)(
                version,
                ptr::null(),
                ptr::null(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let mut out = ptr::null_mut();
        // SAFETY: `out` takes the fabric, and a library must look at its arguments; one that follows
        // null ends this process.
        let fabric = unsafe { (functions.fabric)(ptr::null_mut(), &raw mut out, ptr::null_mut()) };
        vec![
            ("fi_getinfo into null", i64::from(getinfo)),
            ("fi_fabric without attributes", i64::from(fabric)),
        ]
    }
}

impl Fabric {
    /// Null where attributes or the new object should be.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        let (fabric, table) = (self.owned.get(), self.table());
        let mut said = Vec::new();
        note! { said, table, fi_ops_fabric:
            "fi_domain without info" = domain(fabric, null_mut(), &mut null_mut(), null_mut());
            "fi_passive_ep without info" = passive_ep(fabric, null_mut(), &mut null_mut(), null_mut());
            "fi_eq_open into null" = eq_open(fabric, null_mut(), null_mut(), null_mut());
            "fi_trywait of null" = trywait(fabric, null_mut(), 1);
        }
        said
    }
}

impl<M: Threading> Domain<M> {
    /// Null where attributes or the new object should be.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        let (domain, table) = (self.owned.get(), self.table());
        let mut said = Vec::new();
        note! { said, table, fi_ops_domain:
            "fi_endpoint without info" = endpoint(domain, null_mut(), &mut null_mut(), null_mut());
            "fi_cq_open without attributes" = cq_open(domain, null_mut(), &mut null_mut(), null_mut());
            "fi_av_open without attributes" = av_open(domain, null_mut(), &mut null_mut(), null_mut());
            "fi_cntr_open into null" = cntr_open(domain, null_mut(), null_mut(), null_mut());
        }
        said
    }
}

impl<M: Threading> Cq<M> {
    /// Null where entries should go, and commands that are none.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        let (cq, table) = (self.owned.get(), self.table());
        let mut said = controls(self.owned.fid()).to_vec();
        note! { said, table, fi_ops_cq:
            "fi_cq_read into null" = read(cq, null_mut(), 1);
            "fi_cq_readerr into null" = readerr(cq, null_mut(), 0);
        }
        said
    }

    /// The bytes of an error entry as a program has it whose entry has `known` bytes: those are
    /// zero before, and the others [`UNTOUCHED`].
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn readerr_bytes(&self, known: usize) -> Result<Vec<u8>> {
        const ROOM: usize = 2 * size_of::<fi_cq_err_entry>();
        #[repr(align(16))]
        struct Entry([u8; ROOM]);
        let mut entry = Entry([UNTOUCHED; ROOM]);
        entry.0.iter_mut().take(known).for_each(|byte| *byte = 0);
        let into = (&raw mut entry).cast();
        let ret = calls!(self.table(), fi_ops_cq.readerr(self.owned.get(), into, 0));
        Error::check_count("fi_cq_readerr", ret)?;
        Ok(entry.0.to_vec())
    }
}

impl Eq {
    /// Null where events should go, and commands that are none.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        let (eq, table) = (self.owned.get(), self.table());
        let mut said = controls(self.owned.fid()).to_vec();
        note! { said, table, fi_ops_eq:
            "fi_eq_read into null" = read(eq, &mut 0, null_mut(), 64, 0);
            "fi_eq_readerr into null" = readerr(eq, null_mut(), 0);
        }
        said
    }
}

impl<M: Threading> Counter<M> {
    /// Commands that are none.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        controls(self.owned.fid()).to_vec()
    }
}

impl<M: Threading> Endpoint<M> {
    /// Null where an object, a message or a value should be, and a command that is none.
    pub(crate) fn null_calls(&self) -> Vec<Said> {
        let fid = self.owned.fid();
        let mut said = vec![("an unknown command", control_null(fid, UNKNOWN))];
        let bound = call::bind("fi_ep_bind", fid, ptr::null_mut(), 0);
        let bound = bound.map_or_else(|e| -i64::from(e.errno.0), |()| 0);
        said.push(("fi_ep_bind of null", bound));
        note! { said, self.ops(), fi_ops_ep:
            "fi_getopt into null" = getopt(fid, FI_OPT_ENDPOINT, 0, null_mut(), null_mut());
            "fi_setopt from null" = setopt(fid, FI_OPT_ENDPOINT, 0, null(), 8);
        }
        // SAFETY: the endpoint is open.
        let table: *const fi_ops_msg = unsafe { (*self.raw()).msg };
        note! { said, table, fi_ops_msg:
            "fi_sendmsg of null" = sendmsg(self.raw(), null(), 0);
            "fi_recvmsg of null" = recvmsg(self.raw(), null(), 0);
        }
        said
    }

    /// Opens another endpoint on the same queues (`fi_ep_alias`), tries to close this one under
    /// it, and closes it: what each call returned.
    ///
    /// # Errors
    ///
    /// What opening it said.
    pub fn alias_and_close(&self, flags: Flags) -> Result<[Said; 2]> {
        let this = self.owned.fid();
        let mut out: *mut fid = ptr::null_mut();
        let mut alias = fi_alias {
            fid: (&raw mut out).cast(),
            flags: flags.bits(),
        };
        let arg: *mut c_void = (&raw mut alias).cast();
        // SAFETY: the endpoint is open.
        let table: *const fi_ops = unsafe { (*this).ops };
        let ret = calls!(table, fi_ops.control(this, FI_ALIAS, arg));
        Error::check("fi_ep_alias", ret)?;
        let code = |closed: Result<()>| closed.map_or_else(|e| -i64::from(e.errno.0), |()| 0);
        let parent = code(call::close(this));
        if parent == 0 {
            eprintln!("fi_close closed an endpoint that has an alias; it must say FI_EBUSY");
            std::process::abort();
        }
        let alias = code(call::close(out));
        Ok([
            ("closing what has an alias", parent),
            ("closing the alias", alias),
        ])
    }
}
