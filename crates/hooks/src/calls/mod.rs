#![allow(unsafe_code)]
//! Every call of the interface that goes through an operation table, once each.

mod atomic;
mod av;
mod cm;
mod collective;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod fid;
mod message;
mod rma;
mod tagged;
mod vectors;

use ripstop_abi as abi;

use crate::call::Registration;
use crate::hook::With;

/// The attributes that an object was opened with.
///
/// # Safety
///
/// `info` is null or valid.
unsafe fn info<'a>(info: *const abi::fi_info) -> With<'a> {
    // SAFETY: null or valid.
    unsafe { info.as_ref() }.map_or(With::Nothing, With::Info)
}

/// Those of a completion queue, behind the call: the provider may have chosen a format.
///
/// # Safety
///
/// `attr` is null or valid.
unsafe fn cq_attr<'a>(attr: *const abi::fi_cq_attr) -> With<'a> {
    // SAFETY: null or valid.
    match unsafe { attr.as_ref() } {
        // Its entries go to a queue of another provider, and nobody reads it.
        Some(attr) if attr.flags & abi::FI_PEER != 0 => With::Owner,
        Some(attr) => With::Cq {
            format: attr.format,
            size: attr.size,
        },
        None => With::Nothing,
    }
}

/// Those of a shared receive context. One of another provider stays that one's.
///
/// # Safety
///
/// `attr` is null or valid.
unsafe fn srx_attr<'a>(attr: *const abi::fi_rx_attr) -> With<'a> {
    // SAFETY: null or valid.
    match unsafe { attr.as_ref() } {
        Some(attr) if attr.op_flags & abi::FI_PEER != 0 => With::Owner,
        _ => With::Nothing,
    }
}

/// Those of a region.
///
/// # Safety
///
/// `mr` leads to the region that was just made.
unsafe fn region<'a>(memory: Registration, mr: *mut *mut abi::fid_mr) -> With<'a> {
    // SAFETY: the place of a region.
    let mr = unsafe { *mr };
    // SAFETY: an open region.
    With::Region(memory, unsafe { (*mr).mem_desc })
}

