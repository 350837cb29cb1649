//! Helpers for the tests of this crate: a database in memory, sessions, and a sink that writes results as
//! lines.
#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests; each test file uses a part")]

pub mod slt;

use std::sync::Arc;

use varve_device::MemoryDirectory;
use varve_engine::{Database, Datum, MemoryTables, Options, Value};
use varve_pager::PagerConfig;
use varve_sql::{
    Column, CommandTag, CopyShape, Portal, Progress, Reading, Result, Session, SessionParams, Severity, Sink,
    SqlDatabase, SqlError, TimeForms, text, time::PLAIN,
};

pub fn database() -> Arc<SqlDatabase> {
    reopened(&MemoryDirectory::new())
}

/// Makes a database with pages of this size.
pub fn with_pages(page_size: usize) -> Arc<SqlDatabase> {
    opened(PagerConfig { page_size, ..PagerConfig::new(MemoryDirectory::new()) })
}

/// Opens the database in this directory, or makes one.
pub fn reopened(directory: &Arc<MemoryDirectory>) -> Arc<SqlDatabase> {
    opened(PagerConfig::new(directory.clone()))
}

/// Opens the database of this configuration, and sets its sizes.
pub fn opened(mut pager: PagerConfig) -> Arc<SqlDatabase> {
    pager.pool_bytes = 8 << 20;
    pager.log_segment_bytes = 1 << 20;
    pager.log_capacity_bytes = 16 << 20;
    pager.background = false;
    let memory = Some(MemoryTables { directory: pager.data.clone(), size_bytes: 8 << 20, partitions: 1 });
    Arc::new(SqlDatabase::new(
        Database::open(Options { derive: Some(varve_sql::deriver()), memory, ..Options::new(pager) })
            .unwrap(),
    ))
}

pub fn session(db: &Arc<SqlDatabase>) -> Session {
    let params = SessionParams {
        user: "postgres".into(),
        database: "postgres".into(),
        proved: None,
        process_id: 7,
        peer: None,
        settings: Vec::new(),
    };
    Session::new(db.clone(), params).unwrap()
}

/// Results as lines.
#[derive(Default)]
pub struct Recorder {
    pub lines: Vec<String>,
    pub columns: Vec<Column>,
    pub copy: Vec<u8>,
    /// The formats of times of the session that ran last.
    pub forms: Option<TimeForms>,
}

pub fn shown(row: &[Datum<'_>], forms: &TimeForms) -> String {
    let cells: Vec<String> = row
        .iter()
        .map(|d| {
            let mut out = Vec::new();
            text::write_with(*d, forms, &mut out);
            if d.is_null() { "NULL".to_owned() } else { String::from_utf8(out).unwrap() }
        })
        .collect();
    cells.join("|")
}

impl Recorder {
    fn error(&mut self, e: &SqlError) {
        self.lines.push(format!("! {} {}", e.sqlstate, e.message));
        if let Some(detail) = &e.detail {
            self.lines.push(format!("& {}", detail.replace('\n', " / ")));
        }
        if let Some(context) = &e.context {
            self.lines.push(format!("? {context}"));
        }
    }

    pub fn simple(&mut self, session: &mut Session, sql: &str) {
        self.forms = Some(session.forms().clone());
        if let Err(e) = session.simple(sql, self) {
            self.error(&e);
        }
    }

    pub fn extended(&mut self, session: &mut Session, sql: &str, params: &[Option<String>]) {
        self.forms = Some(session.forms().clone());
        match self.try_extended(session, sql, params) {
            Ok(tag) => self.lines.push(format!("= {tag}")),
            Err(e) => self.error(&e),
        }
        if let Err(e) = session.sync() {
            self.error(&e);
        }
    }

    fn try_extended(
        &mut self,
        session: &mut Session,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<CommandTag> {
        let prepared = session.prepare(sql, &[])?;
        let value = |(i, p): (usize, &Option<String>)| match p {
            Some(text) => text::parse_as(text, prepared.param_types()[i], &Reading::plain()),
            None => Ok(Value::Null),
        };
        let values: Vec<Value> =
            params.iter().enumerate().map(value).collect::<Result<_>>().inspect_err(|_| session.fail())?;
        let data: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
        match session.execute(&prepared, &data, &mut Portal::default(), 0, self)? {
            Progress::Complete(tag) => Ok(tag),
            Progress::Suspended => panic!("suspended without a limit"),
        }
    }
}

impl Sink for Recorder {
    fn columns(&mut self, columns: &[Column]) -> Result<()> {
        self.columns = columns.to_vec();
        Ok(())
    }

    fn forms(&mut self, forms: &TimeForms) {
        self.forms = Some(forms.clone());
    }

    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        self.lines.push(shown(row, self.forms.as_ref().unwrap_or(&PLAIN)));
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.lines.push(format!("= {tag}"));
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        self.lines.push("= ".to_owned());
        Ok(())
    }

    fn notice(&mut self, severity: Severity, notice: &SqlError) {
        self.lines.push(format!("~ {severity:?} {}", notice.message));
    }

    fn copy_out(&mut self, _: CopyShape) -> Result<()> {
        Ok(())
    }

    fn copy_data(&mut self, piece: &[u8]) -> Result<()> {
        let shown = |b: u8| matches!(b, b'\t' | b' '..=b'~');
        let text = |b: &u8| if shown(*b) { char::from(*b).to_string() } else { format!("<{b:02x}>") };
        let lines = piece.strip_suffix(b"\n").unwrap_or(piece).split(|b| *b == b'\n');
        self.lines.extend(lines.map(|line| line.iter().map(text).collect()));
        Ok(())
    }

    fn copy_done(&mut self) -> Result<()> {
        Ok(())
    }

    fn copy_in(&mut self, _: CopyShape, feed: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        // The data comes in small pieces, so that lines and fields are cut anywhere.
        for piece in self.copy.clone().chunks(7) {
            feed(piece)?;
        }
        Ok(())
    }
}
