//! What is counted.

use clap::ValueEnum;

/// A part of a message's way, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Operation {
    /// `fi_trecv`, `fi_tinject` and the read that completes the receive.
    InjectMessage,
    /// `fi_trecv`, `fi_tsend` and the reads that complete both.
    SendMessage,
    /// 64 of `fi_trecv` and `fi_tsend` each, and the reads that complete all of them.
    Burst,
    /// As `SendMessage`, with 4096 bytes, which a link that gathers copies once on each side.
    GatheredMessage,
    /// `fi_write` of 8 bytes, the reads that complete it, and the read that takes it.
    WriteMessage,
    /// `fi_read` of 8 bytes, and the reads that complete it.
    RemoteRead,
    /// 64 of `fi_read`, and the reads that complete all of them.
    RemoteReads,
    /// `fi_tinject`.
    Tinject,
    /// `fi_tsend`.
    Tsend,
    /// `fi_trecv`.
    Trecv,
    /// A `fi_cq_read` that makes progress, matches and returns the completion.
    MatchingRead,
    /// A `fi_cq_read` that finds nothing.
    EmptyRead,
}

impl Operation {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::InjectMessage,
        Self::SendMessage,
        Self::Burst,
        Self::GatheredMessage,
        Self::WriteMessage,
        Self::RemoteRead,
        Self::RemoteReads,
        Self::Tinject,
        Self::Tsend,
        Self::Trecv,
        Self::MatchingRead,
        Self::EmptyRead,
    ];

    /// Its name in the budget.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::InjectMessage => "inject-message",
            Self::SendMessage => "send-message",
            Self::Burst => "burst",
            Self::GatheredMessage => "gathered-message",
            Self::WriteMessage => "write-message",
            Self::RemoteRead => "remote-read",
            Self::RemoteReads => "remote-reads",
            Self::Tinject => "tinject",
            Self::Tsend => "tsend",
            Self::Trecv => "trecv",
            Self::MatchingRead => "matching-read",
            Self::EmptyRead => "empty-read",
        }
    }

    /// Whether it is a read or write of a peer's memory.
    pub(crate) const fn is_one_sided(self) -> bool {
        matches!(
            self,
            Self::WriteMessage | Self::RemoteRead | Self::RemoteReads
        )
    }

    /// The function of [`client`](crate::client) inside which callgrind counts.
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Self::InjectMessage => "*client*inject_message*",
            Self::SendMessage => "*client*send_message*",
            Self::Burst => "*client*send_burst*",
            Self::GatheredMessage => "*client*gathered_message*",
            Self::WriteMessage => "*client*write_message*",
            Self::RemoteRead => "*client*remote_read_once*",
            Self::RemoteReads => "*client*remote_read_burst*",
            Self::Tinject => "*client*call_tinject*",
            Self::Tsend => "*client*call_tsend*",
            Self::Trecv => "*client*call_trecv*",
            Self::MatchingRead => "*client*first_read*",
            Self::EmptyRead => "*client*empty_read*",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_the_command_line_takes() {
        for operation in Operation::ALL {
            assert_eq!(Operation::from_str(operation.key(), false), Ok(operation));
        }
    }
}
