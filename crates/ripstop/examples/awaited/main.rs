//! Measures awaited operations on tokio beside tokio's own TCP, in two processes on two cores.
//!
//! ```text
//! cargo run --release --example awaited                     medians of 5 rounds
//! cargo run --release --example awaited -- --rounds 7 --cores 0,1 --runtime multi
//! ```
//!
//! Every round runs each runtime (`current`: one thread; `multi`: two workers) over each transport
//! in turn, as spawned tasks: a ping-pong of 8 bytes, a stream of messages of 1 MiB with 4 under
//! way, and a ping-pong in which the next ping comes 1 ms after the last pong. `block_on` drives
//! the domain without tokio. `--cores 0,0` puts both processes on one core.

mod fabric;
mod socket;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUND_TRIPS: usize = 10_000;
pub(crate) const WARM_UP: usize = 500;
pub(crate) const MESSAGES: usize = 1_000;
pub(crate) const LARGE: usize = 1 << 20;
/// Messages of the stream under way.
pub(crate) const DEPTH: usize = 4;
const PACED: usize = 250;
const PACE: Duration = Duration::from_millis(1);

/// What one run measures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    half_us: f64,
    gb_per_s: f64,
    paced_half_us: f64,
    /// Of one core, in this process, while messages come at a pace.
    paced_cpu: f64,
}

