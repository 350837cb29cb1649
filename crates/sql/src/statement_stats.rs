//! Statistics of statements, by their text without literals, for `pg_stat_statements`.
//!
//! Invariants
//! 1. The number of entries is limited. If there are too many, those that were used least are removed.
//! 2. While the statistics are off, a statement costs one relaxed load.
//! 3. Only statements without an error are counted.
//! 4. The sums of all statements never fall, also if entries are removed.
//!
//! This module does not know how statements run, or how literals are removed from a text.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use varve_engine::{ObjectId, PageCounting, PageCounts};

/// The default limit of entries, if the statistics are on.
pub const ENTRIES: usize = 1000;

/// The most bytes of a text that are kept.
const TEXT_BYTES_MAX: usize = 8192;
/// One of this many entries is removed when there are too many.
const REMOVED_PART: usize = 20;

/// What tells statements apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatementKey {
    /// The role that ran it.
    pub user: ObjectId,
    /// The database.
    pub database: ObjectId,
    /// A number that is made of the text. It is the same in each process.
    pub query_id: i64,
}

impl StatementKey {
    /// Returns the key of a text without literals.
    pub fn of(user: ObjectId, database: ObjectId, text: &str) -> StatementKey {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        StatementKey { user, database, query_id: hasher.finish().cast_signed() }
    }
}

/// The sums of all runs of a statement. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StatementTotals {
    /// The number of runs.
    pub calls: u64,
    /// The sum of times.
    pub total_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// The average time.
    pub mean_ms: f64,
    /// The sum of squared differences to the average.
    pub squares: f64,
    /// The rows that were returned or changed.
    pub rows: u64,
    /// The pages that were used, by level.
    pub pages: PageCounts,
    /// The bytes of temporary files.
    pub temporary_bytes: u64,
}

impl StatementTotals {
    /// Returns the standard deviation of the times, in milliseconds.
    pub fn deviation_ms(&self) -> f64 {
        if self.calls < 2 { 0.0 } else { (self.squares / self.calls as f64).sqrt() }
    }

    /// Adds a run, with Welford's method for the deviation.
    fn add(&mut self, run: &StatementRun) {
        let took_ms = run.took.as_secs_f64() * 1000.0;
        self.calls += 1;
        self.total_ms += took_ms;
        self.min_ms = if self.calls == 1 { took_ms } else { self.min_ms.min(took_ms) };
        self.max_ms = self.max_ms.max(took_ms);
        let before = self.mean_ms;
        self.mean_ms += (took_ms - before) / self.calls as f64;
        self.squares += (took_ms - before) * (took_ms - self.mean_ms);
        self.rows += run.rows;
        self.pages += run.pages;
        self.temporary_bytes += run.temporary_bytes;
    }
}

/// One run of a statement.
#[derive(Debug, Clone, Copy)]
pub struct StatementRun {
    /// Its time.
    pub took: Duration,
    /// The rows that it returned or changed.
    pub rows: u64,
    /// The pages that it used.
    pub pages: PageCounts,
    /// The bytes of its temporary files.
    pub temporary_bytes: u64,
}

/// The statistics of one statement.
#[derive(Debug)]
pub struct StatementEntry {
    /// The key.
    pub key: StatementKey,
    /// The text without literals.
    pub text: Box<str>,
    totals: Mutex<StatementTotals>,
    /// Whether the entry was removed. Then a session looks the statement up again.
    is_removed: AtomicBool,
}

impl StatementEntry {
    /// Returns the sums of all runs.
    pub fn totals(&self) -> StatementTotals {
        *self.totals.lock()
    }

    /// Adds a run. Returns false if the entry was removed.
    pub fn add(&self, run: &StatementRun) -> bool {
        self.totals.lock().add(run);
        !self.is_removed.load(Ordering::Relaxed)
    }

    /// Marks the entry as removed, and adds its totals to `sums`.
    fn remove(&self, sums: &mut StatementSums) {
        self.is_removed.store(true, Ordering::Relaxed);
        sums.add(&self.totals.lock());
    }
}

/// When the statistics began, and how often entries were removed.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatementsInfo {
    /// The number of times that entries were removed because there were too many.
    pub removals: u64,
    /// The time of the last reset of all entries, in microseconds since 2000-01-01 UTC.
    pub reset_us: Option<i64>,
}

/// The sums of all statements that were counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StatementSums {
    /// The number of runs.
    pub calls: u64,
    /// The sum of times, in milliseconds.
    pub total_ms: f64,
    /// The rows that were returned or changed.
    pub rows: u64,
}

impl StatementSums {
    fn add(&mut self, totals: &StatementTotals) {
        self.calls += totals.calls;
        self.total_ms += totals.total_ms;
        self.rows += totals.rows;
    }
}

/// The statistics of all statements.
#[derive(Debug, Default)]
pub struct StatementStats {
    entries_max: AtomicUsize,
    entries: RwLock<FxHashMap<StatementKey, Arc<StatementEntry>>>,
    info: Mutex<StatementsInfo>,
    /// The sums of the entries that were removed. It changes under the write lock of `entries`.
    removed: Mutex<StatementSums>,
    /// Makes the pager count pages, while the statistics are on.
    counting: Mutex<Option<PageCounting>>,
}

