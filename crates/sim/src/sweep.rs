//! Injects each kind of run-time fault of a device at operation 1, 2, 3, ... of a workload.
//!
//! Invariants
//! 1. The operation's number grows until the workload ends before the fault happens. With a step of N, only
//!    every N-th operation is tried.
//! 2. Every run ends in one of the outcomes of [`Outcome`]. The last two outcomes are test failures.
//! 3. A run that takes longer than [`HANG`] is reported as a hang.

use std::sync::mpsc;
use std::time::Duration;

use varve_device::{ErrorKind, Fault, Operation, Rule, Space, When};

use crate::faults::{try_fault, try_relieved_fault};
use crate::search::{STOPPED, Subject};

/// The time limit of a workload with one fault.
const HANG: Duration = Duration::from_secs(60);
/// Higher numbers are not tried, because workloads have fewer operations.
const NUMBERS_MAX: u64 = 1 << 20;

/// The outcome of one run with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The workload did not notice the fault, and ended correctly.
    Right,
    /// Calls failed with clean errors, and the workload continued to its end.
    CleanError,
    /// Calls failed while a device was full. When it had space again, the same open database worked.
    WentOn,
    /// The creation of the database failed on the full device. When the device had space again, everything
    /// worked.
    MadeAgain,
    /// The database stopped, and worked again after a restart.
    Stopped,
    /// The device lost a write that it had reported as done, and the restart refuses to open or reports
    /// damage.
    Noticed,
    /// The device lost a write that it had reported as done, and no database could notice this loss.
    Deceived,
    /// The state after a restart is not the acknowledged one, or a read was wrong, or there was a panic.
    Failed,
    /// The run did not end.
    Hung,
}

/// A kind of fault of the sweep.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The name in tables.
    pub name: &'static str,
    /// The operation that fails.
    pub operation: Operation,
    /// The fault.
    pub fault: Fault,
    /// When the fault happens: once, or from this operation on.
    pub when: fn(u64) -> When,
    /// Whether the fault ends after some errors. Then the database has to continue.
    pub lifted: bool,
}

/// Outcomes of one kind of fault on one space.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The number of runs for each outcome.
    pub counts: [usize; 9],
    /// The failures.
    pub failures: Vec<String>,
}

impl Row {
    /// Returns the number of runs in which the fault happened.
    pub fn tried(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Adds the figures of another row.
    pub fn add(&mut self, other: Row) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, one)| *sum += one);
        self.failures.extend(other.failures);
    }
}

/// Returns all kinds of faults.
pub fn kinds() -> Vec<Kind> {
    let once = |name, operation, fault| Kind { name, operation, fault, when: When::Nth, lifted: false };
    let lasting = |name, operation, fault| Kind { when: When::From, ..once(name, operation, fault) };
    let third = |n| When::EveryFrom(n, 3);
    let lifted = |name, operation, fault| Kind { lifted: true, ..lasting(name, operation, fault) };
    let (eio, full) = (Fault::Fails(ErrorKind::Io(5)), Fault::Fails(ErrorKind::NoSpace));
    use Operation::{Flush, Open, Punch, Read, Rename, SetLen, SyncDirectory, Write};
    let panics = |name, operation| once(name, operation, Fault::Panics);
    vec![
        once("EIO on a read, once", Read, eio.clone()),
        lasting("EIO on reads, persistent", Read, eio.clone()),
        once("short read", Read, Fault::Short),
        once("bit flip in a read", Read, Fault::BitFlip { bit: 12_345 }),
        once("EIO on a write, once", Write, eio.clone()),
        lasting("EIO on writes, persistent", Write, eio.clone()),
        once("ENOSPC on a write (a hole), once", Write, full.clone()),
        lasting("ENOSPC on writes, persistent", Write, full.clone()),
        once("ENOSPC half-way through a write, once", Write, Fault::HalfFull),
        Kind { when: third, ..once("ENOSPC half-way through every third write", Write, Fault::HalfFull) },
        once("short write", Write, Fault::Short),
        once("EIO on a flush, once", Flush, eio.clone()),
        lasting("EIO on flushes, persistent", Flush, eio.clone()),
        once("ENOSPC on growth, once", SetLen, full.clone()),
        lasting("ENOSPC on growth, persistent", SetLen, full.clone()),
        once("EIO on growth, once", SetLen, eio.clone()),
        once("EIO on a hole punched", Punch, eio.clone()),
        once("EIO on a directory sync", SyncDirectory, eio),
        once("slow write", Write, Fault::Slow(Duration::from_millis(2))),
        once("device gone at a read", Read, Fault::Gone),
        once("device gone at a write", Write, Fault::Gone),
        once("device gone at a flush", Flush, Fault::Gone),
        panics("panic in a read", Read),
        panics("panic in a write", Write),
        panics("panic in a flush", Flush),
        panics("panic in growth", SetLen),
        panics("panic in opening a file", Open),
        panics("panic in a directory sync", SyncDirectory),
        once("lost write", Write, Fault::Lost),
        once("misdirected write", Write, Fault::Misdirected { by_bytes: 8192 }),
        once("bit flip in a write", Write, Fault::BitFlip { bit: 12_345 }),
        lifted("ENOSPC on writes, then room", Write, full.clone()),
        lifted("ENOSPC half-way through writes, then room", Write, Fault::HalfFull),
        Kind {
            when: third,
            ..lifted("ENOSPC half-way through every third write, then room", Write, Fault::HalfFull)
        },
        lifted("ENOSPC on growth, then room", SetLen, full.clone()),
        lifted("ENOSPC on opening files, then room", Open, full.clone()),
        lifted("ENOSPC on renames, then room", Rename, full),
    ]
}

