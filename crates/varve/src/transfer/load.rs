//! Copies the rows of tables, several tables at a time.
//!
//! Invariants
//! 1. All connections to the source read the same snapshot.
//! 2. A table gets all of its rows or none: its COPY is one statement.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::link::{EndPoint, Link};
use super::trial::count;
use super::{StatementError, TransferError};
use crate::config::show_bytes;

/// The number of pieces of COPY data that wait between the two databases.
const PIECES_AHEAD: usize = 8;
/// The period of the lines of progress.
const PERIOD: Duration = Duration::from_secs(5);
/// How often the thread of the progress looks whether the load has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The copy of one table.
#[derive(Debug, Clone)]
pub struct Copy {
    /// Qualified name in both databases.
    pub table: String,
    /// COPY ... TO STDOUT, for the source.
    pub from: String,
    /// COPY ... FROM STDIN, for the target.
    pub into: String,
    /// A query of the source for the number of rows.
    pub counted: String,
    /// The estimated size in bytes.
    pub size_bytes: u64,
}

/// The result of one table.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The table.
    pub table: String,
    /// The number of rows in the snapshot of the source, and the number that the target took.
    pub rows: Result<(u64, u64), String>,
}

/// The two connections of a worker.
pub struct Route {
    /// To the source. It reads the snapshot.
    pub source: Box<dyn Link>,
    /// To the target.
    pub target: Box<dyn Link>,
}

/// The state that all workers share.
struct Work {
    queue: Mutex<VecDeque<Copy>>,
    done: Mutex<Vec<Loaded>>,
    bytes: AtomicU64,
    done_count: AtomicUsize,
    total_count: usize,
    began: Instant,
    has_ended: AtomicBool,
}

/// Copies tables, the largest first. Each route gives one worker. `tell` gets lines of progress.
pub fn load(routes: Vec<Route>, mut copies: Vec<Copy>, tell: &(dyn Fn(&str) + Sync)) -> Vec<Loaded> {
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.size_bytes));
    let all: Vec<_> = copies.iter().map(|copy| copy.table.clone()).collect();
    let work = Work {
        total_count: copies.len(),
        queue: Mutex::new(copies.into()),
        done: Mutex::new(Vec::new()),
        bytes: AtomicU64::new(0),
        done_count: AtomicUsize::new(0),
        began: Instant::now(),
        has_ended: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            routes.into_iter().map(|route| scope.spawn(move || work.run(route, tell))).collect();
        let progress = scope.spawn(move || work.tell_progress(tell));
        workers.into_iter().for_each(|worker| drop(worker.join()));
        work.has_ended.store(true, Ordering::Relaxed);
        drop(progress.join());
    });
    let left: Vec<Copy> = locked(&work.queue).drain(..).collect();
    let unfinished =
        left.into_iter().map(|copy| Loaded { table: copy.table, rows: Err("no worker was left".to_owned()) });
    let mut done = std::mem::take(&mut *locked(&work.done));
    done.extend(unfinished);
    // A worker that has panicked has taken its table with it.
    for table in all {
        if !done.iter().any(|loaded| loaded.table == table) {
            done.push(Loaded { table, rows: Err("its worker has failed".to_owned()) });
        }
    }
    done.sort_by(|a, b| a.table.cmp(&b.table));
    done
}

