//! Runs EXPLAIN, and EXPLAIN ANALYZE, which executes the statement.
//!
//! Invariants
//! 1. ANALYZE does everything that the statement does, with the same checks of rights. Only its rows are
//!    dropped.
//! 2. Other statements run without clocks and counters.
//!
//! This module does not know the steps of a plan (`crate::explain`, or the runner of general queries).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_engine::{Catalog, Datum, PageCounts, PageMeter, Value};

use super::Session;
use super::guesses::{Measures, rates};
use super::run::Ran;
use crate::ast::{Definition, Statement};
use crate::error::{Result, SqlError};
use crate::exec::watch::{At, Meter, Watch};
use crate::explain::{Explained, Step, document, short, show};
use crate::general::{Analyzed, Around, Emit, Gauge, General, Query, Rates};
use crate::oid::{self, Oid};
use crate::parse::{self, Parsed};
use crate::plan::{Plan, Select};
use crate::prepared::{Body, Prepared};
use crate::sink::{Column, CommandTag, Nowhere, Sink};
use crate::system;
use crate::system::names::quoted;
use crate::utility::Utility;
use crate::utility::explain::{Explain, Format, Options, shifted};

/// The measurements of a statement that EXPLAIN ANALYZE runs.
pub(super) struct Analysis {
    gauge: Gauge,
    /// The measurements of the executor's steps.
    pub(super) meter: Meter,
    /// The measurements of the general query, if there was one.
    query: RefCell<Option<Analyzed>>,
}

impl Analysis {
    fn new(options: &Options, rates: Option<Rates>) -> Analysis {
        let timing = options.shows_timing();
        Analysis { gauge: Gauge { timing, rates }, meter: Meter::new(timing), query: RefCell::default() }
    }
}

/// Runs a general query. With `analysis`, records what its steps do.
pub(super) fn run_general(
    general: &dyn General,
    analysis: Option<&Analysis>,
    query: Query<'_>,
    emit: &mut Emit<'_>,
) -> Result<u64> {
    let Some(analysis) = analysis else { return general.run(query, emit) };
    let (count, analyzed) = general.analyze(query, analysis.gauge, emit)?;
    analysis.query.replace(Some(analyzed));
    Ok(count)
}

/// The plan of a statement, and the times of planning and execution.
struct Shown {
    plan: Step,
    planning: Duration,
    planning_pages: PageCounts,
    execution: Option<Duration>,
}

impl Session {
    /// Runs EXPLAIN. `types` and `params` belong to the explained statement.
    pub(super) fn explain(
        &mut self,
        explain: &Explain,
        types: &[Oid],
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        let options = &explain.options;
        let pages = options.buffers.then(PageMeter::start);
        let shown = self.explained(explain, types, params);
        drop(pages);
        let shown = shown.map_err(|e| shifted(e, explain.before))?;
        if announce {
            sink.columns(&columns(options))?;
        }
        let Shown { plan, planning, planning_pages, execution } = &shown;
        let (planning, planning_pages, execution) = (*planning, *planning_pages, *execution);
        let settings = if options.settings { self.settings.of_planning() } else { Vec::new() };
        let explained = Explained { options, plan, settings, planning, planning_pages, execution };
        let lines = match options.format {
            Format::Text => show::text(&explained),
            Format::Json => vec![document::json(&explained)],
            Format::Xml => vec![document::xml(&explained)],
            Format::Yaml => vec![document::yaml(&explained)],
        };
        lines.iter().try_for_each(|line| sink.row(&[Datum::Text(line)]))?;
        Ok(CommandTag::Plain("EXPLAIN"))
    }

