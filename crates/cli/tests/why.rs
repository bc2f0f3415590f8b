//! `ripstop why` and `ripstop top` on processes that hang on purpose, and what the log of these says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ripstop::{Domain, Endpoint, Hints, Peer, Progress};
use ripstop_core::av::set::{AvSet, AvSetAttr, UNIVERSE};
use ripstop_core::eq::{EqAttr, EventQueue};
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    AddressVector as _, AvAttr, CompletionQueue as _, CqAttr, Domain as _, Endpoint as _,
    Fabric as _, JoinCall, Provider,
};
use ripstop_core::{EpAttr, FidToken};
use ripstop_types::{AvType, EpType, FiAddr, Flags, Version};
use serde_json::Value;

/// What a process does, and by which provider.
const ROLE: &str = "RIPSTOP_WHY_ROLE";
const PROVIDER: &str = "RIPSTOP_WHY_PROVIDER";

/// Bytes of a message that its receiver has to ask for.
const MUCH: usize = 32 << 20;

/// How long something that is to be seen may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Another process of this program.
struct Other {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Other {
    fn start(provider: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "subprocess_that_hangs", "--nocapture"]);
        command.env(ROLE, role).env(PROVIDER, provider);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut address = None;
        while address.is_none() {
            let mut line = String::new();
            let length = stdout.read_line(&mut line).unwrap();
            assert!(length > 0, "it has ended");
            address = line
                .split_once("address ")
                .map(|(_, address)| address.trim().to_owned());
        }
        Self {
            child,
            stdin,
            stdout,
            address: address.unwrap(),
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has said this.
    fn await_line(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            let length = self.stdout.read_line(&mut line).unwrap();
            assert!(length > 0, "it has ended");
        }
    }

