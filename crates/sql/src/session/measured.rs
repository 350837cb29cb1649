//! Measures the statements of a session, for `pg_stat_statements`.
//!
//! Invariants
//! 1. If the statistics are off, a statement costs one relaxed load.
//!
//! This module does not know where the measurements are kept (`crate::statement_stats`).

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use varve_engine::{BOOTSTRAP_ROLE, ObjectId, PageCounts, PageMeter};

use super::Session;
use crate::parse;
use crate::prepared::{Body, Prepared};
use crate::sink::CommandTag;
use crate::statement_stats::{StatementEntry, StatementKey, StatementRun};
use crate::utility::Utility;

/// The most entries that a session remembers.
const REMEMBERED_MAX: usize = 1024;

/// The state of a session's measurements.
#[derive(Default)]
pub(super) struct Measuring {
    /// The entries of statements, by the number of the prepared statement and the role.
    entries: FxHashMap<(u64, ObjectId), Arc<StatementEntry>>,
    /// Whether a statement is measured that runs now.
    pub(super) is_active: bool,
}

/// The state when a statement began.
pub(super) struct Measured {
    began: Instant,
    pages: PageCounts,
    temporary_bytes: u64,
}

impl Session {
    /// Begins to measure a statement, if statements are measured. EXECUTE is not measured, because the
    /// statement that it runs is. A statement that runs within a measured one is not measured, such as the
    /// INSERT of CREATE TABLE AS.
    #[inline]
    pub(super) fn measure(&self, prepared: &Prepared) -> Option<Measured> {
        let is_on = self.shared.statements().is_on() && !self.measuring.is_active;
        let counts = || !matches!(prepared.body, Body::Empty | Body::Utility(Utility::Execute(..)));
        (is_on && counts()).then(|| Measured {
            began: Instant::now(),
            pages: PageMeter::counts(),
            temporary_bytes: self.temporary.taken_bytes(),
        })
    }

    /// Records a statement that has ended.
    pub(super) fn record(&mut self, prepared: &Prepared, measured: &Measured, tag: &CommandTag) {
        let run = StatementRun {
            took: measured.began.elapsed(),
            rows: rows_of(tag),
            pages: PageMeter::counts() - measured.pages,
            temporary_bytes: self.temporary.taken_bytes().saturating_sub(measured.temporary_bytes),
        };
        let user = self.facts.who.unwrap_or(BOOTSTRAP_ROLE);
        let place = (prepared.id, user);
        let is_current = self.measuring.entries.get(&place).is_some_and(|entry| entry.add(&run));
        if !is_current {
            self.remember(prepared, place).add(&run);
        }
    }

    /// Looks up the entry of a statement.
    fn remember(&mut self, prepared: &Prepared, place: (u64, ObjectId)) -> Arc<StatementEntry> {
        if self.measuring.entries.len() >= REMEMBERED_MAX {
            self.measuring.entries.clear();
        }
        let text = without_literals(&prepared.sql);
        let key = StatementKey::of(place.1, self.facts.database_id, &text);
        let entry = self.shared.statements().entry(key, &text);
        self.measuring.entries.insert(place, Arc::clone(&entry));
        entry
    }
}

/// Returns a statement with a parameter in place of each literal. A text that cannot be parsed stays as it
/// is.
pub fn without_literals(sql: &str) -> String {
    let normalized = parse::on_deep_stack(sql, || pg_query::normalize(sql).ok());
    normalized.unwrap_or_else(|| sql.to_owned()).trim().to_owned()
}

/// Returns the number of rows that a statement returned or changed.
fn rows_of(tag: &CommandTag) -> u64 {
    match *tag {
        CommandTag::Select(rows)
        | CommandTag::Insert(rows)
        | CommandTag::Update(rows)
        | CommandTag::Delete(rows)
        | CommandTag::Copy(rows)
        | CommandTag::Fetch(rows)
        | CommandTag::Move(rows) => rows,
        CommandTag::Plain(_) | CommandTag::Empty => 0,
    }
}
