//! What was measured, as tables and as JSON.

use std::path::PathBuf;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde_json::{Value, json};

use super::opened::MAPS;
use super::protocol::{Kind, Measured, Sample, Test, WINDOW};
use crate::outln;

/// The message that is compared with a bare handover of a cache line, in bytes.
const COMPARED: usize = 8;

/// Names of the subjects in tables and JSON.
const LETTERS: [&str; 2] = ["A", "B"];

/// Everything that was measured.
pub(super) struct Report {
    /// Where client and server ran.
    pub(super) cores: Option<(usize, usize)>,
    /// Processes of a group, where groups were measured.
    pub(super) ranks: Option<u32>,
    /// Libraries had memory that peers can map.
    pub(super) memfd: bool,
    /// Both sides sent, wrote and read at once.
    pub(super) both: bool,
    /// Samples of each test.
    pub(super) rounds: u32,
    /// What was compared, one or two.
    pub(super) libraries: Vec<Library>,
    /// What was measured, by provider.
    pub(super) series: Vec<Series>,
}

/// One of the things compared.
#[derive(Clone)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) path: Option<PathBuf>,
    /// Its providers that were measured, in the order in which they were.
    pub(super) providers: Vec<Measured>,
}

impl Library {
    /// What the heading says of it: every provider that was measured.
    fn heading(&self) -> String {
        let each = |provider: &Measured| {
            let Measured { name, api } = provider;
            format!("provider {name}, interface {api}")
        };
        let providers: Vec<String> = self.providers.iter().map(each).collect();
        format!("{}: {}", self.name, providers.join("; "))
    }
}

impl Report {
    /// Notes that one more provider of each library was measured; `libraries` name no other.
    pub(super) fn add(&mut self, libraries: Vec<Library>) {
        if self.libraries.is_empty() {
            self.libraries = libraries;
            return;
        }
        for (known, library) in self.libraries.iter_mut().zip(libraries) {
            known.providers.extend(library.providers);
        }
    }
}

/// The samples of one provider.
pub(super) struct Series {
    pub(super) provider: String,
    /// Tests of one size follow one another.
    pub(super) taken: Vec<Taken>,
    /// Nanoseconds of a bare handover of a cache line, by round; empty where it was not taken.
    pub(super) handovers: Vec<f64>,
}

/// A test and its samples, by subject, then by round.
pub(super) struct Taken {
    pub(super) test: Test,
    pub(super) samples: Vec<Vec<Sample>>,
}

/// What a series is of: one kind of table, and one list in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Messages,
    Memory,
    Group,
    Peers,
}

/// A column of a table, and the quantity of that name in JSON.
struct Column {
    /// Its heading, with the unit.
    heading: &'static str,
    name: &'static str,
    /// The tests that it comes from.
    kinds: &'static [Kind],
    /// The value of a sample, in the unit of JSON.
    value: fn(Sample, Test) -> f64,
    /// A value in the unit of the heading.
    text: fn(f64) -> String,
}

macro_rules! columns {
    ($($table:ident { $($heading:literal $name:ident: $($kind:ident)|+, $value:ident, $text:ident;)+ })+) => {$(
        const $table: &[Column] = &[$(Column {
            heading: $heading,
            name: stringify!($name),
            kinds: &[$(Kind::$kind),+],
            value: $value,
            text: $text,
        }),+];
    )+};
}

columns! {
    MESSAGES {
        "latency us" latency_us: Latency | Exchange, one_way, digits;
        "rate M/s" messages_per_second: Stream | StreamBoth, rate, millions;
        "bandwidth MB/s" bytes_per_second: Stream | StreamBoth, bandwidth, millions;
    }
    MEMORY {
        "writes M/s" writes_per_second: Write | WriteBoth, rate, millions;
        "written MB/s" bytes_written_per_second: Write | WriteBoth, bandwidth, millions;
        "reads M/s" reads_per_second: Read | ReadBoth, rate, millions;
        "read MB/s" bytes_read_per_second: Read | ReadBoth, bandwidth, millions;
    }
    GROUP {
        "latency us" latency_us: Barrier | Allreduce, duration, digits;
    }
    PEERS {
        "seconds" seconds: Insert, seconds, digits;
        "bytes a peer" bytes_per_peer: Insert, growth, whole;
    }
}

