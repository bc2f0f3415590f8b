//! An endpoint with a peer, one message at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_core::Info;
use ripstop_core::provider::{
    CompletionQueue as _, Domain, Endpoint as _, MrAttr, RecvKind, SendKind,
};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Errno, FiAddr, Flags, Mode, MrMode};

use super::control::{Control, PATIENCE};
use super::data::Pattern;
use crate::endpoint::{Opening, RECV, SEND, failure, name};

/// The tag of tagged messages.
const TAG: u64 = 1234;
/// Room that every receive has, for words such as the last one.
const LEAST: usize = 64;
/// What both sides send last.
const FINISHED: &[u8] = b"fin\0";
/// Empty reads between two looks at the clock, and the time between two at the other side.
const GLANCE: u32 = 1 << 12;
const LOOK: Duration = Duration::from_millis(100);

/// The two directions of checked data.
#[derive(Debug, Default)]
struct Checks {
    out: Pattern,
    back: Pattern,
}

/// An enabled endpoint. There is always one receive posted, except while a message is looked at.
pub(super) struct Link<D: Domain> {
    pub(super) ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    /// The regions of both buffers, where the provider wants that.
    _regions: Vec<Arc<D::Mr>>,
    /// The other side; not used by connected endpoints.
    pub(super) peer: FiAddr,
    tagged: bool,
    inject_size: usize,
    /// What is sent, and what is received: lent to the operations as long as the program runs.
    from: Parked,
    into: Parked,
    /// Bytes in front of each message, there and here (`FI_MSG_PREFIX`).
    from_prefix: usize,
    into_prefix: usize,
    /// Bytes on their way between these and the checks.
    text: Vec<u8>,
    checks: Option<Checks>,
    /// Completed sends that nobody waited for yet.
    sent: u32,
    /// Bytes of a received message.
    received: Option<usize>,
    idle: u32,
    since: Instant,
    looked: Instant,
    /// The last look found that the other side had closed its connection.
    gone: bool,
}

/// What is behind the prefix of a buffer.
fn behind(buf: UserBuf, prefix: usize) -> UserBuf {
    let len = buf.len().saturating_sub(prefix);
    buf.slice(prefix, len).unwrap_or(buf)
}

/// Registers a buffer; the provider chooses the key, or takes this one.
fn register<D: Domain>(
    domain: &Arc<D>,
    buf: UserBuf,
    access: Flags,
    requested_key: u64,
) -> Result<Arc<D::Mr>> {
    let attr = MrAttr::of_buf(buf, access, requested_key);
    domain.mr(&attr).context("fi_mr_reg")
}