impl StatementStats {
    /// Sets the limit of entries. 0 switches the statistics off, and keeps the entries.
    pub fn set_max(&self, entries_max: usize) {
        let mut counting = self.counting.lock();
        self.entries_max.store(entries_max, Ordering::Relaxed);
        match (entries_max, counting.is_some()) {
            (0, _) => *counting = None,
            (_, true) => {}
            (_, false) => *counting = Some(PageCounting::start()),
        }
    }

    /// Returns whether statements are counted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.entries_max.load(Ordering::Relaxed) != 0
    }

    /// Returns the entry of a key, and makes it if there is none.
    pub fn entry(&self, key: StatementKey, text: &str) -> Arc<StatementEntry> {
        if let Some(entry) = self.entries.read().get(&key) {
            return Arc::clone(entry);
        }
        let mut entries = self.entries.write();
        let entries_max = self.entries_max.load(Ordering::Relaxed).max(1);
        if entries.len() >= entries_max && !entries.contains_key(&key) {
            remove_least(&mut entries, entries_max, &mut self.removed.lock());
            self.info.lock().removals += 1;
        }
        let new = || {
            let text = text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
            Arc::new(StatementEntry {
                key,
                text,
                totals: Mutex::default(),
                is_removed: AtomicBool::new(false),
            })
        };
        Arc::clone(entries.entry(key).or_insert_with(new))
    }

    /// Returns all entries.
    pub fn entries(&self) -> Vec<Arc<StatementEntry>> {
        self.entries.read().values().cloned().collect()
    }

    /// Returns the sums of all statements that were counted, also of those whose entries were removed.
    pub fn sums(&self) -> StatementSums {
        let entries = self.entries.read();
        let mut sums = *self.removed.lock();
        entries.values().for_each(|entry| sums.add(&entry.totals.lock()));
        sums
    }

    /// Returns when the statistics began, and how often entries were removed.
    pub fn info(&self) -> StatementsInfo {
        *self.info.lock()
    }

    /// Removes the entries for which `is_meant` is true. `now_us` is given if these are all entries.
    pub fn reset(&self, is_meant: impl Fn(&StatementKey) -> bool, now_us: Option<i64>) {
        let mut entries = self.entries.write();
        let mut removed = self.removed.lock();
        entries.retain(|key, entry| {
            let stays = !is_meant(key);
            if !stays {
                entry.remove(&mut removed);
            }
            stays
        });
        if let Some(now_us) = now_us {
            *self.info.lock() = StatementsInfo { removals: 0, reset_us: Some(now_us) };
        }
    }
}

/// Removes the entries that were used least, so that there are fewer than the limit.
fn remove_least(
    entries: &mut FxHashMap<StatementKey, Arc<StatementEntry>>,
    entries_max: usize,
    sums: &mut StatementSums,
) {
    let mut used: Vec<(u64, StatementKey)> =
        entries.iter().map(|(key, entry)| (entry.totals.lock().calls, *key)).collect();
    used.sort_unstable_by_key(|(calls, _)| *calls);
    let removed = (entries.len() + 1).saturating_sub(entries_max).max(entries_max / REMOVED_PART);
    for (_, key) in used.into_iter().take(removed) {
        if let Some(entry) = entries.remove(&key) {
            entry.remove(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ObjectId = ObjectId(10);

    fn run(millis: u64, rows: u64) -> StatementRun {
        let took = Duration::from_millis(millis);
        StatementRun { took, rows, pages: PageCounts::default(), temporary_bytes: 0 }
    }

    #[test]
    fn sums_are_those_of_all_runs() {
        let stats = StatementStats::default();
        stats.set_max(10);
        let entry = stats.entry(StatementKey::of(ME, ME, "select $1"), "select $1");
        [(2, 1), (4, 0), (6, 5)].into_iter().for_each(|(ms, rows)| assert!(entry.add(&run(ms, rows))));
        let totals = entry.totals();
        assert_eq!((totals.calls, totals.rows), (3, 6));
        assert_eq!((totals.min_ms, totals.max_ms, totals.mean_ms), (2.0, 6.0, 4.0));
        assert!((totals.deviation_ms() - 1.633).abs() < 0.001, "{totals:?}");
    }

    #[test]
    fn the_number_of_entries_is_limited_and_those_used_most_stay() {
        let stats = StatementStats::default();
        stats.set_max(20);
        let entry = |n: u64| {
            let text = format!("select {n}");
            stats.entry(StatementKey::of(ME, ME, &text), &text)
        };
        for (n, _) in (0..20).flat_map(|n| (0..=n).map(move |again| (n, again))) {
            let _ = entry(n).add(&run(1, 1));
        }
        let least = entry(0);
        let before = stats.sums();
        assert_eq!((before.calls, before.rows), (210, 210));
        entry(100);
        assert_eq!(stats.sums(), before, "the sums have the removed entries");
        assert_eq!((stats.entries().len(), stats.info().removals), (20, 1));
        assert!(!least.add(&run(1, 1)), "it was removed");
        assert_eq!(entry(19).totals().calls, 20);
        stats.reset(|_| true, Some(7));
        assert!(stats.entries().is_empty() && stats.info().reset_us == Some(7));
        assert_eq!(stats.sums().calls, before.calls);
        stats.set_max(0);
        assert!(!stats.is_on());
    }
}
