//! Ids of the objects of an engine, a type for each kind, so that they cannot be mixed up.

/// What a [`Pool`](crate::pool::Pool) finds its items by.
pub trait Id: Copy + Eq {
    /// The id with this number; 0 is none.
    fn new(number: u32) -> Option<Self>;

    /// The number, which is also the place in tables by id: place 0 of them stays vacant.
    fn index(self) -> usize;
}

/// Defines types of ids: numbers from 1 on, so that an `Option` of one is as large as the number, and
/// `None` is 0.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(core::num::NonZeroU32);

        const _: () = assert!(size_of::<Option<$name>>() == size_of::<u32>());

        impl $name {
            /// The first that is given.
            pub const FIRST: Self = Self(core::num::NonZeroU32::MIN);

            /// The id with this number; 0 is none.
            #[inline(always)]
            #[must_use]
            pub const fn new(number: u32) -> Option<Self> {
                match core::num::NonZeroU32::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The number.
            #[inline(always)]
            #[must_use]
            pub const fn number(self) -> u32 {
                self.0.get()
            }

            /// The number, which is also the place in tables by id: place 0 of them stays vacant.
            #[inline(always)]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0.get() as usize
            }

            /// The place in tables by id of one that there may be: place 0 where there is none.
            #[inline(always)]
            #[must_use]
            pub const fn place(id: Option<Self>) -> usize {
                match id {
                    Some(id) => id.index(),
                    None => 0,
                }
            }
        }

        impl Id for $name {
            #[inline(always)]
            fn new(number: u32) -> Option<Self> {
                Self::new(number)
            }

            #[inline(always)]
            fn index(self) -> usize {
                self.index()
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    )+};
}

ids! {
    /// The messages that the owner of a receive context has not been asked about.
    AskedId;
    /// An address vector of the driver.
    AvId;
    /// An operation of a group that is in flight, see [`Collectives`](crate::coll::Collectives).
    CollOpId;
    /// A connection, see [`Conn`](crate::stream::Conn).
    ConnId;
    /// A completion queue, see [`CompletionQueue`](crate::cq::CompletionQueue).
    CqId;
    /// A counter, see [`Counter`](crate::counter::Counter).
    CounterId;
    /// A sender whose connection is gone, while messages of it wait.
    DepartedId;
    /// A message of a member of a group that came before what it is for.
    EarlyId;
    /// An endpoint, see [`EpConfig`](crate::stream::EpConfig).
    EpId;
    /// A group of endpoints, see [`Collectives`](crate::coll::Collectives).
    GroupId;
    /// Operations that are started in the order their turns came, see
    /// [`Queue`](crate::triggered::Queue).
    LaneId;
    /// A message that waits for its receive, see [`Unexpected`](crate::matching::Unexpected).
    MessageId;
    /// A memory region, see [`Mr`](crate::mr::Mr).
    MrId;
    /// A read by a peer that is being answered.
    ResponseId;
    /// Memory of the driver for a payload without a place of its own.
    SlotId;
    /// A receive of one receive context, see [`Recv`](crate::matching::Recv).
    RecvId;
    /// A receive context, see [`Matcher`](crate::matching::Matcher).
    SrxId;
    /// An operation that waits for a counter, see [`Queue`](crate::triggered::Queue).
    TriggeredId;
    /// What completions call the peers of an address vector, see [`UserIds`](crate::ids::UserIds).
    UserIdsId;
    /// Deferred work that has begun, see [`Work`](crate::stream::Work).
    WorkId;
}