/// Locks a mutex. No thread panics while it holds one.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Work {
    fn run(&self, route: Route, tell: &(dyn Fn(&str) + Sync)) {
        let Route { mut source, mut target } = route;
        while let Some(copy) = { locked(&self.queue).pop_front() } {
            let began = Instant::now();
            let rows = self.copy(&copy, &mut *source, &mut *target);
            let number = self.done_count.fetch_add(1, Ordering::Relaxed) + 1;
            let total = self.total_count;
            match &rows {
                Ok((_, taken)) => tell(&format!(
                    "{}: {} in {:.1} s ({number} of {total} tables)",
                    copy.table,
                    count(*taken as usize, "row"),
                    began.elapsed().as_secs_f64()
                )),
                Err(why) => tell(&format!("{}: not loaded: {why}", copy.table)),
            }
            locked(&self.done).push(Loaded { table: copy.table, rows });
        }
    }

    /// Copies one table. A thread reads the source, and this one writes to the target.
    fn copy(&self, copy: &Copy, source: &mut dyn Link, target: &mut dyn Link) -> Result<(u64, u64), String> {
        let (sender, receiver) = sync_channel(PIECES_AHEAD);
        let (read, written) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut pipe = Pipe { sender, count: &self.bytes };
                let read = source.copy_to(&copy.from, &mut pipe);
                // The target must not take a part of the rows as the whole table.
                if let Err(error) = &read {
                    let _ = pipe.sender.send(Err(io::Error::other(error.to_string())));
                }
                // The target can end its COPY while the source counts.
                drop(pipe);
                let counted = read.and_then(|()| source.rows(&copy.counted));
                counted.map(|rows| number_of(&rows))
            });
            let mut pieces = BufReader::new(Pieces { receiver, piece: Vec::new(), at: 0 });
            let written = target.copy_from(&copy.into, &mut pieces as &mut dyn BufRead);
            // The reader ends when nobody takes its pieces.
            drop(pieces);
            (reader.join(), written)
        });
        let read = read.unwrap_or_else(|_| Err(broken("the thread that reads the source has panicked")));
        match (read, written) {
            (Ok(counted), Ok(taken)) => Ok((counted, taken)),
            // An error of the target ends the source's COPY, too.
            (_, Err(error)) | (Err(error), Ok(_)) => Err(error.to_string()),
        }
    }

    fn tell_progress(&self, tell: &(dyn Fn(&str) + Sync)) {
        let mut told = Instant::now();
        while !self.has_ended.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            if told.elapsed() >= PERIOD {
                told = Instant::now();
                let (done, total) = (self.done_count.load(Ordering::Relaxed), self.total_count);
                let bytes = show_bytes(self.bytes.load(Ordering::Relaxed) >> 20 << 20);
                let seconds = self.began.elapsed().as_secs();
                tell(&format!("loading: {done} of {total} tables, {bytes} read in {seconds} s"));
            }
        }
    }
}