/// Nanoseconds of each message or operation.
fn each(sample: Sample, test: Test) -> f64 {
    sample.nanos as f64 / f64::from(test.count)
}

/// Half a round trip in microseconds; all of an exchange, in which a message goes each way at once.
fn one_way(sample: Sample, test: Test) -> f64 {
    let halves = if test.kind == Kind::Latency { 2e3 } else { 1e3 };
    each(sample, test) / halves
}

/// Microseconds of an operation of a group.
fn duration(sample: Sample, test: Test) -> f64 {
    each(sample, test) / 1e3
}

/// Messages or operations a second.
fn rate(sample: Sample, test: Test) -> f64 {
    1e9 / each(sample, test)
}

/// Bytes a second.
fn bandwidth(sample: Sample, test: Test) -> f64 {
    rate(sample, test) * test.size as f64
}

/// Seconds for all peers.
fn seconds(sample: Sample, _: Test) -> f64 {
    sample.nanos as f64 / 1e9
}

/// Bytes of memory for each peer.
fn growth(sample: Sample, test: Test) -> f64 {
    sample.bytes as f64 / f64::from(test.count)
}

impl Column {
    /// Its quantity, if one of these tests is of its kind.
    fn quantity(&self, taken: &[Taken]) -> Option<Quantity> {
        let mut taken = taken.iter();
        let Taken { test, samples } = taken.find(|taken| self.kinds.contains(&taken.test.kind))?;
        let value = |sample: &Sample| (self.value)(*sample, *test);
        let subject = |samples: &Vec<Sample>| samples.iter().map(value).collect();
        Some(Quantity {
            samples: samples.iter().map(subject).collect(),
        })
    }
}

/// One quantity of every subject.
struct Quantity {
    /// By subject, then by round.
    samples: Vec<Vec<f64>>,
}

impl Quantity {
    fn medians(&self) -> Vec<f64> {
        self.samples.iter().map(|samples| median(samples)).collect()
    }

    /// The median of A/B over the rounds, in each of which both were measured one after the
    /// other.
    fn ratio(&self) -> Option<f64> {
        let [a, b] = self.samples.as_slice() else {
            return None;
        };
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        Some(median(&ratios))
    }

    /// Medians and ratio as cells.
    fn cells(&self, text: impl Fn(f64) -> String) -> Vec<String> {
        let mut cells: Vec<String> = self.medians().into_iter().map(text).collect();
        cells.extend(self.ratio().map(|ratio| format!("{ratio:.2}")));
        cells
    }

    fn json(&self) -> Value {
        let mut value = json!({ "ratio": self.ratio() });
        for ((letter, samples), median) in LETTERS.iter().zip(&self.samples).zip(self.medians()) {
            value[*letter] = json!({ "median": median, "samples": samples });
        }
        value
    }
}

/// The middle sample, or the mean of the two in the middle; 0 without samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(&sample), 1) => sample,
        (Some(&sample), _) => f64::midpoint(sample, sorted[middle - 1]),
        (None, _) => 0.0,
    }
}

impl Series {
    fn what(&self) -> What {
        match self.taken.first().map(|taken| taken.test.kind) {
            Some(Kind::Write | Kind::Read | Kind::WriteBoth | Kind::ReadBoth) => What::Memory,
            Some(Kind::Barrier | Kind::Allreduce) => What::Group,
            Some(Kind::Insert) => What::Peers,
            Some(
                Kind::Latency | Kind::Stream | Kind::Gather | Kind::Exchange | Kind::StreamBoth,
            )
            | None => What::Messages,
        }
    }

