//! `fi_msg`(3).

use crate::case::{Case, Cx, Outcome};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, pattern};

pub(super) const CASES: &[Case] = &[
    Case::both("fi_msg/small", "a small message arrives", small),
    Case::both(
        "fi_msg/sizes",
        "messages of 0 B to 4 MiB arrive whole",
        sizes,
    ),
];

fn small(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let got = rig.exchange(A, B, b"hello")?;
    ensure!(got.len == 5, "5 bytes arrived as {}", got.len);
    rig.quiet()?;
    rig.close()
}

fn sizes(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    for (seed, len) in [
        0,
        1,
        7,
        63,
        64,
        65,
        127,
        128,
        129,
        1000,
        4095,
        4096,
        65_537,
        1 << 20,
        4 << 20,
    ]
    .into_iter()
    .enumerate()
    {
        rig.exchange(A, B, &pattern(len, seed))?;
        rig.exchange(B, A, &pattern(len, seed + 1))?;
    }
    rig.quiet()?;
    rig.close()
}
