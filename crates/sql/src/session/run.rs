//! Runs statements: simple queries, portals, and the code that both share.
//!
//! Invariants
//! 1. A plan whose table definition is out of date is made again before the sink gets any output.
//! 2. In a text of several statements, the syntax of all of them is checked before the first one runs.
//!
//! This module does not know the rules of transaction blocks (`block`).

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use varve_engine::{Datum, Error as EngineError, LockStrength, Transaction, Value, planted_panic};

use super::authorize::{authorize_definition, own_what_is_new};
use super::command::OF_TRANSACTION;
use super::plan::in_failed_transaction;
use super::{Block, Session};
use crate::ast::Definition;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::keep_in;
use crate::exec::definition;
use crate::exec::lock::not_at_once;
use crate::exec::notice::{Failed, Notices};
use crate::exec::reference::Pending;
use crate::exec::{Exec, Facts, Opened};
use crate::oid;
use crate::parse;
use crate::plan::{Plan, Select, Source};
use crate::prepared::{Body, PendingRows, Portal, Prepared, trimmed};
use crate::scan::{Extent, Lifted, Literal, next_statement};
use crate::sink::{CommandTag, Progress, Sink};
use crate::system::SystemContext;
use crate::text;
use crate::time::{DateStyle, IntervalStyle, TimeForms};
use crate::ty::Ty;
use crate::utility::Utility;

/// Returns the newest plan of a prepared statement.
fn newest_of(prepared: &Arc<Prepared>) -> &Arc<Prepared> {
    let mut newest = prepared;
    while let Some(next) = newest.successor.get() {
        newest = next;
    }
    newest
}

/// The result of a run.
pub(super) enum Ran {
    /// The statement has run, with this command tag.
    Done(CommandTag),
    /// The plan is out of date. Nothing was done.
    Stale,
}

type Params<'a> = SmallVec<[Datum<'a>; 16]>;

