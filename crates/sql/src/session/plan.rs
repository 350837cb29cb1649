//! Makes a `Prepared` of a text. The text is looked up in the caches, or else parsed and bound.
//!
//! Invariants
//! 1. If the transaction has changed the catalog, its new plans are not put into the shared cache.
//! 2. A text that parses or binds with errors is never cached.
//!
//! This module does not know how plans are executed.

use std::sync::Arc;

use varve_engine::{Catalog, planted_panic};

use super::Session;
use crate::ast::{AsOfClause, Statement, With};
use crate::bind::dml::BoundDml;
use crate::bind::locked_queries::LockedQuery;
use crate::bind::{Binder, Scope};
use crate::cache;
use crate::error::{Result, SqlError, SqlState};
use crate::oid::Oid;
use crate::parse::{self, Parsed};
use crate::path::Path;
use crate::plan::Plan;
use crate::prepared::{Before, Body, MomentOf, Prepared};
use crate::rights::Need;
use crate::sink::{Column, Severity};
use crate::ty::{Ty, Typed};
use crate::utility::Utility;
use crate::utility::explain::shifted;

/// The result of binding a statement: types of parameters, columns, the plan, and the things that the plan
/// depends on.
type BoundParts = (Vec<Ty>, Option<Vec<Column>>, Body, Reads);

/// The things that a plan depends on, in addition to the tables that it opens.
pub(super) struct Reads {
    /// Whether the plan reads the catalog when it runs.
    pub(super) world: bool,
    /// Whether the plan is valid for this version of the catalog only.
    pub(super) of_version: bool,
    /// Whether the plan has a parameter that is an interval with fields.
    pub(super) interval_fields: bool,
    /// The relations that the plan reads in FROM, each with the role whose rights count.
    pub(super) needs: Vec<Need>,
    /// Locking subqueries that run before the plan.
    pub(super) locked: Vec<LockedQuery>,
    /// The moment that the plan reads, if that is not the present.
    pub(super) as_of: Option<MomentOf>,
}

impl Session {
    /// Prepares a statement for the extended protocol. An entry of a cache is used only if it was planned
    /// with the current catalog.
    pub(super) fn prepare_current(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        let hash = self.hash(sql, types);
        if !self.is_failed()
            && let Some(found) = self.cached(hash, sql, types)
        {
            let fresh = !matches!(found.body, Body::Plan(_))
                || found.catalog_version == self.current_catalog().version();
            if fresh {
                return Ok(found);
            }
        }
        self.build_cached(hash, sql, types)
    }

    /// Prepares a statement for the simple protocol. An entry of a cache may be out of date. This is found
    /// when its tables are opened.
    pub(super) fn prepare_any(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        let hash = self.hash(sql, types);
        if let Some(found) = self.plans.find(hash, sql, types, self.facts.path.number()) {
            return Ok(found.clone());
        }
        match self.cached(hash, sql, types) {
            Some(found) => Ok(found),
            None => self.build_cached(hash, sql, types),
        }
    }

    /// Plans a statement again after the catalog has changed.
    pub(super) fn prepare_again(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        self.catalog = None;
        let hash = self.hash(sql, types);
        self.build_cached(hash, sql, types)
    }

    /// Returns the hash of a statement and of the current search path.
    fn hash(&mut self, sql: &str, types: &[Oid]) -> u64 {
        if self.path.entries.is_none() {
            self.find_path();
        }
        cache::hash(sql, types, self.facts.path.number())
    }

    fn cached(&mut self, hash: u64, sql: &str, types: &[Oid]) -> Option<Arc<Prepared>> {
        let path = self.facts.path.number();
        if let Some(found) = self.plans.find(hash, sql, types, path) {
            return Some(found.clone());
        }
        if self.defines {
            return None;
        }
        let found = self.shared_plans.read().find(hash, sql, types, path).cloned()?;
        self.plans.put(hash, found.clone());
        Some(found)
    }

    fn build_cached(&mut self, hash: u64, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        self.tell_cut_names(sql);
        let mut prepared = self.build(sql, types)?;
        prepared.path = self.facts.path.number();
        let prepared = Arc::new(prepared);
        if matches!(prepared.body, Body::Plan(_) | Body::Empty) || is_short_command(&prepared.body) {
            self.plans.put(hash, prepared.clone());
            if !self.defines {
                self.shared_plans.write().put(hash, prepared.clone());
            }
        }
        Ok(prepared)
    }

