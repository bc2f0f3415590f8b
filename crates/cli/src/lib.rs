//! What the tools do: [`info`] is `fi_info`, [`pingpong`] is `fi_pingpong`, [`strerror`] is
//! `fi_strerror`, [`ripstop`] with [`perf`] is `ripstop`. Each binary only calls its `main` here.
#![forbid(unsafe_code)]

pub mod exit;
pub mod info;
pub mod perf;
pub mod pingpong;
pub mod providers;
pub mod ripstop;
pub mod strerror;
