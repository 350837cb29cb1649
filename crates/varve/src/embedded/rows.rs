//! An iterator over the rows of a statement that runs meanwhile.
//!
//! The executor pushes rows, and an iterator pulls them. So the statement runs in a thread of its own, which
//! passes batches of rows through a channel of limited length. The thread owns the session until the end.
//!
//! Invariants
//! 1. At most `BATCHES_AHEAD` + 2 batches of rows are in memory.
//! 2. The transaction goes on after a query was stopped: a stopped query is not an error.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use varve_engine::{Datum, Value};
use varve_sql::{Column, Session, Sink, SqlError, SqlState};

use super::row::Row;
use super::session::{SqlSession, Statement, run_bound};

/// The number of batches that wait in the channel.
const BATCHES_AHEAD: usize = 1;
/// The largest number of rows in a batch. The first batches are smaller, so that the first row comes soon.
const BATCH_ROWS_MAX: usize = 256;
/// The size of the values of a batch, in bytes, after which it is sent.
const BATCH_BYTES: usize = 64 << 10;
/// The same stack as a connection of the server has.
const STACK_BYTES: usize = 16 << 20;

/// A message of the thread.
enum Message {
    Rows(Vec<Row>),
    /// The statement has ended: the number of its rows, or its error.
    End(Result<u64, SqlError>),
}

/// A statement that runs in a thread.
pub(super) struct Stream {
    receiver: Receiver<Message>,
    thread: JoinHandle<Box<Session>>,
    columns: Arc<[Column]>,
}

impl Stream {
    /// Starts the thread. If the system has none, returns the session.
    pub(super) fn start(
        session: Box<Session>,
        statement: Statement,
        params: Vec<Value>,
    ) -> Result<Stream, (Box<Session>, SqlError)> {
        let columns: Arc<[Column]> = Arc::from(statement.columns());
        let (sender, receiver) = sync_channel(BATCHES_AHEAD);
        let batches = Batches::new(columns.clone(), sender, statement.0.is_query());
        // The session goes into the thread through a channel, so that it is not lost if there is no thread.
        let (give, take) = sync_channel::<Box<Session>>(1);
        let body = move || {
            let Ok(mut session) = take.recv() else {
                unreachable!("the session was given or the thread failed")
            };
            batches.run(&mut session, &statement, &params);
            session
        };
        let builder = std::thread::Builder::new().name("rows".to_owned()).stack_size(STACK_BYTES);
        match builder.spawn(body) {
            Ok(thread) => {
                // The thread has the receiver, so this succeeds.
                let _ = give.send(session);
                Ok(Stream { receiver, thread, columns })
            }
            Err(error) => {
                Err((session, SqlError::internal(format!("a thread for the rows cannot start: {error}"))))
            }
        }
    }

    /// Stops the statement, if it is a query, and waits for the session.
    pub(super) fn end(self) -> Box<Session> {
        drop(self.receiver);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The sink of the thread.
struct Batches {
    columns: Arc<[Column]>,
    sender: SyncSender<Message>,
    batch: Vec<Row>,
    batch_bytes: usize,
    /// The number of rows after which the batch is sent.
    wanted_rows: usize,
    /// Whether the statement may be stopped before its end.
    is_query: bool,
    /// Whether nobody reads rows any more.
    has_enough: bool,
}

impl Batches {
    fn new(columns: Arc<[Column]>, sender: SyncSender<Message>, is_query: bool) -> Batches {
        let (batch, batch_bytes, wanted_rows) = (Vec::new(), 0, 1);
        Batches { columns, sender, batch, batch_bytes, wanted_rows, is_query, has_enough: false }
    }

    fn run(mut self, session: &mut Session, statement: &Statement, params: &[Value]) {
        let done = run_bound(session, statement, params, &mut self);
        self.send();
        let _ = self.sender.send(Message::End(done));
    }

    fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.wanted_rows = (self.wanted_rows * 2).min(BATCH_ROWS_MAX);
        if !batch.is_empty() && !self.has_enough {
            self.has_enough = self.sender.send(Message::Rows(batch)).is_err();
        }
    }
}

impl Sink for Batches {
    fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        if self.has_enough {
            return if self.is_query {
                Err(SqlError::new(SqlState::ENOUGH_ROWS, "no more rows are needed"))
            } else {
                Ok(())
            };
        }
        self.batch_bytes += row.iter().map(bytes_of).sum::<usize>();
        self.batch.push(Row::new(self.columns.clone(), row));
        if self.batch.len() >= self.wanted_rows || self.batch_bytes >= BATCH_BYTES {
            self.send();
        }
        Ok(())
    }

    fn has_enough(&self) -> bool {
        self.has_enough
    }
}

/// Returns about how many bytes a value has in memory.
fn bytes_of(datum: &Datum<'_>) -> usize {
    let variable = match datum {
        Datum::Text(text) => text.len(),
        Datum::Bytea(bytes) => bytes.len(),
        Datum::Array(array) => array.len() * size_of::<u64>(),
        _ => 0,
    };
    size_of::<Value>() + variable
}

/// An iterator over the rows of a statement. See [`SqlSession::query_iter`].
///
/// After an error, or after the last row, it returns `None`.
pub struct Rows<'s> {
    session: &'s mut SqlSession,
    columns: Arc<[Column]>,
    batch: std::vec::IntoIter<Row>,
    /// The number of rows, when the statement has ended.
    affected: Option<u64>,
}

impl<'s> Rows<'s> {
    pub(super) fn new(session: &'s mut SqlSession) -> Rows<'s> {
        let columns = session.stream().map_or_else(|| Arc::from([]), |stream| stream.columns.clone());
        Rows { session, columns, batch: Vec::new().into_iter(), affected: None }
    }

    /// Returns the columns of the result.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Reads the remaining rows without returning them. Returns the number of rows that the statement
    /// affected or returned, or its error.
    pub fn finish(mut self) -> Result<u64, SqlError> {
        for row in self.by_ref() {
            row?;
        }
        Ok(self.affected.unwrap_or_default())
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.batch.next() {
                return Some(Ok(row));
            }
            match self.session.stream()?.receiver.recv() {
                Ok(Message::Rows(batch)) => self.batch = batch.into_iter(),
                Ok(Message::End(done)) => {
                    self.session.ready();
                    match done {
                        Ok(count) => self.affected = Some(count),
                        Err(error) => return Some(Err(error)),
                    }
                }
                // The thread has panicked. The panic goes on here.
                Err(_) => {
                    self.session.ready();
                }
            }
        }
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // After a panic of the statement's thread, there is no stream to end.
        if self.session.stream().is_some() {
            self.session.ready();
        }
    }
}
