use parking_lot::{Mutex, MutexGuard};

use super::*;

/// The state of logging is one for the process: tests of it take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Takes the turn, after the environment has been read for good.
fn turn() -> MutexGuard<'static, ()> {
    crate::init();
    TURN.lock()
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn log(&self, record: &Record<'_>) {
        self.0.lock().push(format_line(record));
    }
}

impl Lines {
    /// The lines of one provider name, which is unique to a test.
    fn of(&self, prov: &str) -> Vec<String> {
        let wanted = format!("::{prov}:");
        self.0
            .lock()
            .iter()
            .filter(|line| line.contains(&wanted))
            .cloned()
            .collect()
    }
}

fn some_function(prov: &str) {
    crate::fi_warn!(prov, Subsys::EpCtrl, "peer {} is gone", 7);
    let closure = || crate::fi_info!(prov, Subsys::Cq, "not wanted by default");
    closure();
}

#[test]
fn lines_look_as_those_of_libfabric() {
    let _turn = turn();
    select(None, None, None);
    let lines = Arc::new(Lines::default());
    let guard = import(lines.clone()).unwrap();
    assert!(matches!(import(lines.clone()), Err(Errno::EALREADY)));
    some_function("a-provider");
    drop(guard);
    let seen = lines.of("a-provider");
    assert_eq!(seen.len(), 1);
    let (head, rest) = seen[0].split_once("::").unwrap();
    let head: Vec<&str> = head.split(':').collect();
    assert_eq!(head[0], "libfabric");
    assert_eq!(head[1], ripstop_os::pid().to_string());
    assert!(head[2].parse::<u64>().unwrap() > 1_600_000_000);
    let (place, message) = rest.split_once('<').unwrap();
    assert!(
        place.starts_with("a-provider:ep_ctrl:some_function():"),
        "{place}"
    );
    assert_eq!(message, "warn> peer 7 is gone\n");
    assert!(!is_imported());
}

#[test]
fn the_environment_selects_level_subsystem_and_provider() {
    let _turn = turn();
    select(Some("INFO"), Some("^noisy"), Some("cq,av"));
    assert!(enabled("tcp", Level::Info, Subsys::Cq));
    assert!(!enabled("tcp", Level::Debug, Subsys::Cq));
    assert!(!enabled("tcp", Level::Warn, Subsys::Eq));
    assert!(!enabled("noisy", Level::Warn, Subsys::Cq));
    assert!(provider_filtered("Noisy"));
    assert_eq!(Level::named("Info"), Some(Level::Info));
    assert_eq!(Level::named("no such level"), None);
    select(Some("no such level"), None, None);
    assert!(enabled("noisy", Level::Warn, Subsys::Eq));
    assert!(!enabled("noisy", Level::Trace, Subsys::Eq));
    select(None, None, None);
    assert!(enabled("tcp", Level::Warn, Subsys::Core));
}

#[test]
fn rate_limits_let_the_first_line_through() {
    let _turn = turn();
    select(None, None, None);
    let next = AtomicU64::new(0);
    assert!(ready("tcp", Level::Warn, Subsys::Core, &next));
    assert!(!ready("tcp", Level::Warn, Subsys::Core, &next));
    next.store(now_ms(), Ordering::Relaxed);
    assert!(ready("tcp", Level::Warn, Subsys::Core, &next));
    assert!(!ready(
        "tcp",
        Level::Debug,
        Subsys::Core,
        &AtomicU64::new(0)
    ));

    let lines = Arc::new(Lines::default());
    let _guard = import(lines.clone()).unwrap();
    for _ in 0..3 {
        crate::fi_warn_sparse!("sparse", Subsys::Core, "sparse");
    }
    assert_eq!(lines.of("sparse").len(), 1);
}

#[test]
fn names_have_the_values_of_c() {
    assert_eq!(Level::from_raw(2), Some(Level::Info));
    assert_eq!(Level::from_raw(4), None);
    assert_eq!(Subsys::from_raw(9).map(Subsys::name), Some("cntr"));
    assert_eq!(Subsys::from_raw(10), None);
}
