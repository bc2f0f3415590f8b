//! Listeners on ports in a row, one for each context of a scalable endpoint
//! (`docs/design/named-receive-contexts.md`).

use std::net::SocketAddr;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_os::Socket;
use ripstop_stream::LISTEN_BACKLOG;
use ripstop_types::{Errno, Result};

use crate::params::NAME;

/// How often another row of ports is tried when one of it is taken.
const ROWS: usize = 64;

/// Sockets that listen on `count` ports in a row, the first of which is that of `wanted` or,
/// without one, any. `bind` makes a socket at `wanted`.
pub(crate) fn bind_contexts(
    wanted: &SocketAddr,
    count: usize,
    mut bind: impl FnMut() -> Result<Socket>,
) -> Result<Vec<Socket>> {
    // First sockets of rows that were not free stay until the end: the next is another one.
    let mut tried = Vec::new();
    loop {
        let first = bind()?;
        let addr = first.local_addr()?;
        match row_after(&first, &addr, count) {
            Ok(mut rest) => {
                rest.insert(0, first);
                return Ok(rest);
            }
            Err(Errno::EADDRINUSE) if wanted.port() == 0 && tried.len() < ROWS => {
                tried.push(first);
            }
            Err(error) => {
                fi_warn!(
                    NAME,
                    Subsys::EpCtrl,
                    "{addr}: {count} ports in a row from here cannot be bound: {error}; \
                     choose another source address or fewer contexts"
                );
                return Err(error);
            }
        }
    }
}

fn row_after(first: &Socket, addr: &SocketAddr, count: usize) -> Result<Vec<Socket>> {
    // Listening at once: two sockets may be bound to a port, but only one listens.
    first.listen(LISTEN_BACKLOG)?;
    let listen =
        |port| Socket::tcp_listener(&SocketAddr::new(addr.ip(), port), None, LISTEN_BACKLOG);
    let ports = (addr.port()..=u16::MAX).skip(1);
    let rest: Vec<Socket> = ports
        .take(count.saturating_sub(1))
        .map(listen)
        .collect::<Result<_>>()?;
    match rest.len() + 1 == count {
        true => Ok(rest),
        // The row ends with the ports there are.
        false => Err(Errno::EADDRINUSE),
    }
}
