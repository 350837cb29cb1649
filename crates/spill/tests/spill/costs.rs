//! The tests compare predicted requests and bytes with those that the joins really make. They also check the
//! choice of an algorithm.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_spill::{
    BlockIo, DriveTimes, InputSize, IoCount, Join, JoinInput, JoinKind, JoinMethod, JoinSettings, JoinShape,
    Joined, MemoryBudget, PartitionFiles, ProcessorTimes, Row, Side, SpillTally, Spool, SpoolSettings,
    SpoolWriter, TemporarySpace,
};

use crate::bench::Random;

const PAGE_BYTES: usize = 1024;

fn space() -> Arc<TemporarySpace> {
    let directory: Arc<dyn Directory> = MemoryDirectory::new();
    TemporarySpace::open(directory, u64::MAX).unwrap()
}

/// Returns a heap file with pages that are 80 % full. The keys are random numbers below `keys`.
fn heap_file(space: &Arc<TemporarySpace>, rows: u64, payload_bytes: usize, keys: u64) -> Spool {
    let settings = SpoolSettings { page_bytes: PAGE_BYTES, write_pages: 16, fill_percent: 80 };
    let mut writer = SpoolWriter::new(space, &MemoryBudget::new(1 << 20), settings).unwrap();
    let (mut random, payload) = (Random(rows), vec![7; payload_bytes]);
    for _ in 0..rows {
        let key = (random.below(keys) as u32).to_be_bytes();
        writer.push(Row::new(&key, &payload)).unwrap();
    }
    writer.finish().unwrap()
}

fn size(spool: &Spool) -> InputSize {
    InputSize { rows: spool.rows(), bytes: spool.bytes() }
}

/// The predicted requests and bytes of a join, and those that it really made.
struct Outcome {
    predicted: (IoCount, IoCount, IoCount),
    inputs: SpillTally,
    temporary: SpillTally,
}

fn run(method: JoinMethod, io: BlockIo, budget: usize) -> Outcome {
    let (inputs, temporary) = (space(), space());
    let mut build = heap_file(&inputs, 6_000, 130, 6_000);
    let mut probe = heap_file(&inputs, 60_000, 90, 6_000);
    let join = Join {
        space: Arc::clone(&temporary),
        memory: MemoryBudget::new(budget),
        settings: JoinSettings {
            page_bytes: PAGE_BYTES,
            io,
            partition_files: PartitionFiles::Shared,
            times: DriveTimes::DISK,
        },
        method,
        kind: JoinKind::Inner,
        build: Side::Left,
    };
    let (build_size, probe_size) = (size(&build), size(&probe));
    let shape = JoinShape { build: build_size, probe: probe_size, input_fill: 0.79, is_one_drive: true };
    let cost = join.cost(shape);
    let before = inputs.tally_all();
    let build = JoinInput { source: &mut build, size: build_size };
    let probe = JoinInput { source: &mut probe, size: probe_size };
    join.run(build, probe, &mut |_: Joined<'_>| Ok(())).unwrap();
    let sum = |a: IoCount, b: IoCount| IoCount {
        requests: a.requests + b.requests,
        random: a.random + b.random,
        bytes: a.bytes + b.bytes,
    };
    let predicted = (
        sum(cost.first.input, cost.second.input),
        sum(cost.first.written, cost.second.written),
        sum(cost.first.read, cost.second.read),
    );
    let read = inputs.tally_all().read - before.read;
    Outcome { predicted, inputs: SpillTally { read, ..before }, temporary: temporary.tally_all() }
}

fn assert_near(what: &str, predicted: f64, real: u64, share: f64) {
    let real = real as f64;
    let near = (predicted - real).abs() <= real * share + 4.0;
    assert!(near, "{what}: {predicted:.0} predicted, {real} made");
}

#[test]
fn predictions_are_what_joins_do() {
    for method in JoinMethod::ALL {
        for io in [BlockIo::Blocked, BlockIo::PageSized] {
            for budget in [160 << 10, 300 << 10, 600 << 10, 2 << 20] {
                let outcome = run(method, io, budget);
                let (input, written, read) = outcome.predicted;
                let what = |part: &str| format!("{method:?} {io:?} {budget} {part}");
                let Outcome { inputs, temporary, .. } = outcome;
                assert_near(&what("input bytes"), input.bytes, inputs.read.bytes, 0.06);
                assert_near(&what("input requests"), input.requests, inputs.read.operations, 0.06);
                assert_near(&what("written bytes"), written.bytes, temporary.written.bytes, 0.06);
                assert_near(&what("writes"), written.requests, temporary.written.operations, 0.12);
                assert_near(&what("bytes read"), read.bytes, temporary.read.bytes, 0.06);
                assert_near(&what("reads"), read.requests, temporary.read.operations, 0.15);
            }
        }
    }
}

#[test]
fn the_choice_follows_memory_and_drive() {
    let size = |rows: u64, row_bytes: u64| InputSize { rows, bytes: rows * row_bytes };
    let shape = JoinShape {
        build: size(4_500_000, 142),
        probe: size(45_000_000, 102),
        input_fill: 0.8,
        is_one_drive: true,
    };
    let join = |budget: usize| Join {
        space: space(),
        memory: MemoryBudget::new(budget),
        settings: JoinSettings {
            page_bytes: 8 << 10,
            io: BlockIo::Blocked,
            partition_files: PartitionFiles::Shared,
            times: DriveTimes::DISK,
        },
        method: JoinMethod::Hybrid,
        kind: JoinKind::Inner,
        build: Side::Left,
    };
    let processor = ProcessorTimes::TODAY;
    for drive in [DriveTimes::DISK, DriveTimes::FLASH] {
        for megabytes in [100, 300, 600] {
            let join = join(megabytes << 20);
            let us = |method| Join { method, ..join.clone() }.cost(shape).total_us(drive, processor);
            let chosen = join.choose(shape, drive, processor, true);
            assert!(JoinMethod::ALL.iter().all(|method| us(chosen) <= us(*method)));
            assert_ne!(join.choose(shape, drive, processor, false), JoinMethod::NestedLoops);
            // A disk pays a seek for each of the small blocks of a hybrid join. With little memory, Grace
            // wins.
            let best = match (drive == DriveTimes::DISK, megabytes) {
                (true, 100) => JoinMethod::Grace,
                _ => JoinMethod::Hybrid,
            };
            assert_eq!(chosen, best, "{drive:?} {megabytes} {:?}", JoinMethod::ALL.map(us));
        }
    }
    // Flash makes joins that only read, or that write in large blocks, faster by about its transfer rate. The
    // small blocks of a hybrid join gain more, because a disk pays a seek for each.
    let join = join(300 << 20);
    let speed_up = |method| {
        let cost = Join { method, ..join.clone() }.cost(shape);
        cost.io_us(DriveTimes::DISK) / cost.io_us(DriveTimes::FLASH)
    };
    let [loops, sort, grace, hybrid] = JoinMethod::ALL.map(speed_up);
    assert!(grace > 1.5 && grace < loops && sort > 1.5 && sort < loops && hybrid > loops);
}
