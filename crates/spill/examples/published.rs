//! Runs the joins and sorts of Do 2012 (tables 2.3 and 2.4, figures 2.1 to 2.3) and Lee 2008 (figures 6 to 8)
//! on emulated drives, and prints the published values beside ours.
//!
//! ```text
//! cargo run --release -p varve-spill --example published -- [join-buffer] [join-page-size] [join-page-io]
//!     [sort-cluster] [hash-pattern] [--scale N]
//! ```
//!
//! Inputs and buffers of Do are divided by the scale (64 if none is given). Blocks of table 2.1 then have
//! fewer pages, so seek, latency and super-blocks are divided, too. Requests of page-sized I/O stay as long
//! as they were, so nothing is divided for them. Blocks of hybrid joins shrink by the root of the scale
//! only, so their seeks weigh less than published.
//!
//! What this does not say: an emulated ratio is evidence about the algorithms, not about a drive. A disk is
//! charged its average seek for each random request. A real one seeks less far between the files of a join.

use std::sync::Arc;

use varve_device::{Accounting, Directory, Emulated, MemoryDirectory, Profile, Timed, thread_cpu_ns};
use varve_spill::{
    BlockIo, DriveTimes, InputSize, Join, JoinInput, JoinKind, JoinMethod, JoinOutput, JoinSettings, Joined,
    MemoryBudget, PartitionFiles, Result, Row, RunMethod, Side, SortSettings, Sorter, Spool, SpoolSettings,
    SpoolWriter, TemporarySpace,
};

/// Modelled times are slept, multiplied by this.
const DILATION: f64 = 0.001;
/// A ratio within this share of the published one is reproduced.
const TOLERANCE: f64 = 0.2;

/// Table 2.3: speed-up of I/O times by flash, for 100 to 600 MB, in the order of [`JoinMethod::ALL`].
const IO_SPEED_UPS: [[f64; 6]; 4] = [
    [2.86, 2.62, 3.04, 2.87, 2.79, 2.61],
    [1.81, 2.05, 2.06, 2.08, 2.04, 2.20],
    [1.54, 1.59, 1.62, 1.62, 1.77, 1.55],
    [1.77, 1.90, 1.51, 1.89, 1.78, 2.09],
];

/// Table 2.4: the same by phase, without block nested loops.
const PHASE_SPEED_UPS: [[[f64; 2]; 6]; 3] = [
    [[1.52, 3.00], [1.83, 2.81], [1.86, 2.79], [1.90, 2.63], [1.81, 2.86], [2.00, 2.89]],
    [[1.34, 2.27], [1.43, 2.19], [1.47, 2.12], [1.47, 2.13], [1.59, 2.44], [1.31, 2.68]],
    [[1.57, 2.61], [1.66, 3.09], [1.34, 2.32], [1.70, 2.91], [1.63, 2.83], [1.98, 2.84]],
];

/// A drive of the experiments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drive {
    Disk,
    Flash,
}

impl Drive {
    const BOTH: [Drive; 2] = [Drive::Disk, Drive::Flash];

    /// The shipped profile with its access time (not its transfer) divided.
    fn profile(self, names: [&str; 2], divisor: f64) -> Profile {
        let name = names[self as usize];
        let mut profile = Profile::shipped(name).unwrap_or_else(|error| panic!("{error}"));
        let rates = &mut profile.operations_per_s;
        for (random, sequential) in [
            (&mut rates.random_read, rates.sequential_read),
            (&mut rates.random_write, rates.sequential_write),
        ] {
            let access = 1.0 / *random - 1.0 / sequential;
            *random = 1.0 / (access / divisor + 1.0 / sequential);
        }
        if let Some(merges) = &mut profile.merges {
            merges.block_bytes = ((merges.block_bytes as f64 / divisor) as u64).max(2 * merges.page_bytes);
            merges.erase_us /= divisor;
        }
        profile
    }
}

/// A temporary space on an emulated drive.
struct Bench {
    drive: Arc<Emulated>,
    space: Arc<TemporarySpace>,
}

impl Bench {
    fn new(profile: Profile) -> Result<Bench> {
        let drive = Emulated::wrap(MemoryDirectory::new(), profile, DILATION);
        let directory: Arc<dyn Directory> = Arc::clone(&drive) as Arc<dyn Directory>;
        drive.take_times(false);
        Ok(Bench { space: TemporarySpace::open(directory, u64::MAX)?, drive })
    }