/// The functions of one operation table. A line has the name of a function's field, what programs
/// call it, its kind if it moves data, its arguments, what it returns, and one of
///
/// - nothing: hooks are told that it is called, and its result;
/// - `= DETAIL`: they are told this [`Detail`](crate::call::Detail) of its arguments too;
/// - `=> DETAIL`: the same, where arrays or structs of the caller are read for it;
/// - `opens PLACE with WITH`: what the provider stores at this place is an object to watch;
/// - `by FUNCTION`: written out, beside the table.
///
/// `at head.field` is where the table of an object is whose public struct is `head`; every first
/// argument is a pointer to one, or to its `fid`.
macro_rules! interpose {
    ($table:ident at $head:ident.$field:ident { $(
        $name:ident $c:literal $([$kind:ident])? ($this:ident: $this_type:ty $(, $arg:ident: $type:ty)* $(,)?)
            -> $result:ty
            $(= $detail:expr)?
            $(=> $read:expr)?
            $(, opens $place:ident with $with:expr)?
            $(, by $own:ident)?;
    )* }) => {
        impl $crate::over::Interposed for ripstop_abi::$table {
            fn interposed(&self) -> Self {
                Self {
                    size: self.size.min(size_of::<Self>()),
                    $($name: self.$name.map(|_| {
                        $name as unsafe extern "C" fn($this_type $(, $type)*) -> $result
                    }),)*
                }
            }
        }

        $(
            $crate::calls::interpose! {
                @one $table $head.$field $name $c [$($kind)?]
                ($this: $this_type $(, $arg: $type)*) -> $result
                {$($detail)?} {$($read)?} {$($place, $with)?} {$($own)?}
            }
        )*
    };
    (@one $table:ident $head:ident.$field:ident $name:ident $c:literal [$($kind:ident)?]
        ($this:ident: $this_type:ty $(, $arg:ident: $type:ty)*) -> $result:ty
        {} {} {} {$own:ident}
    ) => {
        pub(super) unsafe extern "C" fn $name($this: $this_type $(, $arg: $type)*) -> $result {
            static INFO: $crate::call::CallInfo = $crate::calls::named!($c [$($kind)?]);
            // SAFETY: the caller keeps to the contract of the operation.
            unsafe { $own(&INFO, $this $(, $arg)*) }
        }
    };
    (@one $table:ident $head:ident.$field:ident $name:ident $c:literal [$($kind:ident)?]
        ($this:ident: $this_type:ty $(, $arg:ident: $type:ty)*) -> $result:ty
        {$($detail:expr)?} {$($read:expr)?} {} {}
    ) => {
        unsafe extern "C" fn $name($this: $this_type $(, $arg: $type)*) -> $result {
            static INFO: $crate::call::CallInfo = $crate::calls::named!($c [$($kind)?]);
            // SAFETY: an open object, by the contract of the operation.
            let table = unsafe { (*$this.cast::<ripstop_abi::$head>()).$field };
            // SAFETY: the table by which this function was reached.
            let (over, theirs) = unsafe { $crate::over::Over::of(table.cast::<ripstop_abi::$table>()) };
            // SAFETY: the operations of an open object.
            let Some(own) = (unsafe { (*theirs).$name }) else {
                return $crate::over::Answer::ENOSYS;
            };
            let detail = $crate::calls::detail!({$($detail)?} {$($read)?});
            // SAFETY: the provider's operation, with the arguments of its caller.
            over.call(&INFO, detail, || unsafe { own($this $(, $arg)*) })
        }
    };
    (@one $table:ident $head:ident.$field:ident $name:ident $c:literal []
        ($this:ident: $this_type:ty $(, $arg:ident: $type:ty)*) -> $result:ty
        {$($detail:expr)?} {$($read:expr)?} {$place:ident, $with:expr} {}
    ) => {
        unsafe extern "C" fn $name($this: $this_type $(, $arg: $type)*) -> $result {
            static INFO: $crate::call::CallInfo = $crate::calls::named!($c []);
            // SAFETY: an open object, by the contract of the operation.
            let table = unsafe { (*$this.cast::<ripstop_abi::$head>()).$field };
            // SAFETY: the table by which this function was reached.
            let (over, theirs) = unsafe { $crate::over::Over::of(table.cast::<ripstop_abi::$table>()) };
            // SAFETY: the operations of an open object.
            let Some(own) = (unsafe { (*theirs).$name }) else {
                return $crate::over::Answer::ENOSYS;
            };
            let detail = $crate::calls::detail!({$($detail)?} {$($read)?});
            let callers = $place;
            let mut made = core::ptr::null_mut();
            // A provider refuses a null place; one that stores nothing leaves the caller's as it is.
            let $place = if callers.is_null() { callers } else { &raw mut made };
            // SAFETY: the provider's operation, with the arguments of its caller.
            let code = over.call(&INFO, detail, || unsafe { own($this $(, $arg)*) });
            if code == 0 && !made.is_null() {
                #[allow(unused_unsafe, reason = "most attributes are not read")]
                // SAFETY: the attributes of a call that has succeeded.
                let with = unsafe { $with };
                // SAFETY: an object that was just opened, and that the caller does not have yet.
                unsafe { over.lay(made, with) };
                // SAFETY: not null, and then the caller's place for the object.
                unsafe { callers.write(made) };
            }
            code
        }
    };
}

/// The constant of a call.
macro_rules! named {
    ($c:literal []) => {
        $crate::call::CallInfo::new($c, None)
    };
    ($c:literal [$kind:ident]) => {
        $crate::call::CallInfo::new($c, Some($crate::call::Kind::$kind))
    };
}

macro_rules! detail {
    ({} {}) => {
        $crate::call::Detail::None
    };
    ({$detail:expr} {}) => {
        $detail
    };
    ({} {$read:expr}) => {
        // SAFETY: the structs and arrays of a call, for which its caller vouches.
        unsafe { $read }
    };
}

pub(crate) use {detail, interpose, named};
