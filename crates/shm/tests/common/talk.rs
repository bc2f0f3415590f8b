//! Orders to [another process](super::other), and its answers.

use std::io::Write as _;
use std::sync::mpsc::RecvTimeoutError;

use super::PATIENCE;
use super::other::Other;

impl Other {
    /// Sends it a line.
    pub(crate) fn tell(&mut self, order: &str) {
        let orders = self.child.stdin.as_mut().expect("it reads orders");
        writeln!(orders, "{order}").unwrap();
    }

    /// Waits for what it [says](super::other::tell_parent) next.
    pub(crate) fn hear(&self) -> String {
        match self.said.recv_timeout(PATIENCE) {
            Ok(what) => what,
            Err(RecvTimeoutError::Timeout) => panic!("the other process says nothing"),
            Err(RecvTimeoutError::Disconnected) => panic!("the other process has ended"),
        }
    }
}
