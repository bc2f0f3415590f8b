//! What finds a wake-up that was lost: waits without an end, under the eyes of a thread that tells
//! the state of all others when nothing happens any more, and ends the test.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Without an event for so long, one is lost: each follows from the one before within a
/// millisecond, on a busy machine within a second.
pub const LOST: Duration = Duration::from_secs(20);

/// Events that threads report, by their numbers, and what each of them does.
pub struct Watch {
    events: Mutex<Receiver<usize>>,
    doing: Arc<Vec<AtomicU64>>,
}

/// Of one thread.
pub struct Report {
    number: usize,
    sender: std::sync::mpsc::Sender<usize>,
    doing: Arc<Vec<AtomicU64>>,
}

impl Report {
    /// What the thread does from now on: anything that a reader of the report can tell apart.
    pub fn doing(&self, what: u64) {
        self.doing[self.number].store(what, Ordering::Relaxed);
    }

    /// Something has happened that the test waits for.
    pub fn event(&self) {
        let _ = self.sender.send(self.number);
    }
}

/// A watch over so many threads.
pub fn watch(threads: usize) -> (Watch, Vec<Report>) {
    let (sender, receiver) = channel();
    let doing: Arc<Vec<_>> = Arc::new((0..threads).map(|_| AtomicU64::new(0)).collect());
    let reports = (0..threads).map(|number| Report {
        number,
        sender: sender.clone(),
        doing: Arc::clone(&doing),
    });
    let reports = reports.collect();
    let watch = Watch {
        events: Mutex::new(receiver),
        doing,
    };
    (watch, reports)
}

impl Watch {
    /// Waits for the next event and returns whose it is.
    ///
    /// # Panics
    /// If none comes; then the process ends, since threads that sleep for ever cannot be joined.
    pub fn next(&self, what: &str) -> usize {
        let events = self.events.lock().unwrap();
        match events.recv_timeout(LOST) {
            Ok(number) => number,
            Err(RecvTimeoutError::Disconnected) => panic!("{what}: all threads have ended"),
            Err(RecvTimeoutError::Timeout) => {
                let doing: Vec<_> = self
                    .doing
                    .iter()
                    .map(|d| d.load(Ordering::Relaxed))
                    .collect();
                eprintln!("{what}: nothing happens any more; threads are at {doing:?}");
                give_up();
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Of a test that has failed threads may sleep for ever: nobody waits for their end.
        if thread::panicking() {
            give_up();
        }
    }
}

fn give_up() -> ! {
    eprintln!("{}", state());
    std::process::exit(101);
}

/// Every thread, and every descriptor with what it has to read.
#[must_use]
pub fn state() -> String {
    let mut text = String::new();
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (name, call) = (read("comm"), read("syscall"));
        let stat = read("stat");
        let stat = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<_> = stat.split(' ').collect();
        let _ = writeln!(
            text,
            "thread {:?} {} state {} user {} system {} in call {}",
            task.file_name(),
            name.trim(),
            fields.get(1).unwrap_or(&"?"),
            fields.get(12).unwrap_or(&"?"),
            fields.get(13).unwrap_or(&"?"),
            call.split(' ').next().unwrap_or_default().trim()
        );
    }
    for fd in fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = fd.file_name();
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", name.display()));
        let told: Vec<_> = info
            .iter()
            .flat_map(|info| info.lines())
            .filter(|line| line.starts_with("eventfd-count") || line.starts_with("tfd"))
            .collect();
        let _ = writeln!(text, "fd {}: {} {told:?}", name.display(), target.display());
    }
    for table in ["tcp", "unix"] {
        let rows = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        let rows = rows
            .lines()
            .filter(|row| table == "tcp" || row.contains("ripstop"));
        for row in rows {
            let _ = writeln!(text, "{table} {row}");
        }
    }
    text
}

/// The calling thread, as the system knows it.
#[must_use]
pub fn tid() -> u32 {
    let link = fs::read_link("/proc/thread-self").expect("a thread");
    let name = link.file_name().expect("its number").to_string_lossy();
    name.parse().expect("a number")
}

/// Waits until a thread of this process sleeps for descriptors.
pub fn until_asleep(tid: u32) {
    #[cfg(target_arch = "x86_64")]
    const CALLS: [&str; 5] = ["7", "271", "232", "281", "441"];
    #[cfg(not(target_arch = "x86_64"))]
    const CALLS: [&str; 3] = ["22", "73", "441"];
    super::until("a thread that sleeps", || {
        let call = fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
        let first = call.split(' ').next()?;
        thread::yield_now();
        CALLS.contains(&first).then_some(())
    });
}
