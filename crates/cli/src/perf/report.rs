//! What was measured, as tables and as JSON.

use std::path::PathBuf;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde_json::{Value, json};

use super::opened::MAPS;
use super::plan::WINDOW;
use super::protocol::{Kind, Test};

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
    /// Samples of each test.
    pub(super) rounds: u32,
    /// What was compared, one or two.
    pub(super) libraries: Vec<Library>,
    /// Messages, by provider.
    pub(super) series: Vec<Series>,
    /// Address vectors, by provider.
    pub(super) insertions: Vec<Insertion>,
}

/// One of the things compared.
#[derive(Clone)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) path: Option<PathBuf>,
    /// Its providers that were measured, in the order in which they were.
    pub(super) providers: Vec<Measured>,
}

/// A provider of a library, as the library names it.
#[derive(Clone)]
pub(super) struct Measured {
    /// The full name, with those of the providers it is layered over.
    pub(super) name: String,
    /// The interface version it has.
    pub(super) api: String,
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
    pub(super) tests: Vec<Test>,
    /// Nanoseconds for all messages of a test: by subject, test, round.
    pub(super) nanos: Vec<Vec<Vec<u64>>>,
    /// Nanoseconds of a bare handover of a cache line, by round; empty where it was not taken.
    pub(super) handovers: Vec<f64>,
}

/// What inserting all peers took.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub(super) nanos: u64,
    pub(super) bytes: u64,
}

/// The insertions of one provider.
pub(super) struct Insertion {
    pub(super) provider: String,
    pub(super) count: u32,
    /// By subject and round.
    pub(super) growth: Vec<Vec<Growth>>,
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
fn median(samples: &[f64]) -> f64 {
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
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.tests.iter().map(|test| test.size).collect();
        sizes.dedup();
        sizes
    }

    /// A quantity of one test, from the nanoseconds of a message.
    fn quantity(&self, kind: Kind, size: usize, of: impl Fn(f64) -> f64) -> Option<Quantity> {
        let is_it = |test: &Test| test.kind == kind && test.size == size;
        let number = self.tests.iter().position(is_it)?;
        let count = f64::from(self.tests[number].count);
        let subject = |nanos: &Vec<Vec<u64>>| {
            let each = |&nanos: &u64| of(nanos as f64 / count);
            nanos[number].iter().map(each).collect()
        };
        Some(Quantity {
            samples: self.nanos.iter().map(subject).collect(),
        })
    }

    /// Writes and reads, not messages.
    fn is_rma(&self) -> bool {
        self.tests.iter().any(|test| test.kind == Kind::Write)
    }

    /// Operations of a group.
    fn is_group(&self) -> bool {
        self.tests.iter().any(|test| test.kind == Kind::Barrier)
    }

    /// Microseconds of an operation of a group.
    fn duration(&self, kind: Kind, size: usize) -> Option<Quantity> {
        self.quantity(kind, size, |nanos| nanos / 1e3)
    }

    /// Writes or reads a second.
    fn operations(&self, kind: Kind, size: usize) -> Option<Quantity> {
        self.quantity(kind, size, |nanos| 1e9 / nanos)
    }

    /// Bytes a second that are written or read.
    fn moved(&self, kind: Kind, size: usize) -> Option<Quantity> {
        self.quantity(kind, size, |nanos| 1e9 / nanos * size as f64)
    }

    /// Half a round trip in microseconds.
    fn latency(&self, size: usize) -> Option<Quantity> {
        self.quantity(Kind::Latency, size, |nanos| nanos / 2e3)
    }

    /// How many bare handovers of a cache line a message takes one way, by subject.
    fn in_handovers(&self) -> Option<Quantity> {
        if self.handovers.is_empty() {
            return None;
        }
        let latency = self.latency(COMPARED)?;
        let subject = |samples: Vec<f64>| {
            let pairs = samples.iter().zip(&self.handovers);
            pairs.map(|(us, nanos)| us * 1e3 / nanos).collect()
        };
        Some(Quantity {
            samples: latency.samples.into_iter().map(subject).collect(),
        })
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

    /// Messages a second.
    fn rate(&self, size: usize) -> Option<Quantity> {
        self.quantity(Kind::Stream, size, |nanos| 1e9 / nanos)
    }

    /// Bytes a second.
    fn bandwidth(&self, size: usize) -> Option<Quantity> {
        self.quantity(Kind::Stream, size, |nanos| 1e9 / nanos * size as f64)
    }
}

impl Insertion {
    fn quantity(&self, of: impl Fn(&Growth) -> f64) -> Quantity {
        let subject = |growth: &Vec<Growth>| growth.iter().map(&of).collect();
        Quantity {
            samples: self.growth.iter().map(subject).collect(),
        }
    }

    /// Seconds for all peers.
    fn seconds(&self) -> Quantity {
        self.quantity(|growth| growth.nanos as f64 / 1e9)
    }