    fn columns(&self) -> &'static [Column] {
        match self.what() {
            What::Messages => MESSAGES,
            What::Memory => MEMORY,
            What::Group => GROUP,
            What::Peers => PEERS,
        }
    }

    /// The tests of each size.
    fn rows(&self) -> impl Iterator<Item = &[Taken]> {
        self.taken.chunk_by(|a, b| a.test.size == b.test.size)
    }

    /// How many bare handovers of a cache line a message takes one way, by subject.
    fn in_handovers(&self) -> Option<Quantity> {
        if self.handovers.is_empty() {
            return None;
        }
        let compared = self.rows().find(|row| row[0].test.size == COMPARED)?;
        let mut latency = MESSAGES[0].quantity(compared)?;
        for samples in &mut latency.samples {
            for (us, nanos) in samples.iter_mut().zip(&self.handovers) {
                *us = *us * 1e3 / nanos;
            }
        }
        Some(latency)
    }

    /// A line on the bare handover of a cache line, where it was taken.
    fn handover_text(&self) -> Option<String> {
        if self.handovers.is_empty() {
            return None;
        }
        let nanos = digits(median(&self.handovers));
        let mut text = format!("bare handover of a cache line between the cores: {nanos} ns");
        if let Some(quantity) = self.in_handovers() {
            let times = quantity.medians().into_iter().map(digits);
            let times: Vec<String> = match quantity.samples.len() {
                1 => times.collect(),
                _ => LETTERS
                    .iter()
                    .zip(times)
                    .map(|(l, t)| format!("{l} {t}"))
                    .collect(),
            };
            text += &format!(
                "; a message of {COMPARED} B takes {} times that",
                times.join(", ")
            );
        }
        Some(text)
    }

    fn handover_json(&self) -> Value {
        match self.handovers.is_empty() {
            true => Value::Null,
            false => json!({
                "nanoseconds": { "median": median(&self.handovers), "samples": self.handovers },
                "latency_of_8_bytes_in_handovers": self.in_handovers().map(|q| q.json()),
            }),
        }
    }

    fn table(&self, subjects: usize) -> Table {
        let lead: &[&str] = match self.what() {
            What::Messages | What::Memory => &["bytes"],
            What::Group => &["operation", "bytes"],
            What::Peers => &["peers"],
        };
        let mut header: Vec<String> = lead.iter().map(ToString::to_string).collect();
        for column in self.columns() {
            header.extend(headings(column.heading, subjects));
        }
        let mut table = table(header);
        for taken in self.rows() {
            let test = taken[0].test;
            let mut row = match self.what() {
                What::Messages | What::Memory => vec![bytes(test.size)],
                What::Group => vec![test.kind.word().to_owned(), bytes(test.size)],
                What::Peers => vec![test.count.to_string()],
            };
            for column in self.columns() {
                let quantity = column.quantity(taken);
                row.extend(quantity.into_iter().flat_map(|q| q.cells(column.text)));
            }
            table.add_row(row);
        }
        table
    }

    fn json(&self, ranks: Option<u32>) -> Value {
        let row = |taken: &[Taken]| {
            let test = taken[0].test;
            let mut row = match self.what() {
                What::Messages | What::Memory => json!({ "bytes": test.size }),
                What::Group => json!({ "operation": test.kind.word(), "bytes": test.size }),
                What::Peers => json!({ "provider": self.provider, "peers": test.count }),
            };
            for column in self.columns() {
                row[column.name] = json!(column.quantity(taken).map(|quantity| quantity.json()));
            }
            row
        };
        let mut results: Vec<Value> = self.rows().map(row).collect();
        match self.what() {
            What::Messages | What::Memory => json!({
                "provider": self.provider,
                "results": results,
                "cache_line_handover": self.handover_json(),
            }),
            What::Group => json!({
                "provider": self.provider,
                "ranks": ranks,
                "results": results,
            }),
            What::Peers => results.remove(0),
        }
    }
}

/// Prints tables on standard output.
pub(super) fn print(report: &Report) {
    for (letter, library) in LETTERS.iter().zip(&report.libraries) {
        outln!("{letter}  {}", library.heading());
    }
    for series in &report.series {
        let what = match series.what() {
            What::Messages => format!("tagged messages between two processes{}", place(report)),
            What::Memory => format!("writes and reads of remote memory{}", place(report)),
            What::Group => format!("a group of {} processes", report.ranks.unwrap_or(1)),
            What::Peers => "peers inserted into an address vector".to_owned(),
        };
        outln!("\n{}: {what}", series.provider);
        outln!("{}", series.table(report.libraries.len()));
        if let Some(text) = series.handover_text() {
            outln!("{text}");
        }
    }
    outln!("{}", legend(report));
}

fn place(report: &Report) -> String {
    report.cores.map_or_else(String::new, |(client, server)| {
        format!(", on cores {client} and {server}")
    })
}