impl<D: Domain> Link<D> {
    /// Enables the endpoint and posts a receive for messages of up to `largest` bytes.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) fn enable(
        domain: &Arc<D>,
        opening: Opening<D>,
        info: &Info,
        tagged: bool,
        largest: usize,
    ) -> Result<Self> {
        let Opening { ep, cq } = opening;
        ep.enable().context("fi_enable")?;
        let prefix = |mode: Mode| match mode.contains(Mode::MSG_PREFIX) {
            true => info.ep.msg_prefix_size,
            false => 0,
        };
        let (from_prefix, into_prefix) = (prefix(info.tx.mode), prefix(info.rx.mode));
        let from = Parked::park(vec![0; from_prefix + largest.max(LEAST)]);
        let into = Parked::park(vec![0; into_prefix + largest.max(LEAST)]);
        let mut regions = Vec::new();
        if info.domain.mr_mode.contains(MrMode::LOCAL) {
            regions.push(register(domain, from.buf(), Flags::SEND, 1)?);
            regions.push(register(domain, into.buf(), Flags::RECV, 2)?);
        }
        let mut link = Self {
            ep,
            cq,
            _regions: regions,
            peer: FiAddr::UNSPEC,
            tagged,
            inject_size: info.tx.inject_size,
            from,
            into,
            from_prefix,
            into_prefix,
            text: vec![0; largest.max(LEAST)],
            checks: None,
            sent: 0,
            received: None,
            idle: 0,
            since: Instant::now(),
            looked: Instant::now(),
            gone: false,
        };
        link.post()?;
        Ok(link)
    }

    /// Checks data from now on.
    pub(super) fn check_data(&mut self) {
        self.checks = Some(Checks::default());
    }

    /// Sends a message. A small one is injected, for the others this waits for the completion.
    ///
    /// # Errors
    /// What the provider says; when the other side is gone.
    pub(super) fn send(&mut self, size: usize, control: &Control) -> Result<()> {
        let Some(message) = self.text.get_mut(..size) else {
            bail!("{size} bytes are too many");
        };
        if let Some(checks) = &mut self.checks {
            checks.out.fill(message);
            copy_out(behind(self.from.buf(), self.from_prefix), message);
        }
        if size < self.inject_size {
            return self.transmit(size, None, control);
        }
        self.transmit(size, Some(Flags::empty()), control)
    }

    /// Posts the first `size` bytes: injected without flags, else with a completion that this
    /// waits for.
    fn transmit(&mut self, size: usize, flags: Option<Flags>, control: &Control) -> Result<()> {
        let kind = if self.tagged {
            SendKind::Tagged(TAG)
        } else {
            SendKind::Msg
        };
        let buf = self.from.buf().first(self.from_prefix + size);
        let posted = loop {
            let posted = match flags {
                None => self.ep.inject(kind, buf, None, self.peer),
                Some(flags) => {
                    let flags = (!flags.is_empty()).then_some(flags);
                    self.ep.send(kind, &[buf], None, self.peer, SEND, flags)
                }
            };
            match posted {
                Err(Errno::EAGAIN) => self.progress(control)?,
                posted => break posted,
            }
        };
        posted.context(if flags.is_none() {
            "fi_inject"
        } else {
            "fi_send"
        })?;
        while flags.is_some() && self.sent == 0 {
            self.progress(control)?;
        }
        self.sent = 0;
        Ok(())
    }

    /// Waits for a message of `size` bytes and posts the receive for the next one.
    ///
    /// # Errors
    /// What the provider says; another size, or wrong data; when the other side is gone.
    pub(super) fn recv(&mut self, size: usize, control: &Control) -> Result<()> {
        let length = self.arrived(control)?;
        ensure!(
            length == size,
            "received {length} bytes instead of {size}: give both sides the same options"
        );
        if let Some(checks) = &mut self.checks {
            let message = behind(self.into.buf(), self.into_prefix);
            copy_in(&mut self.text, message.first(length));
            checks.back.check(&self.text[..length])?;
        }
        self.post()
    }

    /// Exchanges the last words, after which nothing is missing on either side.
    ///
    /// # Errors
    /// As for [`send`](Self::send) and [`recv`](Self::recv).
    pub(super) fn finish(&mut self, control: &Control) -> Result<()> {
        copy_out(behind(self.from.buf(), self.from_prefix), FINISHED);
        self.transmit(FINISHED.len(), Some(Flags::TRANSMIT_COMPLETE), control)?;
        let length = self.arrived(control)?;
        let message = behind(self.into.buf(), self.into_prefix);
        copy_in(&mut self.text, message.first(length));
        ensure!(
            self.checks.is_none() || self.text[..length] == *FINISHED,
            "the last message is not the expected one: give both sides the same options"
        );
        // What the other side still waits for may need this side's progress.
        control.finish();
        let end = Instant::now() + Duration::from_secs(1);
        while !control.is_gone() && Instant::now() < end {
            self.read()?;
        }
        Ok(())
    }

    /// Waits for the next message; returns its length.
    fn arrived(&mut self, control: &Control) -> Result<usize> {
        loop {
            if let Some(length) = self.received.take() {
                return Ok(length);
            }
            self.progress(control)?;
        }
    }

    fn post(&mut self) -> Result<()> {
        let kind = match self.tagged {
            true => RecvKind::Tagged {
                tag: TAG,
                ignore: 0,
            },
            false => RecvKind::Msg,
        };
        let posted = self
            .ep
            .recv(kind, &[self.into.buf()], FiAddr::UNSPEC, RECV, None);
        posted.context("fi_recv")
    }

    /// Reads the completion queue, and looks at the other side when nothing comes.
    fn progress(&mut self, control: &Control) -> Result<()> {
        let read = self.read().with_context(|| {
            let peer = control.peer;
            format!("the fi_pingpong at {peer} has ended or was given other options")
        });
        if read? {
            self.idle = 0;
            return Ok(());
        }
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(GLANCE) {
            self.look(control)?;
        }
        Ok(())
    }

    /// Reads the completion queue once; `false` when there was nothing.
    ///
    /// # Errors
    /// When an operation failed.
    pub(super) fn read(&mut self) -> Result<bool> {
        let (sent, received) = (&mut self.sent, &mut self.received);
        let prefix = self.into_prefix;
        let read = self.cq.read(2, |entry| match entry.context {
            SEND => *sent += 1,
            _ => *received = Some(entry.len.saturating_sub(prefix)),
        });
        match read {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(Errno::EAVAIL) => Err(failure(&*self.cq, name)),
            Err(error) => Err(error).context("fi_cq_read"),
        }
    }

    #[cold]
    fn look(&mut self, control: &Control) -> Result<()> {
        if self.idle == GLANCE {
            self.since = Instant::now();
            self.gone = false;
        }
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        // What the other side sent last may still be on its way when its connection has closed, so
        // that has to be seen twice.
        let gone = control.is_gone();
        let was_gone = std::mem::replace(&mut self.gone, gone);
        ensure!(
            !(gone && was_gone),
            "the fi_pingpong at {} has ended",
            control.peer
        );
        ensure!(
            self.since.elapsed() < PATIENCE,
            "nothing came from {} for {} s: give both sides the same options",
            control.peer,
            PATIENCE.as_secs()
        );
        Ok(())
    }
}