    fn io_s(&self) -> f64 {
        self.drive.report().modelled_ns as f64 / DILATION / 1e9
    }
}

/// Times of a join, in seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    first_io: f64,
    second_io: f64,
    processor: f64,
}

impl Times {
    fn io(&self) -> f64 {
        self.first_io + self.second_io
    }

    fn total(&self) -> f64 {
        self.io() + self.processor
    }
}

/// Counts results, and notes when the second phase begins.
struct Counter<'a> {
    bench: &'a Bench,
    rows: u64,
    first_io: Option<f64>,
}

impl JoinOutput for Counter<'_> {
    fn joined(&mut self, _row: Joined<'_>) -> Result<()> {
        self.rows += 1;
        Ok(())
    }

    fn second_phase(&mut self) {
        self.first_io = Some(self.bench.io_s());
    }
}

/// A splitmix64 step.
fn mix(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A heap file whose row n has the key `key(n)`.
fn heap_file(
    bench: &Bench,
    rows: u64,
    payload_bytes: usize,
    page_bytes: usize,
    key: impl Fn(u64) -> u32,
) -> Result<Spool> {
    let settings = SpoolSettings { page_bytes, write_pages: 16, fill_percent: 80 };
    let mut writer = SpoolWriter::new(&bench.space, &MemoryBudget::new(1 << 20), settings)?;
    let payload = vec![7; payload_bytes];
    for n in 0..rows {
        writer.push(Row::new(&key(n).to_be_bytes(), &payload))?;
    }
    writer.finish()
}

/// What is joined, and how.
#[derive(Clone, Copy)]
struct Setup {
    megabytes: u64,
    page_bytes: usize,
    io: BlockIo,
    files: PartitionFiles,
    scale: u64,
}

impl Setup {
    /// By how much access times are divided.
    fn divisor(&self) -> f64 {
        if self.io == BlockIo::Blocked { self.scale as f64 } else { 1.0 }
    }
}

/// Joins customer (R) and orders (S) of Do 2012, section 2.4.2.
fn customer_orders(method: JoinMethod, setup: Setup, drive: Drive) -> Result<Times> {
    let bench = Bench::new(drive.profile(["hdd-5400", "ssd-ocz"], setup.divisor()))?;
    let customers = 4_500_000 / setup.scale;
    let unique = |n: u64| (n as u32).wrapping_mul(2_654_435_761);
    let mut build = heap_file(&bench, customers, 130, setup.page_bytes, unique)?;
    let of_order = |n: u64| unique(mix(n) % customers);
    let mut probe = heap_file(&bench, 45_000_000 / setup.scale, 90, setup.page_bytes, of_order)?;
    let disk = DriveTimes::DISK;
    let (seek_us, latency_us) = (disk.seek_us / setup.divisor(), disk.latency_us / setup.divisor());
    let join = Join {
        space: Arc::clone(&bench.space),
        memory: MemoryBudget::new(((setup.megabytes << 20) / setup.scale) as usize),
        settings: JoinSettings {
            page_bytes: setup.page_bytes,
            io: setup.io,
            partition_files: setup.files,
            times: DriveTimes { seek_us, latency_us, ..disk },
        },
        method,
        kind: JoinKind::Inner,
        build: Side::Left,
    };
    let size = |spool: &Spool| InputSize { rows: spool.rows(), bytes: spool.bytes() };
    let (build_size, probe_size) = (size(&build), size(&probe));
    bench.drive.take_times(true);
    bench.drive.begin_report();
    let processor_ns = thread_cpu_ns();
    let mut counter = Counter { bench: &bench, rows: 0, first_io: None };
    let build = JoinInput { source: &mut build, size: build_size };
    let probe = JoinInput { source: &mut probe, size: probe_size };
    join.run(build, probe, &mut counter)?;
    assert_eq!(counter.rows, probe_size.rows, "each order has one customer");
    let io = bench.io_s();
    let first_io = counter.first_io.unwrap_or(io);
    let processor = (thread_cpu_ns() - processor_ns) as f64 / 1e9;
    Ok(Times { first_io, second_io: io - first_io, processor })
}

/// Whether a ratio is the published one.
fn verdict(ours: f64, published: f64) -> &'static str {
    match ours / published {
        ratio if (ratio - 1.0).abs() <= TOLERANCE => "reproduced",
        ratio if ratio > 2.0 => "beyond: examine",
        ratio if ratio > 1.0 => "larger",
        _ => "smaller",
    }
}

