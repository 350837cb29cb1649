//! An emulated region takes the time of its profile. The fastest of several tries counts, because a test
//! machine is busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use varve_device::{Directory, EmulatedRegion, MemoryDirectory, NvmProfile, Region};

const LEN_BYTES: u64 = 1 << 20;
const LINE: u64 = 64;

fn region(keys: &str) -> Arc<EmulatedRegion> {
    region_dilated(keys, 1.0)
}

/// Returns a region whose profile has only the times in `keys`. All other times are 0.
fn region_dilated(keys: &str, dilation: f64) -> Arc<EmulatedRegion> {
    let mut text = String::from("name = \"test\"\nsource = \"made up\"\n");
    let defaults = [
        ("read_extra_ns", 0),
        ("persist_extra_ns", 0),
        ("write_line_ns", 0),
        ("bandwidth_bytes_per_s", 0),
        ("parallel_lines", 10),
        ("cache_bytes", 0),
    ];
    for (key, value) in defaults {
        let given =
            keys.split(',').find_map(|pair| pair.split_once('=').filter(|(name, _)| name.trim() == key));
        let value = given.map_or_else(|| value.to_string(), |(_, value)| value.trim().to_string());
        text += &format!("{key} = {value}\n");
    }
    let inner = MemoryDirectory::new().map("r", LEN_BYTES).expect("memory maps");
    EmulatedRegion::wrap(inner, NvmProfile::parse(&text).expect("a profile"), dilation)
}

/// Lets one test run at a time, because the tests spin.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fastest(tries: usize, mut run: impl FnMut()) -> Duration {
    let time = |_| {
        let started = Instant::now();
        run();
        started.elapsed()
    };
    (0..tries).map(time).min().expect("at least one try")
}

/// Returns the share of the modelled time that the fastest try took.
fn share(modelled: Duration, run: impl FnMut()) -> f64 {
    fastest(40, run).as_secs_f64() / modelled.as_secs_f64()
}

#[test]
fn a_line_that_is_not_in_the_cache_costs_its_latency() {
    let _alone = alone();
    let region = region("read_extra_ns = 20000");
    let read = || (0..100).for_each(|no| region.read(no * 2 * LINE, &mut [0; 8]));
    let took = share(Duration::from_millis(2), read);
    assert!((0.99..1.06).contains(&took), "{took}");
    let consecutive = || (0..10).for_each(|no| region.read(no * 64 * LINE, &mut [0; 64 * LINE as usize]));
    let took = share(Duration::from_nanos(10 * 20_000 * 64 / 10), consecutive);
    assert!((0.99..1.06).contains(&took), "ten lines at a time: {took}");
}

#[test]
fn times_are_dilated() {
    let _alone = alone();
    let region = region_dilated("read_extra_ns = 2000, bandwidth_bytes_per_s = 1e9", 10.0);
    let took =
        share(Duration::from_millis(2), || (0..100).for_each(|no| region.read(no * 2 * LINE, &mut [0; 8])));
    assert!((0.99..1.06).contains(&took), "{took}");
}

#[test]
fn a_line_in_the_cache_costs_nothing_until_another_takes_its_place() {
    let _alone = alone();
    let region = region("read_extra_ns = 200000, cache_bytes = 4096");
    let is_slow = |offset: u64| fastest(1, || region.read(offset, &mut [0; 8])) >= Duration::from_micros(190);
    assert!(is_slow(0));
    assert!(fastest(10, || region.read(8, &mut [0; 8])) < Duration::from_micros(100), "the line is there");
    assert!(is_slow(4096), "the other line of that place");
    assert!(is_slow(0), "which has pushed the first out");
    region.store(64, &[1]);
    assert!(
        fastest(10, || assert_eq!(region.load_word(64), 1)) < Duration::from_micros(100),
        "a line that was stored is there"
    );
}

#[test]
fn writing_back_costs_by_the_line_and_a_fence_if_there_is_something_to_wait_for() {
    let _alone = alone();
    let region = region("write_line_ns = 20000, persist_extra_ns = 500000");
    let lines = || (0..100).for_each(|no| region.write_back(no * 2 * LINE, 8));
    let took = share(Duration::from_millis(2), lines);
    assert!((0.99..1.06).contains(&took), "{took}");
    region.fence();
    assert!(fastest(10, || region.fence()) < Duration::from_micros(250), "nothing to wait for");
    let persist = || {
        region.write_back(0, 1);
        region.fence();
    };
    let took = share(Duration::from_micros(520), persist);
    assert!((0.99..1.1).contains(&took), "{took}");
    let empty = || {
        region.write_back(0, 0);
        region.fence();
    };
    assert!(fastest(10, empty) < Duration::from_micros(250), "no line, no time");
}

#[test]
fn all_threads_together_keep_to_the_bandwidth() {
    const READS: u64 = 8;
    const BYTES: usize = 1 << 14;
    let _alone = alone();
    let region = region("bandwidth_bytes_per_s = 100e6");
    let work = |first: u64| {
        for no in 0..READS {
            region.read((first + no) % 16 * BYTES as u64, &mut [0; BYTES]);
            region.write_back(0, 64);
        }
    };
    let each = Duration::from_nanos(READS * (BYTES as u64 + LINE) * 10);
    let took = share(each, || work(0));
    assert!((0.99..1.06).contains(&took), "one thread: {took}");
    let together = share(2 * each, || {
        std::thread::scope(|scope| (0..2).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    });
    // On a busy machine a thread that has to wait for a processor leaves the bus idle, so this may take
    // longer.
    assert!(together > 0.99, "two threads are no faster: {together}");
}
