//! A server as a target of workloads: Varve's server or PostgreSQL, through the crate `postgres`.

use postgres::types::{ToSql, Type};
use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::database::{Connection, MeasuredDatabase, Param, Row, Statement, Value};
use crate::numeric::Decimal;
use crate::{BenchError, Result};

/// A server, named by a connection string such as `host=127.0.0.1 port=5433 user=postgres`.
#[derive(Debug, Clone)]
pub struct Wire {
    address: String,
}

impl Wire {
    /// Returns the server at `address`, in the syntax of libpq.
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }
}

impl MeasuredDatabase for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    /// Returns the version that the server reports. It is part of the description, because two servers on one
    /// port are two configurations.
    fn describe(&self) -> String {
        let asked = Client::connect(&self.address, NoTls)
            .and_then(|mut client| client.simple_query("SHOW server_version"));
        let version = asked.ok().and_then(|answer| first_value(&answer));
        format!("{}, server_version {}", self.address, version.as_deref().unwrap_or("unknown"))
    }

    fn connect(&self, statements: &[Statement]) -> Result<Box<dyn Connection>> {
        let mut client = Client::connect(&self.address, NoTls)?;
        let prepared =
            statements.iter().map(|sql| client.prepare(sql)).collect::<std::result::Result<_, _>>()?;
        Ok(Box::new(WireConnection { client, prepared }))
    }
}

struct WireConnection {
    client: Client,
    prepared: Vec<postgres::Statement>,
}

impl Connection for WireConnection {
    fn simple(&mut self, sql: &str) -> Result<()> {
        Ok(self.client.batch_execute(sql)?)
    }

    fn scalar(&mut self, sql: &str) -> Result<String> {
        let answer = self.client.simple_query(sql)?;
        first_value(&answer).ok_or_else(|| BenchError::Wrong(format!("no value from {sql}")))
    }

    fn run(&mut self, number: usize, params: &[Param<'_>]) -> Result<u64> {
        Ok(self.answer(number, params)?.len() as u64)
    }

    fn rows(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.answer(number, params)?.iter().map(values).collect()
    }
}

impl WireConnection {
    fn answer(&mut self, number: usize, params: &[Param<'_>]) -> Result<Vec<postgres::Row>> {
        let statement = &self.prepared[number];
        let typed: Vec<Box<dyn ToSql + Sync + '_>> =
            params.iter().zip(statement.params()).map(|(param, kind)| as_sql(*param, kind)).collect();
        let borrowed: Vec<&(dyn ToSql + Sync)> = typed.iter().map(|value| &**value).collect();
        if statement.columns().is_empty() {
            self.client.execute(statement, &borrowed)?;
            return Ok(Vec::new());
        }
        Ok(self.client.query(statement, &borrowed)?)
    }
}

fn values(row: &postgres::Row) -> Result<Row> {
    (0..row.len()).map(|at| Ok(row.try_get::<_, Value>(at)?)).collect()
}

/// Returns the parameter as a value of the Rust type that the crate `postgres` accepts for the server's type.
fn as_sql<'a>(param: Param<'a>, kind: &Type) -> Box<dyn ToSql + Sync + 'a> {
    match param {
        Param::Text(text) => Box::new(text),
        Param::Bytes(bytes) => Box::new(bytes),
        Param::Decimal(value) => Box::new(Decimal(value)),
        Param::Int(value) if *kind == Type::INT2 => Box::new(value as i16),
        Param::Int(value) if *kind == Type::INT4 => Box::new(value as i32),
        Param::Int(value) => Box::new(value),
    }
}

fn first_value(answer: &[SimpleQueryMessage]) -> Option<String> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    })
}
