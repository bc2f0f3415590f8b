//! The hook `monitor`: how often each call is made and how many bytes it moves, for `fi_mon_sampler(1)`
//! of C libfabric, which reads a file of each fabric while the program runs.
//!
//! Names, layout and variables are those of C's `ofi_hook_monitor` (`fi_hook(7)`).

mod counts;
mod file;

use std::sync::Arc;

use ripstop_abi as abi;

use crate::call::{Call, Detail, Entries, Kind};
use crate::completions::{self, Completion};
use crate::counting::Threads;
use crate::hook::{Begins, Hook, Opened, Watch, With, like};
use crate::layout;
use counts::Counts;
use file::Shared;

pub(crate) use file::at_end;

/// See the module.
#[derive(Debug)]
pub(crate) struct Monitor;

/// What watches one object.
#[derive(Debug)]
struct Object {
    class: usize,
    /// The file of the fabric; `None` where there is none.
    file: Option<Arc<Shared>>,
    /// Those of the domain, or of what a fabric has outside its domains.
    counts: Arc<Counts>,
    /// Of a completion queue.
    format: abi::fi_cq_format,
}

impl Hook for Monitor {
    fn open(&self, opened: &Opened<'_>, parent: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch> {
        let parent = parent.and_then(|parent| like::<Object>(parent));
        let file = match parent {
            Some(parent) => parent.file.clone(),
            None => Shared::create(opened.provider),
        };
        let counts = match (opened.class, parent) {
            (abi::FI_CLASS_DOMAIN, _) => Counts::new(opened.threads()),
            (_, Some(parent)) => Arc::clone(&parent.counts),
            _ => Counts::new(Threads::Several),
        };
        let is_root = matches!(opened.class, abi::FI_CLASS_FABRIC | abi::FI_CLASS_DOMAIN);
        if let Some(file) = file.as_ref().filter(|_| is_root) {
            file.add(&counts);
        }
        let format = match opened.with {
            With::Cq { format, .. } => format,
            _ => abi::FI_CQ_FORMAT_UNSPEC,
        };
        Arc::new(Object {
            class: opened.class,
            file,
            counts,
            format,
        })
    }

    fn begins(&self) -> Begins {
        Begins::None
    }
}

impl Object {
    /// Counts a call or an entry; now and then the file is looked at.
    #[inline]
    fn count(&self, place: u8, bucket: usize, bytes: usize) {
        let is_due = self.counts.add(usize::from(place), bucket, bytes);
        if let Some(file) = self.file.as_ref().filter(|_| is_due) {
            file.answer();
        }
    }

    /// Counts the entries that a read of a queue has stored.
    fn count_entries(&self, entries: Entries, result: isize) {
        if self.format == abi::FI_CQ_FORMAT_UNSPEC {
            return;
        }
        let length = completions::length(self.format);
        entries.each(length, result, |Completion { flags, len, .. }| {
            let Some((place, is_receive)) = layout::place_of_entry(self.format, flags) else {
                return;
            };
            let bytes = if is_receive { len } else { 0 };
            self.count(place, layout::bucket(bytes), bytes);
        });
    }
}

impl Watch for Object {
    #[inline]
    fn after(&self, call: &Call, result: isize) {
        match (&call.detail, call.info.monitored) {
            (Detail::Transfer(transfer), Some(place)) if result == 0 => {
                // What a receive has room for says nothing of what comes.
                let is_receive = transfer.kind == Kind::Recv;
                let bytes = if is_receive { 0 } else { transfer.bytes };
                self.count(place, layout::bucket(bytes), bytes);
            }
            (Detail::Register(memory), Some(place)) if result == 0 => {
                // By kind of memory, not by size.
                self.count(place, memory.iface as usize, memory.bytes);
            }
            (Detail::Entries(entries), _) if result > 0 => self.count_entries(*entries, result),
            _ => {}
        }
    }

    fn closed(&self) {
        let Some(file) = &self.file else { return };
        match self.class {
            abi::FI_CLASS_DOMAIN => file.retire(&self.counts),
            abi::FI_CLASS_FABRIC => file.close(),
            _ => {}
        }
    }
}
