//! Programs of the C project's fabtests, built elsewhere, on each library in turn.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ripstop_cli::outln;
use ripstop_cli::perf::digits;

use super::Options;
use super::cores::Cores;
use super::pinned::{Ended, pinned};
use super::samples::Spread;
use crate::existing;
use crate::table::table;

/// A program, its options, and the direction that is good.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("fi_rdm_tagged_pingpong", &[]),
    ("fi_rdm_tagged_bw", &[]),
    ("fi_rma_bw", &["-o", "write"]),
    ("fi_rma_bw", &["-o", "read"]),
];

/// Sizes that each is run with.
const SIZES: [usize; 5] = [8, 4 << 10, 64 << 10, 1 << 20, 4 << 20];
const QUICK_SIZES: [usize; 2] = [8, 64 << 10];

/// How long one program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The column of its output that is read: microseconds of a transfer.
const COLUMN: &str = "usec/xfer";

/// Runs all, and prints a table of the times.
///
/// # Errors
/// When the programs are not there; one that fails is a dash in the table.
pub(super) fn print(dir: &Path, options: &Options) -> Result<()> {
    let bin = [dir.join("bin"), dir.to_owned()]
        .into_iter()
        .find(|bin| bin.join("fi_rma_bw").is_file());
    let bin = bin.with_context(|| format!("--fabtests {}: no fi_rma_bw there", dir.display()))?;
    let mut libs = vec![options.comparison.ours()?];
    for peer in &options.comparison.peer {
        libs.push(existing(peer)?);
    }
    let cores = Cores::choose(options.cores)?;
    let rounds = options.pairs.unwrap_or(if options.quick { 3 } else { 7 });
    let sizes: &[usize] = if options.quick { &QUICK_SIZES } else { &SIZES };
    let mut header = ["program", "bytes"].map(ToOwned::to_owned).to_vec();
    header.push("ours us".to_owned());
    for number in 1..libs.len() {
        header.push(format!("peer {number} us"));
        header.push("ours/peer".to_owned());
    }
    let both = ["tcp".to_owned(), "shm".to_owned()];
    let providers = if options.comparison.provider.is_empty() {
        &both[..]
    } else {
        &options.comparison.provider
    };
    outln!(
        "\nfabtests of {}: microseconds a transfer (less is better), medians of {rounds}",
        dir.display()
    );
    for provider in providers {
        let mut table = table(header.clone());
        for (program, more) in PROGRAMS {
            for &size in sizes {
                let mut samples = vec![Vec::new(); libs.len()];
                for round in 0..rounds {
                    let mut order: Vec<usize> = (0..libs.len()).collect();
                    if round % 2 == 1 {
                        order.reverse();
                    }
                    for lib in order {
                        let run = Run {
                            bin: &bin,
                            lib: &libs[lib],
                            program,
                            more,
                            provider,
                            size,
                            cores,
                        };
                        match run.micros() {
                            Ok(micros) => samples[lib].push(micros),
                            Err(error) => eprintln!(
                                "note: {provider} {program} on {}: {error:#}",
                                libs[lib].display()
                            ),
                        }
                    }
                }
                let name = format!("{provider} {program} {}", more.join(" "));
                table.add_row(row(name, size, &samples));
            }
        }
        outln!("{table}");
    }
    Ok(())
}

/// Medians, and ours over each.
fn row(name: String, size: usize, samples: &[Vec<f64>]) -> Vec<String> {
    let median = |samples: &Vec<f64>| Spread::of(samples).map(|spread| spread.median);
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), digits);
    let ours = median(&samples[0]);
    let mut row = vec![name, size.to_string(), text(ours)];
    for peer in &samples[1..] {
        let peer = median(peer);
        row.push(text(peer));
        row.push(text(ours.zip(peer).map(|(ours, peer)| ours / peer)));
    }
    row
}

/// One run of server and client.
struct Run<'a> {
    bin: &'a PathBuf,
    lib: &'a PathBuf,
    program: &'a str,
    more: &'a [&'a str],
    provider: &'a str,
    size: usize,
    cores: Option<(usize, usize)>,
}

impl Run<'_> {
    fn start(&self, server: bool) -> Result<Ended> {
        let core = self
            .cores
            .map(|(client, own)| if server { own } else { client });
        let mut command = pinned(core);
        command.arg(self.bin.join(self.program));
        // -E: addresses are exchanged by a socket, as the project's own runner has it.
        command.args(["-E", "-p", self.provider, "-S", &self.size.to_string()]);
        if self.program == "fi_rma_bw" {
            command.args(["-e", "rdm"]);
        }
        command.args(self.more);
        let folder = self
            .lib
            .parent()
            .map_or_else(OsString::new, |dir| dir.as_os_str().to_owned());
        command.env("LD_LIBRARY_PATH", folder);
        if !server {
            command.arg("127.0.0.1");
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Ended(command.spawn().context(
            "setpriv, taskset and the programs of fabtests",
        )?))
    }

    /// Microseconds of a transfer, as the client says.
    fn micros(&self) -> Result<f64> {
        let _server = self.start(true)?;
        // Its control connection takes no retry: the client comes when the server listens.
        std::thread::sleep(Duration::from_millis(300));
        let mut client = self.start(false)?;
        column(&client.output(PATIENCE)?, COLUMN)
    }
}

/// The number in a column of the last line of a table.
fn column(text: &str, name: &str) -> Result<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains(name));
    let (Some(head), Some(line)) = (lines.next(), lines.next()) else {
        bail!("no column {name} in its output: {text:?}");
    };
    let at = head.split_whitespace().position(|word| word == name);
    let value = at.and_then(|at| line.split_whitespace().nth(at));
    let value = value.with_context(|| format!("no figure in {line:?}"))?;
    Ok(value.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text = "bytes   #sent   #ack  total  time  MB/sec  usec/xfer   Mxfers/sec\n\
                    8       10k     =10k  156k   0.01s 13.17   0.61        1.65\n";
        assert_eq!(column(text, COLUMN).expect("a figure"), 0.61);
        assert!(column("nothing", COLUMN).is_err());
    }

    #[test]
    fn what_failed_is_a_dash() {
        let cells = row(
            "x".to_owned(),
            8,
            &[vec![1.0, 3.0, 2.0], vec![4.0], Vec::new()],
        );
        assert_eq!(cells, ["x", "8", "2.00", "4.00", "0.500", "-", "-"]);
    }
}