impl Kind {
    /// Returns whether the device reports success for writes that it loses. No database can prevent the loss
    /// of data then, but the database must notice the loss.
    pub fn is_a_lie(&self) -> bool {
        matches!(self.fault, Fault::Lost | Fault::Misdirected { .. })
            || self.operation == Operation::Write && matches!(self.fault, Fault::BitFlip { .. })
    }

    /// Returns the spaces on which the fault is tried. Operations on directories have no space.
    pub fn spaces(&self) -> Vec<Option<Space>> {
        match self.operation {
            Operation::SyncDirectory | Operation::Rename => vec![None],
            // Files of sort runs do not belong to the pager, so the database continues after a panic there.
            _ if self.fault == Fault::Panics => {
                let of_pager = Space::ALL.into_iter().filter(|space| *space != Space::Temporary);
                of_pager.map(Some).collect()
            }
            _ => Space::ALL.into_iter().map(Some).collect(),
        }
    }
}

/// Makes a subject. Each run has its own subject, because a run that hangs keeps its subject.
pub type Make = fn() -> Box<dyn Subject + Send>;

/// Tries a kind of fault on a space at operation `first`, `first + step`, ... until the workload ends before
/// the fault happens.
pub fn sweep(make: Make, kind: &Kind, space: Option<Space>, seed: u64, first: u64, step: u64) -> Row {
    let mut row = Row::default();
    for n in (first..NUMBERS_MAX).step_by(step as usize) {
        let rule =
            Rule { operation: Some(kind.operation), space, when: (kind.when)(n), fault: kind.fault.clone() };
        let tried = if kind.lifted {
            one_lifted(make, seed, rule, n)
        } else {
            one(make, seed, rule, kind.is_a_lie())
        };
        let Some((outcome, what)) = tried else { break };
        row.counts[outcome as usize] += 1;
        if outcome >= Outcome::Failed {
            row.failures.push(what);
        }
        if outcome == Outcome::Hung {
            break;
        }
    }
    row
}

/// Runs the workload once. `None` means that the fault did not happen.
fn one(make: Make, seed: u64, rule: Rule, kind_lies: bool) -> Option<(Outcome, String)> {
    let said = format!("seed {seed}, {rule:?}");
    let Some(tried) = within(HANG, move || try_fault(&*make(), seed, &rule)) else {
        return Some((Outcome::Hung, said));
    };
    if !tried.fired {
        return None;
    }
    if let Some(failure) = tried.found.failures.into_iter().next() {
        let said = failure.what;
        let is_noticed = said.contains("cannot be used: ") || said.contains("the check finds");
        return Some(match (kind_lies, is_noticed) {
            (true, true) => (Outcome::Noticed, said),
            (true, false) => (Outcome::Deceived, said),
            (false, _) => (Outcome::Failed, said),
        });
    }
    let outcome = match &tried.error {
        Some(what) if what.contains(STOPPED) => Outcome::Stopped,
        Some(_) => Outcome::CleanError,
        None => Outcome::Right,
    };
    Some((outcome, said))
}

/// Runs the workload once with a fault that ends. Every second run ends with a clean shutdown. The database
/// may stop only if its log could not be written.
fn one_lifted(make: Make, seed: u64, rule: Rule, n: u64) -> Option<(Outcome, String)> {
    let said = format!("seed {seed}, {rule:?}");
    let of_log = rule.space == Some(Space::Log) && rule.operation == Some(Operation::Write);
    let tried = within(HANG, move || try_relieved_fault(&*make(), seed, &rule, n % 2 == 1));
    let Some((tried, is_made_again)) = tried else { return Some((Outcome::Hung, said)) };
    if !tried.fired {
        return None;
    }
    if let Some(failure) = tried.found.failures.into_iter().next() {
        return Some((Outcome::Failed, failure.what));
    }
    let outcome = match &tried.error {
        Some(what) if what.contains(STOPPED) && of_log => Outcome::Stopped,
        Some(what) if what.contains(STOPPED) => {
            return Some((Outcome::Failed, format!("{said}: it stopped: {what}")));
        }
        _ if is_made_again => Outcome::MadeAgain,
        Some(_) => Outcome::WentOn,
        None => Outcome::Right,
    };
    Some((outcome, said))
}

/// Returns the result of `work`, if `work` returns within the limit.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let _nobody_waits_any_more = done.send(work());
    });
    wait.recv_timeout(limit).ok()
}
