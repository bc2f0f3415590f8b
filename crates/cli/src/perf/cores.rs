//! One core for each of the two processes.

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores to use: those asked for, or the first two that this process may run on and that
/// are not two threads of one. `None` when there are not two.
///
/// # Errors
/// When a core that was asked for is not there.
pub fn choose(asked: Option<(usize, usize)>) -> anyhow::Result<Option<(usize, usize)>> {
    let allowed = allowed()?;
    if let Some((a, b)) = asked {
        for core in [a, b] {
            anyhow::ensure!(
                allowed.contains(&core),
                "core {core} is not available: choose from {allowed:?}"
            );
        }
        return Ok(Some((a, b)));
    }
    let Some((&first, rest)) = allowed.split_first() else {
        return Ok(None);
    };
    let home = physical(first);
    let apart = rest
        .iter()
        .find(|&&core| home.is_none() || physical(core) != home);
    Ok(apart.or(rest.first()).map(|&second| (first, second)))
}

/// Says on standard error what makes times worth little: too few cores, or other programs.
pub fn warn(cores: Option<(usize, usize)>) {
    if cores.is_none() {
        eprintln!("note: there is only one core for two processes, so times say little");
    }
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_ref().and_then(|text| text.split(' ').next());
    if let Some(load) = load
        && load.parse::<f64>().is_ok_and(|load| load > 1.0)
    {
        eprintln!("note: the machine is busy (load {load}), so times say little; ratios say more");
    }
}

/// Moves this thread to a core.
///
/// # Errors
/// When the system refuses.
pub fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

/// The cores that this process may run on.
///
/// # Errors
/// When the system does not tell.
pub fn allowed() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot tell which cores there are")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Package and core of a processor, where Linux knows them.
fn physical(cpu: usize) -> Option<(String, String)> {
    let read = |what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}");
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    };
    Some((read("physical_package_id")?, read("core_id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert!(choose(Some((0, 1_000_000))).is_err());
    }

    #[test]
    fn two_different_cores_are_chosen() {
        if let Some((a, b)) = choose(None).expect("cores") {
            assert_ne!(a, b);
        }
    }
}
