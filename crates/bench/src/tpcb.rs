//! TPC-B as pgbench runs it (`tpcb-like`). A transaction has three updates, a read and an insert.

use std::fmt::Write;

use crate::database::{Connection, Param, Statement};
use crate::random::Random;
use crate::workload::{Workload, load_rows};
use crate::{BenchError, Result};

const ACCOUNTS_OF_A_BRANCH: u64 = 100_000;
const TELLERS_OF_A_BRANCH: u64 = 10;

const BEGIN: usize = 0;
const UPDATE_ACCOUNT: usize = 1;
const READ_ACCOUNT: usize = 2;
const UPDATE_TELLER: usize = 3;
const UPDATE_BRANCH: usize = 4;
const INSERT_HISTORY: usize = 5;
const COMMIT: usize = 6;

/// TPC-B with a number of branches, which is its scale.
#[derive(Debug, Clone)]
pub struct Tpcb {
    scale: u64,
    accounts_of_a_branch: u64,
}

impl Tpcb {
    /// Returns the workload with pgbench's number of accounts for each branch.
    pub fn new(scale: u64) -> Self {
        Self { scale, accounts_of_a_branch: ACCOUNTS_OF_A_BRANCH }
    }

    /// Returns the workload with fewer accounts for each branch, for tests.
    pub fn small(scale: u64, accounts_of_a_branch: u64) -> Self {
        Self { scale, accounts_of_a_branch }
    }
}

const TABLES: &str = "
    DROP TABLE IF EXISTS bench_accounts, bench_tellers, bench_branches, bench_history;
    CREATE TABLE bench_accounts (aid integer NOT NULL PRIMARY KEY, bid integer, abalance integer, filler char(84));
    CREATE TABLE bench_tellers (tid integer NOT NULL PRIMARY KEY, bid integer, tbalance integer, filler char(84));
    CREATE TABLE bench_branches (bid integer NOT NULL PRIMARY KEY, bbalance integer, filler char(88));
    CREATE TABLE bench_history (tid integer, bid integer, aid integer, delta integer, mtime timestamp, filler char(22));";

impl Workload for Tpcb {
    fn name(&self) -> String {
        "tpcb".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"scale": self.scale, "accounts_of_a_branch": self.accounts_of_a_branch})
    }

    fn statements(&self) -> Vec<Statement> {
        let texts = [
            "BEGIN",
            "UPDATE bench_accounts SET abalance = abalance + $1 WHERE aid = $2",
            "SELECT abalance FROM bench_accounts WHERE aid = $1",
            "UPDATE bench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
            "UPDATE bench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
            "INSERT INTO bench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
            "COMMIT",
        ];
        texts.map(str::to_owned).to_vec()
    }

    fn load(&self, c: &mut dyn Connection) -> Result<()> {
        c.simple(TABLES)?;
        load_rows(c, "bench_branches (bid, bbalance)", self.scale, |number, sql| {
            let _ = write!(sql, "({}, 0)", number + 1);
        })?;
        load_rows(
            c,
            "bench_tellers (tid, bid, tbalance)",
            self.scale * TELLERS_OF_A_BRANCH,
            |number, sql| {
                let _ = write!(sql, "({}, {}, 0)", number + 1, number / TELLERS_OF_A_BRANCH + 1);
            },
        )?;
        let accounts = self.scale * self.accounts_of_a_branch;
        load_rows(c, "bench_accounts (aid, bid, abalance, filler)", accounts, |number, sql| {
            let _ = write!(sql, "({}, {}, 0, '')", number + 1, number / self.accounts_of_a_branch + 1);
        })
    }

    fn transaction(&self, _kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
        let account = Param::Int(1 + random.below(self.scale * self.accounts_of_a_branch) as i64);
        let teller = Param::Int(1 + random.below(self.scale * TELLERS_OF_A_BRANCH) as i64);
        let branch = Param::Int(1 + random.below(self.scale) as i64);
        let delta = Param::Int(random.below(10_001) as i64 - 5_000);
        c.run(BEGIN, &[])?;
        c.run(UPDATE_ACCOUNT, &[delta, account])?;
        c.run(READ_ACCOUNT, &[account])?;
        c.run(UPDATE_TELLER, &[delta, teller])?;
        c.run(UPDATE_BRANCH, &[delta, branch])?;
        c.run(INSERT_HISTORY, &[teller, branch, account, delta])?;
        c.run(COMMIT, &[]).map(drop)
    }

    /// Checks TPC-B's consistency condition: the four sums are equal.
    fn verify(&self, c: &mut dyn Connection) -> Result<()> {
        let accounts = c.scalar("SELECT coalesce(sum(abalance), 0) FROM bench_accounts")?;
        for (table, column) in
            [("bench_tellers", "tbalance"), ("bench_branches", "bbalance"), ("bench_history", "delta")]
        {
            let sum = c.scalar(&format!("SELECT coalesce(sum({column}), 0) FROM {table}"))?;
            if sum != accounts {
                return Err(BenchError::Wrong(format!(
                    "{table} sums to {sum}, bench_accounts to {accounts}"
                )));
            }
        }
        Ok(())
    }
}
