//! The command `varve-lab experiment` measures published figures and tables again with Varve. Each result row
//! has the published value beside the measured one.
//!
//! 1. All variants of a comparison run in turns in one process, on copies of one loaded database. A ratio
//!    divides two medians.
//! 2. Three settings are fixed before a measurement, and are printed with its result: the drive, the time of
//!    a flush, and the dilation (the factor on the drive's times). If the machine was too slow for the
//!    emulation, the result gets no verdict.
//! 3. Some publications show a value only as a plot. Such a value is not estimated.
//! 4. Charts are drawn from result rows, either of this run or of an earlier run.
//!
//! A variant is a configuration that every user can choose. Experiments use no internals of the database.

mod arulraj;
pub mod chart;
mod charts;
mod claim;
mod copies;
mod device;
mod drives;
mod drop_table;
mod filesystem;
mod flash;
mod flash_cold;
mod flash_first_query;
mod flash_hardening;
mod flash_kept;
mod flash_restart;
mod flash_scan;
mod flash_stop;
mod flash_tell;
mod hot_and_cold;
mod kang;
mod lab;
mod lee;
mod lindstrom;
mod lindstrom_parts;
mod measure;
mod order;
mod paired;
mod row;
mod scale;
mod smart;
mod spilled;
mod stand;
mod table;
mod tell;
pub mod trace;
mod verdict;
mod warm;
mod watched;
mod wear;
mod wear_claim;
mod wear_drive;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use varve_bench::{BenchError, Result, tpcc};

pub use device::Device;
pub use lab::Lab;
pub use scale::Scale;
pub use verdict::{Better, Verdict};

/// Arguments of `varve-lab experiment`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// The experiment: `list` names them, `all` runs them
    name: String,
    /// Small, one round (the default): most take up to two minutes times their dilation (1 to 8), and their
    /// loads
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Larger, longer, three rounds: most take up to half an hour times their dilation (1 to 8), and their
    /// loads
    #[arg(long)]
    full: bool,
    /// File for the rows, one JSON object a line; without it, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// File for the tables in Markdown, in the experiments on engines for persistent memory
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Directory for charts of the rows (SVG files); it is created if it is missing
    #[arg(long, value_name = "DIRECTORY")]
    charts: Option<PathBuf>,
    /// Measure nothing, but draw charts of the rows in this file, which --out wrote
    #[arg(long, value_name = "FILE", requires = "charts", conflicts_with = "out")]
    from: Option<PathBuf>,
    /// Directory for databases (some GiB); loaded databases stay there for the next run. Without it, a
    /// directory that is removed afterwards
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Directory for regions of persistent memory, on a file system in memory. Without it, /dev/shm
    #[arg(long, value_name = "DIRECTORY")]
    memory: Option<PathBuf>,
    /// Device to emulate; `none` for the real device
    #[arg(long, default_value = "sata-ssd-2014")]
    profile: String,
    /// Microseconds of a flush of the emulated device, instead of its profile's
    #[arg(long)]
    flush_us: Option<f64>,
    /// Sessions of the points, such as 8,32
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Seconds of a round, in the time of the emulated device
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// MiB of the table that `drop-table` drops, uncompressed, and of the rows that `packed-wear` updates
    #[arg(long)]
    table_mib: Option<u64>,
    /// Tuples of a partition of the memory-oriented engines, in `ycsb-engines` and its relatives
    #[arg(long)]
    tuples: Option<u64>,
    /// Warehouses of a partition of the memory-oriented engines, in `tpcc-engines`
    #[arg(long)]
    warehouses: Option<i64>,
    /// Items of a warehouse of the memory-oriented engines; customers are in proportion
    #[arg(long)]
    items: Option<i64>,
    /// Numbers of transactions after which `nvm-recovery` kills processes, such as 1000,1000000
    #[arg(long, value_delimiter = ',')]
    kills: Vec<usize>,
    /// Measure only points with these values, such as `variant=packed,workers=4`; points without such a
    /// factor are kept
    #[arg(long, value_delimiter = ',', value_name = "FACTOR=VALUE")]
    only: Vec<String>,
}