    /// Tells it who its peer is; it goes on.
    fn tell(&mut self, peer: &Self) {
        writeln!(self.stdin, "{}", peer.address).unwrap();
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

/// Two processes that know each other.
fn pair(provider: &str, roles: [&str; 2], variables: &[(&str, &str)]) -> [Other; 2] {
    let [mut a, mut b] = roles.map(|role| Other::start(provider, role, variables));
    a.tell(&b);
    b.tell(&a);
    [a, b]
}

/// Checks shm and tcp, both at once: most of the time is waiting.
fn over_both(check: fn(&str)) {
    std::thread::scope(|scope| {
        scope.spawn(|| check("shm"));
        check("tcp");
    });
}

/// What another process does; in this one it does nothing.
#[test]
fn subprocess_that_hangs() {
    let (Ok(role), Ok(provider)) = (std::env::var(ROLE), std::env::var(PROVIDER)) else {
        return;
    };
    match (role.as_str(), provider.as_str()) {
        ("joins", "shm") => return join_with_self_first(&ripstop_shm::ShmProvider::new()),
        ("joins", _) => return join_with_self_first(&ripstop_tcp::TcpProvider::new()),
        _ => {}
    }
    // Where the library has no thread, a program that is elsewhere makes no progress.
    let hints = Hints::rdm().provider(&provider);
    let hints = match role.as_str() {
        "is away"
        | "receives, and is away"
        | "begins to send, and is away"
        | "polls one of two" => hints.progress(Progress::Manual),
        _ => hints,
    };
    let domain = hints.open().unwrap();
    let ep = domain.endpoint().unwrap();
    let address = meet(&ep.address().unwrap());
    let peer = domain.insert(address).unwrap();
    if role == "polls one of two" {
        let other = Hints::rdm().provider(&provider);
        let other = other.progress(Progress::Manual).open().unwrap();
        let _ep = other.endpoint().unwrap();
        poll(&other);
    }
    act(&role, &domain, &ep, peer);
}

/// Tells this process's address, and is told that of its peer.
fn meet(own: &ripstop_core::Address) -> ripstop_core::Address {
    println!("address {own}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

fn poll(domain: &Domain) -> ! {
    loop {
        domain.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Joins a group whose first member is this process, and its peer the second: each of two makes another
/// group so. Which the library ends after ten seconds.
fn join_with_self_first<P: Provider>(provider: &P) {
    let hints = ripstop_core::Hints {
        caps: Flags::MSG | Flags::TAGGED | Flags::COLLECTIVE,
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        ..ripstop_core::Hints::default()
    };
    let mut request = Request {
        version: Version::CURRENT,
        node: (provider.name() == "tcp").then_some("127.0.0.1"),
        hints: Some(&hints),
        ..Request::default()
    };
    request.flags.set(Flags::SOURCE, request.node.is_some());
    let info = provider.getinfo(&request).infos.swap_remove(0);
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let cq = domain.cq(&CqAttr::default()).unwrap();
    let ep = domain.endpoint(&info, FidToken(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    let av = AvAttr {
        av_type: AvType::Table,
        ..AvAttr::default()
    };
    let av = domain.av(&av).unwrap();
    let eq = std::sync::Arc::new(EventQueue::open(&EqAttr::default()).unwrap());
    ep.bind_av(&av).unwrap();
    ep.bind_eq(&eq).unwrap();
    ep.enable().unwrap();
    let own = ep.name().unwrap();
    let peer = meet(&own);
    for address in [own, peer] {
        av.insert(&address).unwrap();
    }
    let set = AvSetAttr {
        count: 2,
        start: FiAddr::NOTAVAIL,
        end: FiAddr::NOTAVAIL,
        stride: 0,
        comm_key: false,
        flags: UNIVERSE,
    };
    let set = AvSet::new(&set, av.av_type(), &av.addresses()).unwrap();
    let call = JoinCall {
        members: &set.members(),
        operations: set.operations(),
        context: 1,
    };
    let _group = ep.join(&call, FidToken(1)).unwrap();
    loop {
        _ = cq.read(1, |_| {});
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn act(role: &str, domain: &Domain, ep: &Endpoint, peer: Peer) {
    match role {
        "receives" => {
            _ = ep.trecv(vec![0; 8], 5, 0, peer).wait();
        }
        "receives, and is away" => {
            let receive = ep.trecv(vec![0; 8], 5, 0, peer);
            // It is seen for the first time, and has waited for a second.
            let end = Instant::now() + Duration::from_secs(4);
            while Instant::now() < end {
                domain.progress();
                std::thread::sleep(Duration::from_millis(1));
            }
            println!("away");
            _ = std::io::stdin().read_line(&mut String::new());
            drop(receive);
        }
        "says much" => {
            _ = ep.tsend(vec![0; 1 << 20], 5, peer).wait();
            poll(domain);
        }
        "hears much" => {
            _ = ep.trecv(vec![0; 1 << 20], 5, 0, None).wait();
            poll(domain);
        }
        "receives much from any" => {
            _ = ep.trecv(vec![0; 8], 5, 0, None).wait();
            _ = ep.trecv(vec![0; MUCH], 6, 0, None).wait();
        }
        // The receiver asks for the payload, and nobody here sees that.
        "begins to send, and is away" => {
            _ = ep.tsend(vec![0; 8], 5, peer).wait();
            let send = ep.tsend(vec![0; MUCH], 6, peer);
            println!("away");
            _ = std::io::stdin().read_line(&mut String::new());
            drop(send);
        }
        "receives from any" => {
            _ = ep.trecv(vec![0; 8], 99, 0, None).wait();
        }
        "does not post" => poll(domain),
        "says hello" => {
            _ = ep.tsend(vec![0; 8], 5, peer).wait();
            println!("said");
            poll(domain);
        }
        "sends now and then" => loop {
            drop(ep.tsend(vec![0; 8], 5, peer));
            let end = Instant::now() + Duration::from_millis(100);
            while Instant::now() < end {
                domain.progress();
                std::thread::sleep(Duration::from_millis(1));
            }
        },
        "is away" => _ = std::io::stdin().read_line(&mut String::new()),
        "sends" => {
            let sends: Vec<_> = (0..256)
                .map(|_| ep.tsend(vec![0; 65536], 5, peer))
                .collect();
            for send in sends {
                _ = send.wait();
            }
        }
        other => panic!("{other}"),
    }
}

fn ripstop(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ripstop"));
    command.args(arguments).output().unwrap()
}

fn why(pid: u32) -> Value {
    let output = ripstop(&["why", "--json", &pid.to_string()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asks why a process waits until the answer is of this kind and about that process.
fn await_cause(pid: u32, kind: &str, culprit: Option<u32>) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = why(pid);
        let cause = &answer["cause"];
        let of = cause["process"]["pid"].as_u64();
        if cause["kind"] == kind && of == culprit.map(u64::from) {
            return answer;
        }
        assert!(
            Instant::now() < end,
            "not {kind} of {culprit:?}: {answer:#}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn text(answer: &Value) -> &str {
    answer["cause"]["text"].as_str().unwrap()
}

#[test]
fn a_rank_that_sends_nothing_is_named() {
    over_both(|provider| {
        let [a, b] = pair(provider, ["receives", "does not post"], &[]);
        let answer = await_cause(a.pid(), "idle", Some(b.pid()));
        assert!(
            text(&answer).contains("has not sent that message"),
            "{answer:#}"
        );
        let operation = answer["steps"][0]["operation"].as_str().unwrap();
        assert!(
            operation.starts_with("fi_trecv (tag 0x5, 8 bytes) from "),
            "{operation}"
        );
        assert_eq!(answer["steps"][0]["to"]["pid"], b.pid());
    });
}

#[test]
fn a_rank_that_was_stopped_is_named() {
    over_both(|provider| {
        let [a, b] = pair(provider, ["receives", "receives from any"], &[]);
        b.signal("STOP");
        let answer = await_cause(a.pid(), "stopped", Some(b.pid()));
        assert!(
            text(&answer).contains("(stopped by a signal)"),
            "{answer:#}"
        );
        let itself = await_cause(b.pid(), "stopped", Some(b.pid()));
        assert!(text(&itself).contains("kill -CONT"), "{itself:#}");
        b.signal("CONT");
        await_cause(a.pid(), "idle", Some(b.pid()));
    });
}

/// The one that waits makes no progress then: it would see that the connection has ended, and wait no more.
#[test]
fn a_rank_that_was_killed_is_named() {
    over_both(|provider| {
        let [mut a, mut b] = pair(provider, ["receives, and is away", "does not post"], &[]);
        a.await_line("away");
        b.child.kill().unwrap();
        b.child.wait().unwrap();
        let answer = await_cause(a.pid(), "ended", Some(b.pid()));
        assert!(text(&answer).contains("has ended"), "{answer:#}");
    });
}

/// A receive of any source that a message has begun to come for waits for that peer.
#[test]
fn a_rank_that_goes_away_in_the_middle_of_a_message_is_named() {
    let roles = ["receives much from any", "begins to send, and is away"];
    let [a, mut b] = pair("tcp", roles, &[]);
    b.await_line("away");
    let answer = await_cause(a.pid(), "away", Some(b.pid()));
    assert!(
        text(&answer).contains("waits for the rest of a message of "),
        "{answer:#}"
    );
    let operation = answer["steps"][0]["operation"].as_str().unwrap();
    let begin = format!("the rest of a message ({MUCH} bytes) from ");
    assert!(operation.starts_with(&begin), "{operation}");
}

/// Waits until a process shows a connection with another one.
fn await_connection(of: u32, with: u32) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let shown = ripstop(&["top", "--once", "--json", &of.to_string()]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let peers = shown["domains"][0]["peers"].as_array().unwrap();
        if let Some(peer) = peers.iter().find(|peer| peer["pid"] == with) {
            return peer.clone();
        }
        assert!(Instant::now() < end, "{shown:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A receive of any source goes on waiting when a peer is gone, and nothing of that peer is left there.
#[test]
fn a_rank_that_was_killed_is_named_to_receives_of_any_source() {
    over_both(|provider| {
        let [a, mut b] = pair(provider, ["receives from any", "says hello"], &[]);
        b.await_line("said");
        await_connection(b.pid(), a.pid());
        await_cause(a.pid(), "anybody", Some(a.pid()));
        b.child.kill().unwrap();
        b.child.wait().unwrap();
        let answer = await_cause(a.pid(), "ended", Some(b.pid()));
        assert!(
            text(&answer).contains("a message of any peer, of which "),
            "{answer:#}"
        );
    });
}

#[test]
fn ranks_that_join_different_groups_are_named() {
    over_both(|provider| {
        let [a, b] = pair(provider, ["joins", "joins"], &[]);
        let answer = await_cause(a.pid(), "circle", None);
        assert!(
            text(&answer).contains("they join different groups"),
            "{answer:#}"
        );
        for (step, from, to) in [(0, &a, &b), (1, &b, &a)] {
            let step = &answer["steps"][step];
            assert_eq!(step["from"]["pid"], from.pid());
            assert_eq!(step["to"]["pid"], to.pid());
            let operation = step["operation"].as_str().unwrap();
            assert!(
                operation.starts_with("fi_join_collective (a group of 2, member 1) with "),
                "{operation}"
            );
        }
    });
}

#[test]
fn a_domain_that_is_not_polled_is_named_though_another_one_is() {
    let [a, b] = pair("shm", ["receives", "polls one of two"], &[]);
    let answer = await_cause(a.pid(), "unattended", Some(b.pid()));
    assert!(
        text(&answer).contains("has not polled that domain (shm)"),
        "{answer:#}"
    );
}

/// A namespace of the network whose only interface is lost.
#[test]
fn a_network_that_is_lost_is_named() {
    const INSIDE: &str = "RIPSTOP_WHY_NETWORK";
    if std::env::var_os(INSIDE).is_some() {
        let link = |state| {
            let set = Command::new("ip")
                .args(["link", "set", "lo", state])
                .status();
            assert!(set.unwrap().success(), "ip link set lo {state}");
        };
        link("up");
        let [a, b] = pair("tcp", ["receives from any", "sends now and then"], &[]);
        await_connection(b.pid(), a.pid());
        link("down");
        let answer = await_cause(a.pid(), "silent", None);
        assert!(
            text(&answer).contains("the network does not carry what is sent"),
            "{answer:#}"
        );
        assert_eq!(answer["steps"][0]["to"]["pid"], b.pid());
        return;
    }
    let way: &[&str] = match Command::new("unshare").args(["-n", "ip", "link"]).output() {
        Ok(output) if output.status.success() => &["-n"],
        _ => &["-rn"],
    };
    let tried = Command::new("unshare")
        .args(way)
        .args(["ip", "link"])
        .output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return println!("SKIP: no namespace of the network: {}", why.trim());
        }
        Err(why) => return println!("SKIP: unshare(1) cannot be run: {why}"),
    }
    let mut inside = Command::new("unshare");
    inside.args(way).arg(std::env::current_exe().unwrap());
    inside.args(["--exact", "a_network_that_is_lost_is_named", "--nocapture"]);
    let output = inside.env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_rank_that_is_elsewhere_is_named() {
    let [a, b] = pair("shm", ["receives", "is away"], &[]);
    let answer = await_cause(a.pid(), "away", Some(b.pid()));
    assert!(text(&answer).contains("has not polled for"), "{answer:#}");
}

#[test]
fn ranks_that_wait_for_each_other_are_a_circle() {
    let [a, b] = pair("shm", ["receives", "receives"], &[]);
    let answer = await_cause(a.pid(), "circle", None);
    for rank in [&a, &b] {
        assert!(
            text(&answer).contains(&format!("(pid {})", rank.pid())),
            "{answer:#}"
        );
    }
}

#[test]
fn a_rank_that_posts_no_receives_is_named() {
    over_both(|provider| {
        let few = [("FI_SHM_MAX_SAVED", "4"), ("FI_TCP_MAX_SAVED", "4")];
        let [a, b] = pair(provider, ["sends", "does not post"], &few);
        let answer = await_cause(a.pid(), "unread", Some(b.pid()));
        assert!(
            text(&answer).contains("posted no receives for"),
            "{answer:#}"
        );
    });
}

#[test]
fn the_log_tells_of_what_has_stalled() {
    let stall = [("FI_LOG_STALL", "1")];
    let [mut a, b] = pair("shm", ["receives", "does not post"], &stall);
    let mut log = BufReader::new(a.child.stderr.take().unwrap()).lines();
    let line = log
        .find_map(|line| line.ok().filter(|line| line.contains("has waited")))
        .unwrap();
    for part in [
        "fi_trecv (tag 0x5, 8 bytes) from ",
        &b.address,
        "; it ends by a message of that peer",
        &format!("ripstop why {}", a.pid()),
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn top_shows_endpoints_and_peers() {
    let [a, b] = pair("shm", ["receives", "does not post"], &[]);
    await_cause(a.pid(), "idle", Some(b.pid()));
    let pid = a.pid().to_string();
    let output = ripstop(&["top", "--once", "--json", &pid]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let domain = &shown["domains"][0];
    assert_eq!(domain["provider"], "shm");
    assert_eq!(domain["endpoints"][0]["address"], a.address);
    assert_eq!(domain["waits"][0]["peer"], b.address);
    let table = ripstop(&["top", "--once", &pid]);
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(
        table.contains(&a.address) && table.contains("fi_trecv"),
        "{table}"
    );
}

/// One of the two processes counts the payload, in its connection with the other one.
#[test]
fn top_shows_by_which_way_a_long_payload_went() {
    over_both(|provider| {
        let [a, b] = pair(provider, ["says much", "hears much"], &[]);
        let counted = || {
            let peers =
                [(&a, &b), (&b, &a)].map(|(of, with)| await_connection(of.pid(), with.pid()));
            let ways = ["stream", "mapped", "attached"];
            let payloads =
                |peer: &Value| ways.map(|way| peer["ways"][way]["payloads"].as_u64().unwrap());
            peers.map(|peer| payloads(&peer))
        };
        let end = Instant::now() + PATIENCE;
        let mut seen = counted();
        while seen.as_flattened().iter().sum::<u64>() == 0 {
            assert!(Instant::now() < end, "{provider}: nobody counts it");
            std::thread::sleep(Duration::from_millis(200));
            seen = counted();
        }
        assert_eq!(seen.as_flattened().iter().sum::<u64>(), 1, "{seen:?}");
        if provider == "tcp" {
            assert_eq!(seen[0], [1, 0, 0], "its sender");
        }
    });
}

#[test]
fn top_shows_by_which_provider_a_peer_is_reached() {
    let [mut a, b] = pair("lnx", ["says hello", "does not post"], &[]);
    a.await_line("said");
    let peer = await_connection(a.pid(), b.pid());
    assert_eq!(peer["way"], "shm ring", "{peer:#}");
    assert_eq!(peer["silent_seconds"], Value::Null);
}

#[test]
fn what_cannot_be_shown_is_said() {
    // This process has no domain.
    let own = std::process::id().to_string();
    for (pid, said) in [
        ("4000000000", "there is no process 4000000000"),
        (own.as_str(), "shows nothing"),
        ("abc", "which `pgrep PROGRAM` prints"),
    ] {
        for tool in ["top", "why"] {
            let output = ripstop(&[tool, pid]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && errors.contains(said),
                "{errors}"
            );
        }
    }
}

/// What a process shows goes with its domain, and with the process.
#[test]
fn nothing_is_left_of_a_process_that_ends() {
    let mut a = Other::start("shm", "is away", &[]);
    let pid = a.pid();
    let b = Other::start("shm", "is away", &[]);
    a.tell(&b);
    why(pid);
    writeln!(a.stdin).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut a.stdout, &mut rest).unwrap();
    assert!(a.child.wait().unwrap().success());
    let output = ripstop(&["why", &pid.to_string()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("there is no process"), "{errors}");
}