fn legend(report: &Report) -> String {
    let mut text = format!("medians of {} rounds", report.rounds);
    if report.libraries.len() == 2 {
        text += "; A/B is the median of the rounds' ratios";
    }
    text += &match report.series.first().map(Series::what) {
        Some(What::Messages) if report.both => format!(
            "\nboth sides at once; latency: one message each way, less is better; rate and bandwidth \
             of each direction with {WINDOW} messages under way, more is better"
        ),
        Some(What::Memory) if report.both => format!(
            "\nboth sides at once, each with {WINDOW} operations under way; of each side; more is \
             better{}",
            mapped(report)
        ),
        Some(What::Messages) => format!(
            "\nlatency: half a round trip, less is better; rate and bandwidth: one way with {WINDOW} \
             messages under way, more is better"
        ),
        Some(What::Memory) => format!(
            "\nwith {WINDOW} operations under way; more is better{}",
            mapped(report)
        ),
        Some(What::Group) => "\nlatency: one operation after the other, at the member that took \
                              longest, less is better; allreduce: sums of FI_DOUBLE"
            .to_owned(),
        Some(What::Peers) | None => String::new(),
    };
    text
}

/// What differs between the memory that is reached in Rust and that of libraries.
fn mapped(report: &Report) -> &'static str {
    let maps = |series: &Series| MAPS.contains(&series.provider.as_str());
    match (report.series.iter().any(maps), report.memfd) {
        (true, false) => {
            "\nover shm, peers map the memory that is reached in Rust, which was allocated for that; \
             for libraries it is ordinary memory"
        }
        (true, true) => {
            "\nthe memory that is reached is from memfd_create, sealed, so that peers can map it"
        }
        (false, _) => "",
    }
}

/// A column for each subject, and one for the ratio.
fn headings(name: &str, subjects: usize) -> Vec<String> {
    if subjects == 1 {
        return vec![name.to_owned()];
    }
    let mut columns: Vec<String> = LETTERS
        .iter()
        .map(|letter| format!("{name}\n{letter}"))
        .collect();
    columns.push("\nA/B".to_owned());
    columns
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Bytes with `K` and `M` where they are whole.
#[must_use]
pub fn bytes(size: usize) -> String {
    match size {
        size if size != 0 && size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        size if size != 0 && size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        size => size.to_string(),
    }
}

/// Three digits that count.
#[must_use]
pub fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.1 => format!("{value:.3}"),
        value => format!("{value:.4}"),
    }
}