/// An experiment, with its name and its publication.
struct Experiment {
    name: &'static str,
    source: &'static str,
    about: &'static str,
    run: fn(&mut Lab<'_>) -> Result<()>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "doublewrite-cost",
        source: "Kang 2016, figure 2.3",
        about: "sysbench with doublewrite and without any protection, by sessions",
        run: kang::doublewrite_cost,
    },
    Experiment {
        name: "nvm-throughput-sysbench",
        source: "Kang 2016, figure 4.1",
        about: "sysbench with the four protections and a tuned doublewrite, by sessions",
        run: kang::throughput_sysbench,
    },
    Experiment {
        name: "nvm-throughput-tpcc",
        source: "Kang 2016, figure 4.2",
        about: "TPC-C with the same protections, by sessions",
        run: kang::throughput_tpcc,
    },
    Experiment {
        name: "nvm-latency",
        source: "Kang 2016, figure 4.3, tables 2.1 and 4.4",
        about: "latencies of sysbench, and the time that goes into log and page writes",
        run: kang::latency,
    },
    Experiment {
        name: "nvm-area-size",
        source: "Kang 2016, figure 4.4",
        about: "bytes of page writes saved, by size of the area in persistent memory",
        run: kang::area_size,
    },
    Experiment {
        name: "nvm-flush-sweep",
        source: "after Kang 2016, figure 4.1",
        about: "how far throughput hangs on the drive's flush time, which no source gives",
        run: kang::flush_sweep,
    },
    Experiment {
        name: "compression-parts",
        source: "Lindstrom 2017, figure 4",
        about: "LinkBench and TPC-C by protection, compression, trim and flush workers",
        run: lindstrom_parts::parts,
    },
    Experiment {
        name: "compression-trim",
        source: "after Lindstrom 2017, section 5.5",
        about: "how far the gain of trims hangs on what one costs the drive",
        run: lindstrom_parts::trim_sweep,
    },
    Experiment {
        name: "compression-load",
        source: "Lindstrom 2017, figure 5",
        about: "seconds to load LinkBench's graph, by codec",
        run: lindstrom::load,
    },
    Experiment {
        name: "compression-space",
        source: "Lindstrom 2017, figure 6",
        about: "bytes that LinkBench's graph takes, by codec",
        run: lindstrom::space,
    },
    Experiment {
        name: "compression-throughput",
        source: "Lindstrom 2017, figures 7 and 10",
        about: "LinkBench and TPC-C, by codec",
        run: lindstrom::throughput,
    },
    Experiment {
        name: "compression-latency",
        source: "Lindstrom 2017, figure 8",
        about: "latencies of LinkBench's requests with lz4 and without",
        run: lindstrom::latency,
    },
    Experiment {
        name: "compression-write-amount",
        source: "Lindstrom 2017, figure 9",
        about: "bytes written for each of LinkBench's requests with lz4 and without",
        run: lindstrom::write_amount,
    },
    Experiment {
        name: "compression-threads",
        source: "Lindstrom 2017, figure 12",
        about: "TPC-C with lz4, lzo and without, by sessions",
        run: lindstrom::threads,
    },
    Experiment {
        name: "compression-page-size",
        source: "Lindstrom 2017, figures 13 to 15",
        about: "LinkBench with pages of 4 to 64 KiB, by codec",
        run: lindstrom::page_size,
    },
    Experiment {
        name: "flash-speedup",
        source: "Do 2012, figure 3.1, table 3.3",
        about: "TPC-C, a brokerage mix and scans with look-ups, with a cache on flash over eight disks, by design and size",
        run: flash::speedup,
    },
    Experiment {
        name: "flash-real",
        source: "after Do 2012, figure 3.1",
        about: "three designs over eight emulated disks, with the cache on the machine's own disk",
        run: flash::real,
    },
    Experiment {
        name: "flash-dirty-limit",
        source: "Do 2012, figure 3.7",
        about: "TPC-C under lazy cleaning, by the limit of dirty frames and by how much log redo may have to read",
        run: flash::dirty_limit,
    },
    Experiment {
        name: "flash-throttle",
        source: "after Do 2012, section 3.3.3",
        about: "TPC-C by how many pages may wait in memory for flash",
        run: flash::throttle,
    },
    Experiment {
        name: "flash-ramp-up",
        source: "Do 2012, figures 3.6 and 4.9",
        about: "TPC-C from a cold cache, with reads widened while it fills and without: throughput and hits over time",
        run: flash_cold::ramp_up,
    },
    Experiment {
        name: "flash-traffic",
        source: "Do 2012, figure 3.9",
        about: "TPC-C and a brokerage mix from a cold cache: what each drive reads and writes over time, by design",
        run: flash_cold::traffic,
    },
    Experiment {
        name: "flash-checkpoint",
        source: "Do 2012, figure 3.10",
        about: "a brokerage mix from a cold cache with sharp checkpoints in short and long intervals: throughput over time",
        run: flash_cold::checkpoint,
    },
    Experiment {
        name: "flash-restart",
        source: "Do 2012, figures 4.11 and 4.12",
        about: "TPC-C from a peak over shutdown or crash to the next peak",
        run: flash_restart::restart,
    },
    Experiment {
        name: "flash-first-query",
        source: "after Do 2012, chapter 4",
        about: "time to the first query after a start, by size of a cache that is kept and by log budget",
        run: flash_first_query::first_query,
    },
    Experiment {
        name: "flash-hardening",
        source: "after Do 2012, chapter 4",
        about: "TPC-C at its peak: what each way to keep a cache costs, in pairs of rounds, and its part of the flash traffic",
        run: flash_hardening::hardening,
    },
    Experiment {
        name: "flash-scan",
        source: "Do 2012, section 3.2.2",
        about: "hits of a hot set before, during and after the scan of a table three times the cache",
        run: flash_scan::scan,
    },
    Experiment {
        name: "packed-wear",
        source: "after \"How to Write to SSDs\", arXiv 2603.09927",
        about: "bytes that updates write to the drive and, modelled, to its flash: packed against doublewrite in place",
        run: wear::packed_wear,
    },
    Experiment {
        name: "drop-table",
        source: "after Lindstrom 2017, section 5.5",
        about: "how long a large compressed table takes to go, on ext4, xfs and btrfs, and what others notice",
        run: drop_table::drop_table,
    },
    Experiment {
        name: "filesystem-trim",
        source: "Lindstrom 2017, figure 17",
        about: "how long a hole of 4 KiB takes, on ext4, xfs, btrfs and a raw loop device",
        run: filesystem::filesystem_trim,
    },
    Experiment {
        name: "filesystem-log",
        source: "Lindstrom 2017, figure 18",
        about: "bytes that reach the device for each byte appended to a log, on ext4, xfs and btrfs",
        run: filesystem::filesystem_log,
    },
    Experiment {
        name: "filesystem-tpcc",
        source: "Lindstrom 2017, figure 19",
        about: "TPC-C with compressed pages on ext4, xfs and btrfs, with trims, without, and packed",
        run: filesystem::filesystem_tpcc,
    },
    Experiment {
        name: "ycsb-engines",
        source: "Arulraj 2015, figures 5 to 7, 9 and 10",
        about: "YCSB on the memory-oriented engines, by mix, skew and latency of persistent memory; loads and stores",
        run: arulraj::ycsb_engines,
    },
    Experiment {
        name: "tpcc-engines",
        source: "Arulraj 2015, figures 8, 11 and 14",
        about: "TPC-C on the memory-oriented engines: throughput, loads, stores, space",
        run: arulraj::tpcc_engines,
    },
    Experiment {
        name: "nvm-interfaces",
        source: "Arulraj 2015, figure 1",
        about: "durable bandwidth of memory from the allocator and of files, by the bytes of a write",
        run: arulraj::nvm_interfaces,
    },
    Experiment {
        name: "nvm-cost-model",
        source: "Arulraj 2015, table 3",
        about: "bytes that an insert, an update and a delete store, beside the cost model",
        run: arulraj::nvm_cost_model,
    },
    Experiment {
        name: "nvm-wear",
        source: "Arulraj 2015, figures 9 and 10, section 5.7",
        about: "what the engines write to persistent memory under YCSB, and how its lines are worn",
        run: arulraj::nvm_wear,
    },
    Experiment {
        name: "nvm-breakdown",
        source: "Arulraj 2015, figure 13",
        about: "where the time of the engines goes under YCSB: storage, recovery, index, other",
        run: arulraj::nvm_breakdown,
    },
    Experiment {
        name: "nvm-partitions",
        source: "after Arulraj 2015, section 5",
        about: "YCSB on the engines in two partitions on two threads, against one",
        run: arulraj::nvm_partitions,
    },
    Experiment {
        name: "nvm-footprint",
        source: "Arulraj 2015, figure 14",
        about: "most bytes of persistent memory that the engines take under YCSB",
        run: arulraj::nvm_footprint,
    },
    Experiment {
        name: "nvm-recovery",
        source: "Arulraj 2015, figure 12",
        about: "how long the engines take to start, by the transactions since the last checkpoint",
        run: arulraj::nvm_recovery,
    },
    Experiment {
        name: "node-size",
        source: "Arulraj 2015, figure 15",
        about: "YCSB on the engine nvm_cow, by the bytes of a node",
        run: arulraj::node_size,
    },
    Experiment {
        name: "persist-latency",
        source: "Arulraj 2015, figure 16",
        about: "YCSB on the engines for persistent memory, by how long it takes to make a store durable",
        run: arulraj::persist_latency,
    },
    Experiment {
        name: "log-device",
        source: "Lee 2008, table 2",
        about: "single updates with the log on a disk and on flash, by sessions",
        run: lee::log_device,
    },
    Experiment {
        name: "tpcb-log",
        source: "Lee 2008, table 3 and figure 3",
        about: "TPC-B with the log on a disk and on flash, by users and processors",
        run: lee::tpcb_log,
    },
    Experiment {
        name: "rollback-pattern",
        source: "Lee 2008, figure 4 and section 5.1",
        about: "TPC-C: where and how long rollback segments write, on a disk and on flash",
        run: lee::rollback_pattern,
    },
    Experiment {
        name: "rollback-read",
        source: "Lee 2008, figure 5 and table 4",
        about: "the scan of a table under a snapshot after three updates of all rows, on a disk and on flash",
        run: lee::rollback_read,
    },
    Experiment {
        name: "join-buffer",
        source: "Do 2012, figure 2.1, tables 2.3 and 2.4",
        about: "four joins of customer and orders by the size of the buffer, on a disk and on flash",
        run: spilled::join_buffer,
    },
    Experiment {
        name: "join-page-size",
        source: "Do 2012, figure 2.2",
        about: "the same joins by the size of a page, with requests of several pages",
        run: spilled::join_page_size,
    },
    Experiment {
        name: "join-page-io",
        source: "Do 2012, figure 2.3",
        about: "the same joins by the size of a page, with requests of one page and of several",
        run: spilled::join_page_io,
    },
    Experiment {
        name: "sort-pattern",
        source: "Lee 2008, figure 6",
        about: "requests of a sort of 200 MB in time and address, on a disk and on flash",
        run: spilled::sort_pattern,
    },
    Experiment {
        name: "sort-cluster",
        source: "Lee 2008, figure 7",
        about: "the same sort by the bytes of a request of the merge, and by the size of the buffer",
        run: spilled::sort_cluster,
    },
    Experiment {
        name: "hash-pattern",
        source: "Lee 2008, figure 8",
        about: "requests of a hash join of two tables of 200 MB in time and address, on a disk and on flash",
        run: spilled::hash_pattern,
    },
    Experiment {
        name: "smart-scan",
        source: "Do 2012, figures 5.4 and 5.5, table 5.1",
        about: "scans by selectivity and layout of leaves: by the host from a disk and from flash, in a smart device, and by the planner's choice",
        run: smart::smart_scan,
    },
];

