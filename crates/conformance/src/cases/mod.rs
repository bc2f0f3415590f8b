//! The cases, by man page.

mod av;
mod cm;
mod cntr;
mod cq;
mod eq;
mod getinfo;
mod msg;
mod objects;
mod peers;
mod tagged;
mod threads;

use crate::case::{Case, Cx, Step, Stop};
use crate::subject::CEdge;

/// Every case, in the order they run.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        getinfo::cases(),
        av::cases(),
        cm::cases(),
        eq::CASES.to_vec(),
        objects::cases(),
        cq::cases(),
        cntr::CASES.to_vec(),
        msg::cases(),
        tagged::cases(),
        peers::CASES.to_vec(),
        threads::CASES.to_vec(),
    ]
    .concat()
}

/// The calls that only the C interface has.
fn c_edge<'a>(cx: &Cx<'a>) -> Step<&'a dyn CEdge> {
    let edge = cx.s.c_edge();
    edge.ok_or_else(|| Stop::not_offered("only the C interface has this call"))
}
