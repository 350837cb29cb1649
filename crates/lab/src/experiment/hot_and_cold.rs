//! A workload with two tables: all sessions read the hot table, and the cold table is scanned from time to
//! time.
//!
//! Sessions read rows of the hot table by key, each row equally often. One access in a hundred changes the
//! row. So pages are written, but the disks still have time for a scan.

use std::fmt::Write;

use varve_bench::Result;
use varve_bench::database::{Connection, Param, Statement};
use varve_bench::random::Random;
use varve_bench::workload::{Workload, load_rows};

/// Characters of each row.
const ROW_CHARS: usize = 1000;
/// One request in this number changes the row that it reads.
const CHANGES_OF: u64 = 100;
/// Bytes that a table needs for each of its rows. Seven rows fit into a page.
const BYTES_OF_ROW: u64 = 8192 / 7;

/// The workload, with the sizes of its tables.
#[derive(Debug)]
pub struct HotAndCold {
    hot_rows: u64,
    cold_rows: u64,
}

impl HotAndCold {
    /// The statement that reads the whole cold table.
    pub const SCAN: &str = "SELECT id FROM cold";

    /// Returns the workload with tables of these sizes.
    pub fn new(hot_bytes: u64, cold_bytes: u64) -> Self {
        Self { hot_rows: (hot_bytes / BYTES_OF_ROW).max(1), cold_rows: (cold_bytes / BYTES_OF_ROW).max(1) }
    }
}

fn text(number: u64) -> String {
    let mut random = Random::seeded(number);
    (0..ROW_CHARS).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

impl Workload for HotAndCold {
    fn name(&self) -> String {
        "hot-and-cold".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"hot_rows": self.hot_rows, "cold_rows": self.cold_rows, "row_chars": ROW_CHARS})
    }

    fn statements(&self) -> Vec<Statement> {
        ["SELECT field FROM hot WHERE id = $1", "UPDATE hot SET field = $1 WHERE id = $2"]
            .map(str::to_owned)
            .to_vec()
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        for (table, rows) in [("hot", self.hot_rows), ("cold", self.cold_rows)] {
            c.simple(&format!("DROP TABLE IF EXISTS {table}"))?;
            c.simple(&format!("CREATE TABLE {table} (id bigint PRIMARY KEY, field varchar({ROW_CHARS}))"))?;
            load_rows(c, table, rows, |number, sql| {
                let _ = write!(sql, "({number},'{}')", text(number));
            })?;
        }
        Ok(())
    }

    fn transaction(&self, _kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let key = random.below(self.hot_rows);
        if random.below(CHANGES_OF) > 0 {
            return c.run(0, &[Param::Int(key as i64)]).map(drop);
        }
        c.run(1, &[Param::Text(&text(random.below(1 << 40))), Param::Int(key as i64)]).map(drop)
    }

    /// Each transaction is a single statement, so no transaction is open after an error.
    fn rollback(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }
}