/// Who sends first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// A connection of either kind.
pub(crate) trait Pipe: Send + 'static {
    /// Sends 8 bytes.
    fn ping(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// Receives 8 bytes.
    fn pong(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// Sends the large messages.
    fn pour(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// Receives them.
    fn drain(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Both sides of all that is measured; the figures are those of the client.
pub(crate) async fn measure(mut pipe: impl Pipe, role: Role, sleeps: bool) -> Result<Figures> {
    let mut figures = Figures::default();
    for count in [WARM_UP, ROUND_TRIPS] {
        let start = Instant::now();
        for _ in 0..count {
            trip(&mut pipe, role).await?;
        }
        figures.half_us = micros(start.elapsed()) / count as f64 / 2.0;
    }
    for _ in 0..2 {
        let start = Instant::now();
        match role {
            Role::Client => {
                pipe.pour().await?;
                pipe.pong().await?;
            }
            Role::Server => {
                pipe.drain().await?;
                pipe.ping().await?;
            }
        }
        figures.gb_per_s = (MESSAGES * LARGE) as f64 / start.elapsed().as_secs_f64() / 1e9;
    }
    let (start, used) = (Instant::now(), cpu_time()?);
    let mut halves = Vec::with_capacity(PACED);
    for _ in 0..PACED {
        if role == Role::Client {
            match sleeps {
                true => tokio::time::sleep(PACE).await,
                false => std::thread::sleep(PACE),
            }
        }
        let start = Instant::now();
        trip(&mut pipe, role).await?;
        halves.push(micros(start.elapsed()) / 2.0);
    }
    figures.paced_half_us = median(&mut halves);
    let used = cpu_time()?.saturating_sub(used);
    figures.paced_cpu = used.as_secs_f64() / start.elapsed().as_secs_f64();
    Ok(figures)
}

async fn trip(pipe: &mut impl Pipe, role: Role) -> Result<()> {
    match role {
        Role::Client => {
            pipe.ping().await?;
            pipe.pong().await
        }
        Role::Server => {
            pipe.pong().await?;
            pipe.ping().await
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The processor time of all threads of this process.
fn cpu_time() -> Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let running = stat.split(' ').next().unwrap_or_default();
        nanos += running.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn runtime(kind: &str) -> Result<tokio::runtime::Runtime> {
    let mut builder = match kind {
        "multi" => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    if kind == "multi" {
        builder.worker_threads(2);
    }
    Ok(builder.enable_all().build()?)
}

/// One side in a process of its own.
fn side(words: &[&str]) -> Result<()> {
    let (role, kind, over, address) = match *words {
        ["server", kind, over] => (Role::Server, kind, over, None),
        ["client", kind, over, address] => (Role::Client, kind, over, Some(address)),
        _ => return Err(format!("what is {words:?}?").into()),
    };
    let figures = match (kind, over) {
        (_, "socket") => runtime(kind)?.block_on(async {
            let pipe = socket::open(address).await?;
            tokio::spawn(measure(pipe, role, true)).await?
        }),
        ("block_on", _) => {
            let pipe = fabric::open(over, false, address)?;
            let domain = pipe.domain();
            domain.block_on(measure(pipe, role, false))
        }
        _ => {
            let pipe = fabric::open(over, true, address)?;
            runtime(kind)?.block_on(async { tokio::spawn(measure(pipe, role, true)).await? })
        }
    }?;
    println!(
        "{} {} {} {}",
        figures.half_us, figures.gb_per_s, figures.paced_half_us, figures.paced_cpu
    );
    Ok(())
}

/// Runs two processes; returns the figures of the client.
fn pair(cores: [&str; 2], kind: &str, over: &str) -> Result<[f64; 4]> {
    let spawn = |core: &str, words: &[&str]| {
        Command::new("taskset")
            .args(["-c", core])
            .arg(std::env::current_exe()?)
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut server = spawn(cores[0], &["server", kind, over])?;
    let mut lines = BufReader::new(server.stdout.take().ok_or("no output")?).lines();
    let address = lines.next().ok_or("the server has no address")??;
    let client = spawn(cores[1], &["client", kind, over, &address])?;
    let output = client.wait_with_output()?;
    let served = lines.next().ok_or("the server has failed")??;
    server.wait()?;
    let parse = |line: &str| -> Result<Vec<f64>> {
        let numbers = line.split_whitespace().map(str::parse);
        Ok(numbers.collect::<std::result::Result<_, _>>()?)
    };
    let mut figures = parse(&String::from_utf8(output.stdout)?)?;
    // That of the side which only answers.
    figures[3] = parse(&served)?[3];
    figures
        .try_into()
        .map_err(|_| "the client has failed".into())
}

fn compare(rounds: usize, cores: [&str; 2], only: Option<&str>) -> Result<()> {
    let mut plan = vec![("block_on", "tcp"), ("block_on", "shm")];
    for kind in ["current", "multi"] {
        plan.extend(["socket", "tcp", "shm"].map(|over| (kind, over)));
    }
    plan.retain(|(kind, _)| only.is_none_or(|only| only == *kind));
    let mut all: BTreeMap<_, [Vec<f64>; 4]> = BTreeMap::new();
    for _ in 0..rounds {
        for (kind, over) in &plan {
            let figures = pair(cores, kind, over)?;
            let kept = all.entry((*kind, *over)).or_default();
            kept.iter_mut()
                .zip(figures)
                .for_each(|(kept, figure)| kept.push(figure));
        }
    }
    println!(
        "{:<9} {:<7} {:>24} {:>24} {:>12} {:>6}",
        "runtime", "over", "8 B, half us (ratio)", "1 MiB, GB/s (ratio)", "paced, us", "CPU %"
    );
    let of = |kept: &[Vec<f64>; 4], which: usize| median(&mut kept[which].clone());
    for (kind, over) in &plan {
        let kept = &all[&(*kind, *over)];
        let base = all.get(&(*kind, "socket")).unwrap_or(kept);
        let cell = |which| {
            let (mut low, mut high) = (f64::MAX, f64::MIN);
            for value in &kept[which] as &Vec<f64> {
                (low, high) = (low.min(*value), high.max(*value));
            }
            let value = of(kept, which);
            format!(
                "{value:.2} [{low:.2} {high:.2}] ({:.2})",
                value / of(base, which)
            )
        };
        println!(
            "{kind:<9} {over:<7} {:>24} {:>24} {:>12.1} {:>6.1}",
            cell(0),
            cell(1),
            of(kept, 2),
            of(kept, 3) * 100.0
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words[..], ["server" | "client", ..]) {
        return side(&words);
    }
    let (mut rounds, mut cores, mut only) = (5, ["0", "1"], None);
    for option in words.chunks(2) {
        match *option {
            ["--rounds", number] => rounds = number.parse()?,
            ["--runtime", kind] => only = Some(kind),
            ["--cores", both] => {
                let (one, other) = both.split_once(',').ok_or("two cores, please: 0,1")?;
                cores = [one, other];
            }
            _ => return Err("usage: awaited [--rounds N] [--cores A,B] [--runtime KIND]".into()),
        }
    }
    compare(rounds, cores, only)
}
