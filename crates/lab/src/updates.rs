//! Updates of whole rows, like YCSB's workload A: half of the requests read, half update. The rows are stored
//! densely in the order of their keys.
//!
//! The workload differs from YCSB because experiments use it to count flash wear, not time. Keys are numbers
//! and are inserted in order. YCSB inserts keys at random, which leaves pages two thirds full, so their
//! contents always compress. A row has one field of a thousand characters, and an update replaces the whole
//! field.

use std::fmt::Write;

use varve_bench::Result;
use varve_bench::database::{Connection, Param, Statement};
use varve_bench::random::{Permutation, Random, Zipfian};
use varve_bench::values::Values;
use varve_bench::workload::{Workload, load_rows};

/// Characters of a row, as many as YCSB's ten fields have.
pub const ROW_CHARS: usize = 1000;

const READ: usize = 0;
const UPDATE: usize = 1;
/// The seed of the permutation that says which rows are requested most.
const SHUFFLE_SEED: u64 = 2010;

/// The workload, with its rows and their values.
#[derive(Debug, Clone)]
pub struct Updates {
    rows: u64,
    values: Values,
    zipfian: Zipfian,
    shuffle: Permutation,
}

impl Updates {
    /// Makes the workload with `rows` rows of such values. The r-th most popular row is requested with a
    /// frequency in proportion to 1 / r^theta. Theta is between 0 and 1.
    pub fn new(rows: u64, theta: f64, values: Values) -> Self {
        let rows = rows.max(1);
        let (zipfian, shuffle) = (Zipfian::with_theta(rows, theta), Permutation::of(rows, SHUFFLE_SEED));
        Self { rows, values, zipfian, shuffle }
    }

    fn key(&self, random: &mut Random) -> i64 {
        self.shuffle.place(self.zipfian.rank(random)) as i64
    }
}

impl Workload for Updates {
    fn name(&self) -> String {
        "updates".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        let keys = format!("zipfian {}, shuffled", self.zipfian.theta());
        serde_json::json!({"rows": self.rows, "row_chars": ROW_CHARS, "keys": keys, "values": self.values.describe()})
    }

    fn deviations(&self) -> Vec<String> {
        vec![
            "keys are bigints, loaded in their order".to_owned(),
            "a row is one field of 1000 characters, and an update replaces it".to_owned(),
        ]
    }

    fn statements(&self) -> Vec<Statement> {
        [
            "SELECT field FROM usertable WHERE ycsb_key = $1",
            "UPDATE usertable SET field = $1 WHERE ycsb_key = $2",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        c.simple("DROP TABLE IF EXISTS usertable")?;
        c.simple(&format!(
            "CREATE TABLE usertable (ycsb_key bigint PRIMARY KEY, field varchar({ROW_CHARS}))"
        ))?;
        let mut random = Random::seeded(self.rows);
        load_rows(c, "usertable", self.rows, |number, sql| {
            let _ = write!(sql, "({number},'{}')", self.values.text(&mut random, ROW_CHARS));
        })
    }

    fn transaction(&self, _kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let key = Param::Int(self.key(random));
        if random.below(2) == 0 {
            return c.run(READ, &[key]).map(drop);
        }
        let text = self.values.text(random, ROW_CHARS);
        c.run(UPDATE, &[Param::Text(&text), key]).map(drop)
    }

    /// Each transaction is a single statement, so no transaction is open after an error.
    fn rollback(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }
}
