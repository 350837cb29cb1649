//! The OLTP scripts of sysbench 1.0, with the same tables, statements and mix of statements in a transaction.
//!
//! The load generator differs from sysbench: it runs in this process, or uses another client library. So
//! compare its figures only with figures of this crate.

use std::fmt::Write;

use crate::database::{Connection, Param, Statement};
use crate::random::{Keys, Random};
use crate::workload::{Workload, load_rows};
use crate::{BenchError, Result};

/// A script of sysbench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// `oltp_point_select`
    PointSelect,
    /// `oltp_read_only`
    ReadOnly,
    /// `oltp_read_write`
    ReadWrite,
    /// `oltp_write_only`
    WriteOnly,
    /// `oltp_update_index`
    UpdateIndex,
    /// `oltp_update_non_index`
    UpdateNonIndex,
    /// `oltp_insert`
    Insert,
    /// `oltp_delete`
    Delete,
}

/// Every script with its name.
pub const SCRIPTS: &[(&str, Script)] = &[
    ("oltp_point_select", Script::PointSelect),
    ("oltp_read_only", Script::ReadOnly),
    ("oltp_read_write", Script::ReadWrite),
    ("oltp_write_only", Script::WriteOnly),
    ("oltp_update_index", Script::UpdateIndex),
    ("oltp_update_non_index", Script::UpdateNonIndex),
    ("oltp_insert", Script::Insert),
    ("oltp_delete", Script::Delete),
];

/// Rows that a range query reads, as with sysbench's `--range-size`.
const RANGE_ROWS: u64 = 100;
const C_CHARS: usize = 119;
const PAD_CHARS: usize = 59;

// Indexes into the list of statements. BEGIN and COMMIT come first. Then each table has STATEMENTS_OF_A_TABLE
// statements, and the constants from POINT to INSERT_SERIAL are indexes among these.
const BEGIN: usize = 0;
const COMMIT: usize = 1;
const POINT: usize = 0;
const RANGE: usize = 1;
const RANGE_SUM: usize = 2;
const RANGE_ORDER: usize = 3;
const RANGE_DISTINCT: usize = 4;
const UPDATE_INDEX: usize = 5;
const UPDATE_NON_INDEX: usize = 6;
const DELETE: usize = 7;
const INSERT_KEYED: usize = 8;
const INSERT_SERIAL: usize = 9;
const STATEMENTS_OF_A_TABLE: usize = 10;

/// One script on `tables` tables of `rows` rows each.
#[derive(Debug, Clone)]
pub struct Sysbench {
    script: Script,
    tables: u64,
    rows: u64,
    keys: Keys,
}

impl Sysbench {
    /// Returns the script with the name `name`.
    pub fn new(name: &str, tables: u64, rows: u64) -> Result<Self> {
        let found = SCRIPTS.iter().find(|(known, _)| *known == name);
        let (_, script) = found.ok_or_else(|| {
            let scripts: Vec<&str> = SCRIPTS.iter().map(|(known, _)| *known).collect();
            let others = "tpcb, tpcc, ycsb-a to ycsb-f";
            BenchError::Arguments(format!("{name} is no workload; choose {}, {others}", scripts.join(", ")))
        })?;
        Ok(Self { script: *script, tables, rows, keys: Keys::Special { count: rows } })
    }

    fn key(&self, random: &mut Random) -> i64 {
        self.keys.next(random) as i64 + 1
    }

    /// Returns the index of a statement for a random table. `statement` is its index among the statements of
    /// the table.
    fn of_a_table(&self, statement: usize, random: &mut Random) -> usize {
        2 + random.below(self.tables) as usize * STATEMENTS_OF_A_TABLE + statement
    }

    fn by_key(&self, statement: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let (number, key) = (self.of_a_table(statement, random), self.key(random));
        c.run(number, &[Param::Int(key)]).map(drop)
    }

    fn by_range(&self, statement: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let (number, key) = (self.of_a_table(statement, random), self.key(random));
        c.run(number, &[Param::Int(key), Param::Int(key + RANGE_ROWS as i64 - 1)]).map(drop)
    }

    fn update_non_index(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let (number, key) = (self.of_a_table(UPDATE_NON_INDEX, random), self.key(random));
        c.run(number, &[Param::Text(&random.digit_groups(C_CHARS)), Param::Int(key)]).map(drop)
    }

