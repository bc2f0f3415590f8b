//! The library's own thread. Alone in its process and one test, so that threads can be counted.

mod common;

use common::rdm;
use ripstop::Progress;

/// Threads that the library started.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "ripstop").count()
}

fn threads_follow_domains(on: &str) {
    let manual: Vec<_> = (0..5).map(|_| rdm(on, Progress::Manual)).collect();
    assert_eq!(threads(), 0);
    let background: Vec<_> = (0..5).map(|_| rdm(on, Progress::Background)).collect();
    // They name themselves as they start.
    while threads() < 5 {
        std::thread::yield_now();
    }
    let endpoint = background[0].endpoint().unwrap();
    let clone = background[1].clone();
    drop(background);
    assert_eq!(threads(), 2);
    // The endpoint keeps its domain open.
    let receive = endpoint.recv(vec![0; 8], None);
    drop(endpoint);
    drop(clone);
    assert_eq!(threads(), 1);
    drop(receive);
    assert_eq!(threads(), 0);
    drop(manual);
}

#[test]
fn there_is_one_for_each_background_domain_while_that_is_open() {
    #[cfg(feature = "tcp")]
    threads_follow_domains("tcp");
    #[cfg(feature = "shm")]
    threads_follow_domains("shm");
}
