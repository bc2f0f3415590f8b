//! An endpoint with its peer.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use ripstop::{Domain, Endpoint, Hints, Op, Peer, Progress, Source};

use crate::{DEPTH, LARGE, MESSAGES, Pipe, Result};

const SMALL_TAG: u64 = 1;
const LARGE_TAG: u64 = 2;

pub(crate) struct Side {
    endpoint: Endpoint,
    peer: Peer,
    /// Posted ahead, as the other side may be fast.
    next: Option<Op<Vec<u8>>>,
    spare: Vec<u8>,
}

/// Opens a domain with the library's thread or driven by those that wait, and an endpoint.
pub(crate) fn open(over: &str, background: bool, address: Option<&str>) -> Result<Side> {
    let hints = Hints::rdm().provider(over);
    let hints = match over {
        "tcp" => hints.source(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        _ => hints,
    };
    let progress = match background {
        true => Progress::Background,
        false => Progress::Manual,
    };
    let domain = hints.progress(progress).open()?;
    let endpoint = domain.endpoint()?;
    let peer = match address {
        Some(address) => {
            let peer = domain.insert(address.parse::<ripstop::Address>()?)?;
            endpoint.send(b"hello".to_vec(), peer).wait().0?;
            peer
        }
        None => {
            println!("{}", endpoint.address()?);
            let (hello, _) = endpoint.recv(vec![0; 5], None).wait();
            let Source::Address(address) = hello?.source else {
                return Err("the first message should come from a stranger".into());
            };
            domain.insert(address)?
        }
    };
    let next = Some(endpoint.trecv(vec![0; 8], SMALL_TAG, 0, peer));
    Ok(Side {
        endpoint,
        peer,
        next,
        spare: vec![1; 8],
    })
}

impl Side {
    pub(crate) fn domain(&self) -> Domain {
        self.endpoint.domain()
    }
}

impl Pipe for Side {
    async fn ping(&mut self) -> Result<()> {
        let buf = std::mem::take(&mut self.spare);
        let (sent, buf) = self.endpoint.tsend(buf, SMALL_TAG, self.peer).await;
        self.spare = buf;
        sent?;
        Ok(())
    }

    async fn pong(&mut self) -> Result<()> {
        let receive = self.next.take().ok_or("no receive is posted")?;
        let (received, buf) = receive.await;
        received?;
        self.next = Some(self.endpoint.trecv(buf, SMALL_TAG, 0, self.peer));
        Ok(())
    }

    async fn pour(&mut self) -> Result<()> {
        let mut sends = VecDeque::new();
        for number in 0..MESSAGES {
            let buf = match number {
                ..DEPTH => vec![1; LARGE],
                _ => finish(&mut sends).await?,
            };
            sends.push_back(self.endpoint.tsend(buf, LARGE_TAG, self.peer));
        }
        while !sends.is_empty() {
            finish(&mut sends).await?;
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        let mut receives = VecDeque::new();
        for number in 0..MESSAGES {
            let buf = match number {
                ..DEPTH => vec![0; LARGE],
                _ => finish(&mut receives).await?,
            };
            receives.push_back(self.endpoint.trecv(buf, LARGE_TAG, 0, self.peer));
        }
        while !receives.is_empty() {
            finish(&mut receives).await?;
        }
        Ok(())
    }
}

/// Awaits the oldest, and returns its buffer.
async fn finish(ops: &mut VecDeque<Op<Vec<u8>>>) -> Result<Vec<u8>> {
    let (done, buf) = ops.pop_front().ok_or("nothing is under way")?.await;
    done?;
    Ok(buf)
}