    fn explained(&mut self, explain: &Explain, types: &[Oid], params: &[Datum<'_>]) -> Result<Shown> {
        loop {
            self.facts.check_cancel()?;
            let (begin, pages) = (Instant::now(), PageMeter::counts());
            let (prepared, arguments) = self.statement_in(explain, types)?;
            let own: Vec<Datum<'_>> = arguments.iter().flatten().map(Value::as_datum).collect();
            let params = if arguments.is_some() { &own } else { params };
            let Body::Plan(plan) = &prepared.body else {
                return Err(SqlError::unsupported("EXPLAIN of this statement"));
            };
            if !prepared.before.is_empty() {
                return Err(SqlError::unsupported("EXPLAIN of a subquery that locks rows"));
            }
            let (planning, planning_pages) = (begin.elapsed(), PageMeter::counts() - pages);
            let bound = Shown { plan: Step::default(), planning, planning_pages, execution: None };
            let shown = match explain.options.analyze {
                true => self.analyzed(&prepared, plan, params, &explain.options, bound)?,
                false => self.planned(&prepared, plan, params, &explain.options, bound)?,
            };
            if let Some(mut shown) = shown {
                if let Some(columns) = &prepared.columns {
                    shown.plan.outputs = outputs(columns, &self.current_catalog());
                }
                return Ok(shown);
            }
        }
    }

    /// Prepares the explained statement. Also returns the arguments of EXECUTE. For DECLARE and CREATE TABLE
    /// AS, the plan of their query is explained.
    fn statement_in(
        &mut self,
        explain: &Explain,
        types: &[Oid],
    ) -> Result<(Arc<Prepared>, Option<Vec<Value>>)> {
        let text = &explain.text;
        // The catalog that the session keeps may be older than the change that made the last attempt out of
        // date.
        self.catalog = None;
        let prepared = match parse::statement(text)? {
            Parsed::Utility(Utility::Execute(name, arguments)) => {
                let prepared = self.newest(self.statement(&name)?)?;
                let values = self.arguments(&name, &prepared, &arguments)?;
                return Ok((prepared, Some(values)));
            }
            Parsed::Utility(Utility::Declare(declare)) => {
                self.build(&declare.query, types).map_err(|e| shifted(e, declare.before))?
            }
            Parsed::Definition(definition) => match *definition {
                Definition::CreateTableAs(t) if !explain.options.analyze => {
                    let catalog = self.current_catalog();
                    self.follow_catalog(&catalog);
                    self.bound(text, types, &Statement::Query((*t.query).clone()), &catalog)?
                }
                _ => return Err(SqlError::unsupported("EXPLAIN of this statement")),
            },
            _ => self.build(text, types)?,
        };
        Ok((Arc::new(prepared), None))
    }

    /// Makes the plan without running it. Returns `None` if a definition is out of date.
    fn planned(
        &mut self,
        prepared: &Prepared,
        plan: &Plan,
        params: &[Datum<'_>],
        options: &Options,
        bound: Shown,
    ) -> Result<Option<Shown>> {
        self.authorize(plan, &prepared.needs)?;
        let Some(select) = self.for_runner(plan) else {
            let plan = self.with_costs(plan, params, options)?;
            return Ok(Some(Shown { plan, ..bound }));
        };
        let begin = Instant::now();
        let rates = options.shows_costs().then(|| rates(&self.settings));
        let Some(step) = self.explain_general(select, params, rates)? else { return Ok(None) };
        let planning = bound.planning + begin.elapsed();
        Ok(Some(Shown { plan: around(plan, select, step, None, None), planning, ..bound }))
    }

    /// Runs the statement with measurements. Returns `None` if a definition is out of date.
    fn analyzed(
        &mut self,
        prepared: &Arc<Prepared>,
        plan: &Plan,
        params: &[Datum<'_>],
        options: &Options,
        bound: Shown,
    ) -> Result<Option<Shown>> {
        self.authorize(plan, &prepared.needs)?;
        let estimated = match self.for_runner(plan) {
            Some(_) => Step::default(),
            None => self.with_costs(plan, params, options)?,
        };
        let began = Instant::now();
        let rates = options.shows_costs().then(|| rates(&self.settings));
        self.analysis = Some(Box::new(Analysis::new(options, rates)));
        let ran = self.run(prepared, params, 1, false, &mut Nowhere);
        let took = began.elapsed();
        let Some(analysis) = self.analysis.take() else {
            return Err(SqlError::internal("a run that was not analysed"));
        };
        let Ran::Done(tag) = ran? else { return Ok(None) };
        let meter = &analysis.meter;
        meter.stop();
        let count = match tag {
            CommandTag::Select(n) | CommandTag::Insert(n) | CommandTag::Update(n) | CommandTag::Delete(n) => {
                n
            }
            _ => 0,
        };
        meter.gave(At::Change, count);
        Ok(Some(match (plan.general().or(plan.query()), analysis.query.take()) {
            (Some(select), Some(query)) => Shown {
                plan: around(plan, select, query.plan, Some(meter), Some(count)),
                planning: bound.planning + query.planning,
                planning_pages: bound.planning_pages + query.planning_pages,
                execution: Some(took.saturating_sub(query.planning)),
            },
            _ => {
                let mut plan = short::steps(plan, Some(meter), None);
                plan.take_estimates(&estimated);
                Shown { plan, execution: Some(took), ..bound }
            }
        }))
    }

    /// Returns the query of a plan, if the runner of general queries runs it.
    fn for_runner<'p>(&mut self, plan: &'p Plan) -> Option<&'p Select> {
        match plan {
            Plan::Select(select) if self.is_for_runner(select) => Some(select),
            plan => plan.general(),
        }
    }

    /// Returns the steps of a plan for the executor, with their costs if these are shown.
    fn with_costs(&mut self, plan: &Plan, params: &[Datum<'_>], options: &Options) -> Result<Step> {
        if !options.shows_costs() {
            return Ok(short::steps(plan, None, None));
        }
        let rates = rates(&self.settings);
        let around = Around::new(&self.facts, params);
        self.go_back(None)?;
        let txn = self.begin_engine();
        txn.start_statement();
        let measures = Measures::new(txn, around, rates);
        Ok(short::steps(plan, None, Some(&measures)))
    }
}

/// Returns the names of the output columns in the plan. An output that shows a column of a table or view has
/// the name of this column. Any other output has its own name.
fn outputs(columns: &[Column], catalog: &Catalog) -> Vec<String> {
    let shown = |column: &Column| {
        let origin = column.origin?;
        let relation = system::relation(catalog, origin.relation)?;
        let ordinal = usize::try_from(origin.number).ok()?.checked_sub(1)?;
        let name = relation.attributes().get(ordinal).map(|attribute| quoted(&attribute.name))?;
        Some(format!("{}.{name}", quoted(relation.name)))
    };
    columns.iter().map(|column| shown(column).unwrap_or_else(|| column.name.to_string())).collect()
}

/// Adds the steps above a general query: row locks, or the change of a table. The runner of general queries
/// has made the steps below.
fn around(plan: &Plan, select: &Select, step: Step, meter: Option<&Meter>, count: Option<u64>) -> Step {
    match plan {
        Plan::Select(_) if select.lock.is_some() => short::lock(step, count),
        Plan::Select(_) => step,
        _ => short::change(plan, step, meter),
    }
}

/// Returns the result column of EXPLAIN.
pub(super) fn columns(options: &Options) -> Vec<Column> {
    let type_oid = match options.format {
        Format::Text | Format::Yaml => oid::TEXT,
        Format::Xml => oid::XML,
        Format::Json => oid::JSON,
    };
    vec![Column { name: "QUERY PLAN".into(), type_oid, typmod: -1, origin: None }]
}
