//! The provider through the object model: one program, since each would be built with all of the provider.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../conformance/src/subject/model/freed.rs"]
mod freed;
#[path = "../common/pair.rs"]
mod pair;

mod coll;
mod msg;
mod peer;
mod rdm;
mod rxm;
mod scalable;
mod triggered;
