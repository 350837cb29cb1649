//! Runs a workload against MariaDB through MySQL's protocol, so that MariaDB is measured beside Varve in one
//! run.
//!
//! 1. Workloads write their statements in PostgreSQL's dialect. [`dialect`] translates the statements of
//!    LinkBench. TPC-C and sysbench on MariaDB are run by other programs (`bench/compare`).
//! 2. Sessions use READ COMMITTED, like the sessions of the other databases.
//!
//! Passwords and TLS are not supported. A published MySQL client library would support both. It is not used,
//! because it would double the number of crates that `varve-lab` depends on.

mod client;
mod dialect;

use varve_bench::database::{Connection, MeasuredDatabase, Param, Row, Statement};
use varve_bench::{BenchError, Result};

use client::{Client, Prepared};
use dialect::Rewritten;

/// The beginning of the URL of a MariaDB server.
pub const PREFIX: &str = "mysql://";

/// A MariaDB server, with the URL `mysql://USER@HOST:PORT/DATABASE`. The user has no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySql {
    address: String,
    user: String,
    database: String,
}

impl MySql {
    /// Returns the server with this URL.
    pub fn named(url: &str) -> Result<Self> {
        let parts = url.strip_prefix(PREFIX).and_then(|rest| {
            let (user, rest) = rest.split_once('@')?;
            let (address, database) = rest.split_once('/')?;
            Some((user, address, database))
        });
        let (user, address, database) = parts.ok_or_else(|| {
            BenchError::Arguments(format!("{url}: such a server is named {PREFIX}USER@HOST:PORT/DATABASE"))
        })?;
        let owned = str::to_owned;
        Ok(Self { address: owned(address), user: owned(user), database: owned(database) })
    }

    fn session(&self) -> Result<Client> {
        let mut client = Client::connect(&self.address, &self.user, &self.database)?;
        client.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        Ok(client)
    }
}

impl MeasuredDatabase for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    /// Returns the version that the server reports. It is part of the description, because two servers on one
    /// port are two configurations.
    fn describe(&self) -> String {
        let version = self.session().and_then(|mut client| client.query("SELECT version()"));
        let version = version.ok().flatten();
        format!("{}, version {}", self.address, version.as_deref().unwrap_or("unknown"))
    }

    fn connect(&self, statements: &[Statement]) -> Result<Box<dyn Connection>> {
        let mut client = self.session()?;
        let prepare = |sql: &Statement| {
            let rewritten = Rewritten::of(sql);
            Ok((client.prepare(&rewritten.text)?, rewritten))
        };
        let prepared = statements.iter().map(prepare).collect::<Result<_>>()?;
        Ok(Box::new(MySqlConnection { client, prepared }))
    }
}

struct MySqlConnection {
    client: Client,
    prepared: Vec<(Prepared, Rewritten)>,
}

impl Connection for MySqlConnection {
    fn simple(&mut self, sql: &str) -> Result<()> {
        self.client.query(&dialect::text(sql)).map(drop)
    }

    fn scalar(&mut self, sql: &str) -> Result<String> {
        let value = self.client.query(&dialect::text(sql))?;
        value.ok_or_else(|| BenchError::Wrong(format!("no value from {sql}")))
    }

    fn run(&mut self, number: usize, params: &[Param<'_>]) -> Result<u64> {
        Ok(self.rows(number, params)?.len() as u64)
    }

    fn rows(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let (prepared, rewritten) = &self.prepared[number];
        let in_order: Vec<Param<'_>> =
            rewritten.params.iter().filter_map(|at| params.get(*at)).copied().collect();
        self.client.execute(prepared, &in_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named() {
        let server = MySql::named("mysql://root@127.0.0.1:3306/bench").expect("a name");
        assert_eq!((server.user.as_str(), server.database.as_str()), ("root", "bench"));
        assert_eq!(server.address, "127.0.0.1:3306");
        assert!(MySql::named("mysql://127.0.0.1").is_err());
        assert!(MySql::named("host=127.0.0.1").is_err());
    }
}
