//! What is known by a number where another process has it: objects, and what infos carry.

use std::cell::{Cell, RefCell};

use ripstop_core::{Handle, Info};

use super::TWO;
use super::codec::{Put, Take};
use crate::subject::{Fid, Query, Result, Subject};

/// The bits of an object's number above those that count objects of a process: the process.
const SHIFT: u32 = 24;

/// Where an answer of `fi_getinfo` comes from, so that another process can ask the same.
pub(super) struct Offer {
    /// What the implementation here has put into the info.
    pub(super) here: Option<Handle>,
    pub(super) query: Query,
    pub(super) index: usize,
}

/// What the implementation in another process has put into an info.
struct Kept {
    process: u32,
    number: usize,
}

/// Of a process that serves another: its number, and what it serves.
#[derive(Clone, Copy)]
struct Serving {
    process: u32,
    subject: &'static dyn Subject,
}

thread_local! {
    static SERVING: Cell<Option<Serving>> = const { Cell::new(None) };
    static KEPT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Says which process this is, before it serves.
pub(super) fn serve(process: u32, subject: &'static dyn Subject) {
    SERVING.set(Some(Serving { process, subject }));
}

/// The process that has an object.
pub(super) fn process(fid: Fid) -> u32 {
    fid.0 >> SHIFT
}

/// The number by which other processes know an object; 0 is none.
pub(super) fn global(fid: Fid) -> Fid {
    match SERVING.get() {
        Some(serving) if fid.0 != 0 => Fid(fid.0 | serving.process << SHIFT),
        _ => fid,
    }
}

/// The number by which this process knows an object that is its own.
pub(super) fn local(fid: Fid) -> Option<Fid> {
    match SERVING.get() {
        Some(serving) if process(fid) == serving.process => Some(Fid(fid.0 & ((1 << SHIFT) - 1))),
        Some(_) => None,
        None => Some(fid),
    }
}

/// An info as the implementation here gave it; not one that another process has.
pub(super) fn here(info: &Info) -> Result<Info> {
    let mut info = info.clone();
    info.handle = handle_here(info.handle);
    match info.handle.as_ref().and_then(Handle::downcast::<Kept>) {
        Some(_) => Err(TWO),
        None => Ok(info),
    }
}

/// As [`here`], of what the info carries.
pub(super) fn handle_here(handle: Option<Handle>) -> Option<Handle> {
    match handle.as_ref().and_then(Handle::downcast::<Offer>) {
        Some(offer) => offer.here.clone(),
        None => handle,
    }
}

/// Objects are known by the number of their process and their number there.
impl Put for Fid {
    fn put(&self, to: &mut Vec<u8>) {
        global(*self).0.put(to);
    }
}

impl Take<'_> for Fid {
    fn take(from: &mut &[u8]) -> Option<Self> {
        local(Self(u32::take(from)?))
    }
}

impl Put for Handle {
    fn put(&self, to: &mut Vec<u8>) {
        if let Some(serving) = SERVING.get() {
            let number = KEPT.with_borrow_mut(|kept| {
                kept.push(self.clone());
                kept.len() - 1
            });
            (0_u8, serving.process, number).put(to);
        } else if let Some(kept) = self.downcast::<Kept>() {
            (0_u8, kept.process, kept.number).put(to);
        } else if let Some(offer) = self.downcast::<Offer>() {
            (1_u8, &offer.query, offer.index).put(to);
        } else {
            2_u8.put(to);
        }
    }
}

impl Take<'_> for Handle {
    fn take(from: &mut &[u8]) -> Option<Self> {
        match (u8::take(from)?, SERVING.get()) {
            (0, None) => Some(Handle::new(Kept {
                process: Take::take(from)?,
                number: Take::take(from)?,
            })),
            (0, Some(serving)) if u32::take(from)? == serving.process => {
                let number = usize::take(from)?;
                KEPT.with_borrow(|kept| kept.get(number).cloned())
            }
            (1, Some(serving)) => {
                let (query, index) = <(Query, usize)>::take(from)?;
                let answers = serving.subject.getinfo(&query).ok()?;
                let answer = answers.into_iter().nth(index)?;
                // There is none in the object model of Rust: the info says all.
                Some(answer.handle.unwrap_or(Handle::new(())))
            }
            _ => None,
        }
    }
}
