//! Enumerations of the interface, with the values of the C headers.

macro_rules! c_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        #[repr(u32)]
        pub enum $name { $($(#[$vmeta])* $variant = $value,)* }

        impl $name {
            /// The variant with this C value, or `None` for a number the headers do not define.
            #[must_use]
            pub const fn from_raw(raw: u32) -> Option<Self> {
                match raw {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The C value.
            #[inline]
            #[must_use]
            pub const fn raw(self) -> u32 {
                self as u32
            }
        }
    };
}

c_enum! {
    /// Endpoint type (`enum fi_ep_type`).
    EpType {
        /// No preference.
        #[default]
        Unspec = 0,
        /// Connected, reliable.
        Msg = 1,
        /// Unconnected, unreliable.
        Dgram = 2,
        /// Unconnected, reliable.
        Rdm = 3,
    }
}

c_enum! {
    /// Address format (`FI_SOCKADDR`, ...).
    AddrFormat {
        /// No preference.
        #[default]
        Unspec = 0,
        /// `struct sockaddr`.
        Sockaddr = 1,
        /// `struct sockaddr_in`.
        SockaddrIn = 2,
        /// `struct sockaddr_in6`.
        SockaddrIn6 = 3,
        /// `struct sockaddr_ib`.
        SockaddrIb = 4,
        /// A string `fi_shm://...`.
        Str = 9,
        /// UD address handle parts.
        IbUd = 11,
        /// `sockaddr_in` or `sockaddr_in6`.
        SockaddrIp = 17,
    }
}

c_enum! {
    /// Address vector type (`enum fi_av_type`).
    AvType {
        /// No preference.
        #[default]
        Unspec = 0,
        /// Opaque handles.
        Map = 1,
        /// Indices in insertion order.
        Table = 2,
    }
}

c_enum! {
    /// Progress model (`enum fi_progress`).
    Progress {
        /// No preference.
        #[default]
        Unspec = 0,
        /// The provider makes progress by itself.
        Auto = 1,
        /// The application drives progress by calls.
        Manual = 2,
        /// Manual, control and data by the same calls.
        ControlUnified = 3,
    }
}

c_enum! {
    /// Threading level (`enum fi_threading`): what the application serialises.
    Threading {
        /// No preference.
        #[default]
        Unspec = 0,
        /// Any call from any thread.
        Safe = 1,
        /// Calls on one object are serialised.
        Fid = 2,
        /// Calls on one domain and what belongs to it are serialised.
        Domain = 3,
        /// Calls on objects that share a completion queue or counter are serialised.
        Completion = 4,
        /// Calls on one endpoint are serialised (withdrawn).
        Endpoint = 5,
    }
}

c_enum! {
    /// Resource management (`enum fi_resource_mgmt`).
    ResourceMgmt {
        /// No preference.
        #[default]
        Unspec = 0,
        /// The application avoids overruns.
        Disabled = 1,
        /// The provider avoids overruns.
        Enabled = 2,
    }
}

c_enum! {
    /// Wait object (`enum fi_wait_obj`).
    WaitObj {
        /// No blocking.
        #[default]
        None = 0,
        /// The provider's choice.
        Unspec = 1,
        /// A wait set.
        Set = 2,
        /// A file descriptor.
        Fd = 3,
        /// A mutex and a condition variable.
        MutexCond = 4,
        /// Blocking calls yield the processor.
        Yield = 5,
        /// A set of file descriptors.
        PollFd = 6,
    }
}

c_enum! {
    /// Completion queue entry format (`enum fi_cq_format`).
    CqFormat {
        /// The provider's choice.
        #[default]
        Unspec = 0,
        /// `struct fi_cq_entry`.
        Context = 1,
        /// `struct fi_cq_msg_entry`.
        Msg = 2,
        /// `struct fi_cq_data_entry`.
        Data = 3,
        /// `struct fi_cq_tagged_entry`.
        Tagged = 4,
    }
}

c_enum! {
    /// Endpoint protocol (`FI_PROTO_*`); only those this project speaks or names.
    Protocol {
        /// No preference.
        #[default]
        Unspec = 0,
        /// Reliable connected InfiniBand through the RDMA CM.
        RdmaCmIbRc = 1,
        /// Unreliable datagrams of InfiniBand.
        IbUd = 3,
        /// UDP datagrams.
        Udp = 5,
        /// Connected endpoints over TCP (`FI_PROTO_SOCK_TCP`).
        SockTcp = 6,
        /// RDM over MSG.
        Rxm = 11,
        /// RDM over DGRAM.
        Rxd = 12,
        /// Shared memory.
        Shm = 16,
        /// Reliable datagram endpoints over TCP (`FI_PROTO_XNET`).
        Xnet = 25,
        /// Providers that are linked behind one endpoint (`FI_PROTO_LNX`).
        Lnx = 31,
    }
}

c_enum! {
    /// Event queue events (`FI_NOTIFY`, ...).
    CmEvent {
        /// Provider notification.
        #[default]
        Notify = 0,
        /// A peer asks to connect.
        ConnReq = 1,
        /// The connection is up.
        Connected = 2,
        /// The connection is gone.
        Shutdown = 3,
        /// A registration is done.
        MrComplete = 4,
        /// An address insertion is done.
        AvComplete = 5,
        /// A join is done.
        JoinComplete = 6,
    }
}
