//! The same implementation in several processes: each side of a case in one of its own.
//!
//! The case runs in the first process, with side `A`. What belongs to another side is opened in
//! another process, this program started again, and every call on it is made there: the call's name
//! and arguments go to that process over a pipe, its result comes back. What a domain, a queue or an
//! endpoint has opened is where that is. A case that would share an object between sides is not
//! offered.

mod calls;
mod codec;
mod handles;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ripstop_core::{Handle, Info};
use ripstop_types::{Errno, WaitObj};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Error, Fid, Query, Result, Subject};
use codec::{Put as _, Take as _};
use handles::Offer;

/// What the case calls.
pub struct Apart<'a> {
    /// The implementation in this process.
    here: &'a dyn Subject,
    /// Starts the process of another side.
    start: &'a dyn Fn(usize) -> Command,
    others: RefCell<BTreeMap<u32, Other>>,
    /// Where what is opened in a fabric goes.
    side: Cell<usize>,
    /// The fabrics of this process, and those that others have opened for them.
    fabrics: RefCell<HashMap<Fid, Info>>,
    twins: RefCell<BTreeMap<(Fid, u32), Fid>>,
}

/// Another process.
struct Other {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is said of a call whose objects are in two processes.
const TWO: Error = Error::Missing("use objects of two processes in one call");

fn lost(call: &'static str) -> Error {
    Error::Call {
        call,
        errno: Errno::EPIPE,
    }
}

impl<'a> Apart<'a> {
    /// The sides of a case in processes of their own; `start` says how that of a side is started.
    #[must_use]
    pub fn new(here: &'a dyn Subject, start: &'a dyn Fn(usize) -> Command) -> Self {
        Self {
            here,
            start,
            others: RefCell::new(BTreeMap::new()),
            side: Cell::new(0),
            fabrics: RefCell::new(HashMap::new()),
            twins: RefCell::new(BTreeMap::new()),
        }
    }

    /// Whether anything was opened in another process.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        !self.others.borrow().is_empty()
    }

    /// Makes a call in another process.
    fn far<T: for<'b> codec::Take<'b>>(
        &self,
        process: u32,
        call: &'static str,
        arguments: &[u8],
    ) -> Result<T> {
        let mut others = self.others.borrow_mut();
        let answer = match others.get_mut(&process) {
            Some(other) => other.ask(call, arguments),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let answer = answer.map_err(|_| lost(call))?;
        let result: Option<Result<T>> = codec::Take::take(&mut &answer[..]);
        result.unwrap_or(Err(TWO))
    }

    /// Which process has what is opened in a fabric now, and the fabric there.
    fn fabric_there(&self, fabric: Fid) -> Result<(u32, Fid)> {
        let process = u32::try_from(self.side.get()).unwrap_or_default();
        if process == 0 {
            return Ok((0, fabric));
        }
        if let Some(twin) = self.twins.borrow().get(&(fabric, process)) {
            return Ok((process, *twin));
        }
        let info = self.fabrics.borrow().get(&fabric).cloned();
        let info = info.ok_or(Error::Missing("use that as a fabric"))?;
        if !self.others.borrow().contains_key(&process) {
            let other = Other::start((self.start)(self.side.get()));
            let other = other.map_err(|_| lost("fi_fabric"))?;
            self.others.borrow_mut().insert(process, other);
        }
        let mut arguments = Vec::new();
        info.put(&mut arguments);
        let twin = self.far(process, "fabric", &arguments)?;
        self.twins.borrow_mut().insert((fabric, process), twin);
        Ok((process, twin))
    }

    fn getinfo_here(&self, query: &Query) -> Result<Vec<Info>> {
        let mut query = query.clone();
        if let Some(hints) = &mut query.hints {
            hints.handle = handles::handle_here(hints.handle.take());
        }
        let mut answers = self.here.getinfo(&query)?;
        if let Some(hints) = &mut query.hints {
            hints.handle = None;
        }
        for (index, info) in answers.iter_mut().enumerate() {
            info.handle = Some(Handle::new(Offer {
                here: info.handle.take(),
                query: query.clone(),
                index,
            }));
        }
        Ok(answers)
    }

    fn open_fabric(&self, info: &Info) -> Result<Fid> {
        let fabric = self.here.fabric(&handles::here(info)?)?;
        self.fabrics.borrow_mut().insert(fabric, info.clone());
        Ok(fabric)
    }

    fn open_domain(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        match self.fabric_there(fabric)? {
            (0, fabric) => self.here.domain(fabric, &handles::here(info)?),
            (process, fabric) => {
                let mut arguments = Vec::new();
                (fabric, info).put(&mut arguments);
                self.far(process, "domain", &arguments)
            }
        }
    }

    fn open_passive_ep(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        match self.fabric_there(fabric)? {
            (0, fabric) => self.here.passive_ep(fabric, &handles::here(info)?),
            (process, fabric) => {
                let mut arguments = Vec::new();
                (fabric, info).put(&mut arguments);
                self.far(process, "passive_ep", &arguments)
            }
        }
    }

    fn open_eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        match self.fabric_there(fabric)? {
            (0, fabric) => self.here.eq(fabric, wait),
            (process, fabric) => {
                let mut arguments = Vec::new();
                (fabric, wait).put(&mut arguments);
                self.far(process, "eq", &arguments)
            }
        }
    }