/// The most warehouses of a partition.
const WAREHOUSES_MAX: i64 = 1_000;
/// The fewest items of a warehouse. With fewer items, some last name would have no customer.
const ITEMS_MIN: i64 = 100;

const CAUTION: &str = "An emulated ratio is evidence about policies and algorithms, not about real devices. A dilation of n stands for a \
                       machine whose processors and memory are n times as fast.";

/// Runs the command. Rows and tables are written to `out`.
pub fn run(args: &ExperimentArgs, out: &mut dyn Write) -> Result<()> {
    if args.name == "list" {
        return list(out);
    }
    let names: Vec<&str> = match args.name.as_str() {
        "all" => EXPERIMENTS.iter().map(|one| one.name).collect(),
        name => vec![find(name)?.name],
    };
    if let (Some(rows), Some(charts)) = (&args.from, &args.charts) {
        return draw_again((rows, charts), &names, out);
    }
    let mut lab = lab_of(args, out)?;
    names.iter().try_for_each(|name| perform(&mut lab, name))?;
    lab.end()
}

/// Runs the experiment with this name.
pub fn perform(lab: &mut Lab<'_>, name: &str) -> Result<()> {
    let experiment = find(name)?;
    lab.say(&format!("{} ({}): {}", experiment.name, experiment.source, experiment.about))?;
    lab.say(CAUTION)?;
    lab.begin(experiment.name, experiment.source);
    (experiment.run)(lab)?;
    lab.draw()
}