    fn insert(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let number = self.of_a_table(INSERT_SERIAL, random);
        let (text, pad) = (random.digit_groups(C_CHARS), random.digit_groups(PAD_CHARS));
        c.run(number, &[Param::Int(self.key(random)), Param::Text(&text), Param::Text(&pad)]).map(drop)
    }

    fn delete_and_insert(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let first = self.of_a_table(0, random);
        let key = self.key(random);
        c.run(first + DELETE, &[Param::Int(key)])?;
        let (text, pad) = (random.digit_groups(C_CHARS), random.digit_groups(PAD_CHARS));
        let values = [Param::Int(key), Param::Int(self.key(random)), Param::Text(&text), Param::Text(&pad)];
        c.run(first + INSERT_KEYED, &values).map(drop)
    }

    fn reads(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        for _ in 0..10 {
            self.by_key(POINT, c, random)?;
        }
        for statement in [RANGE, RANGE_SUM, RANGE_ORDER, RANGE_DISTINCT] {
            self.by_range(statement, c, random)?;
        }
        Ok(())
    }

    fn writes(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        self.by_key(UPDATE_INDEX, c, random)?;
        self.update_non_index(c, random)?;
        self.delete_and_insert(c, random)
    }

    fn many(&self, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        c.run(BEGIN, &[])?;
        if self.script != Script::WriteOnly {
            self.reads(c, random)?;
        }
        if self.script != Script::ReadOnly {
            self.writes(c, random)?;
        }
        c.run(COMMIT, &[]).map(drop)
    }

    fn load_table(&self, table: u64, c: &mut dyn Connection) -> Result<()> {
        c.simple(&format!("DROP TABLE IF EXISTS sbtest{table}"))?;
        c.simple(&format!(
            "CREATE TABLE sbtest{table} (id SERIAL, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
             pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id))"
        ))?;
        let mut random = Random::seeded(table);
        load_rows(c, &format!("sbtest{table} (k, c, pad)"), self.rows, |_, sql| {
            let (k, text) = (self.key(&mut random), random.digit_groups(C_CHARS));
            let _ = write!(sql, "({k}, '{text}', '{}')", random.digit_groups(PAD_CHARS));
        })?;
        c.simple(&format!("CREATE INDEX k_{table} ON sbtest{table} (k)"))
    }
}

impl Workload for Sysbench {
    fn name(&self) -> String {
        SCRIPTS.iter().find(|(_, script)| *script == self.script).map_or("", |(name, _)| name).to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"tables": self.tables, "rows": self.rows, "keys": "special"})
    }

    fn statements(&self) -> Vec<Statement> {
        let mut all = vec!["BEGIN".to_owned(), "COMMIT".to_owned()];
        for table in 1..=self.tables {
            all.extend(statements_of(table));
        }
        all
    }

    fn load(&self, connection: &mut dyn Connection) -> Result<()> {
        (1..=self.tables).try_for_each(|table| self.load_table(table, connection))
    }

    fn transaction(&self, _kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()> {
        match self.script {
            Script::PointSelect => self.by_key(POINT, connection, random),
            Script::UpdateIndex => self.by_key(UPDATE_INDEX, connection, random),
            Script::Delete => self.by_key(DELETE, connection, random),
            Script::UpdateNonIndex => self.update_non_index(connection, random),
            Script::Insert => self.insert(connection, random),
            Script::ReadOnly | Script::ReadWrite | Script::WriteOnly => self.many(connection, random),
        }
    }
}

/// Returns the statements of one table, in the order of the constants from POINT to INSERT_SERIAL.
fn statements_of(table: u64) -> [Statement; STATEMENTS_OF_A_TABLE] {
    let t = format!("sbtest{table}");
    [
        format!("SELECT c FROM {t} WHERE id=$1"),
        format!("SELECT c FROM {t} WHERE id BETWEEN $1 AND $2"),
        format!("SELECT SUM(k) FROM {t} WHERE id BETWEEN $1 AND $2"),
        format!("SELECT c FROM {t} WHERE id BETWEEN $1 AND $2 ORDER BY c"),
        format!("SELECT DISTINCT c FROM {t} WHERE id BETWEEN $1 AND $2 ORDER BY c"),
        format!("UPDATE {t} SET k=k+1 WHERE id=$1"),
        format!("UPDATE {t} SET c=$1 WHERE id=$2"),
        format!("DELETE FROM {t} WHERE id=$1"),
        format!("INSERT INTO {t} (id, k, c, pad) VALUES ($1, $2, $3, $4)"),
        format!("INSERT INTO {t} (k, c, pad) VALUES ($1, $2, $3)"),
    ]
}
