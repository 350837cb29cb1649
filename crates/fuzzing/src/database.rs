//! A small database in memory, for the targets that run statements.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_engine::{Database, Datum, Options};
use varve_pager::{PagerConfig, ProtectionKind};
use varve_sql::{
    Column, CommandTag, CopyShape, Result, Session, SessionParams, Severity, Sink, SqlDatabase, SqlError,
    text,
};

/// The tables of every target.
pub const TABLES: &str = "create table t (id integer primary key, n numeric(12, 3), f double precision, \
     s varchar(20), c char(5), b bytea, d date, ts timestamp, tz timestamptz, ok boolean, big bigint not null default 7); \
     create index t_s on t (s, id); create unique index t_d on t (d); \
     create table u (k serial primary key, v text); create sequence q; \
     insert into t (id, n, f, s, c, b, d, ts, tz, ok) values \
     (1, 1.5, 2.5, 'one', 'a', '\\x01', '2020-01-01', '2020-01-01 10:00', '2020-01-01 10:00+02', true), \
     (2, -3, 'NaN', 'two', 'bb', '', '1999-12-31', 'infinity', '-infinity', false), (3, null, null, null, null, null, null, \
     null, null, null); insert into u (v) values ('x'), (null), ('zz')";

/// Returns a configuration with which a database opens fast: no threads, a small pool and log.
pub fn config(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = PagerConfig::new(directory);
    config.page_size = crate::input::PAGE_BYTES;
    config.pool_bytes = 512 * config.page_size;
    config.log_segment_bytes = 1 << 20;
    config.log_capacity_bytes = 8 << 20;
    config.background = false;
    config.growth_extents = 1;
    config
}

/// Returns a new database with the tables.
pub fn open() -> Arc<SqlDatabase> {
    let mut config = config(MemoryDirectory::new());
    config.protection = ProtectionKind::None;
    let engine = Database::open(Options { derive: Some(varve_sql::deriver()), ..Options::new(config) })
        .expect("a database in memory opens");
    let shared = Arc::new(SqlDatabase::new(engine));
    let made = session(&shared).simple(TABLES, &mut Shown::default());
    made.expect("the tables can be made");
    shared
}

/// Returns a session whose statements end after a second.
pub fn session(shared: &Arc<SqlDatabase>) -> Session {
    let params = SessionParams {
        user: "postgres".into(),
        database: "postgres".into(),
        proved: None,
        process_id: 7,
        peer: None,
        settings: vec![
            ("statement_timeout".to_owned(), "1000".to_owned()),
            ("lock_timeout".to_owned(), "200".to_owned()),
        ],
    };
    Session::new(shared.clone(), params).expect("the settings are known")
}

/// Counts results, writes the first rows as text, and supplies COPY data in parts.
#[derive(Default)]
pub struct Shown<'a> {
    /// Rows, columns separated by `|`, and tags.
    pub lines: Vec<String>,
    /// The COPY data, and the number of bytes in each part.
    pub copy: (&'a [u8], usize),
}

const LINES_MAX: usize = 1000;

impl Shown<'_> {
    fn line(&mut self, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        }
    }
}

impl Sink for Shown<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        self.line(format!("{} columns", columns.len()));
        Ok(())
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        let mut out = Vec::new();
        for datum in row {
            text::write_text(*datum, &mut out);
            out.push(b'|');
        }
        let line = String::from_utf8(out);
        self.line(line.expect("the text form is text"));
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.line(tag.to_string());
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: Severity, _: &SqlError) {}

    fn copy_in(&mut self, _: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (data, at_once) = self.copy;
        data.chunks(at_once.max(1)).try_for_each(feed)
    }
}
