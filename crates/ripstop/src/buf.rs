//! Buffers that operations own while they run.

use sealed::Sealed;

/// A buffer that can be lent to an operation: a value that can become a `Vec<u8>` and back,
/// without copying where the type allows it.
///
/// The bytes an operation sends or fills are the first `len` ones of that vector, never its
/// spare capacity: a receive into `Vec::with_capacity(4096)` has room for nothing, one into
/// `vec![0; 4096]` for 4096 bytes. The vector comes back with the length it went with;
/// [`Completion::len`](crate::Completion::len) says how much of it was received.
///
/// Anybody may implement this, with safe code only: while an operation runs it holds the
/// vector itself, so that nothing an implementation does can move or free the bytes. A buffer
/// whose future was dropped is not put together again; its vector is freed when the operation
/// is over.
pub trait Buf: Sized {
    /// Gives up the bytes.
    fn into_vec(self) -> Vec<u8>;

    /// Takes them back.
    fn from_vec(vec: Vec<u8>) -> Self;
}

impl Buf for Vec<u8> {
    fn into_vec(self) -> Vec<u8> {
        self
    }

    fn from_vec(vec: Vec<u8>) -> Self {
        vec
    }
}

impl Buf for Box<[u8]> {
    fn into_vec(self) -> Vec<u8> {
        self.into_vec()
    }

    fn from_vec(vec: Vec<u8>) -> Self {
        vec.into_boxed_slice()
    }
}

/// Copies its bytes only if it shares its memory with another part (after `split_to`, say).
#[cfg(feature = "bytes")]
impl Buf for bytes::BytesMut {
    fn into_vec(self) -> Vec<u8> {
        self.into()
    }

    fn from_vec(vec: Vec<u8>) -> Self {
        bytes::Bytes::from(vec).into()
    }
}

/// What an operation takes: one [`Buf`], or several that form one message in order, as an
/// array `[B; N]` or a tuple of two to four.
///
/// An endpoint takes at most `iov_limit` buffers (`fi_endpoint(3)`; 4 for the providers here);
/// an operation with more of them ends with `FI_EINVAL`. The trait is sealed: implement
/// [`Buf`].
pub trait Bufs: sealed::Sealed {}

impl<T: sealed::Sealed> Bufs for T {}

pub(crate) mod sealed {
    use super::Pieces;

    /// See [`Bufs`](super::Bufs).
    pub trait Sealed: Sized {
        #[doc(hidden)]
        fn into_pieces(self) -> Pieces;
        #[doc(hidden)]
        fn from_pieces(pieces: Pieces) -> Self;
    }
}

/// The vectors of one message; nearly always one.
#[derive(Debug, Default)]
pub struct Pieces {
    first: Vec<u8>,
    rest: Vec<Vec<u8>>,
}

impl Pieces {
    /// Copies bytes to the front, as many as there is room for; returns how many.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        for piece in std::iter::once(&mut self.first).chain(&mut self.rest) {
            let (now, then) = rest.split_at(rest.len().min(piece.len()));
            piece[..now.len()].copy_from_slice(now);
            rest = then;
        }
        bytes.len() - rest.len()
    }

    /// The first `len` bytes, or all there are.
    pub(crate) fn front(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for piece in std::iter::once(&self.first).chain(&self.rest) {
            let part = piece.len().min(len - bytes.len());
            bytes.extend_from_slice(&piece[..part]);
        }
        bytes
    }

    pub(crate) const fn new(first: Vec<u8>, rest: Vec<Vec<u8>>) -> Self {
        Self { first, rest }
    }

    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<Vec<u8>>) {
        (self.first, self.rest)
    }
}

impl<B: Buf> Sealed for B {
    fn into_pieces(self) -> Pieces {
        Pieces {
            first: self.into_vec(),
            rest: Vec::new(),
        }
    }

    fn from_pieces(pieces: Pieces) -> Self {
        Self::from_vec(pieces.first)
    }
}

impl<B: Buf, const N: usize> Sealed for [B; N] {
    fn into_pieces(self) -> Pieces {
        let mut all = self.into_iter().map(Buf::into_vec);
        Pieces {
            first: all.next().unwrap_or_default(),
            rest: all.collect(),
        }
    }

    fn from_pieces(pieces: Pieces) -> Self {
        let mut all = std::iter::once(pieces.first).chain(pieces.rest);
        std::array::from_fn(|_| B::from_vec(all.next().unwrap_or_default()))
    }
}

macro_rules! tuples {
    ($($first:ident $($other:ident)+;)*) => {$(
        impl<$first: Buf, $($other: Buf),+> Sealed for ($first, $($other),+) {
            fn into_pieces(self) -> Pieces {
                #[expect(non_snake_case, reason = "one name for a type and its value")]
                let ($first, $($other),+) = self;
                Pieces { first: $first.into_vec(), rest: vec![$($other.into_vec()),+] }
            }

            fn from_pieces(pieces: Pieces) -> Self {
                let mut rest = pieces.rest.into_iter();
                (
                    $first::from_vec(pieces.first),
                    $($other::from_vec(rest.next().unwrap_or_default())),+
                )
            }
        }
    )*};
}

tuples! {
    A B;
    A B C;
    A B C D;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lent::{Lent, Over};

    fn there_and_back<B: Bufs + Clone + PartialEq + std::fmt::Debug>(bufs: B, count: usize) {
        let lent = Lent::park(bufs.clone().into_pieces());
        let len = lent.len();
        lent.with(|iov| {
            let iov = iov.expect("few enough");
            assert_eq!(iov.len(), count);
            assert_eq!(iov.iter().map(|buf| buf.len()).sum::<usize>(), len);
        });
        assert_eq!(B::from_pieces(lent.reclaim(Over::Refused)), bufs);
    }

    #[test]
    fn every_kind_comes_back_as_it_went() {
        there_and_back(vec![1, 2, 3], 1);
        there_and_back(Vec::new(), 1);
        there_and_back(vec![1u8, 2, 3].into_boxed_slice(), 1);
        there_and_back([vec![1], vec![], vec![2, 3]], 3);
        there_and_back((vec![1], vec![2u8, 3].into_boxed_slice()), 2);
        there_and_back((vec![1], vec![2], vec![3], vec![4]), 4);
        there_and_back::<[Vec<u8>; 0]>([], 1);
    }

    #[test]
    fn too_many_buffers_are_noticed_and_kept() {
        let five: [Vec<u8>; 5] = std::array::from_fn(|i| vec![i as u8]);
        let lent = Lent::park(five.clone().into_pieces());
        lent.with(|iov| assert!(iov.is_none()));
        assert_eq!(
            <[Vec<u8>; 5]>::from_pieces(lent.reclaim(Over::Refused)),
            five
        );
    }

    #[test]
    fn a_message_is_copied_across_buffers() {
        let mut pieces = [vec![0; 2], vec![], vec![0; 3]].into_pieces();
        assert_eq!(pieces.fill(&[1, 2, 3]), 3);
        assert_eq!(pieces.front(4), [1, 2, 3, 0]);
        assert_eq!(pieces.fill(&[9, 8, 7, 6, 5, 4]), 5);
        assert_eq!(pieces.front(5), [9, 8, 7, 6, 5]);
        assert_eq!(pieces.front(0), []);
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_come_back_without_a_copy() {
        let buf = bytes::BytesMut::from(&[7u8; 100][..]);
        let at = buf.as_ptr();
        let vec = buf.into_vec();
        let back = bytes::BytesMut::from_vec(vec);
        assert_eq!((back.as_ptr(), &back[..]), (at, &[7u8; 100][..]));
    }
}
