//! What is where in the files of the hook `monitor`: C's `struct monitor_mapped_data`.
//!
//! For each place, a call or a kind of entry, so many counts, one of each bucket, and as many sums of bytes; behind
//! all of them a byte of flags. Numbers are `u64` of this machine.

use ripstop_abi as abi;

/// The places.
pub(crate) const PLACES: usize = 42;

/// The buckets of a place.
pub(crate) const BUCKETS: usize = 9;

/// The numbers of a file.
pub(crate) const NUMBERS: usize = PLACES * BUCKETS * 2;

/// Where the flags are.
pub(crate) const FLAGS_AT: usize = NUMBERS * size_of::<u64>();

/// The length of a file: the struct is as long as a multiple of its alignment.
pub(crate) const LENGTH: usize = FLAGS_AT + size_of::<u64>();

/// The sampler asks for what was counted; taken away when it is there.
pub(crate) const REQUEST: u8 = 1;

/// The program has ended, and nothing more comes.
pub(crate) const FINISHED: u8 = 1 << 1;

/// The calls that have places, in their order. Behind them are reads of completion queues, which are
/// counted by what they have read.
const CALLS: [&str; 30] = [
    "fi_recv",
    "fi_recvv",
    "fi_recvmsg",
    "fi_trecv",
    "fi_trecvv",
    "fi_trecvmsg",
    "fi_send",
    "fi_sendv",
    "fi_sendmsg",
    "fi_inject",
    "fi_senddata",
    "fi_injectdata",
    "fi_tsend",
    "fi_tsendv",
    "fi_tsendmsg",
    "fi_tinject",
    "fi_tsenddata",
    "fi_tinjectdata",
    "fi_read",
    "fi_readv",
    "fi_readmsg",
    "fi_write",
    "fi_writev",
    "fi_writemsg",
    "fi_inject_write",
    "fi_writedata",
    "fi_inject_writedata",
    "fi_mr_reg",
    "fi_mr_regv",
    "fi_mr_regattr",
];

/// Entries that have a context only.
const CONTEXT_ENTRY: u8 = 35;

/// The place of a call, if it has one.
pub(crate) const fn place(call: &str) -> Option<u8> {
    let mut at = 0;
    while at < CALLS.len() {
        if is_same(CALLS[at].as_bytes(), call.as_bytes()) {
            return Some(at as u8);
        }
        at += 1;
    }
    None
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The place of an entry of a queue of this format, and whether it is of a receive; `None` for those that
/// are not counted.
pub(crate) const fn place_of_entry(format: abi::fi_cq_format, flags: u64) -> Option<(u8, bool)> {
    let sent = match format {
        abi::FI_CQ_FORMAT_CONTEXT => return Some((CONTEXT_ENTRY, false)),
        abi::FI_CQ_FORMAT_MSG => CONTEXT_ENTRY + 1,
        abi::FI_CQ_FORMAT_DATA => CONTEXT_ENTRY + 3,
        abi::FI_CQ_FORMAT_TAGGED => CONTEXT_ENTRY + 5,
        _ => return None,
    };
    if flags & abi::FI_RECV != 0 {
        Some((sent + 1, true))
    } else if flags & abi::FI_SEND != 0 {
        Some((sent, false))
    } else {
        None
    }
}

/// The bucket of so many bytes.
pub(crate) const fn bucket(bytes: usize) -> usize {
    match bytes {
        0..=64 => 0,
        65..=512 => 1,
        513..=1024 => 2,
        1025..=4096 => 3,
        4097..=0x1_0000 => 4,
        0x1_0001..=0x4_0000 => 5,
        0x4_0001..=0x10_0000 => 6,
        0x10_0001..=0x40_0000 => 7,
        _ => 8,
    }
}

/// Where the count of a place and bucket is among the numbers; the sum is [`BUCKETS`] behind it.
pub(crate) const fn count_at(place: usize, bucket: usize) -> usize {
    place * 2 * BUCKETS + bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_c_maps() {
        assert_eq!((FLAGS_AT, LENGTH), (6048, 6056));
        assert_eq!(place("fi_recv"), Some(0));
        assert_eq!(place("fi_inject_writedata"), Some(26));
        assert_eq!(place("fi_mr_regattr"), Some(29));
        assert_eq!(place("fi_cq_read"), None);
        let tagged = place_of_entry(abi::FI_CQ_FORMAT_TAGGED, abi::FI_RECV);
        assert_eq!(tagged, Some((PLACES as u8 - 1, true)));
        let written = place_of_entry(abi::FI_CQ_FORMAT_TAGGED, abi::FI_WRITE);
        assert_eq!(written, None);
    }

    #[test]
    fn buckets_end_with_their_bounds() {
        let bounds = [
            64,
            512,
            1 << 10,
            4 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
        ];
        for (at, bound) in bounds.into_iter().enumerate() {
            assert_eq!((bucket(bound), bucket(bound + 1)), (at, at + 1));
        }
    }
}