fn join_buffer(scale: u64, files: PartitionFiles) -> Result<()> {
    println!(
        "\njoin-buffer (Do 2012, tables 2.3 and 2.4): pages of 8 KB, blocked I/O, 1/{scale} of the data; partitions: {files:?}"
    );
    println!(
        "| MB | join | disk I/O s | flash I/O s | speed-up | published | verdict | phases | published | processor s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (column, megabytes) in [100, 200, 300, 400, 500, 600].into_iter().enumerate() {
        let setup = Setup { megabytes, page_bytes: 8 << 10, io: BlockIo::Blocked, files, scale };
        let mut all = Vec::new();
        for (row, method) in JoinMethod::ALL.into_iter().enumerate() {
            let [disk, flash] =
                [Drive::Disk, Drive::Flash].map(|drive| customer_orders(method, setup, drive));
            let (disk, flash) = (disk?, flash?);
            let (ours, published) = (disk.io() / flash.io(), IO_SPEED_UPS[row][column]);
            let phases = match row.checked_sub(1) {
                None => "| - | -".to_owned(),
                Some(row) => {
                    let [first, second] = PHASE_SPEED_UPS[row][column];
                    let ours = [disk.first_io / flash.first_io, disk.second_io / flash.second_io];
                    format!("| {:.2}, {:.2} | {first:.2}, {second:.2}", ours[0], ours[1])
                }
            };
            println!(
                "| {megabytes} | {method:?} | {:.1} | {:.1} | {ours:.2} | {published:.2} | {} {phases} | {:.1} |",
                disk.io(),
                flash.io(),
                verdict(ours, published),
                flash.processor,
            );
            all.push((method, disk, flash));
        }
        for (name, pick) in [("disk", 0), ("flash", 1)] {
            let io = |entry: &(JoinMethod, Times, Times)| if pick == 0 { entry.1 } else { entry.2 };
            let mut order: Vec<_> =
                all.iter().map(|entry| (io(entry).total(), io(entry).io(), entry.0)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let best = order.first().map(|entry| entry.2);
            let is_hybrid = if best == Some(JoinMethod::Hybrid) { "reproduced" } else { "not" };
            println!("{megabytes} MB, {name}: hybrid is best in total time: {is_hybrid} ({order:.1?})");
        }
    }
    Ok(())
}

fn join_pages(scale: u64, is_blocked: bool) -> Result<()> {
    let (name, io) = if is_blocked {
        ("join-page-size (figure 2.2)", BlockIo::Blocked)
    } else {
        (
            "join-page-io (figure 2.3): slower than disk at 2 KB are published: SortMerge, Grace",
            BlockIo::PageSized,
        )
    };
    println!("\n{name}, 500 MB, 1/{scale} of the data; I/O seconds at pages of 2, 4, 8, 16, 32 KB");
    let files = PartitionFiles::OneEach;
    for method in JoinMethod::ALL {
        for drive in Drive::BOTH {
            let drive_name = if drive == Drive::Disk { "disk" } else { "flash" };
            let mut line = format!("| {method:?} | {drive_name} |");
            for kilobytes in [2, 4, 8, 16, 32] {
                let setup = Setup { megabytes: 500, page_bytes: kilobytes << 10, io, files, scale };
                line += &format!(" {:.1} |", customer_orders(method, setup, drive)?.io());
            }
            println!("{line}");
        }
    }
    Ok(())
}

/// Sorts 200 MB with 2 MB (Lee 2008, figure 7a). Times without reading the input.
fn sort_cluster() -> Result<()> {
    println!(
        "\nsort-cluster (Lee 2008, figure 7a): 200 MB, buffer of 2 MB; I/O seconds of runs and of merges"
    );
    println!("published: disk best at 64 KB, flash at 2 KB, run generation nearly equal, merge almost 10x");
    for kilobytes in [2_usize, 4, 8, 16, 32, 64, 128] {
        let mut line = format!("| {kilobytes} KB |");
        for drive in Drive::BOTH {
            let bench = Bench::new(drive.profile(["hdd-7200", "ssd-2008"], 1.0))?;
            bench.drive.take_times(true);
            bench.drive.begin_report();
            let settings = SortSettings {
                page_bytes: 2 << 10,
                write_pages: 32,
                cluster_bytes: Some(kilobytes << 10),
                runs: RunMethod::ReplacementSelection,
            };
            let mut sorter = Sorter::new(&bench.space, &MemoryBudget::new(2 << 20), settings)?;
            let payload = [7; 88];
            for n in 0..2_000_000_u64 {
                sorter.push(Row::new(&mix(n).to_be_bytes()[..4], &payload))?;
            }
            let (runs_s, runs) = (bench.io_s(), sorter.runs());
            let mut sorted = sorter.finish(0)?;
            let mut rows = 0;
            while sorted.advance()? {
                rows += 1;
            }
            assert_eq!(rows, 2_000_000);
            line += &format!(" {runs} runs: {runs_s:.1} + {:.1} |", bench.io_s() - runs_s);
        }
        println!("{line}");
    }
    Ok(())
}

/// The shares of writes and of reads that begin where the one before them ended.
fn sequential_shares(accounting: &Accounting) -> (f64, f64) {
    let (entries, _) = accounting.trace().take();
    let share = |what: Timed| {
        let of_kind: Vec<_> = entries.iter().filter(|entry| entry.what == what).collect();
        let follows = of_kind.windows(2).filter(|pair| {
            pair[0].file == pair[1].file && pair[0].offset + pair[0].len_bytes == pair[1].offset
        });
        follows.count() as f64 / of_kind.len().max(1) as f64
    };
    (share(Timed::Write), share(Timed::Read))
}

/// Joins two tables of 200 MB with 2 MB (Lee 2008, figure 8), a quarter of everything.
fn hash_pattern() -> Result<()> {
    println!(
        "\nhash-pattern (Lee 2008, figure 8): 200 MB and 200 MB, buffer of 2 MB, a quarter of all; I/O seconds"
    );
    println!("published: 661.1 s and 226.0 s, 2.9x; writes are sequential");
    let mut io = Vec::new();
    for drive in Drive::BOTH {
        let bench = Bench::new(drive.profile(["hdd-7200", "ssd-2008"], 4.0))?;
        let inputs = Bench::new(drive.profile(["hdd-7200", "ssd-2008"], 4.0))?;
        let unique = |n: u64| (n as u32).wrapping_mul(2_654_435_761);
        let mut build = heap_file(&inputs, 500_000, 88, 2 << 10, unique)?;
        let mut probe = heap_file(&inputs, 500_000, 88, 2 << 10, unique)?;
        let size = InputSize { rows: build.rows(), bytes: build.bytes() };
        let join = Join {
            space: Arc::clone(&bench.space),
            memory: MemoryBudget::new(512 << 10),
            settings: JoinSettings {
                page_bytes: 2 << 10,
                io: BlockIo::Blocked,
                partition_files: PartitionFiles::Shared,
                times: DriveTimes::DISK,
            },
            method: JoinMethod::Grace,
            kind: JoinKind::Inner,
            build: Side::Left,
        };
        let accounting = Arc::clone(bench.drive.accounting());
        accounting.observe(false, 1 << 20);
        bench.drive.take_times(true);
        bench.drive.begin_report();
        let mut counter = Counter { bench: &bench, rows: 0, first_io: None };
        let build = JoinInput { source: &mut build, size };
        let probe = JoinInput { source: &mut probe, size };
        join.run(build, probe, &mut counter)?;
        assert_eq!(counter.rows, 500_000);
        let first = counter.first_io.unwrap_or(0.0);
        let (profile, second) = (bench.drive.report().profile, bench.io_s() - first);
        let (writes, reads) = sequential_shares(&accounting);
        println!(
            "| {profile} | {first:.1} + {second:.1} | sequential: {writes:.2} of writes, {reads:.2} of reads |"
        );
        io.push(bench.io_s());
    }
    if let [disk, flash] = io[..] {
        println!("speed-up {:.2}, published 2.93: {}", disk / flash, verdict(disk / flash, 661.1 / 226.0));
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = arguments.iter().position(|argument| argument == "--scale");
    let scale = scale.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(64);
    let names = ["join-buffer", "join-page-size", "join-page-io", "sort-cluster", "hash-pattern"];
    let is_named = names.iter().any(|name| arguments.iter().any(|argument| argument == name));
    for name in names.into_iter().filter(|name| !is_named || arguments.iter().any(|given| given == name)) {
        match name {
            "join-buffer" => {
                join_buffer(scale, PartitionFiles::OneEach)?;
                join_buffer(scale, PartitionFiles::Shared)?;
            }
            "join-page-size" => join_pages(scale, true)?,
            "join-page-io" => join_pages(scale, false)?,
            "sort-cluster" => sort_cluster()?,
            _ => hash_pattern()?,
        }
    }
    Ok(())
}