    /// Bytes of memory for each peer.
    fn bytes(&self) -> Quantity {
        self.quantity(|growth| growth.bytes as f64 / f64::from(self.count))
    }
}

/// Prints tables on standard output.
pub(super) fn print(report: &Report) {
    for (letter, library) in LETTERS.iter().zip(&report.libraries) {
        println!("{letter}  {}", library.heading());
    }
    for series in &report.series {
        let what = match (report.ranks, series.is_rma()) {
            (Some(ranks), _) => format!("a group of {ranks} processes"),
            (_, true) => format!("writes and reads of remote memory{}", place(report)),
            (_, false) => format!("tagged messages between two processes{}", place(report)),
        };
        println!("\n{}: {what}", series.provider);
        println!("{}", messages(series, report.libraries.len()));
        if let Some(text) = series.handover_text() {
            println!("{text}");
        }
    }
    for insertion in &report.insertions {
        println!(
            "\n{}: peers inserted into an address vector",
            insertion.provider
        );
        println!("{}", peers(insertion, report.libraries.len()));
    }
    println!("{}", legend(report));
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
    if report.ranks.is_some() {
        text += "\nlatency: one operation after the other, at the member that took longest, less \
                 is better; allreduce: sums of FI_DOUBLE";
    } else if !report.series.is_empty() {
        text += &match report.series.iter().any(Series::is_rma) {
            true => format!(
                "\nwith {WINDOW} operations under way; more is better{}",
                mapped(report)
            ),
            false => format!(
                "\nlatency: half a round trip, less is better; rate and bandwidth: one way with \
                 {WINDOW} messages under way, more is better"
            ),
        };
    }
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
fn columns(name: &str, subjects: usize) -> Vec<String> {
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

fn messages(series: &Series, subjects: usize) -> Table {
    if series.is_group() {
        return group(series, subjects);
    }
    if series.is_rma() {
        return operations(series, subjects);
    }
    let mut header = vec!["bytes".to_owned()];
    for name in ["latency us", "rate M/s", "bandwidth MB/s"] {
        header.extend(columns(name, subjects));
    }
    let mut table = table(header);
    for size in series.sizes() {
        let mut row = vec![bytes(size)];
        let parts = [
            series.latency(size).map(|q| q.cells(digits)),
            series
                .rate(size)
                .map(|q| q.cells(|rate| digits(rate / 1e6))),
            series
                .bandwidth(size)
                .map(|q| q.cells(|rate| digits(rate / 1e6))),
        ];
        row.extend(parts.into_iter().flatten().flatten());
        table.add_row(row);
    }
    table
}

fn operations(series: &Series, subjects: usize) -> Table {
    let mut header = vec!["bytes".to_owned()];
    for name in ["writes M/s", "written MB/s", "reads M/s", "read MB/s"] {
        header.extend(columns(name, subjects));
    }
    let mut table = table(header);
    let millions = |value: f64| digits(value / 1e6);
    for size in series.sizes() {
        let mut row = vec![bytes(size)];
        for kind in [Kind::Write, Kind::Read] {
            let parts = [series.operations(kind, size), series.moved(kind, size)];
            row.extend(parts.into_iter().flatten().flat_map(|q| q.cells(millions)));
        }
        table.add_row(row);
    }
    table
}

fn group(series: &Series, subjects: usize) -> Table {
    let mut header = vec!["operation".to_owned(), "bytes".to_owned()];
    header.extend(columns("latency us", subjects));
    let mut table = table(header);
    for test in &series.tests {
        let mut row = vec![test.kind.word().to_owned(), bytes(test.size)];
        let latency = series.duration(test.kind, test.size);
        row.extend(latency.into_iter().flat_map(|q| q.cells(digits)));
        table.add_row(row);
    }
    table
}

fn peers(insertion: &Insertion, subjects: usize) -> Table {
    let mut header = vec!["peers".to_owned()];
    header.extend(columns("seconds", subjects));
    header.extend(columns("bytes a peer", subjects));
    let mut table = table(header);
    let mut row = vec![insertion.count.to_string()];
    row.extend(insertion.seconds().cells(digits));
    row.extend(insertion.bytes().cells(|bytes| format!("{bytes:.0}")));
    table.add_row(row);
    table
}

/// Bytes with `K` and `M` where they are whole.
fn bytes(size: usize) -> String {
    match size {
        size if size != 0 && size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        size if size != 0 && size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        size => size.to_string(),
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.1 => format!("{value:.3}"),
        value => format!("{value:.4}"),
    }
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
    json!({
        "cores": report.cores,
        "rounds": report.rounds,
        "window": WINDOW,
        "libraries": libraries,
        "messages": of_kind(report, false),
        "remote_memory": of_kind(report, true),
        "collectives": collectives(report),
        "address_vectors": report.insertions.iter().map(insertion_json).collect::<Vec<_>>(),
    })
}

fn of_kind(report: &Report, rma: bool) -> Vec<Value> {
    let series = report.series.iter();
    let fits = series.filter(|series| series.is_rma() == rma && !series.is_group());
    fits.map(series_json).collect()
}

fn collectives(report: &Report) -> Vec<Value> {
    let groups = report.series.iter().filter(|series| series.is_group());
    let group = |series: &Series| {
        let row = |test: &Test| {
            let latency = series.duration(test.kind, test.size);
            json!({
                "operation": test.kind.word(),
                "bytes": test.size,
                "latency_us": latency.map(|quantity| quantity.json()),
            })
        };
        json!({
            "provider": series.provider,
            "ranks": report.ranks,
            "results": series.tests.iter().map(row).collect::<Vec<_>>(),
        })
    };
    groups.map(group).collect()
}

fn series_json(series: &Series) -> Value {
    let row = |size: usize| {
        let quantity = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.json());
        if series.is_rma() {
            return json!({
                "bytes": size,
                "writes_per_second": quantity(series.operations(Kind::Write, size)),
                "bytes_written_per_second": quantity(series.moved(Kind::Write, size)),
                "reads_per_second": quantity(series.operations(Kind::Read, size)),
                "bytes_read_per_second": quantity(series.moved(Kind::Read, size)),
            });
        }
        json!({
            "bytes": size,
            "latency_us": quantity(series.latency(size)),
            "messages_per_second": quantity(series.rate(size)),
            "bytes_per_second": quantity(series.bandwidth(size)),
        })
    };
    let results: Vec<Value> = series.sizes().into_iter().map(row).collect();
    json!({
        "provider": series.provider,
        "results": results,
        "cache_line_handover": series.handover_json(),
    })
}

fn insertion_json(insertion: &Insertion) -> Value {
    json!({
        "provider": insertion.provider,
        "peers": insertion.count,
        "seconds": insertion.seconds().json(),
        "bytes_per_peer": insertion.bytes().json(),
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

    fn series() -> Series {
        let test = |kind| Test {
            kind,
            size: 1 << 20,
            count: 1000,
        };
        Series {
            provider: "tcp".to_owned(),
            tests: vec![test(Kind::Latency), test(Kind::Stream)],
            // 2 us and 4 us there and back, 1 us and 2 us one way.
            nanos: vec![
                vec![vec![2_000_000; 3], vec![1_000_000; 3]],
                vec![vec![4_000_000; 3], vec![2_000_000; 3]],
            ],
            handovers: Vec::new(),
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
        let mut report = Report {
            cores: None,
            ranks: None,
            memfd: false,
            rounds: 1,
            libraries: Vec::new(),
            series: Vec::new(),
            insertions: Vec::new(),
        };
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
        let latency = series.latency(1 << 20).expect("measured");
        assert_eq!(latency.medians(), [1.0, 2.0]);
        assert_eq!(latency.ratio(), Some(0.5));
        let rate = series.rate(1 << 20).expect("measured");
        assert_eq!(rate.medians(), [1e6, 5e5]);
        assert_eq!(rate.ratio(), Some(2.0));
        assert!(series.rate(8).is_none());
    }

    #[test]
    fn a_table_shows_both_and_their_ratio() {
        let text = messages(&series(), 2).to_string();
        for part in ["1M", "0.50", "2.00", "latency us", "A/B", "1048576"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn json_has_every_sample() {
        let value = series_json(&series());
        let latency = &value["results"][0]["latency_us"];
        assert_eq!(latency["A"]["samples"], json!([1.0, 1.0, 1.0]));
        assert_eq!(latency["B"]["median"], json!(2.0));
        assert_eq!(latency["ratio"], json!(0.5));
    }

    #[test]
    fn a_message_is_compared_with_a_handover() {
        let mut series = series();
        assert_eq!(series.handover_text(), None);
        assert_eq!(series_json(&series)["cache_line_handover"], Value::Null);
        series.handovers = vec![100.0, 200.0, 50.0];
        let text = series.handover_text().expect("taken");
        assert!(text.ends_with("the cores: 100 ns"), "{text}");
        for test in &mut series.tests {
            test.size = 8;
        }
        // 1 us and 2 us one way.
        let text = series.handover_text().expect("taken");
        assert!(
            text.ends_with("of 8 B takes A 10.0, B 20.0 times that"),
            "{text}"
        );
        let value = &series_json(&series)["cache_line_handover"];
        assert_eq!(value["nanoseconds"]["median"], json!(100.0));
        let times = &value["latency_of_8_bytes_in_handovers"];
        assert_eq!(times["A"]["samples"], json!([10.0, 5.0, 20.0]));
    }

    #[test]
    fn a_group_has_a_row_for_each_operation() {
        let test = |kind, size| Test {
            kind,
            size,
            count: 1000,
        };
        let series = Series {
            provider: "shm".to_owned(),
            tests: vec![test(Kind::Barrier, 0), test(Kind::Allreduce, 8)],
            nanos: vec![vec![vec![3_000_000], vec![7_000_000]]],
            handovers: Vec::new(),
        };
        let text = messages(&series, 1).to_string();
        for part in ["barrier", "allreduce", "3.00", "7.00"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let report = Report {
            cores: None,
            ranks: Some(3),
            memfd: false,
            rounds: 1,
            libraries: Vec::new(),
            series: vec![series],
            insertions: Vec::new(),
        };
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
