//! Objects that belong together are of one domain.

use std::sync::Arc;

use ripstop_types::{Errno, Result};

use crate::fi_warn;
use crate::log::Subsys;

/// Checks that `what`, which a call brings to an object of the domain `ours`, is of that domain too. The line of a
/// refusal is by `prov`.
///
/// # Errors
/// [`Errno::EDOMAIN`] for another domain, with a line in the log.
pub fn same_domain<D>(prov: &str, what: &str, ours: &Arc<D>, theirs: &Arc<D>) -> Result<()> {
    match Arc::ptr_eq(ours, theirs) {
        true => Ok(()),
        false => Err(refused(prov, what)),
    }
}

#[cold]
fn refused(prov: &str, what: &str) -> Errno {
    fi_warn!(
        prov,
        Subsys::Domain,
        "{what} is of another domain than the object of the call: open it in the same domain"
    );
    Errno::EDOMAIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log;

    #[test]
    fn an_object_of_another_domain_is_refused_with_a_line() {
        let [ours, theirs] = [Arc::new(1), Arc::new(1)];
        let same = Arc::clone(&ours);
        let check = |of| same_domain("core", "the queue", &ours, of);
        let before = log::warnings();
        assert_eq!(check(&same), Ok(()));
        assert_eq!(log::warnings(), before);
        assert_eq!(check(&theirs), Err(Errno::EDOMAIN));
        assert_eq!(log::warnings(), before + 1);
    }
}
