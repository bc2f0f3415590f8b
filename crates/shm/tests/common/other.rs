//! Another process of a test.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const SAYS: &str = "says ";

/// Says something to the process that has started this one.
pub(crate) fn tell_parent(what: impl Display) {
    // What the test harness prints has no end of line yet.
    println!("\n{SAYS}{what}");
}

/// This program again, with one test as its main function; killed when it is dropped.
pub(crate) struct Other {
    pub(crate) child: Child,
    /// What it has said.
    pub(crate) said: Receiver<String>,
}

impl Other {
    /// Starts it with these variables in its environment.
    pub(crate) fn start(main: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", main, "--nocapture", "--test-threads=1"])
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, what)) = line.split_once(SAYS)
                    && tell.send(what.to_owned()).is_err()
                {
                    break;
                }
            }
        });
        Self { child, said }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