fn millions(value: f64) -> String {
    digits(value / 1e6)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Everything, with each sample.
pub(super) fn json(report: &Report) -> Value {
    let libraries: serde_json::Map<String, Value> = LETTERS
        .iter()
        .zip(&report.libraries)
        .map(|(letter, library)| {
            let provider = |of: &Measured| json!({ "provider": of.name, "api_version": of.api });
            let about = json!({
                "name": library.name, "path": library.path,
                "providers": library.providers.iter().map(provider).collect::<Vec<_>>(),
            });
            ((*letter).to_owned(), about)
        })
        .collect();
    let of = |what| -> Vec<Value> {
        let series = report.series.iter().filter(|series| series.what() == what);
        series.map(|series| series.json(report.ranks)).collect()
    };
    json!({
        "cores": report.cores,
        "both_ways": report.both,
        "rounds": report.rounds,
        "window": WINDOW,
        "libraries": libraries,
        "messages": of(What::Messages),
        "remote_memory": of(What::Memory),
        "collectives": of(What::Group),
        "address_vectors": of(What::Peers),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    /// A test of a thousand messages, and its samples by subject and round.
    fn taken(kind: Kind, size: usize, nanos: &[&[u64]]) -> Taken {
        let count = 1000;
        let sample = |&nanos: &u64| Sample { nanos, bytes: 0 };
        let subject = |nanos: &&[u64]| nanos.iter().map(sample).collect();
        Taken {
            test: Test::new(kind, size, count),
            samples: nanos.iter().map(subject).collect(),
        }
    }

    fn series() -> Series {
        // 2 us and 4 us there and back, 1 us and 2 us one way.
        let latency: [&[u64]; 2] = [&[2_000_000; 3], &[4_000_000; 3]];
        let stream: [&[u64]; 2] = [&[1_000_000; 3], &[2_000_000; 3]];
        Series {
            provider: "tcp".to_owned(),
            taken: vec![
                taken(Kind::Latency, 1 << 20, &latency),
                taken(Kind::Stream, 1 << 20, &stream),
            ],
            handovers: Vec::new(),
        }
    }

    fn report(ranks: Option<u32>, series: Vec<Series>) -> Report {
        Report {
            cores: None,
            ranks,
            memfd: false,
            both: false,
            rounds: 1,
            libraries: Vec::new(),
            series,
        }
    }

    #[test]
    fn json_has_every_provider_of_each_library() {
        let library = |name: &str, provider: &str| Library {
            name: name.to_owned(),
            path: None,
            providers: vec![Measured {
                name: provider.to_owned(),
                api: "2.6".to_owned(),
            }],
        };
        let mut report = report(None, Vec::new());
        report.add(vec![library("one", "tcp"), library("other", "tcp;ofi_rxm")]);
        report.add(vec![library("one", "shm"), library("other", "shm")]);
        let value = json(&report);
        let names = |letter: &str| {
            let providers = value["libraries"][letter]["providers"].as_array();
            let names = providers
                .into_iter()
                .flatten()
                .map(|of| of["provider"].as_str());
            names.flatten().collect::<Vec<_>>()
        };
        assert_eq!(names("A"), ["tcp", "shm"]);
        assert_eq!(names("B"), ["tcp;ofi_rxm", "shm"]);
    }

    #[test]
    fn quantities_have_their_units() {
        let series = series();
        let [latency, rate, bandwidth] = MESSAGES else {
            panic!("three columns");
        };
        let latency = latency.quantity(&series.taken).expect("measured");
        assert_eq!(latency.medians(), [1.0, 2.0]);
        assert_eq!(latency.ratio(), Some(0.5));
        let rate = rate.quantity(&series.taken).expect("measured");
        assert_eq!(rate.medians(), [1e6, 5e5]);
        assert_eq!(rate.ratio(), Some(2.0));
        assert!(bandwidth.quantity(&series.taken[..1]).is_none());
    }

    #[test]
    fn a_table_shows_both_and_their_ratio() {
        let text = series().table(2).to_string();
        for part in ["1M", "0.50", "2.00", "latency us", "A/B", "1048576"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn json_has_every_sample() {
        let value = series().json(None);
        let latency = &value["results"][0]["latency_us"];
        assert_eq!(latency["A"]["samples"], json!([1.0, 1.0, 1.0]));
        assert_eq!(latency["B"]["median"], json!(2.0));
        assert_eq!(latency["ratio"], json!(0.5));
    }

    #[test]
    fn a_message_is_compared_with_a_handover() {
        let mut series = series();
        assert_eq!(series.handover_text(), None);
        assert_eq!(series.json(None)["cache_line_handover"], Value::Null);
        series.handovers = vec![100.0, 200.0, 50.0];
        let text = series.handover_text().expect("taken");
        assert!(text.ends_with("the cores: 100 ns"), "{text}");
        for taken in &mut series.taken {
            taken.test.size = 8;
        }
        // 1 us and 2 us one way.
        let text = series.handover_text().expect("taken");
        assert!(
            text.ends_with("of 8 B takes A 10.0, B 20.0 times that"),
            "{text}"
        );
        let value = &series.json(None)["cache_line_handover"];
        assert_eq!(value["nanoseconds"]["median"], json!(100.0));
        let times = &value["latency_of_8_bytes_in_handovers"];
        assert_eq!(times["A"]["samples"], json!([10.0, 5.0, 20.0]));
    }

    #[test]
    fn a_group_has_a_row_for_each_operation() {
        let series = Series {
            provider: "shm".to_owned(),
            taken: vec![
                taken(Kind::Barrier, 0, &[&[3_000_000]]),
                taken(Kind::Allreduce, 8, &[&[7_000_000]]),
            ],
            handovers: Vec::new(),
        };
        let text = series.table(1).to_string();
        for part in ["barrier", "allreduce", "3.00", "7.00"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let report = report(Some(3), vec![series]);
        let value = json(&report);
        assert_eq!(value["messages"], json!([]));
        let group = &value["collectives"][0];
        assert_eq!(group["ranks"], 3);
        assert_eq!(group["results"][1]["latency_us"]["A"]["median"], 7.0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0123, 0.123, 1.23, 12.3, 123.4].map(digits),
            ["0.0123", "0.123", "1.23", "12.3", "123"]
        );
        assert_eq!([8, 4096, 3 << 20].map(bytes), ["8", "4K", "3M"]);
    }
}