/// Returns the number that a query with one value has returned.
pub fn number_of(rows: &[super::link::TextRow]) -> u64 {
    let value = rows.first().and_then(|row| row.first().cloned().flatten());
    value.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn broken(why: &str) -> StatementError {
    StatementError { sqlstate: "XX000".to_owned(), message: why.to_owned(), context: None }
}

type Piece = io::Result<Vec<u8>>;

/// The writing end of a pipe between two threads.
struct Pipe<'c> {
    sender: SyncSender<Piece>,
    count: &'c AtomicU64,
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let sent = self.sender.send(Ok(bytes.to_vec()));
        sent.map(|()| bytes.len()).map_err(|_| io::Error::other("the target has ended the copy"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reading end of a pipe.
struct Pieces {
    receiver: Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.recv() {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                Err(_) => return Ok(0),
            }
        }
        let mut rest = self.piece.get(self.at..).unwrap_or_default();
        let count = rest.read(into)?;
        self.at += count;
        Ok(count)
    }
}

/// Opens more connections to the source in the snapshot of the first one. If the source exports none, there
/// is only the first one.
pub fn connections(
    first: Box<dyn Link>,
    snapshot: Option<&str>,
    source: &EndPoint,
    jobs: usize,
) -> Result<Vec<Box<dyn Link>>, TransferError> {
    let mut links = vec![first];
    if let Some(snapshot) = snapshot {
        while links.len() < jobs {
            let mut link = source.connect()?;
            let begin = format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
                super::read::literal(snapshot)
            );
            link.run(&begin).map_err(|error| error.of(source.name()))?;
            links.push(link);
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::super::link::TextRow;
    use super::*;

    /// The way in which a connection to the target fails.
    #[derive(Clone, Copy, PartialEq)]
    enum Fails {
        Never,
        ByPanic,
    }

    /// A connection to a source with tables of two rows, or to a target.
    struct Fake<'f> {
        fails: Fails,
        is_lost: &'f AtomicBool,
        reads_half: bool,
    }

    impl Link for Fake<'_> {
        fn run(&mut self, _sql: &str) -> Result<(), StatementError> {
            Ok(())
        }

        fn rows(&mut self, _sql: &str) -> Result<Vec<TextRow>, StatementError> {
            Ok(vec![vec![Some("2".to_owned())]])
        }

        fn copy_to(&mut self, sql: &str, out: &mut dyn Write) -> Result<(), StatementError> {
            out.write_all(b"1\n").map_err(|error| broken(&error.to_string()))?;
            if self.reads_half && sql.contains("t2") {
                return Err(broken("the connection was closed"));
            }
            out.write_all(b"2\n").map_err(|error| broken(&error.to_string()))
        }

        fn copy_from(&mut self, _sql: &str, data: &mut dyn BufRead) -> Result<u64, StatementError> {
            if self.fails == Fails::ByPanic {
                self.is_lost.store(true, Ordering::SeqCst);
                panic!("the worker is lost");
            }
            while !self.is_lost.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let lines: io::Result<Vec<String>> = data.lines().collect();
            lines.map(|lines| lines.len() as u64).map_err(|error| broken(&error.to_string()))
        }
    }

    fn copies() -> Vec<Copy> {
        let copy = |number: u64| Copy {
            table: format!("t{number}"),
            from: format!("COPY t{number} TO STDOUT"),
            into: format!("COPY t{number} FROM STDIN"),
            counted: String::new(),
            size_bytes: number,
        };
        (1..=4).map(copy).collect()
    }

    fn loaded(targets: &[Fails], reads_half: bool) -> Vec<Loaded> {
        // The fakes must live as long as the program, because a link is a boxed trait.
        let is_lost: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(reads_half)));
        let fake = |fails| -> Box<dyn Link> { Box::new(Fake { fails, is_lost, reads_half }) };
        let routes = targets.iter().map(|fails| Route { source: fake(Fails::Never), target: fake(*fails) });
        load(routes.collect(), copies(), &|_| ())
    }

    fn failed(loaded: &[Loaded]) -> Vec<(&str, &str)> {
        let whys =
            loaded.iter().filter_map(|one| Some((one.table.as_str(), one.rows.as_ref().err()?.as_str())));
        whys.collect()
    }

    #[test]
    fn the_table_of_a_lost_worker_is_not_loaded_and_the_others_are() {
        let done = loaded(&[Fails::ByPanic, Fails::Never], false);
        let failed = failed(&done);
        assert_eq!((done.len(), failed.len()), (4, 1), "{done:?}");
        assert_eq!(failed[0].1, "its worker has failed");
        assert_eq!(done.iter().filter(|one| one.rows == Ok((2, 2))).count(), 3, "{done:?}");
    }

    #[test]
    fn without_a_worker_each_table_is_named() {
        let done = loaded(&[Fails::ByPanic], false);
        let whys: Vec<&str> = failed(&done).into_iter().map(|(_, why)| why).collect();
        assert_eq!(whys.iter().filter(|why| **why == "no worker was left").count(), 3, "{done:?}");
        assert_eq!(whys.len(), 4);
    }

    #[test]
    fn a_table_that_is_read_in_part_is_not_loaded() {
        let done = loaded(&[Fails::Never, Fails::Never], true);
        let failed = failed(&done);
        assert_eq!(failed.len(), 1, "{done:?}");
        assert!(failed[0].0 == "t2" && failed[0].1.contains("the connection was closed"), "{failed:?}");
    }
}
