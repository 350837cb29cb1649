//! Measures point reads of 100-byte rows in memory with redb and LMDB, to compare them with `varve bench
//! points`.
//!
//! Rows and keys are the same as there. There is one thread and one read transaction, and each byte of a row
//! is read. The settings of durability are the defaults of the libraries.

use std::time::{Duration, Instant};

use redb::ReadableDatabase;

type Failure = Box<dyn std::error::Error>;

const ROWS: u64 = 1_000_000;
const BODY_BYTES: usize = 92;
const SECONDS: u64 = 5;
const ROUNDS: usize = 5;
const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("rows");

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir_in(".")?;
    let redb = load_redb(&folder.path().join("redb"))?;
    let lmdb = load_lmdb(&folder.path().join("lmdb"))?;
    let (mut of_redb, mut of_lmdb) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_redb.push(read_redb(&redb)?);
        of_lmdb.push(read_lmdb(&lmdb)?);
    }
    println!("redb: {}", spread(&mut of_redb));
    println!("LMDB: {}", spread(&mut of_lmdb));
    Ok(())
}

fn body(id: u64) -> [u8; BODY_BYTES] {
    [b'a' + (id % 26) as u8; BODY_BYTES]
}

/// Returns the next number of splitmix64, as in varve-bench.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((u128::from(z ^ (z >> 31)) * u128::from(ROWS)) >> 64) as u64
}

fn load_redb(path: &std::path::Path) -> Result<redb::Database, Failure> {
    let database = redb::Database::builder().set_cache_size(512 << 20).create(path)?;
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for id in 0..ROWS {
            table.insert(id, body(id).as_slice())?;
        }
    }
    transaction.commit()?;
    Ok(database)
}

fn read_redb(database: &redb::Database) -> Result<f64, Failure> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(TABLE)?;
    measure(|id| Ok(table.get(id)?.map_or(0, |row| sum(row.value()))))
}

struct Lmdb {
    env: heed::Env,
    rows: heed::Database<heed::types::U64<heed::byteorder::BigEndian>, heed::types::Bytes>,
}

fn load_lmdb(path: &std::path::Path) -> Result<Lmdb, Failure> {
    std::fs::create_dir_all(path)?;
    // SAFETY: the directory is fresh and no other process knows it.
    let env = unsafe { heed::EnvOpenOptions::new().map_size(2 << 30).open(path)? };
    let mut transaction = env.write_txn()?;
    let rows = env.create_database(&mut transaction, None)?;
    for id in 0..ROWS {
        rows.put(&mut transaction, &id, &body(id)[..])?;
    }
    transaction.commit()?;
    Ok(Lmdb { env, rows })
}

fn read_lmdb(lmdb: &Lmdb) -> Result<f64, Failure> {
    let transaction = lmdb.env.read_txn()?;
    measure(|id| Ok(lmdb.rows.get(&transaction, &id)?.map_or(0, sum)))
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// Returns the reads of random keys a second.
fn measure(mut read: impl FnMut(u64) -> Result<u64, Failure>) -> Result<f64, Failure> {
    let (mut state, mut touched, mut count) = (1, 0u64, 0u64);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(SECONDS) {
        for _ in 0..1000 {
            touched += read(next(&mut state))?;
        }
        count += 1000;
    }
    assert!(touched > 0, "no row was read");
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn spread(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    format!(
        "{:.0} [{:.0}..{:.0}] point reads a second",
        figures[figures.len() / 2],
        figures[0],
        figures[figures.len() - 1]
    )
}
