//! Listeners: from a connection to a request that the program hears of.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ripstop_types::Result;

use crate::cm::wire::{Frame, Param, Verb};
use crate::cm::{ANSWER, Id, Space, errno, spawn};
use crate::log::{self, Subsys};

/// How long a process that has connected may take to send its request.
const REQUEST: Duration = Duration::from_secs(10);

/// A socket that listens, and its thread. Dropping it ends both, so that the address is free.
pub(super) struct Listener {
    ended: Arc<AtomicBool>,
    /// The socket, as a type that can be shut down: that wakes the thread, which waits in `accept`.
    socket: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the thread.
    pub(super) fn start(id: &Arc<Id>, socket: TcpListener) -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let shared = socket.try_clone().map_err(|error| errno(&error))?;
        let (id, end) = (Arc::downgrade(id), Arc::clone(&ended));
        let thread = spawn(move || run(&id, &socket, &end))?;
        Ok(Self {
            ended,
            socket: TcpStream::from(OwnedFd::from(shared)),
            thread: Some(thread),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
        // The thread may have had the last reference to the id, and so be the one that is here.
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            // It has not panicked: a panic ends the process.
            let _ = thread.join();
        }
    }
}

fn run(id: &Weak<Id>, socket: &TcpListener, ended: &AtomicBool) {
    loop {
        let came = socket.accept();
        if ended.load(Ordering::Acquire) {
            return;
        }
        match came {
            Ok((stream, _)) => {
                let Some(id) = id.upgrade() else {
                    return;
                };
                // Without a thread the stream is closed, and the peer tries again or not.
                let _ = spawn(move || request(&id, stream));
            }
            Err(error) => {
                log::warn(
                    Subsys::EpCtrl,
                    format_args!("a connection is not accepted: {error}"),
                );
                // Most likely there is no descriptor: wait for one.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Reads a request, tells the program, and reads on until the connection ends.
fn request(listener: &Arc<Id>, stream: TcpStream) {
    let stream = Arc::new(stream);
    let frame = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(REQUEST)))
        .and_then(|()| Frame::read(&*stream));
    let frame = match frame {
        Ok(frame) if frame.verb == Verb::Request => frame,
        Ok(_) => return,
        Err(error) => {
            let who = stream.peer_addr();
            log::warn(
                Subsys::EpCtrl,
                format_args!("{who:?} has connected and sent no request: {error}"),
            );
            return;
        }
    };
    let own = listener.engine.choice.kind;
    let (space, asked) = (listener.space, Space::of(&frame.param));
    if frame.kind != own || space != asked {
        log::warn(
            Subsys::EpCtrl,
            format_args!(
                "a request for {asked:?} of a device over {} is rejected: here are {space:?} over {}; set \
                 RIPSTOP_VERBS_PROVIDER on both sides alike",
                frame.kind.name(),
                own.name()
            ),
        );
        let _ = listener
            .frame(Verb::Reject, Param::default())
            .write(&*stream);
        let _ = stream.shutdown(Shutdown::Write);
        return;
    }
    match listener.asked(Arc::clone(&stream), &frame) {
        Ok(id) => id.read(&stream, Some(ANSWER)),
        Err(error) => log::warn(
            Subsys::EpCtrl,
            format_args!("the program does not hear of a request: {error}"),
        ),
    }
}
