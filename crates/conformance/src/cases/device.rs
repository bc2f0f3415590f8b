//! An RDMA device that is removed while endpoints use it (`fi_eq`(3), `fi_cq`(3)). The case removes it, so the
//! environment has to say that it may: `RIPSTOP_REMOVABLE` names the device, and `--node` is an address of it.

use std::env;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ripstop_types::{Errno, Protocol};

use crate::case::{Cx, Outcome, Step, Stop, cases, refused};
use crate::pace::bound;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::Post;
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_eq {
        msg device_removed:
            "what is posted on a device that is removed fails with FI_ENODEV, and event queues tell its name",
            within(60);
    }
}

/// How long operations may take to fail, and the device to go once nobody uses it.
const GOING: Duration = Duration::from_secs(10);

/// Receives of each side.
const POSTED: usize = 4;

fn device_removed(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    if rig.info.ep.protocol != Protocol::RdmaCmIbRc {
        return Err(Stop::not_offered("it has no RDMA device"));
    }
    let device = env::var("RIPSTOP_REMOVABLE").map_err(|_| {
        Stop::not_here("RIPSTOP_REMOVABLE does not name a device that may be removed")
    })?;
    ensure_eq!(
        rig.info.domain.name.as_deref(),
        Some(&*device),
        "the device of --node"
    );
    rig.exchange(A, B, b"before")?;
    let mut posted = Vec::new();
    for side in [A, B] {
        for _ in 0..POSTED {
            posted.push((side, rig.post(side, Post::recv(64))?));
        }
    }
    let mut removal = remove(&device)?;
    for (side, token) in posted {
        let failed = rig.end_within(bound(GOING), side, token)?.err();
        let failed = failed.ok_or_else(|| Stop::fail("a receive succeeded"))?;
        ensure_eq!(failed.err, Errno::ENODEV, "the error of a receive");
        ensure!(
            failed.err_data.starts_with(device.as_bytes()),
            "the error of a receive names {:?}",
            failed.err_data
        );
    }
    let reasons = [Errno::ENODEV];
    refused(rig.try_post(A, Post::send(*b"after")), &reasons, "a send")?;
    refused(rig.try_post(B, Post::recv(64)), &reasons, "a receive")?;
    let mut wanted: Vec<_> = rig
        .sides
        .iter()
        .map(|side| side.ep)
        .chain(rig.pep)
        .collect();
    while !wanted.is_empty() {
        let failed = rig.until_within(bound(GOING), "an error of an object", || {
            Ok(rig.eqs.iter().find_map(|eq| rig.take_event(*eq)))
        })?;
        let failed = failed
            .err()
            .ok_or_else(|| Stop::fail("an event that is no error"))?;
        ensure_eq!(failed.err, Errno::ENODEV, "the error of an object");
        ensure!(
            failed.data.starts_with(device.as_bytes()),
            "the error of an object names {:?}",
            failed.data
        );
        let known = wanted.iter().position(|fid| failed.fid == Some(*fid));
        let known = known.ok_or_else(|| Stop::fail(format!("{:?} has failed, too", failed.fid)))?;
        wanted.remove(known);
    }
    rig.close()?;
    let end = Instant::now() + bound(GOING);
    loop {
        let status = removal.try_wait();
        match status.map_err(|error| Stop::fail(format!("the removal: {error}")))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Stop::fail(format!("the removal: {status}"))),
            None => ensure!(
                Instant::now() < end,
                "the device does not go though all is closed"
            ),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Begins to remove a device, which waits until nobody uses it.
fn remove(device: &str) -> Step<Child> {
    let removal = Command::new("rdma").args(["link", "del", device]).spawn();
    removal.map_err(|error| Stop::not_here(format!("rdma does not run: {error}")))
}
