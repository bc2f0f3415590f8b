//! A process whose tasks wait for nothing that comes takes no processor time. There is one test in this
//! file, as it measures its process.

mod common;

use std::time::Duration;

use common::pair;
use ripstop::Progress;

/// What all threads of this process have run.
fn cpu_time() -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        nanos += stat.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    Duration::from_nanos(nanos)
}

#[test]
fn a_receive_that_waits_for_ever_takes_no_time() {
    let runtimes = [
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build(),
    ];
    for runtime in runtimes.map(Result::unwrap) {
        for on in ["tcp", "shm"] {
            runtime.block_on(async {
                let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
                // Tasks poll for what comes soon, many times in a row.
                for _ in 0..1000 {
                    let receive = b.recv(vec![0; 8], to_a);
                    a.send(vec![1; 8], to_b).await.0.unwrap();
                    receive.await.0.unwrap();
                }
                let tasks: Vec<_> = (0..20)
                    .map(|tag| {
                        let receive = b.trecv(vec![0; 8], tag, 0, to_a);
                        tokio::spawn(async move { receive.await.0.is_ok() })
                    })
                    .collect();
                tokio::time::sleep(Duration::from_millis(20)).await;
                let before = cpu_time();
                let time = Duration::from_millis(500);
                tokio::time::sleep(time).await;
                let used = cpu_time() - before;
                println!("{on}: {used:?}");
                assert!(used < time / 10, "{on}: {used:?} of {time:?}");
                // They are woken all the same.
                for (tag, task) in tasks.into_iter().enumerate() {
                    a.tsend(vec![1; 8], tag as u64, to_b).await.0.unwrap();
                    assert!(task.await.unwrap());
                }
            });
        }
    }
}