/// Draws charts of rows that an earlier run wrote.
fn draw_again((rows, charts): (&Path, &Path), names: &[&str], out: &mut dyn Write) -> Result<()> {
    let text = std::fs::read_to_string(rows)?;
    let all: std::result::Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let all = all.map_err(|error| BenchError::Arguments(format!("{}: {error}", rows.display())))?;
    for experiment in EXPERIMENTS.iter().filter(|experiment| names.contains(&experiment.name)) {
        let own: Vec<Value> =
            all.iter().filter(|row| row["experiment"] == experiment.name).cloned().collect();
        let charts_of = charts::Charts { experiment: experiment.name, source: experiment.source, rows: &own };
        for name in charts_of.write(charts)? {
            writeln!(out, "{}", charts.join(name).display())?;
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|one| one.name == name).ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
        let names = names.join(", ");
        BenchError::Arguments(format!("there is no experiment {name}: choose one of {names}, or all"))
    })
}

fn list(out: &mut dyn Write) -> Result<()> {
    for experiment in EXPERIMENTS {
        writeln!(out, "{:25} {} ({})", experiment.name, experiment.about, experiment.source)?;
    }
    Ok(())
}

fn lab_of<'a>(args: &ExperimentArgs, out: &'a mut dyn Write) -> Result<Lab<'a>> {
    let mut scale = if args.full { Scale::FULL } else { Scale::QUICK };
    scale.round_ms = args.seconds.map_or(scale.round_ms, |seconds| seconds * 1000);
    if let Some(mib) = args.table_mib {
        (scale.dropped_bytes, scale.wear_bytes) = (mib.max(1) << 20, mib.max(1) << 20);
    }
    scale.store_tuples = args.tuples.unwrap_or(scale.store_tuples).max(1);
    let tpcc::Scale { warehouses, items, .. } = scale.store_tpcc;
    let (warehouses, items) = (args.warehouses.unwrap_or(warehouses), args.items.unwrap_or(items));
    scale.store_tpcc = scale::store_tpcc(warehouses.clamp(1, WAREHOUSES_MAX), items.max(ITEMS_MIN));
    scale.rounds = args.rounds.unwrap_or(scale.rounds).max(1);
    let device = Device::named(&args.profile, args.flush_us)?;
    let mut lab = Lab::new(scale, device, (args.directory.clone(), args.memory.clone()), out)?;
    lab.choose_clients(&args.clients)?;
    lab.choose_kills(&args.kills);
    lab.choose_points(&args.only)?;
    if let Some(charts) = &args.charts {
        lab.draw_charts_in(charts)?;
    }
    if let Some(path) = &args.markdown {
        lab.write_markdown_to(path)?;
    }
    if let Some(path) = &args.out {
        lab.write_rows_to(path)?;
    }
    Ok(lab)
}
