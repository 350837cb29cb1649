//! Measures the speed of the B+tree alone, with all pages in memory: point reads, scans, inserts. `cargo run
//! --release -p varve-engine --example tree_speed [rows]`

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use varve_device::MemoryDirectory;
use varve_engine::node::Stamp;
use varve_engine::redo::EngineRedo;
use varve_engine::tree::{Direction, Put, Scan, Tree, TreeKind, bulk_build};
use varve_engine::{ColumnType, Datum, key};
use varve_pager::{Pager, PagerConfig, SpaceId};

const PAYLOAD_BYTES: usize = 100;
const READS: usize = 4_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: i64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let mut config = PagerConfig::new(MemoryDirectory::new());
    config.pool_bytes = (rows as usize * 400).max(64 << 20);
    config.background = false;
    let pager = Pager::open(config, Arc::new(EngineRedo))?;

    let tree = timed("bulk build", rows as usize, || load(&pager, rows))?;
    timed("random point read", READS, || point_reads(&pager, &tree, rows))?;
    timed("hot point read (1,000 keys)", READS, || point_reads(&pager, &tree, 1000))?;
    timed("forward scan", rows as usize, || scan(&pager, &tree, Direction::Forward))?;
    timed("backward scan", rows as usize, || scan(&pager, &tree, Direction::Backward))?;
    let count = (rows / 4).min(250_000);
    timed("ascending insert", count as usize, || insert(&pager, count, |n| n))?;
    timed("random insert", count as usize, || insert(&pager, count, scatter))?;
    Ok(())
}

/// Prints wall time and the thread's own processor time (what counts on a busy machine).
fn timed<T, E>(what: &str, count: usize, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let (start, start_cpu) = (Instant::now(), cpu_ns());
    let result = run()?;
    let ns = start.elapsed().as_secs_f64() * 1e9 / count as f64;
    let cpu = (cpu_ns() - start_cpu) / count as f64;
    println!("{what:30} {ns:8.1} ns each ({cpu:8.1} ns of processor time), {:10.0} a second", 1e9 / ns);
    Ok(result)
}

fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

fn int_key(value: i64, out: &mut Vec<u8>) {
    out.clear();
    key::push(out, ColumnType::Int8, &Datum::Int8(value));
}

fn scatter(n: i64) -> i64 {
    (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64 >> 8
}

fn load(pager: &Pager, rows: i64) -> Result<Tree, Box<dyn std::error::Error>> {
    let owner = pager.create_segment(SpaceId::DATA)?;
    let entries = (0..rows).map(|value| {
        let mut key = Vec::new();
        int_key(value, &mut key);
        Ok::<_, std::convert::Infallible>((key, Stamp::default(), vec![1; PAYLOAD_BYTES]))
    });
    let tree = bulk_build(pager, SpaceId::DATA, owner, TreeKind::Clustered, &[], entries)?;
    pager.checkpoint()?;
    Ok(tree)
}

fn point_reads(pager: &Pager, tree: &Tree, rows: i64) -> Result<(), Box<dyn std::error::Error>> {
    let (mut key, mut sum) = (Vec::new(), 0usize);
    for n in 0..READS as i64 {
        int_key(scatter(n).rem_euclid(rows), &mut key);
        sum += tree.get(pager, &key, |entry| entry.payload(&mut Vec::new()).len())?.unwrap_or(0);
    }
    assert_eq!(sum, READS * PAYLOAD_BYTES);
    Ok(())
}

fn scan(pager: &Pager, tree: &Tree, direction: Direction) -> Result<(), Box<dyn std::error::Error>> {
    let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, direction, 0);
    let mut sum = 0;
    while tree.next_batch(pager, &mut scan)? {
        sum += (0..scan.len()).map(|index| scan.entry(index).payload(&mut Vec::new()).len()).sum::<usize>();
    }
    assert!(sum > 0);
    Ok(())
}

fn insert(pager: &Pager, count: i64, value_of: fn(i64) -> i64) -> Result<(), Box<dyn std::error::Error>> {
    let tree = Tree::create(pager, SpaceId::DATA, TreeKind::Clustered)?;
    let (mut key, payload) = (Vec::new(), [2; PAYLOAD_BYTES]);
    for n in 0..count {
        int_key(value_of(n), &mut key);
        loop {
            let mut mtr = pager.begin()?;
            let mut position = tree.locate_x(pager, &mut mtr, &key)?;
            if tree.put(&mut mtr, &mut position, &key, Stamp::default(), &payload) == Put::Done {
                mtr.commit();
                break;
            }
            drop(mtr);
            tree.make_room(pager, &key, payload.len())?;
        }
    }
    Ok(())
}
