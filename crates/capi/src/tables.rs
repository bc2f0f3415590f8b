#![allow(unsafe_code)]
//! Operation tables in which every operation answers that there is none. Objects take what they
//! have from their own code and the rest from here, so that no slot is ever null.

use core::ffi::{c_char, c_int};
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;

/// What a call returns for an operation that is not to be had.
pub(crate) trait Answer {
    /// There is no such operation: `-FI_ENOSYS`, or nothing where the type has no place for an error.
    const ENOSYS: Self;
    /// The object belongs to the process that has forked this one: `-FI_EOPBADSTATE`, or nothing.
    const NOT_OURS: Self;
}

impl Answer for c_int {
    const ENOSYS: Self = -abi::FI_ENOSYS;
    const NOT_OURS: Self = -abi::FI_EOPBADSTATE;
}

impl Answer for isize {
    const ENOSYS: Self = -abi::FI_ENOSYS as isize;
    const NOT_OURS: Self = -abi::FI_EOPBADSTATE as isize;
}

impl Answer for u64 {
    const ENOSYS: Self = 0;
    const NOT_OURS: Self = 0;
}

impl Answer for *const c_char {
    const ENOSYS: Self = ptr::null();
    const NOT_OURS: Self = c"the object belongs to the parent process".as_ptr();
}

/// A C function type, with functions of this type that do nothing and say so.
pub(crate) trait Slot: Sized {
    /// For an operation that does not exist.
    const MISSING: Self;
    /// For an object of the process that has forked this one.
    const NOT_OURS: Self;
}

/// A call to an object of the parent was refused.
#[cold]
fn not_ours() {
    fi_warn_sparse!(
        "core",
        Subsys::Core,
        "a call uses an object that was opened before this process was forked and belongs to its \
         parent; open new objects in the child (fabric(7), fork)"
    );
}

/// Functions with as many arguments as there are names, and with each smaller number of them.
macro_rules! slots {
    () => {};
    ($first:ident $($arg:ident)*) => {
        impl<$first, $($arg,)* R: Answer> Slot for unsafe extern "C" fn($first, $($arg),*) -> R {
            const MISSING: Self = {
                unsafe extern "C" fn missing<$first, $($arg,)* R: Answer>(
                    _: $first, $(_: $arg),*
                ) -> R {
                    R::ENOSYS
                }
                missing::<$first, $($arg,)* R>
            };
            const NOT_OURS: Self = {
                unsafe extern "C" fn refused<$first, $($arg,)* R: Answer>(
                    _: $first, $(_: $arg),*
                ) -> R {
                    not_ours();
                    R::NOT_OURS
                }
                refused::<$first, $($arg,)* R>
            };
        }

        slots!($($arg)*);
    };
}

slots!(A B C D E F G H I J K L M N O P Q);

/// A table of operations.
pub(crate) trait Table: Sized + 'static {
    /// Of an object that has none of them, not even `close`.
    const NONE: &'static Self;
    /// Of an object of the process that has forked this one.
    const NOT_OURS: &'static Self;
}

macro_rules! tables {
    ($($table:ident { $($slot:ident)* })*) => { $(
        impl Table for abi::$table {
            const NONE: &'static Self = &Self {
                size: size_of::<Self>(),
                $($slot: Some(Slot::MISSING),)*
            };
            const NOT_OURS: &'static Self = &Self {
                size: size_of::<Self>(),
                $($slot: Some(Slot::NOT_OURS),)*
            };
        }
    )* };
}

tables! {
    fi_ops { close bind control ops_open tostr ops_set }
    fi_ops_fabric { domain passive_ep eq_open wait_open trywait domain2 }
    fi_ops_domain {
        av_open cq_open endpoint scalable_ep cntr_open poll_open stx_ctx srx_ctx query_atomic
        query_collective endpoint2
    }
    fi_ops_mr { reg regv regattr }
    fi_ops_ep { cancel getopt setopt tx_ctx rx_ctx rx_size_left tx_size_left }
    fi_ops_cm { setname getname getpeer connect listen accept reject shutdown join }
    fi_ops_msg { recv recvv recvmsg send sendv sendmsg inject senddata injectdata }
    fi_ops_tagged { recv recvv recvmsg send sendv sendmsg inject senddata injectdata }
    fi_ops_rma { read readv readmsg write writev writemsg inject writedata injectdata }
    fi_ops_atomic {
        write writev writemsg inject readwrite readwritev readwritemsg compwrite compwritev
        compwritemsg writevalid readwritevalid compwritevalid
    }
    fi_ops_collective {
        barrier broadcast alltoall allreduce allgather reduce_scatter reduce scatter gather msg
        barrier2
    }
    fi_ops_cq { read readfrom readerr sread sreadfrom signal strerror }
    fi_ops_cntr { read readerr add set wait adderr seterr }
    fi_ops_eq { read readerr write sread strerror }
    fi_ops_av {
        insert insertsvc insertsym remove lookup straddr av_set insert_auth_key lookup_auth_key
        set_user_id
    }
    fi_ops_av_set { set_union intersect diff insert remove addr }
    fi_ops_wait { wait }
    fi_ops_poll { poll poll_add poll_del }
}

/// A table with the operations that are named, each a function of its name with these type
/// parameters; others follow `with`. What is left has no operation.
macro_rules! operations {
    ($table:ident $generics:tt { $($slot:ident)* } $(with $($other:ident: $function:expr),*)?) => {
        &ripstop_abi::$table {
            $($slot: Some($crate::tables::operations!(@function $slot $generics)),)*
            $($($other: Some($function),)*)?
            ..*$crate::tables::Table::NONE
        }
    };
    (@function $slot:ident [$($generics:tt)*]) => {
        $slot::<$($generics)*>
    };
}

pub(crate) use operations;

/// The table of an object that has none of its operations, as C declares the pointer to it.
pub(crate) const fn none<T: Table>() -> *mut T {
    table(T::NONE)
}

/// A table as C declares the pointer to it. C programs only read through it.
pub(crate) const fn table<T>(table: &'static T) -> *mut T {
    ptr::from_ref(table).cast_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_operation_says_so() {
        let close = abi::fi_ops::NONE.close.unwrap();
        // SAFETY: the function looks at nothing.
        assert_eq!(unsafe { close(ptr::null_mut()) }, -38);
        let inject = abi::fi_ops_msg::NONE.inject.unwrap();
        // SAFETY: the function looks at nothing.
        assert_eq!(unsafe { inject(ptr::null_mut(), ptr::null(), 0, 0) }, -38);
        let barrier = abi::fi_ops_collective::NONE.barrier2.unwrap();
        // SAFETY: the function looks at nothing.
        let code = unsafe { barrier(ptr::null_mut(), 0, 0, ptr::null_mut()) };
        assert_eq!(code, -38);
    }

    #[test]
    fn tables_have_their_whole_size() {
        assert_eq!(
            abi::fi_ops_atomic::NONE.size,
            size_of::<abi::fi_ops_atomic>()
        );
        assert_eq!(abi::fi_ops::NONE.size, 56);
    }
}