    /// Closes an object; a fabric where it is open.
    fn close_all(&self, fid: Fid) -> Result<()> {
        let process = handles::process(fid);
        if process > 0 {
            let mut arguments = Vec::new();
            fid.put(&mut arguments);
            return self.far(process, "close", &arguments);
        }
        let mut twins = self.twins.borrow().clone();
        twins.retain(|(fabric, _), _| *fabric == fid);
        for (key, twin) in twins {
            self.close_all(twin)?;
            self.twins.borrow_mut().remove(&key);
        }
        self.here.close(fid)
    }

    fn try_wait(&self, fabric: Fid, fids: &[Fid]) -> Result<()> {
        let process = fids.first().map_or(0, |fid| handles::process(*fid));
        let twin = self.twins.borrow().get(&(fabric, process)).copied();
        match (process, twin) {
            (0, _) => self.here.trywait(fabric, fids),
            (_, None) => Err(TWO),
            (_, Some(fabric)) => {
                let mut arguments = Vec::new();
                (fabric, fids).put(&mut arguments);
                self.far(process, "trywait", &arguments)
            }
        }
    }
}

impl Other {
    fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Self { child, to, from }),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends a call, and waits for its result.
    fn ask(&mut self, call: &str, arguments: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = Vec::with_capacity(arguments.len() + call.len() + 16);
        call.put(&mut request);
        request.extend(arguments);
        write_frame(&mut self.to, &request)?;
        read_frame(&mut self.from)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(bytes.len() + 8);
    bytes.put(&mut frame);
    to.write_all(&frame)?;
    to.flush()
}

/// The next frame; `None` when there are no more.
fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; size_of::<usize>()];
    match from.read_exact(&mut len) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let mut bytes = vec![0; usize::from_le_bytes(len)];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Serves as the process of a side, until the case ends.
///
/// # Errors
///
/// When its pipes break.
pub fn serve(subject: &'static dyn Subject, side: usize) -> io::Result<()> {
    // A case that is killed leaves nobody behind, whatever this process waits for.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    handles::serve(u32::try_from(side).unwrap_or_default(), subject);
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    while let Some(request) = read_frame(&mut from)? {
        let mut request = &request[..];
        let mut answer = Vec::new();
        let call = <&str>::take(&mut request).unwrap_or_default();
        if calls::answer(subject, call, &mut request, &mut answer).is_none() {
            answer.clear();
            let nothing: Result<()> = Err(TWO);
            nothing.put(&mut answer);
        }
        write_frame(&mut to, &answer)?;
    }
    Ok(())
}
