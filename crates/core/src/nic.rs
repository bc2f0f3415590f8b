//! What is known of a network card (man page `fi_nic(3)`).

/// A network interface card (`struct fid_nic`, man page `fi_nic(3)`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// What the device is.
    pub device: DeviceAttr,
    /// Where it is attached.
    pub bus: BusAttr,
    /// Its link to the network.
    pub link: LinkAttr,
}

/// What a device is (`struct fi_device_attr`). Fields nobody could find out are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Name of the device or interface (`eth0`, `mlx5_0`).
    pub name: Option<String>,
    /// Device id, as the bus gives it (`0x1017`).
    pub device_id: Option<String>,
    /// Hardware revision.
    pub device_version: Option<String>,
    /// Vendor id, as the bus gives it (`0x15b3`).
    pub vendor_id: Option<String>,
    /// Name of the kernel driver.
    pub driver: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
}

/// Where a device is attached (`struct fi_bus_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BusAttr {
    /// Unknown, or no bus (`FI_BUS_UNKNOWN`).
    #[default]
    Unknown,
    /// On PCI (`FI_BUS_PCI`).
    Pci(PciAttr),
}

/// A PCI address (`struct fi_pci_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PciAttr {
    /// PCI domain.
    pub domain: u16,
    /// Bus number.
    pub bus: u8,
    /// Device number.
    pub device: u8,
    /// Function number.
    pub function: u8,
}

/// State of a link (`enum fi_link_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LinkState {
    /// Not known.
    #[default]
    Unknown = 0,
    /// No carrier.
    Down = 1,
    /// Ready for traffic.
    Up = 2,
}

/// A device's link (`struct fi_link_attr`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkAttr {
    /// Primary network address, printable.
    pub address: Option<String>,
    /// Largest transfer unit in bytes; 0 when unknown.
    pub mtu: usize,
    /// Bits per second; 0 when unknown.
    pub speed: usize,
    /// Whether the link is up.
    pub state: LinkState,
    /// `"Ethernet"`, `"InfiniBand"`, ...
    pub network_type: Option<String>,
}
