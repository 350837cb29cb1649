//! Lee's embedded SQL program (section 4.1): each session updates a single row and commits, again and again.

use std::fmt::Write;

use varve_bench::Result;
use varve_bench::database::{Connection, Param, Statement};
use varve_bench::random::Random;
use varve_bench::workload::{Workload, load_rows};

/// The workload, with the number of its rows.
#[derive(Debug)]
pub struct SingleUpdates {
    rows: u64,
}

impl SingleUpdates {
    /// Returns the workload on a table of this many rows. All rows are updated equally often.
    pub fn new(rows: u64) -> Self {
        Self { rows: rows.max(1) }
    }
}

impl Workload for SingleUpdates {
    fn name(&self) -> String {
        "single-updates".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"rows": self.rows})
    }

    fn statements(&self) -> Vec<Statement> {
        vec!["UPDATE counters SET count = count + 1 WHERE id = $1".to_owned()]
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        c.simple("DROP TABLE IF EXISTS counters")?;
        c.simple("CREATE TABLE counters (id bigint PRIMARY KEY, count bigint NOT NULL)")?;
        load_rows(c, "counters", self.rows, |number, sql| {
            let _ = write!(sql, "({number}, 0)");
        })
    }

    fn transaction(&self, _kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        c.run(0, &[Param::Int(random.below(self.rows) as i64)]).map(drop)
    }

    /// Each transaction is a single statement, so no transaction is open after an error.
    fn rollback(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }
}