    /// Adds notices about names that are too long, unless they were added when the same text was parsed
    /// before.
    fn tell_cut_names(&mut self, sql: &str) {
        let told = self.notices.iter().any(|(_, notice)| notice.sqlstate == SqlState::NAME_TOO_LONG);
        for (name, kept) in if told { Vec::new() } else { parse::cut_names(sql) } {
            let message = format!("identifier \"{name}\" will be truncated to \"{kept}\"");
            self.notices.push((Severity::Notice, SqlError::new(SqlState::NAME_TOO_LONG, message)));
        }
    }

    /// Returns the catalog of the transaction. Begins the transaction if there is none.
    pub(super) fn current_catalog(&mut self) -> Arc<Catalog> {
        if let Some(catalog) = &self.catalog {
            return catalog.clone();
        }
        let catalog = self.begin_engine().catalog();
        if self.in_block() && self.defines {
            return catalog;
        }
        catalog
    }

    pub(super) fn build(&mut self, sql: &str, types: &[Oid]) -> Result<Prepared> {
        parse::on_deep_stack(sql, || self.build_here(sql, types))
    }

    fn build_here(&mut self, sql: &str, types: &[Oid]) -> Result<Prepared> {
        let (parsed, as_of) = parse::statement_as_of(sql, Some(&self.facts.database))?;
        planted_panic("panic at parse");
        if self.is_failed() && !ends_failure(&parsed) {
            return Err(in_failed_transaction());
        }
        let statement = match parsed {
            Parsed::Empty => return Ok(Prepared::new(sql, types, Vec::new(), None, Body::Empty, 0)),
            Parsed::Utility(Utility::Declare(declare)) => {
                let inner = self.build(&declare.query, types);
                let inner =
                    inner.map_err(|e| SqlError { position: e.position.map(|p| p + declare.before), ..e })?;
                let params = inner.param_types.to_vec();
                return Ok(Prepared::new(
                    sql,
                    types,
                    params,
                    None,
                    Body::Utility(Utility::Declare(declare)),
                    0,
                ));
            }
            Parsed::Utility(Utility::Explain(explain)) => {
                let inner = self.build(&explain.text, types);
                let params = inner.map_err(|e| shifted(e, explain.before))?.param_types.to_vec();
                let columns = Some(super::explain::columns(&explain.options));
                let body = Body::Utility(Utility::Explain(explain));
                return Ok(Prepared::new(sql, types, params, columns, body, 0));
            }
            Parsed::Utility(command) => {
                let columns = self.command_columns(&command)?;
                return Ok(Prepared::new(sql, types, Vec::new(), columns, Body::Utility(command), 0));
            }
            Parsed::Definition(definition) => {
                return Ok(Prepared::new(sql, types, Vec::new(), None, Body::Definition(definition), 0));
            }
            Parsed::Sql(statement) => statement,
        };
        let catalog = self.current_catalog();
        self.follow_catalog(&catalog);
        self.bound_as_of(sql, types, (&statement, as_of.as_ref()), &catalog)
    }

    /// Binds a statement with this catalog and the session's search path.
    pub(super) fn bound(
        &self,
        sql: &str,
        types: &[Oid],
        statement: &Statement,
        catalog: &Catalog,
    ) -> Result<Prepared> {
        self.bound_as_of(sql, types, (statement, None), catalog)
    }

    /// Binds a statement, and AS OF at its end.
    fn bound_as_of(
        &self,
        sql: &str,
        types: &[Oid],
        (statement, as_of): (&Statement, Option<&AsOfClause>),
        catalog: &Catalog,
    ) -> Result<Prepared> {
        let path = &self.facts.path;
        let (params, columns, body, reads) =
            bind((catalog, path), sql, types, (statement, as_of), self.shared.forced_general)?;
        let mut prepared = Prepared::new(sql, types, params, columns, body, catalog.version());
        (prepared.reads_world, prepared.is_of_version) = (reads.world, reads.of_version);
        prepared.has_interval_fields = reads.interval_fields;
        prepared.needs = reads.needs.into();
        prepared.as_of = reads.as_of.map(Box::new);
        prepared.path = path.number();
        let before = reads.locked.into_iter().map(|locked| {
            let LockedQuery { query, place, list_of } = locked;
            let body = Body::Plan(Plan::Select(query.select));
            let types = prepared.param_types.to_vec();
            let mut own =
                Prepared::new(sql, &prepared.declared, types, Some(query.columns), body, catalog.version());
            (own.reads_world, own.is_of_version) = (prepared.reads_world, prepared.is_of_version);
            (own.needs, own.path) = (prepared.needs.clone(), prepared.path);
            Before { prepared: Arc::new(own), place, list_of }
        });
        prepared.before = before.collect();
        Ok(prepared)
    }

