//! Operations of a group of endpoints (man page `fi_collective(3)`).

use crate::{AtomicOp, Datatype};

numbered! {
    /// What the members of a group do together (`enum fi_collective_op`). The values are those of
    /// `rdma/fi_domain.h`.
    pub enum Collective: u8 as u32 {
        /// Nobody goes on before all have come (`FI_BARRIER`).
        Barrier = 0,
        /// All get what the root has (`FI_BROADCAST`).
        Broadcast = 1,
        /// Each gets a block from each (`FI_ALLTOALL`).
        Alltoall = 2,
        /// All get the reduction of what all have (`FI_ALLREDUCE`).
        Allreduce = 3,
        /// All get what all have, one block after the other (`FI_ALLGATHER`).
        Allgather = 4,
        /// Each gets its block of the reduction of what all have (`FI_REDUCE_SCATTER`).
        ReduceScatter = 5,
        /// The root gets the reduction of what all have (`FI_REDUCE`).
        Reduce = 6,
        /// Each gets its block of what the root has (`FI_SCATTER`).
        Scatter = 7,
        /// The root gets what all have, one block after the other (`FI_GATHER`).
        Gather = 8,
    }
}

impl Collective {
    /// Whether one member is the source or destination of the others.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather
        )
    }

    /// Whether elements are combined by an operation.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::Allreduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether elements of this datatype can be reduced by this operation: those that
    /// `fi_query_collective` lists, where they are defined on the datatype.
    #[must_use]
    pub const fn allows(op: AtomicOp, datatype: Datatype) -> bool {
        let listed = !op.takes_comparison() && !matches!(op, AtomicOp::Diff);
        listed && op.acts_on(datatype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for number in 0..9 {
            let op = Collective::from_number(number).unwrap();
            assert_eq!(op.number(), number);
        }
        assert_eq!(Collective::from_number(9), None);
        assert_eq!(Collective::from_number(u32::MAX), None);
    }

    #[test]
    fn reductions_are_those_of_the_manual_page() {
        assert!(Collective::allows(
            AtomicOp::Sum,
            Datatype::LongDoubleComplex
        ));
        assert!(Collective::allows(AtomicOp::AtomicWrite, Datatype::Float));
        assert!(Collective::allows(AtomicOp::AtomicRead, Datatype::Float));
        assert!(!Collective::allows(AtomicOp::Bxor, Datatype::Float));
        assert!(!Collective::allows(AtomicOp::Max, Datatype::FloatComplex));
        assert!(!Collective::allows(AtomicOp::Diff, Datatype::Int32));
        assert!(!Collective::allows(AtomicOp::Cswap, Datatype::Int32));
    }
}
