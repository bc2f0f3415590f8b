//! `ripstop top` and `ripstop why`: what running processes show of themselves
//! (`docs/design/status-page.md`).

mod follow;
mod process;
#[cfg(test)]
mod tests;
mod top;
mod why;

pub(crate) use top::{Options as TopOptions, main as top};
pub(crate) use why::{Options as WhyOptions, main as why};
