//! Names that the caller gives its objects.

/// An opaque number by which a front end knows one of its objects; the C front end puts the
/// address of the `struct fid` there. This crate only carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FidToken(pub usize);

impl FidToken {
    /// No object.
    pub const NONE: Self = Self(0);
}