impl Session {
    /// Runs the text of a Query message of the simple protocol.
    pub(super) fn run_text(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<()> {
        let mut lifted = Lifted::default();
        let Some(mut extent) = next_statement(sql, 0, &mut lifted) else {
            return sink.empty();
        };
        let mut probe = Lifted::default();
        if next_statement(sql, extent.next, &mut probe).is_some() {
            check_syntax(sql)?;
            self.enter_implicit();
        }
        loop {
            let mut following = Lifted::default();
            let next = next_statement(sql, extent.next, &mut following);
            let tag = self.run_piece(sql, extent, &lifted, sink)?;
            let ends_implicit =
                self.block == Block::Idle || (self.block == Block::Implicit && next.is_none());
            if ends_implicit {
                self.commit()?;
            }
            if !self.notices.is_empty() {
                self.flush_notices(sink);
            }
            sink.complete(&tag)?;
            match next {
                None => return Ok(()),
                Some(e) => (extent, lifted) = (e, following),
            }
            // COMMIT or ROLLBACK within the text ends the implicit block. The next statement begins another
            // one.
            self.enter_implicit();
            self.arm_next()?;
            sink.forms(&self.facts.forms);
            sink.encoding(self.facts.encoding);
        }
    }

    fn run_piece(
        &mut self,
        sql: &str,
        extent: Extent,
        lifted: &Lifted<'_>,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        if lifted.usable
            && !self.is_failed()
            && let Some(tag) = self.run_lifted(lifted, sink)?
        {
            return Ok(tag);
        }
        let shift = sql[..extent.start].chars().count() as u32;
        self.run_whole(sql, extent, sink)
            .map_err(|e| SqlError { position: e.position.map(|p| p + shift), ..e })
    }

    /// Runs a statement whose literals were replaced by parameters. Returns `None` if it cannot run in this
    /// form.
    fn run_lifted(&mut self, lifted: &Lifted<'_>, sink: &mut dyn Sink) -> Result<Option<CommandTag>> {
        let Ok(mut prepared) = self.prepare_any(&lifted.text, &lifted.types) else { return Ok(None) };
        if prepared.has_interval_fields {
            return Ok(None);
        }
        let repeats = |p: &Prepared| matches!(&p.body, Body::Plan(plan) if plan.repeats());
        if lifted.row_count > 1 && !repeats(&prepared) {
            return Ok(None);
        }
        let mut arena = std::mem::take(&mut self.literal_arena);
        let result = loop {
            let Some(params) = literal_values(&prepared, lifted, &self.facts.reading(), &arena) else {
                break Ok(None);
            };
            match self.run_announced(&prepared, &params, lifted.row_count, sink) {
                Ok(Ran::Done(tag)) => break Ok(Some(tag)),
                Ok(Ran::Stale) => match self.prepare_again(&lifted.text, &lifted.types) {
                    Ok(again) => prepared = again,
                    Err(_) => break Ok(None),
                },
                Err(e) => break Err(e),
            }
        };
        arena.reset();
        self.literal_arena = arena;
        result
    }

    fn run_whole(&mut self, sql: &str, extent: Extent, sink: &mut dyn Sink) -> Result<CommandTag> {
        let text = &sql[extent.start..extent.end];
        let mut prepared = self.prepare_any(text, &[])?;
        self.note_message(&prepared, sql);
        loop {
            if !prepared.param_types.is_empty() {
                let message = "there is no parameter $1";
                return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
            }
            match self.run_announced(&prepared, &[], 1, sink)? {
                Ran::Done(tag) => return Ok(tag),
                Ran::Stale => prepared = self.prepare_again(text, &[])?,
            }
        }
    }

    /// Stores the client's message if the statement is a PREPARE or DECLARE. System tables show it.
    fn note_message(&mut self, prepared: &Prepared, message: &str) {
        if matches!(prepared.body, Body::Utility(Utility::Prepare { .. } | Utility::Declare(_))) {
            self.message = message.into();
        }
    }

    /// Runs a statement, and announces its columns to the sink.
    fn run_announced(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        groups: usize,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        self.run(prepared, params, groups, true, sink)
    }

    /// Runs a portal for an Execute message of the extended protocol.
    pub(super) fn run_portal(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress> {
        if params.len() != prepared.param_types.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                params.len(),
                prepared.param_types.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        // A failed transaction gets neither new rows nor stored rows. It does not get the message either that
        // there are no more rows.
        if self.is_failed() && (portal.finished || portal.pending.is_some()) {
            return Err(in_failed_transaction());
        }
        if portal.finished {
            return Ok(Progress::Complete(CommandTag::Select(0)));
        }
        self.note_message(prepared, &prepared.sql);
        if portal.pending.is_none() && (max_rows == 0 || prepared.columns.is_none()) {
            portal.finished = true;
            return self.run_current(prepared, params, false, sink).map(Progress::Complete);
        }
        if portal.pending.is_none() {
            let mut rows = self.kept_rows();
            rows.binary = (0..prepared.columns().map_or(0, <[_]>::len)).map(|n| sink.is_binary(n)).collect();
            self.run_current(prepared, params, false, &mut rows)?;
            portal.pending = Some(PendingRows { rows, next: 0 });
        }
        hand_out(&self.facts, portal, max_rows, prepared, sink)
    }

    /// Runs the newest plan of a prepared statement. Fails if this plan returns other columns than the
    /// statement was prepared with.
    pub(super) fn run_current(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        let newest = newest_of(prepared);
        if let Ran::Done(tag) = self.run(newest, params, 1, announce, sink)? {
            return Ok(tag);
        }
        let mut again = self.replan(newest)?;
        loop {
            match self.run(&again, params, 1, announce, sink)? {
                Ran::Done(tag) => return Ok(tag),
                Ran::Stale => again = self.replan(&again)?,
            }
        }
    }

    /// Returns the plan of a prepared statement for the current catalog. If there is none, plans the
    /// statement again.
    pub(super) fn newest(&mut self, prepared: Arc<Prepared>) -> Result<Arc<Prepared>> {
        let newest = newest_of(&prepared).clone();
        let is_of_path = newest.path == self.facts.path.number();
        if is_of_path && newest.catalog_version == self.current_catalog().version() {
            return Ok(newest);
        }
        self.replan(&newest)
    }

    fn replan(&mut self, old: &Arc<Prepared>) -> Result<Arc<Prepared>> {
        // With a search path other than `public`, each definition of any session makes a new plan. A chain of
        // such plans would only grow, so these plans are not linked. The newest one is in the cache.
        let chains = old.path == 0 && self.facts.path.number() == 0;
        self.catalog = None;
        let again = match chains {
            true => self.prepare_again(&old.sql, &old.param_oids)?,
            false => self.prepare_current(&old.sql, &old.param_oids)?,
        };
        if again.columns != old.columns {
            let message = "cached plan must not change result type";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if !self.defines && chains && again.path == 0 {
            // Another session may have linked a plan first. That plan is equally good.
            let _ = old.successor.set(again.clone());
        }
        Ok(again)
    }

    /// Runs a statement. `groups` is more than 1 only for an INSERT of several rows that was planned as an
    /// INSERT of one row.
    pub(super) fn run(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        groups: usize,
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        // These statements bind defaults and conditions of tables only when they run, and such expressions
        // may read the catalog.
        let may_read_world = matches!(
            &prepared.body,
            Body::Definition(_)
                | Body::Utility(Utility::Copy(_) | Utility::Execute(..) | Utility::Explain(_))
        );
        if (prepared.reads_world || may_read_world) && !self.is_failed() {
            let mut world = self.world();
            let columns = prepared.columns.iter().flatten().enumerate();
            world.shows_oids =
                columns.filter(|(_, c)| oid::is_reg(c.type_oid)).any(|(n, _)| sink.is_binary(n));
            self.facts.world = Some(Arc::new(world));
        }
        let measured = self.measure(prepared);
        let is_within = self.measuring.is_active;
        self.measuring.is_active |= measured.is_some();
        let ran = self.run_body(prepared, params, groups, announce, sink);
        self.measuring.is_active = is_within;
        if let (Some(measured), Ok(Ran::Done(tag))) = (measured, &ran) {
            self.record(prepared, &measured, tag);
        }
        if prepared.as_of.is_some() && ran.is_ok() {
            self.come_back()?;
        }
        match self.facts.world.take() {
            Some(world) if ran.is_ok() => self.do_asked(&world).and(ran),
            _ => ran,
        }
    }

    /// Does the work that functions of the statement have requested.
    fn do_asked(&mut self, world: &SystemContext) -> Result<()> {
        let asked = std::mem::take(&mut *world.asked.lock());
        asked.warnings.iter().for_each(|warning| self.warn(SqlState::WARNING, warning));
        asked.settings.iter().try_for_each(|(name, value, is_local)| match value {
            Some(value) => self.assign(name, Some(value), *is_local),
            None => self.reset(name, *is_local),
        })
    }

    /// Returns the state from which catalog functions and system tables are computed.
    pub(super) fn world(&mut self) -> SystemContext {
        let catalog = self.current_catalog();
        self.follow_catalog(&catalog);
        let own = |name| (name, self.transaction_setting(name).unwrap_or_default());
        SystemContext {
            catalog,
            database: self.facts.database.clone(),
            settings: Mutex::new(self.settings.clone()),
            of_transaction: OF_TRANSACTION.map(own),
            asked: Mutex::default(),
            sizes: OnceLock::new(),
            who: self.facts.who,
            path: self.facts.path.clone(),
            drawer: self.shared.engine().sequence_drawer(),
            drawn: Arc::clone(&self.sequences),
            read_only: self.read_only,
            shows_oids: false,
            locks: (self.begin_engine().locker(), Arc::clone(&self.locks)),
            engine: Arc::clone(self.shared.engine()),
            watched: Arc::clone(self.shared.watched()),
            statements: Arc::clone(self.shared.statements()),
            process: self.shared.process.clone(),
            meaning_of: crate::bind::kept::meaning_of,
            held: self.held(),
        }
    }

    pub(super) fn run_body(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        groups: usize,
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        match &prepared.body {
            Body::Plan(_) if self.is_failed() => Err(in_failed_transaction()),
            Body::Plan(plan) if !prepared.before.is_empty() => {
                let params = trimmed(&prepared.param_types, params);
                let Some(values) = self.with_answers(prepared, &params)? else { return Ok(Ran::Stale) };
                let params: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
                self.run_plan(prepared, plan, &params, groups, announce, sink)
            }
            Body::Plan(plan) if prepared.trims => {
                let params = trimmed(&prepared.param_types, params);
                self.run_plan(prepared, plan, &params, groups, announce, sink)
            }
            Body::Plan(plan) => self.run_plan(prepared, plan, params, groups, announce, sink),
            Body::Empty => Ok(Ran::Done(CommandTag::Empty)),
            Body::Utility(Utility::Declare(_)) if self.is_failed() => Err(in_failed_transaction()),
            Body::Utility(Utility::Declare(declare)) => {
                // As in PostgreSQL, several statements in one text count as a block here. The messages before
                // a Sync do not.
                let is_block = self.in_block() || (announce && self.block == Block::Implicit);
                self.declare(declare, &prepared.param_oids, params, is_block).map(Ran::Done)
            }
            Body::Utility(Utility::Explain(_)) if self.is_failed() => Err(in_failed_transaction()),
            Body::Utility(Utility::Explain(explain)) => {
                let types = &prepared.param_oids;
                parse::on_deep_stack(&prepared.sql, || self.explain(explain, types, params, announce, sink))
                    .map(Ran::Done)
            }
            Body::Utility(command) => {
                parse::on_deep_stack(&prepared.sql, || self.command(command, announce, sink)).map(Ran::Done)
            }
            Body::Definition(_) if self.is_failed() => Err(in_failed_transaction()),
            Body::Definition(definition) => parse::on_deep_stack(&prepared.sql, || match &**definition {
                Definition::CreateTableAs(_) => {
                    let catalog = self.catalog_of_path();
                    let definition = self.facts.path.definition(&catalog, definition)?.into_owned();
                    match &definition {
                        Definition::CreateTableAs(t) => self.create_as(&prepared.sql, &definition, t),
                        _ => Err(SqlError::internal("a definition of another kind")),
                    }
                }
                _ => self.define(&prepared.sql, definition),
            })
            .map(Ran::Done),
        }
    }

    /// Returns whether the statement's names may mean other objects by now.
    fn is_outdated(&mut self, prepared: &Prepared) -> bool {
        let version = self.begin_engine().catalog_version();
        if self.path.version != version || self.path.entries.is_none() {
            self.find_path();
        }
        // In a path of several schemas, a new table may come before the one of the same name. A view may have
        // another text. Another sequence may have the name.
        let is_bound = prepared.path == 0 && !prepared.is_of_version;
        prepared.path != self.facts.path.number() || (!is_bound && prepared.catalog_version != version)
    }

    fn run_plan(
        &mut self,
        prepared: &Prepared,
        plan: &Plan,
        params: &[Datum<'_>],
        groups: usize,
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        if self.is_outdated(prepared) {
            return Ok(Ran::Stale);
        }
        if self.read_only && plan.writes() {
            return Err(SqlError::read_only(&verb(plan)));
        }
        self.choose_moment(prepared, params)?;
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        txn.start_statement();
        let version = txn.catalog_version();
        match self.authorize_statement(prepared, plan) {
            // A dropped table has no grants any more. A new table of this name may have them.
            Err(_) if prepared.catalog_version != version => return Ok(Ran::Stale),
            allowed => allowed?,
        }
        if groups != 1 && !plan.repeats() {
            return Err(SqlError::internal("rows were collapsed whose plan runs once"));
        }
        match (plan, plan.general()) {
            (Plan::Select(select), Some(_)) => {
                return self.run_general(prepared, select, params, announce, sink);
            }
            (plan, Some(query)) => {
                return self.run_general_change(prepared, plan, query, params, announce, sink);
            }
            (Plan::Select(select), None) if self.is_for_runner(select) => {
                return self.run_general(prepared, select, params, announce, sink);
            }
            (_, None) => {}
        }
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let opened = match Opened::open(plan, txn) {
            Ok(opened) => opened,
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => {
                return Ok(Ran::Stale);
            }
            Err(e) => return Err(at_once(plan, e.into())),
        };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let mut exec = Exec {
            txn,
            catalog: &mut self.catalog,
            facts: &self.facts,
            scratch: &mut self.scratch,
            sequences: &self.sequences,
            params,
            group_count: groups,
            pending: Pending::default(),
            deferred: &mut self.deferred,
            meter: self.analysis.as_deref().map(|analysis| &analysis.meter),
        };
        let tag = exec.run(plan, &opened, sink).map_err(|e| at_once(plan, e))?;
        if self.block == Block::Open
            && let Some(txn) = &mut self.txn
        {
            txn.end_statement();
        }
        Ok(Ran::Done(tag))
    }

    pub(super) fn define(&mut self, sql: &str, what: &Definition) -> Result<CommandTag> {
        self.catalog_of_path();
        if self.read_only {
            return Err(SqlError::read_only(what.name()));
        }
        check_literals(sql, &self.facts.forms)?;
        let mut notices = std::mem::take(&mut self.notices);
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let before = txn.made().len();
        let defined = define_current(sql, what, txn, &self.facts, &mut notices);
        let owned = defined.is_ok().then(|| own_what_is_new(before, txn, self.facts.who));
        self.notices = notices;
        self.catalog = None;
        if !std::mem::replace(&mut self.defines, true) {
            self.plans.clear();
        }
        owned.unwrap_or(Ok(()))?;
        defined
    }
}

/// Returns the error of a SELECT. It is that of NOWAIT if another transaction had locked a partition.
fn at_once(plan: &Plan, e: SqlError) -> SqlError {
    match plan {
        Plan::Select(Select { lock: Some(lock), source: Source::Table(of), .. }) => {
            not_at_once(e, lock.wait, &of.table.name)
        }
        _ => e,
    }
}

/// Refuses (0A000) a definition with a literal whose date or interval the session's styles read in another
/// way than the default styles. The stored definition is later read with the default styles.
fn check_literals(sql: &str, forms: &TimeForms) -> Result<()> {
    let (order, intervals) = (forms.dates.order, forms.intervals);
    if order == DateStyle::ISO.order && intervals != IntervalStyle::SqlStandard {
        return Ok(());
    }
    let dates = DateStyle { order, ..DateStyle::ISO };
    for token in parse::tokens(sql)? {
        if token.string().is_some_and(|text| text::is_read_otherwise(&text, dates, intervals)) {
            let what = "a date or an interval whose meaning the session's style decides, in a definition,";
            return Err(SqlError::unsupported(what)
                .with_hint("Write the date as YYYY-MM-DD, or set DateStyle to 'ISO, MDY' and IntervalStyle to 'postgres'."));
        }
    }
    Ok(())
}

/// Runs a definition. If other transactions have changed definitions while it waited, it runs again from its
/// start, with new checks of rights.
fn define_current(
    sql: &str,
    what: &Definition,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<CommandTag> {
    let (noticed, mut seen, mut turns) = (notices.len(), 0, 0);
    loop {
        txn.start_statement();
        let start = txn.savepoint();
        let version = txn.bind_definitions();
        let catalog = txn.catalog();
        let placed = facts.path.definition(&catalog, what).map_err(Failed::Error);
        let defined = placed.and_then(|what| {
            authorize_definition(&what, txn, facts.who)?;
            definition::run(&what, sql, txn, facts, notices)
        });
        if matches!(defined, Err(Failed::Stale)) {
            notices.truncate(noticed);
            txn.start_over(start)?;
        }
        txn.release(start)?;
        match defined {
            Ok(tag) => return Ok(tag),
            Err(Failed::Error(e)) => return Err(e),
            Err(Failed::Stale) => facts.check_cancel()?,
        }
        turns = if seen == version { turns + 1 } else { 0 };
        seen = version;
        pause(turns)?;
    }
}

/// Waits for a short time after `turns` attempts that met a definition out of date, although this session had
/// changed no definition. Commits of other sessions may be about to become visible. Fails after too many
/// attempts.
fn pause(turns: u32) -> Result<()> {
    const TURNS_MAX: u32 = 2000;
    if turns > TURNS_MAX {
        return Err(SqlError::internal("a definition finds itself out of date although nothing has changed"));
    }
    if turns > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the values of the literals that were replaced, in the types of the parameters. Returns `None` if
/// one does not fit. Then the original text runs, and reports the error.
fn literal_values<'a>(
    prepared: &Prepared,
    lifted: &Lifted<'a>,
    reading: &crate::time::Reading<'_>,
    arena: &'a bumpalo::Bump,
) -> Option<Params<'a>> {
    let types = &prepared.param_types;
    if types.len() != lifted.types.len() {
        return None;
    }
    let mut out = Params::with_capacity(lifted.literals.len());
    for (i, literal) in lifted.literals.iter().enumerate() {
        let index = i % types.len();
        let parse = |text: &str| {
            prepared.parse_param(index, text, reading).ok().map(|v| keep_in(arena, v.as_datum()))
        };
        out.push(match (*literal, types[index]) {
            (Literal::Int(n), Ty::Int4) => Datum::Int4(i32::try_from(n).ok()?),
            (Literal::Int(n), Ty::Int8) => Datum::Int8(n),
            (Literal::Int(n), _) => parse(itoa::Buffer::new().format(n))?,
            (Literal::Number(text), _) => parse(text)?,
            (Literal::Text(text), t) if t.keeps_text() && !text.contains('\0') => Datum::Text(text),
            (Literal::Text(text), _) => parse(text)?,
            (Literal::Doubled(text), _) => parse(&text.replace("''", "'"))?,
        });
    }
    Some(out)
}

fn check_syntax(sql: &str) -> Result<()> {
    let mut unused = Lifted::default();
    let mut from = 0;
    while let Some(extent) = next_statement(sql, from, &mut unused) {
        let shift = sql[..extent.start].chars().count() as u32;
        let text = &sql[extent.start..extent.end];
        parse::check(text).map_err(|e| SqlError { position: e.position.map(|p| p + shift), ..e })?;
        from = extent.next;
    }
    Ok(())
}

fn hand_out(
    facts: &Facts,
    portal: &mut Portal,
    max_rows: usize,
    prepared: &Prepared,
    sink: &mut dyn Sink,
) -> Result<Progress> {
    let Some(pending) = &mut portal.pending else { return Err(SqlError::internal("no pending rows")) };
    let limit = if max_rows == 0 { usize::MAX } else { max_rows };
    let mut given = 0;
    while given < limit {
        facts.check_cancel()?;
        planted_panic("panic at fetch");
        if !pending.rows.give(pending.next, sink)? {
            portal.finished = true;
            return Ok(Progress::Complete(tag_of(prepared, given as u64)));
        }
        pending.next += 1;
        given += 1;
    }
    Ok(Progress::Suspended)
}

fn tag_of(prepared: &Prepared, count: u64) -> CommandTag {
    match &prepared.body {
        Body::Plan(Plan::Insert(_)) => CommandTag::Insert(count),
        Body::Plan(Plan::Update(_)) => CommandTag::Update(count),
        Body::Plan(Plan::Delete(_)) => CommandTag::Delete(count),
        _ => CommandTag::Select(count),
    }
}

fn verb(plan: &Plan) -> String {
    let verb = match plan {
        Plan::Select(select) => {
            let strength = select.lock.as_ref().map_or(LockStrength::Update, |lock| lock.strength);
            return format!("SELECT {}", crate::bind::lock::clause(strength));
        }
        Plan::Insert(_) => "INSERT",
        Plan::Update(_) => "UPDATE",
        Plan::Delete(_) => "DELETE",
    };
    verb.to_owned()
}

#[cfg(test)]
mod tests {
    use varve_device::MemoryDirectory;
    use varve_engine::{Database, Options};
    use varve_pager::PagerConfig;

    use super::*;
    use crate::SqlDatabase;
    use crate::session::SessionParams;
    use crate::sink::Nowhere;

    fn session() -> Session {
        let mut pager = PagerConfig::new(MemoryDirectory::new());
        pager.pool_bytes = 4 << 20;
        pager.log_segment_bytes = 1 << 20;
        pager.log_capacity_bytes = 4 << 20;
        pager.background = false;
        let db = Arc::new(SqlDatabase::new(
            Database::open(Options { derive: Some(crate::deriver()), ..Options::new(pager) }).unwrap(),
        ));
        let params = SessionParams { user: "postgres".into(), ..SessionParams::default() };
        Session::new(db, params).unwrap()
    }

    /// Returns the number of plans that are linked to a prepared statement after several changes of
    /// definitions. One execution follows each change.
    fn links_after(session: &mut Session, definition: impl Fn(usize) -> String) -> usize {
        session.simple("prepare s as select a from t where a = 1", &mut Nowhere).unwrap();
        for n in 0..20 {
            session.simple(&definition(n), &mut Nowhere).unwrap();
            session.simple("execute s", &mut Nowhere).unwrap();
        }
        let mut prepared = &session.statement("s").unwrap();
        let mut links = 0;
        while let Some(next) = prepared.successor.get() {
            (prepared, links) = (next, links + 1);
        }
        session.simple("deallocate s", &mut Nowhere).unwrap();
        links
    }

    /// In an earlier version, with a search path, each definition of any session linked one more plan to a
    /// statement, without limit.
    #[test]
    fn plans_under_a_search_path_form_no_growing_chain() {
        let mut session = session();
        session.simple("create schema s; create table t (a int primary key)", &mut Nowhere).unwrap();
        let strange = |n| format!("create table strange{n} (a int); drop table strange{n}");
        let own = |n| format!("alter table t add column b{n} int");
        assert_eq!(links_after(&mut session, strange), 0);
        session.simple("set search_path to s, public", &mut Nowhere).unwrap();
        assert_eq!(links_after(&mut session, strange), 0);
        assert_eq!(links_after(&mut session, own), 0);
        session.simple("create table s.t (a int primary key)", &mut Nowhere).unwrap();
        assert_eq!(links_after(&mut session, |n| own(n + 20)), 0);
    }
}