    fn command_columns(&mut self, command: &Utility) -> Result<Option<Vec<Column>>> {
        Ok(match command {
            Utility::Show(name) => Some(super::command::show_columns(name)),
            Utility::Explain(explain) => Some(super::explain::columns(&explain.options)),
            // If the cursor does not exist, the execution reports this.
            Utility::Fetch { name, moves: false, .. } => {
                self.cursor_columns(name).map(|(columns, _)| columns.to_vec())
            }
            Utility::Execute(name, _) => self.statement(name)?.columns().map(<[Column]>::to_vec),
            _ => None,
        })
    }

    pub(super) fn is_failed(&self) -> bool {
        self.block == super::Block::Failed
    }
}

/// Returns whether this is a command that clients repeat often, so that it is kept in the cache.
fn is_short_command(body: &Body) -> bool {
    use Utility::{Begin, Checkpoint, Commit, Release, Rollback, RollbackTo, Savepoint, Set, Show};
    matches!(
        body,
        Body::Utility(
            Begin(..)
                | Commit { .. }
                | Rollback { .. }
                | Savepoint(_)
                | Release(_)
                | RollbackTo(_)
                | Set { .. }
                | Show(_)
                | Checkpoint
        )
    )
}

fn ends_failure(parsed: &Parsed) -> bool {
    use Utility::{Commit, Rollback, RollbackTo};
    matches!(parsed, Parsed::Utility(Commit { .. } | Rollback { .. } | RollbackTo(_)) | Parsed::Empty)
}

/// Returns the error 25P02: the transaction block has failed.
pub(super) fn in_failed_transaction() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::IN_FAILED_TRANSACTION, message)
}

/// Binds a SELECT, INSERT, UPDATE or DELETE. With `forced`, the runner of general queries gets every query
/// that it can run.
fn bind(
    (catalog, path): (&Catalog, &Path),
    sql: &str,
    types: &[Oid],
    (statement, as_of): (&Statement, Option<&AsOfClause>),
    forced: bool,
) -> Result<BoundParts> {
    let mut b = Binder::new(catalog, sql, types)?.along(path);
    b.hold_locked();
    if forced {
        b.force_general();
    }
    let (plan, columns) = match statement {
        Statement::Query(q) => {
            let bound = b.query(q)?;
            (Plan::Select(bound.select), Some(bound.columns))
        }
        Statement::Insert(i) => change(&mut b, i.with.as_ref(), |b| b.insert(i))?,
        Statement::Update(u) => change(&mut b, u.with.as_ref(), |b| b.update(u))?,
        Statement::Delete(d) => change(&mut b, d.with.as_ref(), |b| b.delete(d))?,
    };
    let as_of = as_of.map(|as_of| moment_of(&mut b, as_of)).transpose()?;
    // While a statement reads rows, it takes values from sequences outside of its transaction, for which it
    // needs the system context. An INSERT of VALUES reads no rows, so it takes them within the transaction.
    let beside = b.calls_sequences && (!matches!(plan, Plan::Insert(_)) || plan.general().is_some());
    let (needs, locked) = (b.take_needs(), b.take_locked());
    let (world, of_version) = (b.reads_world || beside, b.is_of_version());
    let reads = Reads { world, of_version, interval_fields: b.has_interval_fields, needs, locked, as_of };
    Ok((b.param_types()?, columns, Body::Plan(plan), reads))
}

/// Binds AS OF after the query was bound, so that both use the same parameters.
fn moment_of(b: &mut Binder<'_>, as_of: &AsOfClause) -> Result<MomentOf> {
    let (is_lsn, expr) = match as_of {
        AsOfClause::Text(text) => return Ok(MomentOf::Text(text.clone())),
        AsOfClause::Expression { is_lsn, expr } => (*is_lsn, expr),
    };
    let mut scope = Scope { no_aggregates: Some("AS OF"), ..Scope::default() };
    let ty = if is_lsn { Ty::Text } else { Ty::TimestampTz };
    let bound = b.expression(expr, &mut scope).and_then(|bound| b.explicit(bound, Typed::plain(ty)));
    // Positions in the expression do not begin at the text of the statement.
    let expr = bound.map_err(|e| SqlError { position: None, ..e })?.expr;
    if expr.has_subquery() {
        return Err(SqlError::unsupported("a subquery in AS OF"));
    }
    Ok(MomentOf::Value(expr))
}

/// Binds a statement that changes rows, with the named queries of its WITH.
fn change<'c>(
    b: &mut Binder<'c>,
    with: Option<&With>,
    bind: impl FnOnce(&mut Binder<'c>) -> Result<BoundDml>,
) -> Result<(Plan, Option<Vec<Column>>)> {
    let bound = match with {
        Some(with) => b.with_named(with, bind)?,
        None => bind(b)?,
    };
    Ok((bound.plan, bound.columns))
}
