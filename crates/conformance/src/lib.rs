//! One suite of cases that every provider passes.
//!
//! A [`case`] states one rule of the man pages and tries it through a [`subject`]: any
//! `libfabric.so.1` through its C interface, or the Rust object model. The same bodies run on
//! every implementation, so that ours is held to the rules and the C library shows whether the
//! suite reads them right.
#![deny(unsafe_code)]

pub mod case;
pub mod cases;
pub mod lists;
pub mod mistakes;
pub mod pace;
pub mod pattern;
pub mod report;
pub mod rig;
pub mod run;
pub mod subject;
