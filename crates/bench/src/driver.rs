//! Runs a workload on a database: starts threads, warms up, measures rounds, and collects latencies.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::database::MeasuredDatabase;
use crate::random::Random;
use crate::workload::{TransactionKind, Workload};
use crate::{BenchError, Result};

/// The length of a measurement, and the number of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// The number of sessions. Each session has a thread of its own.
    pub threads: usize,
    /// The number of rounds. Each round is measured separately.
    pub rounds: usize,
    /// Seconds of a round.
    pub seconds: u64,
    /// Seconds of an unmeasured round that runs before the first one.
    pub warm_seconds: u64,
}

/// The results of a round.
#[derive(Debug, Clone)]
pub struct Round {
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Transactions that were run again after a serialization failure, a deadlock, or a duplicate key.
    pub restarted: u64,
    /// The wall time of the round.
    pub elapsed: Duration,
    /// Latencies of all transactions in microseconds, with 3 significant digits.
    pub latency_us: Histogram<u64>,
    /// Latencies of each kind of transaction. The list is empty if the workload has one kind only.
    pub kinds: Vec<(TransactionKind, Histogram<u64>)>,
}

impl Round {
    fn new(kinds: &[TransactionKind]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, histogram())).collect();
        Self { transactions: 0, restarted: 0, elapsed: Duration::ZERO, latency_us: histogram(), kinds }
    }

    fn record(&mut self, kind: usize, took: Duration) {
        let took_us = took.as_micros() as u64;
        self.transactions += 1;
        self.latency_us.saturating_record(took_us);
        if let Some((_, latency_us)) = self.kinds.get_mut(kind) {
            latency_us.saturating_record(took_us);
        }
    }

    /// Returns the transactions a second.
    pub fn tps(&self) -> f64 {
        self.transactions as f64 / self.elapsed.as_secs_f64()
    }

    fn add(&mut self, other: &Round) {
        self.transactions += other.transactions;
        self.restarted += other.restarted;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.latency_us += &other.latency_us;
        for ((_, mine), (_, theirs)) in self.kinds.iter_mut().zip(&other.kinds) {
            *mine += theirs;
        }
    }
}

/// Returns a histogram of times up to [`TIME_MAX`], in any unit. A longer time is counted as [`TIME_MAX`].
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX, 3).expect("the bounds and digits are within what is allowed")
}

/// The longest time of a histogram: an hour if it counts microseconds, 3.6 seconds if it counts nanoseconds.
const TIME_MAX: u64 = 3_600_000_000;

/// Runs all rounds of a loaded workload.
pub fn run(target: &dyn MeasuredDatabase, workload: &dyn Workload, plan: Plan) -> Result<Vec<Round>> {
    if plan.warm_seconds > 0 {
        round(target, workload, plan, Duration::from_secs(plan.warm_seconds), 0)?;
    }
    (1..=plan.rounds as u64)
        .map(|seed| round(target, workload, plan, Duration::from_secs(plan.seconds), seed))
        .collect()
}

/// An observer of a round.
pub struct RoundObserver<'w> {
    /// The number of calls of `look`. The calls are at equal intervals.
    pub looks: u32,
    /// This function is called at each interval. Its argument is a function that returns the number of
    /// transactions that have succeeded so far. The round continues meanwhile. The observer may end the round
    /// by its result.
    pub look: &'w mut dyn FnMut(&dyn Fn() -> u64) -> ControlFlow<()>,
}

/// Runs one round of this length on new sessions. `seed` determines the requests of the sessions.
pub fn round(
    target: &dyn MeasuredDatabase,
    workload: &dyn Workload,
    plan: Plan,
    length: Duration,
    seed: u64,
) -> Result<Round> {
    round_watched(target, workload, plan, length, seed, None)
}

/// Runs one round like [`round`], perhaps with an observer.
pub fn round_watched(
    target: &dyn MeasuredDatabase,
    workload: &dyn Workload,
    plan: Plan,
    length: Duration,
    seed: u64,
    watch: Option<RoundObserver<'_>>,
) -> Result<Round> {
    let done = AtomicU64::new(0);
    let done = watch.is_some().then_some(&done);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(plan.threads + 1));
    let sum = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads as u64)
            .map(|number| {
                let random = Random::seeded(seed << 32 | number);
                let signals = SessionSignals { start: &start, stop: &stop, all_done: done };
                scope.spawn(move || session(target, workload, random, signals))
            })
            .collect();
        start.wait();
        wait(length, watch, done);
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?);
        joined.collect::<Result<Vec<Round>>>()
    })?;
    Ok(sum.iter().fold(Round::new(workload.kinds()), |mut all, one| {
        all.add(one);
        all
    }))
}

/// Waits until the time of a round is over, or until the observer ends the round.
fn wait(length: Duration, watch: Option<RoundObserver<'_>>, done: Option<&AtomicU64>) {
    let Some(watch) = watch else { return std::thread::sleep(length) };
    for _ in 0..watch.looks {
        std::thread::sleep(length / watch.looks);
        if (watch.look)(&|| done.map_or(0, |done| done.load(Ordering::Relaxed))).is_break() {
            return;
        }
    }
}

fn panicked() -> BenchError {
    BenchError::Connection("a session's thread panicked".to_owned())
}

/// The values that the threads of a round share.
struct SessionSignals<'a> {
    /// All sessions wait at this barrier, so that they begin together.
    start: &'a Barrier,
    /// Whether the sessions are to end. Each session reads this flag.
    stop: &'a AtomicBool,
    /// The number of transactions of all sessions that have succeeded. It is counted only if the round has an
    /// observer.
    all_done: Option<&'a AtomicU64>,
}

/// Runs one session until `stop` is set. Every session waits at the barrier, even if it could not connect:
/// otherwise the other sessions would wait there forever.
fn session(
    target: &dyn MeasuredDatabase,
    workload: &dyn Workload,
    mut random: Random,
    signals: SessionSignals<'_>,
) -> Result<Round> {
    let SessionSignals { start, stop, all_done } = signals;
    let connected = target.connect(&workload.statements());
    start.wait();
    let mut connection = connected?;
    let mut done = Round::new(workload.kinds());
    let began = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let kind = workload.next_kind(&mut random);
        let (first, drawn) = (Instant::now(), random.clone());
        while let Err(error) = workload.transaction(kind, connection.as_mut(), &mut random) {
            if !workload.is_retryable(&error) {
                return Err(error);
            }
            workload.rollback(connection.as_mut())?;
            random = drawn.clone();
            done.restarted += 1;
        }
        done.record(kind, first.elapsed());
        if let Some(all) = all_done {
            all.fetch_add(1, Ordering::Relaxed);
        }
    }
    done.elapsed = began.elapsed();
    Ok(done)
}
