//! What the tools do: [`info`] is `fi_info`, [`pingpong`] is `fi_pingpong`, [`strerror`] is
//! `fi_strerror`, [`ripstop`] with [`perf`] and `watch` is `ripstop`. Each binary only calls its `main` here;
//! `ripstop`, started under the name of another tool, is that one.
#![forbid(unsafe_code)]

mod endpoint;
pub mod exit;
pub mod info;
mod objects;
pub mod perf;
pub mod pingpong;
pub mod providers;
pub mod ripstop;
pub mod strerror;
mod watch;
