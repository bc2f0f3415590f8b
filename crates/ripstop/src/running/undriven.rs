//! Domains without a thread of the library whose tasks wait: that nothing drives one is said.
//!
//! One thread looks after all of them. It is started by the first task that waits in such a
//! domain outside of the calls that drive it, and ends when no task waits any more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;

use super::Core;

/// How long a domain with waiting tasks may go without progress.
const PATIENCE: Duration = Duration::from_secs(5);

struct Domain {
    core: Weak<Core>,
    /// The progress it had made when it was last looked at.
    advances: u64,
}

/// Domains that are looked after, and whether there is a thread that does.
static DOMAINS: Mutex<(Vec<Domain>, bool)> = Mutex::new((Vec::new(), false));

/// Looks after a domain until no task waits there.
#[cold]
pub(crate) fn look_after(core: &Arc<Core>) {
    let (advances, _) = core.state();
    let mut domains = DOMAINS.lock();
    domains.0.push(Domain {
        core: Arc::downgrade(core),
        advances,
    });
    if !domains.1 {
        // Without a thread nothing is said, and all else goes on.
        let name = thread::Builder::new().name("ripstop-watch".into());
        domains.1 = name.spawn(watch).is_ok();
    }
}

fn watch() {
    loop {
        thread::sleep(PATIENCE);
        // Looked at without the lock, which tasks may wait for.
        let mut domains = std::mem::take(&mut DOMAINS.lock().0);
        domains.retain_mut(Domain::is_to_be_watched);
        let mut all = DOMAINS.lock();
        all.0.append(&mut domains);
        if all.0.is_empty() {
            all.1 = false;
            return;
        }
    }
}

impl Domain {
    /// Looks at it; returns whether to look again.
    fn is_to_be_watched(&mut self) -> bool {
        let Some(core) = self.core.upgrade() else {
            return false;
        };
        let (advances, awaited) = core.state();
        if !awaited {
            // The next task that waits has it looked after again.
            core.looked_after.store(false, Ordering::SeqCst);
            // One that came meanwhile has taken it for looked after.
            return core.state().1 && !core.looked_after.swap(true, Ordering::SeqCst);
        }
        if std::mem::replace(&mut self.advances, advances) != advances {
            return true;
        }
        fi_warn!(
            core.info.prov_name(),
            Subsys::Domain,
            "tasks wait for a domain with Progress::Manual that nothing has driven for {PATIENCE:?}: \
             call Domain::progress in a loop, wait inside Domain::block_on, drive it from the event \
             loop (Domain::driver), or open it with Progress::Background"
        );
        false
    }
}
